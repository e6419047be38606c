package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"callgate/gate"
	"callgate/gate/redact"
)

// people is how serve tells those at its terminal, or whoever reads its
// standard output, of questions and decisions.
type people struct {
	out   *printer
	style style
	wide  int // columns of the terminal
	json  bool
	// command gives the command line that shows or answers a question: what
	// is show, approve or deny.
	command func(what, id string) string
}

// ask prints a question and the commands that answer it.
func (p *people) ask(ctx context.Context, a gate.Approval) error {
	if p.json {
		return p.out.tell(ctx, jsonLine(struct {
			Event    string        `json:"event"`
			Approval gate.Approval `json:"approval"`
			Approve  string        `json:"approve"`
			Deny     string        `json:"deny"`
		}{"question", a, p.command("approve", a.ID), p.command("deny", a.ID)}))
	}
	return p.out.tell(ctx, []byte(p.question(a)))
}

// question is what a person reads of a question. Whoever says yes must have
// seen all of the call, so a call that is too long for it comes without the
// command for a yes.
func (p *people) question(a gate.Approval) string {
	var b strings.Builder
	line := func(name, text string) {
		fmt.Fprintf(&b, "  %s %s\n", p.style.dim(fmt.Sprintf("%-6s", name)), text)
	}
	fmt.Fprintf(&b, "\n%s %s: agent %s wants to use %s\n", p.style.yellow("question"), p.style.bold(a.ID), redact.Visible(a.Agent), redact.Visible(a.Tool))
	call, more := framed(callText(a), p.wide, questionLines)
	for _, l := range call {
		b.WriteString(l + "\n")
	}
	for _, f := range a.Findings {
		line("why", hanging(fmt.Sprintf("%s (%s)", f.Reason, f.Rule), p.wide))
	}
	if a.Why != "" {
		line("asks", hanging(a.Why, p.wide))
	}
	if more > 0 {
		line("more", fmt.Sprintf("%d lines are not shown; read all of it before a yes:", more))
		line("", p.command("show", a.ID))
	} else {
		line("yes", p.command("approve", a.ID))
	}
	line("no", p.command("deny", a.ID))
	line("until", fmt.Sprintf("%s, in %s; no answer is a no", a.Expires.Local().Format(time.TimeOnly), span(time.Until(a.Expires))))
	return b.String()
}

// decided prints a line on a decision. It never waits: the decision is in the
// audit log whether anybody reads this or not.
func (p *people) decided(r *gate.Request, d gate.Decision) {
	if p.json {
		p.out.put(printed{text: jsonLine(struct {
			Event    string       `json:"event"`
			Tool     string       `json:"tool"`
			Verdict  string       `json:"verdict"`
			Outcome  gate.Outcome `json:"outcome"`
			By       string       `json:"by"`
			Rule     string       `json:"rule,omitempty"`
			Approval string       `json:"approval,omitempty"`
			Reason   string       `json:"reason,omitempty"`
			Detail   string       `json:"detail,omitempty"`
		}{"decision", r.Call.Name, d.Verdict.String(), d.Outcome, d.By, d.Rule, d.Approval, redact.Secrets(d.Reason), redact.Secrets(d.Detail)})})
		return
	}
	about := ""
	switch {
	case d.Approval != "":
		about = ", question " + d.Approval
	case d.Rule != "":
		about = ", " + d.Rule
	}
	text := fmt.Sprintf("%s %s by %s (%s)%s: %s", d.Verdict, r.Call.Name, d.By, d.Outcome, about, redact.Secrets(d.Reason))
	if d.Detail != "" {
		text += "; " + redact.Secrets(d.Detail)
	}
	text = strings.TrimPrefix(hanging(text, p.wide), d.Verdict.String())
	p.out.put(printed{text: []byte(p.style.verdict(d.Verdict.String()) + text + "\n")})
}

// jsonLine is v as a line of JSON.
func jsonLine(v any) []byte {
	var b bytes.Buffer
	if err := printJSONLine(&b, v); err != nil {
		// Only a type that JSON cannot hold fails; these hold texts.
		b.Reset()
		msg, _ := json.Marshal(err.Error())
		fmt.Fprintf(&b, "{\"event\":\"error\",\"reason\":%s}\n", msg)
	}
	return b.Bytes()
}
