// Package ollama reads and rewrites the answers of Ollama's own API: those of
// /api/chat and of /api/generate, as a stream with one JSON document a line or
// as one document. (Under /v1 Ollama speaks the formats of others.)
//
// It holds the wire format and its quirks: where a call may stand and how one is
// taken out so that what is left is still an answer. It must not know which
// calls are dangerous, who decides, or how bytes travel.
//
// The format is that of Ollama's API documentation and of its client libraries.
// A call comes whole, with its arguments as an object; several may stand in one
// line, beside words, and in the last line too. Ids came late and may be
// missing. A line is read by its raw bytes after strictjson has found that all
// JSON readers agree, and changed by cutting and putting in bytes.
package ollama

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"callgate/inspect"
)

// Dialect is Ollama's own API. Its zero value is ready.
type Dialect struct {
	// Limits bound one turn; zero fields stand for their defaults.
	Limits inspect.Limits
	// Denial says what withheld calls leave in their place.
	Denial inspect.Denial
}

var _ inspect.Dialect = Dialect{}

// name is the dialect's name and the place of its errors.
const name = "ollama"

// Name gives the dialect's name.
func (Dialect) Name() string { return name }

// harmless are the endpoints whose answers hold no calls.
var harmless = map[string]bool{
	"GET /api/tags":        true,
	"GET /api/ps":          true,
	"GET /api/version":     true,
	"POST /api/show":       true,
	"POST /api/embed":      true,
	"POST /api/embeddings": true,
}

// The endpoints that are gated.
const (
	chatPath     = "/api/chat"
	generatePath = "/api/generate"
)

// Classify gates a POST to any path that ends like the two endpoints at which a
// model answers, so that a base path before them widens what is gated and never
// narrows it. A model may call tools at /api/generate too, though a request has
// no place for them there: newer servers find calls in what any model says. The
// endpoints that change the server are unknown.
func (Dialect) Classify(h inspect.Head) inspect.Class {
	switch {
	case h.Method == http.MethodPost && (strings.HasSuffix(h.Path, chatPath) || strings.HasSuffix(h.Path, generatePath)):
		return inspect.ClassGated
	case harmless[h.Method+" "+h.Path]:
		return inspect.ClassHarmless
	}
	return inspect.ClassUnknown
}

// Refuse gives an error as Ollama does.
func (Dialect) Refuse(status int, reason string) (inspect.Head, []byte) {
	return inspect.Head{Status: status, Header: http.Header{"Content-Type": {"application/json; charset=utf-8"}}}, appendError(nil, reason)
}

// media tells a stream from a document by the response's content type. A
// response without one is taken for what the request asked for; neither reading
// can take the other form for its own.
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
	case "application/x-ndjson":
		return true, nil
	case "application/json":
		return false, nil
	}
	return false, &inspect.Error{Dialect: name, Where: "content type", Reason: fmt.Sprintf("%q is neither JSON nor lines of it (application/x-ndjson)", kind)}
}

// shape is what differs between the two endpoints.
type shape struct {
	// words is the key of what the model says, and inside says that it stands in
	// a message rather than in the document itself.
	words  string
	inside bool
}

var (
	chatShape     = shape{words: "content", inside: true}
	generateShape = shape{words: "response"}
)
