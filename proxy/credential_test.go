package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"callgate/gate"
)

const ownKey = "sk-of-callgate-0123456789"

// holding gives an upstream of a door a credential.
func holding(d *door, name string, c Credential) *door {
	d.p.Upstreams[name].Credential = &c
	return d
}

func TestTheClientsCredentialsStayWhereCallgateShowsItsOwn(t *testing.T) {
	bearer := Credential{"Authorization", "Bearer " + ownKey}
	for _, c := range []struct {
		name string
		cred Credential
		wire string
		want http.Header // of what goes up, of those that could be a credential
		url  string
	}{
		{"a bearer token", bearer, wire("POST", "/openai/v1/lines", "Authorization: Bearer sk-client"), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/lines"},
		{"no credential at all", bearer, wire("POST", "/openai/v1/lines"), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/lines"},
		{"keys in every header", bearer, wire("POST", "/openai/v1/lines", "X-Api-Key: a", "Api-Key: b", "X-Goog-Api-Key: c", "x_api_key: d", "Authorization: Bearer e"),
			http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/lines"},
		{"keys in the query", bearer, wire("POST", "/openai/v1/lines?a=1&key=k&b=%2F&access_token=t&%6bey=k2&keys=x"), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/lines?a=1&b=%2F&keys=x"},
		{"an agent's token", bearer, wire("POST", "/~"+plannerToken+"/openai/v1/lines", "X-Api-Key: "+plannerToken), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/lines"},
		{"an agent's token as the key", bearer, wire("POST", "/openai/v1/lines", "Authorization: Bearer "+plannerToken), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/lines"},
		{"a key in another header", Credential{"X-Api-Key", ownKey}, wire("POST", "/openai/v1/lines", "Authorization: Bearer sk-client"), http.Header{"X-Api-Key": {ownKey}}, "https://api.openai.com/v1/lines"},
		{"a header of the provider's own", Credential{"x-gate-key", ownKey}, wire("POST", "/openai/v1/lines", "X-Gate-Key: a", "x_gate_key: b"), http.Header{"X-Gate-Key": {ownKey}}, "https://api.openai.com/v1/lines"},
		{"a client that wants it dropped", bearer, wire("POST", "/openai/v1/lines", "Connection: Authorization", "Authorization: Bearer sk-client"), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/lines"},
		{"a harmless endpoint", bearer, wire("GET", "/openai/v1/models?key=k", "Authorization: Bearer sk-client"), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/models"},
		{"an unknown endpoint", bearer, wire("POST", "/openai/v1/unknown?key=k", "X-Api-Key: sk-client"), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/unknown"},
		{"headers that are no credentials stay", bearer, wire("POST", "/openai/v1/lines", "Openai-Project: p", "X-Session: s"), http.Header{"Authorization": {"Bearer " + ownKey}}, "https://api.openai.com/v1/lines"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := holding(newDoor(threeAgents(t, Agent{Name: DefaultAgent})), "openai", c.cred)
			w := d.ask(t, c.wire)
			if len(d.rec.reqs) != 1 {
				t.Fatalf("not forwarded: %d %s", w.Code, w.Body)
			}
			q := d.rec.reqs[0]
			got := http.Header{}
			for name, v := range q.Header {
				if k := asRead(name); keyHeader(k) || k == proxyAuth || strings.Contains(strings.ToLower(name), "gate") {
					got[name] = v
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) || q.URL.String() != c.url {
				t.Errorf("%s was sent with %v, want %s and %v", q.URL, got, c.url, c.want)
			}
			if strings.Contains(c.wire, "Openai-Project") && q.Header.Get("Openai-Project") != "p" {
				t.Error("another header is lost")
			}
			if strings.Contains(fmt.Sprint(d.names, w.Header(), w.Body, d.log.String()), ownKey) {
				t.Error("the credential is told")
			}
		})
	}
}

func TestTheCredentialGoesToItsUpstreamAlone(t *testing.T) {
	d := holding(newDoor(nil), "openai", Credential{"Authorization", "Bearer " + ownKey})
	for _, path := range []string{"/anthropic/v1/lines", "/router/v1/lines", "/v1/messages", "/local/v1/lines"} {
		d.ask(t, wire("POST", path, "Authorization: Bearer sk-client"))
		if q := d.rec.reqs[0]; q.Header.Get("Authorization") != "Bearer sk-client" {
			t.Errorf("%s was sent with %v", path, q.Header)
		}
	}
}

func TestTheCredentialIsNeverSentInClearText(t *testing.T) {
	for base, ok := range map[string]bool{
		"https://api.example": true, "http://127.0.0.1:8000": true, "http://10.1.2.3": true, "http://localhost:1": true, "http://[::1]:1": true,
		"http://api.example": false, "http://203.0.113.1": false, "http://gpu.internal:8000": false,
	} {
		d := newDoor(nil)
		u, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		d.p.Upstreams["x"] = &Upstream{Name: "x", URL: u, AllowPrivate: true, Credential: &Credential{"Authorization", "Bearer " + ownKey}}
		w := d.ask(t, wire("POST", "/x/v1/lines"))
		if (len(d.rec.reqs) == 1) != ok || !ok && (w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "in clear text")) {
			t.Errorf("%s: status %d, %s, forwarded %d", base, w.Code, w.Body, len(d.rec.reqs))
		}
	}
}

// Without its credential a client is its agent, and no more: what it calls its
// key is proved by nobody.
func TestWhoIsATenantWhereCallgateHoldsTheKey(t *testing.T) {
	tenants := func(on string, headers ...string) Tenant {
		t.Helper()
		d := holding(newDoor(threeAgents(t, Agent{Name: DefaultAgent})), "openai", Credential{"Authorization", "Bearer " + ownKey})
		d.p.Principal = PrincipalKey([]byte("k"))
		r := request(t, wire("POST", "/openai/v1/unknown", headers...))
		if on != "" {
			r = r.WithContext(WithAgent(r.Context(), on))
		}
		d.p.once.Do(d.p.start)
		in, by, f := d.p.Agents.introduce(r)
		if f != nil {
			t.Fatal(f.reason)
		}
		rt, f := d.p.route(in, by.agent)
		if f != nil {
			t.Fatal(f.reason)
		}
		x := &exchange{p: d.p, r: rt.keep(in), by: by, rt: rt}
		return x.tenant()
	}
	planner := tenants("", "X-Api-Key: "+plannerToken)
	if !planner.Stable {
		t.Error("an agent that proved itself is not told apart")
	}
	for name, other := range map[string]Tenant{
		"by its path":             tenants("", "Authorization: Bearer "+plannerToken),
		"with a key of no effect": tenants("planner", "X-Api-Key: sk-any"),
		"by its address":          tenants("planner"),
	} {
		if other != planner {
			t.Errorf("the same agent %s is another tenant", name)
		}
	}
	for name, other := range map[string]Tenant{
		"another agent": tenants("desk"), "nobody known": tenants(""), "one who says who asks": tenants("planner", "Openai-Organization: o"),
	} {
		if other.Principal == planner.Principal || other.Repairs == planner.Repairs {
			t.Errorf("%s is the same tenant", name)
		}
	}
	one, two := tenants("", "X-Api-Key: sk-one"), tenants("", "X-Api-Key: sk-two")
	if one != two || one.Stable {
		t.Errorf("keys that nobody looks at tell tenants apart: %+v, %+v", one, two)
	}
}

// Some servers repeat what they were sent.
func TestAnAnswerThatRepeatsTheCredentialIsWithheld(t *testing.T) {
	echoing := func(status int, kind, coding, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", kind)
			w.Header().Set("X-Request-Id", "r1")
			w.Header().Set("X-Received-Key", r.Header.Get("X-Api-Key"))
			if coding != "" {
				w.Header().Set("Content-Encoding", coding)
			}
			w.WriteHeader(status)
			w.Write(encode(t, coding, strings.ReplaceAll(body, "KEY", r.Header.Get("X-Api-Key"))))
		}
	}
	for _, c := range []struct {
		name    string
		answer  http.HandlerFunc
		path    string
		status  int
		withhld bool
	}{
		{"an error of a gated endpoint", echoing(401, asJSON, "", `{"error":"bad key KEY"}`), "/v1/lines", 401, true},
		{"a packed one", echoing(401, asJSON, "gzip", `{"error":"bad key KEY"}`), "/v1/lines", 401, true},
		{"an error of an unknown endpoint", echoing(500, "text/plain", "", "KEY"), "/v1/unknown", 500, true},
		{"an answer of an unknown endpoint", echoing(200, asJSON, "", `{"headers":["KEY"]}`), "/v1/unknown", 502, true},
		{"a packed one", echoing(200, asJSON, "br", `{"headers":["KEY"]}`), "/v1/unknown", 502, true},
		{"an answer that is not read", echoing(200, "audio/mpeg", "", "KEY"), "/v1/lines/count", 502, true},
		{"a packed one that nobody asked for", echoing(200, asJSON, "zstd", `["KEY"]`), "/v1/lines/count", 502, true},
		{"one in a coding that is not read", echoing(200, asJSON, "compress, br", "KEY"), "/v1/lines/count", 502, false},
		{"an error that is not read", echoing(403, asJSON, "", `{"error":"KEY"}`), "/v1/lines/count", 403, true},
		{"another answer that is not read", echoing(200, asJSON, "", `[]`), "/v1/lines/count", 200, false},
		{"a text of the model's", echoing(200, sse, "", "T the key is KEY\nE\n"), "/v1/lines", 502, true},
		{"a packed one", echoing(200, sse, "gzip", "T the key is KEY\nE\n"), "/v1/lines", 502, true},
		{"another error", echoing(401, asJSON, "", `{"error":"bad key"}`), "/v1/lines", 401, false},
		{"an answer with it in a header", echoing(200, sse, "", "T ok\nE\n"), "/v1/lines", 200, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.answer, func(p *Proxy) {
				u, err := url.Parse("http://127.0.0.1")
				if err != nil {
					t.Fatal(err)
				}
				p.Upstreams["main"].URL, p.Upstreams["main"].Credential = u, &Credential{"X-Api-Key", ownKey}
			})
			defer r.end()
			resp := r.post(t, c.path, "ask")
			body := text(t, resp)
			if resp.StatusCode != c.status || strings.Contains(body, "repeats the credential") != c.withhld || resp.Header.Get("X-Request-Id") != "r1" && c.status == 200 {
				t.Errorf("status %d, %s %v", resp.StatusCode, body, resp.Header)
			}
			if all := body + fmt.Sprint(resp.Header); strings.Contains(all, ownKey) {
				t.Errorf("the client learns the credential: %s", all)
			}
			if c.withhld && !slices.ContainsFunc(r.journal.by("proxy"), func(e gate.Entry) bool { return e.Agent == DefaultAgent }) {
				t.Error("it is not in the audit log")
			}
		})
	}
}

// Every request of a turn shows it, and each is the agent's.
func TestAFurtherRequestShowsTheCredentialToo(t *testing.T) {
	s := &script{answers: []http.HandlerFunc{say(sse, "C sh never\nE\n"), say(sse, "T two\nE\n")}}
	r := newRig(t, s.ServeHTTP, resuming(t, &shelf{}), func(p *Proxy) {
		p.Upstreams["main"].URL.Host = "127.0.0.1"
		p.Upstreams["main"].Credential = &Credential{"Authorization", "Bearer " + ownKey}
		p.Agents = threeAgents(t)
	})
	defer r.end()
	if got := text(t, r.post(t, "/~"+plannerToken+"/v1/lines", "ask\n", "Authorization", "Bearer sk-client")); got != "T two\nE\n" {
		t.Errorf("shown %q", got)
	}
	for i, h := range s.headers {
		if h.Get("Authorization") != "Bearer "+ownKey || leaks(fmt.Sprint(h)) != "" {
			t.Errorf("request %d was sent with %v", i, h)
		}
	}
}

// What has left already stays; the rest of the answer does not follow.
func TestAnAnswerThatComesToRepeatTheCredentialEndsThere(t *testing.T) {
	for _, c := range []struct {
		name, path string
		parts      []string
		says       string // by callgate, in the place of the rest
	}{
		{"in a stream", "/v1/lines", []string{"T before\n", "T " + ownKey[:9], ownKey[9:] + "\nE\n"}, "repeats the credential"},
		{"in an answer to a refusal", "/v1/lines", []string{"T before\nC sh never\nE\n"}, "repeats the credential"},
		{"behind a call that waits", "/v1/lines", []string{"T before\nC sh danger\n", "T " + ownKey + "\nE\n"}, "repeats the credential"},
		{"in an answer that is not read", "/v1/lines/count", []string{"before ", ownKey[:9], ownKey[9:]}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var again atomic.Bool
			r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
				io.Copy(io.Discard, q.Body)
				w.Header().Set("Content-Type", sse)
				if again.Swap(true) {
					io.WriteString(w, "T "+ownKey+"\nE\n")
					return
				}
				for _, p := range c.parts {
					io.WriteString(w, p)
					w.(http.Flusher).Flush()
				}
			}, resuming(t, &shelf{}), func(p *Proxy) {
				p.Upstreams["main"].URL.Host = "127.0.0.1"
				p.Upstreams["main"].Credential = &Credential{"Authorization", "Bearer " + ownKey}
			})
			defer r.end()
			resp := r.post(t, c.path, "ask\n")
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if got := string(body); strings.Contains(got, ownKey[:5]) || !strings.Contains(got, c.says) || (c.says == "") != (err != nil) {
				t.Errorf("the client got %q, %v", got, err)
			}
			if !slices.ContainsFunc(r.journal.by("proxy"), func(e gate.Entry) bool { return strings.Contains(e.Reason, "repeats the credential") }) {
				t.Error("it is not in the audit log")
			}
		})
	}
}

// A request made anew is told in the log with the words of the provider.
func TestAnErrorThatRepeatsTheCredentialIsNotLogged(t *testing.T) {
	d := holding(newDoor(nil), "openai", Credential{"X-Api-Key", ownKey})
	d.p.once.Do(d.p.start)
	x := &exchange{p: d.p, r: request(t, wire("POST", "/openai/v1/lines")), rt: route{up: d.p.Upstreams["openai"]}}
	resuming(t, &shelf{})(d.p)
	body := `{"error":{"message":"messages.1.content.0: Invalid signature in thinking block, key ` + ownKey + `"}}`
	a := &reply{resp: &http.Response{StatusCode: 400, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, watch: newWatch(DefaultKeepAlive, func() {})}
	defer a.watch.end()
	if x.amend(nil, a) || d.log.Len() > 0 {
		t.Errorf("it was amended: %s", d.log.String())
	}
	if rest, err := io.ReadAll(a.resp.Body); err != nil || string(rest) != body {
		t.Errorf("the answer is now %q, %v", rest, err)
	}
}

func TestTheGuardFindsTheCredentialHoweverItComes(t *testing.T) {
	for _, c := range []struct{ name, value, text, want string }{
		{"alone", "Bearer " + ownKey, ownKey, ""},
		{"between others", "Bearer " + ownKey, "a: " + ownKey + " b", "a: "},
		{"behind its own beginning", ownKey, ownKey[:10] + ownKey, ownKey[:10]},
		{"of a scheme that is not known", "Key " + ownKey, "x " + ownKey, "x "},
		{"its beginning alone", ownKey, "sk-of-callgate-01234567", "sk-of-callgate-01234567"},
		{"a password", basic("u", ownKey), "x" + ownKey, "x"},
		{"a password as it is sent", basic("u", ownKey), "x" + basic("u", ownKey)[len("Basic "):], "x"},
		{"with the slashes of JSON", "ab/cd/ef/gh/ij/kl", `x ab\/cd\/ef\/gh\/ij\/kl`, "x "},
		{"as JSON for HTML has it", "ab&cd+ef<gh>ij/kl==", `x ab\u0026cd\u002bef\u003cgh\u003eij\u002fkl\u003d\u003d`, "x "},
		{"as JSON for HTML has it, in capitals", "ab&cd+ef<gh>ij/kl==", `x ab\u0026cd\u002Bef\u003Cgh\u003Eij\u002Fkl\u003D\u003D`, "x "},
		{"a word that is no secret", "Bearer EMPTY", "EMPTY is EMPTY", "EMPTY is EMPTY"},
	} {
		u := &Upstream{Credential: &Credential{"Authorization", c.value}}
		for _, how := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return u.guard(r) },
			func(r io.Reader) io.Reader { return u.guard(iotest.OneByteReader(r)) },
			func(r io.Reader) io.Reader { return u.guard(iotest.DataErrReader(r)) },
			func(r io.Reader) io.Reader { return u.guard(iotest.DataErrReader(iotest.HalfReader(r))) },
			func(r io.Reader) io.Reader { return iotest.OneByteReader(u.guard(r)) },
			func(r io.Reader) io.Reader { return iotest.OneByteReader(u.guard(iotest.HalfReader(r))) },
		} {
			got, err := io.ReadAll(how(strings.NewReader(c.text)))
			if want := c.text == c.want; (err == nil) != want || err != nil && err != errEchoed || !strings.HasPrefix(c.want, string(got)) || want && string(got) != c.want {
				t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
			}
		}
	}
}

// FuzzGuard checks that no secret comes through in however small pieces, and
// that nothing else is lost.
func FuzzGuard(f *testing.F) {
	f.Add("abcabcabcabd", "xxabcabcabcabcabdyy", uint8(3), uint8(5))
	f.Add("aaaaaaaaaaaa", "aaaaaaaaaaabaaaaaaaaaaaa", uint8(1), uint8(1))
	f.Add(ownKey, "T "+ownKey[:20], uint8(7), uint8(1))
	f.Fuzz(func(t *testing.T, key, text string, in, out uint8) {
		if len(key) < minSecret || strings.TrimSpace(key) != key || strings.ContainsAny(key, " /") {
			t.Skip()
		}
		u := &Upstream{Credential: &Credential{"X-Api-Key", key}}
		g := u.guard(&slow{strings.NewReader(text), int(in)%40 + 1})
		var got []byte
		var err error
		for buf := make([]byte, int(out)%40+1); err == nil; {
			var n int
			n, err = g.Read(buf)
			got = append(got, buf[:n]...)
		}
		if at := strings.Index(text, key); at < 0 {
			if string(got) != text || err != io.EOF {
				t.Errorf("%q came as %q, %v", text, got, err)
			}
		} else if !strings.HasPrefix(text[:at], string(got)) || err != errEchoed {
			t.Errorf("of %q with %q came %q, %v", text, key, got, err)
		}
	})
}

// slow gives at most n bytes at once.
type slow struct {
	r io.Reader
	n int
}

func (s *slow) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }
