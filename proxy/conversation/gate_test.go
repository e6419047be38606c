package conversation

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"callgate/gate"
	"callgate/gate/store"
	"callgate/inspect"
	"callgate/inspect/anthropic"
	"callgate/inspect/openaichat"
	"callgate/inspect/toolcall"
	"callgate/proxy"
	"callgate/proxy/repair"
)

// repaired says that the model reads its refusals: denied calls stand with
// their results in every later request. Without, the agent is shown a text in
// the place of a denied call and the provider gets what the agent was shown.
const repaired = true

// shelf is what outlives a process of callgate: where its state is kept.
type shelf struct {
	dir      string
	provider *url.URL
	out      http.RoundTripper
}

// newGate starts callgate on what was kept, and says how to stop it.
func newGate(t testing.TB, kept shelf) (http.Handler, func()) {
	t.Helper()
	g, err := gate.New(gate.Config{
		Mode: gate.Off, Detector: byMarker{}, UnauditedForTest: true, UnknownTools: gate.Allow,
	})
	if err != nil {
		t.Fatal(err)
	}
	state, err := store.Open(t.Context(), kept.dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	book, err := repair.Open(t.Context(), state, repair.Options{Report: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		g.Close()
		if err := state.Close(); err != nil {
			t.Error(err)
		}
	}
	return &proxy.Proxy{
		Upstreams: map[string]*proxy.Upstream{"main": {Name: "main", URL: kept.provider, AllowPrivate: true}},
		Defaults:  map[string]string{proxy.OpenAI: "main", proxy.Anthropic: "main"},
		Dialects:  []inspect.Dialect{openaichat.Dialect{Denial: inspect.DenialRepair}, anthropic.Dialect{Denial: inspect.DenialRepair}},
		Actions:   asCommands,
		Gate:      g,
		Transport: kept.out,
		Principal: proxy.PrincipalKey([]byte("a key that is kept")),
		Repairs:   book,
	}, stop
}

// byMarker denies calls that hold the marker, whatever the mode.
type byMarker struct{}

func (byMarker) Detect(actions []toolcall.Action) gate.Report {
	var rep gate.Report
	for i, a := range actions {
		if at := strings.Index(a.Command, marker); at >= 0 {
			rep.Findings = append(rep.Findings, gate.Finding{
				Rule: "test.forbidden", Category: "test", Severity: gate.Hardline, Reason: "it holds a word of the tests",
				Action: i, Start: at, End: at + len(marker), Words: marker,
			})
		}
	}
	return rep
}

// asCommands takes every call for a command with all of its arguments.
func asCommands(c toolcall.Call, _ []toolcall.Tool) []toolcall.Action {
	return []toolcall.Action{{Kind: toolcall.KindCommand, Tool: c.Name, Known: true, Command: string(c.Args), Language: toolcall.LangShell}}
}
