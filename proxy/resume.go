package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"callgate/gate"
	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// Denial says what a denied call becomes, as far as it is not the dialect's
// business.
type Denial struct {
	// Error makes an error of an answer in which a call is denied. Otherwise
	// the dialect says what stands in the call's place.
	Error bool
	// MaxResumes is how often the provider is asked again within one answer; 0
	// stands for DefaultMaxResumes.
	MaxResumes int
	// Breaker is the gate's (gate.Config.Breaker): no more calls of one answer
	// are decided side by side than may still be denied before it, and the
	// calls behind them wait. Else somebody would be asked about all that an
	// answer holds. 0 submits all at once.
	Breaker int
}

// DefaultMaxResumes is how often the provider is asked again within one answer.
const DefaultMaxResumes = 5

func (d Denial) maxResumes() int {
	if d.MaxResumes > 0 {
		return d.MaxResumes
	}
	return DefaultMaxResumes
}

// deniedError ends an answer because a call in it was denied, in mode error.
type deniedError struct{ refusal string }

func (e *deniedError) Error() string { return e.refusal }

// round is one answer of the provider to a turn.
type round struct {
	body   io.Reader // decoded
	cancel context.CancelFunc
	// ends gives back what the round had: it is called once, when nothing of
	// the round runs any more.
	ends []func()
}

func (rd *round) end() {
	for i := len(rd.ends) - 1; i >= 0; i-- {
		rd.ends[i]()
	}
}

// refused notes a call that was withheld.
func (l *relay) refused(c toolcall.Call) {
	l.denials++
	key := gate.Digest(c.Name, c.Args)
	if first, ok := l.noes[key]; ok && first < l.rounds {
		l.again = true
	} else if !ok {
		if l.noes == nil {
			l.noes = map[string]int{}
		}
		l.noes[key] = l.rounds
	}
}

// bound says why the provider is not asked again, "" when it is. lost says that
// no later request can tell the model either.
func (l *relay) bound() (why string, lost bool) {
	switch most := l.x.p.Denial.maxResumes(); {
	case l.x.p.Repairs == nil:
		return "the model cannot be told in any other way", true
	case signed(l.x.r.Header):
		return "the request is signed, so the model cannot be told in any other way", true
	case l.again:
		why = "the model made the same call again"
	case l.rounds > most:
		why = fmt.Sprintf("the model was told %d times within this answer, and each time it made another call that was refused", most)
	}
	return why, false
}

// resume asks the provider to go on after a round of which no call is left. It
// gives the next round, or nil when the turn was ended instead.
func (l *relay) resume() (*round, error) {
	told := l.turn.Told()
	// Where the model cannot read its refusals in the next request, it reads
	// them at the end of this answer.
	why, lost := l.bound()
	if why == "" {
		// Stored before the provider is asked: if that fails, the next request
		// of the conversation puts the refusals where they belong.
		if err := l.keep(told); err != nil {
			why, lost = "what was refused cannot be stored, so the model cannot be told in any other way", true
			l.x.p.log.Error("a refusal was not stored and the answer is ended", "reason", err.Error(), "turn", l.ask.Turn)
		}
	}
	if why == "" {
		rd, reason, err := l.askAgain(told.Rounds)
		if rd != nil || err != nil {
			return rd, err
		}
		why = reason
	}
	l.abandon(ending(told, why, lost))
	return nil, nil
}

// maxEnding is how many refusals the end of an answer repeats.
const maxEnding = 3

// ending is what the user reads at the end of an answer that does not go on:
// the first line of each refusal, or with whole all that the model must read.
func ending(told inspect.Told, why string, whole bool) string {
	var b strings.Builder
	if n := len(told.Rounds); n > 0 {
		for i, r := range told.Rounds[n-1].Refusals {
			if i == maxEnding {
				fmt.Fprintf(&b, "[callgate] %d more calls did not run.\n\n", len(told.Rounds[n-1].Refusals)-maxEnding)
				break
			}
			text := r.Text
			if !whole {
				text, _, _ = strings.Cut(text, "\n")
			}
			b.WriteString(text + "\n\n")
		}
	}
	return b.String() + "[callgate] The answer ends here: " + why + "."
}

