package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"callgate/gate"
)

const (
	plannerToken = "cgt_PLANNERPLANNERPLANNER23456"
	workerToken  = "w0rker.w0rker-w0rker_w0rker~" // one that callgate did not make
	lostToken    = "cgt_LOSTLOSTLOSTLOSTLOSTLOST22"
)

func hashed(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

func basic(user, pass string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+pass))
}

// threeAgents are one with a token, one limited to an upstream, and one that an
// address of its own proves.
func threeAgents(t testing.TB, more ...Agent) *Agents {
	t.Helper()
	a, err := NewAgents(append([]Agent{
		{Name: "planner", Token: hashed(plannerToken)},
		{Name: "worker", Token: hashed(workerToken), Upstreams: []string{"openai"}},
		{Name: "desk"},
	}, more...))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// tokens are what must be nowhere behind the door.
var tokens = []string{
	plannerToken, workerToken, lostToken, basic("agent", plannerToken)[len("Basic "):], basic("planner", plannerToken)[len("Basic "):],
	basic(plannerToken, "")[len("Basic "):],
}

func leaks(s string) string {
	for _, t := range tokens {
		if strings.Contains(s, t) {
			return t
		}
	}
	return ""
}

// door is a proxy that tells whom it takes a request for.
type door struct {
	p     *Proxy
	rec   *recorder
	log   bytes.Buffer
	names []string
}

func newDoor(a *Agents) *door {
	d := &door{rec: &recorder{}}
	d.p = routes(d.rec)
	d.p.Agents, d.p.Log = a, slog.New(slog.NewTextHandler(&d.log, nil))
	d.p.Principal = func(agent, _ string, h http.Header) Tenant {
		d.names = append(d.names, agent)
		return Tenant{Principal: fmt.Sprint(agent, h)}
	}
	return d
}

// ask sends a request and checks that no token came through.
func (d *door) ask(t *testing.T, wire string, on ...string) *httptest.ResponseRecorder {
	t.Helper()
	d.rec.reqs, d.rec.body, d.names = nil, nil, nil
	if len(on) > 0 {
		req := request(t, wire)
		w := httptest.NewRecorder()
		d.p.ServeHTTP(w, req.WithContext(WithAgent(req.Context(), on[0])))
		d.clean(t, wire, w)
		return w
	}
	w, ok := raw(t, d.p, wire)
	if !ok {
		t.Fatalf("not a request: %s", wire)
	}
	d.clean(t, wire, w)
	return w
}

func (d *door) clean(t *testing.T, wire string, w *httptest.ResponseRecorder) {
	t.Helper()
	for where, text := range map[string]string{
		"the answer": w.Body.String(), "its headers": fmt.Sprint(w.Header()), "the log": d.log.String(), "the tenant": fmt.Sprint(d.names),
	} {
		if s := leaks(text); s != "" {
			t.Errorf("%q: %s holds the token %s: %s", wire, where, s, text)
		}
	}
	for _, q := range d.rec.reqs {
		if s := leaks(q.URL.String() + fmt.Sprint(q.Header) + q.Host); s != "" {
			t.Errorf("%q: the provider was sent the token %s: %s %v", wire, s, q.URL, q.Header)
		}
	}
}

// request reads a request as it stands on the wire.
func request(t testing.TB, wire string) *http.Request {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(wire)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wire(method, path string, headers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: gate\r\nContent-Length: 3\r\n", method, path)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String() + "\r\nask"
}

func TestATokenSaysWhichAgentARequestIsOf(t *testing.T) {
	provider := "Authorization: Bearer sk-provider"
	for _, c := range []struct {
		name, wire, agent, url string
		key                    string // the provider's key that goes up
	}{
		{"in the path of an upstream", wire("POST", "/~"+plannerToken+"/anthropic/v1/lines?a=b", provider), "planner", "https://api.anthropic.com/v1/lines?a=b", "Bearer sk-provider"},
		{"in a bare path", wire("POST", "/~"+plannerToken+"/v1/lines", provider), "planner", "https://api.openai.com/v1/lines", "Bearer sk-provider"},
		{"with its sign escaped", wire("POST", "/%7E"+plannerToken+"/v1/lines"), "planner", "https://api.openai.com/v1/lines", ""},
		{"with its sign escaped in small letters", wire("POST", "/%7e"+workerToken+"/v1/lines"), "worker", "https://api.openai.com/v1/lines", ""},
		{"before a path with escapes", wire("POST", "/~"+workerToken+"/openai/deployments/m%C3%A9/x%20y"), "", "https://api.openai.com/deployments/m%C3%A9/x%20y", ""},
		{"as a bearer token", wire("POST", "/v1/lines", "Authorization: Bearer "+plannerToken), "planner", "https://api.openai.com/v1/lines", ""},
		{"in other letters of the scheme", wire("POST", "/v1/lines", "authorization: bearer  "+workerToken), "worker", "https://api.openai.com/v1/lines", ""},
		{"as a key alone", wire("POST", "/v1/lines", "X-Api-Key: "+plannerToken), "planner", "https://api.openai.com/v1/lines", ""},
		{"as a key beside a provider's", wire("POST", "/v1/lines", "X-Api-Key: "+plannerToken, provider), "planner", "https://api.openai.com/v1/lines", "Bearer sk-provider"},
		{"as another key", wire("POST", "/v1/lines", "Api-Key: "+workerToken), "worker", "https://api.openai.com/v1/lines", ""},
		{"as a key of Google's", wire("POST", "/v1/lines", "X-Goog-Api-Key: "+plannerToken), "planner", "https://api.openai.com/v1/lines", ""},
		{"in a header that some servers read as that", wire("POST", "/v1/lines", "x_api_key: "+plannerToken), "planner", "https://api.openai.com/v1/lines", ""},
		{"in two headers", wire("POST", "/v1/lines", "X-Api-Key: "+plannerToken, "Authorization: Bearer "+plannerToken), "planner", "https://api.openai.com/v1/lines", ""},
		{"in path and header", wire("POST", "/~"+plannerToken+"/v1/lines", "X-Api-Key: "+plannerToken), "planner", "https://api.openai.com/v1/lines", ""},
		{"in the query", wire("POST", "/v1/lines?b=%2F&key="+workerToken+"&a=1"), "worker", "https://api.openai.com/v1/lines?b=%2F&a=1", ""},
		{"as credentials for a proxy", wire("POST", "/v1/lines", "Proxy-Authorization: "+basic("agent", plannerToken), provider), "planner", "https://api.openai.com/v1/lines", "Bearer sk-provider"},
		{"beside the agent's name", wire("POST", "/v1/lines", "Proxy-Authorization: "+basic("planner", plannerToken)), "planner", "https://api.openai.com/v1/lines", ""},
		{"as the user of a proxy", wire("POST", "/v1/lines", "Proxy-Authorization: "+basic(plannerToken, "")), "planner", "https://api.openai.com/v1/lines", ""},
		{"as a bearer token for a proxy", wire("POST", "/v1/lines", "Proxy-Authorization: Bearer "+plannerToken), "planner", "https://api.openai.com/v1/lines", ""},
		{"with where it was before", wire("POST", "/~"+plannerToken+"/v1/lines", "Referer: http://gate/~"+plannerToken+"/v1/x"), "planner", "https://api.openai.com/v1/lines", ""},
		{"no token where callgate made one for nobody", wire("POST", "/v1/lines", "X-Note: cgt_short", "X-Api-Key: "+plannerToken), "planner", "https://api.openai.com/v1/lines", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDoor(threeAgents(t))
			w := d.ask(t, c.wire)
			if len(d.rec.reqs) != 1 {
				t.Fatalf("not forwarded: %d %s", w.Code, w.Body)
			}
			q := d.rec.reqs[0]
			if q.URL.String() != c.url || q.Header.Get("Authorization") != c.key || q.Header.Get("Proxy-Authorization") != "" {
				t.Errorf("%s was sent with %v, want %s and %q", q.URL, q.Header, c.url, c.key)
			}
			if c.agent == "" { // an endpoint where nobody asks who it is
				return
			}
			if !slices.Contains(d.names, c.agent) || len(slices.Compact(d.names)) != 1 {
				t.Errorf("the request is taken for one of %v, want %s", d.names, c.agent)
			}
		})
	}
}

func TestRequestsThatShowNoAgentOrAWrongOneAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		status     int
		says       string
	}{
		{"no token", wire("POST", "/openai/v1/lines", "Authorization: Bearer sk-provider"), 401, "this one has no token"},
		{"a wrong one in the path", wire("POST", "/~"+lostToken+"/v1/lines"), 401, "no agent's of this callgate: it stands in the path"},
		{"any wrong one in the path", wire("POST", "/~someone/v1/lines"), 401, "it stands in the path"},
		{"an empty one in the path", wire("POST", "/~/v1/lines"), 401, "it stands in the path"},
		{"a wrong one for the root", wire("GET", "/~"+lostToken), 401, "it stands in the path"},
		{"a wrong one beside a right one", wire("POST", "/~"+plannerToken+"/v1/lines", "X-Api-Key: "+lostToken), 401, "it stands in X-Api-Key"},
		{"a wrong one in the path beside a right one", wire("POST", "/~"+lostToken+"/v1/lines", "X-Api-Key: "+plannerToken), 401, "it stands in the path"},
		{"a wrong one as a bearer token", wire("POST", "/v1/lines", "Authorization: Bearer "+lostToken), 401, "it stands in Authorization"},
		{"a wrong one in an unknown scheme", wire("POST", "/v1/lines", "Authorization: Key "+lostToken), 401, "where none is taken"},
		{"a wrong one as a password", wire("POST", "/v1/lines", "Authorization: "+basic("u", lostToken)), 401, "it stands in Authorization"},
		{"a wrong one in the query", wire("POST", "/v1/lines?key="+lostToken), 401, "it stands in the query"},
		{"a wrong one in an escaped query", wire("POST", "/v1/lines?k%65y=%63gt_"+lostToken[4:]), 401, "it stands in the query"},
		{"one in a parameter that holds no key", wire("POST", "/v1/lines?q="+lostToken), 401, "where none is taken"},
		{"one in an escaped parameter that holds no key", wire("POST", "/v1/lines?q=%63gt_"+lostToken[4:]), 401, "where none is taken"},
		{"an escaped one further down the path", wire("POST", "/openai/%63gt_"+lostToken[4:]+"/lines"), 401, "where none is taken"},
		{"the same one again, escaped", wire("POST", "/~"+workerToken+"/openai/x?q="+fmt.Sprintf("%%%02x", workerToken[0])+workerToken[1:]), 401, "where none is taken"},
		{"one in a header that holds no key", wire("POST", "/~"+workerToken+"/v1/lines", "X-Note: "+lostToken), 401, "in the header X-Note, where none is taken"},
		{"one further down the path", wire("POST", "/openai/~"+plannerToken+"/v1/lines"), 401, "where none is taken"},
		{"two in the path", wire("POST", "/~"+plannerToken+"/~"+plannerToken+"/v1/lines"), 401, "two tokens"},
		{"the same one again in the path", wire("POST", "/~"+workerToken+"/openai/"+workerToken), 401, "where none is taken"},
		{"the same one again in the query", wire("POST", "/~"+workerToken+"/openai/x?q="+workerToken), 401, "where none is taken"},
		{"two agents", wire("POST", "/~"+plannerToken+"/v1/lines", "X-Api-Key: "+workerToken), 401, "two agents: planner and worker"},
		{"two agents in headers", wire("POST", "/v1/lines", "Api-Key: "+plannerToken, "Proxy-Authorization: Bearer "+workerToken), 401, "two agents"},
		{"two agents in one header", wire("POST", "/v1/lines", "Api-Key: "+plannerToken, "Api-Key: "+workerToken), 401, "two agents: planner and worker"},
		{"the name of another agent beside a token", wire("POST", "/v1/lines", "Proxy-Authorization: "+basic("worker", plannerToken)), 401, "not that of the agent worker"},
		{"a proxy's credentials that are no agent's", wire("POST", "/v1/lines", "Proxy-Authorization: "+basic("me", "secret")), 401, "it stands in Proxy-Authorization"},
		{"a scheme for a proxy that is not taken", wire("POST", "/v1/lines", "Proxy-Authorization: Negotiate YIIB"), 401, "it stands in Proxy-Authorization"},
		{"an agent's name alone", wire("POST", "/~planner/v1/lines"), 401, "it stands in the path"},
		{"the hash of a token", wire("POST", fmt.Sprintf("/~%x/v1/lines", hashed(plannerToken))), 401, "it stands in the path"},
		{"a token in other letters", wire("POST", "/~"+strings.ToLower(plannerToken)+"/v1/lines"), 401, "it stands in the path"},
		{"half a token", wire("POST", "/~"+plannerToken[:20]+"/v1/lines"), 401, "it stands in the path"},
		{"a token with more behind it", wire("POST", "/~"+plannerToken+"x/v1/lines"), 401, "it stands in the path"},
		{"an escaped token", wire("POST", "/~%63gt_"+plannerToken[4:]+"/v1/lines"), 401, "it stands in the path"},
		{"an upstream of others", wire("POST", "/~"+workerToken+"/anthropic/v1/lines"), 403, "the agent worker may not use the upstream anthropic; it may use openai (agents.worker.upstreams)"},
		{"an upstream of others by a bare path", wire("POST", "/~"+workerToken+"/v1/messages"), 403, "may not use the upstream anthropic"},
		{"an upstream that is none", wire("POST", "/~"+workerToken+"/nobody/v1/lines"), 404, "it knows openai: use"},
		{"a path that two servers read differently", wire("POST", "/~"+workerToken+"//openai/v1/lines"), 400, "empty segment"},
		{"a dot segment behind a token", wire("POST", "/~"+workerToken+"/../openai/v1/lines"), 400, "dot segment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDoor(threeAgents(t))
			w := d.ask(t, c.wire)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) || len(d.rec.reqs) != 0 {
				t.Errorf("status %d, %s, forwarded %d; want %d and %q", w.Code, w.Body, len(d.rec.reqs), c.status, c.says)
			}
			if got := w.Header().Get("Www-Authenticate"); (got != "") != (c.status == 401) {
				t.Errorf("WWW-Authenticate is %q", got)
			}
		})
	}
}

