package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"callgate/proxy/egress"
)

// Credential is a header that callgate itself shows a provider.
type Credential struct{ Header, Value string }

// guarded says that what is sent to the upstream is read by nobody on the way:
// it is encrypted, or stays on this machine or in a private network.
func (u *Upstream) guarded() bool {
	return u.URL.Scheme == "https" || egress.Private(u.URL.Hostname())
}

// keep gives the request without the credentials of the client where callgate
// shows its own: they are nobody's business, and not even a proof of who asks.
func (t *route) keep(r *http.Request) *http.Request {
	c := t.up.Credential
	if c == nil {
		return r
	}
	own := asRead(http.CanonicalHeaderKey(c.Header))
	h := make(http.Header, len(r.Header))
	for name, values := range r.Header {
		if k := asRead(name); !keyHeader(k) && k != proxyAuth && k != own {
			h[name] = values
		}
	}
	query := params(r.URL.RawQuery, func(name, _ string) bool { return !slices.Contains(keyParams[:], name) })
	t.url.RawQuery = query
	return without(r, r.URL.EscapedPath(), query, h)
}

// show puts the upstream's credential into the headers that are sent.
func (u *Upstream) show(h http.Header) {
	if u.Credential != nil {
		h[http.CanonicalHeaderKey(u.Credential.Header)] = []string{u.Credential.Value}
	}
}

// minSecret is the length from which on answers are searched for a credential.
// A shorter one, such as the word that a server without keys is shown, is no
// secret, and stands in answers by chance.
const minSecret = 12

// secrets are the texts by which somebody else could use the credential.
func (c *Credential) secrets() [][]byte {
	value := strings.TrimSpace(c.Value)
	word := value[strings.LastIndexByte(value, ' ')+1:] // without its scheme
	_, pass := secret(value)
	var list [][]byte
	// The last ones are how some write JSON.
	for _, s := range []string{word, pass, strings.ReplaceAll(word, "/", `\/`), inHTML(word, false), inHTML(word, true)} {
		if len(s) >= minSecret && !slices.ContainsFunc(list, func(b []byte) bool { return string(b) == s }) {
			list = append(list, []byte(s))
		}
	}
	return list
}

// inHTML is a text in JSON that may stand in HTML, as Go, PHP and others write
// it.
func inHTML(s string, upper bool) string {
	form := `\u%04x`
	if upper {
		form = `\u%04X`
	}
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("&<>'+\"/=", r) {
			fmt.Fprintf(&b, form, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// errEchoed is the fault of an answer that holds the upstream's credential: some
// servers repeat what they were sent, and the client must not learn it.
var errEchoed = errors.New("it repeats the credential that callgate holds for the provider")

// echoes says that a text holds the upstream's credential.
func (u *Upstream) echoes(text []byte) bool {
	return u.Credential != nil && holdsOneOf(text, u.Credential.secrets())
}

func holdsOneOf(text []byte, secrets [][]byte) bool {
	return slices.ContainsFunc(secrets, func(s []byte) bool { return bytes.Contains(text, s) })
}

// silence takes the headers out of an answer that hold the credential.
func (u *Upstream) silence(h http.Header) {
	if u.Credential == nil {
		return
	}
	secrets := u.Credential.secrets()
	for name, values := range h {
		if slices.ContainsFunc(values, func(v string) bool { return holdsOneOf([]byte(v), secrets) }) {
			delete(h, name)
		}
	}
}

// guard reads a decoded answer of the upstream. Its Read fails with errEchoed
// where the credential would come, before any of it.
func (u *Upstream) guard(body io.Reader) io.Reader {
	if u.Credential == nil {
		return body
	}
	if secrets := u.Credential.secrets(); len(secrets) > 0 {
		return &guard{r: body, secrets: secrets}
	}
	return body
}

type guard struct {
	r       io.Reader
	secrets [][]byte
	held    []byte // the last that came, which may begin a secret
	ready   []byte // searched, and too much for the Read that it came in
	err     error
}

func (g *guard) Read(p []byte) (int, error) {
	for len(p) > 0 {
		if len(g.ready) > 0 {
			n := copy(p, g.ready)
			g.ready = g.ready[n:]
			return n, nil
		}
		if g.err != nil {
			return 0, g.err
		}
		buf := p
		if len(p) <= len(g.held) {
			buf = make([]byte, len(g.held)+len(p))
		}
		n := copy(buf, g.held)
		more, err := g.r.Read(buf[n:])
		n += more
		keep := 0
		switch {
		case holdsOneOf(buf[:n], g.secrets):
			n, err = 0, errEchoed
		case err == nil:
			keep = g.begun(buf[:n])
		}
		n -= keep
		g.held, g.err = append(g.held[:0], buf[n:n+keep]...), err
		if len(buf) > len(p) {
			g.ready = buf[:n]
			continue
		}
		if n > 0 || err != nil || more == 0 {
			return n, err
		}
	}
	return 0, nil
}

// begun is the length of the end of b that may be the beginning of a secret.
func (g *guard) begun(b []byte) int {
	most := 0
	for _, s := range g.secrets {
		for n := min(len(b), len(s)-1); n > most; n-- {
			if bytes.HasSuffix(b, s[:n]) {
				most = n
			}
		}
	}
	return most
}

// params gives a query with those parameters alone that keep wants; the others
// stay as they were written.
func params(raw string, keep func(name, value string) bool) string {
	if raw == "" {
		return ""
	}
	parts := strings.Split(raw, "&")
	kept := parts[:0]
	for _, p := range parts {
		name, value, _ := strings.Cut(p, "=")
		if keep(unquery(name), unquery(value)) {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, "&")
}

func unquery(s string) string {
	if t, err := url.QueryUnescape(s); err == nil {
		return t
	}
	return s
}

func unescape(path string) string {
	if t, err := url.PathUnescape(path); err == nil {
		return t
	}
	return path
}
