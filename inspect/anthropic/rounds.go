package anthropic

import (
	"net/http"

	"callgate/inspect"
	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
)

const forbidden = http.StatusForbidden

// appendError appends an event that ends a stream with an error.
func appendError(dst []byte, text string) []byte {
	_, body := Dialect{}.Refuse(forbidden, text)
	return frame.AppendEvent(dst, "error", body)
}

// hushed makes a call that was just ruled on silent, if it can be.
func (t *stream) hushed(c *call) {
	if t.heard.full || !c.heard.There() {
		return
	}
	t.hush(c, c.heard.In(t.heard.said))
	t.altered = t.altered || c.silent
}

// suspends reports whether the turn waits for a further round.
func (t *stream) suspends() bool {
	return t.ended && t.end == inspect.EndClean && t.phase >= finished && !t.broke && !t.over && t.started && t.resumable(t.finish) && !t.schemed()
}

// suspend leaves the end of the round in. What was withheld behind it is said.
func (t *stream) suspend() {
	t.suspended = true
	var behind []*call
	for _, e := range t.queue[t.head:] {
		if e.op == opFault {
			behind = append(behind, e.call)
		}
	}
	t.empty()
	for _, c := range behind {
		t.refuse(c)
	}
}

// stopHere ends the turn where it stands.
func (t *stream) stopHere() {
	if t.heard != nil {
		t.heard.out, t.heard.fixed = t.shownUpTo(), true
	}
	t.done, t.altered, t.suspended = true, true, false
	t.empty()
}

// NextRound goes on with a further stream.
func (t *stream) NextRound(response inspect.Head) error {
	stream, err := streams(response)
	switch {
	case !t.suspended:
		return notSuspended
	case err != nil:
		return err
	case !stream:
		return otherForm
	}
	r, thinks := t.round(t.past.id, t.heard.blocks(), t.said())
	p := &t.past
	p.rounds = append(p.rounds, r)
	p.bound = p.bound || thinks
	p.speaks = p.speaks || t.heard.speaks()
	p.spoken = t.heard.appendSpeech(p.spoken, len(t.heard.said))
	for _, a := range t.heard.ours {
		p.notices = append(p.notices, a.text)
	}
	p.id = ""
	p.size += len(r.Message)
	t.heard.clear()

	t.sse = frame.SSE{Max: t.lim.Frame}
	t.mould.n = 0
	clear(t.open)
	t.open, t.current = t.open[:0], nil
	t.phase, t.finish, t.next = unstarted, "", 0
	t.bare, t.dropped, t.ended, t.closing, t.suspended = false, false, false, false, false
	t.rounds++
	t.tokens.next()
	t.ledger.next()
	t.fresh = true
	return nil
}

var (
	notSuspended = &inspect.Error{Dialect: Name, Where: "next round", Reason: "the turn does not wait for one"}
	otherForm    = &inspect.Error{Dialect: Name, Where: "content-type", Reason: "the further answer has another form than the first, so that it cannot go on with it"}
)

// laterFinish queues the message_delta of a later round, with the usage of the
// whole turn.
func (t *stream) laterFinish(data []byte, u rawjson.Span) {
	p := patch{b: data, obj: rawjson.All(data)}
	p.set("usage", t.merged(nil, data, u))
	data = p.append(nil)
	const head = len("event: message_delta\ndata: ")
	reason := member(data, member(data, rawjson.All(data), "delta"), "stop_reason")
	e := entry{op: opFinish, base: head, last: t.phase == finished}
	if e.at = reason; reason.There() {
		e.at = rawjson.Span{From: head + reason.From, To: head + reason.To}
	}
	t.push(e, frame.AppendEvent(nil, "message_delta", data))
}
