// Package console is the control listener's side of the gate: a JSON API by
// which people list questions and answer them, and a client for it. It knows
// how an answer comes in and who may give one; what an answer means, and where
// it is kept, belongs to the Desk. It must never be reachable through the data
// listener, where agents talk.
//
// The API, all of it below /api/v1:
//
//	GET  health                    no token; says only that it answers
//	GET  approvals?state=&limit=   newest first; state "" means all
//	GET  approvals/ID
//	POST approvals/ID/approve      {"reason": "", "by": ""}, both optional
//	POST approvals/ID/deny         the same
//
// Everything but health needs "Authorization: Bearer TOKEN". Whoever holds the
// token may answer; "by" is what that person calls themselves. An error is
// {"error": {"code": "", "message": ""}}, with the approval beside it when
// there is one: 409 says who was first.
//
// Wrong tokens are not throttled: a limit that also hit the right token would
// let an agent on the same host lock the person out, and one that spared it
// would stop no guess. The token must be long and random instead.
package console

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"callgate/gate"
	"callgate/inspect/strictjson"
)

// Desk is where questions wait for their answers.
type Desk interface {
	// Answer gives a person's answer: gate.ErrAnswered, with the approval as
	// it stands, when it is no longer pending, gate.ErrNotFound when there is
	// none.
	Answer(ctx context.Context, id string, ans gate.Answer) (gate.Approval, error)
	Approval(ctx context.Context, id string) (gate.Approval, error)
	Approvals(ctx context.Context, state gate.ApprovalState, limit int) ([]gate.Approval, error)
}

// Config is what the API needs.
type Config struct {
	Desk Desk
	// TokenHash is the SHA-256 of the token. The zero value is the hash of no
	// token, so that nobody gets in.
	TokenHash [sha256.Size]byte
	// Hosts are the names, beside those of the loopback interface, by which
	// the listener is reached: host or host:port. Requests for other hosts are
	// refused, as a page in a browser can give any name this address.
	Hosts []string
}

const (
	root = "/api/v1/"
	// maxBody bounds what is read of a request.
	maxBody = 64 << 10
	// maxReason and maxBy bound the texts of an answer, in bytes.
	maxReason, maxBy = 2000, 200
	// defaultLimit and maxLimit are for lists.
	defaultLimit, maxLimit = 200, 1000
	// someone stands where the answer does not say who gave it.
	someone = "control API"
)

// The codes of errors, in the API's answers and in APIError.
const (
	CodeBadRequest   = "bad_request"
	CodeUnauthorized = "unauthorized"
	CodeForbidden    = "forbidden"
	CodeNotFound     = "not_found"
	CodeMethod       = "method_not_allowed"
	CodeAnswered     = "already_answered"
	CodeTooLarge     = "too_large"
	CodeFailed       = "failed"
)

// api serves the routes.
type api struct {
	c     Config
	hosts []string
}

// New gives the API's handler. c.Desk must be set.
func New(c Config) http.Handler {
	a := &api{c: c}
	for _, h := range c.Hosts {
		a.hosts = append(a.hosts, strings.ToLower(h))
	}
	return a
}

// Server gives a server for h with limits on sizes and times. The caller sets
// ErrorLog and the like, serves, and shuts it down.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// fault is an error as the API gives it.
type fault struct {
	status   int
	Code     string `json:"code"`
	Message  string `json:"message"`
	approval *gate.Approval
}

