package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"callgate/gate"
	"callgate/inspect"
	"callgate/proxy/repair"
)

// shelf is a store of repairs in memory.
type shelf struct {
	mu     sync.Mutex
	bodies map[int64][]byte
	broken error
	kept   int
}

func (s *shelf) Repairs(context.Context, func(int64, string, []byte, time.Time, bool) error) error {
	return nil
}

func (s *shelf) KeepRepair(_ context.Context, replace int64, _ string, _, body []byte, _ time.Time) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return 0, s.broken
	}
	s.kept++
	if replace == 0 {
		replace = int64(len(s.bodies) + 1)
	}
	if s.bodies == nil {
		s.bodies = map[int64][]byte{}
	}
	s.bodies[replace] = body
	return replace, nil
}

func (s *shelf) RepairBody(_ context.Context, id int64) ([]byte, error) { return s.bodies[id], nil }
func (s *shelf) UseRepairs(context.Context, []int64, time.Time) error   { return nil }
func (s *shelf) DropRepairs(context.Context, []int64, []int64) error    { return nil }

// resuming makes a rig's proxy ask the provider again.
func resuming(t testing.TB, s *shelf) func(*Proxy) {
	book, err := repair.Open(t.Context(), s, repair.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(p *Proxy) {
		p.Dialects, p.Repairs = []inspect.Dialect{lines{repair: true}}, book
	}
}

// script answers each request with the next answer, and remembers the bodies.
type script struct {
	mu      sync.Mutex
	answers []http.HandlerFunc
	asked   []string
	headers []http.Header
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	n := len(s.asked)
	s.asked, s.headers = append(s.asked, string(body)), append(s.headers, r.Header)
	s.mu.Unlock()
	if n >= len(s.answers) {
		http.Error(w, "asked too often", 500)
		return
	}
	s.answers[n](w, r)
}

var refused = regexp.MustCompile(`\[callgate\] The call to (\w+) did not run[^\n]*?(?:(?:says never|says danger|said the test)\.(?: Do not[^\n]*?user_consent=false)?|user_consent=false)`)

// short makes refusals easy to compare.
func short(s string) string { return refused.ReplaceAllString(s, "<$1 refused>") }

func fail(status int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Content-Type", asJSON)
		w.WriteHeader(status)
		io.WriteString(w, `{"error":"no"}`)
	}
}

