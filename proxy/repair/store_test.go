package repair

import (
	"strings"
	"testing"

	"callgate/gate/store"
)

var _ Store = (*store.Store)(nil)

func TestTheBookIsTheSameAfterARestart(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("the words of an answer; ", 1000)
	h := &history{units: []unit{{says: "s", last: "l"}, {calls: "call_9fK2xQ7b", says: "edited"}, {says: "t", last: "l"}}}
	var id ID
	for run := range 3 {
		s, err := store.Open(t.Context(), dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := opened(t, s, Options{})
		switch run {
		case 0:
			id = keep(t, b, kept{says: "first state", last: "l", put: "A"}.entry())
			e := kept{says: "s", last: "l", put: long}.entry()
			e.Replace = id
			keep(t, b, e)
			keep(t, b, kept{calls: "call_9fK2xQ7b", says: "u", put: "B", notice: "N"}.entry())
			keep(t, b, kept{says: "t", last: "l", put: "C", bound: true}.entry())
		case 1:
			if err := s.DropRepairs(t.Context(), []int64{3}, nil); err != nil {
				t.Fatal(err)
			}
			b = opened(t, s, Options{})
		}
		want := "0 put " + long + ", 1 put B edited without N, 2 put C"
		if run > 0 {
			want = strings.TrimSuffix(want, "put C") + "unbind"
		}
		if got := words(find(t, b, whole, h)); got != want {
			t.Errorf("run %d: found %s", run, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Keep(t.Context(), kept{says: "late", put: "D"}.entry()); err == nil {
			t.Error("a closed store keeps")
		}
	}
}
