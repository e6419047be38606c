package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"callgate/gate"
	"callgate/inspect"
	"callgate/inspect/toolcall"
)

func TestALeaseNeverTakesMoreThanTheBudgetHas(t *testing.T) {
	b := &budget{limit: 100}
	one, two := lease{from: b}, lease{from: b}
	for _, c := range []struct {
		l    *lease
		size int64
		ok   bool
		used int64
	}{
		{&one, 60, true, 60}, {&two, 41, false, 60}, {&two, 40, true, 100}, {&one, 61, false, 100}, {&one, 60, true, 100},
		{&one, 10, true, 50}, {&two, 90, true, 100}, {&one, 0, true, 90},
	} {
		if err := c.l.set(c.size); (err == nil) != c.ok || b.used.Load() != c.used {
			t.Errorf("%d: %v, %d are used, want %d", c.size, err, b.used.Load(), c.used)
		}
	}
	two.end()
	two.end()
	if b.used.Load() != 0 {
		t.Errorf("%d are left over", b.used.Load())
	}
}

func TestReadingIsChargedBeforeItIsKept(t *testing.T) {
	for _, size := range []int{0, 1, firstSize - 1, firstSize, firstSize + 1, keepSize, keepSize + 1, 3 * keepSize} {
		b := &budget{limit: 1 << 30}
		l := lease{from: b}
		got, err := readAll(strings.NewReader(strings.Repeat("x", size)), "it", 1<<30, &l)
		if err != nil || len(got) != size {
			t.Errorf("%d: %d bytes, %v", size, len(got), err)
		}
		if used := b.used.Load(); used < int64(size) || used > max(int64(2*size), int64(cap(got))) {
			t.Errorf("%d bytes are charged as %d", size, used)
		}
		l.end()
		b.limit = int64(size) - 1
		if _, err := readAll(strings.NewReader(strings.Repeat("x", size)), "it", 1<<30, &l); size > 0 && !errors.Is(err, errFull) {
			t.Errorf("%d bytes found room where there was none: %v", size, err)
		}
	}
	l := lease{from: &budget{limit: 1 << 30}}
	var large *tooLargeError
	if _, err := readAll(strings.NewReader("four"), "it", 3, &l); !errors.As(err, &large) {
		t.Errorf("too much came to %v", err)
	}
	if _, err := readAll(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF)), "it", 3, &l); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut came to %v", err)
	}
}

func TestARequestThatFindsNoMemoryIsToldToComeAgain(t *testing.T) {
	for _, c := range []struct {
		name, coding string
		size         int
		status       int
	}{
		{"a small one", "", 50_000, 200},
		{"a large one", "", 200_000, 503},
		{"one that unpacks to little", "gzip", 50_000, 200},
		{"one that unpacks to much", "gzip", 200_000, 503},
		{"one that unpacks to far too much", "zstd", 20_000_000, 503},
	} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, say(sse, "E\n"), func(p *Proxy) { p.Limits.Memory = 100_000 })
			defer r.end()
			body := encode(t, c.coding, "ask"+strings.Repeat("x", c.size))
			resp := r.post(t, "/v1/lines", string(body), "Content-Encoding", c.coding)
			got := text(t, resp)
			if resp.StatusCode != c.status || (c.status == 503) != strings.HasPrefix(got, `{"lines":"callgate: `) ||
				(c.status == 503) != strings.Contains(got, "limits.memory") || (c.status == 503) != (resp.Header.Get("Retry-After") == "1") {
				t.Errorf("%s: %d %v %q", c.name, resp.StatusCode, resp.Header, got)
			}
			synctest.Wait()
			if used := r.p.memory.used.Load(); used != 0 {
				t.Errorf("%s: %d bytes stay charged", c.name, used)
			}
		})
	}
}

// Many requests that unpack to much have no more memory together than one
// budget, and those that wait make room when they are through.
func TestRequestsShareOneBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			<-answer
			say(sse, "E\n")(w, q)
		}, func(p *Proxy) { p.Limits.Memory = 4 << 20 })
		defer r.end()
		body := string(encode(t, "gzip", "ask"+strings.Repeat("x", 1<<20)))
		status := make(chan int, 16)
		ask := func() {
			resp := r.post(t, "/v1/lines", body, "Content-Encoding", "gzip")
			text(t, resp)
			status <- resp.StatusCode
		}
		for range 3 {
			go ask()
		}
		synctest.Wait()
		for range 13 {
			go ask()
		}
		synctest.Wait()
		if used := r.p.memory.used.Load(); used > 4<<20 || used < 3<<20 {
			t.Errorf("%d bytes are charged", used)
		}
		close(answer)
		count := map[int]int{}
		for range 16 {
			count[<-status]++
		}
		if count[200] != 3 || count[503] != 13 {
			t.Errorf("answers by status: %v", count)
		}
		synctest.Wait()
		if used := r.p.memory.used.Load(); used != 0 {
			t.Errorf("%d bytes stay charged", used)
		}
		ask()
		if got := <-status; got != 200 {
			t.Errorf("afterwards: %d", got)
		}
	})
}

