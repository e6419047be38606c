package proxy

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"callgate/gate"
	"callgate/inspect"
	"callgate/proxy/egress"
	"callgate/proxy/telemetry"
)

func encoder(t testing.TB, coding string, w io.Writer) io.WriteCloser {
	t.Helper()
	switch coding {
	case "gzip":
		return gzip.NewWriter(w)
	case "br":
		return brotli.NewWriter(w)
	case "zstd":
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	t.Fatalf("there is no coding %s", coding)
	return nil
}

func encode(t testing.TB, coding, s string) []byte {
	t.Helper()
	if coding == "" || coding == "identity" || strings.Contains(coding, ",") {
		return []byte(s)
	}
	var b bytes.Buffer
	w := encoder(t, coding, &b)
	io.WriteString(w, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCodedAnswersAreReadAndGivenOutPlain(t *testing.T) {
	for _, coding := range []string{"gzip", "br", "zstd", "identity", "GZIP", "x-gzip"} {
		for _, kind := range []string{sse, asJSON} {
			bubble(t, func(t *testing.T) {
				answer := "T hello\nC sh ls\nC sh never\nE\n"
				r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
					if got := q.Header.Get("Accept-Encoding"); got != "identity" {
						t.Errorf("the provider was asked for %q", got)
					}
					w.Header().Set("Content-Encoding", coding)
					w.Header().Set("Etag", `"x"`)
					w.Header().Set("Content-Digest", "sha-256=:x:")
					w.Header().Set("Alt-Svc", `h3=":443"`)
					w.Header().Set("X-Request-Id", "r1")
					w.Header().Set("Content-Type", kind)
					w.Write(encode(t, strings.TrimPrefix(strings.ToLower(coding), "x-"), answer))
				})
				defer r.end()
				resp := r.post(t, "/v1/lines", "ask", "Accept-Encoding", "gzip, br, zstd")
				got := text(t, resp)
				if !strings.HasPrefix(got, "T hello\nC sh ls\nR [callgate]") || strings.Contains(got, "C sh never") {
					t.Errorf("%s %s: %q", coding, kind, got)
				}
				for _, h := range []string{"Content-Encoding", "Etag", "Content-Digest", "Alt-Svc", "Trailer"} {
					if v := resp.Header.Get(h); v != "" {
						t.Errorf("%s: %s is %q", coding, h, v)
					}
				}
				if resp.Header.Get("X-Request-Id") != "r1" {
					t.Error("a header of the provider is lost")
				}
			})
		}
	}
}

func TestCodedStreamsFlow(t *testing.T) {
	for _, coding := range []string{"gzip", "br", "zstd"} {
		bubble(t, func(t *testing.T) {
			next := make(chan struct{})
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Content-Encoding", coding)
				w.Header().Set("Content-Type", sse)
				z := encoder(t, coding, w)
				for _, line := range []string{"T one\n", "C sh ls\n", "T two\nE\n"} {
					io.WriteString(z, line)
					z.(interface{ Flush() error }).Flush()
					w.(http.Flusher).Flush()
					<-next
				}
				z.Close()
			})
			defer r.end()
			resp := r.post(t, "/v1/lines", "ask")
			defer resp.Body.Close()
			body := reader{t, bufio.NewReader(resp.Body)}
			body.want("T one\n")
			next <- struct{}{}
			body.want("C sh ls\n")
			next <- struct{}{}
			body.want("T two\n")
			next <- struct{}{}
			body.want("E\n")
			body.end()
		})
	}
}

// A coded answer that ends too soon ends as HTTP says it should, so that only
// the decoder can know.
func TestACodedAnswerThatEndsTooSoonIsACut(t *testing.T) {
	for _, coding := range []string{"gzip", "br", "zstd"} {
		for _, kind := range []string{sse, asJSON} {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
					w.Header().Set("Content-Encoding", coding)
					w.Header().Set("Content-Type", kind)
					all := encode(t, coding, "T one\nT two\nT three\nC sh ls\nE\n")
					w.Write(all[:len(all)-3])
				})
				defer r.end()
				req, _ := http.NewRequest("POST", "http://gate.test/v1/lines", strings.NewReader("ask"))
				resp, err := r.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				if err == nil && resp.StatusCode == 200 {
					t.Errorf("%s %s: a clean end behind %q", coding, kind, b)
				}
			})
		}
	}
}

