// Package config holds callgate's settings as plain data: what they are, what
// they are when nobody sets them, how a file, the environment and flags are
// laid over each other, and where each value came from. It knows nothing of
// what the settings do to the parts of callgate; the command builds those.
//
// A setting that is wrong is an error with its place, the reason and the
// remedy; nothing is guessed and nothing unknown is passed over.
package config

import (
	"maps"
	"time"
)

// Config is every setting. The yaml tag is the key in the file, the env tag
// the environment variable of the same setting;
// docs/configuration.md is the reference for people.
type Config struct {
	// Listen is the address that agents speak to, HOST:PORT.
	Listen  string  `yaml:"listen" env:"CALLGATE_LISTEN"`
	Control Control `yaml:"control"`
	// State is the directory that keeps approvals, audit log and keys.
	State string `yaml:"state" env:"CALLGATE_STATE"`
	// Upstreams are the providers that may be reached, by name. Nothing else
	// is ever forwarded to.
	Upstreams        Upstreams        `yaml:"upstreams" env:"CALLGATE_UPSTREAMS"`
	DefaultUpstreams DefaultUpstreams `yaml:"default_upstreams"`
	// Agents are the clients that are told apart by token or listener, by name.
	Agents    Agents    `yaml:"agents"`
	Forward   Forward   `yaml:"forward"`
	CA        CA        `yaml:"ca"`
	Approvals Approvals `yaml:"approvals"`
	Denial    Denial    `yaml:"denial"`
	// UnknownEndpoints says what is done with a path of an upstream that is
	// in no list: "sniff" its answer for calls, or "refuse" the request.
	UnknownEndpoints string `yaml:"unknown_endpoints" env:"CALLGATE_UNKNOWN_ENDPOINTS"`
	// UnknownTools says what is done with a call to a tool of which only the
	// name is known: "allow", "ask" or "deny".
	UnknownTools string `yaml:"unknown_tools" env:"CALLGATE_UNKNOWN_TOOLS"`
	World        World  `yaml:"world"`
	Limits       Limits `yaml:"limits"`
	Log          Log    `yaml:"log"`
}

// Control is the listener on which people answer questions.
type Control struct {
	Listen string `yaml:"listen" env:"CALLGATE_CONTROL_LISTEN"`
	// Token is the bearer token of that listener, and TokenSHA256 the hex
	// SHA-256 of it for those who want no secret in a file. At most one of
	// the two is set.
	Token       string `yaml:"token" env:"CALLGATE_CONTROL_TOKEN" secret:"true"`
	TokenSHA256 string `yaml:"token_sha256" env:"CALLGATE_CONTROL_TOKEN_SHA256"`
}

// Upstream is one provider.
type Upstream struct {
	// URL is the base that request paths are joined to.
	URL string `yaml:"url"`
	// AllowPrivate lets the name resolve to loopback and private addresses.
	AllowPrivate bool `yaml:"allow_private"`
	// Insecure lets http:// be spoken to a host that is not on this machine
	// or a literal private address.
	Insecure bool `yaml:"insecure"`
	// Timeout is how long the response's headers may take, 0 for
	// Limits.HeaderTimeout.
	Timeout Duration `yaml:"timeout"`
	// Credential is what the provider is shown in the place of the client's.
	Credential Credential `yaml:"credential"`
}

// DefaultUpstreams says, for each dialect, which upstream serves a request to
// a bare well-known path such as /v1/messages; "" serves none.
type DefaultUpstreams struct {
	OpenAIChat string `yaml:"openai-chat" env:"CALLGATE_DEFAULT_UPSTREAM_OPENAI_CHAT"`
	Anthropic  string `yaml:"anthropic" env:"CALLGATE_DEFAULT_UPSTREAM_ANTHROPIC"`
}

// ByDialect gives the defaults by the dialect's name, without empty ones.
func (d DefaultUpstreams) ByDialect() map[string]string {
	m := map[string]string{"openai-chat": d.OpenAIChat, "anthropic": d.Anthropic}
	maps.DeleteFunc(m, func(_, name string) bool { return name == "" })
	return m
}

