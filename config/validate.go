package config

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The bounds of what makes sense.
const (
	maxDuration = 365 * 24 * time.Hour
	minToken    = 16
)

// reservedNames cannot name an upstream: they begin bare well-known paths.
var reservedNames = []string{
	"v1", "v1alpha", "v1beta", "v1beta1", "v2", "api", "model", "models", "chat", "completions",
	"responses", "messages", "embeddings", "files", "batches", "health", "healthz", "livez", "readyz", "metrics",
}

// Validate says everything that is wrong with the settings, as Faults.
func (c *Config) Validate() error { return c.faults(&broken{}).orNil() }

// faults says what is wrong, but for what could not be read at all.
func (c *Config) faults(b *broken) Faults {
	v := validator{broken: b}
	v.listeners(c)
	v.upstreams(c)
	v.agents(c)
	for _, name := range c.Upstreams.Names() {
		v.credential(name, c.Upstreams[name], c)
	}
	v.forward(&c.Forward)
	v.approvals(&c.Approvals)
	v.denial(&c.Denial)
	v.choice("unknown_endpoints", c.UnknownEndpoints, "sniff", "refuse")
	v.choice("unknown_tools", c.UnknownTools, "allow", "ask", "deny")
	v.world(&c.World)
	v.limits(&c.Limits)
	v.choice("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.choice("log.format", c.Log.Format, "text", "json")
	return v.out
}

// validator collects faults.
type validator struct {
	broken *broken
	out    Faults
}

// sound says that nothing is wrong with these settings, so that one may be
// compared with another.
func (v *validator) sound(keys ...string) bool {
	wrong := func(f Fault) bool { return slices.Contains(keys, f.Key) }
	return !v.broken.touches(keys...) && !slices.ContainsFunc(v.out, wrong)
}

func (v *validator) fault(key, value, reason, remedy string) {
	if v.broken.at(key) {
		return
	}
	v.out = append(v.out, Fault{Key: key, Value: value, Reason: reason, Remedy: remedy})
}

// notTakenValues are values that the design knows and this version does not.
var notTakenValues = map[string]string{
	"approvals.on_error=escalate": "is not taken by this version, which denies when a hook fails",
}

// choice checks one of a few words.
func (v *validator) choice(key, value string, words ...string) {
	if slices.Contains(words, value) {
		return
	}
	reason, ok := notTakenValues[key+"="+value]
	if !ok {
		reason = "is none of its values"
	}
	v.fault(key, value, reason, "write "+strings.Join(words, " or "))
}

// The bounds of what denials may count to.
const (
	maxResumes = 50
	maxBreaker = 1000
)

func (v *validator) denial(d *Denial) {
	v.choice("denial.mode", d.Mode, "resume", "text", "error")
	if d.MaxResumes < 1 || d.MaxResumes > maxResumes {
		v.fault("denial.max_resumes", strconv.Itoa(d.MaxResumes), "is not from 1 to "+strconv.Itoa(maxResumes), "write 5, or denial.mode: text to ask no provider again")
	}
	if d.Breaker < 0 || d.Breaker > maxBreaker {
		v.fault("denial.breaker", strconv.Itoa(d.Breaker), "is not from 0 to "+strconv.Itoa(maxBreaker), "write 3, or 0 to ask about every flagged call")
	}
}

// maxTunnels is more than the connections that one process may have open
// without special rights.
const maxTunnels = 500_000

func (v *validator) forward(f *Forward) {
	v.choice("forward.others", f.Others, "refuse", "tunnel")
	v.choice("forward.providers", f.Providers, "refuse", "tunnel")
	if v.sound("forward.others", "forward.providers") && f.Providers == "tunnel" && f.Others != "tunnel" {
		v.fault("forward.providers", f.Providers, "is of no effect while forward.others is "+f.Others, "write refuse, or forward.others: tunnel")
	}
	if f.Tunnels < 1 || f.Tunnels > maxTunnels {
		v.fault("forward.tunnels", strconv.Itoa(f.Tunnels), "is not from 1 to "+strconv.Itoa(maxTunnels), "write 1024, or forward.others: refuse for none")
	}
	v.duration("forward.idle_timeout", f.IdleTimeout, Duration(time.Second))
}

func (v *validator) listeners(c *Config) {
	v.address("listen", c.Listen)
	v.address("control.listen", c.Control.Listen)
	if v.sound("listen", "control.listen") && sameListener(c.Listen, c.Control.Listen) {
		v.fault("control.listen", c.Control.Listen, "is the address that agents speak to", "use another port")
	}
	t := c.Control
	if t.Token != "" && t.TokenSHA256 != "" {
		v.fault("control.token_sha256", "", "is set beside control.token", "set one of the two")
	}
	if t.Token != "" && len(t.Token) < minToken {
		v.fault("control.token", "", "is shorter than "+strconv.Itoa(minToken)+" characters", "use a random one, as of: openssl rand -hex 32")
	}
	if strings.ContainsFunc(t.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		v.fault("control.token", "", "has a character that cannot stand in a header", "use letters and digits")
	}
	if t.TokenSHA256 != "" {
		if b, err := hex.DecodeString(t.TokenSHA256); err != nil || len(b) != 32 {
			v.fault("control.token_sha256", "", "is not a SHA-256 of 64 hex digits", "use the output of: printf %s TOKEN | sha256sum")
		}
	}
	open := v.sound("control.listen", "control.token", "control.token_sha256") && t.Token == "" && t.TokenSHA256 == ""
	if host, _, err := net.SplitHostPort(t.Listen); err == nil && !isLoopback(host) && open {
		v.fault("control.listen", t.Listen, "can be reached from other machines and has no token of its own", "set control.token_sha256 or CALLGATE_CONTROL_TOKEN")
	}
}

// address checks HOST:PORT.
func (v *validator) address(key, value string) {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		v.fault(key, value, "is not HOST:PORT", "write it like 127.0.0.1:4141")
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		v.fault(key, value, "has no port from 0 to 65535", "write it like 127.0.0.1:4141")
	}
	if strings.ContainsAny(host, "/@?# ") {
		v.fault(key, value, "has no host name or address", "write it like 127.0.0.1:4141")
	}
}

