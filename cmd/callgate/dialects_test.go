package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"callgate/config"
	"callgate/proxy/providertest"
)

func TestUpstreamsAreShownWithTheVariableOfTheirClients(t *testing.T) {
	cfg := config.Default()
	cfg.Upstreams["ollama"], cfg.Upstreams["vllm"] = config.Upstream{URL: "http://127.0.0.1:11434"}, config.Upstream{URL: "http://127.0.0.1:8000"}
	got := map[string]string{}
	for _, p := range pointers("http://127.0.0.1:4141", &cfg) {
		got[p.agent] = p.how
	}
	if got["upstream ollama"] != "OLLAMA_HOST=http://127.0.0.1:4141/ollama" || got["upstream vllm"] != "http://127.0.0.1:4141/vllm" ||
		got["upstream gemini"] != "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:4141/gemini" {
		t.Errorf("it is shown as %v", got)
	}
}

// TestEachFormatIsGatedAtItsBarePath drives a callgate as it is started by its
// users: in each wire format a call that nobody could undo is refused without
// anybody being asked, the model reads that and goes on, and a call that harms
// nobody passes.
func TestEachFormatIsGatedAtItsBarePath(t *testing.T) {
	provider := providertest.New(providertest.Script{
		{Say: []providertest.Item{providertest.Call{ID: "call_Wq81kZp3", Name: "bash", Args: `{"command":"rm -rf / --no-preserve-root"}`}}},
		{Say: []providertest.Item{providertest.Text("I only look. "), providertest.Call{ID: "call_9dVx2LmN", Name: "bash", Args: `{"command":"ls photos"}`}}},
	})
	up := httptest.NewServer(provider)
	defer up.Close()
	s := startServe(t, t.TempDir(), up.URL, "--upstream", "openai="+up.URL, "--upstream", "anthropic="+up.URL, "--upstream", "ollama="+up.URL, "--upstream", "gemini="+up.URL)
	defer s.stop()
	const (
		ask      = `"messages":[{"role":"user","content":"Clean up."}]`
		schema   = `{"type":"object","properties":{"command":{"type":"string"}}}`
		function = `"tools":[{"type":"function","function":{"name":"bash","parameters":` + schema + `}}]`
	)
	for _, f := range []struct{ name, path, body string }{
		{"openai-chat", "/v1/chat/completions", `{"model":"m",` + ask + "," + function + `,"stream":%t}`},
		{"openai-responses", "/v1/responses", `{"model":"m","input":"Clean up.","tools":[{"type":"function","name":"bash","parameters":` + schema + `}],"stream":%t}`},
		{"anthropic", "/v1/messages", `{"model":"m","max_tokens":100,` + ask + `,"tools":[{"name":"bash","input_schema":` + schema + `}],"stream":%t}`},
		{"ollama", "/api/chat", `{"model":"m",` + ask + "," + function + `,"stream":%t}`},
		{"gemini", "/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"Clean up."}]}],"tools":[{"functionDeclarations":[{"name":"bash","parametersJsonSchema":` + schema + `}]}]}`},
	} {
		for _, stream := range []bool{true, false} {
			path, body := f.path, fmt.Sprintf(f.body, stream)
			if f.name == "gemini" { // says it in the path
				path, body = "/v1beta/models/m:generateContent", f.body
				if stream {
					path = f.path
				}
			}
			t.Run(fmt.Sprintf("%s, streamed %t", f.name, stream), func(t *testing.T) {
				asked := len(provider.Requests())
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Anthropic-Version", "2023-06-01")
				req.Header.Set("X-Api-Key", "agent")
				req.Header.Set("Authorization", "Bearer agent")
				res, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				b, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				answer := string(b)
				if res.StatusCode != http.StatusOK || strings.Contains(answer, "call_Wq81kZp3") || strings.Contains(answer, "preserve") || !strings.Contains(answer, "call_9dVx2LmN") {
					t.Errorf("the agent got %d %s", res.StatusCode, answer)
				}
				requests := provider.Requests()[asked:]
				if len(requests) != 2 || !strings.Contains(string(requests[1].Body), "outcome=hardline") || provider.Faults() != nil {
					t.Errorf("the provider was asked %d times and refused %q", len(requests), provider.Faults())
				}
			})
		}
	}
}