// Forward is the way in by HTTPS_PROXY, on the address of Listen.
type Forward struct {
	// Enabled says whether proxy requests are taken.
	Enabled bool `yaml:"enabled" env:"CALLGATE_FORWARD_ENABLED"`
	// Others says what is done with hosts that are no provider's: "refuse" or
	// "tunnel".
	Others string `yaml:"others" env:"CALLGATE_FORWARD_OTHERS"`
	// Providers says what is done with hosts of providers that no upstream is
	// configured for: "refuse", or "tunnel" where Others is that too. Nothing of
	// what is tunnelled is gated.
	Providers string `yaml:"providers" env:"CALLGATE_FORWARD_PROVIDERS"`
	// Tunnels is how many connections to other hosts there may be at a time.
	Tunnels int `yaml:"tunnels" env:"CALLGATE_FORWARD_TUNNELS"`
	// IdleTimeout is how long nothing may come through a tunnel.
	IdleTimeout Duration `yaml:"idle_timeout" env:"CALLGATE_FORWARD_IDLE_TIMEOUT"`
}

// CA is the certificate authority that clients of Forward trust.
type CA struct {
	// Dir is the directory of its two files, "" for the state directory.
	Dir string `yaml:"dir" env:"CALLGATE_CA_DIR"`
}

// CADir is the directory of the authority's files.
func (c *Config) CADir() string {
	if c.CA.Dir != "" {
		return c.CA.Dir
	}
	return c.State
}

// Mode says who is asked about a dangerous call.
type Mode string

// The modes.
const (
	ModeManual Mode = "manual" // a person
	ModeCustom Mode = "custom" // the hook; what it does not decide goes to a person
	ModeOff    Mode = "off"    // nobody: allowed, but for what nothing overrules
)

// Approvals says who is asked about a dangerous call, and for how long.
type Approvals struct {
	Mode Mode `yaml:"mode" env:"CALLGATE_APPROVALS_MODE"`
	// Hook is the command that decides in mode custom, with its arguments.
	Hook string `yaml:"hook" env:"CALLGATE_APPROVALS_HOOK"`
	// Timeout is how long the hook may take.
	Timeout Duration `yaml:"timeout" env:"CALLGATE_APPROVALS_TIMEOUT"`
	// HumanTimeout is how long a person may take. Where Timeout is set and
	// HumanTimeout is not, mode manual takes Timeout for it.
	HumanTimeout Duration `yaml:"human_timeout" env:"CALLGATE_APPROVALS_HUMAN_TIMEOUT"`
	// Hold is how long the agent's connection is held for a person's answer,
	// 0 for as long as the question is open.
	Hold Duration `yaml:"hold" env:"CALLGATE_APPROVALS_HOLD"`
	// OnDenyNotifyGateway and OnApproveNotifyGateway say whether people are
	// told of a hook's denials and approvals.
	OnDenyNotifyGateway    bool `yaml:"on_deny_notify_gateway" env:"CALLGATE_APPROVALS_ON_DENY_NOTIFY_GATEWAY"`
	OnApproveNotifyGateway bool `yaml:"on_approve_notify_gateway" env:"CALLGATE_APPROVALS_ON_APPROVE_NOTIFY_GATEWAY"`
	// Context is the operator's description of the agent, for whoever judges.
	Context string `yaml:"context" env:"CALLGATE_APPROVALS_CONTEXT"`
	// OnError says what a hook that failed means: "deny".
	OnError string `yaml:"on_error" env:"CALLGATE_APPROVALS_ON_ERROR"`
}

// Denial says what a denied call becomes.
type Denial struct {
	// Mode is "resume": the model reads the refusal as the call's result and
	// goes on; "text": the refusal stands as text in the answer, which ends the
	// agent's turn when no call is left; or "error": the answer becomes an
	// error.
	Mode string `yaml:"mode" env:"CALLGATE_DENIAL_MODE"`
	// MaxResumes is how often the provider is asked again within one answer of
	// mode resume.
	MaxResumes int `yaml:"max_resumes" env:"CALLGATE_DENIAL_MAX_RESUMES"`
	// Breaker is after how many denials since the user last spoke flagged calls
	// of a conversation are denied without anybody being asked; 0 asks always.
	Breaker int `yaml:"breaker" env:"CALLGATE_DENIAL_BREAKER"`
}

