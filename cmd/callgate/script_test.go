package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
)

// TestMain lets the test binary be the command, for scripts.
func TestMain(m *testing.M) {
	// Under nohup every program that is started would leave the end of a terminal
	// unheard, as callgate does then. A signal that is caught here is not ignored
	// there.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	testscript.Main(m, map[string]func(){
		"callgate":  main,
		"fakeagent": fakeAgent,
	})
}

// TestScripts runs the command as a user does: testdata/script holds one
// script for each subject.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("USER", "dev")
			return os.MkdirAll(home, 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":      code,
			"control":   scriptControl,
			"decisions": scriptDecisions,
			"provider":  scriptProvider,
		},
	})
}

// code runs a command and checks its exit code: code 3 callgate check ...
// Output is left to stdout and stderr as with exec.
func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code NUMBER COMMAND [ARGUMENT]...")
	}
	// A shell's $? would hide what testscript prints; the exit status stands
	// in the error's text.
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("%s ended with %s, want exit code %s", strings.Join(args[1:], " "), got, args[0])
	}
}

// testEnv is an env whose output can be read.
func testEnv(environ ...string) (e *env, stdout, stderr *strings.Builder) {
	stdout, stderr = &strings.Builder{}, &strings.Builder{}
	return &env{
		Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr, Environ: environ,
		Getenv: func(name string) string {
			for _, kv := range environ {
				if v, ok := strings.CutPrefix(kv, name+"="); ok {
					return v
				}
			}
			return ""
		},
	}, stdout, stderr
}

func TestEveryCommandHasAnExampleAndAHelp(t *testing.T) {
	e, _, _ := testEnv("HOME=/home/dev")
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s lacks an example or a short help", cmd.CommandPath())
		}
		if strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short help ends with a full stop", cmd.CommandPath())
		}
		if !cmd.HasSubCommands() && cmd.Args == nil {
			t.Errorf("%s takes any arguments", cmd.CommandPath())
		}
		for _, line := range strings.Split(cmd.Long, "\n") {
			if len(line) > 100 {
				t.Errorf("%s: a line of the help is longer than 100: %s", cmd.CommandPath(), line)
			}
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRootCommand(e))
}

func TestColourOnlyOnATerminal(t *testing.T) {
	for _, tc := range []struct {
		name    string
		tty     bool
		environ []string
		want    bool
	}{
		{"a terminal", true, nil, true},
		{"a pipe", false, nil, false},
		{"a terminal with NO_COLOR", true, []string{"NO_COLOR=1"}, false},
		{"a dumb terminal", true, []string{"TERM=dumb"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, stdout, stderr := testEnv(append(tc.environ, "HOME=/home/dev")...)
			e.StdoutTTY, e.StderrTTY = tc.tty, tc.tty
			if got := run(context.Background(), e, []string{"check", "ls"}); got != exitOK {
				t.Fatalf("exit code %d: %s", got, stderr)
			}
			if got := strings.Contains(stdout.String(), "\x1b["); got != tc.want {
				t.Errorf("colour is %v: %q", got, stdout)
			}
			run(context.Background(), e, []string{"nonsense"})
			if got := strings.Contains(stderr.String(), "\x1b["); got != tc.want {
				t.Errorf("colour of errors is %v: %q", got, stderr)
			}
		})
	}
}

func TestAnInterruptedCheckEnds(t *testing.T) {
	for _, args := range [][]string{{"check", "--jsonl"}, {"check", "-"}} {
		e, stdout, stderr := testEnv("HOME=/home/dev")
		in, out := io.Pipe() // nobody ever writes
		e.Stdin = in
		ctx, cancel := context.WithCancel(context.Background())
		code := make(chan int)
		go func() { code <- run(ctx, e, args) }()
		cancel()
		if got := <-code; got != exitInterrupted || stdout.Len() > 0 || stderr.String() != "callgate: interrupted\n" {
			t.Errorf("%q: exit code %d, output %q, error %q", args, got, stdout, stderr)
		}
		out.Close()
	}
}

func TestEachLineIsAnsweredBeforeTheNextIsWritten(t *testing.T) {
	e, _, _ := testEnv("HOME=/home/dev")
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	e.Stdin, e.Stdout = in, out
	code := make(chan int)
	go func() { code <- run(context.Background(), e, []string{"check", "--jsonl"}) }()
	answers := bufio.NewScanner(fromOut)
	for i := range 3 {
		fmt.Fprintf(toIn, "{\"id\":%d,\"tool\":\"bash\",\"input\":{\"command\":\"ls\"}}\n", i)
		if !answers.Scan() || !strings.HasPrefix(answers.Text(), fmt.Sprintf(`{"id":%d,"verdict":"allow"`, i)) {
			t.Fatalf("answer %d is %q", i, answers.Text())
		}
	}
	toIn.Close()
	if got := <-code; got != exitOK {
		t.Errorf("exit code %d", got)
	}
}

func TestALineThatIsTooLongIsDeniedAndTheNextIsRead(t *testing.T) {
	e, stdout, _ := testEnv("HOME=/home/dev")
	e.Stdin = strings.NewReader(strings.Repeat("x", maxCheckLine+10) + "\n" + `{"id":2,"tool":"bash","input":{"command":"ls"}}`)
	if got := run(context.Background(), e, []string{"check", "--jsonl"}); got != exitFailed {
		t.Errorf("exit code %d", got)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"verdict":"deny"`) || !strings.HasPrefix(lines[1], `{"id":2,"verdict":"allow"`) {
		t.Errorf("output is %q", lines)
	}
}
