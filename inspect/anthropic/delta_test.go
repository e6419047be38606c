package anthropic

import (
	"testing"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

func TestDeltasThatMatchTheTemplate(t *testing.T) {
	for name, c := range map[string]struct {
		data  string
		kind  deltaKind
		index int
		value string
	}{
		"text":            {`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`, textDelta, 0, "hi"},
		"text padded":     {` { "delta" : { "text" : "hi" , "type" : "text_delta" } , "index" : 3 , "type" : "content_block_delta" } `, textDelta, 3, "hi"},
		"no text at all":  {`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}`, textDelta, 0, ""},
		"escapes in text": {`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"\\\/\b\f\n\r\t\u00e9"}}`, textDelta, 0, "\"\\/\b\f\n\r\té"},
		"words of calls":  {`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"type\":\"tool_use\"}"}}`, textDelta, 0, `{"type":"tool_use"}`},
		"thinking":        {`{"type":"content_block_delta","index":10,"delta":{"type":"thinking_delta","thinking":"hm"}}`, thinkingDelta, 10, "hm"},
		"an estimate":     {`{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":"","estimated_tokens":64}}`, thinkingDelta, 1, ""},
		"signature":       {`{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"a+/="}}`, signatureDelta, 1, "a+/="},
		"arguments":       {`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a"}}`, inputDelta, 1, `{"a`},
	} {
		t.Run(name, func(t *testing.T) {
			d, ok := scanDelta([]byte(c.data))
			if !ok || d.kind != c.kind || d.index != c.index || string(strictjson.AppendString(nil, d.value)) != c.value {
				t.Errorf("matched %t as %+v with %q", ok, d, d.value)
			}
		})
	}
}

func TestDeltasThatDoNotMatchTheTemplate(t *testing.T) {
	for name, data := range map[string]string{
		"nothing":                     ``,
		"an array":                    `[]`,
		"an empty object":             `{}`,
		"no index":                    `{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`,
		"no type":                     `{"index":0,"delta":{"type":"text_delta","text":"a"}}`,
		"no delta":                    `{"type":"content_block_delta","index":0}`,
		"another type":                `{"type":"content_block_start","index":0,"delta":{"type":"text_delta","text":"a"}}`,
		"another key":                 `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"},"x":1}`,
		"another key in the delta":    `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","x":1}}`,
		"type twice":                  `{"type":"content_block_delta","type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`,
		"index twice":                 `{"type":"content_block_delta","index":0,"index":1,"delta":{"type":"text_delta","text":"a"}}`,
		"delta twice":                 `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"},"delta":{"type":"text_delta","text":"b"}}`,
		"text twice":                  `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","text":"b"}}`,
		"two texts":                   `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","partial_json":"b"}}`,
		"a text under another's key":  `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","partial_json":"a"}}`,
		"an unknown delta":            `{"type":"content_block_delta","index":0,"delta":{"type":"frob_delta","text":"a"}}`,
		"an estimate beside text":     `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","estimated_tokens":1}}`,
		"an estimate that is text":    `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a","estimated_tokens":"1"}}`,
		"a key in capitals":           `{"Type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`,
		"a key with an escape":        `{"t\u0079pe":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`,
		"a type with an escape":       `{"type":"content_bloc\u006b_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`,
		"text that is a number":       `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":1}}`,
		"text that is null":           `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":null}}`,
		"a delta that is text":        `{"type":"content_block_delta","index":0,"delta":"text_delta"}`,
		"an index below nought":       `{"type":"content_block_delta","index":-1,"delta":{"type":"text_delta","text":"a"}}`,
		"an index with a fraction":    `{"type":"content_block_delta","index":0.0,"delta":{"type":"text_delta","text":"a"}}`,
		"an index with an exponent":   `{"type":"content_block_delta","index":1e0,"delta":{"type":"text_delta","text":"a"}}`,
		"an index with a nought":      `{"type":"content_block_delta","index":01,"delta":{"type":"text_delta","text":"a"}}`,
		"an index that is text":       `{"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":"a"}}`,
		"an index without end":        `{"type":"content_block_delta","index":99999999999999999999,"delta":{"type":"text_delta","text":"a"}}`,
		"something behind":            `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}{}`,
		"a comma too many":            `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"},}`,
		"an end too early":            `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}`,
		"text without end":            `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a`,
		"an escape without end":       `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\`,
		"an escape that is unknown":   `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\x41"}}`,
		"an escape with wrong digits": `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\u00zz"}}`,
		"half a surrogate pair":       `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\ud83d"}}`,
		"a control character":         "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\tb\"}}",
		"text that is not UTF-8":      "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\xc3\x28\"}}",
		"a surrogate in UTF-8":        "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\xed\xa0\x80\"}}",
		"other space":                 "{\"type\":\"content_block_delta\",\u00a0\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}",
	} {
		t.Run(name, func(t *testing.T) {
			if d, ok := scanDelta([]byte(data)); ok {
				t.Errorf("%s matched as %+v", data, d)
			}
		})
	}
}

func TestWhatLooksLikeACall(t *testing.T) {
	for data, want := range map[string]bool{
		`{"type":"tool_use"}`:                                  true,
		`[[{"TYPE":"Tool_Use"}]]`:                              true,
		`{"a":{"type":"frob_call"}}`:                           true,
		`{"a":[1,{"function":{"name":"x"}}]}`:                  true,
		`{"arguments":"{}"}`:                                   true,
		`{"Input":{}}`:                                         true,
		`{"t\u0079pe":"tool_use"}`:                             true,
		`{"functionCall":{"name":"x"}}`:                        true,
		`{"toolUse":{}}`:                                       true,
		`{"input":12,"args":null,"output":3}`:                  false,
		`{"type":"overloaded_error","message":"tool_use"}`:     false,
		`[{"type":"thinking_dropped","path":[1,2]}]`:           false,
		`{"applied_edits":[{"cleared_tool_uses":1,"n":true}]}`: false,
		`"tool_use"`:                                           false,
		`12`:                                                   false,
		`null`:                                                 false,
		`{}`:                                                   false,
	} {
		if got := callShaped([]byte(data), rawjson.All([]byte(data))); got != want {
			t.Errorf("%s looks like a call: %t", data, got)
		}
	}
}
