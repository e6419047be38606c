package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

// stuck is an output that nobody reads until it is opened.
type stuck struct {
	open chan struct{}
	bytes.Buffer
}

func (s *stuck) Write(b []byte) (int, error) {
	<-s.open
	return s.Buffer.Write(b)
}

func TestAnOutputThatNobodyReadsHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuck{open: make(chan struct{})}
		p := newPrinter(out)
		if err := p.tell(t.Context(), []byte("question\n")); err != nil {
			t.Errorf("a question that waits to be read is a failure: %v", err)
		}
		log := slog.New(slog.NewTextHandler(p, nil))
		for i := range 2 * printQueue {
			log.Info("a line", "number", i)
		}
		if err := p.tell(t.Context(), []byte("one too many\n")); !errors.Is(err, errPrintQueue) {
			t.Errorf("a full queue gives %v", err)
		}
		close(out.open)
		synctest.Wait()
		if err := p.tell(t.Context(), []byte("the last\n")); err != nil {
			t.Error(err)
		}
		p.close()
		got := out.String()
		if !strings.HasPrefix(got, "question\n") || !strings.HasSuffix(got, "the last\n") || strings.Contains(got, "one too many") {
			t.Errorf("written: %q ... %q", got[:40], got[len(got)-80:])
		}
		// One line was being written, the queue was full behind it.
		lost := 2*printQueue - printQueue + 1
		if !strings.Contains(got, fmt.Sprintf("callgate: %d lines were dropped", lost)) {
			t.Errorf("it does not say that %d lines were dropped: %q", lost, got[len(got)-120:])
		}
	})
}

func TestAnOutputThatIsGoneIsAFailure(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	p := newPrinter(w)
	defer p.close()
	if err := p.tell(t.Context(), []byte("question\n")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a closed output gives %v", err)
	}
}

func TestAClosedPrinterTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &stuck{open: make(chan struct{})}
		p := newPrinter(out)
		if _, err := p.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		p.close() // gives up on the reader
		p.close()
		if err := p.tell(t.Context(), []byte("y")); !errors.Is(err, errPrintQueue) {
			t.Errorf("a closed printer gives %v", err)
		}
		close(out.open)
	})
}
