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

// PrincipalKey returns the function that names a tenant: HMAC-SHA256 with the
// given key over agent, upstream and every header whose name says that it may
// tell customers apart (authorization, x-api-key, helicone-auth, cookie,
// openai-organization ...), in hex. Two tenants must never have one name; that
// one tenant may have several costs a question more. Each part is hashed with
// its length, so that no two different sets give one text. Credentials are not
// kept.
func PrincipalKey(key []byte) func(agent, upstream string, h http.Header) string {
	own := append([]byte(nil), key...)
	pool := sync.Pool{New: func() any { return hmac.New(sha256.New, own) }}
	return func(agent, upstream string, h http.Header) string {
		mac := pool.Get().(hash.Hash)
		mac.Reset()
		var room [64]byte
		part := func(s string) {
			b := binary.AppendUvarint(room[:0], uint64(len(s)))
			mac.Write(append(b, s...))
		}
		part(agent)
		part(upstream)
		var few [8]string
		names := few[:0]
		for name := range h {
			if tells(name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			values := h[name]
			part(name)
			mac.Write(binary.AppendUvarint(room[:0], uint64(len(values))))
			for _, v := range values {
				part(v)
			}
		}
		sum := mac.Sum(room[:0])
		pool.Put(mac)
		var text [2 * sha256.Size]byte
		hex.Encode(text[:], sum)
		return string(text[:])
	}
}

// tenant names who asks. Some providers take a key in the query: such
// parameters count like headers.
func (x *exchange) tenant() string {
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
	return x.p.principal(agent, x.rt.up.Name, h)
}

func randomKey() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails: it ends the process instead
	return key
}
