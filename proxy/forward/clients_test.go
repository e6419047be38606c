package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/v2/option"
	openaisdk "github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"callgate/gate"
	"callgate/inspect"
	anthropicwire "callgate/inspect/anthropic"
	"callgate/inspect/openaichat"
	"callgate/inspect/toolcall"
	"callgate/proxy"
	"callgate/proxy/egress"
	"callgate/proxy/providertest"
)

// forbidden is the word that makes a call one that never may run.
const forbidden = "FORBIDDEN"

type marker struct{}

func (marker) Detect(actions []toolcall.Action) (rep gate.Report) {
	for i, a := range actions {
		if at := strings.Index(a.Command, forbidden); at >= 0 {
			rep.Findings = append(rep.Findings, gate.Finding{
				Rule: "test.forbidden", Category: "test", Severity: gate.Hardline, Reason: "it holds a word of the tests",
				Action: i, Start: at, End: at + len(forbidden), Words: forbidden,
			})
		}
	}
	return rep
}

// gated is the real handler behind the proxy, with the rig's provider.
func gated(g *rig) http.Handler {
	decide, err := gate.New(gate.Config{Detector: marker{}, UnauditedForTest: true, UnknownTools: gate.Allow})
	if err != nil {
		g.t.Fatal(err)
	}
	return &proxy.Proxy{
		Upstreams: map[string]*proxy.Upstream{
			"openai":    {Name: "openai", URL: parseURL(g.t, "https://"+openai+":"+g.port)},
			"anthropic": {Name: "anthropic", URL: parseURL(g.t, "https://"+claude+":"+g.port)},
		},
		Dialects: []inspect.Dialect{openaichat.Dialect{}, anthropicwire.Dialect{}},
		Actions: func(c toolcall.Call, _ []toolcall.Tool) []toolcall.Action {
			return []toolcall.Action{{Kind: toolcall.KindCommand, Tool: c.Name, Known: true, Command: string(c.Args), Language: toolcall.LangShell}}
		},
		Gate: decide,
		Transport: egress.New(egress.Options{
			Resolver: g.dns.resolver(), Roots: g.roots, AllowPrivate: func(host string) bool { return host == openai || host == claude },
		}),
	}
}

// model says a word, makes one call that may run and one that may not.
func model() *providertest.Provider {
	return providertest.New(providertest.Script{{Say: []providertest.Item{
		providertest.Text("Two things. "),
		providertest.Call{ID: "call_good01", Name: "bash", Args: `{"command":"echo"}`},
		providertest.Call{ID: "call_bad002", Name: "bash", Args: `{"command":"` + forbidden + `"}`},
	}}})
}

// saw checks what a client was shown.
func saw(t *testing.T, calls []string, words string) {
	t.Helper()
	if len(calls) != 1 || !strings.Contains(calls[0], "echo") {
		t.Errorf("the client saw the calls %q", calls)
	}
	if !strings.Contains(words, "Two things.") || strings.Contains(words, `"command":"`+forbidden) {
		t.Errorf("the client saw %q", words)
	}
}

func TestTheLibrariesOfProvidersAreGatedThroughTheProxy(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", h2), func(t *testing.T) {
			provider := model()
			g := newRig(t, provider, gated)
			hc := &http.Client{Transport: g.transport()}
			hc.Transport.(*http.Transport).ForceAttemptHTTP2 = h2

			oc := openaisdk.NewClient(openaioption.WithBaseURL(g.at("/v1/")), openaioption.WithAPIKey("key-of-tests"),
				openaioption.WithHTTPClient(hc), openaioption.WithMaxRetries(0))
			ask := openaisdk.ChatCompletionNewParams{
				Model: "model-of-tests", Messages: []openaisdk.ChatCompletionMessageParamUnion{openaisdk.UserMessage("do it")},
				Tools: []openaisdk.ChatCompletionToolUnionParam{openaisdk.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
					Name: "bash", Parameters: map[string]any{"type": "object", "properties": map[string]any{"command": map[string]any{"type": "string"}}},
				})},
			}
			calls := func(m openaisdk.ChatCompletionMessage) (out []string) {
				for _, c := range m.ToolCalls {
					out = append(out, c.Function.Arguments)
				}
				return out
			}
			got, err := oc.Chat.Completions.New(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			saw(t, calls(got.Choices[0].Message), got.Choices[0].Message.Content)
			stream := oc.Chat.Completions.NewStreaming(t.Context(), ask)
			var all openaisdk.ChatCompletionAccumulator
			for stream.Next() {
				all.AddChunk(stream.Current())
			}
			if err := stream.Err(); err != nil {
				t.Fatal(err)
			}
			saw(t, calls(all.Choices[0].Message), all.Choices[0].Message.Content)

			ac := anthropic.NewClient(anthropicoption.WithBaseURL("https://"+claude+":"+g.port), anthropicoption.WithAPIKey("key-of-tests"),
				anthropicoption.WithHTTPClient(hc), anthropicoption.WithMaxRetries(0))
			said := ac.Messages.NewStreaming(t.Context(), anthropic.MessageNewParams{
				Model: "model-of-tests", MaxTokens: 1000, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("do it"))},
				Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "bash", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"command": map[string]any{"type": "string"}}}}}},
			})
			var m anthropic.Message
			for said.Next() {
				if err := m.Accumulate(said.Current()); err != nil {
					t.Fatal(err)
				}
			}
			if err := said.Err(); err != nil {
				t.Fatal(err)
			}
			var used []string
			words := ""
			for _, b := range m.Content {
				words += b.Text
				if b.Type == "tool_use" {
					used = append(used, string(b.Input))
				}
			}
			saw(t, used, words)
			if n := len(provider.Requests()); n != 3 {
				t.Errorf("the provider got %d requests", n)
			}
			for _, f := range provider.Faults() {
				t.Errorf("the provider refused a request: %s", f)
			}
		})
	}
}

