package main

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"callgate/config"
	"callgate/gate"
	"callgate/gate/console"
	"callgate/gate/store"
	"callgate/inspect/toolcall"
	"callgate/proxy"
	"callgate/proxy/providertest"
)

// wired gives settings with a state of their own.
func wired(t *testing.T) *config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.State = filepath.Join(t.TempDir(), "state")
	cfg.World.Home = "/home/u"
	return &cfg
}

func quiet() surroundings {
	return surroundings{
		notify: func(context.Context, gate.Approval) error { return nil },
		log:    slog.New(slog.DiscardHandler),
	}
}

func TestAssembleCarriesTheSettingsOver(t *testing.T) {
	cfg := wired(t)
	cfg.Upstreams = config.Upstreams{
		"a": {URL: "https://a.example/v1", AllowPrivate: true, Timeout: config.Duration(time.Second)},
		"b": {URL: "http://127.0.0.1:1", Credential: config.Credential{XAPIKey: "k"}},
	}
	cfg.Agents = config.Agents{"planner": {Token: "planner-planner-planner-1", Upstreams: config.Names{"b"}}}
	cfg.DefaultUpstreams = config.DefaultUpstreams{OpenAIChat: "a"}
	cfg.UnknownEndpoints = "refuse"
	cfg.Limits.RequestBody, cfg.Limits.Held, cfg.Limits.Memory = 11, 12, 13
	p, err := assemble(t.Context(), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	d := p.data
	if a := d.Upstreams["a"]; a == nil || a.Name != "a" || a.URL.String() != "https://a.example/v1" || !a.AllowPrivate || a.Timeout != time.Second {
		t.Errorf("upstream a is %+v", a)
	}
	if b := d.Upstreams["b"]; b == nil || b.Credential == nil || *b.Credential != (proxy.Credential{Header: "X-Api-Key", Value: "k"}) || d.Upstreams["a"].Credential != nil || d.Agents == nil {
		t.Errorf("upstream b is %+v, agents %+v", b, d.Agents)
	}
	if len(d.Upstreams) != 2 || len(d.Defaults) != 1 || d.Defaults[proxy.OpenAI] != "a" {
		t.Errorf("upstreams %v, defaults %v", d.Upstreams, d.Defaults)
	}
	if d.Unknown != proxy.Refuse || d.Limits.RequestBody != 11 || d.Limits.Held != 12 || d.Limits.Memory != 13 || d.Limits.IdleTimeout != 5*time.Minute {
		t.Errorf("policy %v, limits %+v", d.Unknown, d.Limits)
	}
	if d.Gate == nil || d.Audit == nil || d.Principal == nil || d.Transport == nil || d.Actions == nil || len(d.Dialects) == 0 {
		t.Errorf("a part is missing: %+v", d)
	}
	// The tenants' key is kept: who was who before a restart is so afterwards.
	before := d.Principal("default", "a", nil)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err = assemble(t.Context(), cfg, quiet()); err != nil {
		t.Fatal(err)
	}
	if after := p.data.Principal("default", "a", nil); after != before {
		t.Errorf("the tenant was %+v and is %+v", before, after)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// What cannot be built says why, and leaves nothing open.
func TestAssembleRefusesWhatItCannotBuild(t *testing.T) {
	tests := []struct {
		name   string
		spoil  func(*config.Config)
		reason string
	}{
		{"an unknown mode", func(c *config.Config) { c.Approvals.Mode = "smart" }, "smart"},
		{"an unknown verdict for unknown tools", func(c *config.Config) { c.UnknownTools = "perhaps" }, "perhaps"},
		{"a hook that is not there", func(c *config.Config) { c.Approvals.Mode, c.Approvals.Hook = "custom", "/nowhere/hook.py" }, "/nowhere/hook.py"},
		{"mode custom without a hook", func(c *config.Config) { c.Approvals.Mode = "custom" }, "hook"},
		{"half a credential", func(c *config.Config) {
			c.Upstreams = config.Upstreams{"x": {URL: "https://h", Credential: config.Credential{Header: "X-Key"}}}
		}, "upstreams.x: its credential is not complete"},
		{"two agents with one token", func(c *config.Config) {
			c.Agents = config.Agents{"a": {Token: "planner-planner-planner-1"}, "b": {Token: "planner-planner-planner-1"}}
		}, "agent b has the token of another"},
		{"an upstream that is no URL", func(c *config.Config) { c.Upstreams = config.Upstreams{"x": {URL: "http://[::1"}} }, "upstreams.x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := wired(t)
			tt.spoil(cfg)
			if _, err := assemble(t.Context(), cfg, quiet()); err == nil || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("got %v, want it to name %q", err, tt.reason)
			}
			// The state is free again.
			st, err := store.Open(t.Context(), cfg.State, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a state that another process has", func(t *testing.T) {
		cfg := wired(t)
		p, err := assemble(t.Context(), cfg, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := assemble(t.Context(), cfg, quiet()); err == nil || !strings.Contains(err.Error(), cfg.State) {
			t.Errorf("got %v, want it to name the directory", err)
		}
	})
}

// The whole way: an agent asks, a person answers through the control handler,
// and the audit log tells of it and holds.
func TestThePartsWorkTogether(t *testing.T) {
	tests := []struct {
		name    string
		approve bool
	}{{"yes", true}, {"no", false}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			provider := httptest.NewServer(providertest.New(providertest.Script{demoScenes()[1].call, demoWords("done")}))
			defer provider.Close()
			cfg := wired(t)
			cfg.Upstreams = config.Upstreams{"p": {URL: provider.URL}}
			asked := make(chan gate.Approval, 1)
			s := quiet()
			s.notify = func(_ context.Context, a gate.Approval) error { asked <- a; return nil }
			s.tokenHash = sha256.Sum256([]byte("the token of this test"))
			p, err := assemble(t.Context(), cfg, s)
			if err != nil {
				t.Fatal(err)
			}
			data, control := httptest.NewServer(p.data), httptest.NewServer(p.control)
			defer data.Close()
			defer control.Close()
			answered := make(chan error, 1)
			go func() {
				a := <-asked
				c := &console.Client{Base: control.URL, Token: "the token of this test"}
				var err error
				if tt.approve {
					_, err = c.Approve(context.Background(), a.ID, "", "tester")
				} else {
					_, err = c.Deny(context.Background(), a.ID, "", "tester")
				}
				answered <- err
			}()
			agent := &demoAgent{base: data.URL + "/p"}
			agent.add(map[string]any{"role": "user", "content": "free some disk space"})
			msg, err := agent.next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
			if got := len(msg.Calls) == 1; got != tt.approve {
				t.Errorf("the agent got %+v", msg)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			checkAudit(t, cfg.State, tt.approve)
		})
	}
}

// checkAudit reads the log as "callgate audit" does.
func checkAudit(t *testing.T, dir string, approved bool) {
	t.Helper()
	st, err := store.OpenReadOnly(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	want := "deny"
	if approved {
		want = "allow"
	}
	n := 0
	for e, err := range st.Entries(t.Context(), store.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if e.Verdict != want || e.Tool != "bash" || e.By != "person" || e.Approval == "" || e.Upstream != "p" {
			t.Errorf("the audit log has %+v", e)
		}
	}
	if n != 1 {
		t.Errorf("the audit log has %d entries, want 1", n)
	}
	if _, err := os.Stat(filepath.Join(dir, "audit.key")); err != nil {
		t.Error(err)
	}
}

// People are told of what the hook decided, as the settings say.
func TestToldOf(t *testing.T) {
	tests := []struct {
		name            string
		onDeny, onAllow bool
		by              string
		verdict         gate.Verdict
		told            bool
	}{
		{"a denial that they want to hear of", true, false, "hook", gate.Deny, true},
		{"a denial that they do not", false, true, "hook", gate.Deny, false},
		{"an approval that they want to hear of", false, true, "hook", gate.Allow, true},
		{"an approval that they do not", true, false, "hook", gate.Allow, false},
		{"a person's denial", true, true, "person", gate.Deny, false},
		{"a call that nobody was asked about", true, true, "detector", gate.Allow, false},
	}
	for _, tt := range tests {
		told := false
		f := toldOf(config.Approvals{OnDenyNotifyGateway: tt.onDeny, OnApproveNotifyGateway: tt.onAllow},
			func(*gate.Request, gate.Decision) { told = true })
		f(nil, gate.Decision{Verdict: tt.verdict, By: tt.by})
		if told != tt.told {
			t.Errorf("%s: told %v", tt.name, told)
		}
	}
}

// What is callgate's own is out of bounds, where it usually is and where it is
// this time.
func TestTheDetectorKnowsWhatIsCallgatesOwn(t *testing.T) {
	cfg := wired(t)
	cfg.Control.Listen = "127.0.0.1:4999"
	d := buildDetector(cfg, surroundings{configFile: "/srv/gate/settings.yaml", hosts: []string{"127.0.0.1:45001"}})
	tests := []struct {
		command  string
		hardline bool
	}{
		{"pkill callgate", true},
		{"rm ~/.config/callgate/callgate.yaml", true},
		{"echo 'approvals: {mode: off}' > /srv/gate/settings.yaml", true},
		{"rm -rf " + cfg.State, true},
		{"curl -X POST http://127.0.0.1:4999/api/v1/approvals/x/approve", true},
		{"curl -X POST http://localhost:4999/api/v1/approvals/x/approve", true},
		{"curl http://localhost:45001/api/v1/approvals", true},
		{"callgate approvals approve abcd1234", true},
		{"callgate check 'ls'", false},
		{"curl http://localhost:49990/", false},
		{"rm /srv/gate/settings.yaml.bak", false},
	}
	for _, tt := range tests {
		rep := d.Detect([]toolcall.Action{{Kind: toolcall.KindCommand, Tool: "bash", Known: true, Command: tt.command, Language: toolcall.LangShell}})
		hardline := false
		for _, f := range rep.Findings {
			hardline = hardline || f.Severity == gate.Hardline
		}
		if hardline != tt.hardline {
			t.Errorf("%s: hardline %v, findings %+v", tt.command, hardline, rep.Findings)
		}
	}
	cfg.Control.Listen = "127.0.0.1:0" // the real one stands among the hosts
	for _, o := range ownThings(cfg, surroundings{}) {
		if strings.HasSuffix(o, ":0") {
			t.Errorf("%s is in the list", o)
		}
	}
}
