package repair

import (
	"bytes"
	"testing"

	"callgate/inspect/digest"
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

// Records of the version before are found by all but what they do not hold.
func TestRecordsOfTheVersionBeforeAreRead(t *testing.T) {
	k := kept{calls: "call_9fK2xQ7b call_0", says: "s", last: "l", all: "a", put: "A"}
	r, _ := newRecord(k.entry())
	var w writer
	w.byte(2)
	w.bool(r.bound)
	w.int(r.size)
	for _, s := range []string{r.family, r.session, r.answer} {
		w.string(s)
	}
	w.strings([]string{"call_9fK2xQ7b", "call_0"})
	for _, d := range []digest.Digest{r.shown, r.last, r.all, r.behind, r.list, r.exact, r.put, r.does} {
		w.digest(d)
	}
	m := newMemory()
	keep(t, opened(t, m, Options{}), k.entry())
	m.rows[1] = row{tenant: whole.Key, anchors: w.b, body: m.rows[1].body, used: m.rows[1].used}
	b := opened(t, m, Options{})
	for _, tt := range []struct {
		unit unit
		want string
	}{
		{unit{calls: k.calls, says: "other"}, "0 put A edited"},
		{unit{calls: "x y", says: "s", last: "l", all: "a"}, "0 put A"},
		{unit{calls: "x y", says: "s", last: "l", all: "?"}, ""},
		{unit{calls: "x", says: "s", last: "l", all: "a"}, ""},
	} {
		if got := words(find(t, b, whole, &history{units: []unit{tt.unit}})); got != tt.want {
			t.Errorf("%+v: found %q, want %q", tt.unit, got, tt.want)
		}
	}
}