// bodyOf is a request of a client that has no library.
const bodyOf = `{"model":"m","messages":[{"role":"user","content":"do it"}],"tools":[{"type":"function","function":{"name":"bash","parameters":{"type":"object"}}}]}`

// program runs a client that is a program of its own, with nothing but the
// variables of a proxy and an authority.
func (g *rig) program(t *testing.T, ca string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "HTTPS_PROXY=" + g.front.URL, "https_proxy=" + g.front.URL,
		"NODE_USE_ENV_PROXY=1", "NODE_EXTRA_CA_CERTS=" + ca, "SSL_CERT_FILE=" + ca, "CURL_CA_BUNDLE=" + ca,
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, &out, &errs)
	}
	return out.String()
}

// chatAnswer reads what a client got.
func chatAnswer(t *testing.T, text string) (calls []string, words string) {
	t.Helper()
	var got struct {
		Choices []struct {
			Message struct {
				Content string
				Calls   []struct {
					Function struct{ Arguments string }
				} `json:"tool_calls"`
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Choices) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	for _, c := range got.Choices[0].Message.Calls {
		calls = append(calls, c.Function.Arguments)
	}
	return calls, got.Choices[0].Message.Content
}

func (g *rig) caFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, g.ca.PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCurlIsGatedThroughTheProxy(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	g := newRig(t, model(), gated)
	for _, version := range []string{"--http1.1", "--http2", "--http2-prior-knowledge"} {
		out := g.program(t, g.caFile(t), curl, "-sS", version, "-d", bodyOf, "-H", "Content-Type: application/json", "-H", "Authorization: Bearer key-of-tests", g.at("/v1/chat/completions"))
		calls, words := chatAnswer(t, out)
		saw(t, calls, words)
	}
	// What is refused says why.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, curl, "-sSv", "-x", g.front.URL, "https://chatgpt.com/backend-api/codex")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "403 callgate: chatgpt.com belongs to a model provider") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestNodeIsGatedThroughTheProxy(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	version, err := exec.Command(node, "--version").Output()
	var major, minor int
	if _, serr := fmt.Sscanf(string(version), "v%d.%d.", &major, &minor); err != nil || serr != nil || major < 22 || major == 22 && minor < 21 {
		t.Skipf("node %s does not read HTTPS_PROXY", bytes.TrimSpace(version))
	}
	g := newRig(t, model(), gated)
	out := g.program(t, g.caFile(t), node, "-e", fmt.Sprintf(`fetch(%q, {method: "POST", body: %q, headers: {"content-type": "application/json", authorization: "Bearer key-of-tests"}})
		.then(r => r.text()).then(t => process.stdout.write(t)).catch(e => { console.error(e); process.exit(1) })`, g.at("/v1/chat/completions"), bodyOf))
	calls, words := chatAnswer(t, out)
	saw(t, calls, words)
}

func TestPythonIsGatedThroughTheProxy(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	g := newRig(t, model(), gated)
	script := `import sys, urllib.request
r = urllib.request.Request(sys.argv[1], data=sys.argv[2].encode(), headers={"Content-Type": "application/json", "Authorization": "Bearer key-of-tests"})
sys.stdout.write(urllib.request.urlopen(r, timeout=15).read().decode())`
	calls, words := chatAnswer(t, g.program(t, g.caFile(t), python, "-c", script, g.at("/v1/chat/completions"), bodyOf))
	saw(t, calls, words)
}

func TestJavaIsGatedThroughTheProxy(t *testing.T) {
	java, err := exec.LookPath("java")
	keytool, kerr := exec.LookPath("keytool")
	if err != nil || kerr != nil || testing.Short() {
		t.Skip("there is no java, or it takes too long")
	}
	g := newRig(t, model(), gated)
	dir := t.TempDir()
	store := filepath.Join(dir, "trust.p12")
	if out, err := exec.Command(keytool, "-importcert", "-noprompt", "-alias", "callgate", "-file", g.caFile(t), "-keystore", store, "-storepass", "changeit").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	source := filepath.Join(dir, "Ask.java")
	if err := os.WriteFile(source, []byte(`import java.net.URI;
import java.net.http.*;
public class Ask {
  public static void main(String[] a) throws Exception {
    var r = HttpRequest.newBuilder(URI.create(a[0])).header("Content-Type", "application/json").header("Authorization", "Bearer key-of-tests")
      .POST(HttpRequest.BodyPublishers.ofString(a[1])).build();
    System.out.print(HttpClient.newBuilder().proxy(java.net.ProxySelector.getDefault()).build().send(r, HttpResponse.BodyHandlers.ofString()).body());
  }
}`), 0o644); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(g.address(), ":")
	calls, words := chatAnswer(t, g.program(t, g.caFile(t), java, "-Djavax.net.ssl.trustStore="+store, "-Djavax.net.ssl.trustStorePassword=changeit",
		"-Dhttps.proxyHost="+host, "-Dhttps.proxyPort="+port, source, g.at("/v1/chat/completions"), bodyOf))
	saw(t, calls, words)
}
