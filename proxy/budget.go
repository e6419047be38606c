package proxy

import (
	"errors"
	"io"
	"sync/atomic"
)

// errFull reports that the bodies of other requests take all the memory there
// may be.
var errFull = errors.New("callgate holds as many bodies in memory as it may (limits.memory): try again soon")

// budget bounds the memory that the bodies of all requests take together.
type budget struct {
	limit int64
	used  atomic.Int64
}

// lease is what one body has of a budget. It is used by one goroutine at a
// time, and ended when the body is let go.
type lease struct {
	from *budget
	size int64
}

// set makes the lease so many bytes large. It fails with errFull, and changes
// nothing, when that is more than the budget has.
func (l *lease) set(size int64) error {
	more := size - l.size
	if more == 0 {
		return nil
	}
	if l.from.used.Add(more) > l.from.limit && more > 0 {
		l.from.used.Add(-more)
		return errFull
	}
	l.size = size
	return nil
}

// cover charges what a buffer takes. One that a pool may keep is charged by
// what it holds: the rest of it is the pool's.
func (l *lease) cover(b []byte) error {
	if cap(b) <= keepSize {
		return l.set(int64(len(b)))
	}
	return l.set(int64(cap(b)))
}

// end gives everything back.
func (l *lease) end() {
	if l.size != 0 {
		l.from.used.Add(-l.size)
		l.size = 0
	}
}

// room gives b with space for at least one more byte, and no more than most in
// all while that is enough. While it copies, both buffers are charged.
func room(b []byte, most int64, l *lease) ([]byte, error) {
	if len(b) < cap(b) {
		return b, nil
	}
	size := max(2*int64(cap(b)), firstSize)
	if most > int64(cap(b)) {
		size = min(size, most)
	}
	if size > keepSize {
		if err := l.set(int64(cap(b)) + size); err != nil {
			return b, err
		}
	}
	next := make([]byte, len(b), size)
	copy(next, b)
	return next, l.cover(next)
}

// readAll reads r to its end and charges what it keeps. what names it in the
// error for more than limit bytes.
func readAll(r io.Reader, what string, limit int64, l *lease) ([]byte, error) {
	var b []byte
	for {
		var err error
		if b, err = room(b, limit+1, l); err != nil {
			return b, err
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if int64(len(b)) > limit {
			return b, &tooLargeError{what, limit}
		}
		if full := l.cover(b); full != nil {
			return b, full
		}
		switch err {
		case nil:
		case io.EOF:
			return b, nil
		default:
			return b, err
		}
	}
}
