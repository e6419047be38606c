package detect

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"callgate/inspect/toolcall"
)

func stepsOf(t *testing.T, c string) int {
	t.Helper()
	rep, steps := New(testWorld()).detect(shellAction(c))
	if rep.Limit != "" {
		t.Fatalf("limit %s on %d bytes", rep.Limit, len(c))
	}
	return steps
}

// growers build inputs of size n out of the parts whose cost could multiply.
var growers = map[string]func(n int) string{
	"separators":     func(n int) string { return strings.Repeat("ls a; ", n) },
	"pipes":          func(n int) string { return "ls" + strings.Repeat(" | cat", n) },
	"ands":           func(n int) string { return "ls" + strings.Repeat(" && ls", n) },
	"words":          func(n int) string { return "ls" + strings.Repeat(" a", n) },
	"substitutions":  func(n int) string { return "echo " + strings.Repeat("$(echo a) ", n) },
	"joined parts":   func(n int) string { return "X=" + strings.Repeat(`"a"$(echo b)`, n) },
	"assignments":    func(n int) string { return strings.Repeat("A=b; ", n) + "echo $A" },
	"here-documents": func(n int) string { return strings.Repeat("cat <<E\nrm -rf x\nE\n", n) },
	"braces":         func(n int) string { return strings.Repeat("echo {a,b,c}; ", n) },
	"functions":      func(n int) string { return "f() { ls; }; " + strings.Repeat("f; ", n) },
	"different calls": func(n int) string {
		var b strings.Builder
		b.WriteString("f() { ls $1; }; ")
		for i := range n {
			fmt.Fprintf(&b, "f %d; ", i)
		}
		return b.String()
	},
	"nested shells": func(n int) string { return strings.Repeat("sh -c 'echo a'; ", n) },
	"quotes":        func(n int) string { return "echo '" + strings.Repeat("a b ", n) + "'" },
	"variables":     func(n int) string { return "A=x; echo " + strings.Repeat("$A", n) },
	"arithmetic":    func(n int) string { return "echo $((1" + strings.Repeat("+1", n) + "))" },
	"branches":      func(n int) string { return strings.Repeat("if a; then B=$B; fi; ", n) },
	"redirects":     func(n int) string { return strings.Repeat("echo a > f; ", n) },
	"appends":       func(n int) string { return strings.Repeat("echo a >> /dev/null; ", n) },
}

func TestWorkGrowsInProportionToTheText(t *testing.T) {
	for name, g := range growers {
		t.Run(name, func(t *testing.T) {
			small, large := stepsOf(t, g(150)), stepsOf(t, g(300))
			if large > small*23/10+50 {
				t.Errorf("twice the text takes %d steps instead of %d", large, small)
			}
		})
	}
}