func faultf(status int, code, format string, args ...any) *fault {
	return &fault{status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// ServeHTTP answers one request.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	v, f := a.serve(w, r)
	if f == nil {
		write(w, http.StatusOK, v)
		return
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="callgate"`)
	}
	write(w, f.status, struct {
		Error    *fault         `json:"error"`
		Approval *gate.Approval `json:"approval,omitempty"`
	}{f, f.approval})
}

// secure sets the headers that every answer has: it is data for programs, and
// no browser may run, frame, guess or keep it.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // a time out of range in an approval, say
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":"failed","message":"the answer cannot be written as JSON"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // who has gone needs no answer
}

// serve checks the request in the order of what each check protects, and
// leads it to its route.
func (a *api) serve(w http.ResponseWriter, r *http.Request) (any, *fault) {
	// The request line must be a plain path: a proxy's absolute form names
	// another host than the Host header does.
	if !strings.HasPrefix(r.RequestURI, "/") || r.URL.Host != "" {
		return nil, faultf(http.StatusBadRequest, CodeBadRequest, "the request must name a path alone; the control listener is no proxy")
	}
	path, ok := strings.CutPrefix(r.URL.Path, root)
	if !ok || r.URL.EscapedPath() != r.URL.Path {
		return nil, noRoute()
	}
	if path == "health" {
		if f := allow(w, r, http.MethodGet); f != nil {
			return nil, f
		}
		return map[string]string{"status": "ok"}, nil
	}
	if f := a.known(r); f != nil {
		return nil, f
	}
	return a.route(w, r, path)
}

// known refuses who has no right to be here.
func (a *api) known(r *http.Request) *fault {
	if !a.host(r.Host) {
		return faultf(http.StatusForbidden, CodeForbidden, "the host %q is not one of this listener's", r.Host)
	}
	if f := sameSite(r); f != nil {
		return f
	}
	if !a.token(r.Header) {
		return faultf(http.StatusUnauthorized, CodeUnauthorized, "the control token is missing or wrong")
	}
	return nil
}

// host tells whether a Host header names the loopback interface or one of the
// configured hosts.
func (a *api) host(host string) bool {
	host = strings.ToLower(host)
	if slices.Contains(a.hosts, host) {
		return true
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	if name == "localhost" || slices.Contains(a.hosts, name) {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Zone() == "" && addr.IsLoopback()
}

// sameSite refuses what a browser sends for a page of another site.
func sameSite(r *http.Request) *fault {
	refused := faultf(http.StatusForbidden, CodeForbidden, "the request comes from a page of another site")
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return refused
		}
	}
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0:
		return nil
	case len(origins) > 1:
		return refused
	}
	_, host, ok := strings.Cut(origins[0], "://")
	if !ok || !strings.EqualFold(host, r.Host) {
		return refused
	}
	return nil
}

// token compares the one token of the request with ours. Hashes are compared,
// so neither length nor content shows in the time it takes.
func (a *api) token(h http.Header) bool {
	values := h.Values("Authorization")
	if len(values) != 1 || a.c.TokenHash == [sha256.Size]byte{} {
		return false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return false
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], a.c.TokenHash[:]) == 1
}

func noRoute() *fault {
	return faultf(http.StatusNotFound, CodeNotFound, "there is nothing at this path; the API is below %sapprovals", root)
}

func allow(w http.ResponseWriter, r *http.Request, method string) *fault {
	if r.Method == method {
		return nil
	}
	w.Header().Set("Allow", method)
	return faultf(http.StatusMethodNotAllowed, CodeMethod, "this path takes %s alone", method)
}

func (a *api) route(w http.ResponseWriter, r *http.Request, path string) (any, *fault) {
	parts := strings.Split(path, "/")
	switch {
	case parts[0] != "approvals" || len(parts) > 3 || slices.Contains(parts, ""):
		return nil, noRoute()
	case len(parts) == 3:
		if parts[2] != "approve" && parts[2] != "deny" {
			return nil, noRoute()
		}
		if f := allow(w, r, http.MethodPost); f != nil {
			return nil, f
		}
		return a.answer(r, parts[1], parts[2] == "approve")
	}
	if f := allow(w, r, http.MethodGet); f != nil {
		return nil, f
	}
	if len(parts) == 2 {
		return a.one(r, parts[1])
	}
	return a.list(r)
}

// list is the answer to GET approvals.
type list struct {
	Approvals []gate.Approval `json:"approvals"`
}

func (a *api) list(r *http.Request) (any, *fault) {
	state, limit, f := listQuery(r)
	if f != nil {
		return nil, f
	}
	found, err := a.c.Desk.Approvals(r.Context(), state, limit)
	if err != nil {
		return nil, failure(err, gate.Approval{})
	}
	if found == nil {
		found = []gate.Approval{}
	}
	return list{found}, nil
}

// listQuery reads the query of a list strictly: what is not understood must
// not silently widen or narrow it.
func listQuery(r *http.Request) (state gate.ApprovalState, limit int, f *fault) {
	bad := func(format string, args ...any) (gate.ApprovalState, int, *fault) {
		return "", 0, faultf(http.StatusBadRequest, CodeBadRequest, format, args...)
	}
	query, err := parseQuery(r)
	if err != nil {
		return bad("the query cannot be read: %v", err)
	}
	limit = defaultLimit
	for key, value := range query {
		switch key {
		case "state":
			if state = gate.ApprovalState(value); value != "" && !slices.Contains(States, state) {
				return bad("there is no state %q", value)
			}
		case "limit":
			if limit, err = strconv.Atoi(value); err != nil || limit < 1 || limit > maxLimit {
				return bad("limit must be a number from 1 to %d", maxLimit)
			}
		default:
			return bad("there is no parameter %q", key)
		}
	}
	return state, limit, nil
}

// States are all states an approval can have.
var States = []gate.ApprovalState{
	gate.StatePending, gate.StateApproved, gate.StateSpent, gate.StateDenied, gate.StateExpired, gate.StateWithdrawn,
}

func parseQuery(r *http.Request) (map[string]string, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err
	}
	query := map[string]string{}
	for key, vs := range values {
		if len(vs) != 1 {
			return nil, fmt.Errorf("%q is given more than once", key)
		}
		query[key] = vs[0]
	}
	return query, nil
}

func (a *api) one(r *http.Request, id string) (any, *fault) {
	found, err := a.c.Desk.Approval(r.Context(), id)
	if err != nil {
		return nil, failure(err, found)
	}
	return found, nil
}

func (a *api) answer(r *http.Request, id string, approve bool) (any, *fault) {
	ans, f := readAnswer(r)
	if f != nil {
		return nil, f
	}
	ans.Approve = approve
	if ans.By == "" {
		ans.By = someone
	}
	now, err := a.c.Desk.Answer(r.Context(), id, ans)
	if err != nil {
		return nil, failure(err, now)
	}
	return now, nil
}

// answerKeys are the keys of an answer's body.
var answerKeys = strictjson.Keys("reason", "by")

// readAnswer reads the body of an answer; an empty one says nothing more than
// the path does.
func readAnswer(r *http.Request) (gate.Answer, *fault) {
	bad := func(format string, args ...any) (gate.Answer, *fault) {
		return gate.Answer{}, faultf(http.StatusBadRequest, CodeBadRequest, format, args...)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return bad("the body cannot be read: %v", err)
	case len(body) > maxBody:
		return gate.Answer{}, faultf(http.StatusRequestEntityTooLarge, CodeTooLarge, "the body is larger than %d bytes", maxBody)
	case len(body) == 0:
		return gate.Answer{}, nil
	}
	// A form of a web page cannot send this type.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return bad("the body must be of the type application/json")
	}
	if err := strictjson.Object(body, strictjson.Options{Known: answerKeys}); err != nil {
		return bad("the body: %v", err)
	}
	var in struct {
		Reason string `json:"reason"`
		By     string `json:"by"`
	}
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return bad("the body: %v", err)
	}
	if !plain(in.Reason, maxReason) || !plain(in.By, maxBy) {
		return bad("reason and by are one line each, of %d and %d bytes at most", maxReason, maxBy)
	}
	return gate.Answer{By: in.By, Reason: in.Reason}, nil
}

// plain tells whether a text is one line that a terminal only shows.
func plain(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) })
}

// failure turns an error of the desk into the API's; now is the approval as it
// stands, its zero value when there is none.
func failure(err error, now gate.Approval) *fault {
	var f *fault
	switch {
	case errors.Is(err, gate.ErrNotFound):
		return faultf(http.StatusNotFound, CodeNotFound, "%v", gate.ErrNotFound)
	case errors.Is(err, gate.ErrAnswered):
		f = faultf(http.StatusConflict, CodeAnswered, "%s", stands(now))
	default:
		f = faultf(http.StatusInternalServerError, CodeFailed, "%v", err)
	}
	if now.ID != "" {
		f.approval = &now
	}
	return f
}

// stands says who answered, when and what, in a sentence without a full stop.
func stands(a gate.Approval) string {
	said := map[gate.ApprovalState]string{
		gate.StateApproved: "approved", gate.StateSpent: "approved", gate.StateDenied: "denied",
	}[a.State]
	switch {
	case said != "":
		return fmt.Sprintf("it was already %s by %s at %s", said, a.By, a.Answered.UTC().Format(time.RFC3339))
	case a.State == gate.StateExpired:
		return fmt.Sprintf("nobody answered it until %s, so it was denied", a.Expires.UTC().Format(time.RFC3339))
	case a.State == gate.StateWithdrawn:
		return "it was withdrawn: the agent no longer waits for it"
	}
	return gate.ErrAnswered.Error()
}