// World is where the agent's commands would run: what paths mean.
type World struct {
	// Home is the agent's home directory, "" when it is not known.
	Home string `yaml:"home" env:"CALLGATE_WORLD_HOME"`
	// Cwd is the directory its commands start in, "" when not known.
	Cwd string `yaml:"cwd" env:"CALLGATE_WORLD_CWD"`
	// Workspace is the directory it may change freely, "" for none.
	Workspace string `yaml:"workspace" env:"CALLGATE_WORLD_WORKSPACE"`
	// User is the name of the user it runs as, "" when not known.
	User string `yaml:"user" env:"CALLGATE_WORLD_USER"`
}

// Limits bound what one request may use, and Memory what all together may.
type Limits struct {
	// RequestBody is the largest request body that is read, after decoding.
	RequestBody Size `yaml:"request_body" env:"CALLGATE_LIMITS_REQUEST_BODY"`
	// Memory is how much the bodies of all requests may take together, with
	// answers of unknown endpoints and errors that are searched for calls.
	Memory Size `yaml:"memory" env:"CALLGATE_LIMITS_MEMORY"`
	// Answer is the largest JSON answer, and the largest answer of an unknown
	// endpoint that is searched for calls.
	Answer Size `yaml:"answer" env:"CALLGATE_LIMITS_ANSWER"`
	// Frame is the largest single event of a stream.
	Frame Size `yaml:"frame" env:"CALLGATE_LIMITS_FRAME"`
	// Held is how much of a stream may wait behind an undecided call.
	Held Size `yaml:"held" env:"CALLGATE_LIMITS_HELD"`
	// Args is the largest arguments of one call.
	Args Size `yaml:"args" env:"CALLGATE_LIMITS_ARGS"`
	// Calls is how many calls one answer may hold.
	Calls int `yaml:"calls" env:"CALLGATE_LIMITS_CALLS"`
	// Depth is how deep JSON may nest.
	Depth int `yaml:"depth" env:"CALLGATE_LIMITS_DEPTH"`
	// HeaderTimeout is how long a provider may take to begin its answer.
	HeaderTimeout Duration `yaml:"header_timeout" env:"CALLGATE_LIMITS_HEADER_TIMEOUT"`
	// IdleTimeout is how long a provider may be silent within an answer.
	IdleTimeout Duration `yaml:"idle_timeout" env:"CALLGATE_LIMITS_IDLE_TIMEOUT"`
	// WriteTimeout is how long an agent may take to read what is written.
	WriteTimeout Duration `yaml:"write_timeout" env:"CALLGATE_LIMITS_WRITE_TIMEOUT"`
}

// Log says what serve logs, and how.
type Log struct {
	// Level is "debug", "info", "warn" or "error".
	Level string `yaml:"level" env:"CALLGATE_LOG_LEVEL"`
	// Format is "text" or "json".
	Format string `yaml:"format" env:"CALLGATE_LOG_FORMAT"`
}

// Default returns the settings as they are when nobody sets any. State, the
// home directory and the user are empty: Load takes them from the environment.
func Default() Config {
	return Config{
		Listen:  "127.0.0.1:4141",
		Control: Control{Listen: "127.0.0.1:4142"},
		Upstreams: Upstreams{
			"openai":    {URL: "https://api.openai.com"},
			"anthropic": {URL: "https://api.anthropic.com"},
			"gemini":    {URL: "https://generativelanguage.googleapis.com"},
		},
		DefaultUpstreams: DefaultUpstreams{OpenAIChat: "openai", Anthropic: "anthropic"},
		Forward: Forward{
			Enabled: true, Others: "refuse", Providers: "refuse",
			Tunnels: 1024, IdleTimeout: Duration(10 * time.Minute),
		},
		Approvals: Approvals{
			Mode:                ModeManual,
			Timeout:             Duration(30 * time.Second),
			HumanTimeout:        Duration(300 * time.Second),
			OnDenyNotifyGateway: true,
			OnError:             "deny",
		},
		Denial:           Denial{Mode: "resume", MaxResumes: 5, Breaker: 3},
		UnknownEndpoints: "sniff",
		UnknownTools:     "allow",
		Limits: Limits{
			RequestBody:   64 << 20,
			Memory:        512 << 20,
			Answer:        32 << 20,
			Frame:         16 << 20,
			Held:          32 << 20,
			Args:          1 << 20,
			Calls:         1000,
			Depth:         200,
			HeaderTimeout: Duration(10 * time.Minute),
			IdleTimeout:   Duration(5 * time.Minute),
			WriteTimeout:  Duration(time.Minute),
		},
		Log: Log{Level: "info", Format: "text"},
	}
}