// sameListener says that two addresses cannot both be listened on, as far as
// that shows. Port 0 is a free one each time.
func sameListener(a, b string) bool {
	ah, ap, err1 := net.SplitHostPort(a)
	bh, bp, err2 := net.SplitHostPort(b)
	if err1 != nil || err2 != nil || ap != bp || ap == "0" {
		return false
	}
	every := func(h string) bool { return h == "" || h == "0.0.0.0" || h == "::" }
	return ah == bh || every(ah) || every(bh) || isLoopback(ah) && isLoopback(bh)
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (v *validator) upstreams(c *Config) {
	for _, name := range c.Upstreams.Names() {
		key := "upstreams." + name
		switch {
		case !ValidName(name):
			v.fault(key, "", "is no name for an upstream", "use small letters, digits and hyphens")
		case slices.Contains(reservedNames, name):
			v.fault(key, "", "would hide the well-known path /"+name, "use another name")
		}
		v.upstream(key, c.Upstreams[name], c)
	}
	byDialect := c.DefaultUpstreams.ByDialect()
	for _, dialect := range slices.Sorted(maps.Keys(byDialect)) {
		name := byDialect[dialect]
		known := v.sound("default_upstreams."+dialect, "upstreams") && !v.broken.within("upstreams")
		if _, ok := c.Upstreams[name]; !ok && known {
			v.fault("default_upstreams."+dialect, name, "is not an upstream", "name one of "+strings.Join(c.Upstreams.Names(), ", "))
		}
	}
}

// ValidName says that a text may name an upstream or an agent.
func ValidName(s string) bool {
	ok := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' }
	return s != "" && len(s) <= 63 && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool { return !ok(r) })
}

func (v *validator) upstream(key string, up Upstream, c *Config) {
	v.duration(key+".timeout", up.Timeout, 0)
	if v.broken.at(key + ".url") {
		return
	}
	if up.URL == "" {
		v.fault(key, "", "has no URL", "write it as NAME: https://HOST or set its url")
		return
	}
	u, err := url.Parse(up.URL)
	if err != nil {
		v.fault(key, "", "is not a URL", "write it like https://HOST/PATH")
		return
	}
	shown := u.Redacted()
	if u.User != nil {
		v.fault(key, shown, "holds a user name or password", "leave them out: the agent's own key is passed on")
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(up.URL, "#") {
		v.fault(key, shown, "holds a query or fragment", "end it after the path")
	}
	if u.Opaque != "" || u.Host == "" || u.Hostname() == "" {
		v.fault(key, shown, "has no host", "write it like https://HOST/PATH")
		return
	}
	if badPath(u.EscapedPath()) {
		v.fault(key, shown, "has a path that is read in more than one way", "leave out empty, . and .. parts and escapes")
	}
	v.scheme(key, shown, u, up)
	v.reachable(key, shown, u, c)
}

// badPath says that a base path has parts that servers resolve differently.
func badPath(p string) bool {
	if strings.ContainsAny(p, "%\\") {
		return true
	}
	parts := strings.Split(strings.Trim(p, "/"), "/")
	return strings.Contains(p, "//") || slices.Contains(parts, ".") || slices.Contains(parts, "..")
}

func (v *validator) scheme(key, shown string, u *url.URL, up Upstream) {
	switch u.Scheme {
	case "https":
	case "http":
		if !up.Insecure && v.sound(key+".insecure") && !isLoopback(u.Hostname()) && !isPrivate(u.Hostname()) {
			v.fault(key, shown, "would send keys in clear text to another machine", "use https, or set insecure: true")
		}
	default:
		v.fault(key, shown, "is neither https nor http", "write it like https://HOST/PATH")
	}
}

func isPrivate(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsPrivate()
}

// reachable refuses addresses that no provider has.
func (v *validator) reachable(key, shown string, u *url.URL, c *Config) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	own := net.JoinHostPort(u.Hostname(), port)
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		ip = ip.Unmap()
		if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
			v.fault(key, shown, "is a link-local, multicast or unspecified address", "name the provider's address")
			return
		}
	}
	if v.sound("listen", "control.listen") && isLoopback(u.Hostname()) && (sameListener(own, c.Listen) || sameListener(own, c.Control.Listen)) {
		v.fault(key, shown, "is an address of callgate itself", "name the provider's address")
	}
}

