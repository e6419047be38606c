package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"callgate/gate"
)

const (
	// linger is how long a batched entry waits for company.
	linger = 500 * time.Millisecond
	// retry is how long the writer waits after a failure before it tries again
	// by itself.
	retry = time.Second
	// batchSize is how many batched entries are written without lingering, and
	// how many changes share a transaction at most.
	batchSize = 256
	// queueLen and queueBytes bound what is batched; an entry beyond them is
	// written before Record returns, so that its caller waits for the disk.
	queueLen   = 4096
	queueBytes = 32 << 20
)

// op is one change that waits for the writer: an audit entry, or what apply
// does.
type op struct {
	entry *gate.Entry
	size  int // of the entry, roughly, in bytes
	apply func(context.Context, *sql.Conn) error
	// done gets the outcome; nil when nobody waits for it.
	done chan error
}

// writer owns the one connection that writes. Its goroutine takes what is
// queued, in order, and writes it in one transaction.
type writer struct {
	path   string // of the database
	db     *sql.DB
	conn   *sql.Conn
	report func(error)
	id     string // names this writer in the log

	// These belong to the goroutine.
	key         []byte
	head        Head
	insert, set *sql.Stmt

	wake  chan struct{} // holds one: look at the queue
	ended chan struct{}

	mu      sync.Mutex
	queue   []op
	bytes   int
	waiting int       // ops of the queue that somebody waits for
	since   time.Time // when the oldest batched entry was queued
	failed  error     // the last transaction's, nil after a success
	retryAt time.Time
	closing bool
	gaveUp  bool // a transaction failed while closing
	lost    int  // entries that could not be written before the end
}

// start prepares the statements and starts the goroutine; stop ends it.
func (w *writer) start(ctx context.Context) (err error) {
	w.id = newWriterID()
	w.wake = make(chan struct{}, 1)
	ended := make(chan struct{})
	if w.insert, err = w.conn.PrepareContext(ctx, insertEntry); err != nil {
		return err
	}
	if w.set, err = w.conn.PrepareContext(ctx, setHead); err != nil {
		return err
	}
	w.ended = ended
	go w.run()
	return nil
}

// stop writes what is queued and ends the goroutine. It says so when entries
// were lost.
func (w *writer) stop() error {
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.nudge()
	<-w.ended
	if w.lost > 0 {
		return fmt.Errorf("state: %d audit entries could not be written and are lost: %w", w.lost, w.failed)
	}
	return nil
}

// release closes the connection.
func (w *writer) release() error {
	var errs []error
	for _, s := range []*sql.Stmt{w.insert, w.set} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, w.conn.Close(), w.db.Close())...)
}

func (w *writer) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // it is going to look anyway
	}
}

// do queues o and waits for its transaction.
func (w *writer) do(o op) error {
	o.done = make(chan error, 1)
	w.mu.Lock()
	if w.closing {
		w.mu.Unlock()
		return errClosed
	}
	w.push(o)
	w.mu.Unlock()
	w.nudge()
	return <-o.done
}

// batch queues an entry nobody waits for. It reports false when there is no
// room for it, and an error while the last write failed.
func (w *writer) batch(e *gate.Entry, size int) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closing:
		return false, errClosed
	case w.failed != nil:
		return false, w.failed
	case len(w.queue) >= queueLen || w.bytes+size > queueBytes:
		return false, nil
	}
	w.push(op{entry: e, size: size})
	// The goroutine must know of the first one, to begin its wait, and of the
	// one that makes a batch whole.
	if n := len(w.queue); n == 1 || n == batchSize {
		w.nudge()
	}
	return true, nil
}

// push appends to the queue; mu is held.
func (w *writer) push(o op) {
	if o.done != nil {
		w.waiting++
	} else if len(w.queue) == w.waiting {
		w.since = time.Now()
	}
	w.queue = append(w.queue, o)
	w.bytes += o.size
}

