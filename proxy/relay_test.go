package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"callgate/gate"
	"callgate/inspect/toolcall"
)

// bubble runs a test on fake time; it fails when a goroutine is left over.
func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func TestAnAllowedAnswerIsTheSameByteForByte(t *testing.T) {
	for _, kind := range []string{sse, asJSON, sse + "; charset=utf-8", "application/json; charset=UTF-8"} {
		bubble(t, func(t *testing.T) {
			answer := "T hello\nC sh ls\nT there\nC sh pwd\nE\n"
			r := newRig(t, say(kind, answer[:9], answer[9:13], answer[13:]))
			defer r.end()
			resp := r.post(t, "/v1/lines", "ask")
			if got := text(t, resp); got != answer || resp.StatusCode != 200 {
				t.Errorf("%s: status %d, answer %q", kind, resp.StatusCode, got)
			}
			if kind == asJSON && resp.ContentLength != int64(len(answer)) {
				t.Errorf("a JSON answer that was not held has length %d", resp.ContentLength)
			}
		})
	}
}

func TestWhatIsDoneWithCalls(t *testing.T) {
	for _, c := range []struct {
		name, answer string
		has, hasNot  []string
	}{
		{"a hardline call is withheld", "T a\nC sh never\nE\n", []string{"T a\n", "R [callgate]", "test.never", "\nE\n"}, []string{"C sh"}},
		{"siblings of a withheld call stay, first", "C sh never1\nC sh ok2\nC sh ok3\nE\n", []string{"R [callgate]", "C sh ok2\nC sh ok3\nE\n"}, []string{"never1"}},
		{"siblings of a withheld call stay, middle", "C sh ok1\nC sh never2\nC sh ok3\nE\n", []string{"C sh ok1\nR [callgate]", "C sh ok3\nE\n"}, []string{"never2"}},
		{"siblings of a withheld call stay, last", "C sh ok1\nC sh ok2\nC sh never3\nE\n", []string{"C sh ok1\nC sh ok2\nR [callgate]"}, []string{"never3"}},
		{"an unfinished call is withheld", "T a\nC sh ls", []string{"T a\nR [callgate]"}, []string{"C sh"}},
	} {
		for _, kind := range []string{sse, asJSON} {
			bubble(t, func(t *testing.T) {
				r := newRig(t, say(kind, c.answer))
				defer r.end()
				got := text(t, r.post(t, "/v1/lines", "ask"))
				for _, h := range c.has {
					if !strings.Contains(got, h) {
						t.Errorf("%s (%s): %q lacks %q", c.name, kind, got, h)
					}
				}
				for _, h := range c.hasNot {
					if strings.Contains(got, h) {
						t.Errorf("%s (%s): %q holds %q", c.name, kind, got, h)
					}
				}
			})
		}
	}
}

func TestWithoutAGateOrActionsNothingIsReleased(t *testing.T) {
	for name, change := range map[string]func(*Proxy){
		"no gate":    func(p *Proxy) { p.Gate = nil },
		"no actions": func(p *Proxy) { p.Actions = nil },
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, say(sse, "T a\nC sh ls\nE\n"), change)
			defer r.end()
			if got := text(t, r.post(t, "/v1/lines", "ask")); strings.Contains(got, "C sh") || !strings.Contains(got, "R [callgate]") {
				t.Errorf("%s: %q", name, got)
			}
		})
	}
}

// A zero decision must withhold, and an allow must not release a faulty call.
func TestRulingFailsClosed(t *testing.T) {
	if r := ruling(gate.Decision{}, toolcall.Call{}); r.Release {
		t.Error("the zero decision released a call")
	}
	if r := ruling(gate.Decision{Verdict: gate.Ask}, toolcall.Call{}); r.Release {
		t.Error("ask released a call")
	}
	if r := ruling(gate.Decision{Verdict: gate.Allow}, toolcall.Call{Fault: toolcall.FaultTruncated}); r.Release {
		t.Error("a faulty call was released")
	}
	r := ruling(gate.Decision{Verdict: gate.Allow, Args: []byte("new")}, toolcall.Call{})
	if !r.Release || string(r.Args) != "new" {
		t.Errorf("an allow with new arguments became %+v", r)
	}
}

