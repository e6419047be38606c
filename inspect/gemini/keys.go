package gemini

import (
	"fmt"
	"strings"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// The members of an answer that hold no call, whatever stands in them. Those
// that are read are not among them.
var (
	quietWrapper   = set("traceId", "consumedCredits", "remainingCredits")
	quietTop       = set("promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime", "modelStatus")
	quietCandidate = set("finishReason", "finishMessage", "index", "safetyRatings", "citationMetadata", "tokenCount", "groundingMetadata",
		"groundingAttributions", "avgLogprobs", "logprobsResult", "urlContextMetadata", "urlRetrievalMetadata", "continuationToken")
	quietContent = set("role")
	quietPart    = set("thought", "thoughtSignature", "inlineData", "fileData", "codeExecutionResult", "toolResponse", "videoMetadata",
		"mediaResolution", "partMetadata", "audioTranscription", "mediaProcessing", "speechMetadata")
)

// read are the members of an answer that are read, by their folded form: a key
// that some reader takes for one of them is none of the quiet ones.
var read = func() map[string]bool {
	m := map[string]bool{}
	for _, key := range strings.Fields("response candidates content parts text functionCall executableCode toolCall name args id error" +
		" functionResponse partialArgs thought thoughtSignature finishReason index usageMetadata modelVersion responseId") {
		m[strictjson.Fold(key)], m[strictjson.Fold(snake(key))] = true, true
	}
	return m
}()

func set(keys ...string) map[string]bool {
	m := make(map[string]bool, len(keys))
	for _, k := range keys {
		m[k] = true
	}
	return m
}

// oddMember says why a member could hold a call for some reader, "" when it
// cannot. In a part no text may stand under a key that is not known.
func oddMember(b []byte, w *rawjson.Walk, quiet map[string]bool, inPart bool) string {
	if quiet[string(w.Key.In(b))] {
		return ""
	}
	if hollow(b, w.Val) {
		return ""
	}
	key := rawjson.KeyText(b, w.Key)
	switch c := b[w.Val.From]; {
	case read[strictjson.Fold(key)]:
		return fmt.Sprintf("the key %q can be read as another one", short(key))
	case c == '{', c == '[', c == '"' && inPart:
		return fmt.Sprintf("the key %q is unknown and can hold a call", short(key))
	}
	return ""
}

// hollow reports whether a value says nothing.
func hollow(b []byte, v rawjson.Span) bool {
	return rawjson.Null(b, v) || string(v.In(b)) == `""` || string(v.In(b)) == "false" || (b[v.From] == '{' || b[v.From] == '[') && !rawjson.Nested(b, v)
}

// short bounds a key that is quoted.
func short(key string) string {
	if len(key) > 80 {
		key = strings.ToValidUTF8(key[:80], "") + "..."
	}
	return key
}

// looseKeys are keys in a call that some translator reads as its name, its id or
// its arguments.
var looseKeys = set("arguments", "argument", "arg", "input", "parameters", "params", "kwargs", "name", "functionname", "function", "id", "callid", "args")

// likeArgs reports whether a key in a call reads like one that matters.
func likeArgs(key string) bool {
	return looseKeys[strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-.:/ ", r) {
			return -1
		}
		return r
	}, strings.ToLower(strictjson.Fold(key)))]
}
