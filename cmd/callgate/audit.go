package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"callgate/config"
	"callgate/gate"
	"callgate/gate/redact"
	"callgate/gate/store"

	"github.com/spf13/cobra"
)

// auditOptions are the flags that all audit commands share.
type auditOptions struct {
	state, config string
	json          bool
}

// newAuditCommand reads and verifies the audit log.
func newAuditCommand(e *env) *cobra.Command {
	o := &auditOptions{}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Read and verify the audit log",
		Long: `audit reads the log of decisions in a state directory, whether or not callgate
serve is running. It changes nothing and needs no right to write there.

Exit codes: 0 done; 1 failed, or the log is not whole (verify); 64 wrong usage;
78 wrong configuration.`,
		Example: `  callgate audit list --since 1h --verdict deny
  callgate audit show 42
  callgate audit verify`,
	}
	cmd.PersistentFlags().StringVar(&o.state, "state", "", "state `directory` of callgate serve (default: as the configuration says)")
	cmd.PersistentFlags().StringVar(&o.config, "config", "", "configuration `file` of callgate serve")
	cmd.PersistentFlags().BoolVar(&o.json, "json", false, "print JSON")
	return group(cmd,
		newAuditListCommand(e, o),
		newAuditShowCommand(e, o),
		newAuditVerifyCommand(e, o),
	)
}

// open opens the state directory for reading.
func (o *auditOptions) open(ctx context.Context, e *env) (*store.Store, error) {
	dir := o.state
	if dir == "" {
		cfg, _, err := config.Load(config.LoadOptions{Path: o.config, Environ: e.Environ, Secretless: true})
		if err != nil {
			return nil, failf(exitConfig, "%w", err)
		}
		dir = cfg.State
	}
	if dir == "" {
		return nil, failf(exitConfig, "no state directory is set; give it with --state")
	}
	return store.OpenReadOnly(ctx, dir)
}

// auditLimit is how many entries audit list shows when not told.
const auditLimit = 50

// auditFilter holds the flags of audit list as they were given.
type auditFilter struct {
	since, until string
	q            store.Query
}

func newAuditListCommand(e *env, o *auditOptions) *cobra.Command {
	var f auditFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List decisions, newest first",
		Long: `list prints the decisions that fit all filters, newest first. Times are RFC 3339,
a date, or how long ago: 30m, 12h, 7d. With --json each entry is a line of its
own and complete.`,
		Example: `  callgate audit list
  callgate audit list --since 7d --verdict deny --limit 0
  callgate audit list --since 2026-03-01T00:00:00Z --until 2026-03-02T00:00:00Z --json
  callgate audit list --tool bash --outcome timeout`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := f.query(time.Now())
			if err != nil {
				return err
			}
			s, err := o.open(cmd.Context(), e)
			if err != nil {
				return err
			}
			return errors.Join(listEntries(cmd.Context(), e, s, q, o.json), s.Close())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "from this `time` on")
	flags.StringVar(&f.until, "until", "", "before this `time`")
	flags.StringVar(&f.q.Session, "session", "", "`id` of the session, as the agent claims it")
	flags.StringVar(&f.q.Agent, "agent", "", "`name` of the agent")
	flags.StringVar(&f.q.Tool, "tool", "", "`name` of the tool")
	flags.StringVar(&f.q.Outcome, "outcome", "", "`word`: allowed, denied, timeout, hook_failed, hardline ...")
	flags.StringVar(&f.q.Verdict, "verdict", "", "`word`: allow or deny")
	flags.Int64Var(&f.q.After, "after", 0, "entries behind this `number`")
	flags.IntVar(&f.q.Limit, "limit", auditLimit, "`how many` at most, 0 for all")
	return cmd
}

// outcomes are the words that an entry can end with.
var outcomes = []gate.Outcome{
	gate.Allowed, gate.Denied, gate.Timeout, gate.Cancelled, gate.NotifyFailed, gate.HookFailed, gate.JudgeFailed,
	gate.HardlineHit, gate.RuleHit, gate.LimitHit, gate.BreakerHit, gate.Malformed, gate.Pending, gate.StoreFailed, gate.Unattended,
}

// query checks the flags: a filter that is misspelt would find nothing, and
// nothing found reads as nothing happened.
func (f *auditFilter) query(now time.Time) (store.Query, error) {
	q := f.q
	var err error
	if q.Since, err = parseWhen("--since", f.since, now); err != nil {
		return q, err
	}
	if q.Until, err = parseWhen("--until", f.until, now); err != nil {
		return q, err
	}
	switch {
	case q.Verdict != "" && q.Verdict != gate.Allow.String() && q.Verdict != gate.Deny.String():
		return q, usagef("--verdict %q: allow or deny is wanted", q.Verdict)
	case q.Outcome != "" && !slices.Contains(outcomes, gate.Outcome(q.Outcome)):
		return q, usagef("--outcome %q: one of these is wanted: %s", q.Outcome, joinWords(outcomes))
	case q.Limit < 0 || q.After < 0:
		return q, usagef("--limit and --after cannot be below 0")
	}
	return q, nil
}

func joinWords[T ~string](words []T) string {
	var list []string
	for _, w := range words {
		list = append(list, string(w))
	}
	return strings.Join(list, ", ")
}

