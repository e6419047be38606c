// Package responses reads and rewrites OpenAI Responses: the request's top
// level and its input, answers that are one JSON document, and answers streamed
// as server-sent events. It knows this one wire format and no policy.
//
// An answer is a list of items. A stream says each of them several times: as it
// is added, in deltas, as it is done, and once more in the response that ends
// the stream. Clients differ over which of these they believe, so all of them
// must agree, and what is given out of a call is made from one value.
//
// Where the format is said to be one thing, the source is OpenAI's API
// reference ("Responses", "Streaming events") and the types of its Go library.
package responses

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
)

// Name is the dialect's name in logs, audit and configuration.
const Name = "openai-responses"

// Dialect reads OpenAI Responses. Its zero value is ready to use.
type Dialect struct {
	// Limits bound what one turn holds; zero fields stand for their defaults.
	Limits inspect.Limits
	// Denial says what a withheld call leaves in its place.
	Denial inspect.Denial
}

var _ inspect.Dialect = Dialect{}

// Name gives the constant Name.
func (Dialect) Name() string { return Name }

// aside are the endpoints, without a leading /v1, that are given a conversation
// and answer with no call: the count of its tokens, and a shorter form of it.
var aside = map[string]bool{"/responses/input_tokens": true, "/responses/compact": true}

// Classify gates a POST to any path that ends in /responses, whatever base or
// deployment stands before it. What is stored and fetched later is unknown.
func (Dialect) Classify(h inspect.Head) inspect.Class {
	switch {
	case h.Method != http.MethodPost:
	case strings.HasSuffix(h.Path, "/responses"):
		return inspect.ClassGated
	case aside[strings.TrimPrefix(h.Path, "/v1")]:
		return inspect.ClassAside
	}
	return inspect.ClassUnknown
}

// Request reads the top level of a request for Responses.
func (d Dialect) Request(h inspect.Head, body []byte) (inspect.Request, error) {
	r := &request{limits: d.Limits.Defaults(), repair: d.Denial == inspect.DenialRepair, body: body}
	if err := r.read(h); err != nil {
		return nil, err
	}
	return r, nil
}

// Refuse gives the error body of the OpenAI API: its message is what agents
// show, its type tells a refusal of ours from one of the provider's.
func (Dialect) Refuse(status int, reason string) (inspect.Head, []byte) {
	body := gjson.AppendJSONString([]byte(`{"error":{"message":`), reason)
	body = append(body, `,"type":"callgate_refused","param":null,"code":"`...)
	body = append(strconv.AppendInt(body, int64(status), 10), `"}}`...)
	return inspect.Head{Status: status, Header: http.Header{"Content-Type": {"application/json"}}}, body
}

// request is what is kept of a request body.
type request struct {
	info   inspect.Info
	limits inspect.Limits
	repair bool // withheld calls are told of in later requests
	body   []byte
	top    outline
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
	media, params, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
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
