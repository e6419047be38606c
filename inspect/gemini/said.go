package gemini

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// gathering is what a turn keeps for later requests.
type gathering struct {
	buf   []byte // what the round says
	items []saidItem
	id    string // of the round
	full  bool   // too much was said to be told of

	before []inspect.Round // rounds that have ended
	size   int             // of what is kept of them
	spoke  bool            // a text was said in them
	ending string          // the text of ours that ended a suspended turn
	mute   bool            // nothing of the turn could be seen

	seen    []byte // the text that was shown, as written between quotes
	notices []string
}

// saidItem is one thing that was said: a range of buf, or a call that is no part.
type saidItem struct {
	from, to int
	what     saying
	call     *call
}

type saying uint8

const (
	saidText    saying = iota // the inside of a string; those in a row are one text
	saidThought               // likewise, thought
	saidPart                  // a part as it came
	saidHosted                // a part of what the provider runs itself
	saidResult                // a part of what that gave
	saidCall                  // a call; its range is empty where it is no part
)

// hear takes in the parts of a chunk.
func (g *gathering) hear(b []byte, parts []part) {
	for i := range parts {
		p := &parts[i]
		switch {
		case p.call != nil:
			g.put(p.at.In(b), saidItem{what: saidCall, call: p.call})
		case p.plain && p.thought:
			g.put(inner(b, p.text), saidItem{what: saidThought})
		case p.plain:
			g.put(inner(b, p.text), saidItem{what: saidText})
		case p.hosted:
			g.put(p.at.In(b), saidItem{what: saidHosted})
		case p.result:
			g.put(p.at.In(b), saidItem{what: saidResult})
		default:
			g.put(p.at.In(b), saidItem{what: saidPart})
		}
	}
}

func (g *gathering) put(raw []byte, item saidItem) {
	if g.full {
		return
	}
	item.from = len(g.buf)
	g.buf = append(g.buf, raw...)
	item.to = len(g.buf)
	if n := len(g.items) - 1; n >= 0 && g.items[n].what == item.what && item.what <= saidThought {
		g.items[n].to = item.to
		return
	}
	g.items = append(g.items, item)
}

func (g *gathering) add(item saidItem) { g.put(nil, item) }

// itemCost is what keeping an item is charged, beside its text.
const itemCost = 40

// kept is how many bytes of what was said are kept for later requests.
func (g *gathering) kept() int { return g.size + len(g.buf) + len(g.items)*itemCost }

// tooLong bounds what is gathered. What is too long cannot be told of: calls are
// refused in words from then on, and a turn that must be told of ends.
func (t *turn) tooLong() error {
	g := t.told
	if g == nil || g.full || g.kept() <= t.lim.Answer {
		return nil
	}
	g.full = true
	if t.silent > 0 || t.rounds > 1 {
		return t.limit("calls of the answer were withheld, and it is longer than the limit of " + strconv.Itoa(t.lim.Answer) + " bytes")
	}
	return nil
}

// speaks reports whether the round says a text of more than white space.
func (g *gathering) speaks() bool {
	return slices.ContainsFunc(g.items, func(s saidItem) bool {
		switch s.what {
		case saidText:
			return !blank(g.buf[s.from:s.to])
		case saidPart:
			raw := g.buf[s.from:s.to]
			text := rawjson.Get(raw, rawjson.All(raw), "text")
			thought := rawjson.Get(raw, rawjson.All(raw), "thought")
			return !rawjson.IsString(raw, text) || string(thought.In(raw)) != "true" && !blank(inner(raw, text))
		}
		return false
	})
}

// blank reports whether a text, as it is written between quotes, is white space
// alone.
func blank(raw []byte) bool {
	lit := append(append([]byte{'"'}, raw...), '"')
	return strings.TrimSpace(string(strictjson.AppendString(nil, lit))) == ""
}

