package main

import (
	"bytes"
	"context"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"callgate/proxy/providertest"
)

// screen is what a process has written to a terminal or a pipe.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// wait waits until the screen shows a text.
func (s *screen) wait(t *testing.T, want string) string {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got := s.String(); strings.Contains(got, want) {
			return got
		}
	}
	t.Fatalf("%q was not shown; on the screen is %q", want, s)
	return ""
}

// session is a callgate run in a session of its own.
type session struct {
	screen
	// pipes is the part of it that did not come by the terminal.
	pipes    screen
	cmd      *exec.Cmd
	terminal *os.File // the side of the person; nil without a terminal
	provider *httptest.Server
	home     string
}

// pty opens a pseudo-terminal: the person's side and the program's.
func pty(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	conn, err := person.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	cerr := conn.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if err == nil {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100})
		}
	})
	if cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return person, program
}

// startRun starts callgate run with a scripted provider, at a terminal or with
// pipes. piped takes standard output and error away from the terminal.
func startRun(t *testing.T, tty, piped bool, args ...string) *session {
	t.Helper()
	s := &session{home: t.TempDir()}
	s.provider = httptest.NewServer(providertest.New(agentScript()))
	t.Cleanup(s.provider.Close)
	s.cmd = exec.Command("callgate", append([]string{"run", "--upstream", "openai=" + s.provider.URL}, args...)...)
	s.cmd.Env = []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "USER=dev", "TERM=xterm", "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe := io.MultiWriter(&s.screen, &s.pipes)
	s.cmd.Stdout, s.cmd.Stderr = pipe, pipe
	if tty {
		person, program := pty(t)
		defer program.Close()
		s.terminal = person
		s.cmd.Stdin = program
		if !piped {
			s.cmd.Stdout, s.cmd.Stderr = program, program
		}
		s.cmd.SysProcAttr.Setctty = true
		go io.Copy(&s.screen, person) // ends with the last program on the terminal
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	return s
}

// word is what a yes to the last question must be.
func (s *session) word(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`type (\w+) to allow it once`).FindAllStringSubmatch(s.String(), -1)
	if m == nil {
		t.Fatalf("no word is asked for: %q", s.String())
	}
	return m[len(m)-1][1]
}

func (s *session) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := s.terminal.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// end waits for the end and checks the exit code.
func (s *session) end(t *testing.T, want int) string {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("it does not end; on the screen is %q", &s.screen)
	}
	if got := s.cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("exit code %d, want %d; on the screen is %q", got, want, &s.screen)
	}
	// What was written last may still be on its way from the terminal.
	time.Sleep(20 * time.Millisecond)
	if entries, err := os.ReadDir(filepath.Join(s.home, ".local", "state", "callgate-run")); err != nil || len(entries) > 0 {
		t.Errorf("the private directory is left: %v (%v)", entries, err)
	}
	return s.String()
}

// deletion is what the agent shows when the dangerous call reached it.
const deletion = `call: bash {"command":"rm -rf ~/projects"}`

func TestAQuestionTakesTheTerminalFromAnAgentThatWrites(t *testing.T) {
	for _, tc := range []struct {
		name, keys, says string
		runs             bool
	}{
		{"the word", "WORD\r", "allowed, once", true},
		{"the word after a mistake", "ns\x7f\x7fWORD\r", "allowed, once", true},
		{"the word after a yes, which is no answer", "y\rYES\rWORD\r", "allowed, once", true},
		{"another word", "WORDx\r", "denied", false},
		{"a yes and no word", "y\r\r", "denied", false},
		{"no", "n\r", "denied", false},
		{"Enter alone", "\r", "denied", false},
		{"neither", "sure\r", "denied", false},
		{"the end of the input", "WORD\x04", "denied", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := startRun(t, true, false, "--ask", "tty", "--", "fakeagent", "talk")
			s.wait(t, "to allow it once")
			_, frame, _ := strings.Cut(s.String(), "── callgate ")
			time.Sleep(200 * time.Millisecond)
			if _, later, _ := strings.Cut(s.String(), "── callgate "); strings.Contains(later, "tick") {
				t.Errorf("the agent goes on writing below the question: %q", later)
			}
			for _, want := range []string{"wants to use bash", "│ rm -rf ~/projects", "fs.recursive-delete"} {
				if !strings.Contains(frame, want) {
					t.Errorf("the question lacks %q: %q", want, frame)
				}
			}
			s.press(t, strings.ReplaceAll(tc.keys, "WORD", s.word(t)))
			got := s.end(t, 0)
			if strings.Contains(got, deletion) != tc.runs {
				t.Errorf("the call reached the agent: %v, want %v; on the screen is %q", !tc.runs, tc.runs, got)
			}
			_, behind, _ := strings.Cut(got, tc.says)
			if !strings.Contains(behind, "text:") {
				t.Errorf("the agent did not go on after %q: %q", tc.says, got)
			}
		})
	}
}

func TestWhatWasTypedBeforeAQuestionIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := startRun(t, true, false, "--ask", "tty", "--", "fakeagent", "chat")
	s.press(t, "y\ry\ry\r")
	s.wait(t, "to allow it once")
	time.Sleep(500 * time.Millisecond)
	s.press(t, "\r")
	if got := s.end(t, 0); strings.Contains(got, deletion) {
		t.Errorf("the call ran: %q", got)
	}
}

func TestCtrlCAtAQuestionDeniesAndInterruptsTheAgent(t *testing.T) {
	t.Parallel()
	s := startRun(t, true, false, "--ask", "tty", "--", "fakeagent", "talk")
	s.wait(t, "to allow it once")
	s.press(t, "\x03")
	got := s.end(t, 130)
	if !strings.Contains(got, "interrupted: denied") || strings.Contains(got, deletion) {
		t.Errorf("on the screen is %q", got)
	}
}

func TestAnEndingRunDoesNotWaitForItsQuestion(t *testing.T) {
	t.Parallel()
	s := startRun(t, true, false, "--ask", "tty", "--", "fakeagent", "talk")
	s.wait(t, "to allow it once")
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if got := s.end(t, 143); strings.Contains(got, deletion) {
		t.Errorf("the call ran: %q", got)
	}
}

// people answers from another terminal, with what the screen says.
func (s *session) people(t *testing.T, args ...string) string {
	t.Helper()
	token := regexp.MustCompile(`CALLGATE_CONTROL_TOKEN=(cg_\w+)`).FindStringSubmatch(s.String())
	at := regexp.MustCompile(`approvals list --control (\S+)`).FindStringSubmatch(s.String())
	if token == nil || at == nil {
		t.Fatalf("the screen does not say how questions are answered: %q", &s.screen)
	}
	e, stdout, stderr := testEnv("CALLGATE_CONTROL_TOKEN="+token[1], "CALLGATE_CONTROL="+at[1])
	if code := run(context.Background(), e, append([]string{"approvals"}, args...)); code != exitOK {
		t.Fatalf("%q gives %d: %s", args, code, stderr)
	}
	return stdout.String()
}

// open waits for a question and gives its id.
func (s *session) open(t *testing.T) string {
	t.Helper()
	s.wait(t, "approvals list --control")
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if m := regexp.MustCompile(`(?m)^(\S{8}) +pending`).FindStringSubmatch(s.people(t, "list")); m != nil {
			return m[1]
		}
	}
	t.Fatal("there is no question")
	return ""
}

func TestQuestionsAreAnsweredFromAnotherTerminalAndTheAgentsScreenStaysItsOwn(t *testing.T) {
	for _, tc := range []struct{ name, ask, agent string }{
		{"other", "other", "chat"},
		{"tty, but the agent has set the terminal up for itself", "tty", "raw"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := startRun(t, true, false, "--ask", tc.ask, "--", "fakeagent", tc.agent)
			id := s.open(t)
			s.people(t, "approve", id)
			got := s.end(t, 0)
			if !strings.Contains(got, deletion) || strings.Contains(got, "to allow it once") || strings.Contains(got, id) {
				t.Errorf("on the screen is %q", got)
			}
			if !strings.Contains(got, "\a") {
				t.Error("the bell did not ring")
			}
		})
	}
}

func TestTheTokenIsShownOnTheTerminalAloneAndKeptFromTheAgent(t *testing.T) {
	t.Parallel()
	s := startRun(t, true, true, "--", "fakeagent", "environ")
	got := s.end(t, 0)
	if n := strings.Count(got, "CALLGATE_CONTROL_TOKEN="); n != 1 || !strings.Contains(got, "OPENAI_BASE_URL=") {
		t.Errorf("the token is shown %d times: %q", n, got)
	}
	if piped := s.pipes.String(); strings.Contains(piped, "cg_") || !strings.Contains(piped, "approvals list --control") {
		t.Errorf("the token went where the agent may read it: %q", piped)
	}
	if strings.Contains(strings.Join(strings.Split(got, "CALLGATE_CONTROL_TOKEN=")[1:], ""), "CALLGATE_") {
		t.Errorf("the agent has variables of callgate: %q", got)
	}
}

