package inspect

import "testing"

func TestRefusesThinking(t *testing.T) {
	for text, want := range map[string]bool{
		`{"type":"error","error":{"type":"invalid_request_error","message":"messages.1.content.0: Invalid ` + "`signature` in `thinking`" + ` block"}}`:                                                          true,
		`{"error":{"message":"messages.5.content.2: ` + "`thinking` or `redacted_thinking`" + ` blocks in the latest assistant message cannot be modified."}}`:                                                   true,
		`{"error":{"message":"messages.3: the thinking block is bound to other messages (prefix_binding_mismatch)"}}`:                                                                                            true,
		`{"error":{"message":"messages.1.content.0.type: Expected ` + "`thinking` or `redacted_thinking`, but found `tool_use`" + `. When thinking is enabled, a final assistant message must start with one"}}`: true,
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
