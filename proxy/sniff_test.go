package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestCallsAreFoundWhereverTheyStand(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"a chat answer", `{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"x"}}]}}]}`},
		{"a chat answer, spread out", "{\n \"choices\" : [ { \"message\" : { \"tool_calls\" : [ {} ] } } ] }"},
		{"a chat delta", "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n"},
		{"a legacy call", `{"message":{"function_call":{"name":"x","arguments":"{}"}}}`},
		{"a finish reason", `{"finish_reason":"tool_calls"}`},
		{"an item of Responses", `{"output":[{"type":"function_call","name":"x","arguments":"{}"}]}`},
		{"a custom call", `{"output":[{"type":"custom_tool_call","input":"x"}]}`},
		{"a local shell call", `{"output":[{"type":"local_shell_call","action":{}}]}`},
		{"a shell call", `{"type":"shell_call"}`},
		{"a patch call", `{"type":"apply_patch_call"}`},
		{"a computer call", `{"type":"computer_call"}`},
		{"an approval request", `{"type":"mcp_approval_request","id":"x"}`},
		{"an event of Responses", "event: x\ndata: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"a\"}\n\n"},
		{"an event of a custom call", "data: {\"type\":\"response.custom_tool_call_input.done\"}\n\n"},
		{"a block of Messages", `{"content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]}`},
		{"a stop reason", `{"stop_reason":"tool_use"}`},
		{"a batch of Messages", "{\"custom_id\":\"1\",\"result\":{\"message\":{\"content\":[{\"type\":\"text\"}]}}}\n{\"custom_id\":\"2\",\"result\":{\"message\":{\"content\":[{\"type\":\"tool_use\"}]}}}\n"},
		{"a part of Gemini", `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"x"}}]}}]}`},
		{"a part of Gemini in proto case", `{"parts":[{"function_call":{"name":"x"}}]}`},
		{"a block of Bedrock", `{"output":{"message":{"content":[{"toolUse":{"name":"x"}}]}}}`},
		{"a run that wants outputs", `{"status":"requires_action","required_action":{"type":"submit_tool_outputs"}}`},
		{"a step of a run", `{"step_details":{"type":"tool_calls"}}`},
		{"a key with escapes", `{"tool\u005fcalls":[{}]}`},
		{"a key all of escapes", `{"\u0074\u006f\u006f\u006c\u005f\u0063\u0061\u006c\u006c\u0073":[1]}`},
		{"a type with escapes", `{"type":"tool\u005Fuse"}`},
		{"a key in other letters", `{"Tool_Calls":[{}]}`},
		{"a key that folds, as an escape", `{"tool_call\u017f":[{}]}`},
		{"a key that folds, as it is", "{\"tool_call\xc5\xbf\":[{}]}"},
		{"behind a key that stands twice", `{"tool_calls":[],"tool_calls":[{}]}`},
		{"behind text with an odd quotation mark", `5" wide {"tool_calls":[{}]}`},
		{"behind an escaped quotation mark", `{"a":"\"","tool_calls":[{}]}`},
		{"behind broken JSON", `{"a":} {"type":"tool_use"}`},
		{"two bytes a character", "{\x00\"\x00t\x00o\x00o\x00l\x00_\x00c\x00a\x00l\x00l\x00s\x00\"\x00:\x00[\x001\x00]\x00}\x00"},
		{"a call of Mistral", `{"outputs":[{"type":"function.call","name":"x","arguments":"{}"}]}`},
		{"an event of Mistral", "data: {\"type\":\"function.call.delta\",\"name\":\"x\"}\n\n"},
		{"a part of a client's library", `{"type":"tool-call","toolName":"x"}`},
		{"its event", `{"type":"tool-input-available","toolName":"x","input":{}}`},
		{"a part with the tool in its type", `{"type":"tool-bash","state":"input-available","toolCallId":"1","input":{}}`},
		{"a line of its older stream", `9:{"toolCallId":"1","toolName":"x","args":{}}`},
		{"a type with a dot", `{"type":"tool.call"}`},
		{"a type with a colon", `{"type":"tool:call"}`},
		{"a type with a slash", `{"type":"tool/call"}`},
		{"a type with an escaped slash", `{"type":"tool\/call"}`},
		{"a type with a space", `{"type":"tool call"}`},
		{"a type with a space as an escape", `{"type":"tool\u0020call"}`},
		{"a key with hyphens", `{"tool-calls":[{}]}`},
		{"a key in camel case", `{"functionCalls":[{}]}`},
		{"pieces of calls", `{"tool_call_chunks":[{"name":"x"}]}`},
		{"calls as a string", `{"tool_calls":"[{}]"}`},
		{"a patch in pieces", `{"type":"response.apply_patch_call_operation_diff.delta"}`},
		{"a document that is a string", `"{\"tool_calls\":[{}]}"`},
		{"a document that is a string of a string", ` "\"{\\\"type\\\":\\\"tool_use\\\"}\""`},
		{"a document over two data lines", "data: {\"tool_calls\"\ndata: :[1]}\n\n"},
		{"a document over two data lines without spaces", "data:{\"tool_calls\"\r\ndata::[1]}\r\n\r\n"},
		{"a document over three data lines", "data: {\"type\"\ndata: :\ndata: \"tool_use\"}\n\n"},
		{"a key over two data lines", "data: {\"tool\ndata: _calls\":[1]}\n\n"},
		{"data lines with a comment between", "data: {\"tool_calls\"\n: keep-alive\ndata: :[1]}\n\n"},
		{"data lines with other fields between", "data: {\"tool_calls\"\nid: 1\nevent: x\nretry: 5\nwhat: ever\ndata: :[1]}\n\n"},
		{"data lines behind a mark of byte order", "\ufeffdata: {\"tool_calls\"\ndata: :[1]}\n\n"},
		{"data lines behind an escaped line break", "data: {\"a\":\"\\u000a\",\"tool_calls\"\ndata: :[1]}\n\n"},
		{"data lines that only some readers break", "data: {\"tool_calls\"\u2028data: :[1]}\n\n"},
		{"data lines broken at a form feed", "data: {\"tool_calls\"\fdata: :[1]}\n\n"},
		{"data lines of one reader with a break of another within", "data: {\"a\":\"\u2028\",\"tool_calls\"\ndata: :[1]}\n\n"},
		{"data lines with a comment that only some readers break off", "data: {\"tool_calls\"\u2028junk\ndata: :[1]}\n\n"},
		{"data lines with breaks of two kinds", "data: {\"a\":\"\u0085\",\"tool_calls\"\u2028junk\ndata: :[1]}\n\n"},
		{"a data line within a comment", ": x\u0085data: {\"tool_calls\"\u0085data: :[1]}\n\n"},
		{"the name of an event within an id", "id: 1\x1eevent: tool_call\ndata: {\"name\":\"x\"}\n\n"},
		{"the name of an event", "event: tool_call\ndata: {\"name\":\"x\"}\n\n"},
		{"the name of an event without a space", "event:tool-call\rdata: {\"name\":\"x\"}\r\r"},
		{"UTF-16", "\xff\xfe{\x00\"\x00a\x00\"\x00}\x00"},
		{"bytes", "\x00\x01\x02\xff\xfe"},
		{"Latin-1", "{\"a\":\"\xe9\"}"},
		{"at the end of a long text", `{"a":"` + strings.Repeat("x", 1<<20) + `","tool_calls":[{}]}`},
	} {
		if callShaped(http.Header{"Content-Type": {asJSON}}, []byte(c.body)) == "" {
			t.Errorf("%s was not found", c.name)
		}
	}
	// A file is searched too, in whatever form somebody could keep JSON in it.
	for _, body := range []string{
		`{"tool_calls":[{}]}`, "\x81\xaatool_calls\x91\x80\xff", "{\x00\"\x00t\x00o\x00o\x00l\x00_\x00c\x00a\x00l\x00l\x00s\x00\"\x00:\x00[\x001\x00]\x00}\x00",
	} {
		for _, h := range []http.Header{nil, {"Content-Type": {"application/octet-stream"}}, {"Content-Type": {"image/png"}}} {
			if callShaped(h, []byte(body)) == "" {
				t.Errorf("%v: %q was not found", h, body)
			}
		}
	}
	for _, coding := range []string{"gzip", "zstd"} {
		if callShaped(http.Header{}, encode(t, coding, `{"tool_calls":[1]}`)) == "" {
			t.Errorf("a file packed with %s was not found", coding)
		}
	}
}

