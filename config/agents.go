package config

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// DefaultAgent is the agent of requests that show no token on the main
// listener. It is the only one where no agents are configured.
const DefaultAgent = "default"

// Agents are the clients that are told apart, by name.
type Agents map[string]Agent

// Agent is one of them.
type Agent struct {
	// Token proves that a client is this agent, and TokenSHA256 is the hex
	// SHA-256 of it for those who want no secret in a file. At most one of the
	// two is set.
	Token       string `yaml:"token" secret:"true"`
	TokenSHA256 string `yaml:"token_sha256"`
	// Listen is an address of its own, HOST:PORT: whoever comes there is this
	// agent.
	Listen string `yaml:"listen"`
	// Upstreams are those it may use; nil is all.
	Upstreams Names `yaml:"upstreams"`
}

// Names gives the names in order.
func (a Agents) Names() []string { return slices.Sorted(maps.Keys(a)) }

// May says that the agent may use an upstream.
func (a Agent) May(upstream string) bool {
	return a.Upstreams == nil || slices.Contains(a.Upstreams, upstream)
}

// TokenHash is the SHA-256 of its token; ok is false when it has none, or a
// text that is no hash.
func (a Agent) TokenHash() (sum [sha256.Size]byte, ok bool) {
	if a.Token != "" {
		return sha256.Sum256([]byte(a.Token)), true
	}
	b, err := hex.DecodeString(a.TokenSHA256)
	if err != nil || len(b) != len(sum) {
		return sum, false
	}
	return [sha256.Size]byte(b), true
}

// Names is a list of names. As one text they stand with commas between them.
type Names []string

// MarshalText gives the list in one line.
func (n Names) MarshalText() ([]byte, error) { return []byte(strings.Join(n, ", ")), nil }

// Credential is what callgate shows a provider in the place of what the client
// sent. One of its forms is set, or none.
type Credential struct {
	// Header and Value name a header and what stands in it.
	Header string `yaml:"header"`
	Value  string `yaml:"value" secret:"true"`
	// Bearer stands for Authorization: Bearer, XAPIKey for X-Api-Key.
	Bearer  string `yaml:"bearer" secret:"true"`
	XAPIKey string `yaml:"x_api_key" secret:"true"`
}

// Set says that there is one.
func (c Credential) Set() bool { return c != Credential{} }

// HeaderValue gives the header and what stands in it; both are empty where no
// credential is set.
func (c Credential) HeaderValue() (name, value string) {
	switch {
	case c.Bearer != "":
		return "Authorization", "Bearer " + c.Bearer
	case c.XAPIKey != "":
		return "X-Api-Key", c.XAPIKey
	}
	return c.Header, c.Value
}
