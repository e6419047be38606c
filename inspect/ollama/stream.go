package ollama

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// stream is a turn that comes line by line.
type stream struct {
	turn
	lines frame.NDJSON
	yield func(*frame.Line) error

	queue []event // what waits, in order
	held  int     // what queue takes, in bytes
	// murmur is how many events at the end of the queue hold the probabilities of
	// tokens and say nothing: those of a call that is still coming, maybe.
	murmur int

	shut    bool     // the last line was given out, or an error
	ragged  bool     // what was given out last lacks its line feed
	clean   bool     // the round has ended as HTTP says it should
	settled bool     // it was settled that the answer ends with this round
	mute    bool     // what is given out is no end, though it holds one
	owes    []string // texts that must be shown before the end
}

// event is one line on its way to the agent, or an end.
type event struct {
	raw  []byte
	data rawjson.Span // in raw
	rd   *reading     // nil for what is no document
	kind eventKind
	cost int
	// of are the calls whose tokens may stand in the line.
	of *reading
}

type eventKind uint8

const (
	eventLine eventKind = iota
	eventEnd            // the end of the round, no bytes
	eventCut            // the same, broken off
)

var _ inspect.Turn = (*stream)(nil)

func newStream(t turn) *stream {
	s := &stream{turn: t}
	s.lines.Max = t.lim.Frame
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
		s.err = s.wrap(s.lines.Feed(p, s.yield))
	}
	s.drain()
	return s.step(), s.err
}

func (s *stream) wrap(err error) error {
	if large, ok := errors.AsType[*frame.TooLargeError](err); ok {
		return &inspect.Error{Dialect: name, Where: fmt.Sprintf("line %d", s.lines.Count()+1), Reason: "it is too large", Limit: true, Err: large}
	}
	return err
}

// take takes in a line.
func (s *stream) take(l *frame.Line) error {
	e := event{raw: l.Raw}
	if l.Blank() {
		return s.push(e)
	}
	e.data = rawjson.Span{From: l.At, To: l.At + len(l.Data)}
	var err error
	e.rd, err = s.line(l)
	if err != nil {
		return err
	}
	return s.push(e)
}

func (s *stream) line(l *frame.Line) (*reading, error) {
	switch {
	case s.behind || s.failed:
		return s.refuseWhole(l.Data, toolcall.FaultAmbiguous, "it stands behind the end of the answer")
	case l.Odd != "":
		return s.refuseWhole(l.Data, toolcall.FaultAmbiguous, l.Odd)
	}
	if err := strictjson.Validate(l.Data, strictjson.Options{Depth: s.lim.Depth, Surrogates: true}); err != nil {
		fault := toolcall.FaultAmbiguous
		if e, ok := errors.AsType[*strictjson.Error](err); ok && e.Early && s.ended {
			fault = toolcall.FaultTruncated
		}
		return s.refuseWhole(l.Data, fault, err.Error())
	}
	return s.read(l.Data)
}

// EndRound ends the stream.
func (s *stream) EndRound(dst []byte, end inspect.End) (inspect.Step, error) {
	s.out = dst
	if s.err != nil || s.ended {
		return s.step(), s.err
	}
	s.ended = true
	e := event{kind: eventEnd}
	if s.clean = end == inspect.EndClean; s.clean {
		s.err = s.wrap(s.lines.Close(s.yield))
		if s.err == nil && s.begun > 1 && !s.behind {
			// Of the first answer the agent sees for itself how it ends.
			s.err = &inspect.Error{Dialect: name, Where: "the end", Reason: "the further answer broke off"}
		}
	} else {
		// What is left of a line that was cut off is of no use to anyone.
		e.kind = eventCut
		s.rec.Altered = s.rec.Altered || s.lines.Pending() > 0
	}
	if s.err == nil {
		s.err = s.push(e)
	}
	s.drain()
	return s.step(), s.err
}

// Resolve carries out a ruling.
func (s *stream) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	s.out = dst
	err := s.rule(seq, r)
	if err == nil {
		s.drain()
	}
	return s.step(), err
}

// step closes a drive of the stream.
func (s *stream) step() inspect.Step {
	st := s.turn.step()
	if st.State == inspect.More && len(s.queue) > 0 {
		st.State = inspect.Waiting
	}
	return st
}

// murmurs reports whether a line says nothing and has the probabilities of
// tokens: newer servers send these while they look whether a call begins.
func (e *event) murmurs(b []byte) bool {
	rd := e.rd
	return rd != nil && rd.whole == nil && rd.logprobs.There() && len(rd.mentions) == 0 && !rd.final() &&
		len(inner(b, rd.words))+len(inner(b, rd.thinking)) == 0
}

// final reports whether a document is the end of an answer, or an error.
func (rd *reading) final() bool { return rd.end || rd.failed }

// final reports whether an event is a part of the end of an answer.
func (e *event) final() bool { return e.kind != eventLine || e.rd != nil && e.rd.final() }

