package gemini

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/toolcall"
)

// turn is one answer. This file reads what the provider says chunk by chunk; what
// the agent is shown of a chunk is the business of render.
type turn struct {
	calls
	queue
	output
	tokens
	lim        inspect.Limits
	tools      []toolcall.Tool // what the request offered
	wrapped    bool
	structured bool // the answer's text must follow a schema
	stream     bool // the request asked for a stream
	asked      int  // how many candidates
	repair     bool

	sse    frame.SSE
	array  frame.Array
	body   []byte // of a document
	events bool   // the answer is a stream of events

	step    inspect.Step
	dst     []byte
	room    chunk // the one that is read
	lanes   []*lane
	env     envelope
	finish  string // of the first lane
	shown   string
	broke   bool // the provider has reported an error
	dropped bool // the frame before was dropped, with a fault of its own

	rounds    int // begun so far
	ended     bool
	end       inspect.End
	suspended bool
	done      bool
	altered   bool
	failed    *inspect.Error

	told    *gathering // nil where nothing can be told in later requests
	lost    int        // how many calls were not shown, as far as the agent has come
	cutting bool       // the end of the round is left out
	tail    bool       // what is given out now belongs to that end
	owed    []string   // texts that the next end of an answer says
	carried []byte     // parts of a document that were shown of the rounds before
}

// lane is one candidate.
type lane struct {
	n      int
	finish string // in this round
	spoke  bool   // a text of it was shown
	gap    bool   // the next text is another one than the text before
	// orphan is the signature of a call that was withheld.
	orphan []byte
}

// envelope is what all chunks say of the answer, as it is written.
type envelope struct{ id, model []byte }

var _ inspect.Turn = (*turn)(nil)

func newTurn(r *request, events bool) *turn {
	t := &turn{lim: r.lim, tools: r.info.Tools, wrapped: r.wrapped, structured: r.info.Structured, stream: r.info.Stream,
		asked: r.info.Lanes, events: events, rounds: 1, tokens: unknownTokens}
	t.env.model = quoted(r.info.Model)
	t.sse.Max, t.array.Max = r.lim.Frame, r.lim.Frame
	if events {
		t.form = formEvents
	}
	if t.repair = r.repair; t.repair && t.asked == 1 && !r.continues {
		t.told = &gathering{}
	}
	return t
}

// lane gives the candidate of that number.
func (t *turn) lane(n int) *lane {
	for _, l := range t.lanes {
		if l.n == n {
			return l
		}
	}
	l := &lane{n: n}
	t.lanes = append(t.lanes, l)
	return l
}

// Feed takes the next bytes of the answer.
func (t *turn) Feed(dst, p []byte) (inspect.Step, error) {
	t.dst = dst
	if t.failed != nil {
		return t.give(), t.failed
	}
	if t.ended || t.done {
		return t.give(), t.fail("", errors.New("fed after its end"))
	}
	if err := t.feed(p); err != nil {
		return t.give(), t.fail("", err)
	}
	return t.give(), nil
}

// feed cuts bytes into frames. Of JSON the first byte says what it is.
func (t *turn) feed(p []byte) error {
	if t.events {
		return t.sse.Feed(p, t.event)
	}
	if t.now == formUnknown {
		rest := bytes.TrimLeft(p, " \t\r\n")
		if t.body = append(t.body, p[:len(p)-len(rest)]...); len(rest) == 0 {
			return t.bounded()
		}
		if t.now = formDocument; rest[0] == '[' {
			t.now = formArray
		}
		if t.form != formUnknown && t.form != t.now {
			return errors.New("the further answer has another form than the first, so that it cannot go on with it")
		}
		t.form = t.now
		p = rest
		if t.form == formArray {
			p, t.body = append(t.body, rest...), nil
		}
	}
	if t.form == formArray {
		return t.array.Feed(p, t.element)
	}
	t.body = append(t.body, p...)
	return t.bounded()
}

func (t *turn) bounded() error {
	if len(t.carried)+len(t.body) > t.lim.Answer {
		return t.limit("the answer is longer than the limit of " + strconv.Itoa(t.lim.Answer) + " bytes")
	}
	return nil
}