func TestSignalsReachTheAgentOnce(t *testing.T) {
	for _, tc := range []struct {
		name       string
		tty, piped bool
		send       func(*session)
	}{
		{"sent to callgate without a terminal", false, false, func(s *session) { _ = s.cmd.Process.Signal(syscall.SIGINT) }},
		{"sent to callgate at a terminal", true, false, func(s *session) { _ = s.cmd.Process.Signal(syscall.SIGINT) }},
		{"typed", true, false, func(s *session) { _, _ = s.terminal.WriteString("\x03") }},
		{"typed, in a pipeline", true, true, func(s *session) { _, _ = s.terminal.WriteString("\x03") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := startRun(t, tc.tty, tc.piped, "--", "fakeagent", "signals", "terminated")
			s.wait(t, "ready")
			tc.send(s)
			s.wait(t, "got interrupt")
			time.Sleep(100 * time.Millisecond)
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			got := s.end(t, 7)
			if n := strings.Count(got, "got interrupt"); n != 1 {
				t.Errorf("the agent was interrupted %d times: %q", n, got)
			}
		})
	}
}

func TestEachSignalIsHandedOn(t *testing.T) {
	t.Parallel()
	s := startRun(t, false, false, "--", "fakeagent", "signals", "terminated")
	s.wait(t, "ready")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGINT, syscall.SIGTERM} {
		_ = s.cmd.Process.Signal(sig)
		s.wait(t, "got "+sig.String())
	}
	s.end(t, 7)
}

func TestANewSizeOfTheTerminalReachesTheAgent(t *testing.T) {
	t.Parallel()
	s := startRun(t, true, false, "--", "fakeagent", "signals", "interrupt")
	s.wait(t, "ready")
	conn, err := s.terminal.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 60})
	})
	if err != nil {
		t.Fatal(err)
	}
	s.wait(t, "got window changed")
	s.press(t, "\x03")
	s.end(t, 7)
}

// A run that no shell looks after cannot be continued by anybody: it goes on
// by itself.
func TestAStoppedAgentThatNobodyCouldContinueGoesOn(t *testing.T) {
	t.Parallel()
	s := startRun(t, true, false, "--", "fakeagent", "signals", "interrupt")
	s.wait(t, "ready")
	s.press(t, "\x1a")
	time.Sleep(300 * time.Millisecond)
	s.press(t, "\x03")
	s.wait(t, "got interrupt")
	s.end(t, 7)
}

// A shell with job control stops and continues callgate and the agent as one.
func TestAShellStopsAndContinuesTheRunAsOneJob(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	s := &session{home: t.TempDir()}
	person, program := pty(t)
	defer program.Close()
	s.terminal = person
	s.cmd = exec.Command("bash", "--norc", "--noprofile", "-i")
	s.cmd.Env = []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "TERM=dumb", "PS1=> ", "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = program, program, program
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	go io.Copy(&s.screen, person)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	s.wait(t, "> ")
	s.press(t, "callgate run -- fakeagent signals interrupt\r")
	s.wait(t, "ready")
	s.press(t, "\x1a")
	s.wait(t, "Stopped")
	s.press(t, "echo the shell is ba''ck\r")
	s.wait(t, "the shell is back")
	s.press(t, "fg\r")
	time.Sleep(300 * time.Millisecond)
	s.press(t, "\x03")
	s.wait(t, "got interrupt")
	s.press(t, "echo code $?\r")
	s.wait(t, "code 7")
	s.press(t, "exit\r")
	s.end(t, 0)
}

// What callgate holds is not for the agent to read, though both are of one user.
// Nothing is hidden from root, so that root's test runs as nobody.
func TestTheAgentCannotReadWhatCallgateWasStartedWith(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	provider := httptest.NewServer(providertest.New(agentScript()))
	defer provider.Close()
	program, err := exec.LookPath("callgate")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "run", "--ask", "none", "--upstream", "openai="+provider.URL, "--",
		"sh", "-c", `cat /proc/$PPID/environ; echo; cat /proc/self/environ >/dev/null && echo own is there`)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "CALLGATE_CONTROL_TOKEN=cg_0123456789abcdef0123456789", "GOCOVERDIR=" + os.Getenv("GOCOVERDIR")}
	if os.Getuid() == 0 {
		const nobody = 65534
		for dir := home; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(home, nobody, nobody); err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(program) // where nobody may not go
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path = filepath.Join(home, "callgate")
		if err := os.WriteFile(cmd.Path, body, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "cg_0123") || !strings.Contains(string(out), "own is there") {
		t.Errorf("%v: %s", err, out)
	}
}
