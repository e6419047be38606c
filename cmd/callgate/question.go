package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"callgate/gate"
	"callgate/gate/redact"
)

// people is how serve tells those at its terminal, or whoever reads its
// standard output, of questions and decisions.
type people struct {
	out   io.Writer
	style style
	json  bool
	// command gives the command line that answers a question: what is
	// "approve" or "deny".
	command func(what, id string) string

	mu sync.Mutex // one thing is printed whole before the next
}

// ask prints a question and the commands that answer it.
func (p *people) ask(_ context.Context, a gate.Approval) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.json {
		return printJSONLine(p.out, struct {
			Event    string        `json:"event"`
			Approval gate.Approval `json:"approval"`
			Approve  string        `json:"approve"`
			Deny     string        `json:"deny"`
		}{"question", a, p.command("approve", a.ID), p.command("deny", a.ID)})
	}
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %s %s\n", p.style.dim(fmt.Sprintf("%-6s", name)), fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "\n%s %s: agent %s wants to use %s\n", p.style.yellow("question"), p.style.bold(a.ID), redact.Visible(a.Agent), redact.Visible(a.Tool))
	for text := range strings.SplitSeq(shownCall(a), "\n") {
		fmt.Fprintf(&b, "    %s\n", redact.Visible(text))
	}
	for _, f := range a.Findings {
		line("why", "%s (%s)", redact.Visible(f.Reason), f.Rule)
	}
	if a.Why != "" {
		line("asks", "%s", redact.Visible(a.Why))
	}
	line("yes", "%s", p.command("approve", a.ID))
	line("no", "%s", p.command("deny", a.ID))
	line("until", "%s, in %s; no answer is a no", a.Expires.Local().Format(time.TimeOnly), span(time.Until(a.Expires)))
	_, err := io.WriteString(p.out, b.String())
	return err
}

// shownCall is what a person reads of a call: the command or path when it has
// one, else all of its arguments.
func shownCall(a gate.Approval) string {
	switch {
	case a.Command != "":
		return a.Command
	case a.Path != "":
		return a.Path
	}
	return a.Args
}

// decided prints a line on a decision.
func (p *people) decided(r *gate.Request, d gate.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Nobody can be told that telling failed: the decision is in the audit
	// log either way.
	if p.json {
		_ = printJSONLine(p.out, struct {
			Event   string       `json:"event"`
			Tool    string       `json:"tool"`
			Verdict string       `json:"verdict"`
			Outcome gate.Outcome `json:"outcome"`
			By      string       `json:"by"`
			Rule    string       `json:"rule,omitempty"`
			Reason  string       `json:"reason,omitempty"`
		}{"decision", r.Call.Name, d.Verdict.String(), d.Outcome, d.By, d.Rule, redact.Secrets(d.Reason)})
		return
	}
	rule := ""
	if d.Rule != "" {
		rule = " (" + d.Rule + ")"
	}
	fmt.Fprintf(p.out, "%s %s by %s%s: %s\n", p.style.verdict(d.Verdict.String()), redact.Visible(r.Call.Name), d.By, rule,
		redact.Visible(redact.Secrets(d.Reason)))
}
