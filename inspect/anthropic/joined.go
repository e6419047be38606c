package anthropic

import (
	"bytes"

	"callgate/inspect"
	"callgate/inspect/rawjson"
)

// NextRound goes on with a further document.
func (d *document) NextRound(response inspect.Head) error {
	stream, err := streams(response)
	switch {
	case !d.suspended:
		return notSuspended
	case err != nil:
		return err
	case stream:
		return otherForm
	}
	d.keepRound()
	d.body, d.sites, d.ours = nil, nil, nil
	d.finish, d.reason = "", rawjson.Span{}
	d.spoiled, d.taken, d.ended, d.suspended = false, false, false, false
	d.rounds++
	d.tokens.next()
	d.ledger.next()
	d.altered = true
	return nil
}

// keepRound puts the round that has ended with those before it.
func (d *document) keepRound() {
	r, thinks := d.round(d.past.id, d.blocks(), true)
	p := &d.past
	p.rounds = append(p.rounds, r)
	p.bound = p.bound || thinks
	p.notices = append(p.notices, d.ours...)
	d.content = d.appendRound(d.content)
	if d.first == nil {
		d.first = d.body
	}
	p.id = ""
}

// whole gives what is shown, as a list of blocks.
func (d *document) whole() []byte {
	list := bytes.Clone(d.content)
	if d.left {
		for _, text := range d.ours {
			list = appendTextObject(comma(list, 0), text)
		}
	} else {
		list = d.appendRound(list)
	}
	if d.mute {
		list = appendTextObject(comma(list, 0), saidNothing)
	}
	return append(append([]byte{'['}, list...), ']')
}

// blocks gives the round's blocks with their calls.
func (d *document) blocks() (list []saidBlock) {
	if d.spoiled {
		return []saidBlock{{call: d.calls[d.ledger.first]}}
	}
	sites := d.sites
	content := member(d.body, rawjson.All(d.body), "content")
	for w := rawjson.Open(d.body, content); w.Next(); {
		b := saidBlock{raw: w.Val.In(d.body)}
		if len(sites) > 0 && sites[0].block.From == w.Val.From {
			b.call = sites[0].call
			sites = sites[1:]
		}
		list = append(list, b)
	}
	return list
}

// appendRound adds what is shown of the round's blocks.
func (d *document) appendRound(dst []byte) []byte {
	if d.spoiled {
		return appendTextObject(comma(dst, 0), d.calls[d.ledger.first].refusal())
	}
	if !d.taken {
		return dst
	}
	sites := d.sites
	content := member(d.body, rawjson.All(d.body), "content")
	for w := rawjson.Open(d.body, content); w.Next(); {
		if len(sites) == 0 || sites[0].block.From != w.Val.From {
			dst = append(comma(dst, 0), w.Val.In(d.body)...)
			continue
		}
		s := sites[0]
		sites = sites[1:]
		switch {
		case s.call.given && s.call.ruling.Args != nil:
			dst = append(comma(dst, 0), s.call.block(s.block.In(d.body))...)
		case s.call.given:
			dst = append(comma(dst, 0), s.block.In(d.body)...)
		case s.call.said:
			dst = appendTextObject(comma(dst, 0), s.call.refusal())
		}
	}
	return dst
}

// ends are the members that say how an answer ended.
var ends = []string{"stop_reason", "stop_sequence", "stop_details", "container"}

// joined gives out one document of all rounds: the first one's envelope, all
// their blocks, and the end of the last.
func (d *document) joined(dst []byte) []byte {
	p := patch{b: d.first, obj: rawjson.All(d.first)}
	p.set("content", d.whole())
	d.shown = d.finish
	root := rawjson.All(d.body)
	for _, key := range ends {
		switch at := rawjson.Get(d.body, root, key); {
		case key == "stop_reason" && (d.lost() || d.spoiled):
			p.set(key, []byte(`"end_turn"`))
			d.shown = "end_turn"
		case d.spoiled:
		case at.There():
			p.set(key, at.In(d.body))
		}
	}
	p.set("usage", d.usageOfAll())
	return p.append(dst)
}

// endedBy gives out one document of the rounds that have ended, with a text
// behind them.
func (d *document) endedBy(dst []byte, text string) []byte {
	if d.suspended {
		d.content = d.appendRound(d.content)
		d.past.notices = append(d.past.notices, d.ours...)
	}
	first := d.first
	if first == nil {
		first = d.body
	}
	d.left, d.suspended, d.ours = true, false, []string{text}
	p := patch{b: first, obj: rawjson.All(first)}
	p.set("content", d.whole())
	p.set("stop_reason", []byte(`"end_turn"`))
	p.set("stop_sequence", []byte("null"))
	p.set("usage", d.usageOfAll())
	return p.append(dst)
}

// usageOfAll gives the usage of the turn. Of one round it stays as it came.
func (d *document) usageOfAll() []byte {
	if d.rounds == 1 && len(d.usage) > 0 {
		return d.usage
	}
	return d.merged(nil, d.usage, rawjson.All(d.usage))
}
