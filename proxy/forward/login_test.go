package forward

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"callgate/proxy/mitm"
)

// guests knows one agent by its password, and whoever comes from an address of
// its own.
type guests struct{ open bool }

type guestKey struct{}

func (g guests) Login(r *http.Request, keys bool) (agent, reason string) {
	if name, ok := r.Context().Value(guestKey{}).(string); ok {
		return name, ""
	}
	sent := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	_, pass, ok := sent.BasicAuth()
	switch {
	case ok && pass == "right", keys && r.Header.Get("X-Api-Key") == "right":
		return "planner", ""
	case ok || !g.open:
		return "", "show the token"
	}
	return "", ""
}

func (guests) As(ctx context.Context, agent string) context.Context {
	return context.WithValue(ctx, guestKey{}, agent)
}

// whom tells for whom a request is taken.
func whom(w http.ResponseWriter, r *http.Request) {
	name, _ := r.Context().Value(guestKey{}).(string)
	w.Header().Set("X-Reached", r.URL.String())
	io.WriteString(w, "for "+name)
}

func withGuests(open bool) settings {
	return func(_ *rig, o *Options) {
		o.Agents, o.Next = guests{open}, http.HandlerFunc(whom)
	}
}

// as is a client that shows its credentials in the URL of its proxy.
func (g *rig) as(user *url.Userinfo) *http.Client {
	t := g.transport()
	at := parseURL(g.t, g.front.URL)
	at.User = user
	t.Proxy = http.ProxyURL(at)
	return &http.Client{Transport: t}
}

