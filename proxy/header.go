package proxy

import (
	"net/http"
	"strings"
)

// hop are the headers that concern one connection (RFC 9110, section 7.6.1),
// in canonical form.
var hop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
	"Http2-Settings": true,
}

// steering are request headers by which some servers let a client name another
// method or path than the one that was checked.
var steering = map[string]bool{
	"X-Http-Method-Override": true, "X-Http-Method": true, "X-Method-Override": true,
	"X-Original-Url": true, "X-Rewrite-Url": true,
}

// partial are request headers that ask for an answer which could not be read:
// a part of it, or one in another form.
var partial = map[string]bool{
	"Range": true, "If-Range": true, "Accept-Encoding": true,
}

// digests are response headers about the very bytes of a body.
var digests = map[string]bool{
	"Digest": true, "Content-Digest": true, "Repr-Digest": true, "Content-Md5": true,
	"Etag": true, "Accept-Ranges": true,
}

// named returns the headers that Connection names, nil when there are none.
func named(h http.Header) map[string]bool {
	var m map[string]bool
	for _, v := range h["Connection"] {
		for t := range strings.SplitSeq(v, ",") {
			if t = strings.TrimSpace(t); t == "" {
				continue
			}
			if m == nil {
				m = make(map[string]bool)
			}
			m[http.CanonicalHeaderKey(t)] = true
		}
	}
	return m
}

// requestHeader gives the headers that go to the provider. The values are
// shared with in and must not be changed. read says that the answer will be
// read, so that it must come whole and uncoded.
func requestHeader(in http.Header, read bool) http.Header {
	out := make(http.Header, len(in)+2)
	drop := named(in)
	for k, v := range in {
		if hop[k] || drop[k] || steering[k] || k == "Expect" || k == "Content-Length" || read && partial[k] {
			continue
		}
		out[k] = v
	}
	if read {
		out["Accept-Encoding"] = identity
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nobody // else the transport puts in its own
	}
	return out
}

var (
	identity = []string{"identity"}
	nobody   = []string{""}
)

// responseHeader copies the headers of a provider's answer. read says that the
// answer was read and decoded: what speaks of its bytes is dropped.
func responseHeader(dst, in http.Header, read bool) {
	drop := named(in)
	for k, v := range in {
		if hop[k] || drop[k] || k == "Alt-Svc" {
			continue
		}
		if read && (digests[k] || k == "Content-Length" || k == "Content-Encoding") {
			continue
		}
		dst[k] = v
	}
}

// form tells what the body of a successful gated answer is; reason says why it
// cannot be read.
func form(h http.Header) (stream bool, reason string) {
	values := h["Content-Type"]
	if len(values) != 1 {
		return false, "it has no content type, or several"
	}
	kind, params, _ := strings.Cut(values[0], ";")
	switch kind = strings.TrimSpace(kind); {
	case strings.EqualFold(kind, "application/json"):
	case strings.EqualFold(kind, "text/event-stream"):
		stream = true
	default:
		return false, "its content type is " + printable(kind) + ", and only application/json and text/event-stream are read here"
	}
	if reason := badParams(params); reason != "" {
		return false, reason
	}
	return stream, ""
}

// badParams refuses any character set but UTF-8.
func badParams(params string) string {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(p, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "charset") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		if !strings.EqualFold(value, "utf-8") && !strings.EqualFold(value, "utf8") {
			return "its character set is " + printable(value) + " and not UTF-8"
		}
	}
	return ""
}

// printable makes a foreign word fit to stand in a message.
func printable(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f {
			return -1
		}
		return r
	}, s)
	if s == "" {
		return "empty"
	}
	return s
}
