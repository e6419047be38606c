package main

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"callgate/config"
	"callgate/proxy"
	"callgate/proxy/egress"
	"callgate/proxy/forward"
	"callgate/proxy/mitm"
)

// buildForward puts the way in by HTTPS_PROXY before the handler of the data
// listener. The authority that its clients trust is made where there is none.
// data and control are callgate's own addresses.
func buildForward(cfg *config.Config, next *proxy.Proxy, data, control []netip.AddrPort, log *slog.Logger) (*forward.Handler, error) {
	ups := forwarded(next.Upstreams)
	need, later, err := forward.Hosts(ups)
	if err != nil {
		return nil, failf(exitConfig, "%w", err)
	}
	ca, made, err := mitm.Ensure(cfg.CADir(), need, later, time.Now())
	if err != nil {
		return nil, &exitError{code: exitFailed, err: err, hints: []string{"or switch the way in by HTTPS_PROXY off with forward.enabled: false"}}
	}
	if made {
		log.Debug("a certificate authority was made; callgate ca trust tells who has to trust it", "file", filepath.Join(cfg.CADir(), mitm.CertFile), "sha256", ca.Fingerprint())
	}
	if _, end := ca.Validity(); time.Until(end) < caWarning {
		log.Warn("the certificate authority ends soon; callgate ca init --replace makes a new one", "end", end.Format(time.DateOnly))
	}
	return forward.New(forward.Options{
		Next:      next,
		Server:    func(h http.Handler) *http.Server { return dataServer(h, log) },
		Upstreams: ups, CA: ca, Data: data, Control: control,
		Transport: egress.New(egress.Options{Own: slices.Concat(data, control)}),
		Others:    policy(cfg.Forward.Others), Providers: policy(cfg.Forward.Providers),
		Tunnels: cfg.Forward.Tunnels, Idle: cfg.Forward.IdleTimeout.Std(), Agents: next.Agents, Log: log,
	})
}

// caWarning is how long before its end an authority is warned of.
const caWarning = 60 * 24 * time.Hour

// policy reads a setting that was validated. What it does not know is refused.
func policy(word string) forward.Policy {
	if word == "tunnel" {
		return forward.Tunnel
	}
	return forward.Refuse
}

// forwarded gives the upstreams as the way in by HTTPS_PROXY takes them.
func forwarded(ups map[string]*proxy.Upstream) []forward.Upstream {
	var list []forward.Upstream
	for name, up := range ups {
		list = append(list, forward.Upstream{Name: name, URL: up.URL})
	}
	slices.SortFunc(list, func(a, b forward.Upstream) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