// parseWhen reads a point in time: RFC 3339, a date in the local zone, or how
// long ago.
func parseWhen(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(n)), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, s, time.Local); err == nil {
		return t, nil
	}
	return time.Time{}, usagef("%s %q: a time such as 2026-03-01T12:00:00Z, a date, or how long ago (30m, 12h, 7d) is wanted", flag, s)
}

func listEntries(ctx context.Context, e *env, s *store.Store, q store.Query, asJSON bool) error {
	t := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(t, "ENTRY\tTIME\tVERDICT\tOUTCOME\tBY\tAGENT\tTOOL\tRULE\tCALL")
	}
	n := 0
	for entry, err := range s.Entries(ctx, q) {
		if err != nil {
			return err
		}
		n++
		if asJSON {
			if err := printJSONLine(e.Stdout, entry); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", entry.Seq, entry.Time.Local().Format("2006-01-02 15:04:05"),
			cell(entry.Verdict), cell(string(entry.Outcome)), cell(entry.By), cell(entry.Agent), cell(entry.Tool), cell(entry.Rule), cell(entry.Args))
	}
	switch {
	case asJSON:
		return nil
	case n == 0:
		note(e, "there are no such entries")
		return nil
	}
	return t.Flush()
}

func newAuditShowCommand(e *env, o *auditOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "show NUMBER",
		Short: "Show one entry whole",
		Example: `  callgate audit show 42
  callgate audit show 42 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || seq < 1 {
				return usagef("entry %q: the number of an entry is wanted, as audit list shows it", args[0])
			}
			s, err := o.open(cmd.Context(), e)
			if err != nil {
				return err
			}
			entry, err := s.Entry(cmd.Context(), seq)
			if err = errors.Join(err, s.Close()); err != nil {
				return err
			}
			if o.json {
				return printJSON(e.Stdout, entry)
			}
			return printEntry(e, entry)
		},
	}
}

func printEntry(e *env, entry gate.Entry) error {
	var b strings.Builder
	s := newStyle(e, e.StdoutTTY)
	f := fields{&b, s}
	fmt.Fprintf(&b, "entry %s  %s (%s)\n", s.bold(strconv.FormatInt(entry.Seq, 10)), s.verdict(redact.Visible(entry.Verdict)), redact.Visible(string(entry.Outcome)))
	f.print("time", fmt.Sprintf("%s, after %s", stamp(entry.Time), entry.Took.Round(time.Microsecond)))
	f.print("by", entry.By)
	f.print("rule", entry.Rule)
	f.print("reason", entry.Reason)
	f.print("detail", entry.Detail)
	f.print("approval", entry.Approval)
	f.print("agent", entry.Agent)
	f.print("principal", entry.Principal)
	f.claims(entry.Claimed)
	f.print("upstream", strings.Join(slices.DeleteFunc([]string{entry.Upstream, entry.Dialect, entry.Model}, func(s string) bool { return s == "" }), " "))
	f.print("turn", entry.Turn)
	f.print("trace", entry.Trace)
	f.print("call", entry.CallID)
	f.print("tool", entry.Tool+" ("+entry.Kind+")")
	f.print("arguments", entry.Args)
	f.print("digest", entry.Digest)
	f.findings(entry.Findings)
	f.print("writer", entry.Writer)
	f.print("hash", entry.Hash)
	f.print("follows", entry.Prev)
	_, err := io.WriteString(e.Stdout, b.String())
	return err
}

func newAuditVerifyCommand(e *env, o *auditOptions) *cobra.Command {
	var expect string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that no entry was changed, removed or put in",
		Long: `verify checks the hash chain of the whole log. It finds entries that were
changed, removed, put in or moved, also at the end.

It cannot see that the whole database was replaced by an earlier copy of
itself. To find that too, keep the head that it prints somewhere else and give
it with --expect later: a log that was only added to still holds that entry.`,
		Example: `  callgate audit verify
  callgate audit verify --expect 42:5d0f...
  callgate audit verify --json | jq -r .head`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var head store.Head
			if expect != "" {
				var err error
				if head, err = store.ParseHead(expect); err != nil {
					return usagef("--expect: %w", err)
				}
			}
			s, err := o.open(cmd.Context(), e)
			if err != nil {
				return err
			}
			v, err := s.Verify(cmd.Context(), head)
			if err = errors.Join(err, s.Close()); err != nil {
				return err
			}
			return printVerified(e, v, o.json)
		},
	}
	cmd.Flags().StringVar(&expect, "expect", "", "`head` that an earlier verify printed")
	return cmd
}

func printVerified(e *env, v store.VerifyResult, asJSON bool) error {
	var err error
	if asJSON {
		err = printJSON(e.Stdout, struct {
			Whole   bool   `json:"whole"`
			Entries int    `json:"entries"`
			Writers int    `json:"writers"`
			Head    string `json:"head"`
			Bad     int64  `json:"bad_entry,omitempty"`
			Problem string `json:"problem,omitempty"`
		}{v.Bad == 0, v.Entries, v.Writers, v.Head.String(), v.Bad, v.Problem})
	} else {
		word := "the audit log is whole"
		if v.Bad != 0 {
			word = "the audit log is not whole; good up to here:"
		}
		_, err = fmt.Fprintf(e.Stdout, "%s\n  entries %d\n  writers %d\n  head    %s\n", word, v.Entries, v.Writers, v.Head)
	}
	if err == nil && v.Bad != 0 {
		err = failf(exitFailed, "audit: entry %d: %s", v.Bad, v.Problem)
	}
	return err
}