func TestAnswersThatCannotBeReadAreWithheld(t *testing.T) {
	for _, c := range []struct {
		name   string
		header http.Header
		status int
		body   string
		says   string
	}{
		{"stacked codings", http.Header{"Content-Encoding": {"gzip, br"}}, 200, "x", "gzip, br is not read"},
		{"codings in two headers", http.Header{"Content-Encoding": {"gzip", "gzip"}}, 200, "x", "is not read"},
		{"deflate", http.Header{"Content-Encoding": {"deflate"}}, 200, "x", "deflate is not read"},
		{"a dictionary coding", http.Header{"Content-Encoding": {"dcz"}}, 200, "x", "dcz is not read"},
		{"a coding that lies", http.Header{"Content-Encoding": {"gzip"}}, 200, "T not gzip\nE\n", "broke off"},
		{"no content type", http.Header{"Content-Type": nil}, 200, "T a\nE\n", "no content type"},
		{"a web page", http.Header{"Content-Type": {"text/html"}}, 200, "T a\nE\n", "text/html"},
		{"another character set", http.Header{"Content-Type": {"application/json; charset=utf-16"}}, 200, "T a\nE\n", "utf-16"},
		{"a permanent redirect", http.Header{"Location": {"https://evil.example/"}}, 308, "", "redirect"},
		{"a temporary redirect", http.Header{"Location": {"/v1/other"}}, 307, "", "redirect"},
		{"not modified", nil, 304, "", "redirect"},
		{"a part", http.Header{"Content-Range": {"bytes 0-3/9"}}, 206, "T a\n", "part"},
		{"a status without a body that has one", nil, 205, "T a\nC sh danger\nE\n", "status 205"},
		{"a character set by another way", http.Header{"Content-Type": {"application/json; charset*=utf-7''"}}, 200, "T a\nE\n", "utf-7"},
		{"a character set with a quoted name", http.Header{"Content-Type": {`application/json; "charset"=utf-7`}}, 200, "T a\nE\n", "utf-7"},
		{"what the dialect does not open", http.Header{"X-Unopened": {"1"}}, 200, "T a\nE\n", "cannot be opened"},
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				io.Copy(io.Discard, q.Body)
				w.Header()["Content-Type"] = []string{asJSON}
				for k, v := range c.header {
					w.Header()[k] = v
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			defer r.end()
			resp := r.post(t, "/v1/lines", "ask")
			got := text(t, resp)
			if resp.StatusCode != 502 || !strings.HasPrefix(got, `{"lines":"callgate: `) || !strings.Contains(got, c.says) || resp.Header.Get("Location") != "" {
				t.Errorf("%s: %d %q", c.name, resp.StatusCode, got)
			}
			if e := r.journal.by("proxy"); c.name != "a coding that lies" && len(e) != 1 {
				t.Errorf("%s: %d entries in the audit log", c.name, len(e))
			}
		})
	}
}

func TestCodedRequestsAreReadAndForwardedAsTheyCame(t *testing.T) {
	for _, coding := range []string{"gzip", "br", "zstd", "identity"} {
		bubble(t, func(t *testing.T) {
			sent := encode(t, coding, "ask "+strings.Repeat("x", 5000))
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				b, _ := io.ReadAll(q.Body)
				if !bytes.Equal(b, sent) || q.Header.Get("Content-Encoding") != coding || q.ContentLength != int64(len(sent)) {
					t.Errorf("%s: the provider got %d bytes, coding %q", coding, len(b), q.Header.Get("Content-Encoding"))
				}
				say(sse, "E\n")(w, q)
			})
			defer r.end()
			if got := text(t, r.do(t, "POST", "/v1/lines", bytes.NewReader(sent), "Content-Encoding", coding)); got != "E\n" {
				t.Errorf("%s: %q", coding, got)
			}
		})
	}
}