// push gives an event out, or puts it behind what waits.
func (s *stream) push(e event) error {
	if e.murmurs(e.data.In(e.raw)) {
		s.murmur++
	} else if e.rd != nil || e.kind != eventLine {
		for i := len(s.queue) - s.murmur; i < len(s.queue); i++ {
			s.queue[i].of = e.rd
		}
		s.murmur = 0
	} else if s.murmur > 0 {
		s.murmur++ // a blank line is not looked behind
	}
	if len(s.queue) == 0 && s.murmur == 0 && !s.blocks(&e) {
		s.emit(&e)
		return nil
	}
	e.cost = len(e.raw) + entryCost
	if e.rd != nil {
		e.cost += readingCost + len(e.rd.mentions)*mentionCost
	}
	if s.held += e.cost; s.held > s.lim.Held {
		return limit(fmt.Sprintf("line %d", s.lines.Count()), fmt.Sprintf("more than %d bytes wait behind an undecided call", s.lim.Held))
	}
	e.raw = bytes.Clone(e.raw)
	s.queue = append(s.queue, e)
	return nil
}

// What an event that waits takes beside its bytes, at most, in bytes.
const (
	entryCost   = 192
	readingCost = 512
	mentionCost = 192
)

// blocks reports whether an event cannot go yet.
func (s *stream) blocks(e *event) bool {
	return e.rd != nil && e.rd.waits() || e.of != nil && e.of.waits() || s.holds(e)
}

// holds reports whether an event stays in because it is a part of the end: what
// a turn that has lost a call has to tell must be kept before the agent can make
// its next request.
func (s *stream) holds(e *event) bool {
	return s.repair && s.rec.Withheld > 0 && !s.settled && !s.mute && e.final()
}

// drain gives out what no longer waits.
func (s *stream) drain() {
	if s.over || s.suspended {
		return
	}
	// A round has ended and all its calls have rulings: is another one to follow?
	if s.repair && s.rec.Withheld > 0 && s.ended && s.open == 0 && s.err == nil && !s.settled && s.settle() {
		return
	}
	n := 0
	for n < len(s.queue)-s.murmur && !s.blocks(&s.queue[n]) {
		s.held -= s.queue[n].cost
		s.emit(&s.queue[n])
		s.queue[n] = event{}
		n++
	}
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
}

// settle settles what follows the end of the round: another one, or the end of
// the answer. It reports whether the turn is suspended.
func (s *stream) settle() bool {
	if !s.clean || !s.suspends() {
		s.settled = true
		s.owes = s.owed(s.clean)
		return false
	}
	for i := range s.queue {
		s.mute = s.mute || s.queue[i].final()
		s.emit(&s.queue[i])
	}
	s.queue, s.held, s.mute = nil, 0, false
	s.suspend()
	return true
}

// NextRound goes on with a further stream.
func (s *stream) NextRound(h inspect.Head) error {
	if err := s.takesRound(h, true); err != nil {
		return err
	}
	s.sep = s.spoke
	s.nextRound()
	s.lines = frame.NDJSON{Max: s.lim.Frame}
	return nil
}

// KeepAlive appends a line that says nothing. Blank lines would do as well for
// most clients; Ollama's own for Go takes them for errors.
func (s *stream) KeepAlive(dst []byte) []byte {
	if s.over || s.shut {
		return dst
	}
	s.out = dst
	s.own(saying{}, false)
	dst, s.out = s.out, nil
	return dst
}

// Abandon ends the answer with the text.
func (s *stream) Abandon(dst []byte, text string) []byte {
	if s.over {
		return dst
	}
	s.over, s.queue, s.open, s.rec.Altered = true, nil, 0, true
	if s.shut {
		return dst
	}
	s.notice(text)
	if s.suspended {
		s.ending = text
	}
	s.out = dst
	s.tell([]string{text}, true)
	dst, s.out = s.out, nil
	return dst
}

// Fail ends the answer with an error.
func (s *stream) Fail(dst []byte, text string) []byte {
	if s.over {
		return dst
	}
	s.over, s.queue, s.open, s.rec.Altered = true, nil, 0, true
	if s.shut {
		return dst
	}
	if s.ragged {
		dst = append(dst, '\n')
	}
	s.shut = true
	return append(appendError(dst, text), '\n')
}

// tell gives out texts of ours in a line of their own.
func (s *stream) tell(texts []string, end bool) {
	text := appendEscaped(nil, strings.Join(texts, "\n\n"))
	if len(text) > 0 && (s.spoke && !s.structured || s.thought && s.structured) {
		text = append([]byte(emptyLine), text...)
	}
	s.own(s.ours(text), end)
}

// own gives out a line of ours.
func (s *stream) own(say saying, end bool) {
	if s.ragged {
		s.out = append(s.out, '\n')
	}
	s.out = append(s.appendOwn(s.out, say, end), '\n')
	s.ragged, s.rec.Altered = false, true
	s.show(say)
	if end {
		s.shut, s.rec.Finish, s.rec.Shown = true, s.reason, "stop"
	}
}