// reader reads a response line by line.
type reader struct {
	t *testing.T
	b *bufio.Reader
}

func (r reader) want(line string) {
	r.t.Helper()
	got, err := r.b.ReadString('\n')
	if err != nil || !strings.HasPrefix(got, line) {
		r.t.Fatalf("want a line %q, got %q, %v", line, got, err)
	}
}

func (r reader) end() {
	r.t.Helper()
	if rest, err := io.ReadAll(r.b); err != nil || len(rest) > 0 {
		r.t.Fatalf("want the end, got %q, %v", rest, err)
	}
}

func TestAHeldStreamLivesAndGoesOnWhenAPersonSaysYes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(sse, "T before\nC sh danger\n", "T after\n", "C sh ls\nE\n"))
		defer r.end()
		began := time.Now()
		resp := r.post(t, "/v1/lines", "ask")
		defer resp.Body.Close()
		body := reader{t, bufio.NewReader(resp.Body)}
		body.want("T before\n")
		q := <-r.person
		for range 12 {
			body.want("K\n")
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("12 signs of life took %s", took)
		}
		q.say(gate.Allow)
		body.want("C sh danger\n")
		body.want("T after\n")
		body.want("C sh ls\n")
		body.want("E\n")
		body.end()
	})
}

func TestAHeldStreamShowsARefusalWhenAPersonSaysNo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(sse, "C sh danger\nE\n"))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		defer resp.Body.Close()
		body := reader{t, bufio.NewReader(resp.Body)}
		(<-r.person).say(gate.Deny)
		body.want("R [callgate]")
		body.want("E\n")
		body.end()
	})
}

func TestHeldCallsLeaveInOrderWhateverTheOrderOfTheAnswers(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, say(sse, "C sh danger0\nC sh danger1\nC sh danger2\nE\n"))
			defer r.end()
			resp := r.post(t, "/v1/lines", "ask")
			got := make(chan string)
			go func() { got <- text(t, resp) }()
			var qs [3]asked
			for range qs {
				q := <-r.person
				qs[q.req.Call.Seq] = q
				if len(q.req.Siblings) != 2 {
					t.Errorf("call %d was judged with %d siblings in view", q.req.Call.Seq, len(q.req.Siblings))
				}
			}
			for _, i := range order {
				v := gate.Allow
				if i == 1 {
					v = gate.Deny
				}
				qs[i].say(v)
				synctest.Wait()
			}
			if s := <-got; !strings.HasPrefix(s, "C sh danger0\nR [callgate]") || !strings.HasSuffix(s, "\nC sh danger2\nE\n") {
				t.Errorf("order %v: %q", order, s)
			}
		})
	}
}

func TestAHeldJSONAnswerGetsItsHeadersAndWhiteSpaceFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		answer := "T a\nC sh danger\nE\n"
		r := newRig(t, say(asJSON, answer))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask") // returns only because the head is out
		read := make(chan string)
		go func() { read <- text(t, resp) }()
		q := <-r.person
		<-time.After(25 * time.Second)
		q.say(gate.Allow)
		// The line dialect puts out what stands before a call at once; what
		// matters is that nothing of the call came before the answer.
		got := <-read
		if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(answer, " ", "") || strings.Count(got, " ") != strings.Count(answer, " ")+2 {
			t.Errorf("got %q", got)
		}
	})
}

func TestTheProviderIsReadToItsEndDuringAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ended := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			say(sse, "C sh danger\n", strings.Repeat("T x\n", 100_000), "E\n")(w, q)
			close(ended)
		})
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		q := <-r.person
		<-ended
		q.say(gate.Allow)
		if got := text(t, resp); len(got) != len("C sh danger\n")+400_000+2 {
			t.Errorf("%d bytes came", len(got))
		}
	})
}

func TestTooMuchBehindAHeldCallEndsTheTurnWellFormed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(sse, "T a\nC sh danger\n", strings.Repeat("T x\n", 10_000)), func(p *Proxy) { p.Limits.Held = 1000 })
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		q := <-r.person
		<-q.left
		got := text(t, resp)
		if !strings.HasPrefix(got, "T a\nA [callgate] The rest of the answer was withheld: more than 1000 bytes") || strings.Contains(got, "danger") {
			t.Errorf("%q", got)
		}
	})
}

