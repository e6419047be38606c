package config

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// minAgentToken is the length from which on letters and digits can hold 128
// bits.
const minAgentToken = 22

const makeToken = "make one with callgate agents token"

func (v *validator) agents(c *Config) {
	taken := map[[sha256.Size]byte]string{}
	if sum, ok := (Agent{Token: c.Control.Token, TokenSHA256: c.Control.TokenSHA256}).TokenHash(); ok {
		taken[sum] = "control.token"
	}
	listens := map[string]string{"listen": c.Listen, "control.listen": c.Control.Listen}
	for _, name := range c.Agents.Names() {
		key, a := "agents."+name, c.Agents[name]
		if !ValidName(name) {
			v.fault(key, "", "is no name for an agent", "use small letters, digits and hyphens")
		}
		v.agentToken(key, a, taken)
		if a.Listen != "" {
			v.agentListen(key+".listen", a.Listen, listens)
		}
		v.agentUpstreams(key+".upstreams", a, c)
		proved := a.Token != "" || a.TokenSHA256 != "" || a.Listen != ""
		switch sound := v.sound(key+".token", key+".token_sha256", key+".listen") && !v.broken.within(key); {
		case name == DefaultAgent && proved:
			v.fault(key, "", "is the agent of requests without a token at listen, and has a token or an address of its own", "remove these, or use another name")
		case name != DefaultAgent && !proved && sound:
			v.fault(key, "", "has neither token nor listen, so that nobody can be it", makeToken)
		}
	}
	v.defaultAgent(c)
}

// defaultAgent checks that an agent gains nothing by leaving its token out.
func (v *validator) defaultAgent(c *Config) {
	d, ok := c.Agents[DefaultAgent]
	limits := func(name string) bool { return v.sound("agents."+name, "agents."+name+".upstreams") }
	if !ok || !v.sound("upstreams") || v.broken.within("upstreams") || !limits(DefaultAgent) {
		return
	}
	all := c.Upstreams.Names()
	for _, name := range c.Agents.Names() {
		a := c.Agents[name]
		more := slices.DeleteFunc(slices.Clone(all), func(up string) bool { return a.May(up) || !d.May(up) })
		if len(more) == 0 || !limits(name) {
			continue
		}
		v.fault("agents."+DefaultAgent, "", "may use "+strings.Join(more, ", ")+", which agents."+name+" may not: it would gain them by leaving out its token",
			"limit agents."+DefaultAgent+".upstreams to what every agent may use, or remove agents."+DefaultAgent)
		return
	}
}

func (v *validator) agentToken(key string, a Agent, taken map[[sha256.Size]byte]string) {
	other := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~", r))
	}
	token, hash := key+".token", key+".token_sha256"
	if a.Token != "" && a.TokenSHA256 != "" {
		v.fault(hash, "", "is set beside "+token, "set one of the two")
		return
	}
	switch {
	case a.Token == "":
	case len(a.Token) < minAgentToken:
		v.fault(token, "", "is shorter than "+strconv.Itoa(minAgentToken)+" characters, so that it can be guessed", makeToken)
	case strings.ContainsFunc(a.Token, other):
		v.fault(token, "", "has a character that cannot stand in a path", "use letters, digits and -._~ alone, or "+makeToken)
	}
	if a.TokenSHA256 != "" {
		if b, err := hex.DecodeString(a.TokenSHA256); err != nil || len(b) != sha256.Size {
			v.fault(hash, "", "is not a SHA-256 of 64 hex digits", "use the output of: printf %s TOKEN | sha256sum")
		}
	}
	sum, ok := a.TokenHash()
	if !ok || !v.sound(token, hash) {
		return
	}
	at := token
	if a.Token == "" {
		at = hash
	}
	switch first := taken[sum]; first {
	case "":
		taken[sum] = key
	case "control.token":
		v.fault(at, "", "is the token of the control listener, so that the agent could answer its own questions", "give the agent one of its own: callgate agents token")
	default:
		v.fault(at, "", "is the token of "+first+" too", "give each agent one of its own: callgate agents token")
	}
}

