package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// printQueue is how many texts may wait for a slow reader.
	printQueue = 256
	// printPatience is how long somebody waits to know that a text was
	// written, and how long the last texts may take at the end.
	printPatience = time.Second
)

var errPrintQueue = errors.New("nobody reads the output: too much of it waits")

// printer writes on a goroutine of its own, so that a terminal that is stopped
// or a pipe that nobody reads holds up no decision. Each text is written whole.
type printer struct {
	out  io.Writer
	done chan struct{}

	mu      sync.Mutex // guards what is below
	queue   chan printed
	dropped int
}

type printed struct {
	text []byte
	told chan<- error // gets how the writing went; nil where nobody asks
}

func newPrinter(out io.Writer) *printer {
	p := &printer{out: out, done: make(chan struct{}), queue: make(chan printed, printQueue)}
	go p.run(p.queue)
	return p
}

func (p *printer) run(queue <-chan printed) {
	defer close(p.done)
	for t := range queue {
		_, err := p.out.Write(t.text)
		if t.told != nil {
			t.told <- err
		}
	}
}

// put queues a text; it reports false where the queue is full or closed.
func (p *printer) put(t printed) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue == nil {
		return false
	}
	if p.dropped > 0 {
		note := fmt.Sprintf("callgate: %d lines were dropped because nobody read them\n", p.dropped)
		t.text = append([]byte(note), t.text...)
	}
	select {
	case p.queue <- t:
		p.dropped = 0
		return true
	default:
		p.dropped++
		return false
	}
}

// Write queues b and never waits. What does not fit is dropped, and the next
// text that fits says how much was. It makes a printer the output of a log.
func (p *printer) Write(b []byte) (int, error) {
	p.put(printed{text: bytes.Clone(b)})
	return len(b), nil
}

// tell queues a text and waits a moment for how its writing goes. It is an
// error when the text could not be written; one that still waits is none: it
// will be seen when somebody reads on.
func (p *printer) tell(ctx context.Context, text []byte) error {
	told := make(chan error, 1)
	if !p.put(printed{text, told}) {
		return errPrintQueue
	}
	late := time.NewTimer(printPatience)
	defer late.Stop()
	select {
	case err := <-told:
		return err
	case <-late.C:
	case <-ctx.Done():
	}
	return nil
}

// close writes what waits, as far as somebody reads it.
func (p *printer) close() {
	p.mu.Lock()
	queue := p.queue
	p.queue = nil
	p.mu.Unlock()
	if queue == nil {
		return
	}
	close(queue)
	late := time.NewTimer(printPatience)
	defer late.Stop()
	select {
	case <-p.done:
	case <-late.C:
	}
}
