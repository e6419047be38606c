package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// examined lets a doctor look at an environment.
func examined(t *testing.T, pid int, proc string, lookup map[string]string, environ ...string) []finding {
	t.Helper()
	e, _, _ := testEnv(append([]string{"HOME=" + t.TempDir()}, environ...)...)
	d := &doctor{e: e, proc: proc, lookup: func(_ context.Context, host string) ([]string, error) {
		if a := lookup[host]; a != "" {
			return []string{a}, nil
		}
		return nil, errors.New("no such host")
	}}
	d.examine(t.Context(), "", pid)
	for _, f := range d.found {
		if f.State != stateOK && f.Remedy == "" {
			t.Errorf("%s: %s says no remedy", f.About, f.Text)
		}
	}
	return d.found
}

// about gives the worst state of what was found about something, and its texts.
func about(list []finding, what string) (state, text string) {
	rank := map[string]int{"": 0, stateOK: 1, stateWarn: 2, stateFail: 3}
	for _, f := range list {
		if f.About != what {
			continue
		}
		text += f.Text + "\n"
		if rank[f.State] > rank[state] {
			state = f.State
		}
	}
	return state, text
}

// gateAt serves what says that it is callgate.
func gateAt(t *testing.T) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/~") && !strings.Contains(r.URL.Path, "hush") || r.Header.Get("Proxy-Authorization") == "Basic YWdlbnQ6d3Jvbmc=" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "callgate is running. Point an agent's base URL at it; see callgate help.")
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestTheDoctorSaysWhatIsWrong(t *testing.T) {
	gate := gateAt(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	open := t.TempDir()
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	closedDir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closedDir, 0o500); err != nil {
		t.Fatal(err)
	}
	cannot := stateFail
	if os.Getuid() == 0 {
		cannot = stateOK // nothing is closed to root
	}
	for _, tc := range []struct {
		name        string
		environ     []string
		what, state string
		text        string
		dont        string
	}{
		{"a base URL leads to callgate", []string{"ANTHROPIC_BASE_URL=" + gate}, "ANTHROPIC_BASE_URL", stateOK, "leads to callgate", ""},
		{"with a path too", []string{"OPENAI_BASE_URL=" + gate + "/openai/v1"}, "OPENAI_BASE_URL", stateOK, "leads to callgate", ""},
		{"a base URL leads elsewhere", []string{"ANTHROPIC_BASE_URL=" + other.URL}, "ANTHROPIC_BASE_URL", stateFail, "leads past callgate", ""},
		{"nothing listens there", []string{"ANTHROPIC_BASE_URL=" + closed.URL}, "ANTHROPIC_BASE_URL", stateFail, "nothing can be reached", ""},
		{"a base URL is none", []string{"ANTHROPIC_BASE_URL=callgate"}, "ANTHROPIC_BASE_URL", stateFail, "no http or https URL", ""},
		{"a password is not printed", []string{"ANTHROPIC_BASE_URL=http://u:hush@127.0.0.1:1"}, "ANTHROPIC_BASE_URL", stateFail, "", "hush"},
		{"an agent's token is not printed", []string{"ANTHROPIC_BASE_URL=" + gate + "/~cgt_hushhushhushhushhushhush"}, "ANTHROPIC_BASE_URL", stateOK, "leads to callgate", "hushhush"},
		{"a base URL with a wrong token", []string{"ANTHROPIC_BASE_URL=" + gate + "/~cgt_wrongwrongwrongwrong/v1"}, "ANTHROPIC_BASE_URL", stateFail, "does not know the agent's token", "wrongwrong"},
		{"a proxy with a wrong token", []string{"HTTPS_PROXY=" + strings.Replace(gate, "://", "://agent:wrong@", 1)}, "HTTPS_PROXY", stateFail, "does not know the agent's token", "wrong@"},
		{"a pipe for certificates", []string{"SSL_CERT_FILE=" + pipe}, "SSL_CERT_FILE", stateFail, "no regular file", ""},
		{"a device for certificates", []string{"NODE_EXTRA_CA_CERTS=/dev/zero"}, "NODE_EXTRA_CA_CERTS", stateFail, "no regular file", ""},
		{"what a terminal would carry out", []string{"HTTPS_PROXY=http://proxy.example:3128", "NO_PROXY=\x1b[2Jx", "OPENAI_BASE_URL=" + gate}, "NO_PROXY", stateFail, "", "\x1b"},
		{"a key without a base URL", []string{"OPENAI_API_KEY=sk-hush"}, "OPENAI_BASE_URL", stateWarn, "OPENAI_API_KEY", "hush"},
		{"a key is advisory even with one", []string{"OPENAI_API_KEY=sk-hush", "OPENAI_BASE_URL=" + gate}, "keys", stateWarn, "past callgate", "hush"},
		{"a key of a provider that no variable points to callgate", []string{"GROQ_API_KEY=x"}, "keys", stateWarn, "GROQ_API_KEY", ""},
		{"no key", nil, "keys", stateOK, "", ""},
		{"no proxy", nil, "proxies", stateOK, "", ""},
		{"a proxy would catch callgate's address", []string{"HTTP_PROXY=http://proxy.example:3128", "OPENAI_BASE_URL=" + gate}, "NO_PROXY", stateFail, "OPENAI_BASE_URL", ""},
		{"a proxy without a base URL", []string{"https_proxy=http://proxy.example:3128"}, "NO_PROXY", stateWarn, "", ""},
		{"a proxy that leaves loopback alone", []string{"HTTPS_PROXY=http://proxy.example:3128", "no_proxy=127.0.0.1,localhost,::1"}, "NO_PROXY", stateOK, "", ""},
		{"callgate as a proxy", []string{"HTTPS_PROXY=" + gate, "OPENAI_BASE_URL=" + gate}, "HTTPS_PROXY", map[bool]string{true: stateOK, false: stateFail}[forwardProxy], "is callgate", ""},
		{"a file of certificates that is not there", []string{"SSL_CERT_FILE=/no/such.pem"}, "SSL_CERT_FILE", stateFail, "no such file", ""},
		{"a file without certificates", []string{"NODE_EXTRA_CA_CERTS=" + empty}, "NODE_EXTRA_CA_CERTS", stateFail, "holds no certificate", ""},
		{"the control token in the environment", []string{"CALLGATE_CONTROL_TOKEN=0123456789abcdef-hush"}, "control token", stateWarn, "could answer its own questions", "hush"},
		{"a wrong configuration", []string{"CALLGATE_LOG_LEVEL=loud"}, "configuration", stateFail, "log.level", ""},
		{"state that others can read", []string{"CALLGATE_STATE=" + open}, "state", stateFail, "0755", ""},
		{"state that cannot be written to", []string{"CALLGATE_STATE=" + closedDir}, "state", cannot, map[string]string{stateFail: "cannot be written to"}[cannot], ""},
		{"state that cannot be made below it", []string{"CALLGATE_STATE=" + closedDir + "/a/b"}, "state", cannot, map[string]string{stateFail: "cannot be made: " + closedDir}[cannot], ""},
		{"state below a file", []string{"CALLGATE_STATE=" + empty + "/a/b"}, "state", stateFail, "not a directory", ""},
		{"state that is not there yet", nil, "state", stateOK, "not there yet", ""},
		{"something else at callgate's address", []string{"CALLGATE_LISTEN=" + strings.TrimPrefix(other.URL, "http://")}, "serve", stateWarn, "something else than callgate", ""},
		{"none at callgate's address, and another one is used", []string{"CALLGATE_LISTEN=" + strings.TrimPrefix(closed.URL, "http://"), "OPENAI_BASE_URL=" + gate}, "serve", stateOK, "is used", ""},
		{"a callgate that serves", []string{"CALLGATE_LISTEN=" + strings.TrimPrefix(gate, "http://")}, "serve", stateOK, "serves agents", ""},
		{"none that serves", []string{"CALLGATE_LISTEN=" + strings.TrimPrefix(closed.URL, "http://")}, "serve", stateWarn, "no callgate", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := examined(t, 0, "", nil, tc.environ...)
			state, text := about(list, tc.what)
			if state != tc.state || !strings.Contains(text, tc.text) {
				t.Errorf("%s is %q: %q; want %q with %q", tc.what, state, text, tc.state, tc.text)
			}
			if all := fmt.Sprint(list); tc.dont != "" && strings.Contains(all, tc.dont) {
				t.Errorf("a secret is printed: %s", all)
			}
		})
	}
}