// TestWorkStopsAtALimit feeds texts whose work would multiply: they end at a
// limit, which denies, or in a bounded number of steps.
func TestWorkStopsAtALimit(t *testing.T) {
	double := func(n int) string { // f0 calls f1 twice with different words ...
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "f%d() { f%d a$1; f%d b$1; }; ", i, i+1, i+1)
		}
		fmt.Fprintf(&b, "f%d() { echo $1; }; f0", n)
		return b.String()
	}
	var grow strings.Builder
	grow.WriteString("A=aaaaaaaaaaaaaaaa; ")
	for range 40 {
		grow.WriteString("A=$A$A; ")
	}
	tests := map[string]struct{ c, limit string }{
		"brace products are refused":                 {"echo " + strings.Repeat("{a,b}", 30), "words"},
		"deep substitutions are refused":             {strings.Repeat("$(", 250) + "ls" + strings.Repeat(")", 250), "depth"},
		"deep nested shells are refused":             {strings.Repeat("env ", 250) + "ls", "depth"},
		"a doubled variable stays bounded":           {grow.String() + "echo $A", ""},
		"functions that double stay bounded":         {double(40), ""},
		"a function that calls itself ends":          {"f() { f x$1; }; f", ""},
		"a huge text is refused":                     {"echo '" + strings.Repeat("a", MaxText) + "'", "bytes"},
		"a long brace range is not written out":      {"echo {1..100000000}", ""},
		"an alias of itself ends":                    {"alias ls='ls -l'; ls", ""},
		"two aliases that name each other end":       {"alias a=b b=a; a", ""},
		"a script that sources itself ends":          {"echo '. ./s.sh' > s.sh; . ./s.sh", "depth"},
		"a script that runs itself twice is ended":   {"echo './s.sh; ./s.sh' > s.sh; ./s.sh", "any"},
		"a function printed into a shell is refused": {"f() { echo f x$1 | sh; }; f", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			rep, steps := New(testWorld()).detect(shellAction(tt.c))
			if steps > MaxSteps+MaxText {
				t.Errorf("%d steps", steps)
			}
			if tt.limit == "any" && rep.Limit == "" || tt.limit != "any" && rep.Limit != tt.limit {
				t.Errorf("limit %q, want %q; findings %s", rep.Limit, tt.limit, ruleIDs(rep))
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

// TestDeepNestingEndsEarly feeds the parser nesting that would make it recurse
// without end: reading stops at a limit, and soon.
func TestDeepNestingEndsEarly(t *testing.T) {
	const n = 20000
	for name, c := range map[string]string{
		"substitutions":         strings.Repeat("$(", n) + "ls" + strings.Repeat(")", n),
		"open substitutions":    strings.Repeat("$(", n),
		"quoted substitutions":  strings.Repeat("\"$(", n),
		"hidden by quotes":      strings.Repeat("$( ')' ", n),
		"subshells":             strings.Repeat("( ", n) + "ls" + strings.Repeat(")", n),
		"blocks":                strings.Repeat("{ ", n) + "ls;" + strings.Repeat(" }", n),
		"ifs":                   strings.Repeat("if a; then ", n),
		"cases":                 strings.Repeat("case a in a) ", n),
		"functions":             strings.Repeat("f() ", n) + "{ ls; }",
		"parameters":            strings.Repeat("${a:-", n) + strings.Repeat("}", n),
		"arithmetic":            "echo $((" + strings.Repeat("(", n) + "1" + strings.Repeat(")", n) + "))",
		"tests":                 "[[ " + strings.Repeat("( ", n) + "a" + strings.Repeat(" )", n) + " ]]",
		"negated tests":         "[[ " + strings.Repeat("! ", n) + "a ]]",
		"process substitutions": strings.Repeat("cat <(", n) + strings.Repeat(")", n),
		"braces":                "echo " + strings.Repeat("{a,", n) + strings.Repeat("}", n),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			rep, steps := New(testWorld()).detect(shellAction(c))
			if rep.Limit != "nesting" && rep.Limit != "depth" && rep.Limit != "braces" {
				t.Errorf("limit %q after %d steps, findings %s", rep.Limit, steps, ruleIDs(rep))
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestALimitNeverHidesWhatWasFoundBeforeIt(t *testing.T) {
	rep := detectShell("rm -rf /; echo " + strings.Repeat("{a,b}", 30))
	if rep.Limit == "" || !hasRule(rep, "fs.delete-root") {
		t.Errorf("limit %q, findings %s", rep.Limit, ruleIDs(rep))
	}
}

func TestOneCallHasOneBudgetForAllItsActions(t *testing.T) {
	a := toolcall.Action{Kind: toolcall.KindCommand, Language: toolcall.LangShell, Command: strings.Repeat("ls a; ", 20000)}
	rep := New(testWorld()).Detect([]toolcall.Action{a, a, a, a, a, a, a, a})
	if rep.Limit != "steps" {
		t.Errorf("limit %q, want steps", rep.Limit)
	}
}

func TestFindingsOfOneCallAreCapped(t *testing.T) {
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, "rm -r d%d; ", i)
	}
	b.WriteString("reboot")
	rep := detectShell(b.String())
	if len(rep.Findings) != MaxFindings+1 || !hasRule(rep, "host.power") {
		t.Errorf("%d findings", len(rep.Findings))
	}
}

// FuzzDetect checks that no text makes the detector panic, run on, or give a
// span outside the text.
func FuzzDetect(f *testing.F) {
	for _, r := range Rules() {
		for _, c := range append(r.Match, r.NoMatch...) {
			f.Add(c)
		}
	}
	for _, g := range growers {
		f.Add(g(3))
	}
	for _, tt := range mustCatch {
		f.Add(tt.c)
	}
	d := New(testWorld())
	f.Fuzz(func(t *testing.T, c string) {
		rep, steps := d.detect(shellAction(c))
		if steps > MaxSteps+MaxText || rep.Limit == limitFault {
			t.Fatalf("%d steps, limit %q", steps, rep.Limit)
		}
		for _, fi := range rep.Findings {
			if fi.Start < 0 || fi.End > len(c) || fi.Start > fi.End || c[fi.Start:fi.End] != fi.Words {
				t.Fatalf("span %d:%d of %d, words %q", fi.Start, fi.End, len(c), fi.Words)
			}
			if fi.Reason == "" || strings.Contains(fi.Reason, "\x00") {
				t.Fatalf("reason %q", fi.Reason)
			}
		}
	})
}

func FuzzSQL(f *testing.F) {
	f.Add("DROP TABLE a; -- x\nSELECT 'a''b'")
	f.Add("/*!40000 DROP DATABASE d */")
	d := New(testWorld())
	f.Fuzz(func(t *testing.T, c string) {
		r := &run{d: d, src: c}
		sqlReader{}.read(r, text{s: c, at: span{0, len(c)}})
	})
}

func FuzzLocate(f *testing.F) {
	for _, s := range []string{"~/a", "/a/../..", "//x//./", "\x00/b", "/dev/sd*", "~root/x", "/private/etc"} {
		f.Add(s, "/home/dev/app")
	}
	p := newPlaces(testWorld())
	f.Fuzz(func(t *testing.T, s, dir string) {
		pl := p.locate(s, dir)
		if again := p.locate(pl.path, dir); strings.HasPrefix(pl.path, "/") && !pl.all && again.kind != pl.kind && !wild(s) {
			t.Fatalf("%q: %v, but its clean form %q: %v", s, pl.kind, pl.path, again.kind)
		}
	})
}

// TestRandomPiecesKeepTheirVerdict joins commands in random order: what was
// found in one alone is found in the whole, since nothing before it changes it.
func TestRandomPiecesKeepTheirVerdict(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	harmless := []string{"ls -l", "echo done", "cd src", "A=1", "true || false", "for i in a b; do echo $i; done", "cat <<'E' > n.txt\nrm -rf /\nE"}
	bad := []struct{ c, rule string }{{"rm -rf /", "fs.delete-root"}, {"git push -f", "git.force-push"}, {"sudo reboot", "host.power"}, {"cat ~/.ssh/id_rsa", "secret.read"}}
	for range 200 {
		b := bad[rng.IntN(len(bad))]
		parts := []string{b.c}
		for range rng.IntN(5) {
			parts = append(parts, harmless[rng.IntN(len(harmless))])
		}
		rng.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		c := strings.Join(parts, "\n")
		if rep := detectShell(c); !hasRule(rep, b.rule) {
			t.Fatalf("%q: no %s, got [%s]", c, b.rule, ruleIDs(rep))
		}
	}
}
