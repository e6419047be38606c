package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"callgate/config"
)

// variable is one by which programs learn where their provider is.
type variable struct {
	name string
	// api is the wire format behind it, as default_upstreams names it.
	api string
	// path stands behind callgate's address where the program adds no version.
	path string
	// readers are those that look at it, and source says where that stands.
	readers, source string
}

// baseVariables are set for every agent. Two of one API differ in who reads
// them alone.
var baseVariables = []variable{
	{"OPENAI_BASE_URL", "openai-chat", "/v1", "OpenAI SDKs and Agents SDK, Vercel AI SDK, LangChain, qwen-code", "github.com/openai/openai-python"},
	{"OPENAI_API_BASE", "openai-chat", "/v1", "LiteLLM, aider, LangChain, older OpenAI SDKs", "docs.litellm.ai/docs/providers/openai"},
	{"ANTHROPIC_BASE_URL", "anthropic", "", "Anthropic SDKs, Claude Code, LiteLLM", "github.com/anthropics/anthropic-sdk-python"},
	{"ANTHROPIC_API_BASE", "anthropic", "", "LiteLLM, aider", "docs.litellm.ai/docs/providers/anthropic"},
	{"ANTHROPIC_API_URL", "anthropic", "", "LangChain", "python.langchain.com, ChatAnthropic"},
}

// proxyNames are the variables that name a proxy, in both spellings that
// programs read.
var proxyNames = []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"}

// nodeUsesProxy makes fetch of Node look at proxyNames.
const nodeUsesProxy = "NODE_USE_ENV_PROXY"

// noProxyNames say which hosts no proxy is asked for.
var noProxyNames = []string{"NO_PROXY", "no_proxy"}

// loopbackNames are how programs call this machine.
var loopbackNames = []string{"127.0.0.1", "localhost", "::1"}

// setting is a variable of the agent's environment that callgate sets.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// For says who reads it or what it is for.
	For string `json:"for,omitempty"`
}

// noProxy adds loopback to a list of hosts that need no proxy. What stands
// there stays as it is.
func noProxy(now string) string {
	var has []string
	for h := range strings.FieldsFuncSeq(now, func(r rune) bool { return r == ',' || r == ' ' }) {
		has = append(has, strings.ToLower(h))
	}
	if slices.Contains(has, "*") {
		return now
	}
	out := strings.TrimRight(now, ", ")
	for _, n := range loopbackNames {
		if slices.Contains(has, n) || n == "::1" && slices.Contains(has, "[::1]") {
			continue
		}
		if out != "" {
			out += ","
		}
		out += n
	}
	return out
}

// noProxySettings are both spellings, each with what the user has in either.
func noProxySettings(getenv func(string) string) []setting {
	now := firstOf(getenv("NO_PROXY"), getenv("no_proxy"))
	list := make([]setting, len(noProxyNames))
	for i, name := range noProxyNames {
		list[i] = setting{name, noProxy(firstOf(getenv(name), now)), "callgate itself is reached without a proxy"}
	}
	return list
}

// forwarding describes the way in by HTTPS_PROXY.
type forwarding struct {
	// proxy is callgate's address as a proxy: http://127.0.0.1:4141.
	proxy string
	// ca is the file of callgate's certificate authority.
	ca string
	// dir is a private directory for the two files that are made of it; ""
	// writes none, and they are only named.
	dir string
	// roots are files with the system's own authorities; the first that is
	// there counts.
	roots []string
}

// systemRoots are where systems keep their certificate authorities.
var systemRoots = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora
	"/etc/ssl/ca-bundle.pem",             // openSUSE
	"/etc/ssl/cert.pem",                  // macOS, BSD
}

// The variables that name certificate authorities. Those of the first kind
// name all that are trusted, so that the system's must be in the file; those
// of the second add to what the program trusts anyway.
var (
	bundleNames = []setting{
		{Name: "SSL_CERT_FILE", For: "OpenSSL, Go, Rust, Python's ssl, Codex"},
		{Name: "REQUESTS_CA_BUNDLE", For: "Python requests"},
		{Name: "CURL_CA_BUNDLE", For: "curl, Python requests"},
		{Name: "AWS_CA_BUNDLE", For: "AWS SDKs"},
		{Name: "GIT_SSL_CAINFO", For: "git"},
		{Name: "CODEX_CA_CERTIFICATE", For: "Codex"},
		{Name: "CARGO_HTTP_CAINFO", For: "cargo"},
		{Name: "PIP_CERT", For: "pip"},
	}
	extraNames = []setting{
		{Name: "NODE_EXTRA_CA_CERTS", For: "Node, Bun: Claude Code, pi, opencode, cline, qwen, Gemini CLI"},
		{Name: "DENO_CERT", For: "Deno"},
	}
)