// proc is a process table for tests.
type proc struct {
	t   *testing.T
	dir string
}

func (p proc) write(path, text string) {
	p.t.Helper()
	path = filepath.Join(p.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// add adds a process with connections: lines of the kernel's table, each with
// the inode of one of its sockets.
func (p proc) add(pid, parent int, environ string, tcp ...string) {
	p.t.Helper()
	at := fmt.Sprint(pid)
	p.write(at+"/stat", fmt.Sprintf("%d (a (strange) name) S %d 1 1", pid, parent))
	p.write(at+"/environ", environ)
	table := "  sl  local_address rem_address st\n"
	for i, remote := range tcp {
		table += fmt.Sprintf("   %d: 0100007F:9999 %s 01 00000000:00000000 00:00000000 00000000 0 0 %d%d 1\n", i, remote, pid, i)
		p.write(at+"/fd/none", "")
		if err := os.Symlink(fmt.Sprintf("socket:[%d%d]", pid, i), filepath.Join(p.dir, at, "fd", fmt.Sprint(i+3))); err != nil {
			p.t.Fatal(err)
		}
	}
	// A connection of somebody else's, which every table shows too.
	table += "   9: 0100007F:9999 04030201:01BB 01 00000000:00000000 00:00000000 00000000 0 0 424242 1\n"
	p.write(at+"/net/tcp", table)
}

func TestTheDoctorSeesWhetherAnAgentGoesPastCallgate(t *testing.T) {
	gate := gateAt(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(gate, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	var n int
	fmt.Sscan(port, &n)
	ours := fmt.Sprintf("0100007F:%04X", n)
	hosts := map[string]string{"api.openai.com": "1.2.3.4", "chatgpt.com": "5.6.7.8"}
	p := proc{t, t.TempDir()}
	p.add(10, 1, "ANTHROPIC_BASE_URL="+gate+"\x00CALLGATE_CONTROL_TOKEN=x\x00", ours)
	p.add(20, 1, "OPENAI_API_KEY=x\x00", "08070605:01BB")
	p.add(30, 1, "ANTHROPIC_BASE_URL="+gate+"\x00", ours)
	p.add(31, 30, "", "04030201:01BB") // what the agent started
	p.add(40, 1, "ANTHROPIC_BASE_URL="+gate+"\x00", ours, "09090909:01BB")
	p.add(60, 1, "ANTHROPIC_BASE_URL="+gate+"\x00", ours, "0100007F:0001")

	for _, tc := range []struct {
		name        string
		pid         int
		what, state string
		text        string
	}{
		{"an agent behind callgate", 10, "connections", stateOK, "1 to callgate, 0 to other hosts"},
		{"a connection on this machine past callgate", 60, "connections", stateOK, "1 to callgate, 0 to other hosts, 1 to other programs of this machine, in 1 process"},
		{"its base URL", 10, "ANTHROPIC_BASE_URL", stateOK, "leads to callgate"},
		{"an agent that could answer itself", 10, "control token", stateFail, "can answer its own questions"},
		{"an agent that logged in elsewhere", 20, "connections", stateFail, "chatgpt.com, past callgate"},
		{"an agent whose child goes past", 30, "connections", stateFail, "api.openai.com, past callgate"},
		{"other hosts are no providers", 40, "connections", stateOK, "1 to callgate, 1 to other hosts"},
		{"a process that is not there", 50, "process", stateFail, "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state, text := about(examined(t, tc.pid, p.dir, hosts), tc.what)
			if state != tc.state || !strings.Contains(text, tc.text) {
				t.Errorf("%s is %q: %q; want %q with %q", tc.what, state, text, tc.state, tc.text)
			}
		})
	}
}

func TestTheConnectionsOfThisProcessAreSeen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no process table")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list, err := remotes("/proc", os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	want := netip.MustParseAddrPort(ln.Addr().String())
	for _, a := range list {
		if a == want {
			return
		}
	}
	t.Errorf("%v is not among %v", want, list)
}

func TestAddressesOfTheKernelsTablesAreRead(t *testing.T) {
	for in, want := range map[string]string{
		"0100007F:1F90":                         "127.0.0.1:8080",
		"00000000000000000000000001000000:01BB": "[::1]:443",
		"0000000000000000FFFF00000100007F:0050": "127.0.0.1:80",
		"B80D0120000000000000000001000000:01BB": "[2001:db8::1]:443",
	} {
		got, ok := parseProcAddr(in)
		if !ok || got.String() != want {
			t.Errorf("%s is %v (%v), want %s", in, got, ok, want)
		}
	}
	for _, bad := range []string{"", "0100007F", "XX:1", "01:1", "0100007F:12345"} {
		if got, ok := parseProcAddr(bad); ok {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestTheDoctorsExitCodeAndJSON(t *testing.T) {
	home := "HOME=" + t.TempDir()
	for _, tc := range []struct {
		environ []string
		args    []string
		code    int
	}{
		{nil, nil, exitOK},
		{[]string{"SSL_CERT_FILE=/no/such.pem"}, nil, exitFailed},
		{nil, []string{"--pid", "0"}, exitUsage},
		{nil, []string{"--config", "/no/such.yaml"}, exitFailed},
	} {
		e, stdout, stderr := testEnv(append(tc.environ, home)...)
		if got := run(t.Context(), e, append([]string{"doctor", "--json"}, tc.args...)); got != tc.code {
			t.Errorf("%q %q: exit code %d, want %d: %s%s", tc.environ, tc.args, got, tc.code, stdout, stderr)
		}
		for line := range strings.Lines(stdout.String()) {
			var f finding
			if err := json.Unmarshal([]byte(line), &f); err != nil || f.State == "" || f.About == "" {
				t.Errorf("%q is no finding: %v", line, err)
			}
		}
	}
	e, stdout, _ := testEnv(home, "SSL_CERT_FILE=/no/such.pem")
	run(t.Context(), e, []string{"doctor"})
	want := "fail  SSL_CERT_FILE: /no/such.pem: no such file or directory\n      -> name a file that is there, or unset it\n"
	if got := stdout.String(); !strings.Contains(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if got := stdout.String(); !strings.HasSuffix(got, "\n1 failed, 1 to look at\n") {
		t.Errorf("the end is %q", got[max(len(got)-60, 0):])
	}
}
