package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"callgate/gate/redact"
)

// event is one step of the demo, as --json prints it.
type event struct {
	Scene int `json:"scene,omitempty"`
	// Who is scene, user, model, callgate or agent.
	Who  string `json:"who"`
	Text string `json:"text,omitempty"`
	// Tool and Args are of a call that the model makes or the agent sees.
	Tool string `json:"tool,omitempty"`
	Args string `json:"args,omitempty"`
	// Result is what the model reads in the place of its call's result.
	Result string `json:"result,omitempty"`
	// Verdict and what follows are callgate's.
	Verdict  string `json:"verdict,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
	By       string `json:"by,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Approval string `json:"approval,omitempty"`
}

// say shows one step.
func (d *demo) say(ev event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ev.Scene = d.scene
	if d.json {
		_ = printJSONLine(d.e.Stdout, ev) // run reports at the end what could not be written
		return
	}
	if ev.Who == "scene" {
		fmt.Fprintf(d.e.Stdout, "\n%s\n", d.style.bold(fmt.Sprintf("%d. %s", ev.Scene, ev.Text)))
		return
	}
	for i, line := range strings.Split(d.line(ev), "\n") {
		who := ev.Who
		if i > 0 {
			who = ""
		}
		fmt.Fprintf(d.e.Stdout, "  %s  %s\n", d.who(who), line)
	}
}

// who pads a name to its column.
func (d *demo) who(name string) string { return d.style.dim(fmt.Sprintf("%-8s", name)) }

// line is a step in words.
func (d *demo) line(ev event) string {
	switch {
	case ev.Who == "callgate":
		return d.ruling(ev)
	case ev.Result != "":
		return "reads as the result of its call:\n" + d.quote(ev.Result)
	case ev.Tool != "" && ev.Who == "agent":
		return "gets the call and would run " + d.style.bold(redact.Visible(commandOf(ev.Args)))
	case ev.Tool != "":
		return "calls " + ev.Tool + " with " + d.style.bold(redact.Visible(commandOf(ev.Args)))
	case ev.Who == "agent" && !strings.Contains(ev.Text, "[callgate]"):
		return "gets the text as it came"
	case ev.Who == "agent":
		return "gets the text:\n" + d.quote(ev.Text)
	}
	return "says: " + redact.Visible(ev.Text)
}

// ruling is a step of callgate's in words.
func (d *demo) ruling(ev event) string {
	text := ev.Verdict
	if ev.Verdict != "ask" {
		text += ", by " + ev.By
	}
	switch {
	case ev.Text != "":
		text += ": " + redact.Visible(ev.Text)
	case ev.Verdict == "allow":
		text += ": nothing dangerous was found"
	}
	if ev.Rule != "" {
		text += " (" + ev.Rule + ")"
	}
	text = strings.Join(wrap(text, textWidth), "\n")
	return d.style.verdict(ev.Verdict) + strings.TrimPrefix(text, ev.Verdict)
}

// approvalID finds the id in the line for machines.
var approvalID = regexp.MustCompile(`\b(approval=)[0-9A-Za-z]+`)

// quote shows what the agent got, line by line. An approval's id is another one
// in each run, so that a word stands for it: --json has it.
func (d *demo) quote(text string) string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		line = approvalID.ReplaceAllString(line, "${1}ID")
		for _, part := range wrap(redact.Visible(line), textWidth) {
			out = append(out, d.style.dim("| ")+part)
		}
	}
	return strings.Join(out, "\n")
}

// textWidth is how wide text may be behind its indentation, in bytes, so that
// it fits a terminal of 80 columns.
const textWidth = 64

// wrap breaks a line between words; a word that is too long stays whole.
func wrap(line string, width int) []string {
	var out []string
	for len(line) > width {
		at := strings.LastIndexByte(line[:width+1], ' ')
		if at <= 0 {
			at = strings.IndexByte(line, ' ')
		}
		if at <= 0 {
			break
		}
		out = append(out, line[:at])
		line = line[at+1:]
	}
	return append(out, line)
}

// commandOf is the command in a call's arguments, or all of them.
func commandOf(args string) string {
	var a struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal([]byte(args), &a); err != nil || a.Command == "" {
		return args
	}
	return a.Command
}

func (d *demo) opening() {
	if d.json {
		return
	}
	fmt.Fprintf(d.e.Stdout, "%s\n", d.style.bold("callgate demo"))
	fmt.Fprintln(d.e.Stdout, "An agent speaks to a scripted model, and callgate stands between them.")
	fmt.Fprintln(d.e.Stdout, "Nothing is run and nothing leaves this machine.")
}

func (d *demo) closing() {
	if d.json {
		return
	}
	fmt.Fprintf(d.e.Stdout, "\nNo denied call reached the agent, the model learned why, and each task came to its end.\n")
	fmt.Fprintf(d.e.Stdout, "To put callgate in front of your own agent: %s\n", d.style.bold("callgate serve"))
}
