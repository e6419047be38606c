package forward

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"callgate/proxy"
)

// What goproxy does not see, from the provider to the client and back, with the
// real handler in between.

// wayOn is the protocol that the provider is spoken to in.
type wayOn struct {
	proto string
	next  func(*rig) http.Handler
}

var waysOn = []wayOn{{"HTTP/2.0", gated}, {"HTTP/1.1", func(g *rig) http.Handler {
	p := gated(g).(*proxy.Proxy)
	t := p.Transport.(*http.Transport)
	t.Protocols, t.TLSClientConfig.NextProtos = new(http.Protocols), []string{"http/1.1"}
	t.Protocols.SetHTTP1(true)
	return p
}}}

// eachWay runs a test for each protocol on either side.
func eachWay(t *testing.T, provider http.HandlerFunc, test func(*testing.T, *rig, *http.Client)) {
	for _, on := range waysOn {
		g := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Proto != on.proto {
				t.Errorf("the provider was spoken to in %s, not %s", r.Proto, on.proto)
			}
			provider(w, r)
		}), on.next)
		for _, s := range spoken {
			t.Run(s.name+", and "+on.proto+" to the provider", func(t *testing.T) { test(t, g, s.client(g)) })
		}
	}
}

// words is an event with a piece of text.
const words = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"words"},"finish_reason":null}]}` + "\n\n"

// asksForStream is a request for a streamed answer.
func asksForStream(ctx context.Context, g *rig) *http.Request {
	r, _ := http.NewRequestWithContext(ctx, "POST", g.at("/v1/chat/completions"), strings.NewReader(strings.Replace(bodyOf, "{", `{"stream":true,`, 1)))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func TestAHangUpReachesTheProvider(t *testing.T) {
	began, ended := make(chan bool, 1), make(chan bool, 1)
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, words)
		http.NewResponseController(w).Flush()
		began <- true
		<-r.Context().Done()
		ended <- true
	}, func(t *testing.T, g *rig, c *http.Client) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		resp, err := c.Do(asksForStream(ctx, g))
		if err != nil {
			t.Fatal(err)
		}
		<-began
		cancel()
		resp.Body.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("the provider was not told")
		}
	})
}

// Pieces that came together are read together, and none is waited for.
func TestAnEventDoesNotWaitForTheNext(t *testing.T) {
	more := make(chan bool)
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 4 {
			for range i {
				io.WriteString(w, words)
				http.NewResponseController(w).Flush()
			}
			select {
			case <-more:
			case <-time.After(patience):
				t.Error("nobody got what was sent")
			}
		}
	}, func(t *testing.T, g *rig, c *http.Client) {
		go func() { more <- true }() // the head needs an event
		resp, err := c.Do(asksForStream(t.Context(), g))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		events := bufio.NewReader(resp.Body)
		for i := 1; i < 4; i++ {
			for range i {
				for _, want := range []string{strings.TrimSuffix(words, "\n"), "\n"} {
					if got, err := events.ReadString('\n'); got != want || err != nil {
						t.Fatalf("%q, %v", got, err)
					}
				}
			}
			more <- true
		}
	})
}

func TestAProviderThatBreaksOffIsSeenToDoSo(t *testing.T) {
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[`)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, g *rig, c *http.Client) {
		resp, err := c.Get(g.at("/v1/models"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == 200 {
			t.Errorf("it ends well with %q", body)
		}
	})
}

func TestAStreamThatIsCutIsSeenAsCut(t *testing.T) {
	eachWay(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 50 {
			io.WriteString(w, words)
			http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, g *rig, c *http.Client) {
		resp, err := c.Do(asksForStream(t.Context(), g))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == 200 {
			t.Errorf("it ends well with %q", body)
		}
	})
}

// A WebSocket inside a tunnel is refused as it is outside.
func TestNoUpgradeInsideATunnel(t *testing.T) {
	g := newRig(t, nil, gated)
	for _, s := range spoken {
		if s.proto != "HTTP/1.1" {
			continue // there is no such thing in HTTP/2
		}
		r := request(t, g.at("/v1/responses"))
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		resp, err := s.client(g).Do(r)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("%s: status %d", s.name, resp.StatusCode)
		}
	}
}

// A path that servers read in different ways is refused here too.
func TestPathsInsideATunnelAreChecked(t *testing.T) {
	g := newRig(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the provider was asked") }), gated)
	in := openai + ":" + g.port
	for _, path := range []string{"/v1/../x", "/v1//x", "/v1/%2e%2e/x", "/v1/x%2fy", "/v1/x\\y", "//evil.test/x", "/openai/../anthropic/v1/messages"} {
		conn, _, _ := g.connect(in)
		io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: "+in+"\r\n\r\n")
		if head := readHead(t, conn); !strings.HasPrefix(head, "HTTP/1.1 400") {
			t.Errorf("%s: %s", path, head)
		}
		conn.Close()
	}
}
