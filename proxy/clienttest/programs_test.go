package clienttest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"callgate/gate"
)

// program is a client that is a process of its own. It knows of callgate what
// the variables of a proxy and of an authority say, and no more.
type program struct {
	name  string
	proto string
	// find gives the program, or why it cannot be run here.
	find func() (path, missing string)
	// args has it send its standard input to url and write the answer's body
	// as it comes.
	args func(url string) []string
}

// programHeaders are those of both kinds of providers.
var programHeaders = []string{
	"Content-Type: application/json", "Authorization: Bearer key-of-tests", "X-Api-Key: key-of-tests", "Anthropic-Version: 2023-06-01",
}

func curlArgs(version string) func(string) []string {
	return func(url string) []string {
		args := []string{"-sSN", version, "--data-binary", "@-"}
		for _, h := range programHeaders {
			args = append(args, "-H", h)
		}
		return append(args, url)
	}
}

const nodeClient = `
const [url, ...headers] = process.argv.slice(1);
let body = "";
process.stdin.on("data", d => { body += d });
process.stdin.on("end", async () => {
  try {
    const r = await fetch(url, { method: "POST", body, headers: headers.map(h => h.split(": ")) });
    if (r.status != 200) throw new Error("status " + r.status);
    for await (const piece of r.body) process.stdout.write(piece);
  } catch (e) {
    console.error(e);
    process.exit(1);
  }
});`

const pythonClient = `
import sys, urllib.request
r = urllib.request.Request(sys.argv[1], data=sys.stdin.buffer.read(), headers=dict(h.split(": ") for h in sys.argv[2:]))
with urllib.request.urlopen(r, timeout=60) as answer:
    while piece := answer.read1():
        sys.stdout.buffer.write(piece)
        sys.stdout.flush()`

func scriptArgs(flag, script string) func(string) []string {
	return func(url string) []string { return append([]string{flag, script, url}, programHeaders...) }
}

// onPath finds a program by name.
func onPath(name string) func() (string, string) {
	return func() (path, missing string) {
		path, err := exec.LookPath(name)
		if err != nil {
			return "", "there is no " + name
		}
		return path, ""
	}
}

// nodeWithProxy finds a Node whose fetch reads HTTPS_PROXY.
func nodeWithProxy() (path, missing string) {
	if path, missing = onPath("node")(); missing != "" {
		return "", missing
	}
	version, err := exec.Command(path, "--version").Output()
	var major, minor int
	if _, serr := fmt.Sscanf(string(version), "v%d.%d.", &major, &minor); err != nil || serr != nil || major < 22 || major == 22 && minor < 21 {
		return "", fmt.Sprintf("node %s does not read HTTPS_PROXY", bytes.TrimSpace(version))
	}
	return path, ""
}

var programs = []program{
	{"curl", http1, onPath("curl"), curlArgs("--http1.1")},
	{"curl", http2, onPath("curl"), curlArgs("--http2")},
	{"node", http1, nodeWithProxy, scriptArgs("-e", nodeClient)},
	{"python", http1, onPath("python3"), scriptArgs("-c", pythonClient)},
}

// run sends a request and gives what the program writes as it comes, and what
// waits for its end.
func (p program) run(t *testing.T, g *rig, path string, f form) (got *growing, whole func() []byte) {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, trust().ours.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	at := "http://" + g.here.Listener.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, path, p.args(g.base+f.path)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "HTTPS_PROXY=" + at, "https_proxy=" + at,
		"NODE_USE_ENV_PROXY=1", "NODE_EXTRA_CA_CERTS=" + ca, "SSL_CERT_FILE=" + ca, "CURL_CA_BUNDLE=" + ca,
	}
	cmd.Stdin = strings.NewReader(f.request())
	got = newGrowing()
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = got, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return got, func() []byte {
		t.Helper()
		if err := <-ended; err != nil {
			t.Fatalf("%v: %s%s", err, &errs, got.bytes())
		}
		return got.bytes()
	}
}

// Programs that have nothing but variables see of a call what the gate decided:
// at once, and while a person is asked signs of life alone.
func TestProgramsThroughTheProxyAreGated(t *testing.T) {
	const (
		atOnce = iota
		yes
		no
		nobody
	)
	tests := []struct {
		name  string
		word  string // of the call in the middle
		waits int
		stays bool
	}{
		{"allowed", "echo", atOnce, true},
		{"denied", forbidden, atOnce, false},
		{"held, then approved", dangerous, yes, true},
		{"held, then denied", dangerous, no, false},
		{"held until nobody answered", dangerous, nobody, false},
	}
	for _, p := range programs {
		t.Run(p.name+" "+p.proto, func(t *testing.T) {
			path, missing := p.find()
			if missing != "" {
				t.Skip(missing)
			}
			for _, tt := range tests {
				for _, f := range []form{forms[1], forms[2]} {
					t.Run(tt.name+"/"+f.name, func(t *testing.T) {
						t.Parallel()
						w := way{name: p.name, client: p.proto, provider: http2}
						three := threeCalls(tt.word, 1)
						three.stays[1] = tt.stays
						asked := make(chan gate.Approval, 1)
						patience := time.Minute
						if tt.waits == nobody {
							patience = 300 * time.Millisecond
						}
						desk := newDesk(t, patience, asked)
						g := newRig(t, setup{script: three.script(), person: desk, way: w.to(f.path == "/v1/messages")})
						got, whole := p.run(t, g, path, f)
						if tt.waits != atOnce {
							a := <-asked
							held := got.grow(t.Context(), 2)
							for _, k := range three.calls[1:] {
								if h := holds(held, k.ID, "args of "+k.ID); h != nil {
									t.Errorf("undecided, and the client has %q", h)
								}
							}
							if tt.waits != nobody {
								if _, err := desk.Answer(t.Context(), a.ID, gate.Answer{Approve: tt.waits == yes, By: "tester"}); err != nil {
									t.Error(err)
								}
							}
						}
						body := whole()
						for i, k := range three.calls {
							switch h := holds(body, k.ID); {
							case three.stays[i] && h == nil:
								t.Errorf("call %d was allowed and did not come: %s", i, body)
							case !three.stays[i] && holds(body, k.ID, "args of "+k.ID) != nil:
								t.Errorf("call %d was denied and the client has it: %s", i, body)
							}
						}
						if refused := bytes.Count(body, []byte("did not run:")); (refused == 0) != tt.stays {
							t.Errorf("the client was told of %d refusals: %s", refused, body)
						}
						if tt.waits == nobody && !bytes.Contains(body, []byte("outcome=timeout")) {
							t.Errorf("the refusal does not say that time ran out: %s", body)
						}
						if f.stream && !f.ends(body) {
							t.Errorf("the stream has no end: %s", body)
						}
						if sent := g.provider.Requests()[0].Sent; tt.waits == atOnce && tt.stays && !bytes.Equal(body, sent) {
							t.Errorf("all was allowed, and is not byte for byte the same\nsent %q\nseen %q", sent, body)
						}
						for _, f := range g.provider.Faults() {
							t.Errorf("the provider refused a request: %s", f)
						}
					})
				}
			}
		})
	}
}
