package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"callgate/config"
	"callgate/gate"
	"callgate/gate/console"
	"callgate/gate/detect"
	"callgate/gate/hook"
	"callgate/gate/person"
	"callgate/gate/redact"
	"callgate/gate/store"
	"callgate/inspect"
	"callgate/inspect/anthropic"
	"callgate/inspect/catalog"
	"callgate/inspect/gemini"
	"callgate/inspect/ollama"
	"callgate/inspect/openaichat"
	"callgate/inspect/responses"
	"callgate/proxy"
	"callgate/proxy/egress"
	"callgate/proxy/repair"
	"callgate/proxy/telemetry"
)

// surroundings are what the parts get from the command that runs them.
type surroundings struct {
	// notify tells people of a question.
	notify func(context.Context, gate.Approval) error
	// decided hears of every decision; nil where nobody wants to.
	decided func(*gate.Request, gate.Decision)
	// agents tells clients apart; nil takes those of the settings.
	agents *proxy.Agents
	// own are the addresses of callgate's listeners, which are never dialled.
	own []netip.AddrPort
	// tokenHash is the SHA-256 of the control token, and hosts the names under
	// which the control listener may be spoken to.
	tokenHash [32]byte
	hosts     []string
	// configFile is the file the settings came from, "" for none.
	configFile string
	tracer     trace.Tracer // nil traces nothing
	log        *slog.Logger
}

// parts are callgate without its listeners.
type parts struct {
	store   *store.Store
	desk    *person.Desk
	gate    *gate.Gate
	data    *proxy.Proxy // the handler of the data listener
	control http.Handler // the handler of the control listener

	transport *http.Transport
}

// assemble builds the parts from settings that were validated. Close ends what
// it started.
func assemble(ctx context.Context, cfg *config.Config, s surroundings) (_ *parts, err error) {
	p := &parts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	p.store, err = store.Open(ctx, cfg.State, store.Options{Report: func(err error) {
		if err != nil {
			s.log.Error("audit entries cannot be written; every call is denied until they can", "reason", err.Error())
			return
		}
		s.log.Info("audit entries can be written again")
	}, Warn: func(text string) { s.log.Warn(text) }})
	if err != nil {
		return nil, err
	}
	p.desk, err = person.New(person.Config{
		Store: p.store, Notify: s.notify, Mask: redact.Secrets,
		Timeout: cfg.Approvals.HumanTimeout.Std(), Hold: cfg.Approvals.Hold.Std(),
	})
	if err != nil {
		return nil, err
	}
	if err := p.desk.Recall(ctx); err != nil {
		return nil, err
	}
	if p.gate, err = buildGate(cfg, s, p.desk, p.store); err != nil {
		return nil, err
	}
	if p.data, p.transport, err = buildProxy(ctx, cfg, s, p); err != nil {
		return nil, err
	}
	p.control = console.New(console.Config{Desk: p.desk, TokenHash: s.tokenHash, Hosts: s.hosts})
	return p, nil
}

// Close ends every wait, writes what the audit log still has to get and closes
// the state. The error says what was lost.
func (p *parts) Close() error {
	if p.gate != nil {
		p.gate.Close()
	}
	if p.transport != nil {
		p.transport.CloseIdleConnections()
	}
	if p.store != nil {
		return p.store.Close()
	}
	return nil
}

// buildGate makes the gate with the reviewers that the settings name. Without
// a person nobody is there to be asked, and without an audit log only Preview
// and Classify make sense.
func buildGate(cfg *config.Config, s surroundings, desk gate.Reviewer, audit gate.Auditor) (*gate.Gate, error) {
	mode, err := gate.ParseMode(string(cfg.Approvals.Mode))
	if err != nil {
		return nil, err
	}
	unknown, err := gate.ParseVerdict(cfg.UnknownTools)
	if err != nil {
		return nil, err
	}
	c := gate.Config{
		Mode: mode, Detector: buildDetector(cfg, s), Person: desk, Audit: audit,
		UnknownTools: unknown, Breaker: cfg.Denial.Breaker, MaxArgs: int(cfg.Limits.Args), Mask: redact.Secrets, OnDecision: s.heard,
	}
	if mode == gate.Custom {
		h, err := buildHook(cfg.Approvals)
		if err != nil {
			return nil, &exitError{code: exitConfig, err: err}
		}
		c.Hook = h
	}
	return gate.New(c)
}

// heard hears of every decision. What failed on callgate's side goes to the
// log, for neither the agent nor its model is told more than that it did.
func (s surroundings) heard(r *gate.Request, d gate.Decision) {
	if d.Detail != "" && d.Outcome != gate.Cancelled {
		s.log.Warn("a call was not let through because something failed", "outcome", string(d.Outcome), "by", d.By,
			"detail", d.Detail, "approval", d.Approval, "turn", r.Turn)
	}
	if s.decided != nil {
		s.decided(r, d)
	}
}

// buildHook makes the reviewer of mode custom. Its error is a config.Fault: the
// settings name a command that cannot be run.
func buildHook(a config.Approvals) (*hook.Hook, error) {
	h, err := hook.New(hook.Config{Command: a.Hook, Timeout: a.Timeout.Std(), Context: a.Context})
	if err != nil {
		return nil, config.Fault{Key: "approvals.hook", Reason: strings.TrimPrefix(err.Error(), "hook: ")}
	}
	return h, nil
}

