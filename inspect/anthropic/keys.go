package anthropic

import (
	"strconv"
	"strings"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// key is a key of an answer that is read somewhere.
type key uint8

// The keys. Which of them are read at a level is said by a keySet.
const (
	otherKey key = iota // any that is not in the list
	keyType
	keyIndex
	keyMessage
	keyContentBlock
	keyDelta
	keyUsage
	keyError
	keyRequestID
	keyContextManagement
	keyInputTransformations
	keyID
	keyRole
	keyModel
	keyContent
	keyStopReason
	keyStopSequence
	keyStopDetails
	keyContainer
	keyName
	keyInput
	keyCaller
	keyToolsetName
	keyText
	keyCitations
	keyThinking
	keySignature
	keyData
	keyToolUseID
	keyServerName
	keyIsError
	keyPartialJSON
	keyCitation
	keyEstimatedTokens
	keyEncryptedContent
	numKeys
)

var keyNames = [numKeys]string{
	keyType: "type", keyIndex: "index", keyMessage: "message", keyContentBlock: "content_block", keyDelta: "delta", keyUsage: "usage",
	keyError: "error", keyRequestID: "request_id", keyContextManagement: "context_management", keyInputTransformations: "input_transformations",
	keyID: "id", keyRole: "role", keyModel: "model", keyContent: "content", keyStopReason: "stop_reason", keyStopSequence: "stop_sequence",
	keyStopDetails: "stop_details", keyContainer: "container", keyName: "name", keyInput: "input", keyCaller: "caller",
	keyToolsetName: "toolset_name", keyText: "text", keyCitations: "citations", keyThinking: "thinking", keySignature: "signature",
	keyData: "data", keyToolUseID: "tool_use_id", keyServerName: "server_name", keyIsError: "is_error", keyPartialJSON: "partial_json",
	keyCitation: "citation", keyEstimatedTokens: "estimated_tokens", keyEncryptedContent: "encrypted_content",
}

// keysByName finds a key that is written as it should be.
var keysByName = func() map[string]key {
	m := make(map[string]key, numKeys)
	for k := otherKey + 1; k < numKeys; k++ {
		m[keyNames[k]] = k
	}
	return m
}()

// keysByFold finds a key by its folded form.
var keysByFold = func() map[string]key {
	m := make(map[string]key, numKeys)
	for name, k := range keysByName {
		m[strictjson.Fold(name)] = k
	}
	return m
}()

// keysByLen holds the keys by the length of their names, of which few share one.
var keysByLen = func() (t [][]key) {
	for k := otherKey + 1; k < numKeys; k++ {
		n := len(keyNames[k])
		for len(t) <= n {
			t = append(t, nil)
		}
		t[n] = append(t[n], k)
	}
	return t
}()

// keyOf gives the key that is written so, letter for letter.
func keyOf(raw []byte) key {
	if len(raw) >= len(keysByLen) {
		return otherKey
	}
	for _, k := range keysByLen[len(raw)] {
		if keyNames[k] == string(raw) {
			return k
		}
	}
	return otherKey
}

// keySet is a set of keys, a bit for each.
type keySet uint64

func keys(list ...key) (s keySet) {
	for _, k := range list {
		s |= 1 << k
	}
	return s
}

func (s keySet) has(k key) bool { return s&(1<<k) != 0 }

// The keys that are read at each level of an answer. A key that only looks
// like one of them to a reader that ignores case or undoes escapes makes its
// object ambiguous. The arguments of a call are another level: any key may
// stand there.
var (
	eventKeys = keys(keyType, keyIndex, keyMessage, keyContentBlock, keyDelta, keyUsage, keyError, keyRequestID,
		keyContextManagement, keyInputTransformations)
	messageKeys = keys(keyType, keyID, keyRole, keyModel, keyContent, keyStopReason, keyStopSequence, keyStopDetails, keyUsage,
		keyContainer, keyContextManagement, keyInputTransformations, keyError, keyRequestID)
	blockKeys = keys(keyType, keyID, keyName, keyInput, keyCaller, keyToolsetName, keyText, keyCitations, keyThinking,
		keySignature, keyData, keyContent, keyToolUseID, keyServerName, keyIsError)
	deltaKeys = keys(keyType, keyText, keyThinking, keySignature, keyPartialJSON, keyCitation, keyEstimatedTokens,
		keyContent, keyEncryptedContent, keyStopReason, keyStopSequence, keyStopDetails, keyContainer)
)

// The keys whose values may be objects or arrays that no client runs anything
// from, at each level. Under any other key such a value must not look like a
// call.
var (
	quietMessageStart = keys(keyMessage)
	quietBlockStart   = keys(keyContentBlock)
	quietBlockDelta   = keys(keyDelta)
	quietMessageDelta = keys(keyDelta, keyUsage, keyContextManagement, keyInputTransformations)

	quietMessage = keys(keyContent, keyUsage, keyContainer, keyContextManagement, keyInputTransformations, keyStopDetails)
	quietDelta   = keys(keyCitation, keyPartialJSON)
	quietFinish  = keys(keyStopDetails, keyContainer)
	quietText    = keys(keyCitations)
	quietCall    = keys(keyInput, keyCaller)
	quietError   = keys()
)

// quietIn gives the quiet keys of an event.
func quietIn(typ []byte) keySet {
	switch string(typ) {
	case "message_start":
		return quietMessageStart
	case "content_block_start":
		return quietBlockStart
	case "content_block_delta":
		return quietBlockDelta
	case "message_delta":
		return quietMessageDelta
	}
	return quietError
}

// allQuiet leaves all that stands under keys alone.
const allQuiet = ^keySet(0)

// members are the values of an object by their keys.
type members [numKeys]rawjson.Span

// flaw is what keeps an object from being read one way only.
type flaw struct {
	fault  toolcall.Fault
	reason string
}

// level reads the members of one object, and checks them: its keys are those
// of known or unlike them, and what stands under keys other than quiet ones is
// no call. The text must have passed strictjson.
func level(b []byte, obj rawjson.Span, known, quiet keySet, m *members) (f flaw) {
	if !rawjson.IsObject(b, obj) {
		return flaw{toolcall.FaultAmbiguous, "an object is wanted"}
	}
	for w := rawjson.Open(b, obj); w.Next(); {
		k := keyOf(w.Key.In(b))
		if !known.has(k) {
			if also := unlisted(b, &w, k, known, quiet, m); f.reason == "" {
				f = also
			}
			continue
		}
		m[k] = w.Val
		if f.reason == "" && k != keyType && !quiet.has(k) && holds(b, k, w.Val) {
			f = looksLikeACall(keyNames[k])
		}
	}
	return f
}

// unlisted checks a member whose key is not known at its level.
func unlisted(b []byte, w *rawjson.Walk, k key, known, quiet keySet, m *members) flaw {
	name := rawjson.KeyText(b, w.Key)
	if k == otherKey {
		if like := keysByFold[strictjson.Fold(name)]; known.has(like) {
			if name == keyNames[like] {
				m[like] = w.Val // once its escapes are undone
			}
			return flaw{toolcall.FaultAmbiguous, "the key " + strconv.Quote(string(w.Key.In(b))) + " reads like " + strconv.Quote(keyNames[like]) + " and is not written so"}
		}
	}
	if !quiet.has(otherKey) && callUnder(b, name, w.Val) {
		return looksLikeACall(name)
	}
	return flaw{}
}

func looksLikeACall(key string) flaw {
	return flaw{toolcall.FaultUnknown, "what stands under " + strconv.Quote(key) + " looks like a call"}
}

// member gives the value of an object's member, also when its key is written
// with escapes.
func member(b []byte, obj rawjson.Span, name string) rawjson.Span {
	for w := rawjson.Open(b, obj); w.Next(); {
		if w.Is(name) || escaped(w.Key.In(b)) && rawjson.KeyText(b, w.Key) == name {
			return w.Val
		}
	}
	return rawjson.Span{}
}

// callKeys are keys under which calls hand over what they do, in this and in
// other providers' formats.
var callKeys = set("input", "arguments", "args", "partial_json", "tool_use", "tool_calls", "tool_call", "function_call",
	"functioncall", "tooluse", "function", "content_block")

// listedCallKeys are those of them that are also keys of an answer.
var listedCallKeys = func() (s keySet) {
	for name := range callKeys {
		if k := keysByName[name]; k != otherKey {
			s |= keys(k)
		}
	}
	return s
}()

// holds is callUnder for a key that is in the list, and is no type.
func holds(b []byte, k key, value rawjson.Span) bool {
	switch b[value.From] {
	case '"':
		return listedCallKeys.has(k)
	case '{', '[':
		return listedCallKeys.has(k) || callShaped(b, value)
	}
	return false
}

// callShaped reports whether a value holds anything that some client could
// take for a call: by its keys, or by the type that an object in it names.
func callShaped(b []byte, v rawjson.Span) bool {
	for w := rawjson.Open(b, v); w.Next(); {
		if callUnder(b, rawjson.KeyText(b, w.Key), w.Val) {
			return true
		}
	}
	return false
}

// callUnder is callShaped for a value and the key that it stands under, ""
// for an element of an array.
func callUnder(b []byte, name string, value rawjson.Span) bool {
	text := rawjson.IsString(b, value)
	if !text && !rawjson.IsObject(b, value) && !rawjson.IsArray(b, value) {
		return false
	}
	name = strings.ToLower(name)
	switch {
	case callKeys[name]:
		return true
	case !text:
		return callShaped(b, value)
	case name == "type":
		word := strings.ToLower(rawjson.Text(b, value))
		return strings.Contains(word, "tool") || strings.Contains(word, "call") || strings.Contains(word, "function")
	}
	return false
}

func set(words ...string) map[string]bool {
	m := make(map[string]bool, len(words))
	for _, w := range words {
		m[w] = true
	}
	return m
}
