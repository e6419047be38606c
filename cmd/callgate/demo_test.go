package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// runDemo runs the demo as a person at a terminal, or nobody, would see it.
func runDemo(t *testing.T, terminal bool, typed string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	e := &env{
		Stdin: strings.NewReader(typed), Stdout: &out, Stderr: io.Discard,
		Getenv: func(string) string { return "" }, StdinTTY: terminal, StdoutTTY: terminal,
	}
	cmd := newDemoCommand(e)
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestDemoAsksThePersonAtTheTerminal(t *testing.T) {
	tests := []struct {
		name, typed string
		runs        bool
	}{
		{"yes", "y\n", true},
		{"yes in full and in capitals", " YES \n", true},
		{"no", "n\n", false},
		{"an empty line", "\n", false},
		{"another word", "sure\n", false},
		{"yes without an end", "y", false},
		{"nothing at all", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, err := runDemo(t, true, tt.typed)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, "[y/N]") || !strings.Contains(out, "\x1b[") {
				t.Errorf("nobody was asked, or without colour:\n%s", out)
			}
			const ran = "would run \x1b[1mrm -rf ~/projects"
			if got := strings.Contains(out, ran); got != tt.runs {
				t.Errorf("the agent got the call: %v\n%s", got, out)
			}
		})
	}
}

// Each run prints the same.
func TestDemoIsTheSameEachTime(t *testing.T) {
	for _, answer := range []string{"yes", "no"} {
		first, err := runDemo(t, false, "", "--answer", answer)
		if err != nil {
			t.Fatal(err)
		}
		second, err := runDemo(t, false, "", "--answer="+answer)
		if err != nil {
			t.Fatal(err)
		}
		if first != second {
			t.Errorf("--answer %s\n%s\n%s", answer, first, second)
		}
		if strings.Contains(first, "\x1b") {
			t.Error("colour where no terminal is")
		}
	}
}

// What --json prints says what happened in each scene, whoever answers what.
func TestDemoForMachines(t *testing.T) {
	tests := []struct {
		args     []string
		verdicts string
		calls    string // that the agent saw
	}{
		{[]string{"--json", "--answer", "yes"}, "1 allow, 2 ask, 2 allow, 3 deny", "1 ls -la ~/projects, 2 rm -rf ~/projects"},
		{[]string{"--json", "--answer", "no"}, "1 allow, 2 ask, 2 deny, 3 deny", "1 ls -la ~/projects"},
		{[]string{"--json"}, "1 allow, 2 ask, 2 deny, 3 deny", "1 ls -la ~/projects"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			// A terminal changes nothing here: nobody is asked at it.
			out, err := runDemo(t, true, "y\n", tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			var verdicts, calls []string
			for line := range strings.Lines(out) {
				var ev event
				if err := json.Unmarshal([]byte(line), &ev); err != nil {
					t.Fatalf("%v in %q", err, line)
				}
				if ev.Verdict != "" {
					verdicts = append(verdicts, fmt.Sprint(ev.Scene, " ", ev.Verdict))
				}
				if ev.Who == "agent" && ev.Tool != "" {
					calls = append(calls, fmt.Sprint(ev.Scene, " ", commandOf(ev.Args)))
				}
			}
			if got := strings.Join(verdicts, ", "); got != tt.verdicts {
				t.Errorf("verdicts %s, want %s", got, tt.verdicts)
			}
			if got := strings.Join(calls, ", "); got != tt.calls {
				t.Errorf("the agent saw %s, want %s", got, tt.calls)
			}
		})
	}
}

// The demo is its own check: a call that reaches the agent and must not, or
// does not and must, fails it.
func TestDemoFailsWhenTheGateDoes(t *testing.T) {
	call := demoMessage{Calls: []demoToolCall{{ID: "x", Name: "bash", Args: "{}"}}}
	tests := []struct {
		name  string
		scene scene
		msg   demoMessage
		fails bool
	}{
		{"a call that must not come", scene{}, call, true},
		{"a call that must come and does not", scene{reaches: true}, demoMessage{Content: "x"}, true},
		{"an asked call that nobody allowed", scene{asked: true}, call, true},
		{"a call that comes as it must", scene{reaches: true}, call, false},
		{"a refusal where it must be", scene{asked: true}, demoMessage{Content: "x"}, false},
	}
	for _, tt := range tests {
		if err := (&demo{}).checked(tt.scene, tt.msg); (err != nil) != tt.fails {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestDemoRefusesOtherAnswers(t *testing.T) {
	for _, args := range [][]string{{"--answer", "perhaps"}, {"--answer", "Yes"}, {"twice"}} {
		if out, err := runDemo(t, false, "", args...); err == nil {
			t.Errorf("%v runs:\n%s", args, out)
		}
	}
}

func TestWrap(t *testing.T) {
	tests := []struct {
		line string
		want []string
	}{
		{"", []string{""}},
		{"one two", []string{"one two"}},
		{"one two three", []string{"one two", "three"}},
		{"averylongword and more", []string{"averylongword", "and more"}},
		{"averylongword", []string{"averylongword"}},
		{"abcdefgh i", []string{"abcdefgh", "i"}},
		{" abcdefghijk", []string{" abcdefghijk"}},
	}
	for _, tt := range tests {
		if got := wrap(tt.line, 8); !slices.Equal(got, tt.want) {
			t.Errorf("%q became %q, want %q", tt.line, got, tt.want)
		}
	}
}
