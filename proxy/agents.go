package proxy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// DefaultAgent is the agent of requests that prove none.
const DefaultAgent = "default"

// TokenPrefix begins every token that callgate makes. What begins so and is no
// agent's is refused and never forwarded.
const TokenPrefix = "cgt_"

// Agent is a client that is told apart from others.
type Agent struct {
	// Name is what decisions, questions and the audit log call it.
	Name string
	// Token is the SHA-256 of the token that proves it, nil for none. Without
	// one it is reached by WithAgent alone.
	Token []byte
	// Upstreams are the names of those that it may use; nil is all.
	Upstreams []string
}

// Agents tells by tokens, and by what WithAgent says of a connection, which
// agent a request is of. A nil *Agents knows the default one alone. It is not
// changed once made.
type Agents struct {
	byName   map[string]*Agent
	tokens   []*Agent // those with a token
	fallback *Agent   // of requests that prove none; nil refuses them
}

// NewAgents returns what tells these agents apart. The one called DefaultAgent
// is that of requests that prove none; where there is no such agent they are
// refused.
func NewAgents(list []Agent) (*Agents, error) {
	a := &Agents{byName: make(map[string]*Agent, len(list))}
	for i := range list {
		g := &list[i]
		switch {
		case g.Name == "" || a.byName[g.Name] != nil:
			return nil, fmt.Errorf("proxy: an agent without a name of its own: %q", g.Name)
		case g.Token != nil && len(g.Token) != sha256.Size:
			return nil, fmt.Errorf("proxy: agent %s: the token's hash has %d bytes", g.Name, len(g.Token))
		case g.Name == DefaultAgent && g.Token != nil:
			return nil, errors.New("proxy: the agent of requests without a token has a token")
		}
		a.byName[g.Name] = g
		if g.Token != nil {
			if a.find(g.Token) != nil {
				return nil, fmt.Errorf("proxy: agent %s has the token of another", g.Name)
			}
			a.tokens = append(a.tokens, g)
		}
	}
	a.fallback = a.byName[DefaultAgent]
	return a, nil
}

// anybody is what a nil *Agents stands for.
var anybody = &Agents{fallback: &Agent{Name: DefaultAgent}}

// may says that the agent may use an upstream.
func (g *Agent) may(upstream string) bool {
	return g.Upstreams == nil || slices.Contains(g.Upstreams, upstream)
}

// known gives the agent of a token, nil when it is nobody's.
func (a *Agents) known(token string) *Agent {
	if len(a.tokens) == 0 || token == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	return a.find(sum[:])
}

// find looks at all of them, so that the time it takes tells nothing of a
// token.
func (a *Agents) find(sum []byte) *Agent {
	at := 0
	for i, g := range a.tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum, g.Token), i+1, at)
	}
	if at == 0 {
		return nil
	}
	return a.tokens[at-1]
}

// configured says that agents are told apart.
func (a *Agents) configured() bool { return a != anybody }

type agentKey struct{}

// WithAgent gives the context of a connection whose requests are all that
// agent's: they came to an address of its own, or out of a tunnel that it
// opened. A request that proves another agent is refused.
func WithAgent(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, agentKey{}, name)
}

// who is whom a request is of.
type who struct {
	agent  *Agent // nil where no agent was shown and one must be
	proved bool   // by a token or by the connection
}

// Agents' words for those who must be told.
const (
	howToShow = "set the base URL to http://HOST:PORT/~TOKEN/..., or the API key to the token; callgate agents token makes one"
	unknown   = "the token is no agent's of this callgate: "
)

func refuseToken(reason string) *refusal {
	f := refuseWith(http.StatusUnauthorized, reason)
	f.header = http.Header{"Www-Authenticate": {`Bearer realm="callgate"`}}
	return f
}

// missing is the refusal of a request that had to show an agent and did not.
func missing() *refusal {
	return refuseToken("a request must show which agent it is of, and this one has no token: " + howToShow)
}

// shown collects which agents a request names.
type shown struct {
	agent  *Agent
	proved bool
	reason string // why it is refused
	tokens []string
}

func (s *shown) refuse(reason string) {
	if s.reason == "" {
		s.reason = reason
	}
}