// event takes in one server-sent event.
func (t *turn) event(ev *frame.Event) error {
	t.altered = t.altered || ev.Cut
	t.lineEnd(ev.Raw)
	unended := ev.Odd == frame.Unended
	switch {
	case ev.Odd != "" && !unended:
		return t.fault(ev.Raw, ambiguous(ev.Odd))
	case !ev.HasData, string(ev.Data) == "[DONE]":
		return t.push(entry{kind: entryPass}, ev.Raw)
	}
	return t.chunk(entry{kind: entryChunk, at: rawjson.Span{From: ev.At, To: ev.At + len(ev.Data)}}, ev.Raw, unended)
}

// element takes in one element of an array.
func (t *turn) element(el *frame.Element) error {
	e := entry{kind: entryChunk, mark: el.Mark, at: rawjson.Span{From: el.At, To: len(el.Raw)}}
	if el.End {
		e.kind = entryEnd
		return t.push(e, el.Raw)
	}
	return t.chunk(e, el.Raw, false)
}

// chunk takes in a frame that should hold a chunk.
func (t *turn) chunk(e entry, raw []byte, unended bool) error {
	b := e.at.In(raw)
	c, f := t.readChunk(b)
	if f.reason != "" {
		return t.fault(raw, f)
	}
	t.dropped = false
	t.begun = len(t.list)
	for _, k := range c.inOrder() {
		l := t.lane(k.Lane)
		switch {
		case k.Lane >= t.asked:
			k.blame(ambiguous("it stands in candidate " + strconv.Itoa(k.Lane) + ", and " + strconv.Itoa(t.asked) + " were asked for"))
		case l.finish != "" || t.broke:
			k.blame(ambiguous("it stands behind the end of the answer"))
		case unended:
			k.blame(ambiguous(frame.Unended))
		}
		if err := t.add(k); err != nil {
			return err
		}
	}
	t.note(b, c)
	if err := t.push(e, raw); err != nil {
		return err
	}
	return t.tooLong()
}

// inOrder gives the calls of a chunk in the order of their places.
func (c *chunk) inOrder() (all []*call) {
	type placed struct {
		at int
		k  *call
	}
	var list []placed
	for i := range c.parts {
		if k := c.parts[i].call; k != nil {
			list = append(list, placed{c.parts[i].at.From, k})
		}
	}
	for _, s := range c.strays {
		list = append(list, placed{s.item.From, s.call})
	}
	if len(c.strays) > 0 {
		slices.SortStableFunc(list, func(x, y placed) int { return x.at - y.at })
	}
	for _, p := range list {
		all = append(all, p.k)
	}
	return all
}

// note keeps what a chunk says of the answer as a whole.
func (t *turn) note(b []byte, c *chunk) {
	t.broke = t.broke || c.broke
	if rawjson.IsString(b, c.id) && c.id.Len() > 2 && c.id.Len() <= maxWord {
		if t.rounds == 1 && t.env.id == nil {
			t.env.id = bytes.Clone(c.id.In(b))
		}
		if t.told != nil && t.told.id == "" {
			t.told.id = rawjson.Text(b, c.id)
		}
	}
	if rawjson.IsString(b, c.model) && c.model.Len() > 2 && c.model.Len() <= maxWord && t.rounds == 1 && !bytes.Equal(c.model.In(b), t.env.model) {
		t.env.model = bytes.Clone(c.model.In(b))
	}
	t.count(b, c.usage)
	for i := range c.cands {
		k := &c.cands[i]
		if t.told != nil && k.lane.n == 0 {
			t.told.hear(b, c.parts[k.from:k.to])
		}
		if !rawjson.Null(b, k.finish) {
			k.lane.finish = word(b, k.finish)
			if k.lane.n == 0 {
				t.finish = k.lane.finish
			}
		}
	}
}

// word copies a reason for an end. The usual one is not copied.
func word(b []byte, v rawjson.Span) string {
	if string(v.In(b)) == `"STOP"` {
		return "STOP"
	}
	return short(rawjson.Text(b, v))
}

