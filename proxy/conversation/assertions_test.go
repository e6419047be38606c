package conversation

import (
	"net/http"
	"strings"
	"testing"
)

// stand puts a stand-in with a fault in the place of callgate.
func stand(t *testing.T, fault string) *stage {
	s := newStage(t)
	s.gate = &standIn{provider: s.kept.provider, client: &http.Client{Transport: s.kept.out}, fault: fault, kept: map[string][]object{}, last: map[string]lastRound{}}
	return s
}

// The assertions can be met with calls denied, and without any.
func TestTheAssertionsCanBeMet(t *testing.T) {
	seeds := uint64(40)
	if raced || testing.Short() {
		seeds = 8
	}
	for _, fm := range forms {
		t.Run(string(fm), func(t *testing.T) {
			t.Parallel()
			s, real := stand(t, ""), newStage(t)
			for seed := range seeds {
				p := newPlan(seed, fm)
				if log, err := converse(t, s, p, true); err != nil {
					t.Fatalf("seed %d, with %s:\n%s\n=> %v", seed, p.f, strings.Join(log, "\n"), err)
				}
				p.f &^= denials
				if log, err := converse(t, real, p, true); err != nil {
					t.Fatalf("nothing denied, seed %d, with %s:\n%s\n=> %v", seed, p.f, strings.Join(log, "\n"), err)
				}
			}
		})
	}
}

// Each assertion is met by no conversation for long when its fault is there.
func TestTheAssertionsBite(t *testing.T) {
	tests := []struct{ fault, says string }{
		{"denied calls are forgotten", "part "},
		{"denied calls are forgotten now and then", "part "},
		{"a refusal has the words of a result", "as the result of"},
		{"a denied call is shown", "was shown a denied call"},
		{"the refusal is shown", "was shown a denied call or its refusal"},
		{"one tenant's records serve all", "something of tenant"},
		{"what was sent before is changed", "does not go on from the request before it"},
		{"the finish says there are calls", "ends with"},
		{"each chunk has an id of its own", ""},
		{"indexes have gaps", ""},
	}
	for _, tt := range tests {
		for _, fm := range forms {
			if fm == threads && strings.HasPrefix(tt.fault, "what was sent") {
				continue // the provider has it
			}
			t.Run(tt.fault+" in "+string(fm), func(t *testing.T) {
				s := stand(t, tt.fault)
				for seed := range uint64(60) {
					p := newPlan(seed, fm)
					p.f = (p.f | denials | neighbours) &^ (repeats | crowds | thinks)
					if _, err := converse(t, s, p, true); err != nil {
						if !strings.Contains(err.Error(), tt.says) {
							t.Errorf("seed %d: %.600v", seed, err)
						}
						return
					}
				}
				t.Error("nothing was noticed in 60 conversations")
			})
		}
	}
}

// What the provider gets while refusals are shown to the agent as text is not
// what it is to get.
func TestRefusalsAsTextAreNoticed(t *testing.T) {
	if repaired {
		t.Skip("refusals are results")
	}
	for _, fm := range forms {
		s := newStage(t)
		noticed := 0
		for seed := range uint64(30) {
			if _, err := converse(t, s, newPlan(seed, fm), true); err != nil {
				noticed++
			}
		}
		if noticed < 15 {
			t.Errorf("%s: noticed in %d of 30 conversations", fm, noticed)
		}
	}
}
