package forward

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"callgate/proxy/mitm"
)

// providerConn is a connection as the provider has it, with the request read.
type providerConn struct {
	tcp *net.TCPConn
	tls *tls.Conn
	// head and frames are what is to be written with, in HTTP/1.1 and in HTTP/2.
	head   func(fields ...string) // of an answer, with its status
	frames *http2.Framer
	stream uint32
	gone   <-chan struct{} // closed when callgate has hung up, or reset the stream
	over   <-chan struct{} // closed when the test has seen enough
}

// newRawRig is a rig whose provider is a socket: serve has one request of each
// connection to it, in the version of HTTP that proto is the ALPN name of.
func newRawRig(t *testing.T, proto string, serve func(*providerConn)) *rig {
	t.Helper()
	theirs, err := mitm.New([]string{openai, claude}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := mitm.NewIssuer(theirs, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{NextProtos: []string{proto}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return issuer.Certificate(h.ServerName)
	}}
	over, end := context.WithCancel(context.Background())
	port := listen(t, func(c net.Conn) {
		defer context.AfterFunc(over, func() { c.Close() })() // nobody waits for what was kept for more requests
		p := &providerConn{tcp: c.(*net.TCPConn), tls: tls.Server(c, config), over: over.Done()}
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil || p.tls.Handshake() != nil {
			return
		}
		begin := p.http1
		if proto == "h2" {
			begin = p.http2
		}
		if begin() == nil {
			serve(p)
			<-p.over // it takes no second request
		}
	})
	t.Cleanup(end)
	return newRig(t, nil, func(g *rig) http.Handler {
		g.port, g.roots = port, pool(theirs)
		return gated(g)
	}, func(g *rig, o *Options) {
		o.Upstreams = []Upstream{{"openai", parseURL(t, "https://"+openai+":"+port)}, {"anthropic", parseURL(t, "https://"+claude+":"+port)}}
	})
}

// http1 reads a request and gets ready to answer it.
func (p *providerConn) http1() error {
	in := bufio.NewReader(p.tls)
	r, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	gone := make(chan struct{})
	p.gone = gone
	go func() {
		defer close(gone)
		_, _ = in.ReadByte()
	}()
	p.head = func(fields ...string) {
		fmt.Fprintf(p.tls, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", strings.Join(fields, "\r\n"))
	}
	return nil
}

// http2 does the same for the first stream.
func (p *providerConn) http2() error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(p.tls, preface); err != nil {
		return err
	}
	p.frames = http2.NewFramer(p.tls, p.tls)
	if err := p.frames.WriteSettings(); err != nil {
		return err
	}
	for ended := false; !ended; {
		f, err := p.frames.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = p.frames.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			p.stream, ended = f.StreamID, f.StreamEnded()
		case *http2.DataFrame:
			ended = f.StreamEnded()
		}
		if err != nil {
			return err
		}
	}
	gone := make(chan struct{})
	p.gone = gone
	go func() {
		defer close(gone)
		for {
			f, err := p.frames.ReadFrame()
			if _, reset := f.(*http2.RSTStreamFrame); reset || err != nil {
				return
			}
		}
	}()
	p.head = func(fields ...string) {
		var block strings.Builder
		enc := hpack.NewEncoder(&block)
		for _, f := range append([]string{":status: 200"}, fields...) {
			i := strings.LastIndex(f, ": ")
			if name := strings.ToLower(f[:i]); name != "connection" && name != "transfer-encoding" {
				_ = enc.WriteField(hpack.HeaderField{Name: name, Value: f[i+2:]}) // a Builder takes everything
			}
		}
		_ = p.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: p.stream, BlockFragment: []byte(block.String()), EndHeaders: true})
	}
	return nil
}

// say writes a part of the body: a chunk, or a frame.
func (p *providerConn) say(s string) {
	if p.frames != nil {
		_ = p.frames.WriteData(p.stream, false, []byte(s)) // callgate may be gone
		return
	}
	fmt.Fprintf(p.tls, "%x\r\n%s\r\n", len(s), s)
}

const (
	chunkHead = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":`
	chunkTail = `,"finish_reason":null}]}` + "\n\n"
	streamEnd = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
)

