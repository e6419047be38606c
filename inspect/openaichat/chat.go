// Package openaichat reads and rewrites OpenAI Chat Completions, as OpenAI and
// the many servers that speak it after their own fashion send them: one JSON
// document, or a stream of server-sent events.
//
// It holds the wire format and its quirks: where a call may stand, when it is
// whole, and how one is taken out so that what is left is still an answer. It
// must not know which calls are dangerous, who decides, or how bytes travel.
//
// The format is that of the OpenAI API reference, "Chat Completions" and "Chat
// Completions streaming"; what other servers do is noted where it is allowed
// for. Readers are known to differ over much of it, so a document is read by
// its raw bytes after strictjson has found that all JSON readers agree, and
// changed by cutting and putting in bytes, never by decoding and encoding.
package openaichat

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"callgate/inspect"
)

// Dialect is OpenAI Chat Completions. Its zero value is ready.
type Dialect struct {
	// Limits bound one turn; zero fields stand for their defaults.
	Limits inspect.Limits
	// Denial says what withheld calls leave in their place.
	Denial inspect.Denial
}

var _ inspect.Dialect = Dialect{}

// name is the dialect's name and the place of its errors.
const name = "openai-chat"

// Name gives the dialect's name.
func (Dialect) Name() string { return name }

// harmless are the endpoints beside the gated one whose answers hold no calls,
// without a leading /v1.
var harmless = map[string]bool{
	"GET /models":                true,
	"POST /embeddings":           true,
	"POST /moderations":          true,
	"POST /audio/speech":         true,
	"POST /audio/transcriptions": true,
	"POST /audio/translations":   true,
	"POST /images/generations":   true,
	"POST /images/edits":         true,
	"POST /images/variations":    true,
}

// Classify gates a POST to any path that ends in /chat/completions, so that a
// base path or a deployment's name before it widens what is gated and never
// narrows it. Harmless endpoints match letter for letter, with or without
// /v1; all else is unknown, stored completions fetched later among it.
func (Dialect) Classify(h inspect.Head) inspect.Class {
	if h.Method == http.MethodPost && strings.HasSuffix(h.Path, "/chat/completions") {
		return inspect.ClassGated
	}
	path := strings.TrimPrefix(h.Path, "/v1")
	if harmless[h.Method+" "+path] {
		return inspect.ClassHarmless
	}
	if id, ok := strings.CutPrefix(path, "/models/"); ok && h.Method == http.MethodGet && plainSegment(id) {
		return inspect.ClassHarmless
	}
	return inspect.ClassUnknown
}

// plainSegment reports whether s is one path segment of the characters that
// model ids are made of.
func plainSegment(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte("-._:@", c) < 0 {
			return false
		}
	}
	return s != "" && s != "." && s != ".."
}

// Refuse gives the error body of the OpenAI API: its message is what agents
// show, its type tells a refusal of ours from one of the provider's.
func (Dialect) Refuse(status int, reason string) (inspect.Head, []byte) {
	body := append([]byte(`{"error":{"message":`), quoted(reason)...)
	body = fmt.Appendf(body, `,"type":"callgate_refused","param":null,"code":"%d"}}`, status)
	return inspect.Head{Status: status, Header: http.Header{"Content-Type": {"application/json"}}}, body
}

// media tells a stream from a document by the response's content type. A
// response without one is taken for what the request asked for; neither
// reading can take the other form for its own.
func media(h inspect.Head, stream bool) (streamed bool, err error) {
	value := h.Header.Get("Content-Type")
	if value == "" {
		return stream, nil
	}
	kind, params, err := mime.ParseMediaType(value)
	if err != nil {
		return false, &inspect.Error{Dialect: name, Where: "content type", Reason: "it cannot be read", Err: err}
	}
	if cs := strings.ToLower(params["charset"]); cs != "" && cs != "utf-8" && cs != "utf8" && cs != "us-ascii" {
		return false, &inspect.Error{Dialect: name, Where: "content type", Reason: fmt.Sprintf("charset %q is not UTF-8", cs)}
	}
	switch kind {
	case "text/event-stream":
		return true, nil
	case "application/json":
		return false, nil
	}
	return false, &inspect.Error{Dialect: name, Where: "content type", Reason: fmt.Sprintf("%q is neither JSON nor an event stream", kind)}
}
