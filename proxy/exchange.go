package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"callgate/inspect"
	"callgate/proxy/egress"
)

// errAbort ends the client's connection, so that it sees a cut and no end.
var errAbort = errors.New("the connection is cut")

// errGone says that the client hung up or stopped reading.
var errGone = fmt.Errorf("the client is gone: %w", errAbort)

func stack() string { return string(debug.Stack()) }

// refusal is an answer of callgate's own outside any dialect.
type refusal struct {
	status int
	reason string
	header http.Header // further headers, may be nil
}

func refuseWith(status int, reason string) *refusal {
	return &refusal{status: status, reason: reason}
}

// write gives the refusal a body that clients of OpenAI and of Anthropic both
// show to their users.
func (f *refusal) write(w http.ResponseWriter) {
	type inner struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	body, _ := json.Marshal(struct { // two strings: it cannot fail
		Type  string `json:"type"`
		Error inner  `json:"error"`
	}{"error", inner{"callgate_refused", "callgate: " + f.reason}})
	h := w.Header()
	for k, v := range f.header {
		h[k] = v
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(f.status)
	w.Write(body) // a client that is gone needs no answer
}

// refuse answers in the form of the dialect, or in callgate's own when d is
// nil. Nothing may have been written before.
func (x *exchange) refuse(d inspect.Dialect, status int, reason string) {
	x.refuseHeaded(d, status, reason, nil)
}

// refuseHeaded is refuse with more headers.
func (x *exchange) refuseHeaded(d inspect.Dialect, status int, reason string, more http.Header) {
	clear(x.w.Header())
	maps.Copy(x.w.Header(), more)
	x.wrote, x.status = true, status
	x.arm()
	defer x.disarm()
	if d == nil {
		refuseWith(status, reason).write(x.w)
		return
	}
	head, body := d.Refuse(status, "callgate: "+reason)
	h := x.w.Header()
	for k, v := range head.Header {
		h[k] = v
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if head.Status != 0 {
		x.status = head.Status
	}
	x.w.WriteHeader(x.status)
	x.w.Write(body)
}

// arm sets the write deadline anew once half of it is gone.
func (x *exchange) arm() {
	if x.r.ProtoMajor > 1 {
		x.deadline = 0 // disarm took it away
	}
	span := x.p.limits.WriteTimeout
	x.spoke = time.Since(x.began)
	if x.deadline-x.spoke < span/2 {
		x.deadline = x.spoke + span
		x.rc.SetWriteDeadline(x.began.Add(x.deadline)) // not every writer can; the server's own limits hold then
	}
}

// disarm takes the deadline away after a write on HTTP/2, where it would end
// the stream when it passes, even while there is nothing to write.
func (x *exchange) disarm() {
	if x.r.ProtoMajor > 1 {
		x.rc.SetWriteDeadline(time.Time{})
	}
}

// head sends the status once; the headers are in place by then.
func (x *exchange) head(status int) {
	if !x.wrote {
		x.wrote, x.status = true, status
		x.w.WriteHeader(status)
	}
}

// write sends bytes of the answer, which may be none, and flush sees to it that
// they leave now. An error means that the client is gone.
func (x *exchange) write(b []byte, flush bool) error {
	if len(b) == 0 && !flush {
		return nil
	}
	x.arm()
	defer x.disarm()
	if len(b) > 0 {
		if _, err := x.w.Write(b); err != nil {
			return errGone
		}
	}
	if !flush {
		return nil
	}
	if err := x.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errGone
	}
	return nil
}

// request builds what is sent to the provider from the checked route. read
// says that the answer will be read.
func (x *exchange) request(ctx context.Context, read bool) *http.Request {
	bare := http.Request{ // WithContext makes the copy that is used
		Method: x.r.Method,
		URL:    x.rt.url,
		Host:   x.rt.up.URL.Host,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: requestHeader(x.r.Header, read),
	}
	x.rt.up.show(bare.Header)
	return bare.WithContext(ctx)
}

// stream makes the client's body the body of a request, as it comes. The
// server must not close it when the answer begins: the transport looks for its
// end once more, and takes a closed body for a fault of the connection.
func (x *exchange) stream(req *http.Request) {
	x.rc.EnableFullDuplex() // HTTP/2 has no need of it and says so
	req.ContentLength = x.r.ContentLength
	req.Body = x.r.Body
	if req.ContentLength == 0 {
		req.Body = http.NoBody
	}
}

// headerTimeout is how long this upstream may take until its headers are there.
func (x *exchange) headerTimeout() time.Duration {
	if t := x.rt.up.Timeout; t > 0 {
		return t
	}
	return x.p.limits.HeaderTimeout
}

// send asks the provider and returns when the headers of its answer are there.
// What goes wrong is answered here; the response is nil then.
func (x *exchange) send(req *http.Request, d inspect.Dialect, w *watch) (*http.Response, error) {
	if x.p.Transport == nil {
		x.refuse(d, http.StatusBadGateway, "no transport to providers is set up")
		return nil, errors.New("no transport is set up")
	}
	x.span.Upstream(req.Header, req.URL.Host)
	resp, err := x.p.Transport.RoundTrip(req)
	w.headed(x.p.limits.IdleTimeout)
	if err == nil {
		x.span.Answered(resp.StatusCode)
		x.rt.up.silence(resp.Header)
		return resp, nil
	}
	x.span.UpstreamEnd(err)
	var guarded *egress.RefusedError
	switch {
	case x.r.Context().Err() != nil:
		return nil, errGone
	case w.fired.Load():
		x.refuse(d, http.StatusGatewayTimeout, fmt.Sprintf("the provider %s sent no answer within %s", x.rt.up.Name, x.headerTimeout()))
	case errors.As(err, &guarded):
		x.refuse(d, http.StatusBadGateway, guarded.Error())
	default:
		x.refuse(d, http.StatusBadGateway, fmt.Sprintf("the provider %s could not be reached: %s", x.rt.up.Name, egress.Reason(err)))
	}
	return nil, fmt.Errorf("asking %s: %w", x.rt.up.Name, err)
}

// reply is a provider's answer whose headers are there.
type reply struct {
	resp   *http.Response
	watch  *watch // of its body, too
	cancel context.CancelFunc
}

func (a *reply) end() {
	a.resp.Body.Close()
	a.watch.end()
	a.cancel()
}

// ask sends what the prompt has become. What goes wrong is answered here; there
// is no answer of the provider's then.
func (x *exchange) ask(ctx context.Context, q *prompt) (*reply, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := newWatch(x.headerTimeout(), cancel)
	resp, err := x.send(q.outgoing(ctx), q.d, w)
	if resp == nil {
		w.end()
		cancel()
		return nil, err
	}
	return &reply{resp, w, cancel}, nil
}

// pass forwards a request and its answer as they are.
func (x *exchange) pass(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := x.request(ctx, x.rt.up.Credential != nil)
	x.stream(req)
	defer req.Body.Close() // the transport may still read it
	w := newWatch(x.headerTimeout(), cancel)
	defer w.end()
	resp, err := x.send(req, nil, w)
	if resp == nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 {
		x.refuse(nil, http.StatusBadGateway, "the provider answered with status "+strconv.Itoa(resp.StatusCode)+", which is never passed on")
		return fmt.Errorf("status %d from %s", resp.StatusCode, x.rt.up.Name)
	}
	return x.copy(nil, resp, w)
}

// aside forwards a request that holds a conversation and gets no answer of the
// model to it. Its history is repaired like that of the others, its answer is
// passed on unread.
func (x *exchange) aside(ctx context.Context, d inspect.Dialect) error {
	t := x.tenant()
	if x.p.Repairs == nil || !x.p.Repairs.Live(t.Repairs) {
		return x.pass(ctx)
	}
	q, err := x.prompt(d)
	defer q.close()
	if err != nil {
		return err
	}
	if _, err := q.mend(ctx, t); err != nil {
		return fmt.Errorf("repairing the request: %w", err)
	}
	a, err := x.ask(ctx, q)
	if a == nil {
		return err
	}
	defer a.end()
	if status := a.resp.StatusCode; status < 200 {
		return x.withhold(d, badStatus(status))
	}
	return x.copy(d, a.resp, a.watch)
}

// copy sends an answer to the client unread, but for the credential that
// callgate itself showed: an answer with that in it is not for the client.
func (x *exchange) copy(d inspect.Dialect, resp *http.Response, w *watch) error {
	var body io.Reader = &watched{resp.Body, w}
	searched := x.rt.up.Credential != nil && x.r.Method != http.MethodHead
	if searched {
		c, err := coding(resp.Header)
		if err != nil {
			return x.withhold(d, err.Error())
		}
		plain, free, err := decode(c, body, x.p.limits.Answer)
		if err != nil {
			return x.withhold(d, err.Error())
		}
		defer free()
		body = x.rt.up.guard(plain)
	}
	responseHeader(x.w.Header(), resp.Header, searched)
	if x.r.Method == http.MethodHead {
		x.head(resp.StatusCode)
		return nil
	}
	buf := x.p.chunk()
	defer x.p.chunks.Put(buf)
	for {
		n, err := body.Read(*buf)
		if errors.Is(err, errEchoed) && !x.wrote {
			if resp.StatusCode < 400 {
				return x.withhold(d, err.Error())
			}
			x.refuse(d, resp.StatusCode, "the answer was withheld: "+err.Error())
			x.recordWithheld(d, err.Error())
			return fmt.Errorf("answer withheld: %w", err)
		}
		x.head(resp.StatusCode)
		if werr := x.write((*buf)[:n], n > 0 && err == nil && resp.ContentLength < 0 && n < len(*buf)); werr != nil {
			return werr
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && x.r.Context().Err() != nil:
			return errGone
		case errors.Is(err, errEchoed):
			x.recordWithheld(d, err.Error())
			return fmt.Errorf("answer withheld: %w: %w", err, errAbort)
		case err != nil:
			x.span.UpstreamEnd(err)
			return fmt.Errorf("the answer of %s broke off: %w: %w", x.rt.up.Name, err, errAbort)
		}
	}
}

// unknown forwards to an endpoint that no dialect knows and reads the answer
// before it is passed on.
func (x *exchange) unknown(ctx context.Context) error {
	if x.p.Unknown == Refuse {
		x.refuse(nil, http.StatusForbidden, "the endpoint "+x.r.Method+" "+printable(x.rt.path)+
			" is not one that callgate reads, and unknown_endpoints is refuse")
		return fmt.Errorf("the endpoint is unknown: %s %s", x.r.Method, printable(x.rt.path))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := x.request(ctx, true)
	x.stream(req)
	defer req.Body.Close()
	w := newWatch(x.headerTimeout(), cancel)
	defer w.end()
	resp, err := x.send(req, nil, w)
	if resp == nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode < 200 || resp.StatusCode == http.StatusPartialContent || resp.StatusCode/100 == 3:
		return x.withhold(nil, badStatus(resp.StatusCode))
	case resp.StatusCode/100 != 2:
		return x.failed(nil, resp, w)
	}
	mem := lease{from: &x.p.memory}
	defer mem.end()
	body, err := x.whole(resp, w, &mem)
	if errors.Is(err, errGone) {
		return err
	}
	if err != nil {
		return x.withhold(nil, err.Error())
	}
	if found := callShaped(resp.Header, body); found != "" {
		return x.withhold(nil, "the answer of "+x.r.Method+" "+printable(x.rt.path)+" "+found+
			", and callgate does not read calls at this endpoint: let the agent use chat completions or messages")
	}
	responseHeader(x.w.Header(), resp.Header, true)
	if resp.StatusCode != http.StatusNoContent {
		x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	x.head(resp.StatusCode)
	return x.write(body, false)
}

// maxError is the largest body of an error that is passed on, as sent and as
// decoded: those of providers have some hundred bytes.
const maxError = 1 << 20

// failed passes a provider's error on as it came, once it was searched: some
// clients read calls out of any answer, whatever its status. What cannot be
// searched or holds a call is replaced by an error of the same status.
func (x *exchange) failed(d inspect.Dialect, resp *http.Response, w *watch) error {
	mem := lease{from: &x.p.memory}
	defer mem.end()
	raw, err := readAll(&watched{resp.Body, w}, "it", maxError, &mem)
	var large *tooLargeError
	reason := ""
	switch {
	case err == nil:
		reason = searchError(resp.Header, raw, x.rt.up, &x.p.memory)
	case x.r.Context().Err() != nil:
		return errGone
	case errors.As(err, &large), errors.Is(err, errFull):
		reason = err.Error()
	default:
		x.span.UpstreamEnd(err)
		reason = "it broke off: " + err.Error()
	}
	if reason == "" {
		responseHeader(x.w.Header(), resp.Header, false)
		x.head(resp.StatusCode)
		return x.write(raw, false)
	}
	reason = fmt.Sprintf("the provider's error (status %d) cannot be passed on: %s", resp.StatusCode, reason)
	more := make(http.Header)
	for _, k := range []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry", "X-Request-Id", "Request-Id"} {
		if v, ok := resp.Header[k]; ok {
			more[k] = v
		}
	}
	x.refuseHeaded(d, resp.StatusCode, "the answer was withheld: "+reason, more)
	x.recordWithheld(d, reason)
	return errors.New("answer withheld: " + reason)
}

// searchError says why the body of an error must not be passed on, "" when it
// may.
func searchError(h http.Header, raw []byte, up *Upstream, from *budget) string {
	own := lease{from: from}
	defer own.end()
	text, reason := errorText(h, raw, &own)
	if reason != "" {
		return reason
	}
	if found := callShaped(h, text); found != "" {
		return "it " + found
	}
	if up.echoes(text) {
		return errEchoed.Error()
	}
	return ""
}

// errorText gives the body of an error without its content coding, or says why
// it cannot be read.
func errorText(h http.Header, raw []byte, mem *lease) (text []byte, reason string) {
	c, err := coding(h)
	if err != nil {
		return nil, "its " + err.Error()
	}
	if c == "" || len(raw) == 0 {
		return raw, ""
	}
	r, free, err := decode(c, bytes.NewReader(raw), maxError)
	if err != nil {
		return nil, "its " + err.Error()
	}
	defer free()
	text, err = readAll(r, "what it unpacks to", maxError, mem)
	var large *tooLargeError
	switch {
	case errors.As(err, &large), errors.Is(err, errFull):
		return nil, err.Error()
	case err != nil:
		return nil, "it is not " + c + ": " + err.Error()
	}
	return text, ""
}

// whole reads an answer to its end, decoded.
func (x *exchange) whole(resp *http.Response, w *watch, mem *lease) ([]byte, error) {
	c, err := coding(resp.Header)
	if err != nil {
		return nil, err
	}
	limit := x.p.limits.Answer
	r, free, err := decode(c, &watched{resp.Body, w}, limit)
	if err != nil {
		return nil, err
	}
	defer free()
	b, err := readAll(x.rt.up.guard(r), "the answer", limit, mem)
	var large *tooLargeError
	switch {
	case err == nil:
		return b, mem.set(3 * int64(cap(b))) // it is searched in copies
	case x.r.Context().Err() != nil:
		return nil, errGone
	case errors.As(err, &large), errors.Is(err, errFull), errors.Is(err, errEchoed):
		return nil, err
	}
	x.span.UpstreamEnd(err)
	return nil, fmt.Errorf("the answer broke off: %w", err)
}

func badStatus(status int) string {
	switch {
	case status/100 == 3:
		return "the provider answered with a redirect (status " + strconv.Itoa(status) + "), which is not followed: put the final address into the configuration"
	case status == http.StatusPartialContent:
		return "the provider answered with a part of a body, which cannot be read"
	}
	return "the provider answered with status " + strconv.Itoa(status) + ", which is never passed on here"
}

// withhold refuses a whole answer, and records it.
func (x *exchange) withhold(d inspect.Dialect, reason string) error {
	x.refuse(d, http.StatusBadGateway, "the answer was withheld: "+reason)
	x.recordWithheld(d, reason)
	return errors.New("answer withheld: " + reason)
}

// chunk takes a read buffer from the pool.
func (p *Proxy) chunk() *[]byte {
	if b, ok := p.chunks.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, chunkSize)
	return &b
}