func TestWhatTheModelSaysToARefusalGoesOnInTheSameAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		answers []http.HandlerFunc
		shown   string
		asked   int
		last    string // what the provider was asked last
	}{
		"denied once": {
			[]http.HandlerFunc{say(sse, "T one\nC sh never\nE\n"), say(sse, "T two\nE\n")},
			"T one\nT two\nE\n", 2, "askA id0\nR <sh refused>\n"},
		"denied twice, other calls": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), say(sse, "C rm never\nE\n"), say(sse, "T three\nE\n")},
			"T three\nE\n", 3, "askA id0\nR <sh refused>\nA id1\nR <rm refused>\n"},
		"an allowed call in a later round": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), say(sse, "C ls fine\nE\n")},
			"C ls fine\nE\n", 2, "askA id0\nR <sh refused>\n"},
		"both calls of a round": {
			[]http.HandlerFunc{say(sse, "C sh never\nC rm never\nE\n"), say(sse, "T ok\nE\n")},
			"T ok\nE\n", 2, "askA id0,id1\nR <sh refused>\nR <rm refused>\n"},
		"one of two: nothing is asked again": {
			[]http.HandlerFunc{say(sse, "C sh never\nC ls fine\nE\n")},
			"C ls fine\nE\n", 1, "ask"},
		"the same call again ends it": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), say(sse, "C sh never\nE\n")},
			"A <sh refused>  [callgate] The answer ends here: the model made the same call again.\n", 2, "askA id0\nR <sh refused>\n"},
		"the bound ends it": {
			[]http.HandlerFunc{say(sse, "C a never\nE\n"), say(sse, "C b never\nE\n"), say(sse, "C c never\nE\n"), say(sse, "C d never\nE\n"), say(sse, "C e never\nE\n"), say(sse, "C f never\nE\n")},
			"A <f refused>  [callgate] The answer ends here: the model was told 5 times within this answer, and each time it made another call that was refused.\n", 6,
			"askA id0\nR <a refused>\nA id1\nR <b refused>\nA id2\nR <c refused>\nA id3\nR <d refused>\nA id4\nR <e refused>\n"},
		"a provider that fails ends it": {
			[]http.HandlerFunc{say(sse, "T one\nC sh never\nE\n"), fail(500), fail(502), fail(500)},
			"T one\nA <sh refused>  [callgate] The answer ends here: the provider answered with status 500 when it was asked to go on.\n", 4, "askA id0\nR <sh refused>\n"},
		"a provider that fails once is asked again": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), fail(500), say(sse, "T two\nE\n")},
			"T two\nE\n", 3, "askA id0\nR <sh refused>\n"},
		"a conversation that is too long ends it": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), fail(400)},
			"A <sh refused>  [callgate] The answer ends here: the provider did not take the conversation with the refusal (status 400); it may have grown too long for the model.\n", 2, "askA id0\nR <sh refused>\n"},
		"a redirect ends it": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), fail(307, "Location", "http://elsewhere/")},
			"A <sh refused>  [callgate] The answer ends here: the provider answered with status 307 when it was asked to go on.\n", 2, "askA id0\nR <sh refused>\n"},
		"an answer of another form ends it": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), say(asJSON, "C sh never\nE\n")},
			"A <sh refused>  [callgate] The answer ends here: the provider's further answer cannot be read.\n", 2, "askA id0\nR <sh refused>\n"},
		"a pause that is asked for is made": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), fail(429, "Retry-After", "25"), say(sse, "T two\nE\n")},
			"K\nK\nT two\nE\n", 3, "askA id0\nR <sh refused>\n"},
		"a pause in milliseconds is made": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), fail(503, "Retry-After-Ms", "25", "Retry-After", "1000"), say(sse, "T two\nE\n")},
			"T two\nE\n", 3, "askA id0\nR <sh refused>\n"},
		"a pause that is too long is not made": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), fail(429, "Retry-After", "61")},
			"A <sh refused>  [callgate] The answer ends here: the provider asks for a pause of 1m1s (status 429).\n", 2, "askA id0\nR <sh refused>\n"},
		"a provider that only ever asks for pauses ends it": {
			[]http.HandlerFunc{say(sse, "C sh never\nE\n"), fail(529), fail(529), fail(529)},
			"A <sh refused>  [callgate] The answer ends here: the provider answered with status 529 when it was asked to go on.\n", 4, "askA id0\nR <sh refused>\n"},
		"a later round that breaks off ends it well": {
			[]http.HandlerFunc{say(sse, "T one\nC sh never\nE\n"), func(w http.ResponseWriter, r *http.Request) {
				say(sse, "T two\n")(w, r)
				panic(http.ErrAbortHandler)
			}},
			"T one\nT two\nA [callgate] The answer ends here: the provider's further answer broke off.\n", 2, "askA id0\nR <sh refused>\n"},
		"a later round that cannot be read is withheld": {
			[]http.HandlerFunc{say(sse, "T one\nC sh never\nE\n"), say(sse, "X\n")},
			"T one\nA [callgate] The rest of the answer was withheld: lines: line X: it is broken\n", 2, "askA id0\nR <sh refused>\n"},
		"a document": {
			[]http.HandlerFunc{say(asJSON, "T one\nC sh never\nE\n"), say(asJSON, "T two\nE\n")},
			"T one\nT two\nE\n", 2, "askA id0\nR <sh refused>\n"},
		"a document whose provider fails ends well": {
			[]http.HandlerFunc{say(asJSON, "C sh never\nE\n"), fail(500), fail(500), fail(500)},
			"A <sh refused>  [callgate] The answer ends here: the provider answered with status 500 when it was asked to go on.\n", 4, "askA id0\nR <sh refused>\n"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{answers: tt.answers}
				r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}))
				defer r.end()
				resp := r.post(t, "/v1/lines", "ask", "Authorization", "Bearer k")
				if got := short(text(t, resp)); resp.StatusCode != 200 || got != tt.shown {
					t.Errorf("%d, shown\n%q, want\n%q", resp.StatusCode, got, tt.shown)
				}
				if len(s.asked) != tt.asked || short(s.asked[len(s.asked)-1]) != tt.last {
					t.Errorf("the provider was asked %d times, last\n%q, want %d and\n%q", len(s.asked), short(s.asked[len(s.asked)-1]), tt.asked, tt.last)
				}
				synctest.Wait()
				if used := r.p.memory.used.Load(); used != 0 {
					t.Errorf("%d bytes stay charged", used)
				}
			})
		})
	}
}