// fault withholds a frame as a whole: it becomes a call of its own, so that it
// is seen, counted and answered. What follows it at once and is no better
// belongs to the same one.
func (t *turn) fault(raw []byte, f flaw) error {
	t.altered = true
	if t.dropped {
		return nil
	}
	t.dropped = true
	typ := "event"
	switch t.form {
	case formArray:
		typ = "element"
	case formDocument:
		typ = "document"
	}
	k := t.odd(typ, raw, rawjson.Span{To: len(raw)}, flaw{f.fault, t.where() + f.reason})
	if err := t.add(k); err != nil {
		return err
	}
	if t.told != nil {
		t.told.add(saidItem{what: saidCall, call: k})
	}
	return t.push(entry{kind: entryFault, call: k, env: t.env}, nil)
}

// where names the place of a frame in an answer of several.
func (t *turn) where() string {
	switch t.form {
	case formEvents:
		return "event " + strconv.Itoa(t.sse.Count()) + ": "
	case formArray:
		return "element " + strconv.Itoa(t.array.Count()) + ": "
	}
	return ""
}

func (t *turn) limit(reason string) error {
	return &inspect.Error{Dialect: Name, Where: "answer", Reason: reason, Limit: true}
}

// fail ends the reading. What was queued stays in.
func (t *turn) fail(reason string, err error) *inspect.Error {
	e, ok := errors.AsType[*inspect.Error](err)
	if !ok {
		e = &inspect.Error{Dialect: Name, Where: "answer", Reason: reason, Err: err}
	}
	if _, ok := errors.AsType[*frame.TooLargeError](err); ok {
		e.Reason, e.Limit = "a piece of it is too large", true
	}
	if e.Reason == "" {
		e.Reason = "it cannot be read"
	}
	t.failed, t.altered = e, true
	return e
}

// give ends a step.
func (t *turn) give() inspect.Step {
	s := t.step
	for t.issued < len(t.list) {
		s.Calls = append(s.Calls, t.list[t.issued].Call)
		t.issued++
	}
	s.Out, s.Held = t.dst, t.keeps()
	t.dst, t.step = nil, inspect.Step{}
	switch {
	case t.done:
		s.State = inspect.Done
	case t.suspended:
		s.State = inspect.Suspended
	case t.ruled < t.issued:
		s.State = inspect.Waiting
	}
	return s
}

// keeps is about how many bytes of the answer are kept.
func (t *turn) keeps() int {
	n := t.weight + len(t.held) + len(t.waiting)*entryCost + len(t.body) + len(t.carried) + t.sse.Pending() + t.array.Pending()
	if g := t.told; g != nil {
		n += g.kept() + len(g.seen)
	}
	return n
}

// EndRound ends the provider's answer.
func (t *turn) EndRound(dst []byte, end inspect.End) (inspect.Step, error) {
	t.dst = dst
	if t.ended || t.done {
		return t.give(), nil
	}
	if t.failed != nil {
		return t.give(), t.failed
	}
	if err := t.close(end); err != nil {
		return t.give(), t.fail("", err)
	}
	t.ended, t.end = true, end
	t.conclude()
	return t.give(), nil
}

// close takes in what is left of an answer that has ended. Half a frame of one
// that was cut is of no use to anyone.
func (t *turn) close(end inspect.End) error {
	if end == inspect.EndCut {
		t.altered = t.altered || t.sse.Pending()+t.array.Pending()+len(t.body) > 0
		return nil
	}
	switch {
	case t.events:
		if err := t.sse.Close(t.event); err != nil {
			return err
		}
	case t.form == formArray:
		if t.array.Pending() > 0 {
			if err := t.fault(nil, flaw{toolcall.FaultTruncated, "the answer ended inside it"}); err != nil {
				return err
			}
		}
	case len(t.body) > 0:
		t.form = formDocument // of white space alone, too
		if err := t.chunk(entry{kind: entryChunk, at: rawjson.Span{To: len(t.body)}}, t.body, false); err != nil {
			return err
		}
	}
	if t.rounds > 1 && !t.broke && t.finish == "" && !t.dropped {
		return errors.New("the further answer broke off")
	}
	return nil
}

// Resolve carries out a ruling.
func (t *turn) Resolve(dst []byte, seq int, r inspect.Ruling) (inspect.Step, error) {
	t.dst = dst
	if t.done || !t.rule(seq, r) {
		return t.give(), inspect.Unresolvable(seq)
	}
	t.conclude()
	return t.give(), nil
}

