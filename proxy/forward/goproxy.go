package forward

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/elazarl/goproxy"

	"callgate/proxy/egress"
)

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// newGoproxy sets goproxy up so that it has nothing of its own: no transport,
// no dialer out of the environment, no certificates, no log, and no default
// that tunnels.
func (h *Handler) newGoproxy(dial dialFunc) *goproxy.ProxyHttpServer {
	g := goproxy.NewProxyHttpServer()
	g.Tr = h.transport
	g.ConnectDial = nil // it may point at the proxy of the environment, which may be callgate
	g.ConnectDialWithReq = func(r *http.Request, network, addr string) (net.Conn, error) {
		p := planOf(r)
		if p.refusal != "" || p.tunnel == nil || addr != p.to.String() {
			return nil, errors.New("forward: a connection that nobody decided on")
		}
		c, err := dial(r.Context(), network, addr)
		if err != nil {
			return nil, err
		}
		return p.tunnel.target(c)
	}
	g.ConnectionErrHandler = func(client io.Writer, ctx *goproxy.ProxyCtx, err error) {
		status, reason := h.unreachable(planOf(ctx.Req).to, err)
		var b bytes.Buffer
		_ = refusal(ctx.Req, status, reason).Write(&b) // a buffer takes everything
		_, _ = client.Write(b.Bytes())                 // a client that is gone needs no answer
	}
	g.Logger = quiet{h.log}
	g.KeepAcceptEncoding = true // what is not gated passes as it is
	g.NonproxyHandler = h.next
	g.OnRequest().HandleConnectFunc(func(_ string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		p := planOf(ctx.Req)
		switch {
		case p.refusal != "":
		case p.kind == kindGated, p.kind == kindData:
			return &goproxy.ConnectAction{Action: goproxy.ConnectHijack, Hijack: h.take}, p.to.String()
		case p.tunnel != nil:
			return &goproxy.ConnectAction{Action: goproxy.ConnectAccept}, p.to.String()
		default:
			p.refusal, p.status = "nothing was decided", http.StatusForbidden
		}
		h.log.Debug("a tunnel is refused", "host", p.to.host, "reason", p.refusal)
		ctx.Resp = refusal(ctx.Req, p.status, p.refusal)
		return &goproxy.ConnectAction{Action: goproxy.ConnectReject}, p.to.String()
	})
	g.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		p := planOf(r)
		if p.refusal == "" && p.tunnel == nil {
			p.refusal, p.status = "nothing was decided", http.StatusForbidden
		}
		if p.refusal != "" {
			return r, refusal(r, p.status, p.refusal)
		}
		out := r.Clone(r.Context())
		out.URL.Host, out.Host = p.to.String(), r.URL.Host
		dropHop(out.Header)
		out.Header.Add("Via", "1.1 "+h.via)
		if _, ok := out.Header["User-Agent"]; !ok {
			out.Header.Set("User-Agent", "") // else the transport puts in its own
		}
		return out, nil
	})
	g.OnResponse().DoFunc(func(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
		p := planOf(ctx.Req)
		if resp == nil {
			status, reason := h.unreachable(p.to, ctx.Error)
			return refusal(ctx.Req, status, reason)
		}
		if p.refusal != "" {
			return resp
		}
		dropHop(resp.Header)
		resp.Header.Del("Alt-Svc") // another way there would lead past this one
		p.length = resp.Header["Content-Length"]
		resp.Body = &whole{resp.Body}
		return resp
	})
	return g
}

// unreachable puts into words why a host was not reached.
func (h *Handler) unreachable(to endpoint, err error) (status int, reason string) {
	if re, ok := errors.AsType[*egress.RefusedError](err); ok {
		h.log.Warn("an address is refused", "host", to.host, "reason", re.Error())
		return http.StatusForbidden, re.Error()
	}
	if err == nil {
		err = errors.New("no answer")
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return http.StatusGatewayTimeout, to.String() + " does not answer in time"
	}
	h.log.Info("a host is not reached", "host", to.host, "err", err)
	return http.StatusBadGateway, to.String() + " is not reached: " + egress.Reason(err)
}

// dropHop removes what concerns one connection alone (RFC 9110, section 7.6.1).
func dropHop(h http.Header) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
	} {
		h.Del(name)
	}
}

// whole is the body of an answer. One that breaks off breaks the client's
// connection off too: goproxy would end it as if it were complete.
type whole struct{ io.ReadCloser }

func (b *whole) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// flusher writes an answer of another host through, each piece as it comes.
type flusher struct {
	http.ResponseWriter
	plan *plan
}

// Unwrap is for http.ResponseController.
func (f *flusher) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// WriteHeader puts the length back, which goproxy takes away from a body that
// it sees wrapped.
func (f *flusher) WriteHeader(status int) {
	if len(f.plan.length) == 1 && len(f.Header()["Content-Length"]) == 0 {
		f.Header()["Content-Length"] = slices.Clone(f.plan.length)
	}
	f.ResponseWriter.WriteHeader(status)
}

// Write gives the client a time to take what is written.
func (f *flusher) Write(p []byte) (int, error) {
	rc := http.NewResponseController(f.ResponseWriter)
	if err := rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := f.ResponseWriter.Write(p)
	if err == nil {
		err = rc.Flush()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // goproxy would read on for nobody
	}
	return n, nil
}

// hijacker hands out the client's connection with the bytes that the server
// had read of it, which goproxy gives to none of its callers.
type hijacker struct {
	http.ResponseWriter
	plan *plan
}

// Hijack gives a connection that guards itself: one to be served here, or the
// client's end of a tunnel.
func (w *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	first, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err == nil {
		err = c.SetDeadline(time.Now().Add(helloTime))
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	var client net.Conn = &inside{Conn: c, first: bytes.Clone(first)}
	if w.plan.refusal == "" && w.plan.tunnel != nil {
		if client, err = w.plan.tunnel.client(client, w.plan.to); err != nil {
			return nil, nil, err
		}
	}
	return client, bufio.NewReadWriter(bufio.NewReaderSize(client, 16), bufio.NewWriterSize(client, 16)), nil
}

// quiet is goproxy's log. What it warns of is the doing of clients and hosts.
type quiet struct{ log *slog.Logger }

// Printf logs one line.
func (q quiet) Printf(format string, args ...any) {
	if q.log.Enabled(context.Background(), slog.LevelDebug) {
		q.log.Debug("goproxy: " + printable(fmt.Sprintf(format, args...)))
	}
}