func TestWhoIsAtTheDoorWithoutAToken(t *testing.T) {
	plain := wire("POST", "/openai/v1/lines", "Authorization: Bearer sk-provider")
	limited := Agent{Name: DefaultAgent, Upstreams: []string{"openai"}}
	for _, c := range []struct {
		name   string
		agents *Agents
		wire   string
		on     []string
		status int
		agent  string
	}{
		{"anybody where no agents are known", nil, plain, nil, 418, DefaultAgent},
		{"the default agent where there is one", threeAgents(t, limited), plain, nil, 418, DefaultAgent},
		{"which may be limited", threeAgents(t, limited), wire("POST", "/anthropic/v1/lines"), nil, 403, ""},
		{"nobody where there is none", threeAgents(t), plain, nil, 401, ""},
		{"the agent of the address", threeAgents(t), plain, []string{"desk"}, 418, "desk"},
		{"who may show its own token there", threeAgents(t), wire("POST", "/~"+plannerToken+"/v1/lines"), []string{"planner"}, 418, "planner"},
		{"but not another's", threeAgents(t), wire("POST", "/~"+plannerToken+"/v1/lines"), []string{"desk"}, 401, ""},
		{"nor a wrong one", threeAgents(t), wire("POST", "/~"+lostToken+"/v1/lines"), []string{"desk"}, 401, ""},
		{"an address of nobody", threeAgents(t), plain, []string{"nobody"}, 401, ""},
		{"an address of an agent where none are known", nil, plain, []string{"desk"}, 401, ""},
		{"a lost token where no agents are known", nil, wire("POST", "/v1/lines", "Authorization: Bearer "+lostToken), nil, 401, ""},
		{"a lost token as a key", nil, wire("POST", "/v1/lines", "X-Api-Key: "+lostToken), nil, 401, ""},
		{"a lost token for a proxy", nil, wire("POST", "/v1/lines", "Proxy-Authorization: "+basic("a", lostToken)), nil, 401, ""},
		{"a lost token in the path", nil, wire("POST", "/~"+lostToken+"/v1/lines"), nil, 401, ""},
		{"another proxy's credentials", nil, wire("POST", "/openai/v1/lines", "Proxy-Authorization: "+basic("a", "b")), nil, 418, DefaultAgent},
		{"the root", threeAgents(t), wire("GET", "/"), nil, 200, ""},
		{"the root by a token", threeAgents(t), wire("GET", "/~"+plannerToken), nil, 200, ""},
		{"the root by a token and a slash", threeAgents(t), wire("HEAD", "/~"+plannerToken+"/"), nil, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDoor(c.agents)
			w := d.ask(t, c.wire, c.on...)
			if w.Code != c.status || (len(d.rec.reqs) == 1) != (c.status == 418) {
				t.Fatalf("status %d, %s, forwarded %d; want %d", w.Code, w.Body, len(d.rec.reqs), c.status)
			}
			if c.agent != "" && (len(d.names) == 0 || d.names[0] != c.agent) {
				t.Errorf("it is taken for %v, want %s", d.names, c.agent)
			}
		})
	}
}

