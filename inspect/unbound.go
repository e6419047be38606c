package inspect

import "bytes"

// RefusesThinking reports whether a provider's error, as its body says it, is
// about thinking in the history that it does not take: thinking whose signature
// is wrong, that is bound to something else than stands before it, or that is
// missing where it must stand (Anthropic, errors of Messages; servers in front
// of it hand its words on in forms of their own). An error about the setting for
// thinking is not.
func RefusesThinking(body []byte) bool {
	text := bytes.ToLower(body)
	if !bytes.Contains(text, []byte("thinking")) {
		return false
	}
	for _, clue := range [...]string{
		"signature", "cannot be modified", "prefix_binding_mismatch",
		"expected `thinking`", "must start with a thinking block",
	} {
		if bytes.Contains(text, []byte(clue)) {
			return true
		}
	}
	return false
}
