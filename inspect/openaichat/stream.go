package openaichat

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
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
	return s.step(), s.err
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

// formed takes in the events at the start of p that have a form, and gives how
// many bytes they take.
func (s *stream) formed(p []byte) (int, error) {
	if s.sse.Pending() > 0 || s.behind || s.long {
		return 0, nil
	}
	at := 0
	for at < len(p) {
		n, err := s.goOn(p[at:])
		if n > 0 {
			s.forms++
		} else {
			n, err = s.plainForms(p[at:])
		}
		if n == 0 || err != nil {
			return at, err
		}
		at += n
	}
	return at, nil
}

// plainForms takes in the events at the start of p that have the form of the last
// plain one, together where nothing waits.
func (s *stream) plainForms(p []byte) (int, error) {
	n := s.plainForm(p)
	switch {
	case n == 0:
		return 0, nil
	case len(s.queue) > 0:
		s.gatherMould(p)
		return n, s.pushPlain(p[:n])
	}
	at := 0
	var err error
	for n > 0 && err == nil {
		if err = s.showPlain(); err == nil {
			if s.gathering {
				s.gatherMould(p[at:])
			}
			at += n
			n = s.plainForm(p[at:])
		}
	}
	if at > 0 {
		s.raw(p[:at])
	}
	return at, err
}

