package openaichat

import (
	"bytes"
	"slices"
	"strings"

	"callgate/inspect/rawjson"
)

// emit gives one event out, or what is left of it.
func (s *stream) emit(e *event) {
	if s.mute && e.kind != eventPlain && e.kind != eventRead {
		return
	}
	switch e.kind {
	case eventPlain:
		if s.mute || s.hush || s.owed {
			s.emitQuiet(e)
		} else {
			s.emitPlain(e.raw, e.note)
		}
	case eventDone:
		s.close()
		s.payUsage()
		s.raw(e.raw)
		s.done = true
	case eventEnd:
		closed, paid := s.close(), s.payUsage()
		if (closed || paid || s.begun > 1 && !s.failed) && !s.done {
			s.own(append(s.ours(), "data: [DONE]\n\n"...))
			s.done = true
		}
		s.over = true
	case eventCut:
		s.tellAll()
		s.over = true
	case eventRead:
		s.emitRead(e)
		s.emitMore(e)
	}
}

// raw gives out bytes of the provider as they came.
func (s *stream) raw(b []byte) {
	s.out = append(s.out, b...)
	s.ragged = !ended(b) && string(b) != "\n" && string(b) != "\r\n"
}

// ours gives the output ready for an event of ours; own takes it back.
func (s *stream) ours() []byte {
	if s.ragged {
		return append(s.out, "\n\n"...)
	}
	return s.out
}

func (s *stream) own(out []byte) {
	s.out, s.ragged, s.rec.Altered = out, false, true
}

// show notes what the agent was shown of a lane.
func (s *stream) show(n shown) {
	for _, l := range s.lanes {
		if l.n == n.lane {
			l.show(n)
			return
		}
	}
}

func (l *lane) show(n shown) {
	l.role = l.role || n.role
	l.text = l.text || n.text
	l.refusal = l.refusal || n.refusal
}

// emitRead gives out an event that was read.
func (s *stream) emitRead(e *event) {
	rd := e.rd
	for _, c := range rd.calls {
		c.lane.pass(c)
		s.hush = s.hush || s.repair && !c.released
	}
	quiet := s.mute || s.hush && !e.final()
	if !quiet && s.repair {
		s.hush = s.hush && !e.final()
		s.owed = s.owed && !rd.usage
	}
	if rd.failed {
		s.tellAll() // clients stop reading at an error
	}
	if rd.whole != nil {
		s.rec.Altered = true
		s.tellClosed()
		return
	}
	if !rd.failed && !(quiet && (rd.usage || s.mute)) && s.begun == 1 && rd.untouched() {
		s.raw(e.raw)
		for i := range rd.choices {
			ch := &rd.choices[i]
			ch.lane.show(ch.shows)
			if ch.reason != "" {
				s.shut(ch.lane, ch.reason, ch.reason)
			}
		}
		s.tellClosed()
		return
	}
	rd = rd.grow(e.grown)
	b := e.data.In(e.raw)
	var edits []rawjson.Edit
	var behind []*choice // whose finish goes out behind a refusal
	var dropped []rawjson.Span
	for i := range rd.choices {
		ch := &rd.choices[i]
		p := s.patch(b, ch)
		s.separate(ch, b, &p)
		if s.mute && ch.reason != "" {
			for _, at := range []rawjson.Span{ch.finish, ch.native} {
				if at.There() {
					p.edits = append(p.edits, rawjson.Edit{At: at, Text: []byte("null")})
				}
			}
			if !p.says {
				dropped = append(dropped, ch.at)
				continue
			}
			edits = append(edits, p.edits...)
			continue
		}
		tell := ch.reason != "" && len(ch.lane.refusals) > 0
		switch {
		case tell && p.says:
			behind = append(behind, ch)
			p.edits = append(p.edits, rawjson.Edit{At: ch.finish, Text: []byte("null")})
		case tell:
			s.tell(ch.lane)
			fallthrough
		case ch.reason != "":
			p.edits = append(p.edits, finishEdits(ch, b, ch.lane.finishShown(ch.reason))...)
		case len(p.edits) > 0 && !p.says:
			dropped = append(dropped, ch.at)
			continue
		}
		edits = append(edits, p.edits...)
	}
	edits = s.dropChoices(b, rd, edits, dropped)
	edits = append(edits, s.topEdits(b, rd)...)
	usage := rd.usage
	if quiet && usage {
		usage, s.owed = false, true
		if len(rd.choices) > len(dropped) {
			edits = append(edits, rawjson.Edit{At: rawjson.Get(b, rawjson.All(b), "usage"), Text: []byte("null")})
		}
	}
	if rd.outer != nil {
		outer := *rd.outer
		if quiet {
			outer.usage = rawjson.Span{}
		}
		edits = append(edits, s.envelopeEdits(b, &outer)...)
	}
	switch {
	case len(dropped) == len(rd.choices) && (len(dropped) > 0 || quiet && rd.usage) && !usage && !rd.failed:
		s.rec.Altered = true
	case len(edits) == 0:
		s.raw(e.raw)
	default:
		s.own(s.line(e, b, edits))
	}
	for i := range rd.choices {
		ch := &rd.choices[i]
		ch.lane.show(ch.shows)
		if ch.reason != "" && !s.mute && !slices.Contains(behind, ch) {
			s.shut(ch.lane, ch.reason, ch.lane.finishShown(ch.reason))
		}
	}
	for _, ch := range behind {
		s.tell(ch.lane)
		s.closeLane(ch.lane, ch.reason, ch.lane.finishShown(ch.reason))
	}
	s.tellClosed()
}

