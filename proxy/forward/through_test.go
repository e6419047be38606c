package forward

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// What goproxy does not see, from the provider to the client and back, with the
// real handler in between.

func TestAHangUpReachesTheProvider(t *testing.T) {
	began, ended := make(chan bool, 1), make(chan bool, 1)
	g := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"words"},"finish_reason":null}]}`+"\n\n")
		http.NewResponseController(w).Flush()
		began <- true
		<-r.Context().Done()
		ended <- true
	}), gated)
	for _, s := range spoken {
		t.Run(s.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, "POST", g.at("/v1/chat/completions"), strings.NewReader(strings.Replace(bodyOf, "{", `{"stream":true,`, 1)))
			r.Header.Set("Content-Type", "application/json")
			resp, err := s.client(g).Do(r)
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
}

func TestAProviderThatBreaksOffIsSeenToDoSo(t *testing.T) {
	g := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"object":"list","data":[`)
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}), gated)
	for _, s := range spoken {
		resp, err := s.client(g).Get(g.at("/v1/models"))
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == 200 {
			t.Errorf("%s: it ends well with %q", s.name, body)
		}
	}
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
