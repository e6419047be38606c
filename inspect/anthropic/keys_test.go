package anthropic

import (
	"strings"
	"testing"

	"callgate/inspect/rawjson"
	"callgate/inspect/toolcall"
)

func TestEveryKeyHasAName(t *testing.T) {
	for k := otherKey + 1; k < numKeys; k++ {
		if keyNames[k] == "" || keyOf([]byte(keyNames[k])) != k {
			t.Errorf("key %d, named %q, is found as %d", k, keyNames[k], keyOf([]byte(keyNames[k])))
		}
	}
	if len(keysByFold) != int(numKeys)-1 || numKeys > 64 {
		t.Errorf("%d of %d keys have a folded form of their own", len(keysByFold), numKeys-1)
	}
	if keyOf([]byte("Type")) != otherKey || keyOf(nil) != otherKey {
		t.Error("a key that is not in the list was found")
	}
}

func TestALevelIsReadAndChecked(t *testing.T) {
	const ambiguous, unknown = toolcall.FaultAmbiguous, toolcall.FaultUnknown
	for _, c := range []struct {
		name, data string
		fault      toolcall.Fault
		reason     string
		id, text   string // what is read all the same
	}{
		{"known keys are read", ` {"id" : "a", "text":"b" } `, 0, "", `"a"`, `"b"`},
		{"nothing is read of an empty object", `{}`, 0, "", "", ""},
		{"an array is no object", `["id"]`, ambiguous, "an object is wanted", "", ""},
		{"unknown keys do no harm", `{"x":1,"id":2,"y":{"z":[]},"text":null}`, 0, "", "2", "null"},
		{"a key of another level does no harm", `{"index":1,"id":2}`, 0, "", "2", ""},
		{"a key in other case is ambiguous", `{"ID":1,"text":2}`, ambiguous, `the key "ID" reads like "id" and is not written so`, "", "2"},
		{"an escaped key is ambiguous, and read", `{"i\u0064":1}`, ambiguous, `the key "i\\u0064" reads like "id" and is not written so`, "1", ""},
		{"the Kelvin sign is a k", "{\"thin\u212aing\":1}", ambiguous, "reads like", "", ""},
		{"a call under an unknown key", `{"x":{"y":[{"type":"tool_use"}]},"id":1}`, unknown, `what stands under "x" looks like a call`, "1", ""},
		{"a call under a known key", `{"text":{"type":"function"},"id":1}`, unknown, `what stands under "text" looks like a call`, "1", `{"type":"function"}`},
		{"the key of a call with a text", `{"input":"x"}`, unknown, `what stands under "input" looks like a call`, "", ""},
		{"the key of a call with a number", `{"input":1}`, 0, "", "", ""},
		{"the key of a call of another level", `{"partial_json":""}`, unknown, `what stands under "partial_json" looks like a call`, "", ""},
		{"an escaped key of a call", `{"tool\u005fcalls":[]}`, unknown, `what stands under "tool_calls" looks like a call`, "", ""},
		{"a call under a quiet key", `{"citations":[{"type":"tool_use"}]}`, 0, "", "", ""},
		{"the type is no call", `{"type":"tool_use"}`, 0, "", "", ""},
		{"the first flaw counts", `{"ID":1,"x":{"input":{}}}`, ambiguous, `the key "ID"`, "", ""},
		{"the first flaw counts, the other way round", `{"x":{"input":{}},"ID":1}`, unknown, `what stands under "x"`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := []byte(c.data)
			var m members
			f := level(b, rawjson.All(b), blockKeys, quietText, &m)
			if f.fault != c.fault || !strings.Contains(f.reason, c.reason) || (f.reason == "") != (c.reason == "") {
				t.Errorf("%s has the fault %v: %s", c.data, f.fault, f.reason)
			}
			if id, text := string(m[keyID].In(b)), string(m[keyText].In(b)); id != c.id || text != c.text {
				t.Errorf("%s: id %s, text %s", c.data, id, text)
			}
		})
	}
}

func TestOnlyKeysAreCheckedWhereAllIsQuiet(t *testing.T) {
	for data, ok := range map[string]bool{`{"input":{},"x":{"type":"tool_use"}}`: true, `{"Input":{}}`: false} {
		var m members
		if f := level([]byte(data), rawjson.All([]byte(data)), blockKeys, allQuiet, &m); (f.reason == "") != ok {
			t.Errorf("%s: %s", data, f.reason)
		}
	}
}

func TestTokensAreCounted(t *testing.T) {
	for data, want := range map[string][2]int64{
		`{"input_tokens":5,"output_tokens":7}`:                  {5, 7},
		`{"output_tokens":7,"x":{"input_tokens":1}}`:            {-1, 7},
		`{"input_tokens":1e2,"output_tokens":2.9}`:              {100, 2},
		`{"input_tokens":"5","output_tokens":null}`:             {-1, -1},
		`{"input_tokens":true,"output_tokens":[1]}`:             {-1, -1},
		`{"input_tokens":1e300,"output_tokens":99999999999999}`: {-1, 99999999999999},
		`{"input\u005ftokens":3,"cache":{},"output_tokens":-0}`: {3, 0},
		`{}`:   {-1, -1},
		`null`: {-1, -1},
		``:     {-1, -1},
	} {
		if in, out := usage([]byte(data), rawjson.All([]byte(data))); in != want[0] || out != want[1] {
			t.Errorf("%s: %d in, %d out", data, in, out)
		}
	}
}