func TestAgentsThatCannotBeToldApart(t *testing.T) {
	for name, list := range map[string][]Agent{
		"two with one name":            {{Name: "a"}, {Name: "a"}},
		"one without a name":           {{Token: hashed("x")}},
		"two with one token":           {{Name: "a", Token: hashed("x")}, {Name: "b", Token: hashed("x")}},
		"a hash of another length":     {{Name: "a", Token: []byte("x")}},
		"a default that proves itself": {{Name: DefaultAgent, Token: hashed("x")}},
	} {
		if _, err := NewAgents(list); err == nil {
			t.Errorf("%s are taken", name)
		}
	}
}

func TestWhoLogsInAtAProxy(t *testing.T) {
	for _, c := range []struct {
		name   string
		agents *Agents
		header http.Header
		keys   bool
		agent  string
		says   string
	}{
		{"with its token", threeAgents(t), http.Header{proxyAuth: {basic("x", plannerToken)}}, false, "planner", ""},
		{"with nothing", threeAgents(t), nil, false, "", "put the token into the proxy's URL"},
		{"with a lost token", threeAgents(t), http.Header{proxyAuth: {basic("x", lostToken)}}, false, "", "no agent's"},
		{"with a key that is for a provider", threeAgents(t), http.Header{"X-Api-Key": {plannerToken}}, false, "", "put the token into the proxy's URL"},
		{"with a key where the request goes there", threeAgents(t), http.Header{"X-Api-Key": {plannerToken}}, true, "planner", ""},
		{"with another's key beside it", threeAgents(t), http.Header{"X-Api-Key": {plannerToken}, proxyAuth: {basic("x", workerToken)}}, true, "", "two agents"},
		{"with nothing, as the default agent", threeAgents(t, Agent{Name: DefaultAgent}), nil, false, "", ""},
		{"with nothing where no agents are known", nil, nil, false, "", ""},
		{"with a lost token where no agents are known", nil, http.Header{proxyAuth: {"Bearer " + lostToken}}, false, "", "no agent's"},
	} {
		r := request(t, "CONNECT api.openai.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
		if r.Header = c.header; c.header == nil {
			r.Header = http.Header{}
		}
		agent, reason := c.agents.Login(r, c.keys)
		if agent != c.agent || (reason == "") != (c.says == "") || !strings.Contains(reason, c.says) || leaks(reason) != "" {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, agent, reason, c.agent, c.says)
		}
	}
	r := request(t, "CONNECT api.openai.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	if agent, reason := threeAgents(t).Login(r.WithContext(WithAgent(r.Context(), "desk")), false); agent != "desk" || reason != "" {
		t.Errorf("at its own address: %q, %q", agent, reason)
	}
}