func TestAClientThatHangsUpLeavesItsQuestionsAndEndsTheProvider(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ended := make(chan error, 1)
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			say(sse, "T a\nC sh danger\n")(w, q)
			<-q.Context().Done()
			ended <- q.Context().Err()
		})
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		q := <-r.person
		resp.Body.Close()
		<-q.left
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the provider saw %v", err)
		}
	})
}

func TestAClientThatHangsUpWithoutAHoldEndsTheProvider(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ended := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			say(sse, "T a\n")(w, q)
			<-q.Context().Done()
			close(ended)
		})
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		reader{t, bufio.NewReader(resp.Body)}.want("T a\n")
		resp.Body.Close()
		<-ended
	})
}

func TestAClientThatDoesNotReadIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(sse, strings.Repeat("T xxxxxxxxxxxxxxx\n", 100_000)), func(p *Proxy) { p.Limits.WriteTimeout = 5 * time.Second })
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		defer resp.Body.Close()
		<-time.After(6 * time.Second) // the client looks away
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("the client read %d bytes to a clean end", len(b))
		}
	})
}

// A write deadline that passed while the provider was silent must not cut the
// end of the answer off.
func TestALateEndIsAnEnd(t *testing.T) {
	for _, path := range []string{"/v1/lines", "/v1/models"} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				say(sse, "T a\nE\n")(w, q)
				<-time.After(3 * time.Minute)
			})
			defer r.end()
			method := "POST"
			if path == "/v1/models" {
				method = "GET"
			}
			if got := text(t, r.do(t, method, path, strings.NewReader("ask"))); got != "T a\nE\n" {
				t.Errorf("%s: %q", path, got)
			}
		})
	}
}

func TestManyCallsInOneTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var all strings.Builder
		for i := range 900 {
			fmt.Fprintf(&all, "C sh ls%d\n", i)
		}
		all.WriteString("C sh danger\nE\n")
		r := newRig(t, say(asJSON, all.String()))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		q := <-r.person
		if n := len(q.req.Siblings); n != maxSiblings || q.req.Siblings[n-1].Seq != 899 {
			t.Errorf("judged with %d others in view", n)
		}
		q.say(gate.Allow)
		if got := text(t, resp); got != all.String() {
			t.Errorf("%d bytes came of %d", len(got), all.Len())
		}
	})
}

func TestNobodyIsAskedAboutAllThatAnAnswerHolds(t *testing.T) {
	const dangers = 9
	var all strings.Builder
	for i := range dangers {
		fmt.Fprintf(&all, "C sh danger%d\nC sh ls%d\n", i, i)
	}
	all.WriteString("E\n")
	for _, tt := range []struct {
		name    string
		breaker int
		verdict gate.Verdict
		at      int // once
		in      int // all
	}{
		{"each is denied", 3, gate.Deny, 3, dangers},
		{"each is allowed", 3, gate.Allow, 3, dangers},
		{"without a breaker all are asked about at once", 0, gate.Deny, dangers, dangers},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, say(sse, all.String()), func(p *Proxy) { p.Denial.Breaker = tt.breaker })
				defer r.end()
				resp := r.post(t, "/v1/lines", "ask")
				got := make(chan string)
				go func() { got <- text(t, resp) }()
				synctest.Wait()
				if n := len(r.person); n != tt.at {
					t.Errorf("%d questions are open at first", n)
				}
				for i := range tt.in {
					q := <-r.person
					if tt.verdict == gate.Deny && tt.breaker > 0 && i >= tt.breaker && q.req.Denials != i {
						t.Errorf("question %d is put as the one behind %d denials", i, q.req.Denials)
					}
					if open := len(r.person) + 1; tt.breaker > 0 && open > tt.breaker {
						t.Errorf("%d questions are open", open)
					}
					q.say(tt.verdict)
					synctest.Wait()
				}
				want := all.String()
				if s := <-got; tt.verdict == gate.Allow && s != want || tt.verdict == gate.Deny && strings.Count(s, "\nC sh ls") != dangers {
					t.Errorf("%q", s)
				}
			})
		})
	}
}