// settings give the variables that send an agent's traffic through callgate as
// a proxy and make it trust callgate's authority beside those it trusted
// before. It writes the files that they name.
func (f forwarding) settings(getenv func(string) string) ([]setting, error) {
	var ca []byte
	if f.dir != "" {
		var err error
		if ca, err = os.ReadFile(f.ca); err != nil {
			return nil, fmt.Errorf("the certificate authority: %w; callgate ca init makes one", err)
		}
	}
	var list []setting
	for _, name := range proxyNames {
		list = append(list, setting{name, f.proxy, "hosts of providers are gated by the way of a proxy"})
	}
	// Node's own fetch asks for no proxy unless it is told to.
	list = append(list, setting{nodeUsesProxy, "1", "fetch of Node from 22.21 on"})

	bundle, err := joinCertificates(ca, getenv, bundleNames, f.roots)
	if err != nil {
		return nil, err
	}
	extra, err := joinCertificates(ca, getenv, extraNames, nil)
	if err != nil {
		return nil, err
	}
	for _, kind := range []struct {
		file  string
		data  []byte
		names []setting
	}{{"ca-bundle.pem", bundle, bundleNames}, {"ca-extra.pem", extra, extraNames}} {
		path := filepath.Join(firstOf(f.dir, unmade), kind.file)
		if f.dir != "" {
			if err := os.WriteFile(path, kind.data, 0o600); err != nil {
				return nil, fmt.Errorf("the certificates for the agent: %w", err)
			}
		}
		for _, n := range kind.names {
			list = append(list, setting{n.Name, path, n.For})
		}
	}
	return list, nil
}

// maxCertificates is the largest file that certificates are taken from.
const maxCertificates = 16 << 20

// readCertificates reads a file that a variable names. It may name anything: a
// pipe that nobody writes to, a device without an end.
func readCertificates(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, &os.PathError{Op: "open", Path: path, Err: reasonOnly(err)}
	case !info.Mode().IsRegular():
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file")}
	case info.Size() > maxCertificates:
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("it is too large for a file of certificates")}
	}
	return os.ReadFile(path)
}

// joinCertificates puts ca behind what the user's variables name already and
// behind the first of roots that is there.
func joinCertificates(ca []byte, getenv func(string) string, names []setting, roots []string) ([]byte, error) {
	var out []byte
	add := func(b []byte) {
		out = append(out, b...)
		if len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
	}
	var seen []string
	for _, n := range names {
		path := getenv(n.Name)
		if path == "" || slices.Contains(seen, path) {
			continue
		}
		b, err := readCertificates(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; name a file that is there or unset it", n.Name, err)
		}
		seen = append(seen, path)
		add(b)
	}
	found := len(roots) == 0
	for _, path := range roots {
		b, err := readCertificates(path)
		if err != nil {
			continue // another system's place
		}
		if !slices.Contains(seen, path) {
			add(b)
		}
		found = true
		break
	}
	if !found && len(seen) == 0 {
		// A bundle of callgate's authority alone would make every other host
		// unreachable.
		return nil, fmt.Errorf("the system's certificates are at none of %s; name their file by SSL_CERT_FILE", strings.Join(roots, ", "))
	}
	add(ca)
	return out, nil
}

// childEnviron is the environment of the agent: the user's without what is
// callgate's, without the names in gone, and with what is set. token is the
// control token, which is kept from the agent whatever it is called by.
func childEnviron(environ []string, set []setting, gone []string, token string) []string {
	values := map[string]string{}
	for _, s := range set {
		values[s.Name] = s.Value
	}
	out := make([]string, 0, len(environ)+len(set))
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		_, ours := values[name]
		switch {
		case ours, slices.Contains(gone, name), scrubbed(name, value, token):
		default:
			out = append(out, kv)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, name+"="+values[name])
	}
	return out
}

// scrubbed says that a variable is kept from the agent: it is callgate's, or
// it holds the token that answers questions.
func scrubbed(name, value, token string) bool {
	return strings.HasPrefix(strings.ToUpper(name), "CALLGATE_") || token != "" && strings.Contains(value, token)
}

// pathOf says what stands behind callgate's address in a base URL whose
// program expected raw: programs that add no version have it in their base.
func pathOf(raw string) string {
	if strings.HasSuffix(strings.TrimRight(raw, "/"), "/v1") {
		return "/v1"
	}
	return ""
}

// providerURL checks a base URL that the user has set for an agent and gives
// it without what an upstream's URL must not have.
func providerURL(raw string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(strings.TrimSpace(raw), "/"))
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("is no http or https URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("holds a user, query or fragment, which an upstream cannot")
	}
	return u, nil
}

// upstreamOf makes the upstream of a URL that the agent would have spoken to
// anyway, in clear text and on private networks too.
func upstreamOf(u *url.URL) config.Upstream {
	return config.Upstream{URL: u.String(), AllowPrivate: true, Insecure: u.Scheme == "http"}
}

// isLoopbackURL says that a URL leads to this machine.
func isLoopbackURL(raw string) bool {
	u, err := url.Parse(raw)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
