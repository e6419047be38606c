package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"callgate/gate"

	gocmp "github.com/google/go-cmp/cmp"
)

const goodToken = "a long and random token"

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// desk keeps approvals in memory as a Desk must.
type desk struct {
	mu   sync.Mutex
	byID map[string]gate.Approval
	err  error // what each method gives instead
	// asked are the lists that were asked for.
	asked []string
}

func newDesk(approvals ...gate.Approval) *desk {
	d := &desk{byID: map[string]gate.Approval{}}
	for _, a := range approvals {
		d.byID[a.ID] = a
	}
	return d
}

func (d *desk) Answer(_ context.Context, id string, ans gate.Answer) (gate.Approval, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.byID[id]
	switch {
	case d.err != nil:
		return gate.Approval{}, d.err
	case !ok:
		return gate.Approval{}, fmt.Errorf("approval %s: %w", id, gate.ErrNotFound)
	case a.State != gate.StatePending:
		return a, fmt.Errorf("approval %s: %w", id, gate.ErrAnswered)
	}
	a.State, a.By, a.Reason, a.Answered = gate.StateDenied, ans.By, ans.Reason, noon
	if ans.Approve {
		a.State = gate.StateApproved
	}
	d.byID[id] = a
	return a, nil
}

func (d *desk) Approval(_ context.Context, id string) (gate.Approval, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.byID[id]
	if !ok {
		return a, gate.ErrNotFound
	}
	return a, d.err
}

func (d *desk) Approvals(_ context.Context, state gate.ApprovalState, limit int) ([]gate.Approval, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, fmt.Sprintf("%s %d", state, limit))
	var out []gate.Approval
	for _, a := range d.byID {
		if state == "" || a.State == state {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b gate.Approval) int { return cmp.Compare(a.ID, b.ID) })
	return out, d.err
}

func approval(id string, state gate.ApprovalState) gate.Approval {
	a := gate.Approval{
		ID: id, State: state, Digest: "d", Agent: "default", Tool: "bash", Kind: "command", Command: "rm -rf build",
		Args: `{"command":"rm -rf build"}`, Created: noon, Expires: noon.Add(time.Hour),
		Findings: []gate.FindingBrief{{Rule: "fs.recursive-delete", Severity: "danger", Category: "fs", Reason: "deletes a folder"}},
	}
	if state == gate.StateDenied || state == gate.StateApproved || state == gate.StateSpent {
		a.By, a.Answered = "kim", noon.Add(time.Minute)
	}
	return a
}

func newAPI(d Desk) http.Handler {
	return New(Config{Desk: d, TokenHash: sha256.Sum256([]byte(goodToken)), Hosts: []string{"gate.example:4142", "Console.example"}})
}

// request is a good one; change makes it another.
func request(method, target, body string, change func(*http.Request)) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:4142"
	r.Header.Set("Authorization", "Bearer "+goodToken)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(r)
	}
	return r
}

// respond serves r and reads the answer, which must be JSON whatever it says.
func respond(t *testing.T, h http.Handler, r *http.Request) (*httptest.ResponseRecorder, map[string]json.RawMessage) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var body map[string]json.RawMessage
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("the answer is not JSON: %v: %s", err, w.Body)
	}
	for key, want := range map[string]string{
		"Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
		"X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
	} {
		if got := w.Header().Get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	return w, body
}

func header(key string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(key)] = values }
}

func host(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }

func TestTheAPIRefuses(t *testing.T) {
	const approve = "/api/v1/approvals/p1/approve"
	for _, tt := range []struct {
		name         string
		method, path string
		body         string
		change       func(*http.Request)
		status       int
		code         string
	}{
		{"no token", "POST", approve, "", header("Authorization"), 401, CodeUnauthorized},
		{"a wrong token", "POST", approve, "", header("Authorization", "Bearer wrong"), 401, CodeUnauthorized},
		{"the start of the token", "POST", approve, "", header("Authorization", "Bearer "+goodToken[:10]), 401, CodeUnauthorized},
		{"an empty token", "POST", approve, "", header("Authorization", "Bearer "), 401, CodeUnauthorized},
		{"the token of another scheme", "POST", approve, "", header("Authorization", "Basic "+goodToken), 401, CodeUnauthorized},
		{"the token without a scheme", "POST", approve, "", header("Authorization", goodToken), 401, CodeUnauthorized},
		{"two tokens, one of them good", "POST", approve, "", header("Authorization", "Bearer wrong", "Bearer "+goodToken), 401, CodeUnauthorized},
		{"the token in the query", "POST", approve + "?token=" + "x", "", header("Authorization"), 401, CodeUnauthorized},
		{"reading without a token", "GET", "/api/v1/approvals", "", header("Authorization"), 401, CodeUnauthorized},
		{"an unknown path without a token", "GET", "/api/v1/nothing", "", header("Authorization"), 401, CodeUnauthorized},

		{"a foreign host", "POST", approve, "", host("evil.example"), 403, CodeForbidden},
		{"a foreign host with our port", "POST", approve, "", host("evil.example:4142"), 403, CodeForbidden},
		{"a host that begins like ours", "POST", approve, "", host("127.0.0.1.evil.example"), 403, CodeForbidden},
		{"a host that ends like ours", "POST", approve, "", host("evil.localhost"), 403, CodeForbidden},
		{"a configured host with another port", "POST", approve, "", host("gate.example:80"), 403, CodeForbidden},
		{"another address", "POST", approve, "", host("10.0.0.1:4142"), 403, CodeForbidden},
		{"all addresses", "POST", approve, "", host("0.0.0.0:4142"), 403, CodeForbidden},
		{"a port that is none", "POST", approve, "", host("localhost:evil.example"), 403, CodeForbidden},
		{"no host", "POST", approve, "", host(""), 403, CodeForbidden},
		{"a page of another site", "POST", approve, "", header("Origin", "http://evil.example"), 403, CodeForbidden},
		{"a page without an origin", "POST", approve, "", header("Origin", "null"), 403, CodeForbidden},
		{"a page on another port", "POST", approve, "", header("Origin", "http://127.0.0.1:8080"), 403, CodeForbidden},
		{"two origins", "POST", approve, "", header("Origin", "http://127.0.0.1:4142", "http://evil.example"), 403, CodeForbidden},
		{"a cross-site fetch", "POST", approve, "", header("Sec-Fetch-Site", "cross-site"), 403, CodeForbidden},
		{"a same-site fetch of a sibling", "POST", approve, "", header("Sec-Fetch-Site", "same-site"), 403, CodeForbidden},
		{"a cross-site fetch that hides behind another word", "POST", approve, "", header("Sec-Fetch-Site", "none", "cross-site"), 403, CodeForbidden},

		{"absolute form", "POST", "http://127.0.0.1:4142" + approve, "", nil, 400, CodeBadRequest},
		{"absolute form for health", "GET", "http://127.0.0.1:4142/api/v1/health", "", nil, 400, CodeBadRequest},
		{"an unknown path", "GET", "/api/v1/grants", "", nil, 404, CodeNotFound},
		{"the root", "GET", "/", "", nil, 404, CodeNotFound},
		{"a path with a slash more at its end", "GET", "/api/v1/approvals/", "", nil, 404, CodeNotFound},
		{"a path with an empty id", "POST", "/api/v1/approvals//approve", "", nil, 404, CodeNotFound},
		{"a path with two slashes before it", "GET", "//api/v1/approvals", "", nil, 404, CodeNotFound},
		{"a path that goes up", "POST", "/api/v1/x/../approvals/p1/approve", "", nil, 404, CodeNotFound},
		{"a path with an escape", "POST", "/api/v1/approvals/p%31/approve", "", nil, 404, CodeNotFound},
		{"a path with an escaped slash", "POST", "/api/v1/approvals/p1%2fapprove", "", nil, 404, CodeNotFound},
		{"a path in other case", "POST", "/api/v1/approvals/p1/Approve", "", nil, 404, CodeNotFound},
		{"a verb that does not exist", "POST", "/api/v1/approvals/p1/spend", "", nil, 404, CodeNotFound},
		{"a path below the verb", "POST", approve + "/now", "", nil, 404, CodeNotFound},
		{"to approve by GET", "GET", approve, "", nil, 405, CodeMethod},
		{"to list by POST", "POST", "/api/v1/approvals", "", nil, 405, CodeMethod},
		{"to delete", "DELETE", "/api/v1/approvals/p1", "", nil, 405, CodeMethod},
		{"to post to health", "POST", "/api/v1/health", "", nil, 405, CodeMethod},

		{"an unknown state", "GET", "/api/v1/approvals?state=open", "", nil, 400, CodeBadRequest},
		{"an unknown parameter", "GET", "/api/v1/approvals?sate=pending", "", nil, 400, CodeBadRequest},
		{"a parameter twice", "GET", "/api/v1/approvals?state=pending&state=denied", "", nil, 400, CodeBadRequest},
		{"no limit at all", "GET", "/api/v1/approvals?limit=0", "", nil, 400, CodeBadRequest},
		{"too high a limit", "GET", "/api/v1/approvals?limit=1001", "", nil, 400, CodeBadRequest},
		{"a query that cannot be read", "GET", "/api/v1/approvals?state=%zz", "", nil, 400, CodeBadRequest},

		{"a body that is not JSON", "POST", approve, "reason=x", nil, 400, CodeBadRequest},
		{"a body that is no object", "POST", approve, `"yes"`, nil, 400, CodeBadRequest},
		{"a body with a key too many", "POST", approve, `{"reason":"","approve":true}`, nil, 400, CodeBadRequest},
		{"a body with a key twice", "POST", approve, `{"by":"kim","by":"lee"}`, nil, 400, CodeBadRequest},
		{"a body with a key in other case", "POST", approve, `{"By":"kim"}`, nil, 400, CodeBadRequest},
		{"a body with an escaped key", "POST", approve, `{"b\u0079":"kim"}`, nil, 400, CodeBadRequest},
		{"a body with a wrong type", "POST", approve, `{"reason":1}`, nil, 400, CodeBadRequest},
		{"a body that is cut", "POST", approve, `{"reason":"x"`, nil, 400, CodeBadRequest},
		{"two bodies", "POST", approve, `{}{}`, nil, 400, CodeBadRequest},
		{"a body of a form's type", "POST", approve, `{}`, header("Content-Type", "text/plain"), 400, CodeBadRequest},
		{"a body without a type", "POST", approve, `{}`, header("Content-Type"), 400, CodeBadRequest},
		{"a body that is too large", "POST", approve, `{"reason":"` + strings.Repeat("x", maxBody) + `"}`, nil, 413, CodeTooLarge},
		{"a reason that is too long", "POST", approve, `{"reason":"` + strings.Repeat("x", maxReason+1) + `"}`, nil, 400, CodeBadRequest},
		{"a name that moves the cursor", "POST", approve, `{"by":"\u001b[2Jkim"}`, nil, 400, CodeBadRequest},
		{"a name that reads backwards", "POST", approve, `{"by":"\u202emik"}`, nil, 400, CodeBadRequest},
		{"a reason of two lines", "POST", approve, `{"reason":"a\nb"}`, nil, 400, CodeBadRequest},

		{"an unknown approval", "GET", "/api/v1/approvals/zz", "", nil, 404, CodeNotFound},
		{"to answer an unknown approval", "POST", "/api/v1/approvals/zz/approve", "", nil, 404, CodeNotFound},
		{"to answer twice", "POST", "/api/v1/approvals/d1/approve", "", nil, 409, CodeAnswered},
		{"to answer an expired one", "POST", "/api/v1/approvals/e1/deny", "", nil, 409, CodeAnswered},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(approval("p1", gate.StatePending), approval("d1", gate.StateDenied), approval("e1", gate.StateExpired))
			w, body := respond(t, newAPI(d), request(tt.method, tt.path, tt.body, tt.change))
			var e struct{ Code, Message string }
			if err := json.Unmarshal(body["error"], &e); err != nil {
				t.Fatalf("there is no error: %s", w.Body)
			}
			if w.Code != tt.status || e.Code != tt.code || e.Message == "" {
				t.Errorf("got %d %s: %s, want %d %s", w.Code, e.Code, e.Message, tt.status, tt.code)
			}
			if d.byID["p1"].State != gate.StatePending {
				t.Error("the approval was answered")
			}
			if (w.Code == 401) != (w.Header().Get("WWW-Authenticate") != "") {
				t.Errorf("WWW-Authenticate is %q", w.Header().Get("WWW-Authenticate"))
			}
			if (w.Code == 405) != (w.Header().Get("Allow") != "") {
				t.Errorf("Allow is %q", w.Header().Get("Allow"))
			}
		})
	}
}

