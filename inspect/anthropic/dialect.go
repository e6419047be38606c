// Package anthropic reads and rewrites Anthropic Messages: the request's top
// level, answers that are one JSON document, and answers streamed as
// server-sent events. It knows this one wire format and no policy.
//
// Where the format is said to be one thing, the source is the reference of
// POST /v1/messages and its streaming guide, and the types of Anthropic's own
// Go library.
package anthropic

import (
	"mime"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
)

// Name is the dialect's name in logs, audit and configuration.
const Name = "anthropic"

// Dialect reads Anthropic Messages. Its zero value is ready to use.
type Dialect struct {
	// Limits bound what one turn holds; zero fields stand for their defaults.
	Limits inspect.Limits
	// Denial says what a withheld call leaves in its place.
	Denial inspect.Denial
}

var _ inspect.Dialect = Dialect{}

// Name gives the constant Name.
func (Dialect) Name() string { return Name }

// Classify tells Messages itself (gated), the count of their tokens (aside) and
// the endpoints whose answers hold no calls (harmless). Batches, files and whatever else exists are unknown:
// their answers may hold calls in other forms.
func (Dialect) Classify(h inspect.Head) inspect.Class {
	switch h.Method {
	case http.MethodPost:
		switch {
		case h.Path == "/v1/messages/count_tokens", h.Path == "/messages/count_tokens":
			return inspect.ClassAside
		case strings.HasSuffix(h.Path, "/messages") && !strings.Contains(h.Path, "/threads/"):
			// Threads are another provider's, whose messages have another form.
			return inspect.ClassGated
		}
	case http.MethodGet:
		rest, ok := strings.CutPrefix(strings.TrimPrefix(h.Path, "/v1"), "/models")
		if ok && (rest == "" || modelID(rest)) {
			return inspect.ClassHarmless
		}
	}
	return inspect.ClassUnknown
}

// modelID reports whether rest is a slash and one plain segment.
func modelID(rest string) bool {
	if len(rest) < 2 || rest[0] != '/' || rest[1] == '.' {
		return false
	}
	for _, c := range []byte(rest[1:]) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-_.:@", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// Request reads the top level of a request for Messages.
func (d Dialect) Request(h inspect.Head, body []byte) (inspect.Request, error) {
	info, threaded, err := readRequest(h, body)
	if err != nil {
		return nil, err
	}
	return &request{info: info, limits: d.Limits.Defaults(), repair: d.Denial == inspect.DenialRepair, threaded: threaded, body: body}, nil
}

// Refuse gives the error body of the Messages API. The error's type goes with
// the status, since clients choose by it whether they try again.
func (Dialect) Refuse(status int, reason string) (inspect.Head, []byte) {
	body := []byte(`{"type":"error","error":{"type":"` + errorType(status) + `","message":`)
	body = gjson.AppendJSONString(body, reason)
	body = append(body, '}', '}')
	return inspect.Head{Status: status, Header: http.Header{"Content-Type": {"application/json"}}}, body
}

func errorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	}
	if status >= 500 {
		return "api_error"
	}
	return "invalid_request_error"
}

// request is what is kept of a request body.
type request struct {
	info   inspect.Info
	limits inspect.Limits
	repair bool // withheld calls are told of in later requests
	// threaded says that the provider holds the history.
	threaded bool
	// body is the whole request; nothing of it is read again unless its history
	// is asked for.
	body []byte
}

func (r *request) Info() inspect.Info { return r.info }

// Open starts the turn for an answer of either form.
func (r *request) Open(response inspect.Head) (inspect.Turn, error) {
	stream, err := streams(response)
	switch {
	case err != nil:
		return nil, err
	case stream:
		return newStream(r), nil
	}
	return newDocument(r), nil
}

// streams tells by an answer's head whether it is a stream or one document.
func streams(response inspect.Head) (bool, error) {
	kind := response.Header.Get("Content-Type")
	switch kind { // as most servers write it
	case "text/event-stream", "text/event-stream; charset=utf-8":
		return true, nil
	case "application/json":
		return false, nil
	}
	media, params, err := mime.ParseMediaType(kind)
	if err != nil {
		return false, &inspect.Error{Dialect: Name, Where: "content-type", Reason: "the answer does not say what it is", Err: err}
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "utf8") {
		return false, &inspect.Error{Dialect: Name, Where: "content-type", Reason: "the answer is not in UTF-8 but in " + c}
	}
	switch media {
	case "text/event-stream":
		return true, nil
	case "application/json":
		return false, nil
	}
	return false, &inspect.Error{Dialect: Name, Where: "content-type", Reason: "an answer of type " + media + " cannot be read"}
}
