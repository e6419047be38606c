package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"callgate/config"
	"callgate/proxy"
	"callgate/proxy/mitm"
)

// launch is what is prepared for one agent before it is started.
type launch struct {
	cfg *config.Config
	src config.Sources
	// base is callgate's address for agents: http://127.0.0.1:PORT.
	base string
	// dir is a private directory for files of the agent; "" writes none, and
	// the files are only named.
	dir    string
	getenv func(string) string

	program string
	// args are the agent's arguments, and at is where its own begin: behind
	// the name of the agent where something like npx starts it.
	args []string
	at   int
	// known says that there is a recipe for the agent.
	known bool
	// adopted are the default upstreams whose base URL came from the user's
	// environment without a version, by API.
	adopted map[string]bool

	sets []setting
	gone []string
	// mine are variables, NAME=VALUE, of processes that are started for this
	// agent alone and must not outlive it.
	mine  []string
	files []launchFile
	notes []string
}

// unmade stands for the private directory where none is made.
const unmade = "PRIVATE"

// launchFile is a file or link that is made for the agent.
type launchFile struct {
	Path string `json:"path"`
	What string `json:"what"`
}

// ungated is the error of an agent of whose calls callgate would see nothing.
type ungated struct{ reason string }

func (u ungated) Error() string { return u.reason }

func (l *launch) set(name, value, why string) {
	l.sets = slices.DeleteFunc(l.sets, func(s setting) bool { return s.Name == name })
	l.sets = append(l.sets, setting{name, value, why})
}

func (l *launch) unset(name string) { l.gone = append(l.gone, name) }

func (l *launch) note(format string, args ...any) {
	l.notes = append(l.notes, fmt.Sprintf(format, args...))
}

// insert puts arguments where the agent's own begin.
func (l *launch) insert(args ...string) { l.args = slices.Insert(l.args, l.at, args...) }

// has says that one of the agent's arguments is that flag.
func (l *launch) has(flag string) bool {
	return slices.ContainsFunc(l.args[l.at:], func(a string) bool { return a == flag || strings.HasPrefix(a, flag+"=") })
}