// wordEvent is an event of a stream with one word.
func wordEvent(word string) string {
	return chunkHead + `{"role":"assistant","content":"` + word + `"}` + chunkTail
}

// cutAnswer is one of the things that may be asked for and break off.
type cutAnswer struct {
	name, path, kind, ask string
	begin, rest           string // of a whole answer
}

var cutAnswers = []cutAnswer{
	{"a stream", "/v1/chat/completions", "text/event-stream", strings.Replace(bodyOf, "{", `{"stream":true,`, 1), wordEvent("one") + wordEvent("two"), streamEnd},
	{"a document", "/v1/chat/completions", "application/json", bodyOf,
		`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"one two"`,
		`},"finish_reason":"stop"}]}`},
	{"a list that is not gated", "/v1/models", "application/json", "", `{"object":"list","data":[`, `]}`},
}

// flows says that the beginning is with the client before there is an end.
func (a cutAnswer) flows() bool { return a.kind == "text/event-stream" }

func (a cutAnswer) request(ctx context.Context, g *rig) *http.Request {
	method := http.MethodPost
	if a.ask == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(ctx, method, g.at(a.path), strings.NewReader(a.ask))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// However a provider breaks off, the client sees that it did, or is told so by
// a status. It never gets an end that looks like one.
func TestEveryWayOfBreakingOffIsSeen(t *testing.T) {
	const chunked = "Transfer-Encoding: chunked"
	reset := func(p *providerConn) {
		_ = p.tcp.SetLinger(0)
		p.tcp.Close()
	}
	ends := []struct {
		name, proto string
		field       string // beside the content type
		plain       bool   // the body has no chunks of its own
		end         func(p *providerConn, a cutAnswer)
		whole       bool
	}{
		{"a reset of the connection", "http/1.1", chunked, false, func(p *providerConn, _ cutAnswer) { reset(p) }, false},
		{"no further chunk, and an end without notice", "http/1.1", chunked, false, func(p *providerConn, _ cutAnswer) { p.tcp.Close() }, false},
		{"no further chunk, and an end of TLS", "http/1.1", chunked, false, func(p *providerConn, _ cutAnswer) { p.tls.Close() }, false},
		{"half a chunk", "http/1.1", chunked, false, func(p *providerConn, a cutAnswer) {
			fmt.Fprintf(p.tls, "%x\r\n%s", len(a.rest)+1, a.rest)
			p.tls.Close()
		}, false},
		{"a chunk without a size", "http/1.1", chunked, false, func(p *providerConn, a cutAnswer) {
			fmt.Fprintf(p.tls, "x\r\n%s\r\n0\r\n\r\n", a.rest)
			p.tls.Close()
		}, false},
		{"the last chunk without its end", "http/1.1", chunked, false, func(p *providerConn, _ cutAnswer) {
			io.WriteString(p.tls, "0\r\n")
			p.tls.Close()
		}, false},
		{"fewer bytes than were said", "http/1.1", "Content-Length: 100000", true, func(p *providerConn, _ cutAnswer) { p.tls.Close() }, false},
		{"a body until the end, that comes within a record", "http/1.1", "Connection: close", true, func(p *providerConn, _ cutAnswer) {
			p.tcp.Write([]byte{0x17, 3, 3, 0, 200, 1, 2, 3})
			p.tcp.Close()
		}, false},
		{"a body until the end, and a reset", "http/1.1", "Connection: close", true, func(p *providerConn, _ cutAnswer) { reset(p) }, false},
		{"a fatal alert", "http/1.1", "Connection: close", true, func(p *providerConn, _ cutAnswer) {
			p.tcp.Write([]byte{0x15, 3, 3, 0, 2, 2, 80}) // in clear, where none may be
			p.tcp.Close()
		}, false},
		{"a stream that is cancelled", "h2", "", false, func(p *providerConn, _ cutAnswer) {
			_ = p.frames.WriteRSTStream(p.stream, http2.ErrCodeCancel)
		}, false},
		{"a stream that is reset without an error", "h2", "", false, func(p *providerConn, _ cutAnswer) {
			_ = p.frames.WriteRSTStream(p.stream, http2.ErrCodeNo)
		}, false},
		{"a stream that fails", "h2", "", false, func(p *providerConn, _ cutAnswer) {
			_ = p.frames.WriteRSTStream(p.stream, http2.ErrCodeInternal)
		}, false},
		{"a farewell and an end", "h2", "", false, func(p *providerConn, _ cutAnswer) {
			_ = p.frames.WriteGoAway(p.stream, http2.ErrCodeNo, nil)
			p.tls.Close()
		}, false},
		{"an end of the connection without notice", "h2", "", false, func(p *providerConn, _ cutAnswer) { p.tcp.Close() }, false},
		{"a reset of the connection under a stream", "h2", "", false, func(p *providerConn, _ cutAnswer) { reset(p) }, false},
		{"fewer bytes of a stream than were said", "h2", "Content-Length: 100000", false, func(p *providerConn, _ cutAnswer) {
			_ = p.frames.WriteData(p.stream, true, nil)
		}, false},
		{"half a frame", "h2", "", false, func(p *providerConn, _ cutAnswer) {
			_, _ = p.tls.Write([]byte{0, 0, 100, 0, 1, 0, 0, 0, byte(p.stream), 'x'})
			p.tls.Close()
		}, false},

		// What is whole is seen to be, or the cases above prove nothing.
		{"the last chunk", "http/1.1", chunked, false, func(p *providerConn, a cutAnswer) {
			p.say(a.rest)
			io.WriteString(p.tls, "0\r\n\r\n")
		}, true},
		{"the end of a body that lasts until then", "http/1.1", "Connection: close", true, func(p *providerConn, a cutAnswer) {
			io.WriteString(p.tls, a.rest)
			p.tls.Close()
		}, true},
		{"the end of a stream", "h2", "", false, func(p *providerConn, a cutAnswer) {
			_ = p.frames.WriteData(p.stream, true, []byte(a.rest))
		}, true},
	}
	for _, e := range ends {
		for _, a := range cutAnswers {
			for _, c := range spoken {
				t.Run(e.name+"/"+a.name+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					seen := make(chan bool)
					g := newRawRig(t, e.proto, func(p *providerConn) {
						fields := []string{"Content-Type: " + a.kind}
						if e.field != "" {
							fields = append(fields, e.field)
						}
						p.head(fields...)
						if e.plain {
							io.WriteString(p.tls, a.begin)
						} else {
							p.say(a.begin)
						}
						if a.flows() {
							<-seen // what was said before must not be lost with it
						}
						e.end(p, a)
					})
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					resp, err := c.client(g).Do(a.request(ctx, g))
					if err != nil {
						close(seen)
						if a.flows() || e.whole || ctx.Err() != nil {
							t.Errorf("no answer: %v", err)
						}
						return
					}
					defer resp.Body.Close()
					var body []byte
					if a.flows() {
						body = make([]byte, len(a.begin))
						if _, err := io.ReadFull(resp.Body, body); err != nil || string(body) != a.begin {
							t.Errorf("the beginning is %q, %v", body, err)
						}
					}
					close(seen)
					rest, err := io.ReadAll(resp.Body)
					body = append(body, rest...)
					switch looks := err == nil && resp.StatusCode == http.StatusOK; {
					case ctx.Err() != nil:
						t.Errorf("nobody told the client, which has %q", body)
					case looks != e.whole:
						t.Errorf("status %d, %q, %v", resp.StatusCode, body, err)
					case e.whole && string(body) != a.begin+a.rest:
						t.Errorf("the client has %q", body)
					}
				})
			}
		}
	}
}