// The key that two agents share tells them apart no more than their requests
// do: only their tokens can.
func TestNothingCrossesBetweenAgents(t *testing.T) {
	withheld := say(sse, "C sh never\nC ls fine\nE\n")
	s := &script{answers: []http.HandlerFunc{withheld, say(sse, "T ok\nE\n"), say(sse, "T ok\nE\n"), say(sse, "T ok\nE\n")}}
	r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}), func(p *Proxy) {
		a, err := NewAgents([]Agent{{Name: "planner", Token: hashed(plannerToken)}, {Name: "worker", Token: hashed(workerToken)}, {Name: DefaultAgent}})
		if err != nil {
			t.Fatal(err)
		}
		p.Agents = a
	})
	defer r.end()
	const key = "Bearer sk-of-both"
	text(t, r.post(t, "/~"+plannerToken+"/v1/lines", "ask\n", "Authorization", key))
	const history = "ask\nA id1\n"
	for i, c := range []struct{ path, want string }{
		{"/~" + workerToken + "/v1/lines", history},
		{"/v1/lines", history},
		{"/~" + plannerToken + "/v1/lines", "ask\nA id0,id1\nR <sh refused>\n"},
	} {
		text(t, r.post(t, c.path, history, "Authorization", key))
		if got := short(s.asked[i+1]); got != c.want {
			t.Errorf("by %.12s the provider got %q, want %q", c.path, got, c.want)
		}
	}
	for _, h := range s.headers {
		if leaks(fmt.Sprint(h)) != "" {
			t.Errorf("the provider was sent a token: %v", h)
		}
	}
	if got := r.journal.by("hardline"); len(got) != 1 || got[0].Agent != "planner" {
		t.Errorf("the audit log holds %+v", got)
	}
}

