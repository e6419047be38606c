package inspect

import (
	"slices"
	"testing"
)

func TestRefusesThinking(t *testing.T) {
	for text, want := range map[string]bool{
		`{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid ` + "`signature` in `thinking`" + ` block"}}`:                                                          true,
		`{"error":{"message":"messages.5.content.2: ` + "`thinking` or `redacted_thinking`" + ` blocks in the latest assistant message cannot be modified."}}`:                                                   true,
		`{"error":{"message":"messages.3: the thinking block is bound to other messages (prefix_binding_mismatch)"}}`:                                                                                            true,
		`{"error":{"message":"messages.1.content.0.type: Expected ` + "`thinking` or `redacted_thinking`, but found `tool_use`" + `. When thinking is enabled, a final assistant message must start with one"}}`: true,
		`{"error":{"code":400,"message":"Thought signature is not valid","status":"INVALID_ARGUMENT"}}`:                                                                                                          true,
		`{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}`:                                                                     true,
		`{"error":{"code":400,"message":"thinking_budget is out of range; supported values are integers from 128 to 32768","status":"INVALID_ARGUMENT"}}`:                                                        false,
		`{"error":{"message":"max_tokens must be greater than thinking.budget_tokens"}}`:                                                                                                                         false,
		`{"error":{"message":"thinking is not supported by this model"}}`:                                                                                                                                        false,
		`{"error":{"message":"the request signature does not match"}}`:                                                                                                                                           false,
		`{"error":{"message":"prompt is too long: 210000 tokens"}}`:                                                                                                                                              false,
		``: false,
	} {
		if got := RefusesThinking([]byte(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestMissesResults(t *testing.T) {
	for text, want := range map[string][]string{
		"{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1, toolu_2. Each `tool_use` block must have a corresponding `tool_result` block in the next message.\"}}": {"toolu_1", "toolu_2"},
		`{"error":{"message":"No tool output found for function call call_abC-1.","type":"invalid_request_error","param":"input"}}`:                                                                                                                                                            {"call_abC-1"},
		`{"error":{"message":"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: call_1, call_2"}}`:                                                                       {"call_1", "call_2"},
		`{"error":{"message":"unexpected tool_use_id found in tool_result blocks: toolu_9"}}`:                                                                                                                                                                                                  nil,
		`{"message":"No tool output found for function call call_1."}`:               nil,
		`{"error":{"message":{"No tool output found for function call call_1.":1}}}`: nil,
		``: nil,
	} {
		if got := MissesResults([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%s: %q", text, got)
		}
	}
}

func TestItemsOfOursThatAProviderDoesNotKnow(t *testing.T) {
	for body, want := range map[string]bool{
		`{"error":{"message":"Item with id 'msg_callgate_ab12_0' not found."}}`: true,
		`{"error":{"message":"Item with id 'msg_ab12' not found."}}`:            false,
		`{"error":"Item with id 'msg_callgate_0' not found."}`:                  false,
		`msg_callgate_0`: false,
	} {
		if got := MissesOwnItem([]byte(body)); got != want {
			t.Errorf("%s: %t", body, got)
		}
	}
}