// line is an event with its data changed, on the lines it came in.
func (s *stream) line(e *event, b []byte, edits []rawjson.Edit) []byte {
	out := append(s.ours(), e.raw[:e.data.From]...)
	out = rawjson.Apply(out, b, edits)
	out = append(out, e.raw[e.data.To:]...)
	if !bytes.HasSuffix(out, []byte("\n\n")) && !bytes.HasSuffix(out, []byte("\n\r\n")) {
		out = append(out, "\n\n"...)
	}
	return out
}

// dropChoices takes choices out of which nothing is left.
func (s *stream) dropChoices(b []byte, rd *reading, edits []rawjson.Edit, dropped []rawjson.Span) []rawjson.Edit {
	if len(dropped) == 0 {
		return edits
	}
	more, _ := rawjson.Cut(b, rd.list, func(item rawjson.Span) bool { return slices.Contains(dropped, item) })
	return append(edits, more...)
}

// topEdits takes withheld members of the document itself out.
func (t *turn) topEdits(b []byte, rd *reading) []rawjson.Edit {
	if len(rd.top) == 0 {
		return nil
	}
	var gone spans
	for i := range rd.top {
		gone.add(rd.top[i].item)
	}
	edits, _ := rawjson.Cut(b, rd.top[0].holder, gone.has)
	return edits
}

// tell gives out the refusals of a lane as one delta.
func (s *stream) tell(l *lane) {
	if len(l.refusals) == 0 || s.done {
		return
	}
	words := strings.Join(l.refusals, "\n\n")
	l.refusals = nil
	s.notice(words, l.n == 0 && !s.structured)
	s.own(s.say(s.ours(), l, words, ""))
}

// say appends an event of ours with words for a lane.
func (s *stream) say(dst []byte, l *lane, words, finish string) []byte {
	if l.text && !s.structured || l.refusal && s.structured {
		words = "\n\n" + words
	}
	dst = s.chunk(dst, l.n, func(b []byte) []byte {
		if !l.role {
			b = append(b, `"role":"assistant",`...)
		}
		b = append(append(append(b, '"'), s.words()...), `":`...)
		return appendQuoted(b, words)
	}, finish)
	l.show(shown{role: true, text: !s.structured, refusal: s.structured})
	return dst
}

// tellClosed gives out refusals of lanes whose finish was shown: nothing better
// can come any more.
func (s *stream) tellClosed() {
	for _, l := range s.lanes {
		if l.closed {
			s.tell(l)
		}
	}
}

func (s *stream) tellAll() {
	for _, l := range s.lanes {
		s.tell(l)
	}
}

// shut notes that a lane's finish was shown.
func (s *stream) shut(l *lane, reason, shown string) {
	if l.closed {
		return
	}
	l.closed = true
	if l.n == 0 {
		s.rec.Finish, s.rec.Shown = reason, shown
	}
}

// closeLane gives out a finish of ours.
func (s *stream) closeLane(l *lane, reason, shown string) {
	s.own(s.chunk(s.ours(), l.n, nil, shown))
	s.shut(l, reason, shown)
}

// close gives out what is still owed before the end: refusals, and a finish for
// lanes that have none and lost a call. It reports whether it gave out any.
func (s *stream) close() bool {
	if s.done {
		return false
	}
	any := false
	for _, l := range s.lanes {
		any = any || len(l.refusals) > 0
		s.tell(l)
		if l.closed || l.withheld == 0 || s.failed {
			continue
		}
		any = true
		if l.left > 0 {
			s.closeLane(l, "", "tool_calls")
		} else {
			s.closeLane(l, "", "stop")
		}
	}
	return any
}
