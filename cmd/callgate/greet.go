package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"callgate/config"
	"callgate/gate"
	"callgate/proxy"
	"callgate/proxy/mitm"
)

// greeting is what serve says once it serves.
type greeting struct {
	base, control string
	token         string // the token that was made, "" when the operator has one
	traces, file  string
	own           map[string]string // base URLs of agents' own, by agent
}

// pointer says how an agent is pointed at callgate.
type pointer struct{ agent, how string }

// pointers tells for known agents, and for each further upstream, where they
// have to point.
func pointers(base string, cfg *config.Config) []pointer {
	var list []pointer
	if cfg.DefaultUpstreams.Anthropic != "" {
		list = append(list,
			pointer{"Claude Code", "ANTHROPIC_BASE_URL=" + base + " claude"},
			pointer{"Anthropic SDKs", "ANTHROPIC_BASE_URL=" + base})
	}
	if cfg.DefaultUpstreams.OpenAIChat != "" {
		list = append(list,
			pointer{"OpenAI SDKs, qwen", "OPENAI_BASE_URL=" + base + "/v1"},
			pointer{"Copilot CLI", "COPILOT_PROVIDER_BASE_URL=" + base + "/v1"},
			pointer{"opencode, pi, cline", base + "/v1 as base URL"})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Upstreams)) {
		if name != cfg.DefaultUpstreams.Anthropic && name != cfg.DefaultUpstreams.OpenAIChat {
			how := base + "/" + name
			switch name {
			case proxy.Ollama:
				how = "OLLAMA_HOST=" + how
			case proxy.Gemini:
				how = "GOOGLE_GEMINI_BASE_URL=" + how
			}
			list = append(list, pointer{"upstream " + name, how})
		}
	}
	return list
}

