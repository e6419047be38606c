package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"callgate/gate"
	"callgate/gate/console"
	"callgate/gate/redact"

	"github.com/spf13/cobra"
)

// defaultControl is where callgate serve has its control listener.
const defaultControl = "127.0.0.1:4142"

// listMost is how many approvals one list shows: as many as the API gives.
const listMost = 1000

// minPrefix is how much of an id must be given at least: less would soon mean
// another question than the one that was read.
const minPrefix = 4

// approvalsOptions are the flags that all approvals commands share.
type approvalsOptions struct {
	control, tokenFile string
	json               bool
}

// newApprovalsCommand lists and answers the questions of a running callgate.
func newApprovalsCommand(e *env) *cobra.Command {
	o := &approvalsOptions{}
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List and answer the questions of a running callgate",
		Long: `approvals talks to the control listener of a running callgate serve: it lists
the calls that wait for a person and answers them. The first answer wins. Ids
are taken in upper case too.

A yes allows one call. Where the call no longer waits, the agent can come back
for it with exactly the same call: until the question's own time is over, and
for 10 minutes after the answer at least.

The control token is read from CALLGATE_CONTROL_TOKEN or from --token-file; as
a flag it would stand in the list of processes.

Exit codes: 0 done; 1 failed (no such approval, or somebody was first);
64 wrong usage; 69 control listener not reachable; 77 token missing or wrong.`,
		Example: `  callgate approvals list
  callgate approvals show 7k3m
  callgate approvals approve 7k3m
  callgate approvals deny 7k3m --reason 'not that folder'`,
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.control, "control", "", "control `address` of callgate serve: HOST:PORT or URL (default $CALLGATE_CONTROL, else "+defaultControl+")")
	flags.StringVar(&o.tokenFile, "token-file", "", "`file` that holds the control token (default: $CALLGATE_CONTROL_TOKEN)")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	return group(cmd,
		newApprovalsListCommand(e, o),
		newApprovalsShowCommand(e, o),
		newAnswerCommand(e, o, true),
		newAnswerCommand(e, o, false),
	)
}

func newApprovalsListCommand(e *env, o *approvalsOptions) *cobra.Command {
	var everything bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the open questions, newest first",
		Example: `  callgate approvals list
  callgate approvals list --all
  callgate approvals list --json | jq -r .command`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.client(e)
			if err != nil {
				return err
			}
			state := gate.StatePending
			if everything {
				state = ""
			}
			list, err := c.List(cmd.Context(), state, listMost)
			if err != nil {
				return controlError(err)
			}
			if o.json {
				return printEach(e.Stdout, list)
			}
			if len(list) == 0 {
				note(e, "there are no questions")
				return nil
			}
			return printApprovals(e.Stdout, list, time.Now())
		},
	}
	cmd.Flags().BoolVar(&everything, "all", false, "answered, expired and withdrawn ones too")
	return cmd
}

