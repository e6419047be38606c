// Command callgate stands between an AI agent and its model provider and asks
// before dangerous tool calls run. This package holds the command line alone:
// it reads the settings, builds the parts and joins them; nobody else does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"callgate/config"
)

// The exit codes of every command. Those from 64 on are the ones of BSD's
// sysexits.h, so that a supervisor can tell a bad configuration from a crash.
const (
	exitOK          = 0
	exitFailed      = 1  // it was tried and did not work
	exitAsk         = 2  // check: somebody would be asked
	exitDeny        = 3  // check: the call would be denied
	exitUsage       = 64 // the command line makes no sense
	exitUnavailable = 69 // something that must be running is not reachable
	exitPermission  = 77 // a token or a right is missing or wrong
	exitConfig      = 78 // the configuration is wrong
	exitInterrupted = 130
)

// env is the world of one run of the command: what main takes from the process
// and tests hand in.
type env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Environ is the environment as KEY=VALUE, and Getenv looks one up in it.
	Environ []string
	Getenv  func(string) string
	// These say that the stream is a terminal.
	StdinTTY, StdoutTTY, StderrTTY bool
}

// exitError ends the command with a code of its own.
type exitError struct {
	code int
	// err is printed; nil when the command has said all there is to say.
	err error
	// hints are printed below the error, one a line: what can be done.
	hints []string
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() {
	hide()
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	// The first signal asks the command to end; a second one ends it.
	context.AfterFunc(ctx, stop)
	code := run(ctx, processEnv(), os.Args[1:])
	stop()
	os.Exit(code)
}

// endSignals are those that ask the command to end. A closed terminal does too,
// unless the command was started so that it outlives one (nohup).
func endSignals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// processEnv is the env of this process.
func processEnv() *env {
	isTTY := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	return &env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Environ: os.Environ(), Getenv: os.Getenv,
		StdinTTY: isTTY(os.Stdin), StdoutTTY: isTTY(os.Stdout), StderrTTY: isTTY(os.Stderr),
	}
}

// run carries out one command line and returns its exit code.
func run(ctx context.Context, e *env, args []string) int {
	e, written := e.watched()
	root := newRootCommand(e)
	root.SetArgs(args)
	err := prepareCompletion(root, args)
	if err == nil {
		var cmd *cobra.Command
		cmd, err = root.ExecuteContextC(ctx)
		err = written.outcome(cmd, err)
	}
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		printError(e, errors.New("interrupted"))
		return exitInterrupted
	}
	code := exitFailed
	var hints []string
	if ee, ok := errors.AsType[*exitError](err); ok {
		if ee.err == nil {
			return ee.code
		}
		code, hints = ee.code, ee.hints
	} else if strings.HasPrefix(err.Error(), "unknown command ") {
		// cobra reports an unknown first word before any code of ours runs.
		code, err, hints = exitUsage, unknownCommand(root, args), suggest(root, args)
	}
	printError(e, err, hints...)
	return code
}

const rootLong = `callgate stands between an AI agent and its model provider. It reads the tool
calls in the provider's answers, asks about the dangerous ones, and withholds
what is denied. An agent uses it by its base URL alone.

Exit codes: 0 done; 1 failed; 2 somebody would be asked, 3 denied (check);
64 wrong usage; 69 not reachable; 77 token or right missing; 78 wrong
configuration; 130 interrupted.`

const rootExample = `  callgate demo
  callgate serve
  callgate check 'rm -rf ~/projects'
  callgate approvals list`

// newRootCommand is the table of commands.
func newRootCommand(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "callgate",
		Short:         "Ask before an AI agent's dangerous tool calls run",
		Long:          rootLong,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		// There is one of our own, which refuses shells it does not know.
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetIn(e.Stdin)
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hints := flagHints(cmd, err)
		if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			err = badValue(bad)
		}
		return &exitError{code: exitUsage, err: err, hints: hints}
	})
	root.AddCommand(
		newServeCommand(e),
		newRunCommand(e),
		newDemoCommand(e),
		newCheckCommand(e),
		newApprovalsCommand(e),
		newAgentsCommand(e),
		newAuditCommand(e),
		newCACommand(e),
		newConfigCommand(e),
		newDoctorCommand(e),
		newCompletionCommand(e),
		newVersionCommand(e),
	)
	strictHelp(root)
	usageArgs(root)
	return root
}

