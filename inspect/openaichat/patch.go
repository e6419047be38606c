package openaichat

import (
	"slices"
	"strconv"

	"callgate/inspect/rawjson"
)

// spans is a set of parts of a document.
type spans map[rawjson.Span]struct{}

func (s *spans) add(x rawjson.Span) {
	if *s == nil {
		*s = make(spans)
	}
	(*s)[x] = struct{}{}
}

func (s spans) has(x rawjson.Span) bool {
	_, ok := s[x]
	return ok
}

// patched is what becomes of a choice.
type patched struct {
	edits []rawjson.Edit
	gone  []rawjson.Span // members of the body that are taken out
	left  int            // members of the body that stay
	says  bool           // a member that stays says something
	// emptied says that nothing is left of a content of parts.
	emptied bool
}

// patch gives the edits that take a choice's withheld calls out, close up the
// numbers behind them and put edited arguments in.
func (t *turn) patch(b []byte, ch *choice) patched {
	var p patched
	var out, outOfChoice spans // items withheld
	for i := range ch.mentions {
		switch m := &ch.mentions[i]; {
		case m.c.released:
		case m.holder == ch.at:
			outOfChoice.add(m.item)
		default:
			out.add(m.item)
		}
	}
	for i := range ch.mentions {
		m := &ch.mentions[i]
		if !m.c.released {
			continue
		}
		if m.c.edited != nil && !t.rewrite(b, m, &p) {
			out.add(m.item)
			continue
		}
		if n := m.c.position(); m.index.There() && m.c.indexed && n != m.c.index {
			p.edits = append(p.edits, rawjson.Edit{At: m.index, Text: strconv.AppendInt(nil, int64(n), 10)})
		}
	}
	gone := out.has
	if edits, left := rawjson.Cut(b, ch.list, gone); left > 0 {
		p.edits = append(p.edits, edits...)
	} else if len(edits) > 0 {
		p.gone = append(p.gone, ch.listItem)
		p.edits = slices.DeleteFunc(p.edits, func(e rawjson.Edit) bool { return e.At.Within(ch.list) })
	}
	if rawjson.Nested(b, ch.content) && b[ch.content.From] == '[' {
		if edits, left := rawjson.Cut(b, ch.content, gone); left > 0 {
			p.edits = append(p.edits, edits...)
		} else if len(edits) > 0 {
			p.edits = append(p.edits, rawjson.Edit{At: ch.content, Text: []byte("null")})
			p.emptied = true
		}
	}
	if ch.role.There() && ch.lane.role {
		p.gone = append(p.gone, ch.role)
	}
	edits, left := rawjson.Cut(b, ch.body, func(s rawjson.Span) bool { return gone(s) || slices.Contains(p.gone, s) })
	p.edits, p.left = append(p.edits, edits...), left
	edits, _ = rawjson.Cut(b, ch.at, outOfChoice.has)
	p.edits = append(p.edits, edits...)
	p.says = says(b, ch, func(s rawjson.Span) bool {
		return gone(s) || slices.Contains(p.gone, s)
	}, p.emptied)
	if (len(out) > 0 || len(outOfChoice) > 0) && ch.logprobs.There() {
		// The tokens of a withheld call may stand among them.
		p.edits = append(p.edits, rawjson.Edit{At: ch.logprobs, Text: []byte("null")})
	}
	return p
}

// untouched reports whether an event goes out as it came: patch and the rest of
// what emitRead does would find nothing to change.
func (rd *reading) untouched() bool {
	for i := range rd.choices {
		ch := &rd.choices[i]
		if ch.reason != "" && (len(ch.lane.refusals) > 0 || ch.lane.finishShown(ch.reason) != ch.reason) {
			return false
		}
		for j := range ch.mentions {
			m := &ch.mentions[j]
			if !m.c.released || m.c.edited != nil || m.index.There() && m.c.indexed && m.c.position() != m.c.index {
				return false
			}
		}
	}
	return rd.whole == nil && len(rd.top) == 0
}

// says reports whether what stays of a body is worth an event.
func says(b []byte, ch *choice, gone func(rawjson.Span) bool, emptied bool) bool {
	for w := rawjson.Open(b, ch.body); w.Next(); {
		switch {
		case gone(w.Item), empty(b, w.Val), emptied && w.Val == ch.content:
		case string(w.Key.In(b)) == "role" && ch.lane.role:
		default:
			return true
		}
	}
	return false
}

// rewrite gives out the edited arguments at the first mention that has a place
// for them. It reports whether anything of the mention is to stay.
func (t *turn) rewrite(b []byte, m *mention, p *patched) bool {
	if m.c.given {
		if m.bare {
			return false
		}
		if !empty(b, m.args) {
			p.edits = append(p.edits, rawjson.Edit{At: m.args, Text: []byte(`""`)})
		}
		return true
	}
	if !m.inner.There() {
		return true
	}
	m.c.given = true
	args := m.c.edited
	if !m.c.object {
		args = quoted(string(args))
	}
	if m.args.There() {
		p.edits = append(p.edits, rawjson.Edit{At: m.args, Text: args})
		return true
	}
	member := append(append(append([]byte{'"'}, m.key...), `":`...), args...)
	if rawjson.Nested(b, m.inner) {
		member = append(member, ',')
	}
	p.edits = append(p.edits, rawjson.Insert(m.inner.From+1, member))
	return true
}

// finishEdits changes a choice's finish reason to what the agent is shown.
func finishEdits(ch *choice, b []byte, shown string) []rawjson.Edit {
	if shown == ch.reason {
		return nil
	}
	edits := []rawjson.Edit{{At: ch.finish, Text: quoted(shown)}}
	if ch.native.There() && slices.Contains(callFinishes, rawjson.Text(b, ch.native)) {
		edits = append(edits, rawjson.Edit{At: ch.native, Text: quoted(shown)})
	}
	return edits
}
