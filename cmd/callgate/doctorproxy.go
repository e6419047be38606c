package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"callgate/gate/redact"
	"callgate/proxy/mitm"
)

// httpsProxyNames are the variables that name the proxy for https, those that
// count more before the others.
var httpsProxyNames = []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}

// proxyOrigin is where the proxy of a variable answers requests of its own, ""
// for what is no proxy.
func proxyOrigin(raw string) string {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw // as most programs read it
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return ""
	}
	return "http://" + u.Host
}

// withLogin is an origin with what a proxy's URL shows of its client.
func withLogin(origin, raw string) string {
	if !strings.Contains(raw, "://") {
		raw = "http://" + raw
	}
	if u, err := url.Parse(raw); err == nil && u.User != nil {
		return strings.Replace(origin, "://", "://"+u.User.String()+"@", 1)
	}
	return origin
}

// proxies looks whether a proxy stands between the agent and callgate, or is
// callgate.
func (d *doctor) proxies(ctx context.Context, getenv func(string) string) {
	var names []string
	for _, n := range proxyNames {
		// Both spellings of one variable are one line.
		if upper := strings.ToUpper(n); getenv(n) != "" && (n == upper || getenv(n) != getenv(upper)) {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		d.say(stateOK, "proxies", "", "none is set")
		return
	}
	for _, n := range names {
		at := proxyOrigin(getenv(n))
		if at == "" {
			d.say(stateWarn, n, "write it like http://HOST:PORT", "is no URL")
			continue
		}
		host := redact.Visible(strings.TrimPrefix(at, "http://"))
		err := d.gate(ctx, withLogin(at, getenv(n)))
		switch {
		case errors.Is(err, errToken):
			d.say(stateFail, n, "set it anew with the agent's token: http://agent:TOKEN@HOST:PORT", "is callgate, which does not know the agent's token in it: its requests are refused")
		case err == nil && forwardProxy:
			d.say(stateOK, n, "", "is callgate, at %s", host)
		case err == nil:
			d.say(stateFail, n, "unset it; base URLs are enough", "is callgate, which is no forward proxy in this version")
		case at == d.base() || isLoopbackURL(at) && d.gates[at+"/"] != errNoGate:
			d.say(stateFail, n, "start callgate there, or start the agent with callgate run; else unset it", "is %s, where nothing can be reached: %v", host, err)
		default:
			d.say(stateOK, n, "", "is %s, which only hosts outside of this machine should need", host)
		}
	}
	d.loopback(getenv)
	d.exceptions(getenv)
}

// loopback looks whether a proxy would get what is meant for this machine.
func (d *doctor) loopback(getenv func(string) string) {
	local := ""
	for _, v := range baseVariables {
		if isLoopbackURL(getenv(v.name)) {
			local = v.name
			break
		}
	}
	now := firstOf(getenv("NO_PROXY"), getenv("no_proxy"))
	switch want := noProxy(now); {
	case want == now:
		d.say(stateOK, "NO_PROXY", "", "keeps traffic to this machine from the proxy")
	case d.proxied:
		d.say(stateOK, "NO_PROXY", "", "lacks this machine, which does no harm: the proxy is callgate")
	case local != "":
		d.say(stateFail, "NO_PROXY", "set NO_PROXY="+want, "lacks this machine: several agents would send what is meant for %s to the proxy", local)
	default:
		d.say(stateWarn, "NO_PROXY", "set NO_PROXY="+want, "lacks this machine, where callgate is reached")
	}
}

// exceptions looks whether a provider is asked without the proxy that is
// callgate.
func (d *doctor) exceptions(getenv func(string) string) {
	if !d.proxied || d.cfg == nil {
		return
	}
	past := map[string]bool{}
	for _, up := range d.cfg.Upstreams {
		u, err := url.Parse(up.URL)
		if err == nil && !isLoopbackURL(up.URL) && excepted(getenv, u.Hostname()) {
			past[u.Hostname()] = true
		}
	}
	for _, host := range slices.Sorted(maps.Keys(past)) {
		d.say(stateFail, "NO_PROXY", "take it out of NO_PROXY, or use a base URL", "covers %s: it is asked without the proxy, past callgate", redact.Visible(host))
	}
}

// excepted says that a host is asked without a proxy, by the rules that most
// programs have in common: a name stands for itself and all below it.
func excepted(getenv func(string) string, host string) bool {
	host = strings.ToLower(host)
	for _, name := range noProxyNames {
		for word := range strings.FieldsFuncSeq(getenv(name), func(r rune) bool { return r == ',' || r == ' ' }) {
			word = strings.ToLower(word)
			if h, _, err := net.SplitHostPort(word); err == nil {
				word = h
			}
			if word == "*" {
				return true
			}
			word = strings.TrimPrefix(strings.TrimPrefix(word, "*"), ".")
			if word != "" && (host == word || strings.HasSuffix(host, "."+word)) {
				return true
			}
		}
	}
	return false
}

// certificates looks at the files that programs take their authorities from.
// Callgate's own has to be among them only where callgate is the proxy.
func (d *doctor) certificates(ctx context.Context, getenv func(string) string) {
	trusts := d.authority(ctx, getenv)
	var good, without []string
	for _, n := range slices.Concat(bundleNames, extraNames) {
		path := getenv(n.Name)
		if path == "" {
			continue
		}
		b, err := readCertificates(path)
		switch {
		case err != nil:
			d.say(stateFail, n.Name, "name a file that is there, or unset it", "%s: %v", redact.Visible(path), reasonOnly(err))
			continue
		case firstCertificate(b) == nil:
			d.say(stateFail, n.Name, "name a file with certificates in PEM", "%s holds no certificate", redact.Visible(path))
			continue
		}
		good = append(good, n.Name)
		if trusts != nil && !trusts(b) {
			without = append(without, n.Name)
		}
	}
	if len(good) > 0 {
		d.say(stateOK, "certificates", "", "%s can be read", strings.Join(good, ", "))
	}
	if d.proxied {
		d.trust(trusts, good, without)
	}
}

// caFile is where the authority of a callgate serve of this configuration is.
func (d *doctor) caFile() string {
	if d.cfg == nil {
		return "ca.pem"
	}
	return filepath.Join(d.cfg.CADir(), mitm.CertFile)
}

// authority gives what says of a file of certificates whether those who trust
// it trust the callgate that is the proxy, nil where that cannot be told.
func (d *doctor) authority(ctx context.Context, getenv func(string) string) func(file []byte) bool {
	if d.proxied && d.cfg != nil {
		at := proxyOrigin(getenv(anySet(getenv, httpsProxyNames)))
		host := d.hostOf("anthropic")
		if chain, err := shownBy(ctx, strings.TrimPrefix(at, "http://"), host); err == nil {
			return func(file []byte) bool {
				opts := x509.VerifyOptions{DNSName: host, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
				opts.Roots.AppendCertsFromPEM(file)
				for _, c := range chain[1:] {
					opts.Intermediates.AddCert(c)
				}
				_, err := chain[0].Verify(opts)
				return err == nil
			}
		}
	}
	b, err := os.ReadFile(d.caFile())
	own := firstCertificate(b)
	if err != nil || own == nil {
		return nil
	}
	return func(file []byte) bool { return holds(file, own) }
}

// shownBy gives the certificates that a proxy shows for a host, without asking
// anything of the host.
func shownBy(ctx context.Context, proxy, host string) ([]*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", proxy)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return nil, err
		}
	}
	to := net.JoinHostPort(host, "443")
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: to}, Host: to, Header: http.Header{}}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	// Nothing may be read of what is behind the answer: the other side is silent
	// until it is greeted.
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	// Whether they can be trusted is what is to be found out.
	inner := tls.Client(conn, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err := inner.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return inner.ConnectionState().PeerCertificates, nil
}