// openDefaults names each setting under which something is let through that
// could be stopped, so that nobody finds out by surprise.
func openDefaults(cfg *config.Config) []string {
	var list []string
	if cfg.Approvals.Mode == config.ModeOff {
		list = append(list, "approvals.mode off: dangerous calls run, only the hardline holds")
	}
	if cfg.UnknownTools == "allow" {
		list = append(list, "unknown_tools allow: tools that nothing is known of run unasked")
	}
	if cfg.Forward.Enabled && cfg.Forward.Others == "tunnel" {
		open := "forward.others tunnel: hosts that are no provider's are reached through the proxy, ungated"
		if cfg.Forward.Providers == "tunnel" {
			open = "forward.providers tunnel: providers without an upstream are reached through the proxy, ungated"
		}
		list = append(list, open)
	}
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && !loopback(host) {
		list = append(list, "listen "+cfg.Listen+": other machines can reach it")
	}
	for _, name := range cfg.Agents.Names() {
		if host, _, err := net.SplitHostPort(cfg.Agents[name].Listen); err == nil && !loopback(host) {
			list = append(list, "agents."+name+".listen "+cfg.Agents[name].Listen+": whoever reaches it, from other machines too, is "+name)
		}
	}
	if _, ok := cfg.Agents[config.DefaultAgent]; ok {
		list = append(list, "agents.default: requests without a token are taken")
	}
	return list
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// greet prints where callgate serves, how agents get there and how questions
// are answered.
func greet(ctx context.Context, p *people, cfg *config.Config, parts *parts, g greeting) error {
	open, err := parts.desk.Approvals(ctx, gate.StatePending, 100)
	if err != nil {
		return err
	}
	if p.json {
		return p.out.tell(ctx, jsonLine(struct {
			Event   string       `json:"event"`
			BaseURL string       `json:"base_url"`
			Control string       `json:"control"`
			Token   string       `json:"token,omitempty"`
			Mode    string       `json:"mode"`
			State   string       `json:"state"`
			Traces  string       `json:"traces,omitempty"`
			Open    []string     `json:"open_defaults,omitempty"`
			Pending int          `json:"pending"`
			Proxy   string       `json:"proxy,omitempty"`
			CA      string       `json:"ca,omitempty"`
			Agents  []agentShown `json:"agents,omitempty"`
		}{"serving", g.base, g.control, g.token, string(cfg.Approvals.Mode), cfg.State, g.traces, openDefaults(cfg), len(open), proxyOf(cfg, g.base), caFile(cfg), showAgents(cfg, g.own)}))
	}
	var b strings.Builder
	s := p.style
	fmt.Fprintf(&b, "%s serves agents at %s\n", s.bold("callgate"), s.bold(g.base))
	fmt.Fprintf(&b, "  approvals   %s\n", modeLine(cfg.Approvals))
	for _, o := range openDefaults(cfg) {
		fmt.Fprintf(&b, "  %s        %s\n", s.yellow("open"), o)
	}
	if g.file != "" {
		fmt.Fprintf(&b, "  settings    %s\n", g.file)
	}
	fmt.Fprintf(&b, "  state       %s\n", cfg.State)
	if g.traces != "" {
		fmt.Fprintf(&b, "  traces      %s\n", g.traces)
	}
	fmt.Fprintln(&b, "\npoint an agent at it:")
	base, through := g.base, g.base
	if !tokenless(cfg) {
		base, through = g.base+"/~TOKEN", strings.Replace(g.base, "://", "://agent:TOKEN@", 1)
	}
	for _, at := range pointers(base, cfg) {
		fmt.Fprintf(&b, "  %-20s %s\n", at.agent, at.how)
	}
	for _, a := range showAgents(cfg, g.own) {
		fmt.Fprintf(&b, "  %-20s %s\n", "agent "+a.Name, a.how())
	}
	if cfg.Forward.Enabled {
		fmt.Fprintln(&b, "\nor make it the agent's proxy; of other hosts "+othersLine(cfg.Forward)+":")
		fmt.Fprintf(&b, "  HTTPS_PROXY=%s\n", through)
		fmt.Fprintf(&b, "  the agent must trust %s: see %s ca trust\n", caFile(cfg), programName())
	}
	fmt.Fprintln(&b, "\nquestions are shown here; answer them from another terminal:")
	if g.token != "" {
		fmt.Fprintf(&b, "  export CALLGATE_CONTROL_TOKEN=%s\n", g.token)
	}
	at := ""
	if g.control != defaultControl {
		at = " --control " + g.control
	}
	fmt.Fprintf(&b, "  %s approvals list%s\n", programName(), at)
	if len(open) > 0 {
		fmt.Fprintf(&b, "\n%d questions from before are still open: see the list\n", len(open))
	}
	fmt.Fprintln(&b)
	return p.out.tell(ctx, []byte(b.String()))
}

// proxyOf is the address of the way in by HTTPS_PROXY, "" when it is closed.
func proxyOf(cfg *config.Config, base string) string {
	if !cfg.Forward.Enabled {
		return ""
	}
	return base
}

// caFile is the certificate that agents who come that way must trust.
func caFile(cfg *config.Config) string {
	if !cfg.Forward.Enabled {
		return ""
	}
	return filepath.Join(cfg.CADir(), mitm.CertFile)
}

// othersLine says what becomes of hosts without an upstream.
func othersLine(f config.Forward) string {
	switch {
	case f.Others != "tunnel":
		return "none is reached"
	case f.Providers == "tunnel":
		return "all are reached, ungated"
	}
	return "all but providers' are reached, ungated"
}

// modeLine says in a few words who decides.
func modeLine(a config.Approvals) string {
	person := fmt.Sprintf("a person, who has %s", a.HumanTimeout)
	switch a.Mode {
	case config.ModeCustom:
		return fmt.Sprintf("custom: %s decides within %s, or escalates to %s", a.Hook, a.Timeout, person)
	case config.ModeOff:
		return "off"
	}
	return "manual: " + person
}