// buildDetector makes the detector for the world that the settings describe.
func buildDetector(cfg *config.Config, s surroundings) *detect.Detector {
	return detect.New(detect.World{
		Home: cfg.World.Home, Dir: cfg.World.Cwd, Workspace: cfg.World.Workspace, User: cfg.World.User,
		Own: ownThings(cfg, s),
	})
}

// ownThings names what an agent's commands must leave alone because it is
// callgate's this time: its files, and the listener on which people answer.
func ownThings(cfg *config.Config, s surroundings) []string {
	var own []string
	for _, f := range []string{cfg.State, cfg.CA.Dir, s.configFile} {
		if abs, err := filepath.Abs(f); err == nil && f != "" {
			own = append(own, abs)
		}
	}
	for _, at := range append([]string{cfg.Control.Listen}, s.hosts...) {
		host, port, err := net.SplitHostPort(at)
		if err != nil || port == "0" {
			continue
		}
		for _, h := range []string{host, "127.0.0.1", "localhost", "::1"} {
			if h != "" {
				own = append(own, net.JoinHostPort(h, port))
			}
		}
	}
	return own
}

// buildProxy makes the handler of the data listener and its transport.
func buildProxy(ctx context.Context, cfg *config.Config, s surroundings, p *parts) (*proxy.Proxy, *http.Transport, error) {
	tools, err := catalog.New()
	if err != nil {
		return nil, nil, err
	}
	key, err := p.store.Secret(ctx, "principal")
	if err != nil {
		return nil, nil, err
	}
	ups, err := upstreams(cfg)
	if err != nil {
		return nil, nil, err
	}
	agents := s.agents
	if agents == nil {
		if agents, err = buildAgents(cfg); err != nil {
			return nil, nil, err
		}
	}
	transport := egress.New(egress.Options{Own: s.own, AllowPrivate: proxy.PrivateHosts(ups)})
	lim := inspect.Limits{
		Frame: int(cfg.Limits.Frame), Answer: int(cfg.Limits.Answer), Held: int(cfg.Limits.Held),
		Args: int(cfg.Limits.Args), Calls: cfg.Limits.Calls, Depth: cfg.Limits.Depth,
	}
	book, err := repair.Open(ctx, p.store, repair.Options{Report: func(err error) {
		s.log.Warn("the book of repairs", "reason", err.Error())
	}})
	if err != nil {
		return nil, nil, err
	}
	denial := inspect.DenialText
	if cfg.Denial.Mode == "resume" {
		denial = inspect.DenialRepair
	}
	unknown := proxy.Sniff
	if cfg.UnknownEndpoints == "refuse" {
		unknown = proxy.Refuse
	}
	return &proxy.Proxy{
		Upstreams: ups,
		Defaults:  cfg.DefaultUpstreams.ByDialect(),
		Agents:    agents,
		Dialects: []inspect.Dialect{
			openaichat.Dialect{Limits: lim, Denial: denial}, anthropic.Dialect{Limits: lim, Denial: denial},
			ollama.Dialect{Limits: lim, Denial: denial}, gemini.Dialect{Limits: lim, Denial: denial}, responses.Dialect{Limits: lim, Denial: denial},
		},
		Actions:   tools.Actions,
		Gate:      p.gate,
		Transport: transport,
		Principal: proxy.PrincipalKey(key),
		Denial:    proxy.Denial{Error: cfg.Denial.Mode == "error", MaxResumes: cfg.Denial.MaxResumes, Breaker: cfg.Denial.Breaker},
		Repairs:   book,
		Unknown:   unknown,
		Limits: proxy.Limits{
			RequestBody: int64(cfg.Limits.RequestBody), Memory: int64(cfg.Limits.Memory),
			Answer: int64(cfg.Limits.Answer), Held: int64(cfg.Limits.Held),
			HeaderTimeout: cfg.Limits.HeaderTimeout.Std(), IdleTimeout: cfg.Limits.IdleTimeout.Std(),
			WriteTimeout: cfg.Limits.WriteTimeout.Std(),
		},
		Audit:     p.store,
		Log:       s.log,
		Telemetry: telemetry.New(s.tracer),
	}, transport, nil
}

// upstreams gives the providers by name.
func upstreams(cfg *config.Config) (map[string]*proxy.Upstream, error) {
	ups := make(map[string]*proxy.Upstream, len(cfg.Upstreams))
	for name, u := range cfg.Upstreams {
		at, err := url.Parse(u.URL)
		if err != nil {
			return nil, fmt.Errorf("upstreams.%s: %w", name, err)
		}
		cred, err := credential(u)
		if err != nil {
			return nil, fmt.Errorf("upstreams.%s: %w", name, err)
		}
		ups[name] = &proxy.Upstream{Name: name, URL: at, AllowPrivate: u.AllowPrivate, Timeout: u.Timeout.Std(), Credential: cred}
	}
	return ups, nil
}

// toldOf passes on the end of every question, and those decisions of the hook
// that the settings want people to be told of.
func toldOf(a config.Approvals, tell func(*gate.Request, gate.Decision)) func(*gate.Request, gate.Decision) {
	return func(r *gate.Request, d gate.Decision) {
		byHook := a.OnDenyNotifyGateway
		if d.Verdict == gate.Allow {
			byHook = a.OnApproveNotifyGateway
		}
		if d.Approval != "" || byHook && d.By == "hook" {
			tell(r, d)
		}
	}
}