func TestCallsThatNobodyWasAskedAboutAreRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(sse, "C sh danger0\nC sh danger1\nC sh ls\nE\n"), func(p *Proxy) { p.Denial.Breaker = 1 })
		defer r.end()
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", "http://callgate.test/v1/lines", strings.NewReader("ask"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		q := <-r.person
		cancel()
		<-q.left
		resp.Body.Close()
		synctest.Wait()
		if len(r.person) != 0 {
			t.Error("a person is asked for a client that is gone")
		}
		if list := r.journal.by("proxy"); len(list) != 2 || list[0].Outcome != gate.Cancelled || list[0].Verdict != "deny" || list[1].Tool != "sh" {
			t.Errorf("recorded %+v", list)
		}
	})
}

// bomb is a body that panics at its second Read.
type bomb struct{ reads int }

func (b *bomb) Read(p []byte) (int, error) {
	if b.reads++; b.reads > 1 {
		panic("a fault in a decoder")
	}
	return copy(p, "T a\nC sh danger\n"), nil
}

type bombs struct{}

func (bombs) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {sse}}, Body: io.NopCloser(new(bomb)), ContentLength: -1}, nil
}

func TestAPanicWhileReadingDuringAHoldIsACut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, nil, func(p *Proxy) { p.Transport = bombs{} })
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || string(b) != "T a\n" {
			t.Errorf("%q, %v", b, err)
		}
		<-(<-r.person).left
	})
}

// cutAfter writes some bytes and breaks the connection.
func cutAfter(kind, part string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		say(kind, part)(w, r)
		panic(http.ErrAbortHandler)
	}
}

func TestACutProviderIsSeenAsACut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, cutAfter(sse, "T a\nC sh ls\nC sh half"))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || !strings.HasPrefix(string(b), "T a\nC sh ls\n") || strings.Contains(string(b), "half") {
			t.Errorf("got %q, %v", b, err)
		}
	})
}

func TestACutDuringAHoldLeavesTheQuestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cut := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			say(sse, "T a\nC sh danger\n")(w, q)
			<-cut
			panic(http.ErrAbortHandler)
		})
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		q := <-r.person
		close(cut)
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || string(b) != "T a\n" {
			t.Errorf("got %q, %v", b, err)
		}
		<-q.left
	})
}

func TestACutBeforeAnythingWasShownIsAnError(t *testing.T) {
	for _, kind := range []string{asJSON, sse} {
		bubble(t, func(t *testing.T) {
			part := "T a\nC sh ls\n"
			if kind == sse {
				part = ""
			}
			r := newRig(t, cutAfter(kind, part))
			defer r.end()
			resp := r.post(t, "/v1/lines", "ask")
			if got := text(t, resp); resp.StatusCode != 502 || !strings.Contains(got, "broke off") || !strings.Contains(got, `{"lines":`) {
				t.Errorf("%s: status %d, %q", kind, resp.StatusCode, got)
			}
		})
	}
}

func TestAnAnswerThatStandsStillIsCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			say(sse, "T a\n")(w, q)
			<-q.Context().Done()
		})
		defer r.end()
		began := time.Now()
		resp := r.post(t, "/v1/lines", "ask")
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		took := time.Since(began)
		if err == nil || string(b) != "T a\n" || took < 5*time.Minute || took > 5*time.Minute+30*time.Second {
			t.Errorf("got %q, %v after %s", b, err, took)
		}
	})
}

func TestAProviderWithoutHeadersIsATimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		wait := func(w http.ResponseWriter, q *http.Request) {
			io.Copy(io.Discard, q.Body)
			<-q.Context().Done()
		}
		r := newRig(t, wait, func(p *Proxy) { p.Upstreams["main"].Timeout = 7 * time.Second })
		defer r.end()
		began := time.Now()
		for _, path := range []string{"/v1/lines", "/main/v1/lines", "/v1/else"} {
			resp := r.post(t, path, "ask")
			if got := text(t, resp); resp.StatusCode != 504 || !strings.Contains(got, "no answer within 7s") {
				t.Errorf("%s: status %d, %q", path, resp.StatusCode, got)
			}
		}
		if time.Since(began) != 21*time.Second {
			t.Errorf("it took %s", time.Since(began))
		}
	})
}

