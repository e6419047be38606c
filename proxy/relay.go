package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"callgate/gate"
	"callgate/inspect"
	"callgate/inspect/toolcall"
	"callgate/proxy/repair"
	"callgate/proxy/telemetry"
)

// relay drives one gated answer: bytes of the provider into the turn, calls
// into the gate, rulings back, and what may be shown to the client. One
// goroutine uses it and is the only writer.
type relay struct {
	x      *exchange
	ctx    context.Context // of the exchange: ends with the client, carries the span
	d      inspect.Dialect
	p      *prompt
	tenant Tenant
	turn   inspect.Turn
	resp   *http.Response // of the first round

	stream bool // the answer is a stream: what may be shown is shown at once
	state  inspect.State
	out    []byte // may be shown and is not written yet
	seen   []toolcall.Call
	open   []question      // submitted, without a ruling, in order
	slow   int             // of these, for which somebody was asked
	later  []toolcall.Call // not submitted yet, in order: see Denial.Breaker
	ask    gate.Request
	behind int64 // bytes read while a call waited

	said    time.Duration  // after the exchange began, when the client last got something that says more than that the provider is there
	rounds  int            // begun so far
	denials int            // calls that were withheld in this turn
	noes    map[string]int // by digest, the round in which a call was withheld first
	again   bool           // one of them was made again in a later round

	mem        lease     // for what the turn keeps of the answer
	kept       repair.ID // the record of the turn
	remembered bool      // the turn's end is in it
}

// question is a call that the gate was asked about.
type question struct {
	req *gate.Request // with the call
	t   *gate.Ticket  // nil where there is no gate
	at  time.Time
	// slow says that it was not decided at once.
	slow bool
}

// decided reports whether the decision has fallen.
func (q *question) decided() bool {
	if q.t == nil {
		return true
	}
	select {
	case <-q.t.Done():
		return true
	default:
		return false
	}
}

func (q *question) decision() gate.Decision {
	if q.t == nil {
		return gate.Decision{Outcome: gate.Malformed, By: "proxy", Reason: "there is no gate to decide it"}
	}
	return q.t.Decision()
}

// gated reads the request, asks the provider and relays the answer.
func (x *exchange) gated(ctx context.Context, d inspect.Dialect) error {
	q, err := x.prompt(d)
	defer q.close()
	if err != nil {
		return err
	}
	t := x.tenant()
	ask := x.template(d, q.info, t)
	x.span.Asked(telemetry.Asked{
		Dialect: d.Name(), Provider: providerName(d.Name()), Model: ask.Model, Stream: q.info.Stream,
		Principal: ask.Principal, Session: ask.Claimed.Session,
	})
	found, err := q.mend(ctx, t)
	if err != nil {
		return fmt.Errorf("repairing the request: %w", err)
	}
	l := &relay{x: x, ctx: ctx, mem: lease{from: &x.p.memory}, d: d, p: q, tenant: t, ask: ask, rounds: 1}
	l.ask.Denials = found.Refused
	a, err := x.ask(ctx, q)
	if a == nil {
		return err
	}
	for n := 0; n < maxAmends && x.amend(q, a); n++ {
		a.end()
		if a, err = x.ask(ctx, q); a == nil {
			return err
		}
	}
	defer a.end()
	return l.answer(&round{cancel: a.cancel}, a.resp, a.watch)
}

// full refuses a request for whose body there is no memory at this moment.
func (x *exchange) full(d inspect.Dialect) error {
	x.refuseHeaded(d, http.StatusServiceUnavailable, errFull.Error(), http.Header{"Retry-After": {"1"}})
	return errFull
}

// answer relays the provider's answer to a gated request.
func (l *relay) answer(rd *round, resp *http.Response, w *watch) error {
	x, d := l.x, l.d
	status := resp.StatusCode
	switch {
	case status < 200 || status == http.StatusResetContent || status == http.StatusPartialContent || status/100 == 3:
		return x.withhold(d, badStatus(status))
	case status == http.StatusNoContent:
		responseHeader(x.w.Header(), resp.Header, true) // and no body, whatever stands behind it
		x.head(status)
		return nil
	case status/100 != 2:
		return x.failed(d, resp, w)
	}
	stream, reason := form(resp.Header)
	if reason != "" {
		return x.withhold(d, reason)
	}
	stream = stream || l.p.info.Elements
	c, err := coding(resp.Header)
	if err != nil {
		return x.withhold(d, err.Error())
	}
	body, free, err := decode(c, &watched{resp.Body, w}, x.p.limits.Answer)
	if err != nil {
		return x.withhold(d, err.Error())
	}
	defer free()
	turn, err := l.p.req.Open(inspect.Head{Status: status, Header: resp.Header})
	if err != nil {
		return x.withhold(d, err.Error())
	}
	l.p.unload(l.mayResume())
	out, _ := x.p.outs.Get().(*[]byte)
	if out == nil {
		out = new([]byte)
	}
	rd.body = x.rt.up.guard(body)
	l.turn, l.resp, l.stream, l.out = turn, resp, stream, (*out)[:0]
	defer func() {
		l.leave()
		l.mem.end()
		if cap(l.out) <= stepSize {
			*out = l.out
			x.p.outs.Put(out)
		}
	}()
	err = l.run(rd)
	l.account(err)
	return err
}

