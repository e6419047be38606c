package proxy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"callgate/inspect"
)

// provider is a transport that answers itself, each time by the next of answers
// or the last of them.
type provider struct {
	answers []func() *http.Response
	asked   []string
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	answer := p.answers[min(len(p.asked), len(p.answers)-1)]
	p.asked = append(p.asked, string(b))
	return answer(), nil
}

func replies(status int, body io.Reader, header ...string) func() *http.Response {
	h := http.Header{"Content-Type": {asJSON}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return func() *http.Response {
		return &http.Response{StatusCode: status, Header: h, ContentLength: -1, Body: io.NopCloser(body)}
	}
}

func TestThinkingThatIsRefusedIsTakenOutOnce(t *testing.T) {
	const (
		thought = `{"type":"thinking","thinking":"t","signature":"s"},`
		ask     = `{"model":"m","max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` +
			thought + `{"type":"text","text":"b"}]},{"role":"user","content":"c"}]}`
		refusal = "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.1.content.0: Invalid `signature` in `thinking` block\"}}"
		whole   = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"d"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}`
	)
	without := strings.ReplaceAll(strings.Replace(ask, thought, "", 1), `"thinking":{"type":"enabled","budget_tokens":1024},`, "")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, refusal)
	z.Close()
	no := func() func() *http.Response { return replies(400, strings.NewReader(refusal)) }
	yes := func() func() *http.Response { return replies(200, strings.NewReader(whole)) }
	plain := strings.Replace(without, `"c"`, `"c, and of thinking"`, 1)
	for name, tt := range map[string]struct {
		ask     string
		answers []func() *http.Response
		header  string
		asked   []string
		status  int
		shown   string
	}{
		"and the provider takes the rest":            {ask, []func() *http.Response{no(), yes()}, "", []string{ask, without}, 200, whole},
		"when its refusal is packed":                 {ask, []func() *http.Response{replies(400, &packed, "Content-Encoding", "gzip"), yes()}, "", []string{ask, without}, 200, whole},
		"and the second refusal is the agent's":      {ask, []func() *http.Response{no(), no()}, "", []string{ask, without}, 400, refusal},
		"not when there is none":                     {plain, []func() *http.Response{no()}, "", []string{plain}, 400, refusal},
		"not when the request is signed":             {ask, []func() *http.Response{no()}, "AWS4-HMAC-SHA256 Credential=AKIA/x", []string{ask}, 400, refusal},
		"not for another status":                     {ask, []func() *http.Response{replies(500, strings.NewReader(refusal))}, "", []string{ask}, 500, refusal},
		"not for another error":                      {ask, []func() *http.Response{replies(400, strings.NewReader(`{"error":"max_tokens"}`))}, "", []string{ask}, 400, `{"error":"max_tokens"}`},
		"not when the refusal breaks off":            {ask, []func() *http.Response{replies(400, io.MultiReader(strings.NewReader(refusal), iotest.ErrReader(errors.New("cut"))))}, "", []string{ask}, 400, "broke off: cut"},
		"not when the refusal cannot be unpacked":    {ask, []func() *http.Response{replies(400, strings.NewReader(refusal), "Content-Encoding", "gzip")}, "", []string{ask}, 400, "withheld"},
		"not when the refusal is larger than errors": {ask, []func() *http.Response{replies(400, strings.NewReader(refusal+strings.Repeat(" ", maxError)))}, "", []string{ask}, 400, "withheld"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := benchProxy(&url.URL{Scheme: "http", Host: "provider.test"})
			if err != nil {
				t.Fatal(err)
			}
			from := &provider{answers: tt.answers}
			p.Transport = from
			r := httptest.NewRequest("POST", "/W6/v1/messages", strings.NewReader(tt.ask))
			r.RequestURI, r.URL.Host, r.URL.Scheme = "", "", ""
			if tt.header != "" {
				r.Header.Set("Authorization", tt.header)
			}
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			if got := w.Body.String(); w.Code != tt.status || !strings.Contains(got, tt.shown) {
				t.Errorf("the agent got status %d, %.300s", w.Code, got)
			}
			if got := strings.Join(from.asked, "\n"); got != strings.Join(tt.asked, "\n") {
				t.Errorf("the provider got\n%s", got)
			}
			if n := p.memory.used.Load(); n != 0 {
				t.Errorf("%d bytes are still charged", n)
			}
		})
	}
}

func TestCallsWhoseResultsAreMissedAreRefused(t *testing.T) {
	held := inspect.Unit{Answer: "a2", Calls: []string{"c1"}}
	kept := inspect.Mend{Rounds: []inspect.Round{{ID: "a1"}, {ID: "a3", Calls: []string{"c1", "c2"}, Refusals: []inspect.Refusal{{Call: 1, Text: "no"}}}}}
	for name, tt := range map[string]struct {
		units   []inspect.Unit
		mend    *inspect.Mend
		missing string
		want    string // ids of the refused calls, "" for no change
		as      string // the answer that the request goes on with
	}{
		"of an answer that the provider holds":     {[]inspect.Unit{held}, nil, "c2 c3", "c2 c3", "a2"},
		"beside those of which something is known": {[]inspect.Unit{held}, &kept, "c3", "c2 c3", "a3"},
		"each once":                              {[]inspect.Unit{held}, nil, "c2 c2", "c2", "a2"},
		"not one that has a result":              {[]inspect.Unit{held}, nil, "c1", "", ""},
		"not one that was refused already":       {[]inspect.Unit{held}, &kept, "c2", "", ""},
		"not of a history that the client sends": {[]inspect.Unit{{Calls: []string{"c1"}}}, nil, "c2", "", ""},
		"not when two answers are named":         {[]inspect.Unit{held, held}, nil, "c2", "", ""},
	} {
		mends := map[int]inspect.Mend{}
		if tt.mend != nil {
			mends[0] = *tt.mend
		}
		changed := refuse(strings.Fields(tt.missing), tt.units, mends)
		var ids []string
		as := ""
		if changed {
			r := mends[0].Rounds[len(mends[0].Rounds)-1]
			as = r.ID
			for _, f := range r.Refusals {
				ids = append(ids, r.Calls[f.Call])
			}
		}
		if got := strings.Join(ids, " "); got != tt.want || as != tt.as || changed != (tt.want != "") {
			t.Errorf("%s: %t, refused %q of %q", name, changed, got, as)
		}
	}
	if len(kept.Rounds[1].Refusals) != 1 || len(kept.Rounds[1].Calls) != 2 {
		t.Error("what others use was changed")
	}
}
