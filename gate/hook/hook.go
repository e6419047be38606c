// Package hook is the reviewer that asks a command of the operator's. It holds
// the contract with that command: one JSON object on its standard input, one
// on its standard output, and what each exit code means. It decides nothing:
// whatever is not exactly an answer of the contract is a denial that says how
// the hook failed.
//
// The contract: the command gets a JSON object that describes the call, raw and
// whole (see Event), and ends with exit code 0 after it printed
//
//	{"decision": "approve" | "deny" | "escalate", "reason": "optional text"}
//
// and nothing else. approve lets the call through, escalate puts it to a
// person, deny refuses it. Exit code 2 refuses it whatever was printed; the
// reason is then that of the JSON object or else what stands on standard
// error. Everything else is a failure: another exit code, a signal, no answer
// within the time, output that is missing, too long, not JSON, more than one
// document or one with other keys. The model is told in a few fixed words how a
// hook failed; what it wrote to standard error then is the Detail of the
// opinion, for operators alone.
package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/shell"

	"callgate/gate"
)

// DefaultTimeout is how long a hook may take where Config says nothing.
const DefaultTimeout = 30 * time.Second

// Config holds what a Hook is built from.
type Config struct {
	// Command is the program and its arguments, split into words as a shell
	// does it: quotes, backslashes, ~ and $NAME count. No shell runs it, so
	// pipes, redirections and substitutions are errors.
	Command string
	// Timeout bounds one run, from start to the end of its output; 0 means
	// DefaultTimeout.
	Timeout time.Duration
	// Context is the operator's text about this installation. The hook gets
	// it as it is.
	Context string
	// Dir is the directory the hook runs in, "" for callgate's own.
	Dir string
	// Env adds to the few variables a hook gets (PATH, HOME, LANG, LC_ALL,
	// TMPDIR, USER): NAME=VALUE, or NAME to pass on callgate's own value.
	// Names that begin with CALLGATE_ are refused: they hold credentials.
	Env []string
}

// Hook asks a command. It is safe for concurrent use.
type Hook struct {
	argv    []string
	script  string // the file an interpreter is given, "" when there is none
	dir     string
	env     []string
	timeout time.Duration
	context string
	running chan struct{} // a place for each hook that runs
}

var _ gate.Reviewer = (*Hook)(nil)

// maxRunning bounds how many hooks run at once. Others wait, within their time.
const maxRunning = 64

// New builds a Hook. An error says why the command could not run and what to
// do about it.
func New(c Config) (*Hook, error) {
	if c.Timeout < 0 {
		return nil, errors.New("hook: the timeout is below zero; use 0 for the default of 30s")
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	env, err := environment(c.Env)
	if err != nil {
		return nil, err
	}
	argv, err := split(c.Command, env)
	if err != nil {
		return nil, err
	}
	h := &Hook{argv: argv, dir: c.Dir, env: env, timeout: c.Timeout, context: c.Context,
		running: make(chan struct{}, maxRunning)}
	if h.dir != "" {
		if info, err := os.Stat(h.dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("hook: the directory %s does not exist; create it or name another", h.dir)
		}
	}
	if argv[0], err = program(argv[0], h.dir, lookup(env, "PATH")); err != nil {
		return nil, err
	}
	h.script = script(argv, h.dir)
	if err := h.ready(); err != nil {
		return nil, err
	}
	return h, nil
}

// split reads the command line.
func split(command string, env []string) ([]string, error) {
	argv, err := shell.Fields(command, func(name string) string { return lookup(env, name) })
	if err != nil {
		return nil, fmt.Errorf("hook: the command %q cannot be split into words: %w; write a program and its arguments, no shell syntax, or put it into a script", command, err)
	}
	if len(argv) == 0 || argv[0] == "" {
		return nil, errors.New("hook: there is no command; name the program that decides")
	}
	return argv, nil
}

// program finds the executable file.
func program(name, dir, path string) (string, error) {
	if !strings.Contains(name, "/") {
		for _, d := range filepath.SplitList(path) {
			if full := filepath.Join(d, name); filepath.IsAbs(full) && executable(full) == nil {
				return full, nil
			}
		}
		return "", fmt.Errorf("hook: the command %q is not in PATH (%s); install it or write its whole path", name, path)
	}
	full := name
	if !filepath.IsAbs(full) {
		full = filepath.Join(dir, full)
	}
	full, err := filepath.Abs(full)
	if err != nil {
		return "", fmt.Errorf("hook: the command %s: %w", name, err)
	}
	return full, executable(full)
}

func executable(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("hook: the command %s does not exist; create it or correct the path", path)
	case err != nil:
		return fmt.Errorf("hook: the command %s cannot be used: %w", path, err)
	case info.IsDir():
		return fmt.Errorf("hook: the command %s is a directory; name a program", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("hook: the command %s is not executable; run chmod +x on it", path)
	}
	return nil
}

// interpreters are programs whose first argument is a script. Some of them end
// with exit code 2, the code that refuses a call, when the script is missing.
var interpreters = []string{"python", "node", "bash", "sh", "zsh", "dash", "ksh", "ruby", "perl", "php", "bun"}

// script is the file that an interpreter runs, "" when the command is not one.
func script(argv []string, dir string) string {
	if len(argv) < 2 || strings.HasPrefix(argv[1], "-") || !slices.Contains(interpreters, baseName(argv[0])) {
		return ""
	}
	if filepath.IsAbs(argv[1]) {
		return argv[1]
	}
	return filepath.Join(dir, argv[1])
}

// baseName is the name of a program without its place and version.
func baseName(program string) string {
	return strings.TrimRight(filepath.Base(program), "0123456789.")
}

// ready tells whether the files of the command are still in place.
func (h *Hook) ready() error {
	if err := executable(h.argv[0]); err != nil {
		return err
	}
	// A program that nobody may read, but run, is taken as it is.
	if first, err := firstLine(h.argv[0]); err == nil {
		if err := interpreted(h.argv[0], first); err != nil {
			return err
		}
	}
	if h.script == "" {
		return nil
	}
	first, err := firstLine(h.script)
	if err != nil {
		return fmt.Errorf("hook: the script cannot be read: %w; create it or correct the path", err)
	}
	if strings.HasSuffix(baseName(h.argv[0]), "sh") && strings.HasSuffix(first, "\r") {
		return windowsLines(h.script)
	}
	return nil
}

// maxFirstLine is how much of a file's first line is read, in bytes; Linux
// reads no more of it either.
const maxFirstLine = 256

// firstLine is the first line of a file, without the line break.
func firstLine(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFirstLine))
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line, nil
}