func TestAFurtherRequestIsNoRepetitionOfTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{answers: []http.HandlerFunc{say(sse, "C sh never\nE\n"), say(sse, "E\n")}}
		r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}))
		defer r.end()
		text(t, r.post(t, "/v1/lines", "ask", "Authorization", "Bearer k", "Idempotency-Key", "i", "X-Idempotency-Key", "i", "X-Request-Id", "x",
			"X-Client-Request-Id", "x", "Content-Md5", "m", "Digest", "d", "X-Stainless-Retry-Count", "1", "X-Session", "s"))
		h := s.headers[1]
		for _, gone := range []string{"Idempotency-Key", "X-Idempotency-Key", "X-Request-Id", "X-Client-Request-Id", "Content-Md5", "Digest", "X-Stainless-Retry-Count"} {
			if s.headers[0].Get(gone) == "" || h.Get(gone) != "" {
				t.Errorf("%s: %q, then %q", gone, s.headers[0].Get(gone), h.Get(gone))
			}
		}
		if h.Get("Authorization") != "Bearer k" || h.Get("X-Session") != "s" {
			t.Errorf("%v", h)
		}
	})
}

func TestAPackedRequestIsResumedPlain(t *testing.T) {
	for name, tt := range map[string]struct {
		coding string
		size   int
	}{"packed by the client": {"gzip", 100_000}, "packed while a person thinks": {"", 100_000}, "too large for the pool": {"", keepSize + 1}, "small": {"", 100}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{answers: []http.HandlerFunc{say(sse, "C sh danger\nE\n"), say(sse, "T two\nE\n")}}
				r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}))
				defer r.end()
				plain := "ask" + strings.Repeat("x", tt.size)
				resp := r.post(t, "/v1/lines", string(encode(t, tt.coding, plain)), "Authorization", "Bearer k", "Content-Encoding", tt.coding)
				q := <-r.person
				<-time.After(DefaultKeepAlive + time.Second)
				if used := r.p.memory.used.Load(); used > 10_000 {
					t.Errorf("%d bytes are kept while a person thinks", used)
				}
				q.say(gate.Deny)
				if got := text(t, resp); got != "K\nT two\nE\n" {
					t.Errorf("shown %q", got)
				}
				if len(s.asked) != 2 || !strings.HasPrefix(s.asked[1], plain+"A id0\nR [callgate]") || s.headers[1].Get("Content-Encoding") != "" {
					t.Errorf("asked again with %.40q… and the coding %q", s.asked[1], s.headers[1].Get("Content-Encoding"))
				}
				synctest.Wait()
				if used := r.p.memory.used.Load(); used != 0 {
					t.Errorf("%d bytes stay charged", used)
				}
			})
		})
	}
}

func TestTheClientIsKeptAliveWhileTheNextRoundIsSilent(t *testing.T) {
	for name, next := range map[string]http.HandlerFunc{
		"before its headers": func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(25 * time.Second)
			say(sse, "T two\nE\n")(w, r)
		},
		"behind its headers": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", sse)
			w.(http.Flusher).Flush()
			time.Sleep(25 * time.Second)
			io.WriteString(w, "T two\nE\n")
		},
		"but for pings of the provider": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", sse)
			for range 5 {
				io.WriteString(w, "T\n")
				w.(http.Flusher).Flush()
				time.Sleep(5 * time.Second)
			}
			io.WriteString(w, "T two\nE\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{answers: []http.HandlerFunc{say(sse, "T one\nC sh never\nE\n"), next}}
				r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}))
				defer r.end()
				if got := text(t, r.post(t, "/v1/lines", "ask", "Authorization", "Bearer k")); strings.ReplaceAll(got, "T\n", "") != "T one\nK\nK\nT two\nE\n" {
					t.Errorf("shown %q", got)
				}
			})
		})
	}
}

func TestACallOfALaterRoundIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{answers: []http.HandlerFunc{say(sse, "C sh never\nE\n"), say(sse, "C rm danger\nE\n"), say(sse, "C mv danger\nE\n")}}
		r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask", "Authorization", "Bearer k")
		q := <-r.person
		if q.req.Denials != 1 {
			t.Errorf("the gate hears of %d denials", q.req.Denials)
		}
		q.say(gate.Deny)
		q = <-r.person
		if q.req.Denials != 2 {
			t.Errorf("the gate hears of %d denials", q.req.Denials)
		}
		q.say(gate.Allow)
		if got := text(t, resp); got != "C mv danger\nE\n" {
			t.Errorf("shown %q", got)
		}
	})
}

func TestAClientThatHangsUpEndsTheFurtherRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ended := make(chan error, 1)
		store := &shelf{}
		s := &script{answers: []http.HandlerFunc{say(sse, "T one\nC sh never\nE\n"), func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			ended <- r.Context().Err()
		}}}
		r := newRig(t, s.ServeHTTP, resuming(t, store))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask", "Authorization", "Bearer k")
		b := make([]byte, 100)
		n, _ := resp.Body.Read(b)
		synctest.Wait()
		resp.Body.Close()
		if err := <-ended; err == nil || string(b[:n]) != "T one\n" {
			t.Errorf("%v, shown %q", err, b[:n])
		}
		if synctest.Wait(); store.kept != 2 || len(store.bodies) != 1 { // before the provider was asked, and when the client was gone
			t.Errorf("the refusal was stored %d times, in %d records", store.kept, len(store.bodies))
		}
	})
}

func TestWhatAClientWasShownThatHungUpIsRepaired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{answers: []http.HandlerFunc{
			say(sse, "C sh never\nE\n"), func(w http.ResponseWriter, r *http.Request) {
				say(sse, "C ls fine\nC rm danger\n")(w, r)
				<-r.Context().Done()
			},
			say(sse, "T end\nE\n"),
		}}
		store := &shelf{}
		r := newRig(t, s.ServeHTTP, resuming(t, store))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask\n", "Authorization", "Bearer k")
		<-r.person
		synctest.Wait()
		resp.Body.Close() // the user has had enough
		kept := func() int {
			store.mu.Lock()
			defer store.mu.Unlock()
			return store.kept
		}
		for range 100 {
			if synctest.Wait(); kept() == 2 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if kept() != 2 {
			t.Fatalf("what the client was shown was stored %d times, want before the provider was asked and when the client was gone", kept())
		}
		text(t, r.post(t, "/v1/lines", "ask\nA id1\nU no\n", "Authorization", "Bearer k"))
		if got := s.asked[2]; !strings.HasPrefix(short(got), "ask\nA id0\nR <sh refused>\nA id1,id2\n") {
			t.Errorf("the history goes out as %q", short(got))
		}
	})
}

func TestARepairThatIsTooLargeIsNotMade(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{answers: []http.HandlerFunc{say(sse, "C sh never "+strings.Repeat("x", 5000)+"\nC ls fine\nE\n")}}
		r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}), func(p *Proxy) {
			p.Limits.RequestBody = 1000
			p.Dialects = []inspect.Dialect{lines{repair: true, whole: true}}
		})
		defer r.end()
		text(t, r.post(t, "/v1/lines", "ask\n", "Authorization", "Bearer k"))
		resp := r.post(t, "/v1/lines", "ask\nA id1\nU done\n", "Authorization", "Bearer k")
		if got := text(t, resp); resp.StatusCode != 413 || len(s.asked) != 1 || !strings.Contains(got, "with the refused calls put back") {
			t.Errorf("%d %s, asked %d times", resp.StatusCode, got, len(s.asked))
		}
		synctest.Wait()
		if used := r.p.memory.used.Load(); used != 0 {
			t.Errorf("%d bytes stay charged", used)
		}
	})
}