// mayResume reports whether the request may be needed once more.
func (l *relay) mayResume() bool { return l.x.p.Repairs != nil }

// template is what all requests to the gate of this turn have in common. The
// strings are copied: the dialect may have cut them from the pooled body, and
// decisions outlive it.
func (x *exchange) template(d inspect.Dialect, info inspect.Info, t Tenant) gate.Request {
	q := gate.Request{
		Agent:     x.by.agent.Name,
		Principal: t.Principal,
		Claimed:   x.claims(info),
		Upstream:  x.rt.up.Name,
		Dialect:   d.Name(),
		Model:     strings.Clone(info.Model),
		Turn:      strconv.FormatUint(rand.Uint64(), 36), // a name for logs, not a secret
		Trace:     x.span.TraceID(),
	}
	if q.Claimed.Session != "" {
		q.Session = q.Principal + "/" + q.Claimed.Session
	}
	return q
}

// providerName is the name that OpenTelemetry's gen_ai conventions use.
func providerName(dialect string) string {
	if dialect == "gemini" {
		return "gcp.gemini"
	}
	name, _, _ := strings.Cut(dialect, "-")
	return name
}

// run relays all rounds of the turn.
func (l *relay) run(rd *round) error {
	err := l.read(rd)
	for err == nil && l.state == inspect.Suspended {
		if rd, err = l.resume(); rd == nil {
			break
		}
		err = l.hold(rd)
		rd.end()
	}
	if errors.Is(err, errGone) {
		l.interrupted()
	}
	if err != nil {
		return err
	}
	return l.finish()
}

// read reads a round on the handler's goroutine for as long as every call is
// decided at once.
func (l *relay) read(rd *round) error {
	buf := l.x.p.chunk()
	free := func() {
		if buf != nil {
			l.x.p.chunks.Put(buf)
			buf = nil
		}
	}
	defer free()
	for {
		n, err := rd.body.Read(*buf)
		if n > 0 {
			if fault := l.feed((*buf)[:n]); fault != nil {
				return l.fault(fault)
			}
			if len(l.open) > 0 && err == nil {
				free() // holds last long
				return l.hold(rd)
			}
			if werr := l.show(err == nil && n < len(*buf)); werr != nil {
				return werr
			}
			if l.overdue() {
				l.head(-1)
				if werr := l.alive(); werr != nil {
					return werr
				}
			}
		}
		if err != nil {
			free()
			return l.end(rd, err)
		}
	}
}

// feed gives bytes of the provider to the turn.
func (l *relay) feed(p []byte) error {
	if l.state == inspect.Done {
		return nil // the turn has its end; nothing behind it is shown
	}
	return l.take(l.turn.Feed(l.out, p))
}

// take goes through a step: new calls are submitted, and every call whose
// decision has fallen gets its ruling, which may bring further steps.
func (l *relay) take(step inspect.Step, err error) error {
	if err := l.absorb(step, err); err != nil {
		return err
	}
	return l.settle()
}

func (l *relay) settle() error {
	for i := 0; i < len(l.open); {
		q := l.open[i]
		if !q.decided() {
			i++
			continue
		}
		l.open = slices.Delete(l.open, i, i+1)
		if q.slow {
			l.slow--
		}
		d := q.decision()
		l.tell(&q, d)
		r := ruling(d, q.req.Call)
		if !r.Release {
			l.refused(q.req.Call)
			if l.x.p.Denial.Error {
				return &deniedError{r.Refusal}
			}
		}
		step, err := l.turn.Resolve(l.out, q.req.Call.Seq, r)
		if err := l.absorb(step, err); err != nil {
			return err
		}
		l.proceed()
	}
	return nil
}

// absorb takes over what a step brought.
func (l *relay) absorb(step inspect.Step, err error) error {
	if step.Out != nil {
		l.out = step.Out
	}
	l.state = step.State
	if err == nil {
		err = l.cover(step.Held)
	}
	for _, c := range step.Hosted {
		l.x.recordHosted(&l.ask, c)
	}
	if len(step.Calls) > 0 {
		l.submit(step.Calls)
	}
	return err
}

