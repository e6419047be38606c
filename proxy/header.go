package proxy

import (
	"iter"
	"net/http"
	"strings"
)

// trait says what a header means to whoever passes it on.
type trait uint8

const (
	// hop headers concern one connection (RFC 9110, section 7.6.1).
	hop trait = 1 << iota
	// steering headers of a request let a client, at some servers, name another
	// method or path than the one that was checked.
	steering
	// partial headers of a request ask for an answer which could not be read: a
	// part of it, or one in another form.
	partial
	// bytewise headers of a response are about the very bytes of a body.
	bytewise
)

// traits are the headers that have one, in canonical form. It is one table, so
// that each header is looked up once.
var traits = map[string]trait{
	"Connection": hop, "Proxy-Connection": hop, "Keep-Alive": hop,
	"Proxy-Authenticate": hop, "Proxy-Authorization": hop, "Te": hop,
	"Trailer": hop, "Transfer-Encoding": hop, "Upgrade": hop,
	"Http2-Settings": hop, platformHeader: hop, userHeader: hop,

	"X-Http-Method-Override": steering, "X-Http-Method": steering, "X-Method-Override": steering,
	"X-Original-Url": steering, "X-Rewrite-Url": steering, "X-Original-Uri": steering, "X-Original-Method": steering,
	"X-Forwarded-Uri": steering, "X-Forwarded-Method": steering, "X-Forwarded-Path": steering,

	"Range": partial, "If-Range": partial, "Accept-Encoding": partial, "X-Goog-Fieldmask": partial,

	"Digest": bytewise, "Content-Digest": bytewise, "Repr-Digest": bytewise, "Content-Md5": bytewise,
	"Etag": bytewise, "Accept-Ranges": bytewise,
}

// asRead gives the canonical name under which some server may read a header:
// CGI and its successors make one name of X_A and X-A.
func asRead(name string) string {
	if strings.IndexByte(name, '_') < 0 {
		return name
	}
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
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
			m[asRead(http.CanonicalHeaderKey(t))] = true
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
	for name, v := range in {
		k := asRead(name)
		t := traits[k]
		if t&(hop|steering) != 0 || drop[k] || k == "Expect" || k == "Content-Length" || read && t&partial != 0 {
			continue
		}
		if k == "Content-Encoding" && k != name {
			continue // the body was read without it
		}
		out[name] = v
	}
	if read {
		out["Accept-Encoding"] = uncoded
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nobody // else the transport puts in its own
	}
	return out
}

var (
	uncoded = []string{"identity"}
	nobody  = []string{""}
)

// responseHeader copies the headers of a provider's answer. read says that the
// answer was read and decoded: what speaks of its bytes is dropped.
func responseHeader(dst, in http.Header, read bool) {
	drop := named(in)
	for k, v := range in {
		t := traits[k]
		if t&hop != 0 || drop[k] || k == "Alt-Svc" {
			continue
		}
		if read && (t&bytewise != 0 || k == "Content-Length" || k == "Content-Encoding") {
			continue
		}
		dst[k] = v
	}
}

// forms are the media types that gated answers may have, and whether each is a
// stream. Which of them an answer to a request is read in, its dialect says
// (inspect.Request.Open).
var forms = map[string]bool{"application/json": false, "text/event-stream": true, "application/x-ndjson": true}

// form tells whether the body of a successful gated answer is a stream; reason
// says why it cannot be read.
func form(h http.Header) (stream bool, reason string) {
	values := h["Content-Type"]
	if len(values) != 1 {
		return false, "it has no content type, or several"
	}
	kind, params, _ := strings.Cut(values[0], ";")
	kind = strings.TrimSpace(kind)
	stream, ok := forms[strings.ToLower(kind)]
	if !ok {
		return false, "its content type is " + printable(kind) + ", and only application/json and streams of events or of lines of JSON are read here"
	}
	if reason := badParams(params); reason != "" {
		return false, reason
	}
	return stream, ""
}

// badParams refuses any character set but UTF-8.
func badParams(params string) string {
	for set := range charsets(params) {
		if set != "utf-8" && set != "utf8" {
			return "its character set is " + printable(set) + " and not UTF-8"
		}
	}
	return ""
}

// charsets gives every character set that a reader could find in the
// parameters of a media type, in small letters: readers differ over quotes,
// over charset* (RFC 2231) and over which of several counts.
func charsets(params string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for p := range strings.SplitSeq(strings.ToLower(params), ";") {
			name, value, _ := strings.Cut(p, "=")
			if strings.Contains(name, "charset") && !yield(strings.Trim(value, " \t\"'")) {
				return
			}
		}
	}
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