func (v *validator) approvals(a *Approvals) {
	switch a.Mode {
	case ModeManual, ModeOff:
	case ModeCustom:
		if v.sound("approvals.mode", "approvals.hook") && strings.TrimSpace(a.Hook) == "" {
			v.fault("approvals.hook", "", "is not set, and mode custom asks it", "name a command, or use another mode")
		}
	default:
		v.fault("approvals.mode", string(a.Mode), "is no mode", modeWords)
	}
	if u, err := url.Parse(strings.TrimSpace(a.Hook)); err == nil && (u.Scheme == "https" || u.Scheme == "http") {
		v.fault("approvals.hook", u.Redacted(), "is a URL; this version runs a command", "name a command, such as a script that asks the URL")
	}
	v.duration("approvals.timeout", a.Timeout, Duration(time.Millisecond))
	v.duration("approvals.human_timeout", a.HumanTimeout, Duration(time.Millisecond))
	v.duration("approvals.hold", a.Hold, 0)
	sound := v.sound("approvals.mode", "approvals.timeout", "approvals.human_timeout", "approvals.hold")
	if sound && a.Hold > 0 && a.Hold > a.HumanTimeout {
		v.fault("approvals.hold", a.Hold.String(), "is longer than approvals.human_timeout ("+a.HumanTimeout.String()+")", "make it shorter, or 0 for as long as the question is open")
	}
	v.choice("approvals.on_error", a.OnError, "deny")
}

func (v *validator) duration(key string, d, least Duration) {
	switch {
	case d < least:
		v.fault(key, d.String(), "is too short", "write at least "+least.String())
	case d > Duration(maxDuration):
		v.fault(key, d.String(), "is longer than a year", "write less")
	}
}

func (v *validator) world(w *World) {
	for _, p := range []struct{ key, path string }{
		{"world.home", w.Home}, {"world.cwd", w.Cwd}, {"world.workspace", w.Workspace},
	} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			v.fault(p.key, p.path, "is not an absolute path", "begin it with /")
		}
	}
	if strings.ContainsAny(w.User, "/ \t\n:") {
		v.fault("world.user", w.User, "is no user name", "write the name alone")
	}
}

func (v *validator) limits(l *Limits) {
	for _, s := range []struct {
		key       string
		size      Size
		low, high Size
	}{
		{"limits.request_body", l.RequestBody, 64 << 10, 1 << 30},
		{"limits.memory", l.Memory, 1 << 20, 1 << 40},
		{"limits.answer", l.Answer, 64 << 10, 1 << 30},
		{"limits.frame", l.Frame, 64 << 10, 256 << 20},
		{"limits.held", l.Held, 64 << 10, 1 << 30},
		{"limits.args", l.Args, 1 << 10, 64 << 20},
		{"limits.calls", Size(l.Calls), 1, 10_000},
		{"limits.depth", Size(l.Depth), 10, 1_000},
	} {
		if s.size < s.low || s.size > s.high {
			v.fault(s.key, s.size.String(), "is out of range", fmt.Sprintf("write %v to %v", s.low, s.high))
		}
	}
	// A body as it came, and its unpacked copy while that grows.
	if l.Memory < 3*l.RequestBody && l.Memory >= 1<<20 && l.RequestBody <= 1<<30 {
		v.fault("limits.memory", l.Memory.String(), "is too little for one request of limits.request_body, "+l.RequestBody.String(),
			fmt.Sprintf("write %v or more", 3*l.RequestBody))
	}
	v.duration("limits.header_timeout", l.HeaderTimeout, Duration(time.Second))
	v.duration("limits.idle_timeout", l.IdleTimeout, Duration(time.Second))
	v.duration("limits.write_timeout", l.WriteTimeout, Duration(time.Second))
}