func TestOnlyKnownMediaAreSearchedAndPass(t *testing.T) {
	for kind, passes := range map[string]bool{
		"application/json": true, "Application/JSON; Charset=UTF-8": true, "application/problem+json": true, "application/jsonl": true,
		"application/x-ndjson": true, "text/event-stream": true, "text/plain": true, `text/plain; charset="utf-8"`: true,
		"text/html; charset=iso-8859-1": true, "text/vtt": true, "audio/mpeg": true, "image/png": true, "video/mp4": true,
		"application/octet-stream": true, "application/pdf": true,
		"": false, "application/msgpack": false, "application/x-msgpack": false, "application/cbor": false, "application/xml": false,
		"text/xml": false, "image/svg+xml": false, "application/yaml": false, "text/yaml": false, "application/x-protobuf": false,
		"application/vnd.amazon.eventstream": false, "multipart/mixed; boundary=x": false, "application/javascript": false,
		"application/json; charset=utf-7": false, "application/json; charset=cp037": false, "application/json; charset=utf-16": false,
		"application/json; charset=utf-8; charset=utf-7": false, "application/json; charset*=utf-7''": false, `application/json; "charset"=utf-7`: false,
		"application/json; CHARSET = 'utf-7'": false, `application/json; x="; charset=utf-7"`: false, "application/json, text/plain": false,
	} {
		if found := callShaped(http.Header{"Content-Type": {kind}}, []byte(`{"a":1}`)); (found == "") != passes {
			t.Errorf("%s: %q", kind, found)
		}
		if found := callShaped(http.Header{"Content-Type": {kind}}, nil); found != "" {
			t.Errorf("%s: nothing was found to be %q", kind, found)
		}
	}
	if callShaped(http.Header{"Content-Type": {asJSON, "application/xml"}}, []byte("{}")) == "" {
		t.Error("two content types passed")
	}
	if callShaped(http.Header{"Content-Type": {"text/html; charset=iso-8859-1"}}, []byte("caf\xc3\xa9")) == "" {
		t.Error("text in another character set passed")
	}
	if found := callShaped(http.Header{"Content-Type": {"audio/mpeg"}}, []byte("\x00\x01\x02\xff\xfe")); found != "" {
		t.Errorf("a sound was found to be %q", found)
	}
}

