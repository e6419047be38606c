package main

import (
	"crypto/sha256"
	"slices"
	"strings"

	"callgate/config"
	"callgate/proxy"
)

// ownAgent is the agent of a run: whoever comes to the run's address.
type ownAgent struct {
	name string
	// token takes the place of the provider's keys that callgate holds; "" where
	// it holds none.
	token string
}

// alone takes the agents of the settings away: a run has one of its own, and
// its address is nobody else's.
func alone(cfg *config.Config) error {
	cfg.Agents = nil
	if err := cfg.Validate(); err != nil {
		return configError(err)
	}
	return nil
}

// newOwnAgent names the agent of a run by its recipe, or else by its program.
func newOwnAgent(cfg *config.Config, r *recipe, program string) ownAgent {
	var a ownAgent
	if r != nil {
		a.name = r.name
	} else {
		a.name = strings.Trim(strings.Map(func(c rune) rune {
			switch {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-':
				return c
			case 'A' <= c && c <= 'Z':
				return c + 'a' - 'A'
			}
			return '-'
		}, programWord(program)), "-")
	}
	if !config.ValidName(a.name) || a.name == config.DefaultAgent {
		a.name = "agent"
	}
	for _, up := range cfg.Upstreams {
		if up.Credential.Set() && a.token == "" {
			a.token = newToken()
		}
	}
	return a
}

// agents tells of the run's one agent.
func (a ownAgent) agents() (*proxy.Agents, error) {
	one := proxy.Agent{Name: a.name}
	if a.token != "" {
		sum := sha256.Sum256([]byte(a.token))
		one.Token = sum[:]
	}
	return proxy.NewAgents([]proxy.Agent{one})
}

// keyVariables are those by which programs learn their key, by the API that it
// is for.
var keyVariables = []struct{ name, api string }{
	{"OPENAI_API_KEY", "openai-chat"},
	{"ANTHROPIC_API_KEY", "anthropic"},
}

// held keeps the provider's keys that callgate holds from the agent, and gives
// it the run's token in their place: programs do not start without any key.
func (l *launch) held(environ []string, own ownAgent) {
	var secrets []string
	byAPI := l.cfg.DefaultUpstreams.ByDialect()
	for _, name := range l.cfg.Upstreams.Names() {
		if c := l.cfg.Upstreams[name].Credential; c.Set() {
			secrets = append(secrets, c.Value, c.Bearer, c.XAPIKey)
			l.note("the key of upstream %s is callgate's; the agent gets none", name)
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(value, s) }) {
			l.unset(name)
		}
	}
	for _, name := range l.src.SecretVars() {
		l.unset(name)
	}
	for _, v := range keyVariables {
		if !l.cfg.Upstreams[byAPI[v.api]].Credential.Set() {
			continue
		}
		name := v.name
		if name == "ANTHROPIC_API_KEY" && own.name == "claude" {
			// It asks about each new key that it finds there.
			l.unset(name)
			name = "ANTHROPIC_AUTH_TOKEN"
		}
		l.set(name, own.token, "in the place of the key that callgate holds")
	}
}