// While a person thinks, no large body and no unpacked copy of one is kept.
func TestAHeldTurnKeepsNoLargeRequest(t *testing.T) {
	for _, c := range []struct {
		coding string
		size   int
		most   int64
	}{{"gzip", 3 << 20, 100_000}, {"", keepSize + 1, 0}, {"", 10_000, 10_003}, {"identity", 3 * keepSize, 0}} {
		bubble(t, func(t *testing.T) {
			body := string(encode(t, c.coding, "ask"+strings.Repeat("x", c.size)))
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				if b, err := io.ReadAll(q.Body); string(b) != body {
					t.Errorf("the provider got %d bytes, %v", len(b), err)
				}
				say(sse, "C sh danger\nE\n")(w, q)
			})
			defer r.end()
			resp := r.post(t, "/v1/lines", body, "Content-Encoding", c.coding)
			q := <-r.person
			<-time.After(DefaultKeepAlive + time.Second)
			if used := r.p.memory.used.Load(); used > c.most {
				t.Errorf("%s %d: %d bytes are kept", c.coding, c.size, used)
			}
			q.say(gate.Allow)
			if got := text(t, resp); got != "K\nC sh danger\nE\n" {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestWhatIsReadOfARequestOutlivesItsBody(t *testing.T) {
	body := []byte(`schema`)
	info := inspect.Info{Tools: []toolcall.Tool{{Name: "sh", Schema: body}}}
	x := &exchange{text: lease{from: &budget{limit: 10}, size: 6}}
	q := &prompt{x: x, came: &sent{}, req: lineRequest{}, info: info}
	q.unload(false)
	copy(body, "xxxxxx")
	if got := string(q.info.Tools[0].Schema); got != "schema" || x.text.size != 0 {
		t.Errorf("the schema is %q, %d bytes are charged", got, x.text.size)
	}
}

func TestAnswersThatAreReadWholeAreCharged(t *testing.T) {
	for _, status := range []int{200, 400} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", asJSON)
				w.WriteHeader(status)
				fmt.Fprintf(w, "%200000d", 1)
			}, func(p *Proxy) { p.Limits.Memory = 100_000 })
			defer r.end()
			resp := r.post(t, "/v1/unknown", "ask")
			want := 502
			if status == 400 {
				want = 400
			}
			if got := text(t, resp); resp.StatusCode != want || !strings.Contains(got, "limits.memory") {
				t.Errorf("%d %q", resp.StatusCode, got)
			}
			synctest.Wait()
			if used := r.p.memory.used.Load(); used != 0 {
				t.Errorf("%d bytes stay charged", used)
			}
		})
	}
}

func TestWhatATurnKeepsOfAStreamIsCharged(t *testing.T) {
	const words = 300_000
	for name, tt := range map[string]struct {
		memory int64
		want   string
	}{
		"there is room for it":    {1 << 20, "R "},
		"there is no room for it": {words, "A [callgate] The rest of the answer was withheld: callgate holds as many bodies in memory as it may (limits.memory)"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, say(sse, "T a\nC sh danger\n", strings.Repeat("T xxxxxxxx\n", words/11), "E\n"), func(p *Proxy) {
					p.Limits.Memory, p.Limits.Held = tt.memory, 1<<20
				})
				defer r.end()
				resp := r.post(t, "/v1/lines", "ask")
				q := <-r.person
				synctest.Wait()
				charged := r.p.memory.used.Load()
				if tt.want == "R " {
					if charged < words || charged > 3*words {
						t.Errorf("%d bytes are charged for %d that wait", charged, words)
					}
					q.say(gate.Deny)
				}
				if got := text(t, resp); !strings.HasPrefix(got, "T a\n"+tt.want) || strings.Contains(got, "C sh") {
					t.Errorf("%.200q", got)
				}
				synctest.Wait()
				if used := r.p.memory.used.Load(); used != 0 {
					t.Errorf("%d bytes stay charged", used)
				}
			})
		})
	}
}
