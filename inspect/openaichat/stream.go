package openaichat

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
)

// stream is a turn that comes as server-sent events.
type stream struct {
	turn
	sse   frame.SSE
	forms int // events that were not framed
	yield func(*frame.Event) error
	plain plain
	piece piece

	behind bool    // [DONE] was read
	done   bool    // [DONE] was given out
	ragged bool    // what was given out last lacks its blank line
	queue  []event // what waits, in order
	first  int     // ordinal of queue[0]
	held   int     // what queue takes, in bytes
	block  *call   // the call that the queue was seen to wait for
	kept   []byte  // the memory they are copied to

	// long says that no template and no form is used: every event is read. So
	// are those of the rounds behind the first, which all are changed.
	long bool
	rest
}

// event is one event on its way to the agent.
type event struct {
	raw  []byte
	data rawjson.Span // in raw
	rd   *reading     // nil for what holds nothing of a call
	note []shown      // what a plain event shows
	kind eventKind
	cost int // in held
	// more are events of the same form that come right behind it: the strings
	// that stand in the place of its arguments, one after the other.
	more []byte
	// say is how much it says, in bytes of the text that is gathered.
	say int
	// grown is how much longer its data is than what rd was read from, when
	// both are of one form.
	grown int
}

type eventKind uint8

const (
	eventPlain eventKind = iota // passes as it is
	eventRead                   // was read
	eventDone                   // [DONE]
	eventEnd                    // the end of the round, no bytes
	eventCut                    // the same, broken off
)

var _ inspect.Turn = (*stream)(nil)

const doneData = "[DONE]"

func newStream(base turn) *stream {
	s := &stream{turn: base}
	s.sse.Max = base.lim.Frame
	s.argsRoom = 128
	s.pieces, s.gathering = true, base.gathers()
	s.yield = s.take
	return s
}

// Feed takes the next bytes of the stream.
func (s *stream) Feed(dst, p []byte) (inspect.Step, error) {
	s.out = dst
	if s.err == nil && s.ended {
		s.err = &inspect.Error{Dialect: name, Reason: "more was fed behind the end of the answer"}
	}
	if s.err == nil {
		s.err = s.wrap(s.read(p))
	}
	s.drain()
	step := s.step()
	step.Held += s.held
	return step, s.err
}

// read takes in bytes of the stream. Events that have the form of those before
// are found here; the framer cuts out the others.
func (s *stream) read(p []byte) error {
	for len(p) > 0 {
		n, err := s.formed(p)
		if n > 0 && s.gathering {
			s.mark = s.said.size()
		}
		if n == 0 && err == nil {
			// Up to where the next form may start.
			if n = len(p); !s.long {
				if i := bytes.Index(p, []byte("\n\n")); i >= 0 {
					n = i + 2
				}
			}
			err = s.sse.Feed(p[:n], s.yield)
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// count is how many events were read.
func (s *stream) count() int { return s.sse.Count() + s.forms }

func (s *stream) wrap(err error) error {
	if large, ok := errors.AsType[*frame.TooLargeError](err); ok {
		return &inspect.Error{Dialect: name, Where: fmt.Sprintf("event %d", s.count()), Reason: "it is too large", Limit: true, Err: large}
	}
	return err
}

// EndRound ends the stream.
func (s *stream) EndRound(dst []byte, end inspect.End) (inspect.Step, error) {
	s.out = dst
	if s.err != nil || s.ended {
		return s.step(), s.err
	}
	s.ended = true
	kind := eventEnd
	if s.clean = end == inspect.EndClean; !s.clean {
		// What is left of an event that was cut off is of no use to anyone.
		kind = eventCut
		s.rec.Altered = s.rec.Altered || s.sse.Pending() > 0
	} else {
		s.err = s.wrap(s.sse.Close(s.yield))
		if s.err == nil && s.begun > 1 && !s.behind && !s.failed && !slices.ContainsFunc(s.lanes, func(l *lane) bool { return l.finished }) {
			// Of the first answer the agent sees for itself how it ends.
			s.err = &inspect.Error{Dialect: name, Where: "the end", Reason: "the further answer broke off"}
		}
	}
	for _, l := range s.lanes {
		s.finish(l, true)
	}
	if s.err == nil {
		s.err = s.push(event{kind: kind})
	}
	s.drain()
	return s.step(), s.err
}

// Resolve carries out a ruling.
func (s *stream) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	s.out = dst
	_, err := s.rule(seq, r)
	if err == nil {
		s.drain()
	}
	return s.step(), err
}

// step closes a drive of the stream: it waits too while a call is still coming
// and what stands behind its first piece is kept.
func (s *stream) step() inspect.Step {
	st := s.turn.step()
	if st.State == inspect.More && len(s.queue) > 0 {
		st.State = inspect.Waiting
	}
	return st
}

// KeepAlive appends an empty delta of an open lane: the one thing that every
// client of this dialect was seen to count as life.
func (s *stream) KeepAlive(dst []byte) []byte {
	if s.over || s.done || !s.env.known {
		return dst
	}
	for _, l := range s.lanes {
		if !l.closed {
			s.out = dst
			s.own(s.chunk(s.ours(), l.n, func(b []byte) []byte { return append(b, `"content":""`...) }, ""))
			dst, s.out = s.out, nil
			return dst
		}
	}
	return dst
}

// Abandon ends the answer with the text.
func (s *stream) Abandon(dst []byte, text string) []byte {
	if s.over {
		return dst
	}
	s.over, s.queue, s.open = true, nil, 0
	s.rec.Altered = true
	if s.done {
		return dst
	}
	if len(s.lanes) == 0 {
		s.lanes = []*lane{{}}
	}
	s.out = dst
	s.notice(text, !s.structured)
	if s.suspended {
		s.ending = text
	}
	told := false
	for _, l := range s.lanes {
		if l.closed {
			continue
		}
		told = true
		s.own(s.say(s.ours(), l, text, ""))
		s.closeLane(l, l.reason, "stop")
	}
	if !told {
		s.own(s.say(s.ours(), s.lanes[0], text, ""))
	}
	s.tellUsage(told)
	s.own(append(s.out, "data: [DONE]\n\n"...))
	dst, s.out = s.out, nil
	return dst
}