func newApprovalsShowCommand(e *env, o *approvalsOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show one approval with the whole call",
		Long:  "show prints one approval with the whole call. A unique beginning of the id will do.",
		Example: `  callgate approvals show 7k3mq2wd
  callgate approvals show 7k3m --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client(e)
			if err != nil {
				return err
			}
			a, err := findApproval(cmd.Context(), c, args[0], "")
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(e.Stdout, a)
			}
			return printApproval(e, a, time.Now())
		},
	}
}

// newAnswerCommand is approve or deny.
func newAnswerCommand(e *env, o *approvalsOptions, approve bool) *cobra.Command {
	word, done, what := "deny", "denied", "Refuse a call: the agent's model is told so, with the reason"
	if approve {
		word, done, what = "approve", "approved", "Let a call run, once"
	}
	var reason string
	cmd := &cobra.Command{
		Use:   word + " ID",
		Short: what,
		Long:  what + ". A unique beginning of an open\nquestion's id will do. What was answered is printed.",
		Example: fmt.Sprintf(`  callgate approvals %s 7k3mq2wd
  callgate approvals %s 7k3m --reason 'as discussed'`, word, word),
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.client(e)
			if err != nil {
				return err
			}
			open, err := findApproval(cmd.Context(), c, args[0], gate.StatePending)
			if err != nil {
				return err
			}
			answer := c.Deny
			if approve {
				answer = c.Approve
			}
			a, err := answer(cmd.Context(), open.ID, reason, redact.Visible(e.Getenv("USER")))
			if err != nil {
				return fmt.Errorf("approval %s: %w", open.ID, controlError(err))
			}
			if o.json {
				return printJSON(e.Stdout, a)
			}
			return printAnswered(e, done, a)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for the log and the agent's model")
	return cmd
}

// client builds the client that the flags and the environment describe.
func (o *approvalsOptions) client(e *env) (*console.Client, error) {
	base, err := controlBase(firstOf(o.control, e.Getenv("CALLGATE_CONTROL"), defaultControl))
	if err != nil {
		return nil, err
	}
	token := e.Getenv("CALLGATE_CONTROL_TOKEN")
	if o.tokenFile != "" {
		if token, err = readToken(o.tokenFile); err != nil {
			return nil, err
		}
	}
	return &console.Client{Base: base, Token: token}, nil
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// controlBase makes a base URL of what names the control listener.
func controlBase(s string) (string, error) {
	if !strings.Contains(s, "://") {
		host, port, err := net.SplitHostPort(s)
		if err != nil || port == "" {
			return "", usagef("--control %q: HOST:PORT or a URL is wanted, such as %s", s, defaultControl)
		}
		if host == "" {
			host = "127.0.0.1"
		}
		s = "http://" + net.JoinHostPort(host, port)
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usagef("--control %q: HOST:PORT or an http or https URL is wanted, such as %s", s, defaultControl)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", usagef("--control: the URL must have no user, query or fragment")
	}
	return strings.TrimSuffix(u.String(), "/"), nil
}

// maxToken bounds what is read of a token file.
const maxToken = 4096

func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", failf(exitPermission, "the control token: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", failf(exitPermission, "the control token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || len(b) > maxToken || strings.ContainsAny(token, "\r\n") {
		return "", failf(exitPermission, "the control token: %s: one line that holds the token is wanted", path)
	}
	return token, nil
}

// controlError gives an error of the client its exit code.
func controlError(err error) error {
	switch {
	case errors.Is(err, console.ErrUnreachable):
		return failf(exitUnavailable, "%w", err)
	case errors.Is(err, console.ErrToken):
		return failf(exitPermission, "%w", err)
	}
	return err
}

// findApproval gives the approval with that id, or the only one in that state
// ("" for any) whose id begins so. An id that is complete finds it in any state.
func findApproval(ctx context.Context, c *console.Client, id string, state gate.ApprovalState) (gate.Approval, error) {
	a, err := c.Get(ctx, id)
	if err == nil {
		return a, nil
	}
	if !errors.Is(err, gate.ErrNotFound) {
		return a, controlError(err)
	}
	if len(id) < minPrefix {
		return a, usagef("approval %q: give the id, or its first %d characters or more", id, minPrefix)
	}
	list, err := c.List(ctx, state, listMost)
	if err != nil {
		return a, controlError(err)
	}
	var found []gate.Approval
	var ids []string
	for _, a := range list {
		if len(a.ID) >= len(id) && strings.EqualFold(a.ID[:len(id)], id) {
			found, ids = append(found, a), append(ids, a.ID)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return a, usagef("approval %q: several begin so (%s); give more of the id", id, strings.Join(ids, ", "))
	case state == gate.StatePending:
		return a, fmt.Errorf("approval %q: there is no open question with that id; callgate approvals list shows them", id)
	}
	return a, fmt.Errorf("approval %q: there is none with that id; callgate approvals list --all shows them", id)
}

// printEach prints values as JSON lines.
func printEach[T any](w io.Writer, list []T) error {
	for _, v := range list {
		if err := printJSONLine(w, v); err != nil {
			return err
		}
	}
	return nil
}

// cellMost is how much of a call a table shows, in characters.
const cellMost = 60

// cell is a text as it stands in a table: one line, cut to length.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	r := []rune(redact.Visible(s))
	if len(r) > cellMost {
		r = append(r[:cellMost-1], '…')
	}
	return string(r)
}

func printApprovals(w io.Writer, list []gate.Approval, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATE\tASKED\tLEFT\tAGENT\tTOOL\tRULE\tCALL")
	for _, a := range list {
		left := "-"
		if a.State == gate.StatePending {
			left = span(a.Expires.Sub(now))
		}
		fmt.Fprintf(t, "%s\t%s\t%s ago\t%s\t%s\t%s\t%s\t%s\n", cell(a.ID), a.State, span(now.Sub(a.Created)), left,
			cell(a.Agent), cell(a.Tool), cell(rulesOf(a.Findings)), cell(callText(a)))
	}
	return t.Flush()
}

// rulesOf names the rules of findings.
func rulesOf(list []gate.FindingBrief) string {
	var rules []string
	for _, f := range list {
		rules = append(rules, f.Rule)
	}
	return strings.Join(rules, ",")
}

// span is a duration as people say it.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// fields prints names and values below each other. A value of several lines
// keeps them; all else that is invisible is escaped.
type fields struct {
	w io.Writer
	s style
}

func (f fields) print(name, value string) {
	if value == "" {
		return
	}
	label := name
	for line := range strings.SplitSeq(value, "\n") {
		fmt.Fprintf(f.w, "  %s %s\n", f.s.dim(fmt.Sprintf("%-10s", label)), redact.Visible(line))
		label = ""
	}
}

func (f fields) findings(list []gate.FindingBrief) {
	for _, b := range list {
		text := b.Rule + " (" + b.Severity + "): " + b.Reason
		if b.Words != "" {
			text += "\nin: " + b.Words
		}
		if b.Instead != "" {
			text += "\ninstead: " + b.Instead
		}
		f.print("finding", text)
	}
}

// claims prints what the agent says of itself, and that nothing proves it.
func (f fields) claims(c gate.Claims) {
	var list []string
	for _, part := range []struct{ name, value string }{{"session", c.Session}, {"user", c.User}, {"platform", c.Platform}} {
		if part.value != "" {
			list = append(list, part.name+" "+part.value)
		}
	}
	f.print("claims", strings.Join(list, "\n"))
}

func printApproval(e *env, a gate.Approval, now time.Time) error {
	var b strings.Builder
	s := newStyle(e, e.StdoutTTY)
	f := fields{&b, s}
	fmt.Fprintf(&b, "approval %s  %s\n", s.bold(redact.Visible(a.ID)), a.State)
	f.print("agent", a.Agent)
	f.claims(a.Claimed)
	f.print("upstream", strings.TrimSpace(a.Upstream+" "+a.Model))
	f.print("tool", a.Tool)
	f.print("kind", a.Kind)
	f.print("command", a.Command)
	f.print("path", a.Path)
	f.print("arguments", a.Args)
	f.print("digest", a.Digest)
	f.findings(a.Findings)
	f.print("why", a.Why)
	f.print("trace", a.Trace)
	f.print("asked", fmt.Sprintf("%s (%s ago)", stamp(a.Created), span(now.Sub(a.Created))))
	until := stamp(a.Expires)
	if a.State == gate.StatePending {
		until += " (in " + span(a.Expires.Sub(now)) + ")"
	}
	f.print("until", until)
	if a.State == gate.StateApproved {
		f.print("good", "for one call until "+stamp(a.UsableUntil()))
	}
	if !a.Answered.IsZero() {
		f.print("answered", stamp(a.Answered)+" by "+a.By)
		f.print("reason", a.Reason)
	}
	_, err := io.WriteString(e.Stdout, b.String())
	return err
}

// stamp is a time as people read it, in their own zone.
func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// printAnswered says what was answered, so that a mistake is seen at once.
func printAnswered(e *env, done string, a gate.Approval) error {
	var b strings.Builder
	s := newStyle(e, e.StdoutTTY)
	word := s.red(done)
	if a.State != gate.StateDenied {
		word = s.green(done)
	}
	fmt.Fprintf(&b, "%s %s\n", word, s.bold(redact.Visible(a.ID)))
	f := fields{&b, s}
	f.print("tool", a.Tool)
	f.print("call", callText(a))
	f.print("rule", rulesOf(a.Findings))
	f.print("reason", a.Reason)
	_, err := io.WriteString(e.Stdout, b.String())
	return err
}
