package openaichat

import (
	"bytes"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
)

// rest is what a stream has for its end and the rounds behind the first.
type rest struct {
	gathering bool // what is said is kept
	clean     bool // the round has ended as HTTP says it should
	settled   bool // it was settled that the answer ends with this round
	mute      bool // what is given out is no end, though it holds one
	sep       bool // text of an earlier round was shown, and none of this one
	// hush says that the place of a withheld call was passed, and the end was not:
	// usage would be that of a round that may not be the last. owed says that some
	// was left out.
	hush, owed bool
}

// gatherMould takes in what an event that fits the mould says.
func (s *stream) gatherMould(p []byte) {
	if !s.gathering {
		return
	}
	s.mark = s.said.size()
	if m := &s.plain.mould; m.only >= 0 {
		at := &m.filled[m.only]
		s.said.add(p[at.from+1 : at.to-1])
		return
	}
	s.fill(p)
}

// fill takes in the holes of the event that fitted the mould last.
func (s *stream) fill(p []byte) {
	m := &s.plain.mould
	for i := range m.holes[:m.n] {
		h := &m.holes[i]
		if h.kind == varying || s.plain.shown[h.choice].lane != 0 {
			continue
		}
		text := p[m.filled[i].from+1 : m.filled[i].to-1]
		if h.kind == contentKind {
			s.said.add(text)
		} else {
			s.said.piece(h.kind, text)
		}
	}
}

// gatherOpen takes in what an event of the template says.
func (s *stream) gatherOpen(b []byte) {
	if !s.gathering {
		return
	}
	s.mark = s.said.size()
	p := &s.plain
	if p.wide {
		if p.n == 1 && p.shown[0].lane == 0 {
			s.said.body(b, p.choice.body)
		}
		return
	}
	for _, o := range p.open[:p.opens] {
		if p.shown[o.choice].lane == 0 {
			s.said.piece(o.kind, inner(b, o.at))
		}
	}
}

// piece takes in a string of a template.
func (s *said) piece(k kind, text []byte) {
	switch k {
	case contentKind:
		s.add(text)
	case refusalKind:
		s.says(saysRefusal, text)
	case reasoningKind:
		s.says(saysReasoning, text)
	case reasoningContentKind:
		s.says(saysReasoningContent, text)
	}
}

// gatherRead takes in what an event that was read says.
func (s *stream) gatherRead(b []byte, rd *reading) {
	s.mark = s.said.size()
	if !s.gathering || rd.whole != nil {
		return
	}
	for i := range rd.choices {
		if ch := &rd.choices[i]; ch.lane.n == 0 {
			s.said.body(b, ch.body)
		}
	}
}

// holds reports whether an event stays in because it is a part of the end: what
// a turn that has lost a call has to tell must be kept before the agent can make
// its next request.
func (s *stream) holds(e *event) bool {
	return s.repair && s.rec.Withheld > 0 && !s.settled && !s.mute && e.final()
}

// final reports whether an event is a part of the end of an answer.
func (e *event) final() bool {
	switch e.kind {
	case eventDone, eventEnd, eventCut:
		return true
	case eventRead:
		for i := range e.rd.choices {
			if e.rd.choices[i].reason != "" {
				return true
			}
		}
		return e.rd.failed
	}
	return false
}

// owes reports whether a round has ended, all its calls have rulings, and it is
// not settled yet what follows.
func (s *stream) owes() bool {
	return s.repair && s.rec.Withheld > 0 && s.ended && s.open == 0 && s.err == nil && !s.settled
}

// settle settles what follows the end of the round: another one, or the end of
// the answer. It reports whether the turn is suspended.
func (s *stream) settle() bool {
	if !s.clean || !s.suspends() {
		s.settled = true
		s.owe()
		if s.clean && s.closes() {
			s.lanes[0].refusals = append(s.lanes[0].refusals, saidNothing)
		}
		return false
	}
	s.mute = true
	for i := range s.queue {
		s.held -= s.queue[i].cost
		s.unseen -= s.queue[i].say
		s.emit(&s.queue[i])
	}
	s.first += len(s.queue)
	s.queue, s.mute = nil, false
	s.tellAll()
	s.suspend()
	return true
}