// crypto/tls takes the end of a connection between two records for the end of
// TLS, and a body without a length ends with it. A document that is cut there is
// found to be none; of a stream no call that was not complete gets through.
func TestAnEndWithoutNoticeGivesNothingThatIsNotComplete(t *testing.T) {
	const half = `{"role":"assistant","tool_calls":[{"index":0,"id":"call_half","type":"function","function":{"name":"bash","arguments":"{\"command\":\"echo`
	for _, a := range cutAnswers[:2] {
		for _, c := range spoken {
			t.Run(a.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				g := newRawRig(t, "http/1.1", func(p *providerConn) {
					p.head("Content-Type: "+a.kind, "Connection: close")
					io.WriteString(p.tls, a.begin)
					if a.flows() {
						io.WriteString(p.tls, chunkHead+half+`"}}]}`+chunkTail)
					}
					p.tcp.Close()
				})
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				resp, err := c.client(g).Do(a.request(ctx, g))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if !a.flows() && err == nil && resp.StatusCode == http.StatusOK {
					t.Errorf("half a document is taken for one: %q", body)
				}
				if strings.Contains(string(body), "call_half") || ctx.Err() != nil {
					t.Errorf("status %d, %q, %v", resp.StatusCode, body, err)
				}
			})
		}
	}
}