func TestWhatHoldsNoCallPasses(t *testing.T) {
	for _, c := range []struct{ name, body string }{
		{"nothing", ""},
		{"a text answer of Responses", `{"object":"response","parallel_tool_calls":true,"max_tool_calls":null,"tool_choice":"auto","tools":[{"type":"function","name":"x","parameters":{}}],"output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}]}`},
		{"a choice of tool", `{"tool_choice":{"type":"function","name":"x"}}`},
		{"what a model can do", `{"data":[{"id":"m","capabilities":{"supports":{"tool_calls":true,"parallel_tool_calls":true}},"features":{"tool_use":false}}]}`},
		{"empty calls", `{"message":{"content":"hi","tool_calls":[],"function_call":null}}`},
		{"empty calls, spread out", "{\"tool_calls\" : [ ] , \"tool_use\": { }}"},
		{"no action wanted", `{"status":"completed","required_action":null}`},
		{"a search by the provider", `{"output":[{"type":"web_search_call","status":"completed"}]}`},
		{"code run by the provider", `{"type":"code_interpreter_call"}`},
		{"a tool run by the provider", `{"type":"server_tool_use","name":"web_search"}`},
		{"a result", `{"type":"function_call_output","output":"x"}`},
		{"a result of Messages", `{"type":"tool_result","content":"x"}`},
		{"text that speaks of calls", `{"text":"the tool_calls field, a function_call and tool_use"}`},
		{"JSON quoted in a text", `{"text":"{\"tool_calls\":[{}],\"type\":\"tool_use\"}"}`},
		{"JSON quoted twice", `{"text":"{\\\"tool_calls\\\":[1]}"}`},
		{"an escaped backslash in front of an escape", `{"text":"\\u0022tool_calls\\u0022:[1]"}`},
		{"names in a list", `{"supported":["tool_calls","function_call"]}`},
		{"a file list", `{"object":"list","data":[{"id":"file-1","purpose":"batch"}]}`},
		{"counts", `{"request_counts":{"total":1},"endpoint":"/v1/chat/completions"}`},
		{"a sentence", `{"text":"make a function call or a tool call"}`},
		{"a word that ends like a call", `{"metric":"recall"}`},
		{"what a model can do", `{"capabilities":["function_calling"],"kind":"function_calling","supports_function_calling":true}`},
		{"an error that names a field", `{"error":{"type":"invalid_request_error","param":"messages.1.tool_calls","code":"tool_use_failed"}}`},
		{"an error in words", `{"error":{"message":"An assistant message with 'tool_calls' must be followed by tool messages"}}`},
		{"counts of tool use", `{"usage":{"server_tool_use":{"web_search_requests":1},"tool_use_prompt_token_count":7}}`},
		{"events", "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\ndata: \"delta\":\"tool\"}\n\n: keep-alive\n\n"},
		{"events with characters at which some readers break lines", "data: {\"a\":\"one\u2028two\u2029 three\u0085\"}\n\ndata: [done]\n\n"},
		{"an event of a search by the provider", "event: response.web_search_call.completed\ndata: {}\n\n"},
		{"a document that is a string", `"tool_calls are fine"`},
		{"a long quoted text", `"` + strings.Repeat("tool_calls", 1000) + `":[1]`},
	} {
		if found := callShaped(http.Header{"Content-Type": {asJSON}}, []byte(c.body)); found != "" {
			t.Errorf("%s: found %s", c.name, found)
		}
	}
}