// trust looks whether programs take the certificates that callgate shows them
// as a proxy. good are the variables with certificates, without those of them
// that lack callgate's authority.
func (d *doctor) trust(trusts func([]byte) bool, good, without []string) {
	const remedy = "callgate run sets what is needed; callgate ca trust shows it for each kind of program"
	node := "set NODE_EXTRA_CA_CERTS=" + d.caFile() + " for agents in Node; " + remedy
	system := trusts != nil && slices.ContainsFunc(systemRoots, func(path string) bool {
		b, err := readCertificates(path)
		return err == nil && trusts(b)
	})
	switch {
	case trusts == nil:
		d.say(stateWarn, "certificates", "callgate serve makes it at its start; name the state directory of the one that runs with --config or CALLGATE_STATE",
			"callgate is the proxy, and its authority is not at %s: whether it is trusted cannot be told", d.caFile())
	case len(good) > len(without) && len(without) > 0:
		d.say(stateWarn, "certificates", remedy, "%s: callgate's authority is not in the file", strings.Join(without, ", "))
	case len(good) > len(without):
		d.say(stateOK, "certificates", "", "callgate's authority is in each of them")
	case system:
		d.say(stateWarn, "certificates", node, "the system trusts callgate's authority; programs with a list of their own, as those in Node, do not")
	default:
		d.say(stateFail, "certificates", node, "callgate is the proxy, and nothing makes programs trust its authority: their requests will fail with a certificate error")
	}
}

// firstCertificate gives the first certificate of a PEM file, nil for none.
func firstCertificate(b []byte) []byte {
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			return nil
		}
		if block.Type == "CERTIFICATE" {
			if c, err := x509.ParseCertificate(block.Bytes); err == nil {
				return c.Raw
			}
		}
		b = rest
	}
}

// holds says that a certificate is in a PEM file.
func holds(b, der []byte) bool {
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			return false
		}
		if bytes.Equal(block.Bytes, der) {
			return true
		}
		b = rest
	}
}