// agentListen checks an address of an agent; taken are the others, by setting.
func (v *validator) agentListen(key, addr string, taken map[string]string) {
	v.address(key, addr)
	if !v.sound(key) {
		return
	}
	for _, other := range slices.Sorted(maps.Keys(taken)) {
		if v.sound(other) && sameListener(addr, taken[other]) {
			v.fault(key, addr, "is the address of "+other+" too", "use another port")
			return
		}
	}
	taken[key] = addr
}

func (v *validator) agentUpstreams(key string, a Agent, c *Config) {
	if a.Upstreams == nil || !v.sound(key) {
		return
	}
	if len(a.Upstreams) == 0 {
		v.fault(key, "", "names none, so that the agent can reach nothing", "name some, or remove the key for all")
		return
	}
	known := v.sound("upstreams") && !v.broken.within("upstreams")
	for i, name := range a.Upstreams {
		_, ok := c.Upstreams[name]
		switch {
		case !ok && known:
			v.fault(key, name, "is not an upstream", "name some of "+strings.Join(c.Upstreams.Names(), ", "))
		case slices.Contains(a.Upstreams[:i], name):
			v.fault(key, name, "stands there twice", "leave it out once")
		}
	}
}

// reservedHeaders are those that a credential cannot be in: they mean something to
// the way of the request, or are set by callgate.
var reservedHeaders = []string{
	"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "te", "trailer", "upgrade",
	"expect", "accept", "accept-encoding", "user-agent", "traceparent", "tracestate", "keep-alive", "proxy-connection",
	"proxy-authorization", "proxy-authenticate", "http2-settings", "range", "if-range",
}

// credential checks what callgate shows an upstream by itself.
func (v *validator) credential(name string, up Upstream, c *Config) {
	key, cred := "upstreams."+name+".credential", up.Credential
	if !cred.Set() || v.broken.at(key) || v.broken.within(key) {
		return
	}
	forms := 0
	for _, set := range []bool{cred.Header != "" || cred.Value != "", cred.Bearer != "", cred.XAPIKey != ""} {
		if set {
			forms++
		}
	}
	const write = "write bearer, x_api_key, or header and value"
	switch {
	case forms > 1:
		v.fault(key, "", "is set in more than one form", write)
	case forms == 1 && (cred.Header == "") != (cred.Value == ""):
		v.fault(key, "", "has a header without a value, or a value without a header", write)
	case cred.Header != "" && (!headerName(cred.Header) || slices.Contains(reservedHeaders, strings.ToLower(cred.Header))):
		v.fault(key+".header", cred.Header, "is no header that a credential stands in", "write one like Authorization or X-Api-Key")
	}
	_, value := cred.HeaderValue()
	switch bad := func(r rune) bool { return r < ' ' || r > '~' }; {
	case strings.ContainsFunc(value, bad) || strings.TrimSpace(value) != value:
		v.fault(key, "", "has a character that cannot stand in a header, or white space around it", "write the secret alone")
	case strings.Contains(value, "cgt_"):
		v.fault(key, "", "is a token of callgate's own", "give the provider's key")
	}
	v.credentialWay(key, name, up, c)
}

func headerName(s string) bool {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-'
	}
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !ok(r) })
}

// credentialWay checks by which way a credential goes, and who could make
// callgate send it.
func (v *validator) credentialWay(key, name string, up Upstream, c *Config) {
	u, err := url.Parse(up.URL)
	if err != nil || !v.sound(key) {
		return
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) && !isPrivate(u.Hostname()) {
		v.fault(key, u.Redacted(), "would be sent in clear text to a host that may be anywhere", "use https, or a private address in the place of the name")
		return
	}
	if agent, ok := c.Agents[DefaultAgent]; (len(c.Agents) == 0 || ok) && agent.May(name) && open(c.Listen) && v.sound("listen") {
		v.fault(key, "", "can be spent by whoever reaches "+c.Listen+", where no token is asked for",
			"name agents with tokens (callgate agents token) and no agents.default, or listen on 127.0.0.1")
		return
	}
	for _, n := range c.Agents.Names() {
		if a := c.Agents[n]; a.Listen != "" && open(a.Listen) && a.May(name) && v.sound("agents."+n+".listen") {
			v.fault(key, "", "can be spent by whoever reaches "+a.Listen+", where agents."+n+" needs no token",
				"let the agent show its token at listen, or listen on 127.0.0.1")
			return
		}
	}
}

// open says that other machines can reach an address.
func open(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && !isLoopback(host)
}