func TestUnknownEndpointsAreSniffed(t *testing.T) {
	call := `{"output":[{"type":"function_call","name":"x"}]}`
	for _, c := range []struct {
		name, coding, body string
		change             func(*Proxy)
		status             int
		says               string
	}{
		{"a call", "", call, nil, 502, "function_call"},
		{"a call, coded", "zstd", call, nil, 502, "function_call"},
		{"a call, twice coded", "gzip, gzip", call, nil, 502, "is not read"},
		{"too large an answer", "", strings.Repeat("x", 1001), func(p *Proxy) { p.Limits.Answer = 1000 }, 502, "larger than the limit of 1000"},
		{"a bomb", "gzip", strings.Repeat("x", 100_000), func(p *Proxy) { p.Limits.Answer = 1000 }, 502, "larger than the limit of 1000"},
		{"as large as may be", "", strings.Repeat("x", 1000), func(p *Proxy) { p.Limits.Answer = 1000 }, 200, "xxx"},
		{"text", "br", `{"output":[{"type":"message"}]}`, nil, 200, `{"output":[{"type":"message"}]}`},
	} {
		for _, method := range []string{"GET", "POST"} {
			bubble(t, func(t *testing.T) {
				r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
					if b, _ := io.ReadAll(q.Body); method == "POST" && string(b) != "body" {
						t.Errorf("the provider got %q", b)
					}
					if c.coding != "" {
						w.Header().Set("Content-Encoding", c.coding)
					}
					w.Header().Set("Content-Type", asJSON)
					w.Write(encode(t, c.coding, c.body))
				}, func(p *Proxy) {
					if c.change != nil {
						c.change(p)
					}
				})
				defer r.end()
				var body io.Reader
				if method == "POST" {
					body = strings.NewReader("body")
				}
				resp := r.do(t, method, "/v1/responses/r1?stream=true", body)
				got := text(t, resp)
				if resp.StatusCode != c.status || !strings.Contains(got, c.says) || resp.Header.Get("Content-Encoding") != "" {
					t.Errorf("%s: %d %q", c.name, resp.StatusCode, got)
				}
				if e := r.journal.by("proxy"); (len(e) == 1) != (c.status == 502) {
					t.Errorf("%s: %d entries in the audit log", c.name, len(e))
				}
			})
		}
	}
}

func TestASniffedAnswerThatIsCutIsWithheld(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, cutAfter(asJSON, `{"output":[`))
		defer r.end()
		resp := r.do(t, "GET", "/v1/responses/r1", nil)
		if got := text(t, resp); resp.StatusCode != 502 || !strings.Contains(got, "broke off") {
			t.Errorf("%d %q", resp.StatusCode, got)
		}
	})
}

// Wherever the lines of an event break, and whatever else stands between them,
// a client joins its data.
func TestCallsOverSeveralDataLinesAreFoundWhereverTheyBreak(t *testing.T) {
	for _, call := range []string{`{"tool_calls":[{}]}`, `{ "type" : "tool-call" }`, `{"functionCall":{"name":"x"}}`} {
		for i := range call {
			for j := i; j <= len(call); j++ {
				for _, between := range []string{"\ndata: ", "\r\ndata:", "\rid: 7\r: comment\rdata: "} {
					body := "data: " + call[:i] + between + call[i:j] + between + call[j:] + "\n\n"
					if callShaped(http.Header{"Content-Type": {sse}}, []byte(body)) == "" {
						t.Errorf("not found in %q", body)
					}
				}
			}
		}
	}
}

func FuzzSniffing(f *testing.F) {
	f.Add([]byte(`{"a":"`), []byte(`"}`))
	f.Add([]byte("data: [1,\"\\u00"), []byte("\\"))
	f.Add([]byte("\xe2\x84"), []byte("\xc5"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		// Whatever stands around it on lines of their own, a call is found.
		body := append(append(append([]byte{}, before...), "\n{\"tool_calls\":[{}]}\n"...), after...)
		if callShaped(http.Header{}, body) == "" {
			t.Errorf("not found in %q", body)
		}
	})
}

func BenchmarkSniff(b *testing.B) {
	body := []byte(`{"output":[` + strings.Repeat(`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"some words of an answer"}]},`, 1000) + `{}]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if callShaped(http.Header{}, body) != "" {
			b.Fatal("found")
		}
	}
}
