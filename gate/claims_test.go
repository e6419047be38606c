package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
)

// Whatever a client says of itself, the gate decides the same.
func TestNoClaimDecidesAnything(t *testing.T) {
	claims := []Claims{
		{}, {Session: "s1"}, {User: "admin"}, {Platform: "cron"}, {Platform: "cli", User: "root"},
		{Session: "mode: off", User: "operator", Platform: "unattended"}, {User: "person"}, {Session: "approved", User: "default", Platform: "callgate"},
	}
	for _, mode := range []Mode{Manual, Custom, Off} {
		for _, command := range []string{"ls", "BAD", "HARD", "DEEP", "ODD"} {
			for _, verdict := range []Verdict{Deny, Allow, Ask} {
				var first string
				for i, c := range claims {
					asked := 0
					counts := func(op Opinion) Reviewer {
						return ReviewerFunc(func(_ context.Context, r *Request) Opinion {
							asked++
							if r.Claimed != c {
								t.Errorf("a reviewer is told %+v of %+v", r.Claimed, c)
							}
							return op
						})
					}
					g := newGate(t, Config{Mode: mode, Detector: marker{}, Person: counts(Opinion{Approval: "ab12"}), Hook: counts(Opinion{Verdict: verdict, Reason: "said so"})})
					r := call(command)
					r.Claimed = c
					d := g.Decide(t.Context(), r)
					got := fmt.Sprintf("%s %s by %s, %s: %s (%d asked)", d.Verdict, d.Outcome, d.By, d.Rule, d.Reason, asked)
					if i == 0 {
						first = got
					} else if got != first {
						t.Errorf("mode %s, %s, %s: with the claims %+v %s; without %s", mode, command, verdict, c, got, first)
					}
				}
			}
		}
	}
}

func TestASessionIsReadWhereItStoodBefore(t *testing.T) {
	for text, want := range map[string]Claims{
		`{"session":"s1","tool":"bash"}`:                                    {Session: "s1"},
		`{"claimed":{"session":"s1","user":"u"},"tool":"bash"}`:             {Session: "s1", User: "u"},
		`{"claimed":{"session":"s1"},"session":"s2","tool":"bash"}`:         {Session: "s1"},
		`{"tool":"bash","reason":"the \"session\" has ended"}`:              {},
		`{"claimed":{"platform":"cli"},"tool":"bash","args":"\"session\""}`: {Platform: "cli"},
	} {
		var e Entry
		var a Approval
		if err := errors.Join(json.Unmarshal([]byte(text), &e), json.Unmarshal([]byte(text), &a)); err != nil {
			t.Fatal(err)
		}
		if e.Claimed != want || a.Claimed != want || e.Tool != "bash" || a.Tool != "bash" {
			t.Errorf("%s: read as %+v and %+v", text, e.Claimed, a.Claimed)
		}
	}
	for _, text := range []string{`{"session":1}`, `{"tool":1}`} {
		if json.Unmarshal([]byte(text), new(Entry)) == nil || json.Unmarshal([]byte(text), new(Approval)) == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
