package forward

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// refusalBody is a refusal in a form that clients of OpenAI and of Anthropic
// both show to their users.
func refusalBody(reason string) []byte {
	type inner struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	body, _ := json.Marshal(struct { // strings: it cannot fail
		Type  string `json:"type"`
		Error inner  `json:"error"`
	}{"error", inner{"callgate_refused", "callgate: " + reason}})
	return body
}

// refuse answers a request with a reason.
func refuse(w http.ResponseWriter, status int, reason string) {
	body := refusalBody(reason)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(body) // a client that is gone needs no answer
}

// refusal is the answer to a proxy request. Clients that are refused a tunnel
// show little more than its status line, so that the reason stands there too.
func refusal(r *http.Request, status int, reason string) *http.Response {
	body := refusalBody(reason)
	resp := &http.Response{
		Status:     fmt.Sprintf("%d callgate: %s", status, printable(reason)),
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))},
			"Cache-Control": {"no-store"}, "Connection": {"close"},
		},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: r, Close: true,
	}
	if status == http.StatusProxyAuthRequired {
		resp.Header.Set("Proxy-Authenticate", challenge)
	}
	if status == http.StatusServiceUnavailable {
		resp.Header.Set("Retry-After", "5")
	}
	return resp
}

// printable makes a foreign word fit to stand in a message and in one line.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f {
			return -1
		}
		return r
	}, s)
	if len(s) > 300 {
		s = s[:300]
	}
	if s == "" {
		return "nothing"
	}
	return s
}