// noArgs refuses words behind a command that takes none. A command with
// commands below it was meant to get one of these.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasAvailableSubCommands() {
		return cobra.NoArgs(cmd, args)
	}
	return fmt.Errorf("%s takes flags alone, and %q is none", cmd.CommandPath(), args[0])
}

// badValue says of a flag's value what is wanted, where the package that reads
// numbers only names itself.
func badValue(e *pflag.InvalidValueError) error {
	num, ok := errors.AsType[*strconv.NumError](e)
	if !ok {
		return e
	}
	wanted := "a whole number"
	if num.Func == "ParseBool" {
		wanted = "true or false"
	}
	if errors.Is(num, strconv.ErrRange) {
		wanted = "a smaller number"
	}
	return fmt.Errorf("--%s %q: %s is wanted", e.GetFlag().Name, e.GetValue(), wanted)
}

// strictHelp makes help for what is no command wrong usage; cobra prints its
// general help for that and is content.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.Example, help.Args = "  callgate help check", cobra.ArbitraryArgs
		help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return &exitError{code: exitUsage, err: unknownCommand(cmd, rest), hints: suggest(cmd, rest)}
			}
			return cmd.Help()
		}
	}
}

// group makes a command that only holds others: alone it is wrong usage, as is
// a word that is none of its commands.
func group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(children...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return &exitError{code: exitUsage, err: unknownCommand(cmd, args), hints: suggest(cmd, args)}
		}
		hints := make([]string, len(children))
		for i, c := range children {
			hints[i] = fmt.Sprintf("%-28s %s", c.CommandPath(), c.Short)
		}
		return &exitError{
			code: exitUsage, err: fmt.Errorf("%q does nothing alone; name one of its commands", cmd.CommandPath()),
			hints: append(hints, helpHint(cmd)),
		}
	}
	return cmd
}

// refuseEmpty makes it wrong usage to give a flag an empty text, as an unset
// variable of a shell does: the default would not be what was meant.
func refuseEmpty(cmd *cobra.Command) error {
	var empty []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			empty = append(empty, "--"+f.Name)
		}
	})
	if len(empty) == 0 {
		return nil
	}
	return &exitError{
		code: exitUsage, err: fmt.Errorf("%s: is empty; give it a value or leave it out", strings.Join(empty, ", ")),
		hints: []string{helpHint(cmd)},
	}
}

// usageArgs gives a wrong number of arguments the exit code of wrong usage, in
// every command below cmd.
func usageArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err == nil {
				return nil
			}
			return &exitError{code: exitUsage, err: err, hints: []string{helpHint(cmd)}}
		}
	}
	for _, c := range cmd.Commands() {
		usageArgs(c)
	}
}

// unknownCommand names the first word of args that is no command of cmd.
func unknownCommand(cmd *cobra.Command, args []string) error {
	word := firstWord(args)
	return fmt.Errorf("unknown command %q for %q", word, cmd.CommandPath())
}

func firstWord(args []string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}

func suggest(cmd *cobra.Command, args []string) []string {
	cmd.SuggestionsMinimumDistance = 2
	var hints []string
	for _, s := range cmd.SuggestionsFor(firstWord(args)) {
		hints = append(hints, fmt.Sprintf("did you mean %q?", cmd.CommandPath()+" "+s))
	}
	return append(hints, helpHint(cmd))
}

func helpHint(cmd *cobra.Command) string {
	return fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
}

// flagHints suggests the flag that an unknown one was meant to be.
func flagHints(cmd *cobra.Command, err error) []string {
	var hints []string
	if name, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		best, dist := "", 3
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if d := config.EditDistance(strings.ToLower(name), f.Name); d < dist {
				best, dist = f.Name, d
			}
		})
		if best != "" {
			hints = append(hints, fmt.Sprintf("did you mean --%s?", best))
		}
	}
	return append(hints, helpHint(cmd))
}