// round gives the round as a content of a history: what the provider said, with
// refusals for the calls that were not shown. Of one that has not said all it had
// to say stands only what is of use alone.
func (t *turn) round(whole bool) inspect.Round {
	g := t.told
	r := inspect.Round{ID: g.id}
	msg := []byte(`{"role":"model","parts":[`)
	from := len(msg)
	said := false // something stands there that can stand alone
	add := func(raw []byte) {
		if len(msg) > from {
			msg = append(msg, ',')
		}
		msg = append(msg, paired(raw)...)
	}
	answered := -1 // what the provider ran before has its result
	for n, s := range g.items {
		if s.what == saidResult {
			answered = n
		}
	}
	for n, s := range g.items {
		raw := g.buf[s.from:s.to]
		if s.what > saidThought {
			if raw = readable(raw); string(raw) == "{}" {
				continue
			}
		}
		switch s.what {
		case saidCall:
			if k := s.call; !k.sound() {
				if k.said {
					add(appendText(nil, quoted(k.refusal())))
					said = true
				}
				continue
			}
			add(ranWith(raw, s.call))
			if !s.call.given {
				r.Refusals = append(r.Refusals, inspect.Refusal{Call: len(r.Calls), Text: s.call.refusal()})
			}
			r.Calls = append(r.Calls, s.call.ID)
			said = true
		case saidText:
			if len(raw) > 0 {
				add(appendText(nil, quote(raw)))
				said = said || !blank(raw)
			}
		case saidThought:
			if whole && len(raw) > 0 {
				add(append(append([]byte(`{"text":"`), raw...), `","thought":true}`...))
			}
		case saidHosted:
			if whole || n < answered {
				add(raw)
				said = true
			}
		case saidPart, saidResult:
			add(raw)
			said = true
		}
	}
	if said {
		r.Message = append(msg, "]}"...)
	}
	return r
}

// readable gives a part without the members whose keys read like those of others:
// they say nothing, since with anything in them the part would be a call that is
// not sound, and no history may hold them.
func readable(raw []byte) []byte {
	if _, err := readPastPart(raw, rawjson.All(raw)); err == nil || len(raw) == 0 {
		return raw
	}
	plain := func(at rawjson.Span, keys map[string]spelling, put func(o *object, w *rawjson.Walk)) []byte {
		o := object{b: raw}
		for w := rawjson.Open(raw, at); w.Next(); {
			if known, ok := keys[strictjson.Fold(rawjson.KeyText(raw, w.Key))]; !ok || w.Is(known.key) {
				put(&o, &w)
			}
		}
		return o.done()
	}
	return plain(rawjson.All(raw), partKeys, func(o *object, w *rawjson.Walk) {
		if !w.Is("functionCall") || !rawjson.IsObject(raw, w.Val) {
			o.keep(w)
			return
		}
		o.put("functionCall", plain(w.Val, callKeys, func(in *object, v *rawjson.Walk) { in.keep(v) }))
	})
}

// sound reports whether nothing is wrong with a call.
func (k *call) sound() bool { return k.Fault == 0 }

// ranWith gives the part of a call with the arguments that it ran with.
func ranWith(raw []byte, k *call) []byte {
	if !k.given || k.ruling.Args == nil {
		return raw
	}
	o := object{b: raw}
	for w := rawjson.Open(raw, rawjson.All(raw)); w.Next(); {
		if string(w.Key.In(raw)) != "functionCall" || !rawjson.IsObject(raw, w.Val) {
			o.keep(&w)
			continue
		}
		in := object{b: raw}
		for v := rawjson.Open(raw, w.Val); v.Next(); {
			if string(v.Key.In(raw)) != "args" {
				in.keep(&v)
			}
		}
		in.put("args", k.ruling.Args)
		o.put("functionCall", in.done())
	}
	return o.done()
}

// appendText adds a part with a text; lit has its quotes.
func appendText(dst, lit []byte) []byte {
	return append(append(append(dst, `{"text":`...), lit...), '}')
}

func quote(raw []byte) []byte { return append(append([]byte{'"'}, raw...), '"') }

// paired gives a JSON text in which no half of a surrogate pair stands alone:
// not every provider takes one in a request.
func paired(raw []byte) []byte {
	if !bytes.Contains(raw, []byte(`\u`)) {
		return raw
	}
	var out []byte
	from := 0
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			i++
			continue
		}
		n := escapeLen(raw[i:])
		if n == 6 && (half(raw[i:], "89abAB") || half(raw[i:], "cdefCDEF")) {
			out = append(append(out, raw[from:i]...), `\ufffd`...)
			from = i + n
		}
		i += n
	}
	return append(out, raw[from:]...)
}

// escapeLen is the length of the escape that b starts with; both halves of a
// surrogate pair are one.
func escapeLen(b []byte) int {
	if len(b) < 6 || b[1] != 'u' {
		return min(2, len(b))
	}
	if half(b, "89abAB") && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' && half(b[6:], "cdefCDEF") {
		return 12
	}
	return 6
}

// half reports whether an escape is a surrogate whose second digit is one of
// those.
func half(b []byte, second string) bool {
	return (b[2] == 'd' || b[2] == 'D') && strings.IndexByte(second, b[3]) >= 0
}
