package proxy

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// ordinary are headers that nearly every agent sends and that name nobody.
var ordinary = map[string]bool{
	"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Connection": true, "Content-Encoding": true,
	"Content-Length": true, "Content-Type": true, "User-Agent": true, "Traceparent": true, "Tracestate": true,
	"X-Request-Id": true, "X-Client-Request-Id": true, "Anthropic-Version": true, "Anthropic-Beta": true,
	platformHeader: true, userHeader: true,
	"Session-Id": true, "X-Session-Id": true, "X-Session-Affinity": true, "X-Claude-Code-Session-Id": true,
}

// telling are the words in the names of headers by which some provider or some
// gateway in front of it tells its customers apart.
var telling = bytes.Fields([]byte("auth key token secret credential cookie password cert jwt assertion " +
	"organization organisation org- -org project tenant account customer consumer workspace team user email portkey-config"))

// tells reports whether a header may say who asks. Keys that only keep a
// request from being done twice differ with each request and do not.
func tells(name string) bool {
	if ordinary[name] {
		return false
	}
	if strings.HasPrefix(name, "X-Stainless-") || strings.HasPrefix(name, "Sec-") {
		return false
	}
	var room [64]byte // so that no request pays for it
	small := room[:0]
	for _, c := range []byte(name) {
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '_':
			c = '-'
		}
		small = append(small, c)
	}
	return slices.ContainsFunc(telling, func(w []byte) bool { return bytes.Contains(small, w) }) &&
		!bytes.Contains(small, []byte("idempotency"))
}

// Tenant names who asks.
type Tenant struct {
	// Principal tells tenants apart: two of them never have one name. That one
	// tenant may have several costs a question more.
	Principal string
	// Repairs names those whose conversations may be repaired. It outlives the
	// renewal of a credential, and is Principal where nothing is renewed.
	Repairs string
	// Stable says that Repairs tells tenants apart, too, among those whom the
	// provider answers. It does not where a credential that names nobody is
	// renewed, or there is none.
	Stable bool
}

// PrincipalKey returns the function that names a tenant: HMAC-SHA256 with the
// given key, in hex, over agent, upstream and what every header says of the
// customer whose name says that it may tell customers apart (authorization,
// x-api-key, helicone-auth, cookie, openai-organization ...). Each part is hashed with its
// length, so that no two different sets give one text. Credentials are not
// kept.
func PrincipalKey(key []byte) func(agent, upstream string, h http.Header) Tenant {
	own := append([]byte(nil), key...)
	pool := sync.Pool{New: func() any { return &namer{mac: hmac.New(sha256.New, own)} }}
	return func(agent, upstream string, h http.Header) Tenant {
		n := pool.Get().(*namer)
		defer pool.Put(n)
		t := Tenant{Stable: n.read(h)}
		t.Principal = n.name("", agent, upstream)
		if t.Repairs = t.Principal; n.renewed {
			t.Repairs = n.name("repairs", agent, upstream)
		}
		n.forget()
		return t
	}
}

// namer makes the names of one tenant.
type namer struct {
	mac     hash.Hash
	headers []heading
	ids     []identity
	renewed bool // what a header says changes with a renewal
	room    [64]byte
	text    []byte
}

// heading is a telling header, with its values in namer.ids.
type heading struct {
	name     string
	from, to int
}

// read takes the headers apart and reports whether what outlives a renewal
// names one customer.
func (n *namer) read(h http.Header) (stable bool) {
	proved, doubtful := false, false
	signed := strings.HasPrefix(h.Get("Authorization"), "AWS4-")
	for name, values := range h {
		if !tells(name) || signed && name == "X-Amz-Security-Token" { // which goes with the key id
			continue
		}
		from := len(n.ids)
		for _, v := range values {
			id := identify(name, v)
			proved = proved || id.credential
			doubtful = doubtful || !id.firm && !id.named
			n.renewed = n.renewed || !id.firm
			n.ids = append(n.ids, id)
		}
		n.headers = append(n.headers, heading{name, from, len(n.ids)})
	}
	slices.SortFunc(n.headers, func(a, b heading) int { return strings.Compare(a.name, b.name) })
	return proved && !doubtful
}

// name hashes what the headers say; with a use given, what of it outlives a
// renewal.
func (n *namer) name(use, agent, upstream string) string {
	n.mac.Reset()
	if use != "" {
		n.part(use)
	}
	n.part(agent)
	n.part(upstream)
	for _, h := range n.headers {
		n.part(h.name)
		n.mac.Write(binary.AppendUvarint(n.room[:0], uint64(h.to-h.from)))
		for i := range n.ids[h.from:h.to] {
			if id := &n.ids[h.from+i]; use == "" {
				n.part(id.exact)
			} else {
				n.part(id.kept)
			}
		}
	}
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], n.mac.Sum(n.room[:0]))
	return string(text[:])
}

func (n *namer) part(s string) {
	n.text = append(binary.AppendUvarint(n.text[:0], uint64(len(s))), s...)
	n.mac.Write(n.text)
}

// forget lets go of the credentials.
func (n *namer) forget() {
	clear(n.headers)
	clear(n.ids)
	clear(n.text)
	n.headers, n.ids, n.renewed = n.headers[:0], n.ids[:0], false
}

// tenant names who asks. Some providers take a key in the query: such
// parameters count like headers.
func (x *exchange) tenant() Tenant {
	h := x.r.Header
	if q := x.r.URL.RawQuery; q != "" {
		params, _ := url.ParseQuery(q) // gives what could be read
		cloned := false
		for name, values := range params {
			if !tells(name) {
				continue
			}
			if !cloned {
				h, cloned = h.Clone(), true
			}
			h["?"+name] = values
		}
	}
	t := x.p.principal(x.by.agent.Name, x.rt.up.Name, h)
	if x.by.proved {
		t.Stable = true // the agent is told apart, whatever its credential says
	}
	return t
}

func randomKey() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails: it ends the process instead
	return key
}