func (s *shown) is(g *Agent, token string) {
	if s.agent != nil && s.agent != g {
		s.refuse("the request names two agents: " + s.agent.Name + " and " + g.Name)
	}
	s.agent, s.proved = g, true
	if token != "" {
		s.tokens = append(s.tokens, token)
	}
}

// introduce finds out which agent a request is of, and gives the request
// without what said so: no token is in its path, its headers or its query any
// more.
func (a *Agents) introduce(r *http.Request) (*http.Request, who, *refusal) {
	if a == nil {
		a = anybody
	}
	var s shown
	if name, ok := r.Context().Value(agentKey{}).(string); ok {
		if g := a.byName[name]; g != nil {
			s.is(g, "")
		} else {
			s.refuse("the connection is of an agent that is not configured")
		}
	}
	raw := r.URL.EscapedPath()
	path, inPath := raw, false
	if token, rest, ok := pathToken(raw); ok {
		inPath, path = true, rest
		if g := a.known(token); g != nil {
			s.is(g, token)
		} else {
			s.refuse(unknown + "it stands in the path")
		}
		if _, _, again := pathToken(rest); again {
			s.refuse("the path has two tokens")
		}
	}
	query, inQuery := a.fromQuery(&s, r.URL.RawQuery)
	header, inHeader := a.fromHeader(&s, r.Header)
	plainPath, plainQuery := unescape(path), unquery(query)
	if marked(path) || marked(plainPath) || s.holds(path) || s.holds(plainPath) || marked(query) || marked(plainQuery) || s.holds(query) || s.holds(plainQuery) {
		s.refuse("a token stands in the path or the query where none is taken: " + howToShow)
	}
	if s.reason != "" {
		return nil, who{}, refuseToken(s.reason)
	}
	if inPath || inQuery || inHeader {
		r = without(r, path, query, header)
	}
	if s.agent == nil {
		return r, who{agent: a.fallback}, nil
	}
	return r, who{agent: s.agent, proved: s.proved}, nil
}

// pathToken takes the token out of an escaped path: /~TOKEN/REST. Some clients
// escape the first character, though it needs none.
func pathToken(raw string) (token, rest string, ok bool) {
	s, ok := strings.CutPrefix(raw, "/~")
	if !ok && len(raw) >= len("/%7E") && strings.EqualFold(raw[:len("/%7E")], "/%7E") {
		s, ok = raw[len("/%7E"):], true
	}
	if !ok {
		return "", raw, false
	}
	token, rest, _ = strings.Cut(s, "/")
	return token, "/" + rest, true
}

// minMarked is how much must stand behind TokenPrefix to be taken for a token.
const minMarked = 20

// marked says that a text holds a token as callgate makes them.
func marked(s string) bool {
	for {
		_, rest, ok := strings.Cut(s, TokenPrefix)
		if !ok {
			return false
		}
		n := 0
		for n < len(rest) && (unreserved(rest[n])) {
			n++
		}
		if n >= minMarked {
			return true
		}
		s = rest
	}
}

// anyMarked is what every request pays for where no agents are told apart.
func anyMarked(h http.Header) bool {
	for name, values := range h {
		for _, v := range values {
			if strings.Contains(v, TokenPrefix) || name == proxyAuth {
				return true
			}
		}
	}
	return false
}

// holds says that a text has one of the request's own tokens in it.
func (s *shown) holds(text string) bool {
	return slices.ContainsFunc(s.tokens, func(t string) bool { return strings.Contains(text, t) })
}

