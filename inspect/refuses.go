package inspect

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"
)

// RefusesThinking reports whether a provider's error, as its body says it, is
// about thinking in the history that it does not take: thinking whose signature
// is wrong, that is bound to something else than stands before it, or that is
// missing where it must stand (Anthropic, errors of Messages; servers in front
// of it hand its words on in forms of their own; Google, signatures of thoughts).
// An error about the setting for thinking is not.
func RefusesThinking(body []byte) bool {
	text := bytes.ToLower(body)
	if bytes.Contains(text, []byte("thought signature")) || bytes.Contains(text, []byte("thought_signature")) {
		return true
	}
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

// MissesResults gives the ids of the calls that have no result, as a provider's
// error names them, nil for any other error (Anthropic, Messages; OpenAI, Chat
// Completions and Responses).
func MissesResults(body []byte) []string {
	message := gjson.GetBytes(body, "error.message").Str
	for _, form := range missing {
		if found := form.FindStringSubmatch(message); found != nil {
			return callID.FindAllString(found[1], maxMissing)
		}
	}
	return nil
}

// OwnItem begins the ids of the items of callgate's own in answers that are made
// of items with ids.
const OwnItem = "msg_callgate_"

// MissesOwnItem reports whether a provider's error is about an item of callgate's
// own that it was never given: agents name items of answers that the provider
// keeps by their ids (OpenAI, Responses).
func MissesOwnItem(body []byte) bool {
	return strings.Contains(gjson.GetBytes(body, "error.message").Str, "Item with id '"+OwnItem)
}

// maxMissing is how many ids are read out of an error at most.
const maxMissing = 1000

var (
	missing = []*regexp.Regexp{
		regexp.MustCompile("ids were found without `tool_result` blocks immediately after: ([^.]*)"),
		regexp.MustCompile(`No tool output found for (?:function |custom |custom tool |local shell |shell |apply patch )?call ([^ ]*)\.`),
		regexp.MustCompile(`tool_call_ids did not have response messages: (.*)`),
	}
	callID = regexp.MustCompile(`[A-Za-z0-9_-]+`)
)
