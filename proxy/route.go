package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"callgate/inspect"
	"callgate/proxy/egress"
)

// route is where a request goes.
type route struct {
	up *Upstream
	// path is the decoded path below the upstream's base.
	path string
	// url is what is sent, built from the checked path alone.
	url *url.URL
}

func (t *route) head(r *http.Request) inspect.Head {
	return inspect.Head{Method: r.Method, Path: t.path, Query: r.URL.RawQuery, Header: r.Header}
}

// admit refuses what is no plain request for a path of ours.
func admit(r *http.Request) *refusal {
	switch {
	case r.Method == http.MethodConnect:
		return refuseWith(http.StatusBadRequest, "callgate is not a forward proxy here: set the agent's base URL to it, or switch forward.enabled on to use it as HTTPS_PROXY")
	case r.URL.Scheme != "" || r.URL.Host != "" || r.URL.Opaque != "":
		return refuseWith(http.StatusBadRequest, "callgate is not a forward proxy here: set the agent's base URL to it, or switch forward.enabled on to use it as HTTP_PROXY")
	case upgrades(r.Header):
		f := refuseWith(http.StatusUpgradeRequired, "callgate does not pass WebSockets or other upgrades: use plain HTTP requests")
		f.header = http.Header{"Upgrade": {"HTTP/1.1"}, "Connection": {"close"}}
		return f
	}
	if reason := badPath(r.URL.EscapedPath()); reason != "" {
		return refuseWith(http.StatusBadRequest, "the path is refused: "+reason)
	}
	return nil
}

// upgrades reports a request to change the protocol. h2c is not counted: some
// clients offer it with each request and go on without it (RFC 9110, 7.8).
func upgrades(h http.Header) bool {
	for _, v := range h["Upgrade"] {
		for t := range strings.SplitSeq(v, ",") {
			if t = strings.TrimSpace(t); t != "" && !strings.EqualFold(t, "h2c") {
				return true
			}
		}
	}
	return false
}

// badPath says why two servers could read an escaped path differently, "" when
// they would agree.
func badPath(raw string) string {
	if raw == "" || raw[0] != '/' {
		return "it does not begin with a slash"
	}
	if raw == "/" {
		return ""
	}
	segments := strings.Split(raw[1:], "/")
	for i, s := range segments {
		if s == "" && (i != 1 || len(segments) != 2) {
			return "it has an empty segment"
		}
		if name, _, _ := strings.Cut(s, ";"); name == "." || name == ".." {
			return "it has a dot segment"
		}
		if reason := badSegment(s); reason != "" {
			return reason
		}
	}
	return ""
}

func badSegment(s string) string {
	var decoded []byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '%':
			if i+2 >= len(s) || !ishex(s[i+1]) || !ishex(s[i+2]) {
				return "it has a broken escape"
			}
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			switch {
			case c == '/' || c == '\\' || c == '%' || c < 0x20 || c == 0x7f:
				return "it has an escape that servers read in different ways"
			case unreserved(c):
				return "it has an escape for a character that needs none"
			}
			i += 2
		case c == '\\' || c <= 0x20 || c >= 0x7f:
			return "it has a character that must not stand in a path"
		}
		decoded = append(decoded, c)
	}
	if !utf8.Valid(decoded) {
		return "it is not UTF-8"
	}
	return ""
}

func ishex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

// unreserved is RFC 3986, section 2.3.
func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// bare are first segments that belong to a default where no upstream has that
// name: clients whose base URL holds no version send them. Those of Vercel's
// SDK do with an ANTHROPIC_BASE_URL as Anthropic's own SDKs want it.
var bare = []string{"chat", "completions", "responses", "models", "embeddings", "moderations", "images", "audio", "messages"}

var geminiMethods = []string{"generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents"}

// forGemini reports whether a request for a path below /v1 is one of Gemini's: by
// the header in which its clients alone send their key, or by a method behind the
// model, for those who send it in the query.
func forGemini(r *http.Request, path string) bool {
	method := path[strings.LastIndexByte(path, ':')+1:]
	return r.Header.Get("X-Goog-Api-Key") != "" || strings.HasPrefix(path, "/v1/models/") && slices.Contains(geminiMethods, method)
}