// coverStep is how far what a turn keeps may grow before it is charged anew:
// most turns keep less.
const coverStep = 64 << 10

// cover charges what the turn keeps, twice: once more as what is made of it for
// later requests.
func (l *relay) cover(held int) error {
	if more := 2*int64(held) - l.mem.size; more > coverStep {
		return l.mem.set(2 * int64(held))
	}
	return nil
}

// submit asks the gate about the calls that became complete together.
func (l *relay) submit(calls []toolcall.Call) {
	l.seen, l.later = append(l.seen, calls...), append(l.later, calls...)
	l.proceed()
}

// proceed submits the calls that may be submitted now.
func (l *relay) proceed() {
	most := l.x.p.Denial.Breaker
	for len(l.later) > 0 && (most == 0 || l.slow == 0 || l.slow+l.ask.Denials+l.denials < most) {
		c := l.later[0]
		l.later = l.later[1:]
		q := l.ask
		q.Call = c
		if l.x.p.Actions != nil && c.Fault == toolcall.FaultNone {
			q.Actions = l.x.p.Actions(c, l.p.info.Tools)
		}
		q.Siblings = l.siblings(c.Seq)
		q.Denials += l.denials
		ask := question{req: &q, at: time.Now()}
		if l.x.p.Gate != nil {
			ask.t = l.x.p.Gate.Submit(l.ctx, &q)
		}
		if ask.slow = !ask.decided(); ask.slow {
			l.slow++
		}
		l.open = append(l.open, ask)
	}
}

// maxSiblings is how many other calls a call is judged with, so that a turn of
// many calls costs linear time.
const maxSiblings = 64

// siblings gives the other calls of the turn that are known, the newest where
// there are too many, in order.
func (l *relay) siblings(seq int) []toolcall.Call {
	if len(l.seen) < 2 {
		return nil
	}
	list := make([]toolcall.Call, 0, min(len(l.seen)-1, maxSiblings))
	for _, c := range l.seen[max(0, len(l.seen)-maxSiblings-1):] {
		if c.Seq != seq && len(list) < maxSiblings {
			list = append(list, c)
		}
	}
	return list
}

// tell puts a decision into trace and log.
func (l *relay) tell(q *question, d gate.Decision) {
	if l.x.span != nil {
		l.x.span.Decided(q.req, d, q.at, time.Now())
	}
	if d.Verdict == gate.Allow {
		return
	}
	l.x.p.log.Info("call withheld", "tool", printable(q.req.Call.Name), "outcome", string(d.Outcome), "by", d.By, "rule", d.Rule,
		"approval", d.Approval, "upstream", l.ask.Upstream, "turn", l.ask.Turn)
}

// show writes what may be shown of a stream; a JSON answer is written whole at
// its end.
func (l *relay) show(flush bool) error {
	if !l.stream || len(l.out) == 0 {
		return nil
	}
	l.head(-1)
	return l.write(flush)
}

func (l *relay) write(flush bool) error {
	if l.state == inspect.Done {
		l.remember()
	}
	if err := l.x.write(l.out, flush); err != nil {
		return err
	}
	if len(l.out) > idleSize {
		l.said = l.x.spoke
	}
	l.out = l.out[:0]
	return nil
}

// idleSize is how long the events are at most by which a provider keeps its own
// connections alive: shorter than any that says something. Some clients' clocks
// run on while they get these.
const idleSize = 64

// head sends the provider's status and headers, once. length is that of the
// whole body, or below zero where it is not known.
func (l *relay) head(length int) {
	if l.x.wrote {
		return
	}
	h := l.x.w.Header()
	responseHeader(h, l.resp.Header, true)
	if l.stream && h.Get("X-Accel-Buffering") == "" {
		h.Set("X-Accel-Buffering", "no") // else some servers in between collect the stream
	}
	if length >= 0 {
		h.Set("Content-Length", strconv.Itoa(length))
	}
	l.x.head(l.resp.StatusCode)
}

// end takes the end of a round: clean, cut, or because the client is gone.
func (l *relay) end(rd *round, cause error) error {
	if cause != io.EOF {
		return l.cut(cause)
	}
	l.x.span.UpstreamEnd(nil)
	if err := l.finishRound(); err != nil {
		return l.fault(err)
	}
	if len(l.open) > 0 {
		return l.hold(&round{cancel: rd.cancel})
	}
	return nil
}

// finishRound tells the turn that the provider's answer has ended well.
func (l *relay) finishRound() error {
	if l.state == inspect.Done {
		return nil
	}
	return l.take(l.turn.EndRound(l.out, inspect.EndClean))
}

// finish writes the last bytes of a turn that is done.
func (l *relay) finish() error {
	if l.state != inspect.Done {
		return l.fault(errors.New("the answer has no end"))
	}
	if !l.x.wrote {
		l.head(len(l.out))
	}
	return l.write(false)
}

