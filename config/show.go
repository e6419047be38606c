package config

import (
	_ "embed"
	"reflect"
)

// Sample is a commented configuration file with every setting.
//
//go:embed sample.yaml
var Sample string

// Setting is one effective setting, for people.
type Setting struct {
	Key string `json:"key"`
	// Value is in the form that a file takes; a secret is masked.
	Value  string `json:"value"`
	Source Source `json:"source"`
	// Env is the environment variable that sets it, "" when none does.
	Env string `json:"env,omitempty"`
}

// masked stands in the place of a secret.
const masked = "[hidden]"

// Settings lists the settings in force and where each comes from, in the order
// of the sample.
func Settings(c *Config, src Sources) []Setting {
	var out []Setting
	for _, l := range leaves(c) {
		if ups, ok := l.v.Interface().(Upstreams); ok {
			out = append(out, upstreamSettings(ups, src, l.env)...)
			continue
		}
		if agents, ok := l.v.Interface().(Agents); ok {
			out = append(out, agentSettings(agents, src)...)
			continue
		}
		out = append(out, l.setting(src))
	}
	return out
}

func (l leaf) setting(src Sources) Setting {
	s := Setting{Key: l.path, Value: getText(l.v), Source: src.Of(l.path), Env: l.env}
	if l.secret && s.Value != "" {
		s.Value = masked
	}
	return s
}

// upstreamSettings lists the settings of each upstream; of those that are not
// the URL only what somebody set.
func upstreamSettings(ups Upstreams, src Sources, env string) []Setting {
	var out []Setting
	for _, name := range ups.Names() {
		up := ups[name]
		for i, l := range appendLeaves(nil, "upstreams."+name+".", reflect.ValueOf(&up).Elem()) {
			if i > 0 && l.v.IsZero() {
				continue
			}
			l.env = env
			out = append(out, l.setting(src))
		}
	}
	return out
}

// agentSettings lists what is set of each agent, or the agent alone where
// nothing is.
func agentSettings(agents Agents, src Sources) []Setting {
	var out []Setting
	for _, name := range agents.Names() {
		a, any := agents[name], false
		for _, l := range appendLeaves(nil, "agents."+name+".", reflect.ValueOf(&a).Elem()) {
			if !l.v.IsZero() {
				out, any = append(out, l.setting(src)), true
			}
		}
		if !any {
			out = append(out, Setting{Key: "agents." + name, Source: src.Of("agents." + name)})
		}
	}
	return out
}