// A login token that says nothing of who has it, renewed and without a session,
// is not enough to find a refused call again, but an agent's token is.
func TestAnAgentsRefusedCallsOutliveItsLogin(t *testing.T) {
	const history, repaired = "ask\nA id1\n", "ask\nA id0,id1\nR <sh refused>\n"
	for _, c := range []struct{ name, path, on, want string }{
		{"nobody known", "/v1/lines", "", history},
		{"an agent by its token", "/~" + plannerToken + "/v1/lines", "", repaired},
		{"an agent by its address", "/v1/lines", "desk", repaired},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &script{answers: []http.HandlerFunc{say(sse, "C sh never\nC ls fine\nE\n"), say(sse, "T ok\nE\n")}}
			r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}), func(p *Proxy) {
				p.Agents = threeAgents(t, Agent{Name: DefaultAgent})
			})
			defer r.end()
			ask := func(body, token string) {
				t.Helper()
				req := httptest.NewRequest("POST", "http://gate.test"+c.path, strings.NewReader(body))
				req.URL.Scheme, req.URL.Host = "", ""
				req.Header.Set("Authorization", "Bearer sk-ant-oat01-"+token)
				if c.on != "" {
					req = req.WithContext(WithAgent(req.Context(), c.on))
				}
				w := httptest.NewRecorder()
				r.p.ServeHTTP(w, req)
				if w.Code != 200 {
					t.Fatalf("status %d: %s", w.Code, w.Body)
				}
			}
			ask("ask\n", "one")
			ask(history, "two")
			if got := short(s.asked[1]); got != c.want {
				t.Errorf("the provider got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatAClientClaimsIsPassedOnAsAClaim(t *testing.T) {
	s := &script{answers: []http.HandlerFunc{say(sse, "C sh danger\nE\n")}}
	r := newRig(t, s.ServeHTTP)
	defer r.end()
	resp := r.post(t, "/v1/lines", "ask", "X-Session", "s1", "X-Callgate-Platform", "telegram", "X-Callgate-User", strings.Repeat("u", 300), "x_callgate_user", "other")
	a := <-r.person
	want := gate.Claims{Session: "s1", Platform: "telegram", User: claimed(strings.Repeat("u", 300))}
	if a.req.Claimed != want || a.req.Agent != DefaultAgent {
		t.Errorf("the gate is told %+v of agent %s", a.req.Claimed, a.req.Agent)
	}
	a.say(gate.Deny)
	text(t, resp)
	if got := r.journal.by("person"); len(got) != 1 || got[0].Claimed != want {
		t.Errorf("the audit log holds %+v", got)
	}
	for name := range s.headers[0] {
		if strings.HasPrefix(asRead(name), "X-Callgate") {
			t.Errorf("the provider was sent %s", name)
		}
	}
	key := PrincipalKey([]byte("k"))
	if key("a", "u", http.Header{userHeader: {"ann"}, platformHeader: {"cli"}}) != key("a", "u", nil) {
		t.Error("a claim names a tenant")
	}
}

func BenchmarkIntroduce(b *testing.B) {
	many := make([]Agent, 100)
	for i := range many {
		many[i] = Agent{Name: fmt.Sprint("agent", i), Token: hashed(fmt.Sprint("token", i))}
	}
	hundred, err := NewAgents(append(many, Agent{Name: "planner", Token: hashed(plannerToken)}))
	if err != nil {
		b.Fatal(err)
	}
	headers := []string{
		"Accept: application/json", "Accept-Encoding: gzip, deflate, br, zstd", "Anthropic-Beta: a,b,c,d", "Anthropic-Version: 2023-06-01", "Content-Type: application/json",
		"User-Agent: claude-cli/2.1", "X-App: cli", "X-Claude-Code-Session-Id: 6f4b", "X-Stainless-Arch: x64", "X-Stainless-Lang: js", "X-Stainless-Os: Linux",
		"X-Stainless-Package-Version: 0.60.0", "X-Stainless-Retry-Count: 0", "X-Stainless-Runtime: node", "X-Stainless-Runtime-Version: v22", "X-Stainless-Timeout: 600",
	}
	for _, c := range []struct {
		name   string
		agents *Agents
		wire   string
	}{
		{"nobody known", nil, wire("POST", "/v1/messages?beta=true", append(headers, "X-Api-Key: sk-ant-api03-0123456789")...)},
		{"by path, of 101", hundred, wire("POST", "/~"+plannerToken+"/v1/messages?beta=true", append(headers, "X-Api-Key: sk-ant-api03-0123456789")...)},
		{"by key, of 101", hundred, wire("POST", "/v1/messages?beta=true", append(headers, "X-Api-Key: "+plannerToken)...)},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := request(b, c.wire)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, f := c.agents.introduce(r); f != nil {
					b.Fatal(f.reason)
				}
			}
		})
	}
}