// home is the user's home directory, "" when not known. Agents look it up in
// the system's list of users where HOME is not set.
func (l *launch) home() string {
	if home := l.getenv("HOME"); home != "" {
		return home
	}
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// adopt makes a provider that the user's environment names callgate's
// upstream, where nobody named one for callgate itself: the agent must reach
// the provider that its key is for.
func (l *launch) adopt() error {
	l.adopted = map[string]bool{}
	byAPI := l.cfg.DefaultUpstreams.ByDialect()
	done := map[string]string{}
	for _, v := range baseVariables {
		name, raw := byAPI[v.api], l.getenv(v.name)
		if name == "" || raw == "" || l.src.Of("upstreams."+name).Kind != "default" {
			continue
		}
		u, err := providerURL(raw)
		if err != nil {
			return failf(exitConfig, "%s %w; correct or unset it", v.name, err)
		}
		u.Path = strings.TrimSuffix(u.Path, "/v1")
		u.RawPath = ""
		if first := done[v.api]; first != "" {
			if l.cfg.Upstreams[name].URL != u.String() {
				l.note("%s names another provider than %s, which counts; --upstream %s=URL chooses", v.name, first, name)
			}
			continue
		}
		done[v.api] = v.name
		if l.cfg.Upstreams[name].URL == u.String() {
			continue
		}
		l.cfg.Upstreams[name] = upstreamOf(u)
		l.adopted[v.api] = v.path != "" && pathOf(raw) == ""
		l.note("upstream %s is %s, from %s", name, u.Redacted(), v.name)
	}
	return nil
}

// variables sets those that every agent gets.
func (l *launch) variables() {
	byAPI := l.cfg.DefaultUpstreams.ByDialect()
	for _, v := range baseVariables {
		name := byAPI[v.api]
		switch {
		case name == "":
			// A program that reads it would otherwise go past callgate.
			if l.getenv(v.name) != "" {
				l.unset(v.name)
			}
		case l.adopted[v.api]:
			l.set(v.name, l.base+"/"+name, v.readers)
		default:
			l.set(v.name, l.base+v.path, v.readers)
		}
	}
	// A server's own setting has the same name, so that it is left alone where
	// nobody named the upstream.
	if _, there := l.cfg.Upstreams[proxy.Ollama]; there {
		l.set("OLLAMA_HOST", l.base+"/"+proxy.Ollama, "Ollama's clients")
	}
	for _, s := range noProxySettings(l.getenv) {
		l.set(s.Name, s.Value, s.For)
	}
}

// route gives the base URL under which the agent reaches the provider that it
// knows by that name and, where the user set one, URL. A provider that was
// named for callgate wins over what the agent's own settings say.
func (l *launch) route(name, raw string) (string, error) {
	name = upstreamName(name)
	explicit := l.src.Of("upstreams."+name).Kind != "default"
	up, there := l.cfg.Upstreams[name]
	if there && (explicit || raw == "") {
		return l.base + "/" + name + pathOf(firstOf(raw, up.URL)), nil
	}
	u, err := providerURL(raw)
	if err != nil {
		return "", fmt.Errorf("the base URL of %s %w", name, err)
	}
	for i := 2; there && !sameProvider(up.URL, u); i++ {
		next := name + "-" + strconv.Itoa(i)
		up, there = l.cfg.Upstreams[next]
		if !there || sameProvider(up.URL, u) {
			name = next
			break
		}
	}
	if !there {
		l.cfg.Upstreams[name] = upstreamOf(u)
	}
	return l.base + "/" + name + pathOf(raw), nil
}

// sameProvider says that an upstream leads to that URL; a version at its end
// makes no difference, as callgate's routes take it either way.
func sameProvider(upstream string, u *url.URL) bool {
	trim := func(s string) string { return strings.TrimSuffix(strings.TrimRight(s, "/"), "/v1") }
	return trim(upstream) == trim(u.String())
}

// upstreamName makes a name for an upstream of what an agent calls a provider.
func upstreamName(s string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '-':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
	clean = strings.Trim(clean, "-")
	switch clean {
	// Names that callgate's routes or its own answers use.
	case "", "v1", "v1beta", "api", "model", "chat", "completions", "responses", "models", "embeddings",
		"moderations", "images", "audio", "messages":
		return "provider-" + clean
	}
	return clean
}

// write makes a private file for the agent and gives its path.
func (l *launch) write(name string, data []byte, what string) (string, error) {
	path, err := l.place(name, what)
	if err != nil || l.dir == "" {
		return path, err
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", fmt.Errorf("a file for the agent: %w", err)
	}
	return path, nil
}

// place records a file for the agent and makes the directory for it.
func (l *launch) place(name, what string) (string, error) {
	path := filepath.Join(firstOf(l.dir, unmade), name)
	l.files = append(l.files, launchFile{path, what})
	if l.dir == "" {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("a directory for the agent: %w", err)
	}
	return path, nil
}

// overlay makes a private directory that looks like the user's own but for the
// files in own: everything else is linked, so that the agent goes on writing
// sessions and logins where it always did. linked are names that are linked
// though they are not there yet.
func (l *launch) overlay(name, user string, own map[string][]byte, linked ...string) (string, error) {
	for _, file := range slices.Sorted(maps.Keys(own)) {
		if _, err := l.write(filepath.Join(name, file), own[file], "made of "+filepath.Join(user, file)); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(firstOf(l.dir, unmade), name)
	entries, err := os.ReadDir(user)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the agent's own directory: %w", err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
	}
	if err == nil { // else a link would lead nowhere
		for _, n := range linked {
			names[n] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(names)) {
		if _, mine := own[n]; mine || l.dir == "" {
			continue
		}
		target, err := filepath.Abs(filepath.Join(user, n))
		if err == nil {
			err = os.Symlink(target, filepath.Join(dir, n))
		}
		if err != nil {
			return "", fmt.Errorf("a link for the agent: %w", err)
		}
	}
	return dir, nil
}

// forward sends what knows no base URL to callgate by the proxy variables. A
// proxy of the user's own stays: callgate does not hand tunnels on to another.
func (l *launch) forward() error {
	if !forwardProxy || !l.cfg.Forward.Enabled {
		return nil
	}
	if name := anySet(l.getenv, proxyNames); name != "" {
		l.note("%s is set and stays; what ignores base URLs is not gated", name)
		return nil
	}
	f := forwarding{proxy: l.base, ca: filepath.Join(l.cfg.CADir(), mitm.CertFile), dir: l.dir, roots: systemRoots}
	list, err := f.settings(l.getenv)
	if err != nil {
		return failf(exitConfig, "%w", err)
	}
	for _, s := range list {
		// Node warns of it on standard error, in every program that the agent
		// starts; the agents that are known read the proxy variables without.
		if s.Name == nodeUsesProxy && l.known {
			continue
		}
		l.set(s.Name, s.Value, s.For)
	}
	return nil
}
