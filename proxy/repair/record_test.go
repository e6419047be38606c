package repair

import (
	"bytes"
	"testing"
)

// FuzzRead reads what a damaged store may give: no panic, and what is accepted
// is written as it was read, so that nothing in it was passed over.
func FuzzRead(f *testing.F) {
	r, put := newRecord(kept{calls: "call_9fK2xQ7b call_0", answer: "msg_1", says: "s", last: "l", all: "a", put: "A", bound: true, refusals: 2, notice: "n"}.entry())
	f.Add(r.anchors())
	f.Add(put)
	f.Add([]byte{1, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, kept []byte) {
		if b, err := readBody(kept); err == nil {
			again, err := readBody(writeBody(b.rounds, b.notices))
			if err != nil || !bytes.Equal(writeBody(again.rounds, again.notices), writeBody(b.rounds, b.notices)) {
				t.Errorf("a body is not read as it was written: %v", err)
			}
		}
		var r record
		if err := r.read(kept); err == nil {
			var again record
			if err := again.read(r.anchors()); err != nil || !bytes.Equal(again.anchors(), r.anchors()) {
				t.Errorf("anchors are not read as they were written: %v", err)
			}
		}
	})
}

func TestEveryCutIsSeen(t *testing.T) {
	r, put := newRecord(kept{calls: "call_9fK2xQ7b call_0", answer: "msg_1", says: "s", put: "A", bound: true, refusals: 2, notice: "n"}.entry())
	for i := range put {
		if _, err := readBody(put[:i]); err == nil {
			t.Errorf("a body that ends after %d of %d bytes is accepted", i, len(put))
		}
	}
	anchors := r.anchors()
	for i := range anchors {
		if err := new(record).read(anchors[:i]); err == nil {
			t.Errorf("anchors that end after %d of %d bytes are accepted", i, len(anchors))
		}
	}
}