// keyHeaders are where clients put the key of an API, in canonical form.
var keyHeaders = [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key"}

const proxyAuth = "Proxy-Authorization"

func keyHeader(name string) bool { return slices.Contains(keyHeaders[:], name) }

// secret takes a credential out of the value of a header; user is the name
// beside it, if there is one.
func secret(value string) (user, token string) {
	value = strings.TrimSpace(value)
	scheme, rest, ok := strings.Cut(value, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case !ok:
		return "", value
	case strings.EqualFold(scheme, "bearer"), strings.EqualFold(scheme, "token"):
		return "", rest
	case strings.EqualFold(scheme, "basic"):
		r := http.Request{Header: http.Header{"Authorization": {"Basic " + rest}}}
		user, token, _ = r.BasicAuth()
		if token == "" { // http://TOKEN@HOST
			return "", user
		}
		return user, token
	}
	return "", ""
}

// fromHeader looks for agents in the headers. Where taken is true, it gives
// them without the tokens.
func (a *Agents) fromHeader(s *shown, h http.Header) (out http.Header, taken bool) {
	if len(a.tokens) == 0 && !a.configured() && !anyMarked(h) {
		return nil, false
	}
	drop := func(name string, value string) {
		if !taken {
			out, taken = h.Clone(), true
		}
		out[name] = slices.DeleteFunc(out[name], func(v string) bool { return v == value })
		if len(out[name]) == 0 {
			delete(out, name)
		}
	}
	for name, values := range h {
		k := asRead(name)
		credential := keyHeader(k) || k == proxyAuth
		if !credential {
			continue
		}
		for _, v := range values {
			user, token := secret(v)
			g := a.known(token)
			switch {
			case g != nil:
				if named := a.byName[user]; named != nil && named != g {
					s.refuse("the token is not that of the agent " + named.Name + ", whose name stands beside it")
				}
				s.is(g, token)
				drop(name, v)
			case strings.HasPrefix(token, TokenPrefix):
				s.refuse(unknown + "it stands in " + k)
			case k == proxyAuth && a.configured():
				s.refuse(unknown + "it stands in " + k)
			}
		}
	}
	for name, values := range h {
		for _, v := range values {
			switch {
			case taken && !slices.Contains(out[name], v):
			case s.holds(v): // such as Referer
				drop(name, v)
			case marked(v):
				s.refuse("a token stands in the header " + printable(name) + ", where none is taken: " + howToShow)
			}
		}
	}
	return out, taken
}

// keyParams are where clients put the key of an API in a query.
var keyParams = [...]string{"key", "api_key", "api-key", "access_token"}

// fromQuery looks for agents in the query. Where taken is true, it gives the
// query without the tokens.
func (a *Agents) fromQuery(s *shown, raw string) (query string, taken bool) {
	if raw == "" || len(a.tokens) == 0 && !strings.Contains(raw, TokenPrefix) {
		return raw, false
	}
	query = params(raw, func(name, value string) bool {
		if !slices.Contains(keyParams[:], name) {
			return true
		}
		g := a.known(value)
		switch {
		case g != nil:
			s.is(g, value)
			return false
		case strings.HasPrefix(value, TokenPrefix):
			s.refuse(unknown + "it stands in the query")
		}
		return true
	})
	return query, len(query) != len(raw)
}

// without is a request for another path and query, with other headers unless
// they are nil.
func without(r *http.Request, path, query string, h http.Header) *http.Request {
	in := new(http.Request)
	*in = *r
	u := *r.URL
	if path != r.URL.EscapedPath() {
		u.Path, u.RawPath = unescape(path), path
	}
	u.RawQuery = query
	in.URL, in.RequestURI = &u, u.RequestURI()
	if h != nil {
		in.Header = h
	}
	return in
}

// Login gives the agent of a request that a client sends to a proxy, "" where
// none was shown and none must be; reason says why the request is refused. keys
// says that the key of an API counts beside what is shown to the proxy: the
// request goes to a provider as it is, and opens no tunnel.
func (a *Agents) Login(r *http.Request, keys bool) (agent, reason string) {
	if a == nil {
		a = anybody
	}
	only := http.Request{URL: new(url.URL), Header: r.Header}
	if !keys {
		only.Header = http.Header{proxyAuth: r.Header[proxyAuth]}
	}
	_, by, f := a.introduce(only.WithContext(r.Context()))
	switch {
	case f != nil:
		return "", f.reason
	case by.agent == nil:
		return "", "a proxy request must show which agent it is of: put the token into the proxy's URL, http://agent:TOKEN@HOST:PORT"
	case !by.proved:
		return "", ""
	}
	return by.agent.Name, ""
}

// As gives the context of a connection whose requests are that agent's.
func (a *Agents) As(ctx context.Context, agent string) context.Context { return WithAgent(ctx, agent) }