// cut ends a turn whose provider broke off. The client must see a cut too:
// agents that see a clean end would take a half answer for a whole one. Calls
// that wait are left; a client that asks again meets their questions.
func (l *relay) cut(cause error) error {
	if l.x.r.Context().Err() != nil {
		return errGone
	}
	if errors.Is(cause, errEchoed) {
		return l.fault(cause)
	}
	l.x.span.UpstreamEnd(cause)
	why := fmt.Errorf("the answer of %s broke off: %w", l.ask.Upstream, cause)
	if l.rounds > 1 {
		// The agent knows nothing of a second answer that could break off.
		return l.broken(why)
	}
	if l.state != inspect.Done {
		if err := l.take(l.turn.EndRound(l.out, inspect.EndCut)); err != nil {
			l.out = l.out[:0]
		}
	}
	l.leave()
	if !l.x.wrote && (!l.stream || len(l.out) == 0) {
		l.x.refuse(l.d, http.StatusBadGateway, why.Error())
		return why
	}
	l.remember()
	if l.stream {
		l.head(-1)
		if err := l.write(true); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w", why, errAbort)
}

// fault ends a turn that cannot be read further: with an error of the dialect
// while that is possible, else with a well-formed end that says why.
func (l *relay) fault(err error) error {
	l.leave()
	if no, ok := errors.AsType[*deniedError](err); ok {
		return l.refuse(no)
	}
	why := "the answer was withheld: " + err.Error()
	l.x.recordWithheld(l.d, err.Error())
	err = fmt.Errorf("answer withheld: %w", err)
	if !l.x.wrote && l.rounds == 1 { // else the agent would ask for all rounds again
		l.x.refuse(l.d, http.StatusBadGateway, why)
		return err
	}
	l.abandon("[callgate] The rest of " + why)
	if !l.x.wrote {
		l.head(len(l.out))
	}
	if werr := l.write(false); werr != nil {
		return werr
	}
	return err
}

// abandon ends the turn with a text of ours.
func (l *relay) abandon(text string) {
	l.out = l.turn.Abandon(l.out, text)
	l.state = inspect.Done
}

// broken ends a turn of which a later round broke off.
func (l *relay) broken(why error) error {
	l.leave()
	l.abandon("[callgate] The answer ends here: the provider's further answer broke off.")
	if !l.x.wrote {
		l.head(len(l.out))
	}
	if err := l.write(false); err != nil {
		return err
	}
	return why
}

// refuse makes an error of an answer in which a call was denied.
func (l *relay) refuse(no *deniedError) error {
	l.state = inspect.Done
	if !l.x.wrote {
		l.out = l.out[:0]
		l.x.refuse(l.d, http.StatusBadRequest, strings.TrimPrefix(no.refusal, "[callgate] "))
		return nil
	}
	l.out = l.turn.Fail(l.out, no.refusal)
	return l.write(false)
}

// leave tells the gate that nobody waits for the open calls any more. Those that
// it was not asked about are denied.
func (l *relay) leave() {
	for _, q := range l.open {
		if q.t != nil {
			q.t.Leave()
		}
	}
	for _, c := range l.later {
		l.x.recordUnasked(&l.ask, c)
	}
	l.open, l.later, l.slow = nil, nil, 0
}

// account puts what became of the turn into trace and log.
func (l *relay) account(err error) {
	rec := l.turn.Record()
	l.x.span.Shown(telemetry.Shown{
		Model: rec.Model, ID: rec.ID, Finish: rec.Finish,
		InputTokens: rec.InputTokens, OutputTokens: rec.OutputTokens,
		Calls: rec.Calls, Withheld: rec.Withheld, Rounds: rec.Rounds, Billed: rec.Billed,
	})
	if rec.Rounds > 1 {
		l.x.p.log.Info("the model was told of refusals", "rounds", rec.Rounds, "calls", rec.Calls, "withheld", rec.Withheld,
			"input_tokens_of_all_rounds", rec.Billed, "output_tokens", rec.OutputTokens, "upstream", l.ask.Upstream, "turn", l.ask.Turn)
	}
	if !l.x.p.log.Enabled(l.ctx, slog.LevelDebug) {
		return
	}
	l.x.p.log.Debug("answered", "upstream", l.ask.Upstream, "dialect", l.ask.Dialect, "model", l.ask.Model, "status", l.x.status,
		"rounds", rec.Rounds, "billed", rec.Billed, "calls", rec.Calls, "withheld", rec.Withheld, "altered", rec.Altered, "turn", l.ask.Turn, "took", time.Since(l.x.began), "cut", err != nil)
}