// suspends reports whether the turn waits for a further round. Where the text
// must follow a schema a further round would make two of one.
func (t *turn) suspends() bool {
	return t.told != nil && t.ended && t.end == inspect.EndClean && !t.broke && t.resumable() && !(t.structured && t.speaks())
}

// conclude ends a round whose calls all have their rulings.
func (t *turn) conclude() {
	switch {
	case !t.ended || t.done || t.suspended || t.ruled < len(t.list):
		t.drain()
		return
	case t.suspends():
		t.cutting = true
		t.drain()
		t.cutting, t.tail, t.suspended = false, false, true
		return
	}
	t.owe()
	t.drain()
	if t.end == inspect.EndClean && len(t.owed) > 0 && !t.closed {
		t.say(t.owed, "", false)
	}
	t.owed, t.done = nil, true
	if t.form == formDocument && !t.closed {
		t.unsee()
	}
}

// unsee notes that nothing of the answer was shown.
func (t *turn) unsee() {
	if t.told != nil {
		t.told.seen, t.told.notices = nil, nil
	}
}

// owe makes text of refusals that have no other place to be seen, because the
// answer ends with the round and no call is left of it, and says something where
// else nothing would be seen.
func (t *turn) owe() {
	if t.broke {
		return // no client reads on
	}
	if t.ruled == t.denied && t.silent > 0 {
		for _, k := range t.list[t.first:] {
			if k.silent && !k.said {
				k.said = true
				t.owed = append(t.owed, k.refusal())
			}
		}
	}
	if t.closes() && !t.speaks() && t.ruled == t.denied {
		t.owed = append(t.owed, saidNothing)
		t.told.mute = true
	}
}

// closes reports whether a later round was the last one, and has ended well.
func (t *turn) closes() bool {
	return t.told != nil && t.rounds > 1 && t.ended && t.end == inspect.EndClean && !t.broke && completes(t.finish)
}

// speaks reports whether the turn shows words, or will.
func (t *turn) speaks() bool {
	if len(t.owed) > 0 || t.told.spoke || t.told.speaks() {
		return true
	}
	return slices.ContainsFunc(t.list[t.first:], func(k *call) bool { return !k.silent && !k.released() })
}

// KeepAlive appends white space: some readers of this format take nothing else
// between two chunks.
func (t *turn) KeepAlive(dst []byte) []byte {
	if t.done || t.closed {
		return dst
	}
	t.altered = true
	switch t.form {
	case formEvents:
		return append(append(dst, t.newline()...), t.newline()...)
	case formArray:
		return append(dst, '\n')
	}
	return append(dst, ' ')
}

// Abandon ends the answer with the text.
func (t *turn) Abandon(dst []byte, text string) []byte {
	if t.done {
		return dst
	}
	t.dst = dst
	if t.suspended && t.told != nil {
		t.told.ending = text
	}
	t.stop()
	if t.closed {
		return t.out()
	}
	if text == "" {
		text = inspect.NoReason
	}
	t.say([]string{text}, "STOP", true)
	t.shut()
	t.shown = "STOP"
	return t.out()
}

// Fail ends the answer with an error.
func (t *turn) Fail(dst []byte, text string) []byte {
	if t.done {
		return dst
	}
	t.dst = dst
	t.stop()
	if t.closed {
		return t.out()
	}
	if t.settled() == formDocument {
		t.unsee()
	}
	t.write(appendError(nil, forbidden, text))
	t.shut()
	return t.out()
}

const forbidden = 403

// stop leaves in all that was not given out.
func (t *turn) stop() {
	t.done, t.altered, t.suspended = true, true, false
	t.empty()
}

func (t *turn) out() []byte {
	dst := t.dst
	t.dst = nil
	return dst
}

// Record tells what the provider said against what was shown.
func (t *turn) Record() inspect.Record {
	r := inspect.Record{Model: rawjson.Text(t.env.model, rawjson.All(t.env.model)), Finish: t.finish, Shown: t.shown, Rounds: t.rounds, Altered: t.altered}
	if t.env.id != nil {
		r.ID = rawjson.Text(t.env.id, rawjson.All(t.env.id))
	}
	r.InputTokens, r.OutputTokens, r.Billed = t.prompt, t.outputs(), t.billed()
	r.Calls, r.Withheld = len(t.list), len(t.list)-t.given
	return r
}