func TestRequestsThatCannotBeReadAreNotForwarded(t *testing.T) {
	bomb := string(encode(t, "zstd", "ask"+strings.Repeat("\x00", 1<<20)))
	for _, c := range []struct {
		name, coding, body string
		status             int
		says               string
	}{
		{"stacked codings", "gzip, gzip", "ask", 415, "is not read"},
		{"an unknown coding", "compress", "ask", 415, "compress is not read"},
		{"a coding that lies", "gzip", "ask", 400, "not gzip"},
		{"a cut coding", "gzip", string(encode(t, "gzip", "ask"+strings.Repeat("y", 900)))[:12], 400, "not gzip"},
		{"a bomb", "zstd", bomb, 413, "decoded request body is larger"},
		{"what the dialect does not read", "", "no", 400, "does not begin with ask"},
		{"nothing", "", "", 400, "does not begin with ask"},
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) { t.Errorf("%s was forwarded", c.name) },
				func(p *Proxy) { p.Limits.RequestBody = 100 << 10 })
			defer r.end()
			resp := r.post(t, "/v1/lines", c.body, "Content-Encoding", c.coding)
			if got := text(t, resp); resp.StatusCode != c.status || !strings.HasPrefix(got, `{"lines":`) || !strings.Contains(got, c.says) {
				t.Errorf("%s: %d %q", c.name, resp.StatusCode, got)
			}
		})
	}
}

func TestErrorsOfTheProviderPassUnchanged(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 413, 429, 500, 503, 529} {
		for _, path := range []string{"/v1/lines", "/v1/unknown", "/v1/models"} {
			for _, coding := range []string{"", "gzip"} {
				bubble(t, func(t *testing.T) {
					body := encode(t, coding, `{"error":{"message":"no 'tool_calls' here","param":"messages.0.tool_calls"}}`)
					if status == 404 {
						body = nil
					}
					r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
						io.Copy(io.Discard, q.Body)
						w.Header().Set("Content-Type", asJSON)
						if coding != "" {
							w.Header().Set("Content-Encoding", coding)
						}
						w.Header().Set("Retry-After", "17")
						w.Header().Set("X-Ratelimit-Remaining", "0")
						w.WriteHeader(status)
						w.Write(body)
					})
					defer r.end()
					method := "POST"
					if path == "/v1/models" {
						method = "GET"
					}
					resp := r.do(t, method, path, strings.NewReader("ask"))
					if got := text(t, resp); got != string(body) || resp.StatusCode != status || resp.Header.Get("Retry-After") != "17" ||
						resp.Header.Get("X-Ratelimit-Remaining") != "0" || resp.Header.Get("Content-Encoding") != coding || resp.ContentLength != int64(len(body)) {
						t.Errorf("%s %d: %d %v", path, status, resp.StatusCode, resp.Header)
					}
				})
			}
		}
	}
}