// FuzzIntroduce checks that no token goes on and that none makes an agent of
// anything else.
func FuzzIntroduce(f *testing.F) {
	for _, s := range []string{
		"/~" + plannerToken + "/v1/x", "/%7E" + plannerToken, "/~/x", "/~x/~" + plannerToken, "/v1/" + plannerToken + "?key=" + plannerToken, "/a?key=" + plannerToken + "&q=1",
		"/%7e%7E/~?" + plannerToken, "/openai/~" + plannerToken + ";x", "/~" + plannerToken + "%2Fx", "*",
	} {
		f.Add(s, "Bearer "+plannerToken, "")
		f.Add(s, "", basic("planner", plannerToken))
		f.Add(s, basic("worker", plannerToken), "Basic !")
	}
	a := threeAgents(f)
	f.Fuzz(func(t *testing.T, target, auth, proxy string) {
		r, err := http.NewRequest("POST", "http://h", nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := r.URL.Parse(target)
		if err != nil {
			t.Skip()
		}
		r.URL = u
		r.Header = http.Header{"Authorization": {auth}, proxyAuth: {proxy}, "X-Other": {auth}}
		out, by, refused := a.introduce(r)
		if refused != nil {
			if leaks(refused.reason) != "" {
				t.Fatalf("the refusal tells a token: %s", refused.reason)
			}
			return
		}
		for _, part := range []string{out.URL.EscapedPath(), out.URL.RawQuery, out.RequestURI, fmt.Sprint(out.Header)} {
			if strings.Contains(part, plannerToken) {
				t.Fatalf("%q %q %q: a token goes on in %q", target, auth, proxy, part)
			}
		}
		if by.proved && by.agent.Name != "planner" && by.agent.Name != "worker" {
			t.Fatalf("%q %q %q is taken for %s", target, auth, proxy, by.agent.Name)
		}
		if by.proved && leaks(target+auth+proxy) == "" && !strings.Contains(auth+proxy, " ") {
			t.Fatalf("%q %q %q is taken for %s without a token", target, auth, proxy, by.agent.Name)
		}
	})
}
