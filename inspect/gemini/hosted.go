package gemini

import (
	"bytes"
	"slices"
	"strings"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// notHosted says why a part that is said to be run by the provider may yet be
// run by the client, "" when it cannot: agents with an executor of their own run
// the code in such a part when the provider was not asked to.
func (t *turn) notHosted(b []byte, kind string, v rawjson.Span) string {
	if !rawjson.IsObject(b, v) {
		return "no object stands there"
	}
	for w := rawjson.Open(b, v); w.Next(); {
		switch key := rawjson.KeyText(b, w.Key); {
		case slices.Contains(hostedMembers, key):
		case rawjson.IsObject(b, w.Val), rawjson.IsArray(b, w.Val): // and what may be a call in it
			return "it holds " + short(key) + ", which no such part has"
		}
	}
	word := bare(rawjson.Text(b, rawjson.Get(b, v, "toolType")))
	offered := false
	for i := range t.tools {
		tool := &t.tools[i]
		switch {
		case !tool.Hosted && kind == "toolCall" && bare(tool.Name) == word:
			return "it names a tool of the client's"
		case tool.Hosted && kind == "executableCode":
			offered = offered || bare(tool.Type) == "CODEEXECUTION"
		case tool.Hosted:
			offered = true
		}
	}
	if offered {
		return ""
	}
	return "the request offered no tool that the provider runs in this way"
}

// hostedMembers are those of parts that the provider runs (Gemini API, Part).
var hostedMembers = []string{"id", "language", "code", "toolType", "args"}

// bare is a name as the most careless reader compares it.
func bare(name string) string { return strings.ReplaceAll(strictjson.Fold(name), "_", "") }

// hosted records what the provider runs itself: it cannot be ruled on.
func (t *turn) hosted(b []byte, kind string, v rawjson.Span, l *lane) {
	h := toolcall.Call{Seq: t.owned, Lane: l.n, Type: kind, Name: "code_execution"}
	t.owned++
	args := v
	if kind == "toolCall" {
		h.Name, h.ID = rawjson.Text(b, rawjson.Get(b, v, "toolType")), rawjson.Text(b, rawjson.Get(b, v, "id"))
		args = rawjson.Get(b, v, "args")
	}
	if h.Args = []byte("{}"); rawjson.IsObject(b, args) {
		h.Args = bytes.Clone(args.In(b))
	}
	if f := checkArgs(h.Args, t.lim.Depth); f.reason != "" {
		h.Fault, h.Detail = f.fault, f.reason
	}
	t.weight += len(h.Args)
	t.step.Hosted = append(t.step.Hosted, h)
}