func TestTheAPIIsReachedByItsOwnNames(t *testing.T) {
	h := newAPI(newDesk())
	for _, name := range []string{
		"127.0.0.1", "127.0.0.1:4142", "127.1.2.3:80", "localhost", "LOCALHOST:4142", "[::1]", "[::1]:4142",
		"gate.example:4142", "GATE.example:4142", "console.example", "console.example:99",
	} {
		for _, change := range []func(*http.Request){
			host(name),
			func(r *http.Request) { host(name)(r); header("Origin", "http://"+name)(r) },
			func(r *http.Request) { host(name)(r); header("Sec-Fetch-Site", "same-origin")(r) },
		} {
			if w, _ := respond(t, h, request("GET", "/api/v1/approvals", "", change)); w.Code != 200 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
	}
}

func TestHealthNeedsNoTokenAndSaysNothingElse(t *testing.T) {
	h := newAPI(newDesk(approval("p1", gate.StatePending)))
	w, _ := respond(t, h, request("GET", "/api/v1/health", "", func(r *http.Request) {
		r.Header.Del("Authorization")
		r.Host = "10.1.2.3:4142" // a probe of an orchestrator
	}))
	if w.Code != 200 || w.Body.String() != "{\"status\":\"ok\"}\n" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestWithoutATokenNobodyGetsIn(t *testing.T) {
	h := New(Config{Desk: newDesk()})
	for _, token := range []string{"", " ", "x"} {
		w, _ := respond(t, h, request("GET", "/api/v1/approvals", "", header("Authorization", "Bearer "+token)))
		if w.Code != 401 {
			t.Errorf("token %q: got %d", token, w.Code)
		}
	}
}

func TestListsAreAskedForAsTheQuerySays(t *testing.T) {
	for _, tt := range []struct{ query, want string }{
		{"", " 200"},
		{"?state=", " 200"},
		{"?state=pending", "pending 200"},
		{"?state=withdrawn&limit=1000", "withdrawn 1000"},
		{"?limit=1", " 1"},
	} {
		d := newDesk(approval("p1", gate.StatePending))
		w, _ := respond(t, newAPI(d), request("GET", "/api/v1/approvals"+tt.query, "", nil))
		if w.Code != 200 || !slices.Equal(d.asked, []string{tt.want}) {
			t.Errorf("%q: got %d, asked %q, want %q", tt.query, w.Code, d.asked, tt.want)
		}
	}
}

func TestAnEmptyListIsAList(t *testing.T) {
	w, body := respond(t, newAPI(newDesk()), request("GET", "/api/v1/approvals", "", nil))
	if string(body["approvals"]) != "[]" {
		t.Errorf("got %s", w.Body)
	}
}

func TestAnswersReachTheDesk(t *testing.T) {
	for _, tt := range []struct {
		name, verb, body string
		state            gate.ApprovalState
		by, reason       string
	}{
		{"a bare yes", "approve", "", gate.StateApproved, someone, ""},
		{"a bare no", "deny", "", gate.StateDenied, someone, ""},
		{"an empty object", "approve", " {} ", gate.StateApproved, someone, ""},
		{"a yes with name and reason", "approve", `{"reason":"fine, Zoë","by":"kim"}`, gate.StateApproved, "kim", "fine, Zoë"},
		{"a no with a reason", "deny", `{"reason":"not that folder"}`, gate.StateDenied, someone, "not that folder"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(approval("p1", gate.StatePending))
			w, _ := respond(t, newAPI(d), request("POST", "/api/v1/approvals/p1/"+tt.verb, tt.body, nil))
			if w.Code != 200 {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			var got gate.Approval
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(d.byID["p1"], got); d != "" {
				t.Error(d)
			}
			if got.State != tt.state || got.By != tt.by || got.Reason != tt.reason {
				t.Errorf("got %s by %q: %q", got.State, got.By, got.Reason)
			}
		})
	}
}

func TestWhoComesLateIsToldWhoWasFirst(t *testing.T) {
	for _, tt := range []struct {
		state gate.ApprovalState
		want  string
	}{
		{gate.StateDenied, "already denied by kim at 2026-03-01T12:01:00Z"},
		{gate.StateApproved, "already approved by kim at 2026-03-01T12:01:00Z"},
		{gate.StateSpent, "already approved by kim"},
		{gate.StateExpired, "until 2026-03-01T13:00:00Z"},
		{gate.StateWithdrawn, "withdrawn"},
	} {
		t.Run(string(tt.state), func(t *testing.T) {
			w, body := respond(t, newAPI(newDesk(approval("x1", tt.state))), request("POST", "/api/v1/approvals/x1/approve", "", nil))
			var a gate.Approval
			if err := json.Unmarshal(body["approval"], &a); err != nil || a.ID != "x1" || a.State != tt.state {
				t.Errorf("the approval is not shown as it stands: %s", w.Body)
			}
			if w.Code != 409 || !strings.Contains(string(body["error"]), tt.want) {
				t.Errorf("got %d %s, want %q", w.Code, body["error"], tt.want)
			}
		})
	}
}

func TestAFailingDeskIsAnErrorAndNoAnswer(t *testing.T) {
	d := newDesk(approval("p1", gate.StatePending))
	d.err = errors.New("state: callgate.db: no space")
	for _, r := range []*http.Request{
		request("GET", "/api/v1/approvals", "", nil),
		request("GET", "/api/v1/approvals/p1", "", nil),
		request("POST", "/api/v1/approvals/p1/approve", "", nil),
	} {
		if w, body := respond(t, newAPI(d), r); w.Code != 500 || !strings.Contains(string(body["error"]), "no space") {
			t.Errorf("%s %s: got %d %s", r.Method, r.URL, w.Code, w.Body)
		}
	}
}

func TestOfFiftyRacingAnswersOneGets200(t *testing.T) {
	d := newDesk(approval("p1", gate.StatePending))
	h := newAPI(d)
	var won, late atomic.Int32
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			verb := []string{"approve", "deny"}[i%2]
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request("POST", "/api/v1/approvals/p1/"+verb, "", nil))
			switch w.Code {
			case 200:
				won.Add(1)
			case 409:
				late.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || late.Load() != 49 {
		t.Errorf("%d won and %d were late", won.Load(), late.Load())
	}
}

// FuzzAnswer gives any body: it is refused, or read as the one thing that each
// JSON reader finds in it.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{``, `{}`, `{"reason":"x","by":"kim"}`, `{"reason":null}`, `{"by":"\u006bim"}`, `[]`, `{"reason":"x"}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		ans, fault := readAnswer(request("POST", "/", body, nil))
		if fault != nil || body == "" {
			return
		}
		var m map[string]*string
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatalf("%q was taken: %v", body, err)
		}
		text := func(key string) string {
			p := m[key]
			delete(m, key)
			if p == nil {
				return ""
			}
			return *p
		}
		if ans.Reason != text("reason") || ans.By != text("by") || len(m) != 0 || ans.Approve {
			t.Errorf("%q was read as %+v", body, ans)
		}
		if strings.ContainsAny(ans.By+ans.Reason, "\x00\x1b\n\r\u202e\u200b") {
			t.Errorf("%+q hides or moves something", ans.By+ans.Reason)
		}
	})
}

func TestTheServerCutsASlowHeaderOff(t *testing.T) {
	s := Server(newAPI(newDesk()))
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("a limit is missing: %+v", s)
	}
	s.ReadHeaderTimeout = 20 * time.Millisecond
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err == nil && bytes.Contains(b, []byte("200 OK")) {
		t.Errorf("got %s", b)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