func (w *writer) run() {
	defer close(w.ended)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for {
		ops, wait, end := w.next()
		switch {
		case ops != nil:
			w.flush(ops)
			continue
		case end:
			return
		}
		var due <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-w.wake:
		case <-due:
		}
	}
}

// next takes from the queue what is to be written now; nil when nothing is. It
// then says how long to wait, 0 for until something new is queued, or that it
// is time to end.
func (w *writer) next() (ops []op, wait time.Duration, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batched := len(w.queue) - w.waiting
	switch {
	case w.waiting > 0 || batched >= batchSize && w.failed == nil:
		return w.take(), 0, false
	case w.closing && (batched == 0 || w.gaveUp):
		// What cannot be written now will not be: the caller of stop is told.
		w.lost = batched
		return nil, 0, true
	case w.closing:
		return w.take(), 0, false
	case w.failed != nil:
		if wait := time.Until(w.retryAt); wait > 0 {
			return nil, wait, false
		}
		return w.take(), 0, false
	case batched > 0:
		if wait := linger - time.Since(w.since); wait > 0 {
			return nil, wait, false
		}
		return w.take(), 0, false
	}
	return nil, 0, false
}

// take removes the first batchSize ops; mu is held. It never gives nil: after a
// failure an empty transaction finds out whether writing works again.
func (w *writer) take() []op {
	n := min(len(w.queue), batchSize)
	ops := make([]op, n)
	copy(ops, w.queue)
	rest := copy(w.queue, w.queue[n:])
	clear(w.queue[rest:]) // let the entries go
	w.queue = w.queue[:rest]
	for _, o := range ops {
		w.bytes -= o.size
		if o.done != nil {
			w.waiting--
		}
	}
	return ops
}

// flush writes ops in one transaction and tells those who wait. Entries that
// nobody waits for stay first in the queue when it fails: their callers were
// told that they are kept.
func (w *writer) flush(ops []op) {
	err := w.transact(context.Background(), ops)
	w.settle(ops, err)
	for _, o := range ops {
		if o.done != nil {
			o.done <- err
		}
	}
}

// settle notes how a transaction ended and reports a change of fortune.
func (w *writer) settle(ops []op, err error) {
	w.mu.Lock()
	turned := (err == nil) != (w.failed == nil)
	w.failed = err
	if err != nil {
		w.retryAt = time.Now().Add(retry)
		w.gaveUp = w.closing
		w.putBack(ops)
	}
	w.mu.Unlock()
	if turned && w.report != nil {
		w.report(err)
	}
}

// putBack returns the batched entries of ops to the head of the queue; mu is
// held.
func (w *writer) putBack(ops []op) {
	var kept []op
	for _, o := range ops {
		if o.done == nil {
			kept = append(kept, o)
			w.bytes += o.size
		}
	}
	w.queue = append(kept, w.queue...)
}

// transact carries out ops in one transaction. The log's head moves only when
// that has been committed.
func (w *writer) transact(ctx context.Context, ops []op) error {
	if err := exec(ctx, w.conn, "BEGIN IMMEDIATE"); err != nil {
		return explain(w.path, err)
	}
	head, err := w.apply(ctx, ops)
	if err == nil {
		err = exec(ctx, w.conn, "COMMIT")
	}
	if err != nil {
		rollback(ctx, w.conn)
		return explain(w.path, err)
	}
	w.head = head
	return nil
}

func (w *writer) apply(ctx context.Context, ops []op) (Head, error) {
	head, moved := w.head, len(ops) == 0
	for _, o := range ops {
		if o.entry == nil {
			if err := o.apply(ctx, w.conn); err != nil {
				return Head{}, err
			}
			continue
		}
		moved = true
		var err error
		if head, err = w.append(ctx, *o.entry, head); err != nil {
			return Head{}, err
		}
	}
	if !moved {
		return head, nil
	}
	return head, w.setHead(ctx, head)
}