// askAgain sends the request again with what was said since. reason says why
// there is no further round, and is for the user.
func (l *relay) askAgain(rounds []inspect.Round) (rd *round, reason string, err error) {
	x := l.x
	const withIt = "the conversation could not be continued with the refusal"
	body, err := l.p.resume(rounds)
	if err != nil {
		x.p.log.Warn("the provider is not asked again", "reason", err.Error(), "turn", l.ask.Turn)
		return nil, withIt, nil
	}
	if limit := x.p.limits.RequestBody; int64(len(body)) > limit {
		return nil, withIt + ": it would be larger than limits.request_body allows", nil
	}
	mem := lease{from: &x.p.memory}
	if err := mem.cover(body); err != nil {
		return nil, withIt + ": callgate has no memory left for it", nil
	}
	defer func() {
		if rd == nil {
			mem.end()
		}
	}()
	began := time.Now()
	for try := 1; ; try++ {
		next, resp, failed, err := l.roundTrip(body)
		if err != nil {
			return nil, "", err
		}
		if failed != nil {
			x.p.log.Warn("the provider could not be asked again", "reason", failed.Error(), "turn", l.ask.Turn)
			return nil, "the provider could not be asked to go on", nil
		}
		if reason = l.opens(next, resp); reason == "" {
			l.rounds++
			next.ends = append(next.ends, mem.end)
			l.p.unload(true)
			return next, "", nil
		}
		x.span.UpstreamEnd(errors.New(reason))
		pause, ok := pauseFor(resp, try, time.Since(began))
		if !ok {
			said := make([]byte, 300) // what the provider says of it is for operators
			n, _ := io.ReadFull(next.body, said)
			next.end()
			x.p.log.Warn("the provider does not go on", "status", resp.StatusCode, "reason", reason, "answer", visible(said[:n]), "turn", l.ask.Turn)
			return nil, reason, nil
		}
		next.end()
		x.p.log.Info("the provider is asked again after a pause", "status", resp.StatusCode, "pause", pause, "turn", l.ask.Turn)
		if err := l.pause(pause); err != nil {
			return nil, "", err
		}
	}
}

// roundTrip sends the body once, with signs of life for the client until the
// provider's headers are there. failed says why there is no answer; err ends
// the exchange.
func (l *relay) roundTrip(body []byte) (rd *round, resp *http.Response, failed, err error) {
	x := l.x
	ctx, cancel := context.WithCancel(l.ctx)
	w := newWatch(x.headerTimeout(), cancel)
	rd = &round{cancel: cancel, ends: []func(){cancel, w.end}}
	s := &sent{body: body}
	req := s.attach(x.request(s.trace(ctx), true))
	renew(req.Header)
	x.span.Resume(req.Header, req.URL.Host, l.rounds+1)
	type result struct {
		resp *http.Response
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if v := recover(); v != nil {
				r = result{err: fmt.Errorf("asking failed from within: %v", v)}
			}
			done <- r
		}()
		r.resp, r.err = x.p.Transport.RoundTrip(req)
	}()
	tick := time.NewTicker(x.p.keepAlive())
	defer tick.Stop()
	var r result
	for waiting := true; waiting; {
		select {
		case r = <-done:
			waiting = false
		case <-tick.C:
			if err = l.beat(); err != nil {
				cancel()
				r = <-done
				waiting = false
			}
		}
	}
	w.headed(x.p.limits.IdleTimeout)
	if err == nil && r.err != nil && x.r.Context().Err() != nil {
		err = errGone
	}
	if err != nil || r.err != nil {
		x.span.UpstreamEnd(errors.Join(err, r.err))
		if r.resp != nil {
			r.resp.Body.Close()
		}
		rd.end()
		return nil, nil, r.err, err
	}
	x.span.Answered(r.resp.StatusCode)
	rd.body = &watched{r.resp.Body, w}
	rd.ends = append(rd.ends, func() { r.resp.Body.Close() })
	return rd, r.resp, nil, nil
}

// opens makes an answer the turn's next round, or says why it cannot be.
func (l *relay) opens(rd *round, resp *http.Response) (reason string) {
	const other = "the provider's further answer cannot be read"
	switch status := resp.StatusCode; {
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge:
		return "the provider did not take the conversation with the refusal (status " + strconv.Itoa(status) + "); it may have grown too long for the model"
	case status == http.StatusTooManyRequests:
		return "the provider asks for a pause" + pauseWords(resp) + " (status 429)"
	case status != http.StatusOK:
		return "the provider answered with status " + strconv.Itoa(status) + " when it was asked to go on"
	}
	stream, reason := form(resp.Header)
	if reason != "" || (stream || l.p.info.Elements) != l.stream {
		return other
	}
	c, err := coding(resp.Header)
	if err != nil {
		return other
	}
	body, free, err := decode(c, rd.body, l.x.p.limits.Answer)
	if err != nil {
		return other
	}
	rd.ends = append(rd.ends, free)
	if err := l.turn.NextRound(inspect.Head{Status: resp.StatusCode, Header: resp.Header}); err != nil {
		return other
	}
	rd.body, l.state, l.behind = l.x.rt.up.guard(body), inspect.More, 0
	return ""
}