func TestWhatIsInATunnelIsOfTheAgentThatOpenedIt(t *testing.T) {
	for name, tt := range map[string]struct {
		open bool
		user *url.Userinfo
		path string
		want string // "" for no tunnel
	}{
		"with its token":                        {false, url.UserPassword("agent", "right"), "/v1/x", "for planner"},
		"with its token where none is needed":   {true, url.UserPassword("agent", "right"), "/v1/x", "for planner"},
		"with nothing where none is needed":     {true, nil, "/v1/x", "for "},
		"with a wrong one":                      {false, url.UserPassword("agent", "wrong"), "/v1/x", ""},
		"with a wrong one where none is needed": {true, url.UserPassword("agent", "wrong"), "/v1/x", ""},
		"with nothing":                          {false, nil, "/v1/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, nil, nil, withGuests(tt.open))
			for range 2 { // over one connection
				resp, err := g.as(tt.user).Get(g.at(tt.path))
				if tt.want == "" {
					if err == nil || !strings.Contains(err.Error(), "show the token") {
						t.Errorf("got %v, %v", resp, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(body) != tt.want {
					t.Errorf("the request is taken %q, want %q", body, tt.want)
				}
			}
			if log := g.log.String(); strings.Contains(log, "right") || strings.Contains(log, "wrong") {
				t.Errorf("a password is logged: %s", log)
			}
		})
	}
}

func TestProxyRequestsOfNobody(t *testing.T) {
	g := newRig(t, nil, nil, withGuests(false), tunnelling("other.test"))
	to := openai + ":" + g.port
	for name, wire := range map[string]string{
		"a tunnel to a provider":       "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n",
		"a tunnel elsewhere":           "CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n",
		"a tunnel that is refused":     "CONNECT chatgpt.com:443 HTTP/1.1\r\nHost: chatgpt.com:443\r\n\r\n",
		"a tunnel to the other door":   "CONNECT 127.0.0.1:4142 HTTP/1.1\r\nHost: 127.0.0.1:4142\r\n\r\n",
		"a whole URL of a provider":    "GET http://" + to + "/v1/models HTTP/1.1\r\nHost: " + to + "\r\n\r\n",
		"a whole URL elsewhere":        "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n",
		"a key that is for elsewhere":  "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\nX-Api-Key: right\r\n\r\n",
		"a wrong token for callgate":   "CONNECT " + g.address() + " HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic YTpi\r\n\r\n",
		"a key beside a tunnel":        "CONNECT " + to + " HTTP/1.1\r\nHost: x\r\nX-Api-Key: right\r\n\r\n",
		"a wrong token in a whole URL": "GET http://" + to + "/v1/models HTTP/1.1\r\nHost: " + to + "\r\nProxy-Authorization: Basic YTpi\r\n\r\n",
	} {
		resp, err := http.ReadResponse(bufio.NewReader(g.dial(wire)), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusProxyAuthRequired || !strings.HasPrefix(resp.Header.Get("Proxy-Authenticate"), `Basic realm="callgate"`) ||
			strings.HasPrefix(wire, "CONNECT") && !strings.Contains(resp.Status, "show the token") || !strings.Contains(string(body), "show the token") {
			t.Errorf("%s: %s %v %s", name, resp.Status, resp.Header, body)
		}
	}
	if n := len(g.h.counts.list()); n != 0 {
		t.Errorf("%d hosts are counted that nobody may ask for", n)
	}
}

func TestProxyRequestsThatShowTheirAgentElsewhere(t *testing.T) {
	g := newRig(t, nil, nil, withGuests(false))
	to := "example.test:80"
	g.h.hosts.gated[endpoint{"example.test", 80}] = []mount{{"", "openai"}}
	for name, tt := range map[string]struct{ wire, want string }{
		"callgate itself, by a whole URL":      {"GET http://" + g.address() + "/~T/x HTTP/1.1\r\nHost: x\r\n\r\n", "/~T/x"},
		"a provider's, with the token as key":  {"GET http://" + to + "/v1/models HTTP/1.1\r\nHost: " + to + "\r\nX-Api-Key: right\r\n\r\n", "/openai/v1/models"},
		"a provider's, with the proxy's token": {"GET http://" + to + "/v1/models HTTP/1.1\r\nHost: " + to + "\r\nProxy-Authorization: Basic YTpyaWdodA==\r\n\r\n", "/openai/v1/models"},
	} {
		resp, err := http.ReadResponse(bufio.NewReader(g.dial(tt.wire)), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("X-Reached"); resp.StatusCode != 200 || got != tt.want {
			t.Errorf("%s: %s reached %q, want %q", name, resp.Status, got, tt.want)
		}
	}
	c, status, head := g.connect(g.address())
	if status != 200 {
		t.Fatalf("a tunnel to callgate itself: %s", head)
	}
	io.WriteString(c, "GET /~T/y HTTP/1.1\r\nHost: "+g.address()+"\r\n\r\n")
	if head := readHead(t, c); !strings.Contains(head, "X-Reached: /~T/y") {
		t.Errorf("in a tunnel to callgate itself: %s", head)
	}
}

// An agent's own address proves it, for tunnels too.
func TestATunnelFromAnAgentsOwnAddress(t *testing.T) {
	g := newRig(t, nil, nil, withGuests(false))
	own := httptest.NewUnstartedServer(nil)
	own.Config = dataServer(g.h)
	own.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return guests{}.As(ctx, "desk") }
	own.Start()
	defer own.Close()
	tr := g.transport()
	tr.Proxy = http.ProxyURL(parseURL(t, own.URL))
	resp, err := (&http.Client{Transport: tr}).Get(g.at("/v1/x"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "for desk" {
		t.Errorf("the request is taken %q", body)
	}
}

// What curl makes of it, at once and after a challenge.
func TestCurlLogsInAtTheProxy(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	g := newRig(t, nil, nil, withGuests(false))
	ca := t.TempDir() + "/ca.pem"
	if err := mitm.Save(strings.TrimSuffix(ca, "/ca.pem"), g.ca); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"with its token":     {[]string{"-x", strings.Replace(g.front.URL, "://", "://agent:right@", 1)}, "for planner"},
		"after a challenge":  {[]string{"-x", g.front.URL, "--proxy-anyauth", "-U", "agent:right"}, "for planner"},
		"with a wrong token": {[]string{"-x", strings.Replace(g.front.URL, "://", "://agent:wrong@", 1)}, "407"},
		"with nothing":       {[]string{"-x", g.front.URL}, "407"},
	} {
		cmd := exec.Command(curl, append([]string{"-sS", "--cacert", ca, g.at("/v1/x")}, tt.args...)...)
		cmd.Env = []string{"HOME=" + t.TempDir()}
		out, _ := cmd.CombinedOutput() // its exit code says no more than its words
		if !strings.Contains(string(out), tt.want) {
			t.Errorf("%s: curl says %q, want %q", name, out, tt.want)
		}
	}
}
