package forward

import (
	"context"
	"net/http"
)

// Agents tells which agent a client of the proxy is.
type Agents interface {
	// Login gives the agent of a proxy request, "" where none was shown and none
	// must be; reason says why the request is refused. keys says that the key of
	// a provider's API counts beside what is shown to the proxy.
	Login(r *http.Request, keys bool) (agent, reason string)
	// As gives the context of a connection whose requests are that agent's.
	As(ctx context.Context, agent string) context.Context
}

// challenge is what a client without a known token is told. Basic is the one
// scheme that clients of proxies have in common.
const challenge = `Basic realm="callgate", charset="UTF-8"`

// login finds out which agent a proxy request is of. Who is none learns nothing
// of where it was going. What goes to callgate itself without a word of who
// asks is asked there, as if it had come straight.
func (h *Handler) login(r *http.Request, p *plan) *plan {
	if h.agents == nil {
		return p
	}
	connect := r.Method == http.MethodConnect
	agent, reason := h.agents.Login(r, !connect && p.kind == kindGated)
	if reason != "" && p.kind == kindData && len(r.Header["Proxy-Authorization"]) == 0 {
		return p
	}
	if reason != "" {
		h.log.Warn("a proxy request is refused", "from", r.RemoteAddr, "reason", reason)
		return &plan{refusal: reason, status: http.StatusProxyAuthRequired}
	}
	p.agent = agent
	return p
}

// as marks the requests of a tunnel as those of the agent that opened it.
func (h *Handler) as(ctx context.Context, in *inside) context.Context {
	if in == nil || in.agent == "" {
		return ctx
	}
	return h.agents.As(ctx, in.agent)
}