// route finds the upstream of a checked path. Only configured upstreams can
// come out.
func (p *Proxy) route(r *http.Request, agent *Agent) (route, *refusal) {
	raw := r.URL.EscapedPath()
	first, rest, more := strings.Cut(raw[1:], "/")
	if up := p.Upstreams[first]; up != nil {
		if more {
			rest = "/" + rest
		}
		return agent.to(up, rest, r.URL.RawQuery)
	}
	name, rest := "", raw
	switch {
	case strings.HasSuffix(raw, "/"): // the root of an upstream alone may end so
	case first == "v1" && more:
		name = p.Defaults[OpenAI]
		second, _, _ := strings.Cut(raw[len("/v1/"):], "/")
		switch {
		case second == "messages" || r.Header.Get("Anthropic-Version") != "":
			name = p.Defaults[Anthropic]
		case forGemini(r, raw):
			name = Gemini
		}
	case first == "v1beta" && more:
		name = Gemini
	case first == "api" && more:
		name = Ollama
	case slices.Contains(bare, first):
		name, rest = p.Defaults[OpenAI], "/v1"+raw
		if first == "messages" || r.Header.Get("Anthropic-Version") != "" {
			name = p.Defaults[Anthropic]
		}
	}
	if up := p.Upstreams[name]; up != nil {
		return agent.to(up, rest, r.URL.RawQuery)
	}
	known := p.known
	if agent.Upstreams != nil {
		known = strings.Join(agent.Upstreams, ", ")
	}
	return route{}, refuseWith(http.StatusNotFound, "no upstream of callgate serves this path; it knows "+known+
		": use /NAME/... or add one under upstreams in the configuration")
}

// to is join for an agent that may not use every upstream.
func (g *Agent) to(up *Upstream, rest, query string) (route, *refusal) {
	switch {
	case !g.may(up.Name):
		return route{}, refuseWith(http.StatusForbidden, "the agent "+g.Name+" may not use the upstream "+up.Name+"; it may use "+
			strings.Join(g.Upstreams, ", ")+" (agents."+g.Name+".upstreams)")
	case up.Credential != nil && !up.guarded():
		return route{}, refuseWith(http.StatusBadGateway, "the credential of the upstream "+up.Name+" would be sent in clear text: give it an https URL")
	}
	return join(up, rest, query)
}

// versions are the last segments of a base that a rest may begin with, too.
var versions = []string{"/v1", "/v1beta"}

// join puts base and rest together. A base that ends in a version and a rest that
// begins with it share it: clients differ over which of them holds it.
func join(up *Upstream, rest, query string) (route, *refusal) {
	base := strings.TrimSuffix(up.URL.EscapedPath(), "/")
	if base != "" && base[0] != '/' {
		base = "/" + base // url.JoinPath makes such paths
	}
	for _, v := range versions {
		if strings.HasSuffix(base, v) && strings.HasPrefix(rest, v+"/") {
			rest = rest[len(v):]
			break
		}
	}
	if base+rest == "" {
		rest = "/"
	}
	full := base + rest
	path, err := url.PathUnescape(full)
	if err != nil {
		return route{}, refuseWith(http.StatusBadRequest, "the path is refused: it has a broken escape")
	}
	below, err := url.PathUnescape(rest)
	if err != nil {
		return route{}, refuseWith(http.StatusBadRequest, "the path is refused: it has a broken escape")
	}
	return route{
		up: up, path: below,
		url: &url.URL{Scheme: up.URL.Scheme, Host: up.URL.Host, Path: path, RawPath: full, RawQuery: query},
	}, nil
}

// PrivateHosts says by the host part of a URL for which of the upstreams
// private addresses may be dialled: those that allow it, and those whose URL
// itself names localhost or a private address. It is made for
// egress.Options.AllowPrivate.
func PrivateHosts(ups map[string]*Upstream) func(host string) bool {
	allowed := make(map[string]bool)
	for _, up := range ups {
		if host := up.URL.Hostname(); up.AllowPrivate || egress.Private(host) {
			allowed[strings.ToLower(host)] = true
		}
	}
	return func(host string) bool { return allowed[strings.ToLower(host)] }
}

// names lists the upstreams for people.
func names(ups map[string]*Upstream) string {
	if len(ups) == 0 {
		return "none"
	}
	list := make([]string, 0, len(ups))
	for n := range ups {
		list = append(list, n)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// hello answers for the root: some agents ask for it to see whether their base
// URL is alive.
func hello(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		f := refuseWith(http.StatusMethodNotAllowed, "only GET and HEAD are answered here")
		f.header = http.Header{"Allow": {"GET, HEAD"}}
		f.write(w)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		w.Write([]byte("callgate is running. Point an agent's base URL at it; see callgate help.\n"))
	}
}
