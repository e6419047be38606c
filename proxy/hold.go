package proxy

import (
	"fmt"
	"io"
	"time"

	"callgate/inspect"
)

// piece is what the pump read: bytes, the reason why it ended, or both.
type piece struct {
	buf *[]byte
	n   int
	err error
}

func (c piece) bytes() []byte { return (*c.buf)[:c.n] }

// pump reads an answer to its end while calls wait, so that the provider is
// not kept waiting for a person. It ends when the body does or stop is closed
// and Read returns.
type pump struct {
	out  chan piece
	free chan *[]byte // buffers to read into; what is left in it when the pump ended is unused
	stop chan struct{}
	done chan struct{}
}

func (p *Proxy) startPump(body io.Reader) *pump {
	s := &pump{
		out: make(chan piece), free: make(chan *[]byte, 2),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	s.free <- p.chunk()
	s.free <- p.chunk()
	go s.run(body)
	return s
}

func (p *pump) run(body io.Reader) {
	defer close(p.done)
	for {
		var buf *[]byte
		select {
		case buf = <-p.free:
		case <-p.stop:
			return
		}
		n, err := safeRead(body, *buf)
		select {
		case p.out <- piece{buf, n, err}:
		case <-p.stop:
			return
		}
		if err != nil {
			return
		}
	}
}

// reclaim takes the buffers of a pump back that has ended by itself: a hold
// may last long, and many may be open.
func (p *Proxy) reclaim(s *pump, last *[]byte) {
	p.chunks.Put(last)
	for len(s.free) > 0 {
		p.chunks.Put(<-s.free)
	}
}

// safeRead makes an error of a panic in a decoder: here nobody else would catch
// it, and it would end the process with all its other turns.
func safeRead(body io.Reader, buf []byte) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			n, err = 0, fmt.Errorf("reading failed from within: %v", v)
		}
	}()
	return body.Read(buf)
}

// hold goes on with a turn that has calls without a decision. The provider's
// answer is read to its end beside it (body is nil when that was reached), the
// client gets a sign of life at intervals, and what a ruling frees is shown at
// once. Provider order rules what can be shown, so only the first open call is
// waited for; the others are looked at when it has fallen. A later round of the
// turn is read here from its beginning: the client hears nothing of the
// provider while it is silent.
func (l *relay) hold(rd *round) error {
	var (
		pieces <-chan piece
		src    *pump
	)
	if rd.body != nil {
		src = l.x.p.startPump(rd.body)
		pieces = src.out
		defer func() {
			close(src.stop)
			rd.cancel() // ends a Read that waits for the provider
			<-src.done
		}()
	}
	if l.stream || len(l.open) > 0 {
		l.head(-1)
		if err := l.write(true); err != nil {
			return err
		}
	}
	tick := time.NewTicker(l.x.p.keepAlive())
	defer tick.Stop()
	gone := l.x.r.Context().Done()
	for len(l.open) > 0 || pieces != nil {
		var decided <-chan struct{}
		if len(l.open) > 0 {
			decided = l.open[0].t.Done()
		}
		select {
		case c := <-pieces:
			if err := l.fed(c); err != nil {
				return err
			}
			if c.err != nil {
				pieces = nil
				<-src.done
				l.x.p.reclaim(src, c.buf)
			} else {
				src.free <- c.buf
			}
		case <-decided:
			if err := l.settle(); err != nil {
				return l.fault(err)
			}
			if err := l.show(true); err != nil {
				return err
			}
		case <-tick.C:
			l.p.unload(l.mayResume()) // when the answer began, it may not have been through
			if l.mayResume() {
				l.p.pack()
			}
			if err := l.beat(); err != nil {
				return err
			}
		case <-gone:
			return errGone
		}
	}
	return nil
}

// fed takes a piece of the answer during a hold. An error ends the turn.
func (l *relay) fed(c piece) error {
	if c.n > 0 {
		if len(l.open) > 0 {
			l.behind += int64(c.n)
		}
		if l.behind > l.x.p.limits.Held {
			return l.fault(fmt.Errorf("more than %d bytes came behind a call that waits for a decision", l.x.p.limits.Held))
		}
		if err := l.feed(c.bytes()); err != nil {
			return l.fault(err)
		}
	}
	switch {
	case c.err == nil:
	case c.err == io.EOF:
		l.x.span.UpstreamEnd(nil)
		if err := l.finishRound(); err != nil {
			return l.fault(err)
		}
	default:
		return l.cut(c.err)
	}
	return l.show(true)
}

// alive shows a sign of life while output waits behind a call: one that is not
// decided, or one whose arguments still come.
func (l *relay) alive() error {
	if l.state != inspect.Waiting {
		return nil
	}
	l.out = l.turn.KeepAlive(l.out)
	return l.write(true)
}

// beat shows a sign of life at its time. Beside output that waits, a later
// round needs it when the provider has been silent: the agent knows of no new
// request and its clocks run.
func (l *relay) beat() error {
	quiet := l.rounds > 1 || l.state == inspect.Suspended
	if !quiet || l.state == inspect.Waiting {
		return l.alive()
	}
	if l.state == inspect.Done || time.Since(l.x.began)-l.said < l.x.p.keepAlive()/2 {
		return nil
	}
	l.head(-1)
	l.out = l.turn.KeepAlive(l.out)
	return l.write(true)
}

// overdue reports whether the client has seen nothing for so long that it
// needs a sign of life although the provider is sending: the arguments of a
// long call are read for minutes and nothing of them may be shown.
func (l *relay) overdue() bool {
	return l.stream && l.state == inspect.Waiting && time.Since(l.x.began)-l.x.spoke >= l.x.p.keepAlive()
}