func TestWhatAClientClaimsIsBounded(t *testing.T) {
	long := strings.Repeat("s", 10_000)
	if got := claimed(long); len(got) > maxClaim || got == claimed(long+"x") || claimed("short") != "short" {
		t.Errorf("%q", got)
	}
}

func TestTheNextRequestIsRepaired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{answers: []http.HandlerFunc{
			say(sse, "C sh never\nE\n"), say(sse, "C ls fine\nE\n"), // one turn
			say(sse, "C rm danger\nE\n"), say(sse, "T end\nE\n"),
			say(sse, "T other\nE\n"),
		}}
		r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}))
		defer r.end()
		text(t, r.post(t, "/v1/lines", "ask\n", "Authorization", "Bearer k"))
		resp := r.post(t, "/v1/lines", "ask\nA id1\nU done\n", "Authorization", "Bearer k")
		q := <-r.person
		if q.req.Denials != 1 {
			t.Errorf("the gate hears of %d denials", q.req.Denials)
		}
		q.say(gate.Deny)
		text(t, resp)
		const want = "ask\nA id0\nR <sh refused>\nA id1\nU done\n"
		if got := short(s.asked[2]); got != want {
			t.Errorf("the history goes out as\n%q, want\n%q", got, want)
		}
		if got := short(s.asked[3]); got != want+"A id0\nR <rm refused>\n" {
			t.Errorf("the further request is\n%q", got)
		}
		text(t, r.post(t, "/v1/lines", "ask\nA id1\nU done\n", "Authorization", "Bearer other"))
		if got := s.asked[4]; got != "ask\nA id1\nU done\n" {
			t.Errorf("another tenant's history goes out as\n%q", got)
		}
	})
}

func TestARequestToCountIsRepairedToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{answers: []http.HandlerFunc{say(asJSON, `{"n":0}`), say(sse, "C sh never\nC ls fine\nE\n"), say(asJSON, `{"n":1}`), say(asJSON, `{"n":2}`)}}
		r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}))
		defer r.end()
		const history = "ask\nA id1\nU done\n"
		for i, key := range []string{"k", "", "k", "other"} {
			if key == "" {
				text(t, r.post(t, "/v1/lines", "ask\n", "Authorization", "Bearer k"))
				continue
			}
			if got := text(t, r.post(t, "/v1/lines/count", history, "Authorization", "Bearer "+key)); !strings.HasPrefix(got, `{"n":`) {
				t.Errorf("answered %q", got)
			}
			want := history
			if i == 2 {
				want = "ask\nA id0,id1\nR <sh refused>\nU done\n"
			}
			if got := short(s.asked[i]); got != want {
				t.Errorf("request %d goes out as %q, want %q", i, got, want)
			}
		}
	})
}

func TestARequestWithoutRecordsGoesOutAsItCame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{answers: slices.Repeat([]http.HandlerFunc{say(sse, "C sh never\nC ls fine\nE\n"), say(sse, "E\n")}, 2)}
		r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}))
		defer r.end()
		text(t, r.post(t, "/v1/lines", "ask\n", "Authorization", "Bearer k"))
		for _, body := range []string{"ask\nU hello\n", "ask UNREADABLE\nA id1\n"} {
			text(t, r.post(t, "/v1/lines", body, "Authorization", "Bearer k"))
			if got := s.asked[len(s.asked)-1]; got != body {
				t.Errorf("%q goes out as %q", body, got)
			}
		}
	})
}

func TestWithoutAStoreTheUserIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			change func(*Proxy)
			header string
			why    string
		}{
			"a store that is down": {resuming(t, &shelf{broken: errors.New("the disk is full")}), "Bearer k", "what was refused cannot be stored"},
			"no store":             {func(p *Proxy) { p.Dialects = []inspect.Dialect{lines{repair: true}} }, "Bearer k", "the model cannot be told in any other way"},
			"a signed request":     {resuming(t, &shelf{}), "AWS4-HMAC-SHA256 Credential=AKIAX/d/r/s/aws4_request, Signature=a", "the request is signed"},
		} {
			s := &script{answers: []http.HandlerFunc{say(sse, "C sh never\nE\n")}}
			r := newRig(t, s.ServeHTTP, tt.change)
			got := short(text(t, r.post(t, "/v1/lines", "ask", "Authorization", tt.header)))
			if !strings.HasPrefix(got, "A <sh refused>") || !strings.Contains(got, tt.why) || len(s.asked) != 1 {
				t.Errorf("%s: asked %d times, shown %q", name, len(s.asked), got)
			}
			r.end()
		}
	})
}

func TestInModeErrorADenialIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, answer string
		status       int
		shown        string
	}{
		"before anything was shown": {sse, "C sh never\nT more\nE\n", 400, `{"lines":"callgate: The call to sh did not run`},
		"behind a text":             {sse, "T one\nC sh never\nE\n", 200, "T one\nF [callgate] The call to sh did not run"},
		"behind an allowed call":    {sse, "C ls fine\nC sh never\nE\n", 200, "C ls fine\nF [callgate] The call to sh did not run"},
		"a document":                {asJSON, "T one\nC sh never\nE\n", 400, `{"lines":"callgate: The call to sh did not run`},
		"nothing is denied":         {sse, "C ls fine\nE\n", 200, "C ls fine\nE\n"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
					io.Copy(io.Discard, q.Body)
					w.Header().Set("Content-Type", tt.kind)
					for l := range strings.SplitAfterSeq(tt.answer, "\n") {
						io.WriteString(w, l)
						w.(http.Flusher).Flush()
						select {
						case <-time.After(time.Millisecond):
						case <-q.Context().Done():
							return
						}
					}
				}, func(p *Proxy) { p.Denial.Error = true })
				defer r.end()
				resp := r.post(t, "/v1/lines", "ask")
				if got := text(t, resp); resp.StatusCode != tt.status || !strings.HasPrefix(got, tt.shown) || strings.Contains(got, "sh never") {
					t.Errorf("%d %q, want %d %q", resp.StatusCode, got, tt.status, tt.shown)
				}
			})
		})
	}
}

func TestPauses(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		status int
		header http.Header
		try    int
		spent  time.Duration
		want   time.Duration
		ok     bool
	}{
		"seconds":                       {429, http.Header{"Retry-After": {"3"}}, 1, 0, 3 * time.Second, true},
		"none given":                    {529, nil, 2, 0, 2 * time.Second, true},
		"nonsense":                      {429, http.Header{"Retry-After": {"soon"}}, 1, 0, time.Second, true},
		"below zero":                    {429, http.Header{"Retry-After": {"-5"}}, 1, 0, time.Second, true},
		"not a number":                  {429, http.Header{"Retry-After": {"NaN"}}, 1, 0, time.Second, true},
		"a date that is past":           {503, http.Header{"Retry-After": {now.Add(-time.Hour).UTC().Format(http.TimeFormat)}}, 1, 0, 0, true},
		"too long with what was waited": {429, http.Header{"Retry-After": {"31"}}, 2, 30 * time.Second, 31 * time.Second, false},
		"too often":                     {429, nil, maxTries, 0, maxTries * time.Second, false},
		"no pause":                      {400, http.Header{"Retry-After": {"1"}}, 1, 0, 0, false},
	} {
		got, ok := pauseFor(&http.Response{StatusCode: tt.status, Header: tt.header}, tt.try, tt.spent)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s: %v %t, want %v %t", name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestTheEndOfAnAnswerRepeatsFewRefusals(t *testing.T) {
	r := inspect.Round{}
	for i := range 10 {
		r.Refusals = append(r.Refusals, inspect.Refusal{Call: i, Text: fmt.Sprintf("refusal %d\nfor machines", i)})
	}
	told := inspect.Told{Rounds: []inspect.Round{{}, r}}
	if got := ending(told, "so it is", false); got != "refusal 0\n\nrefusal 1\n\nrefusal 2\n\n[callgate] 7 more calls did not run.\n\n[callgate] The answer ends here: so it is." {
		t.Errorf("%q", got)
	}
	if got := ending(told, "so it is", true); !strings.HasPrefix(got, "refusal 0\nfor machines\n\n") {
		t.Errorf("%q", got)
	}
}
