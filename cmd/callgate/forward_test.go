package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"callgate/proxy/mitm"
	"callgate/proxy/providertest"
)

// throughProxy asks a callgate serve as a client behind HTTP_PROXY does.
func throughProxy(t *testing.T, s *served, method, target, body string) (*http.Response, string, error) {
	t.Helper()
	at, err := url.Parse(s.base)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{Proxy: http.ProxyURL(at)}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequest(method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer key-of-tests")
	resp, err := (&http.Client{Transport: tr, Timeout: patience}).Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

func TestServeIsAProxyForItsUpstreamsAndNothingElse(t *testing.T) {
	provider := httptest.NewServer(providertest.New(providertest.Script{{Say: []providertest.Item{
		providertest.Call{ID: "call_bad", Name: "bash", Args: `{"command":"rm -rf --no-preserve-root /"}`},
	}}, {Say: []providertest.Item{providertest.Text("Well then.")}}}))
	defer provider.Close()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another host was reached") }))
	defer other.Close()
	state := t.TempDir()
	s := startServe(t, state, provider.URL)
	const ask = `{"model":"m","messages":[{"role":"user","content":"wipe it"}],"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object"}}}]}`
	resp, body, err := throughProxy(t, s, "POST", provider.URL+"/v1/chat/completions", ask)
	if err != nil || resp.StatusCode != 200 || strings.Contains(body, "tool_calls\":[") || strings.Contains(body, "no-preserve-root") {
		t.Errorf("a call that never may run: %v %s (%v)", resp, body, err)
	}
	for _, c := range []struct{ name, url, says string }{
		{"another host", other.URL, "is no provider of the configuration"},
		{"the control listener", "http://" + s.control, "answer callgate's questions"},
		{"metadata", "http://169.254.169.254/latest/meta-data/", "is no provider of the configuration"},
	} {
		if resp, body, err := throughProxy(t, s, "GET", c.url, ""); err != nil || resp.StatusCode != 403 || !strings.Contains(body, c.says) {
			t.Errorf("%s: %v %s (%v)", c.name, resp, body, err)
		}
	}
	for _, target := range []string{"https://chatgpt.com/backend-api/codex/responses", "https://example.com/"} {
		if _, _, err := throughProxy(t, s, "GET", target, ""); err == nil || !strings.Contains(err.Error(), "callgate: ") {
			t.Errorf("%s: %v", target, err)
		}
	}
	if resp, body, err := throughProxy(t, s, "GET", s.base+"/", ""); err != nil || resp.StatusCode != 200 || !strings.Contains(body, "callgate is running") {
		t.Errorf("callgate itself: %v %s (%v)", resp, body, err)
	}
	for name, want := range map[string]os.FileMode{mitm.KeyFile: 0o600, mitm.CertFile: 0o644} {
		if info, err := os.Stat(filepath.Join(state, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	s.stop()
	if !strings.Contains(s.stderr.String(), "chatgpt.com") {
		t.Errorf("the refused hosts are not in the log: %s", s.stderr)
	}
	// The authority is the same the next time.
	before, err := os.ReadFile(filepath.Join(state, mitm.CertFile))
	if err != nil {
		t.Fatal(err)
	}
	startServe(t, state, provider.URL).stop()
	if after, err := os.ReadFile(filepath.Join(state, mitm.CertFile)); err != nil || string(after) != string(before) {
		t.Errorf("it was made anew (%v)", err)
	}
}

func TestServeIsNoProxyWhereThatIsOff(t *testing.T) {
	provider := httptest.NewServer(http.NotFoundHandler())
	defer provider.Close()
	state, file := t.TempDir(), filepath.Join(t.TempDir(), "callgate.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "forward: {enabled: false}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServe(t, state, provider.URL, "--config", file)
	if resp, body, err := throughProxy(t, s, "GET", provider.URL+"/v1/models", ""); err != nil || resp.StatusCode != 400 {
		t.Errorf("%v %s (%v)", resp, body, err)
	}
	if _, err := os.Stat(filepath.Join(state, mitm.KeyFile)); err == nil {
		t.Error("an authority was made for nobody")
	}
	s.stop()
}
