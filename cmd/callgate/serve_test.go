package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"callgate/proxy/providertest"
)

// patience is how long a test waits for a process before it gives up.
const patience = 60 * time.Second

// served is a callgate serve that runs as a process of its own.
type served struct {
	t       *testing.T
	cmd     *exec.Cmd
	base    string
	control string
	token   string
	lines   chan string // standard output, a line each
	stderr  *bytes.Buffer
	ended   chan error
	unread  func() // closes the reading end of standard output
}

// startServe starts serve with a state directory and an upstream called mock,
// and waits until it serves.
func startServe(t *testing.T, state, upstream string, more ...string) *served {
	t.Helper()
	s := launchServe(t, state, upstream, more...)
	for line := range s.lines {
		if at, ok := strings.CutPrefix(line, "callgate serves agents at "); ok {
			s.base = at
		}
		if _, token, ok := strings.Cut(line, "export CALLGATE_CONTROL_TOKEN="); ok {
			s.token = token
		}
		if _, at, ok := strings.Cut(line, "approvals list --control "); ok {
			s.control = at
			return s
		}
	}
	t.Fatalf("serve ended before it served: %v\n%s", <-s.ended, s.stderr)
	return nil
}

func launchServe(t *testing.T, state, upstream string, more ...string) *served {
	t.Helper()
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--state", state, "--upstream", "mock=" + upstream}, more...)
	s := newServed(t)
	s.launch(args)
	return s
}

func newServed(t *testing.T) *served {
	return &served{t: t, lines: make(chan string, 1000), stderr: &bytes.Buffer{}, ended: make(chan error, 1)}
}

// launch starts the process.
func (s *served) launch(args []string, environ ...string) {
	s.t.Helper()
	s.cmd = exec.Command("callgate", args...)
	s.cmd.Env = append(append(os.Environ(), "HOME=/home/dev", "CALLGATE_CONTROL_TOKEN=", "CALLGATE_CONFIG=", "XDG_CONFIG_HOME=", "XDG_STATE_HOME="), environ...)
	s.cmd.Stderr = s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.unread = func() { _ = out.Close() } // the reader below ends with it
	go func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			s.lines <- sc.Text()
		}
		close(s.lines)
		s.ended <- s.cmd.Wait()
	}()
	s.t.Cleanup(func() { s.kill() })
}

// kill ends the process as a power cut would.
func (s *served) kill() {
	if s.ended != nil {
		_ = s.cmd.Process.Kill() // it may have ended by itself
		<-s.ended
		s.ended = nil
	}
}

// stop ends it as an operator would and fails the test if that is not clean.
func (s *served) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	err := <-s.ended
	s.ended = nil
	if err != nil {
		s.t.Fatalf("serve ended with %v\n%s", err, s.stderr)
	}
}

// line waits for the next line of standard output.
func (s *served) line() string {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		if !ok {
			s.t.Fatalf("serve ended\n%s", s.stderr)
		}
		return line
	case <-time.After(patience):
		s.t.Fatal("nothing was printed")
	}
	return ""
}

var questionLine = regexp.MustCompile(`^question (\S+): `)

// question waits for the next question and gives its id.
func (s *served) question() string {
	s.t.Helper()
	for {
		if m := questionLine.FindStringSubmatch(s.line()); m != nil {
			return m[1]
		}
	}
}

// people runs an approvals command against the process.
func (s *served) people(args ...string) (string, int) {
	e, stdout, stderr := testEnv("HOME=/nonexistent", "CALLGATE_CONTROL_TOKEN="+s.token, "CALLGATE_CONTROL="+s.control)
	code := run(context.Background(), e, append([]string{"approvals"}, args...))
	return stdout.String() + stderr.String(), code
}

