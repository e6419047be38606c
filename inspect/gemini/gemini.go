// Package gemini reads and rewrites Gemini's generateContent and
// streamGenerateContent, as the Gemini API, Vertex AI and the login of Gemini
// CLI (Code Assist, where all stands one level deeper) speak it: the request,
// answers that are one JSON document, and answers streamed as server-sent
// events or as a JSON array. It knows this one wire format and no policy.
//
// Where the format is said to be one thing, the source is the reference of the
// Gemini API with its pages on function calling and thought signatures, and the
// types of Google's own Go library.
//
// An answer comes in chunks that are alike in all three forms, and each call
// stands whole in one part of one chunk. A chunk with a call waits as a whole.
// A chunk that is changed is put together anew from the raw bytes of what stays
// in it.
package gemini

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
)

// Name is the dialect's name in logs, audit and configuration.
const Name = "gemini"

// Dialect is Gemini's generateContent. Its zero value is ready to use.
type Dialect struct {
	// Limits bound what one turn holds; zero fields stand for their defaults.
	Limits inspect.Limits
	// Denial says what a withheld call leaves in its place.
	Denial inspect.Denial
}

var _ inspect.Dialect = Dialect{}

// Name gives the constant Name.
func (Dialect) Name() string { return Name }

// The methods of a model. Google writes them behind a colon in the last segment
// of the path.
const (
	methodWhole  = "generateContent"
	methodStream = "streamGenerateContent"
	methodCount  = "countTokens"
)

// harmless are the methods whose answers hold no calls, and loginMethods those
// of Code Assist.
var (
	harmless     = map[string]bool{"embedContent": true, "batchEmbedContents": true, "computeTokens": true}
	loginMethods = map[string]bool{"loadCodeAssist": true, "onboardUser": true, "getCodeAssistGlobalUserSetting": true,
		"setCodeAssistGlobalUserSetting": true, "listExperiments": true, "retrieveUserQuota": true, "recordCodeAssistMetrics": true}
)

// loginVersion is the API version of Code Assist. Its methods have no model in
// the path.
const loginVersion = "v1internal"

// Classify gates a POST to any path that ends in one of the two methods, so
// that a base path, a project or a location before it widens what is gated and
// never narrows it. The count of tokens is aside. Harmless endpoints match
// letter for letter. Batches, cached contents, files and whatever else exists
// are unknown.
func (Dialect) Classify(h inspect.Head) inspect.Class {
	dir, last := "", h.Path
	if i := strings.LastIndexByte(h.Path, '/'); i >= 0 {
		dir, last = h.Path[:i], h.Path[i+1:]
	}
	of, method, called := strings.Cut(last, ":")
	switch {
	case h.Method == http.MethodPost && (strings.HasSuffix(last, ":"+methodWhole) || strings.HasSuffix(last, ":"+methodStream)):
		return inspect.ClassGated
	case h.Method == http.MethodPost && called && method == methodCount:
		return inspect.ClassAside
	case called && of == loginVersion && loginMethods[method] && (h.Method == http.MethodPost || h.Method == http.MethodGet),
		h.Method == http.MethodPost && called && harmless[method],
		h.Method == http.MethodGet && !called && models(dir, last):
		return inspect.ClassHarmless
	}
	return inspect.ClassUnknown
}

// models reports whether a path is that of one model or of all.
func models(dir, last string) bool {
	for _, v := range [...]string{"", "/v1", "/v1beta", "/v1alpha", "/v1beta1"} {
		if dir == v && last == "models" || dir == v+"/models" && plainSegment(last) {
			return true
		}
	}
	return false
}

// plainSegment reports whether s is one path segment of the characters that
// names of models are made of.
func plainSegment(s string) bool {
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte("-._@", c) < 0 {
			return false
		}
	}
	return s != "" && s[0] != '.'
}

// Refuse gives the error body of Google's APIs.
func (Dialect) Refuse(status int, reason string) (inspect.Head, []byte) {
	return inspect.Head{Status: status, Header: http.Header{"Content-Type": {"application/json"}}}, appendError(nil, status, reason)
}

// appendError appends an error in the form of Google's APIs.
func appendError(dst []byte, status int, text string) []byte {
	dst = append(dst, `{"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = gjson.AppendJSONString(append(dst, `,"message":`...), text)
	return append(append(append(dst, `,"status":"`...), statusWord(status)...), `"}}`...)
}

// statusWord is the word of google.rpc.Code that goes with an HTTP status.
func statusWord(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return "UNAVAILABLE"
	case http.StatusGatewayTimeout:
		return "DEADLINE_EXCEEDED"
	}
	if status >= 500 {
		return "INTERNAL"
	}
	return "INVALID_ARGUMENT"
}

// streams tells by an answer's head whether it is a stream of events. Both other
// forms are JSON, and tell themselves apart.
func streams(response inspect.Head) (bool, error) {
	media, params, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		return false, failure("content-type", "the answer does not say what it is", err)
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") && !strings.EqualFold(c, "utf8") {
		return false, failure("content-type", "the answer is not in UTF-8 but in "+c, nil)
	}
	switch media {
	case "text/event-stream":
		return true, nil
	case "application/json":
		return false, nil
	}
	return false, failure("content-type", "an answer of type "+media+" cannot be read", nil)
}

func failure(where, reason string, err error) *inspect.Error {
	return &inspect.Error{Dialect: Name, Where: where, Reason: reason, Err: err}
}
