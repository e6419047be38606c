package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"callgate/config"
	"callgate/gate"
	"callgate/gate/redact"
	"callgate/inspect/catalog"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// checkOptions are the flags of check.
type checkOptions struct {
	config                     string
	home, cwd, workspace, user string
	tool, args                 string
	decide, jsonl, json        bool
}

func newCheckCommand(e *env) *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use:   "check [COMMAND | -]",
		Short: "Say what the gate would do with one call",
		Long: `Say what the gate would do with one call: allow it, ask about it, or deny it,
with the rule, the words and the reason. Nothing is run and nobody is asked;
with --decide the hook of the configuration is, and what it escalates is an ask.

COMMAND is a shell command; - reads it from standard input. With --tool and
--args it is the call of any tool. With --jsonl calls are read from standard
input, one JSON object a line: {"id", "tool", "input": {...}}; for each one a
line {"id", "verdict", "rule", "reason"} is printed, in order. A line that
cannot be read is denied, and the exit code is then 1.

Exit codes: 0 allow, 2 ask, 3 deny; with --jsonl 0, or 1 as said; 1 also when
the answer cannot be written; 64 wrong usage, such as nothing to check; 78 wrong
configuration.`,
		Example: `  callgate check 'rm -rf ~/projects'
  callgate check --workspace ~/app --cwd ~/app 'rm -rf build'
  callgate check --tool write_file --args '{"path":"/etc/passwd","content":""}'
  callgate check --decide --config callgate.yaml 'git push --force'
  callgate check --jsonl < calls.jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmpty(cmd); err != nil {
				return err
			}
			return check(cmd.Context(), e, &o, args, cmd.Flags().Changed)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "configuration `file`")
	f.StringVar(&o.home, "home", "", "home `directory` of the agent")
	f.StringVar(&o.cwd, "cwd", "", "`directory` the command starts in")
	f.StringVar(&o.workspace, "workspace", "", "`directory` the agent may change freely")
	f.StringVar(&o.user, "user", "", "`name` of the user the agent runs as")
	f.StringVar(&o.tool, "tool", "", "`name` of the tool that is called")
	f.StringVar(&o.args, "args", "", "its arguments, as `JSON`")
	f.BoolVar(&o.decide, "decide", false, "ask the hook of the configuration, too")
	f.BoolVar(&o.jsonl, "jsonl", false, "read calls from standard input, one a line")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

// check carries out the command.
func check(ctx context.Context, e *env, o *checkOptions, args []string, set func(string) bool) error {
	switch {
	case o.jsonl && (len(args) > 0 || set("tool") || set("args")):
		return usagef("--jsonl reads calls from standard input; leave out the command, --tool and --args")
	case (set("tool") || set("args")) && len(args) > 0:
		return usagef("name a command or a tool with --tool and --args, not both")
	case set("args") && !set("tool"):
		return usagef("--args needs --tool, the tool that is called with them")
	case !o.jsonl && !set("tool") && len(args) == 0:
		return nothingToCheck()
	}
	c, err := newChecker(e, o, set)
	if err != nil {
		return err
	}
	defer c.gate.Close()
	in := interruptible{ctx, e.Stdin}
	if o.jsonl {
		return c.lines(ctx, in, e.Stdout)
	}
	call, err := o.call(in, args)
	if err != nil {
		return err
	}
	d, actions := c.decide(ctx, call)
	if o.json {
		err = printJSON(e.Stdout, checkResult(call, actions, d))
	} else {
		err = printCheck(e, d)
	}
	if err != nil {
		return err
	}
	switch d.Verdict {
	case gate.Allow:
		return nil
	case gate.Ask:
		return &exitError{code: exitAsk}
	}
	return &exitError{code: exitDeny}
}

// nothingToCheck is the error where no command was given, or an empty one.
func nothingToCheck() error {
	return &exitError{
		code: exitUsage, err: errors.New("nothing to check; give a command, --tool and --args, or --jsonl"),
		hints: []string{"callgate check 'rm -rf ~/projects'"},
	}
}

// call is the call that the command line describes.
func (o *checkOptions) call(stdin io.Reader, args []string) (toolcall.Call, error) {
	if o.tool != "" {
		raw := o.args
		if raw == "" {
			raw = "{}"
		}
		return newCall(o.tool, []byte(raw)), nil
	}
	command := args[0]
	if command == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, maxCheckLine+1))
		if err != nil {
			return toolcall.Call{}, fmt.Errorf("standard input: %w", err)
		}
		if len(text) > maxCheckLine {
			return toolcall.Call{}, fmt.Errorf("standard input: longer than %d bytes", maxCheckLine)
		}
		command = string(text)
	}
	if strings.TrimSpace(command) == "" {
		return toolcall.Call{}, nothingToCheck()
	}
	raw, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		return toolcall.Call{}, err
	}
	return newCall("bash", raw), nil
}

// newCall makes a call as a dialect would give it.
func newCall(tool string, args []byte) toolcall.Call {
	call := toolcall.Call{ID: "check", Type: "function", Name: tool, Args: args}
	if err := strictjson.Validate(args, strictjson.Options{}); err != nil {
		call.Fault, call.Detail = toolcall.FaultArguments, err.Error()
	}
	return call
}

// checker judges calls by the settings in force.
type checker struct {
	gate   *gate.Gate
	tools  *catalog.Catalog
	decide func(context.Context, toolcall.Call) (gate.Decision, []toolcall.Action)
}

func newChecker(e *env, o *checkOptions, set func(string) bool) (*checker, error) {
	var flags []config.Flag
	for _, f := range []struct{ name, value string }{
		{"home", o.home}, {"cwd", o.cwd}, {"workspace", o.workspace}, {"user", o.user},
	} {
		if set(f.name) {
			flags = append(flags, config.Flag{Name: "--" + f.name, Key: "world." + f.name, Value: f.value})
		}
	}
	var needs func(*config.Config) config.Faults
	if o.decide {
		needs = hookRuns
	}
	cfg, src, err := loadChecked(e, o.config, needs, flags...)
	if err != nil {
		return nil, err
	}
	if !o.decide && cfg.Approvals.Mode == config.ModeCustom {
		cfg.Approvals.Mode = config.ModeManual // without the hook somebody would be asked
	}
	c := &checker{}
	if c.tools, err = catalog.New(); err != nil {
		return nil, err
	}
	// Nobody is asked here and nothing recorded: these two only say that there
	// would be somebody and something.
	person := gate.ReviewerFunc(func(context.Context, *gate.Request) gate.Opinion { return gate.Opinion{} })
	if c.gate, err = buildGate(cfg, surroundings{configFile: src.File}, person, noAudit{}); err != nil {
		return nil, &exitError{code: exitConfig, err: err}
	}
	c.decide = func(ctx context.Context, call toolcall.Call) (gate.Decision, []toolcall.Action) {
		r := &gate.Request{Call: call, Actions: c.tools.Actions(call, nil), Agent: "default"}
		if o.decide {
			return c.gate.Preview(ctx, r), r.Actions
		}
		return c.gate.Classify(r), r.Actions
	}
	return c, nil
}

// noAudit keeps nothing: previews are not recorded.
type noAudit struct{}

func (noAudit) Record(context.Context, gate.Entry, bool) error { return nil }

// printCheck prints a decision for people.
func printCheck(e *env, d gate.Decision) error {
	s := newStyle(e, e.StdoutTTY)
	var b strings.Builder
	b.WriteString(s.bold(s.verdict(d.Verdict.String())))
	if d.Rule != "" {
		b.WriteString("  " + d.Rule)
	}
	b.WriteByte('\n')
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %s %s\n", s.dim(fmt.Sprintf("%-8s", name)), redact.Visible(text))
		}
	}
	row("by", d.By)
	row("why", d.Reason)
	row("detail", d.Detail)
	for _, f := range d.Findings {
		switch {
		case f.Rule == d.Rule && f.Reason == d.Reason:
			row("words", f.Words)
		case f.Rule == d.Rule:
			row("found", joined(f.Reason, f.Words))
		default:
			row("also", joined(f.Rule, f.Reason, f.Words))
		}
	}
	row("instead", d.Instead)
	_, err := io.WriteString(e.Stdout, b.String())
	return err
}

// joined puts a colon between those of the parts that say something.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}

// checkedCall is a decision as --json prints it.
type checkedCall struct {
	Verdict  string              `json:"verdict"`
	Outcome  gate.Outcome        `json:"outcome,omitempty"`
	By       string              `json:"by"`
	Rule     string              `json:"rule,omitempty"`
	Reason   string              `json:"reason,omitempty"`
	Detail   string              `json:"detail,omitempty"`
	Instead  string              `json:"instead,omitempty"`
	Tool     string              `json:"tool"`
	Actions  []checkedAction     `json:"actions"`
	Findings []gate.FindingBrief `json:"findings"`
}

type checkedAction struct {
	Kind     string `json:"kind"`
	Tool     string `json:"tool"`
	Known    bool   `json:"known"`
	Command  string `json:"command,omitempty"`
	Language string `json:"language,omitempty"`
	Dir      string `json:"dir,omitempty"`
	Op       string `json:"op,omitempty"`
	Path     string `json:"path,omitempty"`
}

func checkResult(call toolcall.Call, actions []toolcall.Action, d gate.Decision) checkedCall {
	c := checkedCall{
		Verdict: d.Verdict.String(), Outcome: d.Outcome, By: d.By, Rule: d.Rule, Reason: d.Reason, Detail: d.Detail, Instead: d.Instead,
		Tool: call.Name, Actions: []checkedAction{}, Findings: gate.Briefs(d.Findings, redact.Secrets),
	}
	if c.Findings == nil {
		c.Findings = []gate.FindingBrief{}
	}
	for _, a := range actions {
		ca := checkedAction{
			Kind: a.Kind.String(), Tool: a.Tool, Known: a.Known, Command: a.Command, Language: a.Language, Dir: a.Dir, Path: a.Path,
		}
		if a.Kind == toolcall.KindFile {
			ca.Op = a.Op.String()
		}
		c.Actions = append(c.Actions, ca)
	}
	return c
}

// maxCheckLine bounds one line of --jsonl, and a command on standard input.
const maxCheckLine = 8 << 20

// checkedLine is one line of the answer to --jsonl.
type checkedLine struct {
	ID      json.RawMessage `json:"id"`
	Verdict string          `json:"verdict"`
	Rule    string          `json:"rule"`
	Reason  string          `json:"reason"`
}

// lines answers each line of standard input with one line.
func (c *checker) lines(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReaderSize(stdin, 64<<10)
	out := bufio.NewWriter(stdout)
	bad := 0
	for number := 1; ; number++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, tooLong, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("standard input: line %d: %w", number, err)
		}
		if len(bytes.TrimSpace(line)) > 0 || tooLong {
			answer, ok := c.line(ctx, line, tooLong, number)
			if !ok {
				bad++
			}
			if werr := printJSONLine(out, answer); werr != nil {
				return werr
			}
		}
		// Whoever writes a line and waits for its answer gets it.
		if in.Buffered() == 0 || err != nil {
			if ferr := out.Flush(); ferr != nil {
				return ferr
			}
		}
		if err != nil {
			break
		}
	}
	if bad > 0 {
		return failf(exitFailed, "lines that could not be read and were denied: %d", bad)
	}
	return nil
}

// interruptible is a reader that ends with its context, as a terminal or a
// pipe nobody writes to does not. Its last Read may stay behind until the
// process ends, so it reads into bytes of its own.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i interruptible) Read(p []byte) (int, error) {
	type result struct {
		b   []byte
		err error
	}
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	done := make(chan result, 1)
	go func() {
		b := make([]byte, len(p))
		n, err := i.r.Read(b)
		done <- result{b[:n], err}
	}()
	select {
	case r := <-done:
		return copy(p, r.b), r.err
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	}
}

// readLine reads up to the next newline; of a line beyond the bound the rest
// is skipped.
func readLine(in *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if !tooLong {
			line = append(line, part...)
		}
		if len(line) > maxCheckLine {
			line, tooLong = nil, true
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

// line judges one line; ok is false when it could not be read.
func (c *checker) line(ctx context.Context, line []byte, tooLong bool, number int) (_ checkedLine, ok bool) {
	denied := func(id json.RawMessage, format string, args ...any) checkedLine {
		return checkedLine{ID: id, Verdict: gate.Deny.String(), Reason: fmt.Sprintf("line %d: ", number) + fmt.Sprintf(format, args...)}
	}
	null := json.RawMessage("null")
	if tooLong {
		return denied(null, "longer than %d bytes", maxCheckLine), false
	}
	if err := strictjson.Validate(line, strictjson.Options{}); err != nil {
		return denied(null, "%v", err), false
	}
	top := gjson.ParseBytes(line)
	if !top.IsObject() {
		return denied(null, "not a JSON object"), false
	}
	id := null
	if v := top.Get("id"); v.Exists() {
		id = json.RawMessage(v.Raw)
	}
	tool, input := top.Get("tool"), top.Get("input")
	switch {
	case tool.Type != gjson.String || tool.String() == "":
		return denied(id, `no "tool" with the tool's name`), false
	case !input.IsObject():
		return denied(id, `no "input" with the tool's arguments`), false
	}
	d, _ := c.decide(ctx, newCall(tool.String(), []byte(input.Raw)))
	return checkedLine{ID: id, Verdict: d.Verdict.String(), Rule: d.Rule, Reason: d.Reason}, true
}