func TestAFaultyAnswerIsWithheldOrEndsWellFormed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(sse, "T a\n", "X\n", "C sh ls\n"))
		defer r.end()
		got := text(t, r.post(t, "/v1/lines", "ask"))
		if !strings.HasPrefix(got, "T a\nA [callgate] The rest of the answer was withheld: lines: line X: it is broken\n") || strings.Contains(got, "C sh") {
			t.Errorf("after text: %q", got)
		}
	})
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(asJSON, "T a\nX\n"))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		if got := text(t, resp); resp.StatusCode != 502 || !strings.Contains(got, "it is broken") {
			t.Errorf("before text: %d %q", resp.StatusCode, got)
		}
		if e := r.journal.by("proxy"); len(e) != 1 || e[0].Verdict != "deny" {
			t.Errorf("recorded %+v", e)
		}
	})
}

func TestAFaultInTheDialectWithholdsTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(asJSON, "T a\nP\n"))
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		if got := text(t, resp); resp.StatusCode != 502 || !strings.Contains(got, "fault of its own") {
			t.Errorf("%d %q", resp.StatusCode, got)
		}
	})
	bubble(t, func(t *testing.T) {
		next := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			say(sse, "T a\nC sh danger\n")(w, q)
			<-next
			io.WriteString(w, "P\n")
		})
		defer r.end()
		resp := r.post(t, "/v1/lines", "ask")
		q := <-r.person
		close(next)
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil || string(b) != "T a\n" {
			t.Errorf("%q, %v", b, err)
		}
		<-q.left
	})
}

func TestACallThatTheProviderRanIsRecorded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(sse, "H\nE\n"))
		defer r.end()
		if got := text(t, r.post(t, "/v1/lines", "ask")); got != "H\nE\n" {
			t.Errorf("%q", got)
		}
		if e := r.journal.by("provider"); len(e) != 1 || e[0].Tool != "web_search" || e[0].Agent != "default" || e[0].Upstream != "main" {
			t.Errorf("recorded %+v", e)
		}
	})
}

func TestWhatTheGateIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, say(sse, "C sh danger\nE\n"))
		defer r.end()
		resp := r.post(t, "/main/v1/lines", "ask", "X-Session", "s1", "Authorization", "Bearer one")
		q := <-r.person
		q.say(gate.Deny)
		text(t, resp)
		want := PrincipalKey([]byte("key"))("default", "main", http.Header{"Authorization": {"Bearer one"}}).Principal
		g := q.req
		if g.Principal != want || g.Session != want+"/s1" || g.Claimed.Session != "s1" || g.Agent != "default" ||
			g.Upstream != "main" || g.Dialect != "lines" || g.Model != "m1" || g.Turn == "" || len(g.Actions) != 1 {
			t.Errorf("%+v", g)
		}
	})
}

func TestEveryHeaderThatMayTellTenantsApartCounts(t *testing.T) {
	key := PrincipalKey([]byte("k"))
	of := func(name, value string) Tenant {
		return key("a", "u", http.Header{"Authorization": {"x"}, http.CanonicalHeaderKey(name): {value}})
	}
	for _, name := range []string{
		"X-Auth-Token", "Helicone-Auth", "Ocp-Apim-Subscription-Key", "x-litellm-api-key", "x_api_key", "X-Portkey-Virtual-Key", "X-Portkey-Config",
		"Cf-Aig-Authorization", "X-Goog-User-Project", "Chatgpt-Account-Id", "X-Tenant", "X-Org-Id", "X-Openwebui-User-Id", "X-Forwarded-User",
		"X-Client-Secret", "X-Amz-Security-Token", "X-Client-Cert", "Cookie", "Proxy-Authorization", "X-Workspace-Id", "X-Forwarded-Email",
	} {
		if of(name, "one") == of(name, "two") {
			t.Errorf("two tenants that differ in %s have one name", name)
		}
	}
	for _, name := range []string{
		"Traceparent", "Tracestate", "User-Agent", "X-Claude-Code-Session-Id", "Session-Id", "X-Session-Affinity", "Idempotency-Key",
		"X-Idempotency-Key", "X-Stainless-Retry-Count", "X-Request-Id", "Content-Length", "Accept", "Anthropic-Beta",
	} {
		if of(name, "one") != of(name, "two") {
			t.Errorf("one tenant has another name with another %s", name)
		}
	}
}

