package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"callgate/config"
	"callgate/proxy"
)

// buildAgents gives what tells the agents of the settings apart, nil where none
// are named.
func buildAgents(cfg *config.Config) (*proxy.Agents, error) {
	if len(cfg.Agents) == 0 {
		return nil, nil
	}
	list := make([]proxy.Agent, 0, len(cfg.Agents))
	for _, name := range cfg.Agents.Names() {
		a := cfg.Agents[name]
		p := proxy.Agent{Name: name, Upstreams: a.Upstreams}
		if sum, ok := a.TokenHash(); ok {
			p.Token = sum[:]
		}
		list = append(list, p)
	}
	return proxy.NewAgents(list)
}

// agentListener is the address of one agent's own.
type agentListener struct {
	*listener
	agent string
}

// listenAgents opens the addresses of agents' own. They are closed again when
// one of them fails.
func listenAgents(cfg *config.Config) (list []agentListener, err error) {
	defer func() {
		if err != nil {
			closeListeners(list)
			list = nil
		}
	}()
	for _, name := range cfg.Agents.Names() {
		if a := cfg.Agents[name]; a.Listen != "" {
			l, err := listen("agents."+name+".listen", a.Listen)
			if err != nil {
				return list, err
			}
			list = append(list, agentListener{l, name})
		}
	}
	return list, nil
}

func closeListeners(list []agentListener) {
	for _, l := range list {
		_ = l.Close() // nothing was served there yet, or the server has closed it
	}
}

// bases are the base URLs of agents' own addresses, by agent.
func bases(list []agentListener) map[string]string {
	m := make(map[string]string, len(list))
	for _, l := range list {
		m[l.agent] = "http://" + reachable(l.Addr())
	}
	return m
}

// agentServer is dataServer for an address of one agent's own.
func agentServer(h http.Handler, agent string, log *slog.Logger) *http.Server {
	srv := dataServer(h, log)
	srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return proxy.WithAgent(ctx, agent) }
	return srv
}

// credential gives what an upstream is shown, nil for nothing of callgate's.
func credential(u config.Upstream) (*proxy.Credential, error) {
	if !u.Credential.Set() {
		return nil, nil
	}
	name, value := u.Credential.HeaderValue()
	if name == "" || value == "" {
		return nil, errors.New("its credential is not complete")
	}
	return &proxy.Credential{Header: name, Value: value}, nil
}