// A client that is gone is no reason to have the provider go on.
func TestEveryHangUpReachesTheProvider(t *testing.T) {
	moments := []struct {
		name string
		said string // before the client goes; "" is before the answer begins
	}{
		{"before the answer begins", ""},
		{"in the midst of words", wordEvent("one")},
		{"in the midst of a call", chunkHead + `{"role":"assistant","tool_calls":[{"index":0,"id":"call_x","type":"function","function":{"name":"bash","arguments":"{\"comm"}}]}` + chunkTail},
	}
	for _, proto := range []string{"http/1.1", "h2"} {
		for _, m := range moments {
			for _, s := range spoken {
				t.Run(fmt.Sprintf("%s, a provider of %s/%s", m.name, proto, s.name), func(t *testing.T) {
					t.Parallel()
					began, ended := make(chan bool, 1), make(chan bool, 1)
					g := newRawRig(t, proto, func(p *providerConn) {
						if m.said != "" {
							p.head("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
							p.say(m.said)
						}
						began <- true
						select {
						case <-p.gone:
							ended <- true
						case <-p.over:
						}
					})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() {
						<-began
						cancel()
					}()
					resp, err := s.client(g).Do(cutAnswers[0].request(ctx, g))
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					if err == nil {
						t.Error("the answer had an end")
					}
					select {
					case <-ended:
					case <-time.After(patience):
						t.Error("the provider was not told")
					}
				})
			}
		}
	}
}

// Each event and each line is with the client before the provider says the next.
func TestEventsAndLinesFlowFromTheProviderAtOnce(t *testing.T) {
	const parts = 5
	line := func(i int) string { return fmt.Sprintf(`{"id":"model-%d"}`+"\n", i) }
	tests := []struct {
		name, kind string
		cutAnswer
		part func(i int) string
		end  string
	}{
		{"events", "text/event-stream", cutAnswers[0], func(i int) string { return wordEvent(fmt.Sprint("word ", i)) }, streamEnd},
		{"lines", "application/x-ndjson", cutAnswers[2], line, ""},
	}
	for _, proto := range []string{"http/1.1", "h2"} {
		for _, tt := range tests {
			for _, s := range spoken {
				t.Run(fmt.Sprintf("%s, a provider of %s/%s", tt.name, proto, s.name), func(t *testing.T) {
					t.Parallel()
					more := make(chan bool)
					g := newRawRig(t, proto, func(p *providerConn) {
						p.head("Content-Type: "+tt.kind, "Transfer-Encoding: chunked")
						for i := range parts {
							p.say(tt.part(i))
							select {
							case <-more:
							case <-p.over:
								return
							}
						}
						if tt.end != "" {
							p.say(tt.end)
						}
						if p.frames != nil {
							_ = p.frames.WriteData(p.stream, true, nil)
						} else {
							io.WriteString(p.tls, "0\r\n\r\n")
						}
					})
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					resp, err := s.client(g).Do(tt.request(ctx, g))
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					for i := range parts {
						want := tt.part(i)
						got := make([]byte, len(want))
						if n, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
							t.Fatalf("part %d is %q, %v", i, got[:n], err)
						}
						select {
						case more <- true:
						case <-ctx.Done():
							t.Fatal("the provider does not go on")
						}
					}
					if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != tt.end {
						t.Errorf("the end is %q, %v", rest, err)
					}
				})
			}
		}
	}
}