func TestAKeyInTheQueryTellsTenantsApart(t *testing.T) {
	names := map[string]string{}
	for _, query := range []string{"", "?key=one", "?key=two", "?api_key=one", "?beta=true", "?beta=true&key=one"} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, say(sse, "C sh danger\nE\n"))
			defer r.end()
			resp := r.post(t, "/v1/lines"+query, "ask", "Authorization", "Bearer one")
			q := <-r.person
			q.say(gate.Deny)
			text(t, resp)
			names[query] = q.req.Principal
		})
	}
	if names[""] != names["?beta=true"] || names["?key=one"] != names["?beta=true&key=one"] {
		t.Errorf("one tenant has two names: %v", names)
	}
	if names[""] == names["?key=one"] || names["?key=one"] == names["?key=two"] || names["?key=one"] == names["?api_key=one"] {
		t.Errorf("two tenants have one name: %v", names)
	}
}

func TestThePrincipalIsOfTheCredentialsAlone(t *testing.T) {
	key := PrincipalKey([]byte("k"))
	base := key("a", "u", http.Header{"Authorization": {"x"}})
	if base != key("a", "u", http.Header{"Authorization": {"x"}, "User-Agent": {"other"}}) {
		t.Error("it depends on a header that is no credential")
	}
	seen := map[string]string{base.Principal: "authorization x"}
	for name, p := range map[string]Tenant{
		"another agent":        key("b", "u", http.Header{"Authorization": {"x"}}),
		"another upstream":     key("a", "v", http.Header{"Authorization": {"x"}}),
		"another value":        key("a", "u", http.Header{"Authorization": {"y"}}),
		"another header":       key("a", "u", http.Header{"X-Api-Key": {"x"}}),
		"two values":           key("a", "u", http.Header{"Authorization": {"x", "x"}}),
		"one more header":      key("a", "u", http.Header{"Authorization": {"x"}, "Openai-Project": {"p"}}),
		"a cookie":             key("a", "u", http.Header{"Authorization": {"x"}, "Cookie": {"c"}}),
		"none":                 key("a", "u", nil),
		"parts joined":         key("au", "", http.Header{"Authorization": {"x"}}),
		"another key":          PrincipalKey([]byte("l"))("a", "u", http.Header{"Authorization": {"x"}}),
		"goog key":             key("a", "u", http.Header{"X-Goog-Api-Key": {"x"}}),
		"azure key":            key("a", "u", http.Header{"Api-Key": {"x"}}),
		"another organisation": key("a", "u", http.Header{"Authorization": {"x"}, "Openai-Organization": {"p"}}),
	} {
		if other, ok := seen[p.Principal]; ok {
			t.Errorf("%s and %s have one name", name, other)
		}
		seen[p.Principal] = name
	}
}

func TestProvidersHaveTheNamesOfTheConventions(t *testing.T) {
	for dialect, want := range map[string]string{"openai-chat": "openai", "openai-responses": "openai", "anthropic": "anthropic", "ollama": "ollama", "gemini": "gcp.gemini"} {
		if got := providerName(dialect); got != want {
			t.Errorf("the provider of %s is %q, want %q", dialect, got, want)
		}
	}
}

func TestAWatchMayLookBeforeItIsThere(t *testing.T) {
	for range 200 {
		done := make(chan struct{})
		w := newWatch(1, sync.OnceFunc(func() { close(done) }))
		w.headed(1)
		w.wait()
		<-done
		w.end()
		if !w.fired.Load() {
			t.Fatal("it ended the request and does not say so")
		}
	}
}
