package openaichat

import (
	"slices"
	"strconv"
)

// edit replaces a span of a document; an empty span puts the text in.
type edit struct {
	at   span
	text []byte
}

// apply appends the document with its edits, which must not overlap.
func apply(dst, b []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(x, y edit) int {
		if d := x.at.from - y.at.from; d != 0 {
			return d
		}
		return x.at.to - y.at.to // what is put in comes before what is taken out
	})
	at := 0
	for _, e := range edits {
		dst = append(append(dst, b[at:e.at.from]...), e.text...)
		at = e.at.to
	}
	return append(dst, b[at:]...)
}

// cut gives the edits that take items out of an object or array, commas and
// all, and how many are left in it.
func cut(b []byte, holder span, gone func(span) bool) (edits []edit, left int) {
	items := 0
	before := 0 // end of the item before, when one of those before is kept
	var first span
	for w := open(b, holder); w.next(); items++ {
		item := w.item
		switch {
		case !gone(item):
			if first.there() {
				// All before this one go, up to where it starts.
				edits = append(edits, edit{at: span{first.from, item.from}})
				first = span{}
			}
			left++
			before = item.to
		case left > 0:
			edits = append(edits, edit{at: span{before, item.to}})
			before = item.to
		default:
			if !first.there() {
				first = item
			}
			first.to = item.to
		}
	}
	if first.there() {
		edits = append(edits, edit{at: first})
	}
	return edits, left
}

// spans is a set of parts of a document.
type spans map[span]struct{}

func (s *spans) add(x span) {
	if *s == nil {
		*s = make(spans)
	}
	(*s)[x] = struct{}{}
}

func (s spans) has(x span) bool {
	_, ok := s[x]
	return ok
}

// patched is what becomes of a choice.
type patched struct {
	edits []edit
	gone  []span // members of the body that are taken out
	left  int    // members of the body that stay
	says  bool   // a member that stays says something
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
		if n := m.c.position(); m.index.there() && m.c.indexed && n != m.c.index {
			p.edits = append(p.edits, edit{m.index, strconv.AppendInt(nil, int64(n), 10)})
		}
	}
	gone := out.has
	if edits, left := cut(b, ch.list, gone); left > 0 {
		p.edits = append(p.edits, edits...)
	} else if len(edits) > 0 {
		p.gone = append(p.gone, ch.listItem)
		p.edits = slices.DeleteFunc(p.edits, func(e edit) bool { return within(e.at, ch.list) })
	}
	if nested(b, ch.content) && b[ch.content.from] == '[' {
		if edits, left := cut(b, ch.content, gone); left > 0 {
			p.edits = append(p.edits, edits...)
		} else if len(edits) > 0 {
			p.edits = append(p.edits, edit{ch.content, []byte("null")})
			p.emptied = true
		}
	}
	edits, left := cut(b, ch.body, func(s span) bool { return gone(s) || slices.Contains(p.gone, s) })
	p.edits, p.left = append(p.edits, edits...), left
	edits, _ = cut(b, ch.at, outOfChoice.has)
	p.edits = append(p.edits, edits...)
	p.says = says(b, ch, func(s span) bool {
		return gone(s) || slices.Contains(p.gone, s)
	}, p.emptied)
	if (len(out) > 0 || len(outOfChoice) > 0) && ch.logprobs.there() {
		// The tokens of a withheld call may stand among them.
		p.edits = append(p.edits, edit{ch.logprobs, []byte("null")})
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
			if !m.c.released || m.c.edited != nil || m.index.there() && m.c.indexed && m.c.position() != m.c.index {
				return false
			}
		}
	}
	return rd.whole == nil && len(rd.top) == 0
}

func within(s, outer span) bool { return s.from >= outer.from && s.to <= outer.to }

// says reports whether what stays of a body is worth an event.
func says(b []byte, ch *choice, gone func(span) bool, emptied bool) bool {
	for w := open(b, ch.body); w.next(); {
		switch {
		case gone(w.item), empty(b, w.val), emptied && w.val == ch.content:
		case string(w.key.in(b)) == "role" && ch.lane.role:
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
			p.edits = append(p.edits, edit{m.args, []byte(`""`)})
		}
		return true
	}
	if !m.inner.there() {
		return true
	}
	m.c.given = true
	args := m.c.edited
	if !m.c.object {
		args = quoted(string(args))
	}
	if m.args.there() {
		p.edits = append(p.edits, edit{m.args, args})
		return true
	}
	member := append(append(append([]byte{'"'}, m.key...), `":`...), args...)
	if nested(b, m.inner) {
		member = append(member, ',')
	}
	p.edits = append(p.edits, edit{span{m.inner.from + 1, m.inner.from + 1}, member})
	return true
}

// finishEdits changes a choice's finish reason to what the agent is shown.
func finishEdits(ch *choice, b []byte, shown string) []edit {
	if shown == ch.reason {
		return nil
	}
	edits := []edit{{ch.finish, quoted(shown)}}
	if ch.native.there() && slices.Contains(callFinishes, text(b, ch.native)) {
		edits = append(edits, edit{ch.native, quoted(shown)})
	}
	return edits
}