// Clients that do not look at the status read calls out of an error too.
func TestErrorsThatHoldCallsOrCannotBeSearchedAreReplaced(t *testing.T) {
	call := `{"choices":[{"message":{"tool_calls":[{"id":"a"}]}}]}`
	for _, c := range []struct{ name, kind, coding, body, says string }{
		{"a call", asJSON, "", call, "call-shaped content (tool_calls)"},
		{"a call in a stream", sse, "", "data: " + call + "\n\n", "call-shaped content (tool_calls)"},
		{"a call, coded", asJSON, "gzip", call, "call-shaped content (tool_calls)"},
		{"a coding that is not read", asJSON, "gzip, gzip", call, "is not read"},
		{"a coding that lies", asJSON, "br", "", "is not br"},
		{"more than is searched", asJSON, "", strings.Repeat(" ", maxError+1), "larger than the limit of 1048576"},
		{"more than is searched, coded", asJSON, "zstd", strings.Repeat(" ", maxError+1), "larger than the limit of 1048576"},
		{"a form that is not searched", "application/xml", "", "<a/>", "application/xml"},
		{"another character set", "application/json; charset=utf-7", "", "{}", "utf-7"},
	} {
		for path, form := range map[string]string{"/v1/lines": `{"lines":"callgate: `, "/v1/unknown": `{"type":"error"`} {
			for _, status := range []int{400, 429, 500, 600} {
				bubble(t, func(t *testing.T) {
					body := encode(t, c.coding, c.body)
					if c.name == "a coding that lies" {
						body = []byte("plain")
					}
					r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
						io.Copy(io.Discard, q.Body)
						w.Header().Set("Content-Type", c.kind)
						if c.coding != "" {
							w.Header().Set("Content-Encoding", c.coding)
						}
						w.Header().Set("Retry-After", "17")
						w.Header().Set("X-Calls", "x")
						w.WriteHeader(status)
						w.Write(body)
					})
					defer r.end()
					resp := r.post(t, path, "ask")
					got := text(t, resp)
					if resp.StatusCode != status || !strings.HasPrefix(got, form) || !strings.Contains(got, c.says) || strings.Contains(got, `"id"`) {
						t.Errorf("%s: %s %d: %d %q", c.name, path, status, resp.StatusCode, got)
					}
					if resp.Header.Get("Retry-After") != "17" || resp.Header.Get("X-Calls") != "" || resp.Header.Get("Content-Encoding") != "" {
						t.Errorf("%s: %v", c.name, resp.Header)
					}
					if e := r.journal.by("proxy"); len(e) != 1 {
						t.Errorf("%s: %d entries in the audit log", c.name, len(e))
					}
				})
			}
		}
	}
}

func TestNoContentHasNoContent(t *testing.T) {
	for _, path := range []string{"/v1/lines", "/v1/unknown"} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				io.Copy(io.Discard, q.Body)
				w.Header().Set("X-Request-Id", "r1")
				w.WriteHeader(204)
			})
			defer r.end()
			resp := r.post(t, path, "ask")
			if got := text(t, resp); resp.StatusCode != 204 || got != "" || resp.Header.Get("X-Request-Id") != "r1" {
				t.Errorf("%s: %d %v %q", path, resp.StatusCode, resp.Header, got)
			}
		})
	}
}

func TestAnErrorThatIsCutIsAnErrorOfTheSameStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", asJSON)
			w.WriteHeader(500)
			cutAfter(asJSON, `{"error":`)(w, q)
		})
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		if got := text(t, resp); resp.StatusCode != 500 || !strings.Contains(got, "broke off") {
			t.Errorf("%d %q", resp.StatusCode, got)
		}
	})
}

func TestAProviderThatIsNotThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.end()
		r.provL.Close()
		for _, path := range []string{"/v1/lines", "/v1/unknown"} {
			resp := r.post(t, path, "ask")
			if got := text(t, resp); resp.StatusCode != 502 || !strings.Contains(got, "could not be reached") || !strings.Contains(got, "refused") {
				t.Errorf("%s: %d %q", path, resp.StatusCode, got)
			}
		}
	})
}

func TestHarmlessAnswersStreamThroughAsTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T) {
		next := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Etag", "x")
			io.WriteString(w, `first "tool_calls":[1] `)
			w.(http.Flusher).Flush()
			<-next
			io.WriteString(w, "second")
		})
		defer r.end()
		resp := r.do(t, "GET", "/v1/models", nil)
		first := make([]byte, 23)
		if _, err := io.ReadFull(resp.Body, first); err != nil {
			t.Fatal(err)
		}
		close(next)
		if got := string(first) + text(t, resp); got != `first "tool_calls":[1] second` || resp.Header.Get("Etag") != "x" {
			t.Errorf("%q", got)
		}
	})
}