// interpreted tells whether the interpreter that a program's first line names
// is there. Where it is not, the system says no more than that there is no such
// file, and everybody looks for the program.
func interpreted(path, first string) error {
	line, ok := strings.CutPrefix(first, "#!")
	if !ok {
		return nil
	}
	if strings.HasSuffix(line, "\r") {
		return windowsLines(path)
	}
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 0 || !filepath.IsAbs(words[0]) {
		return nil
	}
	if _, err := os.Stat(words[0]); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("hook: the first line of %s names the interpreter %s, which does not exist; install it or correct the line", path, words[0])
	}
	return nil
}

func windowsLines(path string) error {
	return fmt.Errorf("hook: the first line of %s ends in a carriage return, as Windows writes it, and no interpreter takes that; run sed -i 's/\\r$//' on it", path)
}

// passed are the variables of callgate's own environment that every hook gets.
var passed = []string{"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER"}

// environment builds the hook's environment.
func environment(configured []string) ([]string, error) {
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"}
	pass := func(name string) {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	for _, name := range passed {
		pass(name)
	}
	for _, e := range configured {
		name, value, set := strings.Cut(e, "=")
		switch {
		case name == "" || strings.ContainsRune(e, 0):
			return nil, fmt.Errorf("hook: the variable %q has no usable name; write NAME=VALUE or NAME", e)
		case strings.HasPrefix(strings.ToUpper(name), "CALLGATE_"):
			return nil, fmt.Errorf("hook: the variable %s would give the hook callgate's own settings; use another name", name)
		case set:
			env[name] = value
		default:
			pass(name)
		}
	}
	out := make([]string, 0, len(env))
	for name, value := range env {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out, nil
}

// lookup finds a variable's value.
func lookup(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// Review asks the hook. An end of ctx ends the hook too.
func (h *Hook) Review(ctx context.Context, r *gate.Request) gate.Opinion {
	start := time.Now()
	op := h.review(ctx, r)
	op.By = "hook"
	note := string(op.Outcome)
	if note == "" {
		note = op.Verdict.String()
	}
	op.Steps = []gate.Step{{Name: "hook", Start: start, End: time.Now(), Note: note}}
	return op
}

func (h *Hook) review(ctx context.Context, r *gate.Request) gate.Opinion {
	in, err := h.event(r)
	if errors.Is(err, errNotText) {
		return failed(err.Error(), "")
	}
	if err != nil {
		return failed("the call could not be given to the hook", err.Error())
	}
	run, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	select {
	case h.running <- struct{}{}:
		defer func() { <-h.running }()
	case <-run.Done():
		return h.ended(ctx, "too many hooks run at once")
	}
	if err := h.ready(); err != nil {
		return failed(cannotStart, err.Error())
	}
	res := h.run(run, in)
	if ctx.Err() != nil {
		return h.ended(ctx, "")
	}
	return res.opinion(h.timeout)
}

// ended is the opinion when ctx, or the hook's time, ended before an answer.
func (h *Hook) ended(ctx context.Context, why string) gate.Opinion {
	if err := context.Cause(ctx); err != nil {
		return gate.Opinion{Outcome: gate.Cancelled, Reason: "the hook was stopped before it answered", Detail: err.Error()}
	}
	return failed("the hook could not be started in time", why)
}

// cannotStart is how a hook failed that never ran.
const cannotStart = "the hook could not be started"

// failed is the opinion of a hook that failed. The model reads how, a few
// fixed words; detail, which may hold anything, is for operators.
func failed(how, detail string) gate.Opinion {
	return gate.Opinion{Outcome: gate.HookFailed, Reason: how, Detail: detail}
}

// command prepares one run; the process is the leader of a group of its own.
func (h *Hook) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, h.argv[0], h.argv[1:]...)
	cmd.Dir, cmd.Env = h.dir, h.env
	return cmd
}