// emitQuiet gives out events that were not read, without the usage in them while
// it is not known whether the round that says so is the last one.
func (s *stream) emitQuiet(e *event) {
	for _, n := range e.note {
		s.show(n)
	}
	sse := frame.SSE{Max: len(e.raw) + 1}
	// The events were framed before, so that no limit is passed.
	_ = sse.Feed(e.raw, s.quiet)
	_ = sse.Close(s.quiet)
}

func (s *stream) quiet(ev *frame.Event) error {
	if !ev.HasData || len(ev.Data) == 0 || ev.Data[0] != '{' {
		s.raw(ev.Raw)
		return nil
	}
	data := rawjson.Span{From: ev.At, To: ev.At + len(ev.Data)}
	b := data.In(ev.Raw)
	usage := rawjson.Get(b, rawjson.All(b), "usage")
	says := rawjson.Nested(b, usage)
	switch {
	case !says:
		s.raw(ev.Raw)
	case !s.mute && !s.hush:
		s.raw(ev.Raw)
		s.owed = false
	case !rawjson.Nested(b, rawjson.Get(b, rawjson.All(b), "choices")):
		s.owed, s.rec.Altered = true, true
	default:
		s.owed = true
		s.own(s.line(&event{raw: ev.Raw, data: data}, b, []rawjson.Edit{{At: usage, Text: []byte("null")}}))
	}
	return nil
}

// payUsage gives out, before the end, usage that was left out and did not come
// again. It reports whether there was any.
func (s *stream) payUsage() bool {
	if !s.owed || s.done || s.failed || len(s.lastUsage) == 0 {
		return false
	}
	s.owed = false
	s.own(s.usageEvent(s.ours()))
	return true
}

func (s *stream) usageEvent(dst []byte) []byte {
	dst = append(s.head(append(dst, "data: "...), "chat.completion.chunk"), `],"usage":`...)
	return append(s.appendUsage(dst), "}\n\n"...)
}

// separate puts an empty line between the texts of two rounds.
func (s *stream) separate(ch *choice, b []byte, p *patched) {
	if !s.sep || !ch.shows.text || ch.lane.n != 0 {
		return
	}
	s.sep = false
	if rawjson.IsString(b, ch.content) {
		p.edits = append(p.edits, rawjson.Insert(ch.content.From+1, []byte(`\n\n`)))
		return
	}
	s.own(s.chunk(s.ours(), ch.lane.n, func(b []byte) []byte { return append(b, `"content":"\n\n"`...) }, ""))
}

// NextRound goes on with a further stream.
func (s *stream) NextRound(h inspect.Head) error {
	if err := s.takesRound(h, true); err != nil {
		return err
	}
	s.nextRound()
	s.rest = rest{gathering: s.gathering, sep: s.sep || s.lanes[0].text, owed: s.owed}
	s.sse, s.forms, s.piece = frame.SSE{Max: s.lim.Frame}, 0, piece{}
	s.long, s.behind, s.block, s.held = true, false, nil, 0
	return nil
}

// tellUsage gives out, in an end of ours, what the provider has said of usage: in
// the place where it had it, which is the finish, if one was told last, or an
// event of its own.
func (s *stream) tellUsage(told bool) {
	if len(s.lastUsage) == 0 || !s.suspended && s.begun == 1 {
		return
	}
	if finish, ok := bytes.CutSuffix(s.out, []byte("}\n\n")); ok && told && !s.alone {
		s.out = append(s.appendUsage(append(finish, `,"usage":`...)), "}\n\n"...)
		return
	}
	s.own(s.usageEvent(s.ours()))
}

// Fail ends the answer with an error.
func (s *stream) Fail(dst []byte, text string) []byte {
	if s.over {
		return dst
	}
	s.over, s.queue, s.open = true, nil, 0
	s.rec.Altered = true
	if s.done {
		return dst
	}
	s.out = dst
	s.own(append(appendError(append(s.ours(), "data: "...), text), "\n\ndata: [DONE]\n\n"...))
	s.done = true
	dst, s.out = s.out, nil
	return dst
}