// plainForm gives the length of the event at the start of p when it has the form
// of the last plain one, and matches it.
func (s *stream) plainForm(p []byte) int {
	n := s.plain.mould.fits(p, &s.plain.shown)
	if n == 0 || n > s.lim.Frame {
		return 0
	}
	s.forms++
	s.plain.n = s.plain.mould.lanes
	return n
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

// take takes in one event of the provider.
func (s *stream) take(ev *frame.Event) error {
	s.rec.Altered = s.rec.Altered || ev.Cut
	switch {
	case ev.Empty():
		return s.push(event{raw: ev.Raw})
	case ev.Odd != "":
		return s.odd(ev)
	case !ev.HasData || len(ev.Data) == 0:
		return s.push(event{raw: ev.Raw}) // a name alone is dispatched by no reader
	case string(ev.Data) == doneData:
		return s.end(ev.Raw)
	}
	data := rawjson.Span{From: ev.At, To: ev.At + len(ev.Data)}
	named := ev.Name != nil && string(ev.Name) != "message"
	if !named {
		if n, err := s.goOn(ev.Raw); n > 0 {
			return err
		}
	}
	if done, err := s.matched(ev.Raw, data, !named); done {
		return err
	}
	why := ""
	if named {
		why = fmt.Sprintf("it came in an event named %q, which some clients skip", ev.Name)
	}
	return s.readEvent(ev.Raw, data, why)
}

// templateDepth is how deep an event of the template may nest.
const templateDepth = 8

// matched takes in an event of the template. It reports false when the event
// must be read; so must one that tells of a call or of an end, unless calls
// says that clients agree on where it stands.
func (s *stream) matched(raw []byte, data rawjson.Span, calls bool) (bool, error) {
	if s.behind || s.long {
		return false, nil
	}
	p := &s.plain
	if p.mould.fits(raw, &p.shown) > 0 {
		p.n = p.mould.lanes
		s.gatherMould(raw)
		return true, s.pushPlain(raw)
	}
	b := data.In(raw)
	if !p.match(b) || !p.isPlain() && (!calls || s.lim.Depth < templateDepth) {
		return false, nil
	}
	r := reader{turn: &s.turn, b: b}
	if p.usage.There() {
		r.usage(p.usage, p.n > 0)
	}
	s.gatherOpen(b)
	s.env.take(b, p.id, p.created, p.model, p.n > 0)
	if !p.isPlain() {
		return true, s.told(&r, raw, data)
	}
	if s.env.known {
		p.cast(raw, data.From)
	}
	return true, s.pushPlain(raw)
}

// told takes in what the template found in the event that matched last.
func (s *stream) told(r *reader, raw []byte, data rawjson.Span) error {
	p := &s.plain
	s.piece.c = nil
	l, err := s.lane(p.shown[0].lane)
	if err != nil {
		return err
	}
	r.rd = newOneChoice(&p.choice)
	r.rd.list, r.rd.usage = p.choices, rawjson.Nested(r.b, p.usage)
	ch := &r.rd.choices[0]
	ch.lane, ch.shows, ch.reason = l, p.shown[0], word(r.b, p.choice.finish)
	if ch.list.There() && breaksLines(r.b) {
		r.odd = otherBreaks
	}
	for e := rawjson.Open(r.b, ch.list); e.Next(); {
		if err := r.entry(ch, e); err != nil {
			return err
		}
	}
	r.end(ch)
	return s.pushRead(r, raw, data)
}

// pushRead passes on an event that was read, and makes it the form of those that
// go on with its call.
func (s *stream) pushRead(r *reader, raw []byte, data rawjson.Span) error {
	if err := s.push(event{raw: raw, data: data, kind: eventRead, rd: r.rd}); err != nil {
		return err
	}
	if n := len(s.queue); n > 0 && r.odd == "" {
		s.piece.cast(s, &s.queue[n-1])
	}
	return nil
}

// pushPlain passes on the event that was matched last.
func (s *stream) pushPlain(raw []byte) error {
	note := s.plain.shown[:s.plain.n]
	if len(s.queue) == 0 && !s.hush {
		err := s.showPlain()
		if err == nil {
			s.raw(raw)
		}
		return err
	}
	for i := range note {
		if _, err := s.lane(note[i].lane); err != nil {
			return err
		}
	}
	return s.push(event{raw: raw, note: note})
}

// showPlain notes what the event that was matched last shows.
func (s *stream) showPlain() error {
	if n := &s.plain.shown[0]; s.plain.n == 1 && len(s.lanes) == 1 && s.lanes[0].n == n.lane {
		s.lanes[0].show(*n)
		return nil
	}
	for i := range s.plain.n {
		n := &s.plain.shown[i]
		l, err := s.lane(n.lane)
		if err != nil {
			return err
		}
		l.show(*n)
	}
	return nil
}

func (s *stream) emitPlain(raw []byte, note []shown) {
	s.raw(raw)
	for _, n := range note {
		s.show(n)
	}
}

// odd takes in an event that readers of the standard and readers of lines do
// not read alike. It passes only as a single line of data that holds no call.
func (s *stream) odd(ev *frame.Event) error {
	data := dataSpan(ev.Raw)
	line := data.There() && bytes.IndexByte(ev.Raw[data.From:data.To], '\r') < 0 &&
		bytes.HasPrefix(ev.Raw, []byte("data:")) && len(bytes.Trim(ev.Raw[data.To:], "\r\n")) == 0
	switch {
	case line && string(data.In(ev.Raw)) == doneData:
		return s.end(ev.Raw)
	case line:
		if done, err := s.matched(ev.Raw, data, false); done {
			return err
		}
		return s.readEvent(ev.Raw, data, ev.Odd)
	}
	return s.withhold(ev.Raw, toolcall.FaultAmbiguous, ev.Odd)
}

// end takes in [DONE]. What is not complete by now is as complete as it gets:
// some servers send no finish reason.
func (s *stream) end(raw []byte) error {
	if !s.behind {
		s.behind = true
		for _, l := range s.lanes {
			s.finish(l, false)
		}
	}
	return s.push(event{raw: raw, kind: eventDone})
}

// withhold takes in an event that cannot be read.
func (s *stream) withhold(raw []byte, f toolcall.Fault, why string) error {
	s.piece.c = nil
	rd := &reading{}
	if err := s.refuseWhole(rd, raw, f, why); err != nil {
		return err
	}
	return s.push(event{raw: raw, kind: eventRead, rd: rd})
}

// readEvent takes in an event that may hold something of a call.
func (s *stream) readEvent(raw []byte, data rawjson.Span, odd string) error {
	s.piece.c = nil
	if s.behind {
		return s.withhold(raw, toolcall.FaultAmbiguous, "it stands behind the end of the stream")
	}
	b := data.In(raw)
	err := strictjson.Validate(b, strictjson.Options{Depth: s.lim.Depth, Known: known, Surrogates: true})
	if err != nil {
		fault := toolcall.FaultAmbiguous
		if e, ok := errors.AsType[*strictjson.Error](err); ok && e.Early && s.ended {
			fault = toolcall.FaultTruncated
		}
		return s.withhold(raw, fault, err.Error())
	}
	if odd == "" && breaksLines(b) {
		odd = otherBreaks
	}
	r := reader{turn: &s.turn, b: b, odd: odd}
	if err := r.read(); err != nil {
		return err
	}
	s.gatherRead(b, r.rd)
	return s.pushRead(&r, raw, data)
}

const otherBreaks = "it came in an event with a character that breaks lines for some clients"

// breaksLines is frame.OtherBreaks for text in JSON: what it looks for is not
// in ASCII there.
func breaksLines(b []byte) bool {
	for i := range b {
		if b[i] >= utf8.RuneSelf {
			return frame.OtherBreaks(b[i:])
		}
	}
	return false
}

// dataSpan finds the value of the first data field in an event.
func dataSpan(raw []byte) rawjson.Span {
	for at := 0; at < len(raw); {
		end := len(raw)
		next := end
		if i := bytes.IndexByte(raw[at:], '\n'); i >= 0 {
			end, next = at+i, at+i+1
		}
		if end > at && raw[end-1] == '\r' {
			end--
		}
		if v, ok := bytes.CutPrefix(raw[at:end], []byte("data:")); ok {
			from := end - len(v)
			if len(v) > 0 && v[0] == ' ' {
				from++
			}
			return rawjson.Span{From: from, To: end}
		}
		at = next
	}
	return rawjson.Span{}
}

// push gives an event out, or puts it behind what waits.
func (s *stream) push(e event) error {
	e.say, s.mark = s.said.size()-s.mark, s.said.size()
	ord := s.first + len(s.queue)
	if e.rd != nil {
		for _, c := range e.rd.calls {
			c.last = ord
		}
		if len(s.queue) == 0 && len(e.rd.calls) == 0 && !s.holds(&e) {
			s.emit(&e)
			return nil
		}
	} else if len(s.queue) == 0 && !s.holds(&e) {
		s.emit(&e)
		return nil
	}
	joins := s.joins(&e)
	if e.cost = len(e.raw); !joins {
		e.cost = s.cost(&e)
	}
	if err := s.hold(e.cost); err != nil {
		return err
	}
	s.unseen += e.say
	e.raw = s.keep(e.raw)
	if joins {
		last := &s.queue[len(s.queue)-1]
		to := len(s.kept)
		last.raw = s.kept[to-len(last.raw)-len(e.raw) : to : to]
		last.cost += e.cost
		last.say += e.say
		return nil
	}
	e.note = slices.Clone(e.note)
	if s.queue == nil {
		s.queue = make([]event, 0, 8)
	}
	s.queue = append(s.queue, e)
	return nil
}

// hold counts what waits.
func (s *stream) hold(cost int) error {
	if s.held += cost; s.held > s.lim.Held {
		return s.limit(fmt.Sprintf("event %d", s.count()), fmt.Sprintf("more than %d bytes wait behind an undecided call", s.lim.Held))
	}
	return nil
}

// joins reports whether an event can share the entry of the one before: both
// are comments or blank lines, and their bytes will stand in one piece of
// memory.
func (s *stream) joins(e *event) bool {
	if len(s.queue) == 0 || !e.idle() || cap(s.kept)-len(s.kept) < len(e.raw) {
		return false
	}
	last := &s.queue[len(s.queue)-1]
	return last.idle() && len(s.kept) > 0 && &last.raw[len(last.raw)-1] == &s.kept[len(s.kept)-1]
}

// idle reports whether an event says nothing to anyone.
func (e *event) idle() bool {
	return e.rd == nil && len(e.note) == 0 && e.kind == eventPlain && len(e.raw) > 0
}

// What an event that waits takes beside its bytes, at most, and what each choice
// and each part of a call that was read from it takes, in bytes.
const (
	entryCost   = 256
	choiceCost  = 384
	mentionCost = 256
)

// cost is what an event takes while it waits. A reading that it shares with the
// one before counts once.
func (s *stream) cost(e *event) int {
	n := len(e.raw) + entryCost
	if e.rd == nil || len(s.queue) > 0 && s.queue[len(s.queue)-1].rd == e.rd {
		return n
	}
	n += len(e.rd.top) * mentionCost
	for i := range e.rd.choices {
		n += choiceCost + len(e.rd.choices[i].mentions)*mentionCost
	}
	return n
}

// keep copies bytes of an event that waits. Events are small and come in rows,
// so several share one piece of memory, which is never moved.
func (s *stream) keep(raw []byte) []byte {
	if cap(s.kept)-len(s.kept) < len(raw) {
		s.kept = make([]byte, 0, max(len(raw), keptSize))
	}
	from := len(s.kept)
	s.kept = append(s.kept, raw...)
	return s.kept[from:len(s.kept):len(s.kept)]
}

const keptSize = 2 << 10

// drain gives out what no longer waits.
func (s *stream) drain() {
	if s.over || s.suspended || s.block != nil && s.block.blocks() {
		return // what came since stands behind
	}
	s.block = nil
	if s.owes() && s.settle() {
		return
	}
	for len(s.queue) > 0 {
		n := s.ready()
		if n == 0 {
			return
		}
		for i := range s.queue[:n] {
			s.held -= s.queue[i].cost
			s.unseen -= s.queue[i].say
			s.emit(&s.queue[i])
			s.queue[i] = event{}
		}
		s.queue = s.queue[n:]
		s.first += n
	}
	s.queue = nil
}

// ready gives how many events at the head of the queue may go. Events that
// share a call go together, so that no call is ever given out in part, and a
// call goes only when those with smaller numbers in its lane have rulings.
func (s *stream) ready() int {
	end := s.first
	for at := s.first; at <= end; at++ {
		if at-s.first >= len(s.queue) {
			return 0 // reading ended before all of it was queued
		}
		if s.holds(&s.queue[at-s.first]) {
			return 0
		}
		rd := s.queue[at-s.first].rd
		if rd == nil {
			continue
		}
		for _, c := range rd.calls {
			if c.blocks() {
				s.block = c
				return 0
			}
			end = max(end, c.last)
		}
	}
	return end - s.first + 1
}

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
