package console

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"callgate/gate"

	gocmp "github.com/google/go-cmp/cmp"
)

// listen serves h on the loopback interface until the test ends.
func listen(t *testing.T, h http.Handler) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &Client{Base: s.URL, Token: goodToken}
}

func TestTheClientSpeaksTheAPI(t *testing.T) {
	d := newDesk(approval("p1", gate.StatePending), approval("p2", gate.StatePending), approval("d1", gate.StateDenied))
	c := listen(t, newAPI(d))
	ctx := t.Context()

	list, err := c.List(ctx, gate.StatePending, 0)
	if err != nil || len(list) != 2 {
		t.Fatalf("got %d, %v", len(list), err)
	}
	if list, err = c.List(ctx, "", 7); err != nil || len(list) != 3 || d.asked[1] != " 7" {
		t.Fatalf("got %d, %v, asked %q", len(list), err, d.asked)
	}
	one, err := c.Get(ctx, "p1")
	if diff := gocmp.Diff(d.byID["p1"], one); diff != "" || err != nil {
		t.Error(diff, err)
	}
	yes, err := c.Approve(ctx, "p1", "fine", "kim")
	if err != nil || yes.State != gate.StateApproved || yes.By != "kim" || yes.Reason != "fine" {
		t.Errorf("got %+v, %v", yes, err)
	}
	no, err := c.Deny(ctx, "p2", "", "")
	if err != nil || no.State != gate.StateDenied {
		t.Errorf("got %+v, %v", no, err)
	}
	c.Base += "/" // as people write it
	if _, err := c.Get(ctx, "p1"); err != nil {
		t.Error(err)
	}
}

func TestTheClientsErrorsSayWhatToDo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good := listen(t, newAPI(newDesk(approval("p1", gate.StatePending), approval("d1", gate.StateDenied)))).Base
	other := listen(t, http.NotFoundHandler()).Base
	object := func(body string) string {
		return listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })).Base
	}
	page := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })).Base
	moved := listen(t, http.RedirectHandler(good+"/api/v1/approvals/p1", http.StatusTemporaryRedirect)).Base
	for _, tt := range []struct {
		name, base, token, id string
		want                  error
		words                 string
	}{
		{"nobody listens", nobody, goodToken, "p1", ErrUnreachable, "is callgate serve running"},
		{"another program listens", other, goodToken, "p1", ErrUnreachable, "not callgate's control listener"},
		{"another program's JSON answers", object(`{"status":"ok"}`), goodToken, "p1", ErrUnreachable, "not callgate's control listener"},
		{"another approval answers", object(`{"id":"p2","state":"approved","created":"2026-03-01T00:00:00Z"}`), goodToken, "p1", ErrUnreachable, "not callgate's control listener"},
		{"an approval of another kind answers", object(`{"id":"p1","state":"ok","created":"2026-03-01T00:00:00Z"}`), goodToken, "p1", ErrUnreachable, "not callgate's control listener"},
		{"a web page answers", page, goodToken, "p1", ErrUnreachable, "not callgate's control listener"},
		{"a redirect is not followed", moved, goodToken, "p1", ErrUnreachable, "status 307"},
		{"no token", good, "", "p1", ErrToken, "CALLGATE_CONTROL_TOKEN"},
		{"a wrong token", good, "wrong", "p1", ErrToken, "CALLGATE_CONTROL_TOKEN"},
		{"an unknown id", good, goodToken, "zz", gate.ErrNotFound, "no such approval"},
		{"an id that is no path", good, goodToken, "../health", gate.ErrNotFound, ""},
		{"an answered one", good, goodToken, "d1", gate.ErrAnswered, "denied by kim"},
		{"an address that is none", "http://\x00", goodToken, "p1", nil, "address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &Client{Base: tt.base, Token: tt.token}
			_, err := c.Approve(t.Context(), tt.id, "", "")
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.words)
			}
			if strings.Contains(err.Error(), goodToken) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
}

func TestAListMustBeAList(t *testing.T) {
	for _, body := range []string{`{}`, `{"status":"ok"}`, `{"approvals":null}`, `{"approvals":[{}]}`, `{"approvals":[{"id":"x"}]}`, `[]`, `null`, `1`, ``} {
		c := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		if list, err := c.List(t.Context(), "", 0); !errors.Is(err, ErrUnreachable) || list != nil || !strings.Contains(err.Error(), "not callgate's control listener") {
			t.Errorf("%s: got %v, %v", body, list, err)
		}
	}
	c := listen(t, newAPI(newDesk()))
	if list, err := c.List(t.Context(), gate.StatePending, 0); err != nil || len(list) != 0 {
		t.Errorf("an empty list: got %v, %v", list, err)
	}
}

func TestIdsAreTakenInAnyCase(t *testing.T) {
	c := listen(t, newAPI(newDesk(approval("p1xy", gate.StatePending), approval("p2xy", gate.StatePending))))
	if a, err := c.Get(t.Context(), "P1XY"); err != nil || a.ID != "p1xy" {
		t.Errorf("got %+v, %v", a, err)
	}
	if a, err := c.Approve(t.Context(), "P1xY", "", ""); err != nil || a.ID != "p1xy" || a.State != gate.StateApproved {
		t.Errorf("got %+v, %v", a, err)
	}
	if a, err := c.Deny(t.Context(), "P2XY", "", ""); err != nil || a.ID != "p2xy" || a.State != gate.StateDenied {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestALateAnswerCarriesTheApproval(t *testing.T) {
	c := listen(t, newAPI(newDesk(approval("d1", gate.StateDenied))))
	_, err := c.Approve(t.Context(), "d1", "", "")
	e, ok := errors.AsType[*APIError](err)
	if !ok || e.Status != http.StatusConflict || e.Approval == nil || e.Approval.By != "kim" {
		t.Errorf("got %+v", err)
	}
	if errors.Is(err, gate.ErrNotFound) || errors.Is(err, ErrToken) {
		t.Error("one error counts as another")
	}
}

func TestTheTokenGoesThroughNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the proxy was asked")
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	c := &Client{Base: "http://callgate.invalid:4142", Token: goodToken}
	if _, err := c.Get(t.Context(), "p1"); !errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

func TestAnEndedContextIsSaidToBeThat(t *testing.T) {
	c := listen(t, newAPI(newDesk()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, "p1"); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}
