package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheDoctorLooksAtCallgateAsAProxy(t *testing.T) {
	gate := gateAt(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	dir := filepath.Join(t.TempDir(), "state")
	e, _, stderr := testEnv("HOME="+t.TempDir(), "CALLGATE_STATE="+dir)
	if code := run(t.Context(), e, []string{"ca", "init"}); code != exitOK {
		t.Fatalf("ca init gives %d: %s", code, stderr)
	}
	ca := filepath.Join(dir, "ca.pem")
	b, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	e, _, stderr = testEnv("HOME="+t.TempDir(), "CALLGATE_STATE="+filepath.Join(t.TempDir(), "state"))
	if code := run(t.Context(), e, []string{"ca", "init"}); code != exitOK {
		t.Fatalf("ca init gives %d: %s", code, stderr)
	}
	foreign := filepath.Join(e.Getenv("CALLGATE_STATE"), "ca.pem")
	roots := systemRoots
	t.Cleanup(func() { systemRoots = roots })
	system := filepath.Join(t.TempDir(), "system.pem")
	if err := os.WriteFile(system, b, 0o600); err != nil {
		t.Fatal(err)
	}
	state, key := "CALLGATE_STATE="+dir, "ANTHROPIC_API_KEY=sk"
	proxied := []string{state, key, "HTTPS_PROXY=" + gate}
	with := func(more ...string) []string { return append(append([]string(nil), proxied...), more...) }
	for _, tc := range []struct {
		name        string
		environ     []string
		roots       []string
		what, state string
		text        string
	}{
		{"the provider is asked through it", with("NODE_EXTRA_CA_CERTS=" + ca), nil, "ANTHROPIC_BASE_URL", stateOK, "api.anthropic.com is asked through the proxy"},
		{"a proxy without a scheme", []string{state, key, "https_proxy=" + strings.TrimPrefix(gate, "http://")}, nil, "ANTHROPIC_BASE_URL", stateOK, "through the proxy"},
		{"a proxy for everything", []string{state, key, "ALL_PROXY=" + gate}, nil, "ANTHROPIC_BASE_URL", stateOK, "through the proxy"},
		{"one for http alone does not do", []string{state, key, "HTTP_PROXY=" + gate}, nil, "ANTHROPIC_BASE_URL", stateWarn, "past callgate"},
		{"the provider is excepted", with("NO_PROXY=api.anthropic.com"), nil, "NO_PROXY", stateFail, "covers api.anthropic.com"},
		{"the base URL says so too", with("NO_PROXY=api.anthropic.com"), nil, "ANTHROPIC_BASE_URL", stateWarn, "past callgate"},
		{"its domain is excepted", with("no_proxy=x.example, .Anthropic.com"), nil, "NO_PROXY", stateFail, "covers api.anthropic.com"},
		{"everything is excepted", with("NO_PROXY=*"), nil, "NO_PROXY", stateFail, "covers api.openai.com"},
		{"what only looks like it is not", with("NO_PROXY=thropic.com,example.anthropic.com,127.0.0.1,localhost,::1"), nil, "NO_PROXY", stateOK, "keeps traffic"},
		{"loopback need not be excepted", with(), nil, "NO_PROXY", stateOK, "the proxy is callgate"},
		{"the authority is trusted", with("NODE_EXTRA_CA_CERTS=" + ca), nil, "certificates", stateOK, "in each of them"},
		{"the authority is in some of the files", with("NODE_EXTRA_CA_CERTS="+ca, "SSL_CERT_FILE="+foreign), nil, "certificates", stateWarn, "SSL_CERT_FILE: callgate's authority is not in the file"},
		{"the authority is in none", with("SSL_CERT_FILE=" + foreign), nil, "certificates", stateFail, "certificate error"},
		{"nothing is said of the authority", with(), nil, "certificates", stateFail, "certificate error"},
		{"the system trusts it", with(), []string{system}, "certificates", stateWarn, "as those in Node, do not"},
		{"it is not known", []string{key, "HTTPS_PROXY=" + gate}, nil, "certificates", stateWarn, "cannot be told"},
		{"a base URL needs no authority", []string{state, "ANTHROPIC_BASE_URL=" + gate}, nil, "certificates", "", ""},
		{"nothing listens at the proxy", []string{state, key, "HTTPS_PROXY=" + closed.URL}, nil, "HTTPS_PROXY", stateFail, "nothing can be reached"},
		{"a proxy that is no URL", []string{state, "HTTPS_PROXY=http://"}, nil, "HTTPS_PROXY", stateWarn, "is no URL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			systemRoots = tc.roots
			state, text := about(examined(t, 0, "", nil, tc.environ...), tc.what)
			if state != tc.state || !strings.Contains(text, tc.text) {
				t.Errorf("%s is %q: %q; want %q with %q", tc.what, state, text, tc.state, tc.text)
			}
		})
	}
}
