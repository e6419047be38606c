// Package redact makes texts fit to be shown and kept: Secrets masks values
// that look like secrets, Visible makes characters visible that a terminal
// would act on or hide. It knows nothing of calls or decisions, and nothing is
// ever judged by what it returns.
//
// A mask must not hide what a command does. So only a value of letters, digits
// and a few joining characters is masked, only inside one word, with its first
// characters and its length left in place; white space, quotes and everything
// that means something to a shell stand where they stood.
package redact

import (
	"strconv"
	"strings"
)

// Secrets masks what looks like a secret: keys by their well-known beginnings,
// JSON web tokens, bearer credentials, values behind names such as password=
// or "token":, passwords in URLs, agents' tokens at the beginning of a URL's
// path (/~TOKEN) and the bodies of PEM private keys. A mask is
// the first characters and the length in bytes, as in sk-a…[48]. Masking twice
// changes nothing.
func Secrets(s string) string {
	m := masker{s: s}
	m.run()
	if m.done == 0 {
		return s
	}
	m.out.WriteString(s[m.done:])
	return m.out.String()
}

// The classes of bytes, as bits.
const (
	inRun   = 1 << iota // letters, digits, - and _: what keys and names are made of
	inValue             // and . ~ + / = %: what values are made of
	inUser              // what a password in a URL is made of
)

var class = func() (t [256]byte) {
	for c := range t {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '-', c == '_':
			t[c] = inRun | inValue | inUser
		case strings.IndexByte(".~+%=", byte(c)) >= 0:
			t[c] = inValue | inUser
		case c == '/':
			t[c] = inValue
		case c == ':' || c == ',':
			t[c] = inUser
		}
	}
	return t
}()

// masker goes through a text once, from run to run.
type masker struct {
	s    string
	out  strings.Builder
	done int // what of s stands in out, or was masked
	pem  bool
}

func (m *masker) run() {
	s := m.s
	for i := 0; i < len(s); {
		if n := markLen(s[i:]); n > 0 {
			i += n
			continue
		}
		if s[i] == ':' && strings.HasPrefix(s[i:], "://") {
			i = m.url(i + len("://"))
			continue
		}
		if s[i] == '~' && beginsPath(s, i) {
			if to := pathToken(s, i+1); to > 0 {
				m.mask(i+1, to, 4)
				i = to
				continue
			}
		}
		if class[s[i]]&inRun == 0 {
			if m.pem && s[i] == '\\' && i+1 < len(s) { // a line break in JSON
				i++
			}
			i++
			continue
		}
		end := span(s, i, inRun)
		if strings.HasPrefix(s[i:], "-----") {
			i = m.armour(i, end)
			continue
		}
		if m.pem {
			end = span(s, i, inValue)
			if end-i >= 4 {
				m.mask(i, end, 0)
			}
			i = end
			continue
		}
		i = m.word(i, end)
	}
}

// word masks the run from i to end, or the value that it announces, and says
// where to go on.
func (m *masker) word(i, end int) int {
	s := m.s
	if to := keyEnd(s, i, end); to > 0 {
		m.mask(i, to, 4)
		return to
	}
	if bearer(s[i:end]) {
		at := end
		for at < len(s) && s[at] == ' ' {
			at++
		}
		if to := span(s, at, inValue); at > end && to-at >= 8 && random(s[at:to]) {
			m.mask(at, to, 4)
			return to
		}
	}
	if named(s[i:end]) || keyOfQuery(s, i, end) {
		if at := valueStart(s, end, strings.HasPrefix(s[i:end], "--")); at > 0 {
			to := span(s, at, inValue)
			// A key shows more of itself than a value does.
			if keyEnd(s, at, span(s, at, inRun)) > 0 || bearer(s[at:to]) {
				return at
			}
			if to-at >= 4 && strings.IndexByte("/.~", s[at]) < 0 {
				m.mask(at, to, 1)
				return to
			}
		}
	}
	return end
}

// mask replaces s[i:end] by its first show bytes and its length.
func (m *masker) mask(i, end, show int) {
	if markLen(m.s[end:]) > 0 { // what is left of a masked value
		return
	}
	m.out.WriteString(m.s[m.done : i+show])
	m.out.WriteString("…[" + strconv.Itoa(end-i) + "]")
	m.done = end
}

// markLen is the length of the mark "…[N]" that s begins with, or 0.
func markLen(s string) int {
	rest, ok := strings.CutPrefix(s, "…[")
	if !ok {
		return 0
	}
	n := 0
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	if n == 0 || n == len(rest) || rest[n] != ']' {
		return 0
	}
	return len("…[") + n + 1
}

// span is the end of the run of that class that starts at i.
func span(s string, i int, bits byte) int {
	for i < len(s) && class[s[i]]&bits != 0 {
		i++
	}
	return i
}

// keys are the beginnings of well-known secrets, with the least number of
// bytes behind them.
var keys = []struct {
	start string
	least int
}{
	{"sk-", 16}, {"sk_live_", 10}, {"sk_test_", 10}, {"rk_live_", 10},
	{"ghp_", 20}, {"gho_", 20}, {"ghu_", 20}, {"ghs_", 20}, {"ghr_", 20}, {"github_pat_", 20},
	{"glpat-", 16}, {"AKIA", 16}, {"ASIA", 16}, {"AIza", 30},
	{"xoxa-", 10}, {"xoxb-", 10}, {"xoxp-", 10}, {"xoxr-", 10}, {"xoxs-", 10}, {"xapp-", 10},
	{"hf_", 20}, {"cg_", 20}, {"cgt_", 20}, {"npm_", 30}, {"pypi-", 30}, {"dop_v1_", 30}, {"AGE-SECRET-KEY-", 20},
}

// leastKey is the length of the shortest key.
const leastKey = 10