// chat asks the gate for an answer as an agent would.
func (s *served) chat(ctx context.Context, history string) (*http.Response, error) {
	body := `{"model":"m","messages":[` + history + `],"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}]}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/mock/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer agent")
	return http.DefaultClient.Do(req)
}

const clean = `{"role":"user","content":"Clean up."}`

// dangerous is a provider whose model always wants the same dangerous call.
func dangerous(t *testing.T) *httptest.Server {
	t.Helper()
	turn := providertest.Turn{Say: []providertest.Item{
		providertest.Call{ID: "call_1", Name: "bash", Args: `{"command":"rm -rf ~/photos"}`},
	}}
	ts := httptest.NewServer(providertest.NewSequential(providertest.Script{turn, turn, turn, turn}))
	t.Cleanup(ts.Close)
	return ts
}

// answered waits for an answer in the background.
func (s *served) answered(ctx context.Context) <-chan string {
	ch := make(chan string, 1)
	go func() {
		resp, err := s.chat(ctx, clean)
		if err != nil {
			ch <- "error: " + err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			ch <- "error: " + err.Error()
			return
		}
		ch <- string(body)
	}()
	return ch
}

func TestAHeldCallRunsOnlyOnceAPersonSaysYes(t *testing.T) {
	t.Parallel()
	addr := filepath.Join(t.TempDir(), "addr")
	state := t.TempDir()
	s := startServe(t, state, dangerous(t).URL, "--addr-file", addr)
	if got, err := os.ReadFile(addr); err != nil || string(got) != s.base+"\n" {
		t.Errorf("the address file holds %q (%v), want %s", got, err, s.base)
	}

	first := s.answered(t.Context())
	id := s.question()
	select {
	case got := <-first:
		t.Fatalf("an answer came before the decision: %s", got)
	default:
	}
	if out, code := s.people("list"); code != exitOK || !strings.Contains(out, id) || !strings.Contains(out, "rm -rf ~/photos") {
		t.Errorf("approvals list: exit code %d\n%s", code, out)
	}
	if out, code := s.people("approve", id); code != exitOK {
		t.Fatalf("approve: exit code %d\n%s", code, out)
	}
	if got := <-first; !strings.Contains(got, `"call_1"`) || strings.Contains(got, "callgate") {
		t.Errorf("the approved call did not reach the agent whole: %s", got)
	}
	if out, code := s.people("deny", id); code != exitFailed || !strings.Contains(out, "already approved") {
		t.Errorf("a late answer: exit code %d\n%s", code, out)
	}

	second := s.answered(t.Context())
	id = s.question()
	if out, code := s.people("deny", id, "--reason", "ask me about each folder"); code != exitOK {
		t.Fatalf("deny: exit code %d\n%s", code, out)
	}
	got := <-second
	if strings.Contains(got, "tool_calls\":[") || !strings.Contains(got, "callgate") || !strings.Contains(got, "ask me about each folder") {
		t.Errorf("the denied call is not a refusal: %s", got)
	}

	s.stop()
	if _, err := os.Stat(addr); err == nil {
		t.Error("the address file is still there after the end")
	}
	e, stdout, stderr := testEnv("HOME=/nonexistent")
	if code := run(context.Background(), e, []string{"audit", "list", "--state", state, "--json"}); code != exitOK {
		t.Fatalf("audit list: exit code %d: %s", code, stderr)
	}
	var outcomes []string
	for dec := json.NewDecoder(strings.NewReader(stdout.String())); dec.More(); {
		var entry struct{ Outcome, Tool, Approval string }
		if err := dec.Decode(&entry); err != nil {
			t.Fatal(err)
		}
		if entry.Tool != "bash" || entry.Approval == "" {
			t.Errorf("an entry lacks tool or approval: %+v", entry)
		}
		outcomes = append(outcomes, entry.Outcome)
	}
	// The model makes the denied call once more when it reads the refusal.
	if slices.Sort(outcomes); !slices.Equal(outcomes, []string{"allowed", "denied", "denied"}) {
		t.Errorf("the audit log holds %v, want one allowed and one denied, and the denied one made again", outcomes)
	}
	if code := run(context.Background(), e, []string{"audit", "verify", "--state", state}); code != exitOK {
		t.Errorf("audit verify: exit code %d: %s", code, stderr)
	}
}

func TestAQuestionOutlivesAKilledProcess(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	provider := dangerous(t)
	s := startServe(t, state, provider.URL)
	first := s.answered(t.Context())
	id := s.question()
	s.kill()
	if got := <-first; strings.Contains(got, "call_1") {
		t.Fatalf("something of the call came out when the process was killed: %s", got)
	}

	s = startServe(t, state, provider.URL)
	if out, code := s.people("approve", id); code != exitOK {
		t.Fatalf("approve after the restart: exit code %d\n%s", code, out)
	}
	s.kill() // an approval that was answered is on disk
	s = startServe(t, state, provider.URL)
	if got := <-s.answered(t.Context()); !strings.Contains(got, `"call_1"`) {
		t.Errorf("the retried request does not get the approved call: %s", got)
	}
	again := s.answered(t.Context())
	if second := s.question(); second == id {
		t.Error("the same question is open twice")
	}
	s.kill()
	<-again
	e, _, stderr := testEnv("HOME=/nonexistent")
	if code := run(context.Background(), e, []string{"audit", "verify", "--state", state}); code != exitOK {
		t.Errorf("audit verify after two kills: exit code %d: %s", code, stderr)
	}
}

func TestAnAgentThatHangsUpAndAsksAgainMeetsItsQuestion(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), dangerous(t).URL)
	ctx, hangUp := context.WithCancel(t.Context())
	first := s.answered(ctx)
	id := s.question()
	hangUp()
	<-first
	second := s.answered(t.Context())
	// The answer meets whoever waits: the retried request has joined the
	// question, or it finds the yes when it comes.
	if out, code := s.people("approve", id); code != exitOK {
		t.Fatalf("approve: exit code %d\n%s", code, out)
	}
	for {
		select {
		case got := <-second:
			if !strings.Contains(got, `"call_1"`) {
				t.Errorf("the retried request does not get the approved call: %s", got)
			}
			return
		case line := <-s.lines:
			// The hang-up was not seen when the yes came, which went to the
			// connection that nobody reads: a yes is for one call.
			if m := questionLine.FindStringSubmatch(line); m != nil {
				if out, code := s.people("approve", m[1]); code != exitOK {
					t.Fatalf("approve: exit code %d\n%s", code, out)
				}
			}
		}
	}
}

func TestServeRefusesToStart(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	taken := t.TempDir()
	startServe(t, taken, "http://127.0.0.1:9")
	corrupt := t.TempDir()
	first := startServe(t, corrupt, "http://127.0.0.1:9")
	first.stop()
	files, err := filepath.Glob(filepath.Join(corrupt, "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the state directory holds %v (%v)", files, err)
	}
	if err := os.WriteFile(files[0], bytes.Repeat([]byte("not a database\n"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	free := t.TempDir()
	link := filepath.Join(free, "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		state string
		args  []string
		code  int
		want  []string
	}{
		{"an address is taken", free, []string{"--listen", busy.Addr().String()}, exitFailed, []string{"--listen", "in use"}},
		{"the state belongs to another process", taken, nil, exitFailed, []string{taken}},
		{"the state file is corrupt", corrupt, nil, exitFailed, []string{files[0]}},
		{"the address file has no directory", free, []string{"--addr-file", filepath.Join(free, "no", "addr")}, exitFailed, []string{"--addr-file"}},
		{"the address file is a directory", free, []string{"--addr-file", free}, exitFailed, []string{"--addr-file", "no regular file"}},
		{"the address file is a link", free, []string{"--addr-file", link}, exitFailed, []string{"--addr-file", "no regular file"}},
		{"the address is not of this machine", free, []string{"--listen", "192.0.2.1:4141"}, exitFailed, []string{"--listen", "this machine"}},
		{"an upstream is no address", free, []string{"--upstream", "bad"}, exitUsage, []string{"--upstream"}},
		{"an upstream speaks http to the world", free, []string{"--upstream", "bad=http://example.com"}, exitUsage, []string{"--upstream"}},
		{"a flag is unknown", free, []string{"--upstrem", "x"}, exitUsage, []string{"--upstream"}},
		{"a configuration file is not there", free, []string{"--config", filepath.Join(free, "none.yaml")}, exitConfig, []string{"none.yaml"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := launchServe(t, tc.state, "http://127.0.0.1:9", tc.args...)
			select {
			case err := <-s.ended:
				s.ended = nil
				exit, ok := err.(*exec.ExitError)
				if !ok || exit.ExitCode() != tc.code {
					t.Errorf("it ended with %v, want exit code %d", err, tc.code)
				}
			case <-time.After(patience):
				t.Fatal("it did not end")
			}
			for _, w := range tc.want {
				if !strings.Contains(s.stderr.String(), w) {
					t.Errorf("the error does not name %q:\n%s", w, s.stderr)
				}
			}
			if !strings.HasPrefix(s.stderr.String(), "callgate: ") {
				t.Errorf("the error is not ours:\n%s", s.stderr)
			}
		})
	}
}

func TestServeEndsWhileACallIsHeld(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	provider := dangerous(t)
	s := startServe(t, state, provider.URL)
	first := s.answered(t.Context())
	id := s.question()
	s.stop()
	if got := <-first; strings.Contains(got, "call_1") || !strings.Contains(got, "callgate") {
		t.Errorf("the held answer did not end as a refusal: %s", got)
	}
	s = startServe(t, state, provider.URL)
	if out, code := s.people("show", id); code != exitOK || !strings.Contains(out, "pending") {
		t.Errorf("the question is gone after an orderly end: exit code %d\n%s", code, out)
	}
}

func TestServeSpeaksJSONLines(t *testing.T) {
	t.Parallel()
	s := launchServe(t, t.TempDir(), dangerous(t).URL, "--json")
	var greet struct {
		Event, Token, Control string
		BaseURL               string `json:"base_url"`
	}
	if err := json.Unmarshal([]byte(s.line()), &greet); err != nil || greet.Event != "serving" || greet.Token == "" {
		t.Fatalf("the first line is %+v (%v)", greet, err)
	}
	s.base, s.token, s.control = greet.BaseURL, greet.Token, greet.Control
	first := s.answered(t.Context())
	var asked struct {
		Event, Approve string
		Approval       struct{ ID, Command string }
	}
	if err := json.Unmarshal([]byte(s.line()), &asked); err != nil || asked.Event != "question" || asked.Approval.Command != "rm -rf ~/photos" {
		t.Fatalf("the question is %+v (%v)", asked, err)
	}
	if !strings.HasSuffix(asked.Approve, fmt.Sprintf(" approvals approve %s --control %s", asked.Approval.ID, s.control)) {
		t.Errorf("the command that answers it is %q", asked.Approve)
	}
	if out, code := s.people("deny", asked.Approval.ID); code != exitOK {
		t.Fatalf("deny: exit code %d\n%s", code, out)
	}
	if got := <-first; !strings.Contains(got, "callgate") {
		t.Errorf("the answer is %s", got)
	}
}

func TestServeOutlivesItsReaderAndSaysThatNobodyWasTold(t *testing.T) {
	t.Parallel()
	s := launchServe(t, t.TempDir(), dangerous(t).URL, "--addr-file", filepath.Join(t.TempDir(), "addr"))
	for line := range s.lines {
		if at, ok := strings.CutPrefix(line, "callgate serves agents at "); ok {
			s.base = at
		}
		if strings.Contains(line, "approvals list --control ") {
			break
		}
	}
	s.unread()
	if got := <-s.answered(t.Context()); strings.Contains(got, "call_1") || !strings.Contains(got, "no person could be told of it") {
		t.Errorf("the answer is %s", got)
	}
	if got := <-s.answered(t.Context()); !strings.Contains(got, "callgate") {
		t.Errorf("it does not serve any more: %s", got)
	}
}

func TestAClosedTerminalEndsServeInOrder(t *testing.T) {
	t.Parallel()
	addr := filepath.Join(t.TempDir(), "addr")
	s := startServe(t, t.TempDir(), dangerous(t).URL, "--addr-file", addr)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	err := <-s.ended
	s.ended = nil
	if err != nil {
		t.Errorf("it ended with %v\n%s", err, s.stderr)
	}
	if _, err := os.Stat(addr); err == nil {
		t.Error("the address file is still there")
	}
}

func TestAnAddressFileThatIsAnothersStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "addr")
	if err := writeAddrFile(path, "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	if err := writeAddrFile(path, "http://127.0.0.1:2"); err != nil {
		t.Fatal(err)
	}
	removeAddrFile(path, "http://127.0.0.1:1")
	if got, err := os.ReadFile(path); err != nil || string(got) != "http://127.0.0.1:2\n" {
		t.Errorf("the file holds %q (%v)", got, err)
	}
	removeAddrFile(path, "http://127.0.0.1:2")
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is still there")
	}
}

func TestAListenerThatListensEverywhereIsReachedByLoopback(t *testing.T) {
	for at, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", "0.0.0.0:2": "127.0.0.1:2", "[::]:3": "[::1]:3", "10.0.0.5:4": "10.0.0.5:4",
	} {
		a, err := net.ResolveTCPAddr("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if got := reachable(a); got != want {
			t.Errorf("%s is reached by %s, want %s", at, got, want)
		}
	}
}