// A trace tells of a request through the real proxy.
func TestARequestIsTraced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rec := tracetest.NewSpanRecorder()
		tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(rec)).Tracer("test")
		var sent string
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			sent = q.Header.Get("Traceparent")
			say(sse, "C sh danger\nC sh ls\nE\n")(w, q)
		}, func(p *Proxy) { p.Telemetry = telemetry.New(tracer) })
		defer r.end()
		resp := r.post(t, "/main/v1/lines", "ask", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		q := <-r.person
		if q.req.Trace != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("the gate was told of trace %q", q.req.Trace)
		}
		q.say(gate.Allow)
		text(t, resp)
		synctest.Wait()
		var names []string
		for _, s := range rec.Ended() {
			names = append(names, s.Name())
			if s.SpanContext().TraceID().String() != q.req.Trace {
				t.Errorf("%s is of another trace", s.Name())
			}
		}
		slices.Sort(names)
		if got := strings.Join(slices.Compact(names), " "); !strings.Contains(got, "decision") || !strings.Contains(got, "request") || !strings.Contains(got, "upstream") {
			t.Errorf("spans: %s", got)
		}
		if !strings.HasPrefix(sent, "00-0af7651916cd43dd8448eb211c80319c-") {
			t.Errorf("the provider was sent %q", sent)
		}
	})
}

// Neither credentials nor arguments may stand in the log.
func TestTheLogHoldsNoSecrets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var log bytes.Buffer
		r := newRig(t, say(sse, "T a\nC sh never SECRETARG\n", "X\n"), func(p *Proxy) {
			p.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		text(t, r.post(t, "/main/v1/lines", "ask SECRETBODY", "Authorization", "Bearer SECRETKEY", "X-Api-Key", "SECRETKEY"))
		text(t, r.post(t, "/main/v1/unknown?key=SECRETKEY", "ask", "Authorization", "Bearer SECRETKEY"))
		r.end()
		if got := log.String(); strings.Contains(got, "SECRET") || !strings.Contains(got, "call withheld") || !strings.Contains(got, "it is broken") {
			t.Errorf("the log is %s", got)
		}
	})
}

func TestHeadIsHarmless(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) { w.Header().Set("Content-Length", "12") })
		defer r.end()
		resp := r.do(t, "HEAD", "/main/v1/lines", nil)
		if resp.StatusCode != 200 || resp.ContentLength != 12 {
			t.Errorf("%d, length %d", resp.StatusCode, resp.ContentLength)
		}
		text(t, resp)
	})
}

func TestABodyThatStandsStillIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("it was forwarded") })
		defer r.end()
		c, err := r.proxyL.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go io.WriteString(c, "POST /v1/lines HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nask")
		if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
			t.Errorf("the client got %q, %v", b, err)
		}
	})
}

func TestBigBodiesBothWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ask := "ask" + strings.Repeat("0123456789abcdef", 200<<10) // 3.2 MB
		answer := strings.Repeat("T "+strings.Repeat("y", 70_000)+"\n", 40) + "E\n"
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			if b, _ := io.ReadAll(q.Body); string(b) != ask {
				t.Errorf("the provider got %d bytes", len(b))
			}
			say(sse, answer)(w, q)
		})
		defer r.end()
		for range 3 { // buffers are used again
			if got := text(t, r.post(t, "/v1/lines", ask)); got != answer {
				t.Errorf("the client got %d bytes", len(got))
			}
		}
	})
}

// A pooled body must never be overwritten while it is still being sent.
func TestRequestsSideBySideDoNotMix(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			b, _ := io.ReadAll(q.Body)
			w.Header().Set("Content-Type", asJSON)
			fmt.Fprintf(w, "T %s\nE\n", b[:min(len(b), 200)])
		})
		defer r.end()
		done := make(chan string, 40)
		for i := range 40 {
			go func() {
				body := "ask" + strings.Repeat(strconv.Itoa(i%10), 1000*(i+1))
				got := text(t, r.post(t, "/v1/lines", body))
				if got != "T "+body[:200]+"\nE\n" {
					done <- got
					return
				}
				done <- ""
			}()
		}
		for range 40 {
			if bad := <-done; bad != "" {
				t.Errorf("mixed up: %q", bad)
			}
		}
	})
}

func TestUnknownEndpointsCanBeRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("it was forwarded") }, func(p *Proxy) { p.Unknown = Refuse })
		defer r.end()
		resp := r.post(t, "/v1/responses", "{}")
		if got := text(t, resp); resp.StatusCode != 403 || !strings.Contains(got, "unknown_endpoints") {
			t.Errorf("%d %q", resp.StatusCode, got)
		}
	})
}

// The provider speaks HTTP/2 over TLS, through the real transport.
func TestAProviderThatSpeaksHTTP2(t *testing.T) {
	prov := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.ProtoMajor != 2 {
			t.Errorf("the provider was spoken to in %s", q.Proto)
		}
		say(sse, "T a\nC sh ls\n", "C sh never\nE\n")(w, q)
	}))
	prov.EnableHTTP2 = true
	prov.StartTLS()
	defer prov.Close()
	roots := x509.NewCertPool()
	roots.AddCert(prov.Certificate())
	base, _ := url.Parse(prov.URL)
	ups := map[string]*Upstream{"main": {Name: "main", URL: base}}
	transport := egress.New(egress.Options{Roots: roots, AllowPrivate: PrivateHosts(ups)})
	defer transport.CloseIdleConnections()
	r := newRig(t, nil, func(p *Proxy) { p.Upstreams, p.Transport = ups, transport })
	defer r.end()
	for range 2 {
		got := text(t, r.post(t, "/v1/lines", "ask"))
		if !strings.HasPrefix(got, "T a\nC sh ls\nR [callgate]") || !strings.HasSuffix(got, "\nE\n") {
			t.Errorf("%q", got)
		}
	}
}

// The agent speaks HTTP/2: the write deadline must not end a quiet stream, be
// it quiet because of the provider or because of a person.
func TestAnAgentThatSpeaksHTTP2(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			say(sse, "T a\n")(w, q)
			<-time.After(4 * time.Minute)
			say(sse, "C sh danger\n", "E\n")(w, q)
		}, func(p *Proxy) { p.KeepAlive = 3 * time.Minute })
		defer r.end()
		var h2 http.Protocols
		h2.SetUnencryptedHTTP2(true)
		l := newPipes()
		front := &http.Server{Handler: r.p, Protocols: &h2}
		go front.Serve(l)
		defer front.Close()
		in := &http.Transport{DialContext: l.dial, Protocols: &h2}
		defer in.CloseIdleConnections()
		resp, err := (&http.Client{Transport: in}).Post("http://gate.test/v1/lines", asJSON, strings.NewReader("ask"))
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Errorf("the agent was answered in %s", resp.Proto)
		}
		go func() {
			q := <-r.person
			<-time.After(10 * time.Minute)
			q.say(gate.Allow)
		}()
		if got := text(t, resp); got != "T a\nK\nK\nK\nC sh danger\nE\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestOwnListenersAreNotReachedThroughAnUpstream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	base, _ := url.Parse("http://" + l.Addr().String())
	ups := map[string]*Upstream{"main": {Name: "main", URL: base, AllowPrivate: true}}
	own := l.Addr().(*net.TCPAddr).AddrPort()
	transport := egress.New(egress.Options{Own: []netip.AddrPort{own}, AllowPrivate: PrivateHosts(ups)})
	p := &Proxy{Upstreams: ups, Defaults: map[string]string{OpenAI: "main"}, Dialects: []inspect.Dialect{lines{}}, Transport: transport}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("POST", "/v1/lines", strings.NewReader("ask")))
	var body struct{ Lines string }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 502 || !strings.Contains(body.Lines, "callgate's own listener") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