// keyEnd is the end of the key that the run from i to end is, or 0.
func keyEnd(s string, i, end int) int {
	run := s[i:end]
	if len(run) < leastKey {
		return 0
	}
	if strings.HasPrefix(run, "eyJ") {
		return jwtEnd(s, i, end)
	}
	for _, k := range keys {
		if strings.HasPrefix(run, k.start) && len(run)-len(k.start) >= k.least {
			return end
		}
	}
	return 0
}

// beginsPath says that the ~ at i is the beginning of a URL's path: behind /,
// with nothing before it but the white space, quote or bracket that words begin
// behind, or a host. A file further down may have such a name for itself.
func beginsPath(s string, i int) bool {
	at := i - 2
	if at < -1 || s[i-1] != '/' {
		return false
	}
	for at >= 0 && (class[s[at]]&(inRun|inUser) != 0 && s[at] != '=' || s[at] == '@' || s[at] == '[' || s[at] == ']') {
		at--
	}
	host := s[at+1 : i-1]
	port := strings.TrimRight(host, "0123456789")
	return host == "" && (at < 0 || s[at] != '/') || at > 1 && s[at-2:at+1] == "://" || len(port) < len(host) && strings.HasSuffix(port, ":")
}

// leastPathToken is the length of the shortest token that an agent may have.
const leastPathToken = 22

// pathToken is the end of the token that begins at i, or 0: users' directories,
// which are written in the same way, have shorter names.
func pathToken(s string, i int) int {
	end := i
	for end < len(s) && (class[s[end]]&inRun != 0 || s[end] == '.' || s[end] == '~') {
		end++
	}
	if end-i < leastPathToken {
		return 0
	}
	return end
}

// jwtEnd is the end of the JSON web token whose header is the run: three runs
// with points between them.
func jwtEnd(s string, i, end int) int {
	if end-i < 10 || end >= len(s) || s[end] != '.' {
		return 0
	}
	body := span(s, end+1, inRun)
	if body-end < 10 || body >= len(s) || s[body] != '.' {
		return 0
	}
	return span(s, body+1, inRun)
}

// random tells words of a language from tokens.
func random(s string) bool {
	for i := 1; i < len(s); i++ {
		if c := s[i]; c < 'a' || c > 'z' {
			return true
		}
	}
	return false
}

func bearer(run string) bool {
	return len(run) == 6 && strings.EqualFold(run, "bearer") || len(run) == 5 && strings.EqualFold(run, "basic")
}

// names are what the names of secret values end with.
var names = []string{
	"password", "passwd", "pwd", "passphrase", "secret", "token", "credential", "credentials",
	"apikey", "api_key", "api-key", "access_key", "access-key", "secret_key", "secret-key",
	"private_key", "private-key", "auth_key",
}

// named tells whether a run is the name of a secret value.
func named(run string) bool {
	if len(run) < len("pwd") {
		return false
	}
	last, third := run[len(run)-1]|0x20, run[len(run)-3]|0x20
	switch last { // what all names end in; this turns most runs away at once
	case 'd', 'e', 't', 'n', 'l', 's', 'y':
	default:
		return false
	}
	for _, n := range names {
		if n[len(n)-1] == last && n[len(n)-3] == third && len(run) >= len(n) && strings.EqualFold(run[len(run)-len(n):], n) {
			return true
		}
	}
	return false
}

// keyOfQuery tells whether a run is the name under which a URL's query holds the
// key of an API, as Google's do. Elsewhere key names much that is no secret.
func keyOfQuery(s string, i, end int) bool {
	return i > 0 && (s[i-1] == '?' || s[i-1] == '&') && strings.EqualFold(s[i:end], "key")
}

// valueStart is where the value behind a name begins: after =, : or, behind a
// flag, white space, with quotes around any of them. It is 0 when there is none.
func valueStart(s string, i int, flag bool) int {
	at := quotes(s, i)
	gap := at
	for at < len(s) && s[at] == ' ' {
		at++
	}
	switch {
	case at < len(s) && (s[at] == '=' || s[at] == ':'):
		at++
		for at < len(s) && s[at] == ' ' {
			at++
		}
	case !flag || at == gap:
		return 0
	}
	at = quotes(s, at)
	if at >= len(s) || class[s[at]]&inValue == 0 || flag && s[at] == '-' {
		return 0
	}
	return at
}

// quotes steps over quotes, also those with backslashes before them.
func quotes(s string, i int) int {
	for i < len(s) {
		switch {
		case s[i] == '"' || s[i] == '\'':
			i++
		case s[i] == '\\' && i+1 < len(s) && strings.IndexByte(`"'\`, s[i+1]) >= 0:
			i++
		default:
			return i
		}
	}
	return i
}

// url masks the password in what stands behind "://", and says where to go on.
func (m *masker) url(i int) int {
	end := span(m.s, i, inUser)
	if end >= len(m.s) || m.s[end] != '@' {
		return i
	}
	_, pass, ok := strings.Cut(m.s[i:end], ":")
	if !ok || pass == "" {
		return i
	}
	m.mask(end-len(pass), end, min(1, len(pass)-1))
	return end
}

// armour reads the line of a PEM text whose dashes start at i and says where to
// go on; end is the end of its first run.
func (m *masker) armour(i, end int) int {
	line := m.s[i:min(len(m.s), i+80)]
	title, isBegin := strings.CutPrefix(line, "-----BEGIN ")
	if !isBegin {
		m.pem = m.pem && !strings.HasPrefix(line, "-----END")
		return end
	}
	title, _, ok := strings.Cut(title, "-----")
	if m.pem = ok && strings.HasSuffix(title, "PRIVATE KEY"); m.pem {
		return i + len("-----BEGIN ") + len(title) + len("-----")
	}
	return end
}