// What a provider that asks for a pause is given.
const (
	maxTries = 3
	maxPause = time.Minute // of all pauses together
)

// pauseFor says how long to wait before the provider is asked once more, if it
// asks for that.
func pauseFor(resp *http.Response, try int, spent time.Duration) (time.Duration, bool) {
	// Clients ask again after these, too.
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < 500 {
		return 0, false
	}
	pause := time.Duration(try) * time.Second
	if ms, err := strconv.ParseFloat(resp.Header.Get("Retry-After-Ms"), 64); err == nil && ms >= 0 && ms < 1e9 {
		pause = time.Duration(ms * float64(time.Millisecond))
	} else if after := resp.Header.Get("Retry-After"); after != "" {
		if s, err := strconv.ParseFloat(after, 64); err == nil && s >= 0 && s < 1e6 {
			pause = time.Duration(s * float64(time.Second))
		} else if at, err := http.ParseTime(after); err == nil {
			pause = max(0, time.Until(at))
		}
	}
	return pause, try < maxTries && spent+pause <= maxPause
}

// pauseWords says how long a provider wants to be left alone.
func pauseWords(resp *http.Response) string {
	if after := resp.Header.Get("Retry-After"); after != "" {
		pause, _ := pauseFor(resp, 1, 0)
		return " of " + pause.Round(time.Second).String()
	}
	return ""
}

// pause waits with signs of life for the client.
func (l *relay) pause(span time.Duration) error {
	over := time.NewTimer(span)
	defer over.Stop()
	tick := time.NewTicker(l.x.p.keepAlive())
	defer tick.Stop()
	for {
		select {
		case <-over.C:
			return nil
		case <-tick.C:
			if err := l.beat(); err != nil {
				return err
			}
		case <-l.x.r.Context().Done():
			return errGone
		}
	}
}

// renew takes out of the headers what belongs to one request alone. With the
// same ids the provider would give the first answer again.
func renew(h http.Header) {
	for name := range h {
		switch k := asRead(name); {
		case strings.Contains(strings.ToLower(k), "idempotency"),
			k == "X-Request-Id", k == "X-Client-Request-Id", k == "X-Correlation-Id",
			k == "Content-Encoding", traits[k]&bytewise != 0, strings.HasPrefix(k, "X-Stainless-Retry"):
			delete(h, name)
		}
	}
}

// keep stores what later requests must mend, durably. A turn has one record:
// what was kept of it before gives way.
func (l *relay) keep(told inspect.Told) error {
	if !told.Mend || l.x.p.Repairs == nil {
		return nil
	}
	e, err := l.p.entry(l.tenant)
	if err != nil {
		return fmt.Errorf("the history it belongs to cannot be read: %w", err)
	}
	e.Told, e.Replace = told, l.kept
	// Kept also when the client is gone: it may come back.
	l.kept, err = l.x.p.Repairs.Keep(context.WithoutCancel(l.ctx), e)
	return err
}

// interrupted keeps what a client was shown that hung up within a later round:
// its user goes on from there.
func (l *relay) interrupted() {
	if l.remembered || l.rounds == 1 && l.denials == 0 {
		return
	}
	l.remembered = true
	if err := l.keep(l.turn.Told()); err != nil {
		l.x.p.log.Warn("what a client was shown that hung up was not stored: the model may not learn of a refusal in later requests", "reason", err.Error(), "turn", l.ask.Turn)
	}
}

// remember keeps the record of a turn that has its end, before its last bytes
// leave: the agent may send its next request at once.
func (l *relay) remember() {
	if l.remembered || l.state != inspect.Done {
		return
	}
	l.remembered = true
	if r := l.turn.Record(); r.Withheld == 0 && !r.Altered {
		return
	}
	if err := l.keep(l.turn.Told()); err != nil {
		l.x.p.log.Error("a refusal was not stored: the model may not learn of it in later requests", "reason", err.Error(), "turn", l.ask.Turn)
	}
}

// visible makes a foreign text fit to stand in a log.
func visible(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == utf8.RuneError {
			return ' '
		}
		return r
	}, string(b))
}
