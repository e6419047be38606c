package catalog

import (
	"reflect"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect/toolcall"
)

// maxDepth is how many wrappers and nested objects are looked through. What
// lies deeper is given out as one command of toolcall.LangUnknown.
const maxDepth = 16

// Actions says what a call does, given the tools that its request offered. It
// never returns nothing. The arguments must be strict JSON, as dialects check
// it; of a call with a Fault only the tool is told.
//
// A known tool is read as the catalogue says. In all tools, known or not, an
// argument that is named like a command is given out as one, unless the
// catalogue says it is none; in unknown ones at any depth.
func (c *Catalog) Actions(call toolcall.Call, tools []toolcall.Tool) []toolcall.Action {
	if call.Fault != toolcall.FaultNone {
		return []toolcall.Action{{Kind: toolcall.KindTool, Tool: call.Name}}
	}
	if call.Text {
		return c.textActions(call.Name, string(call.Args))
	}
	r := reader{c: c}
	if i := slices.IndexFunc(tools, func(t toolcall.Tool) bool { return t.Name == call.Name }); i >= 0 {
		r.tool = &tools[i]
	}
	args := gjson.ParseBytes(call.Args)
	r.budget = 1<<20 + 16*len(args.Raw)
	r.call(call.Name, args, 0)
	if r.budget < 0 {
		r.unread(call.Name, args)
	}
	return r.out
}

// reader collects the actions of one call.
type reader struct {
	c    *Catalog
	tool *toolcall.Tool // as declared; nil when it is not, or within a wrapper
	out  []toolcall.Action
	// budget is how many more bytes may be looked at. Arguments can be read in
	// several ways at each level, so that nesting them multiplies the work;
	// what a call within reason holds is far below it. Once it is spent, the
	// rest is left and the call is given out as one that nobody could read.
	budget int
}

// spend takes a value's size off the budget and says whether there was enough.
func (r *reader) spend(v gjson.Result) bool {
	if r.budget >= 0 {
		r.budget -= len(v.Raw) + 64
	}
	return r.budget >= 0
}

// field is one argument.
type field struct {
	key   string // as it came
	name  string // folded
	value gjson.Result
}

func fields(object gjson.Result) []field {
	var fs []field
	object.ForEach(func(k, v gjson.Result) bool {
		fs = append(fs, field{k.String(), fold(k.String()), v})
		return true
	})
	return fs
}

// firstString gives the first of the names that holds text.
func firstString(fs []field, names []string) string {
	for _, n := range names {
		for _, f := range fs {
			if f.name == n && f.value.Type == gjson.String {
				return f.value.String()
			}
		}
	}
	return ""
}

// call reads one call: that of the model, or one within a wrapper.
func (r *reader) call(name string, args gjson.Result, depth int) {
	if !r.spend(args) {
		return
	}
	if depth > maxDepth {
		r.unread(name, args)
		return
	}
	if inner, ok := innerJSON(args); ok {
		r.call(name, inner, depth+1)
		return
	}
	before := len(r.out)
	e, exact := r.c.lookup(name)
	if !exact {
		r.read(name, nil, args, depth)
	}
	if e != nil {
		first := len(r.out)
		r.read(name, e, args, depth)
		if !exact {
			r.guessed(before, first)
		}
	}
	if len(r.out) == before {
		a := toolcall.Action{Kind: toolcall.KindTool, Tool: name, Known: exact}
		switch {
		case e == nil:
		case e.kind == toolcall.KindPermissions:
			a.Kind = e.kind
		case e.kind == toolcall.KindFile && e.op != toolcall.OpRead:
			a.Kind, a.Op, a.Content = e.kind, e.op, []byte(args.Raw)
		}
		r.out = append(r.out, a)
	}
}

// read reads a call by an entry, or without one by names alone.
func (r *reader) read(name string, e *entry, args gjson.Result, depth int) {
	switch {
	case !args.IsObject():
		r.bare(name, e, args, depth)
	case e == nil:
		r.unknown(name, args, depth)
	case e.wrapper != nil:
		r.wrapped(name, e.wrapper, fields(args), depth)
	default:
		r.known(name, e, fields(args), depth)
	}
}

// guessed marks the actions from first on as guesses and drops those that
// stand between before and first already.
func (r *reader) guessed(before, first int) {
	kept := r.out[:first]
	for _, a := range r.out[first:] {
		a.Known = false
		if !slices.ContainsFunc(r.out[before:first], func(b toolcall.Action) bool {
			b.Known = false
			return reflect.DeepEqual(a, b)
		}) {
			kept = append(kept, a)
		}
	}
	r.out = kept
}

// innerJSON gives the object or list that a string holds: some models encode
// arguments twice and some clients decode them twice.
func innerJSON(v gjson.Result) (gjson.Result, bool) {
	if v.Type != gjson.String {
		return v, false
	}
	s := strings.TrimSpace(v.String())
	if s == "" || (s[0] != '{' && s[0] != '[') || !gjson.Valid(s) {
		return v, false
	}
	return gjson.Parse(s), true
}

// bare reads arguments that are no object.
func (r *reader) bare(name string, e *entry, args gjson.Result, depth int) {
	switch {
	case args.Type == gjson.Null || !args.Exists():
	case e != nil && e.kind == toolcall.KindCommand:
		r.command(reading{tool: name, lang: e.language, known: true, argv: len(e.argv) > 0}, args, depth)
	case e == nil && saysShell(name):
		r.command(reading{tool: name, lang: toolcall.LangShell, either: true}, args, depth)
	case args.IsArray():
		r.nested(name, args, depth)
	}
}

// known reads the arguments of a tool that the catalogue has.
func (r *reader) known(name string, e *entry, fs []field, depth int) {
	dir := firstString(fs, e.dir)
	if dir == "" {
		dir = firstString(fs, dirNames)
	}
	op, switched := e.op, false
	if e.switchBy != "" {
		op, switched = e.ops[firstString(fs, []string{e.switchBy})]
	}
	before := len(r.out)
	for _, f := range fs {
		switch {
		case slices.Contains(e.plain, f.name) || switched && f.name == e.switchBy:
		case e.keys && slices.Contains(e.command, f.name) && onlyKeys(f.value):
		case slices.Contains(e.patch, f.name) && f.value.Type == gjson.String && len(patchFiles(f.value.String())) > 0:
			r.patch(name, f.value.String(), dir)
		case slices.Contains(e.command, f.name):
			r.command(reading{
				tool: name, lang: r.language(e.language, name, f, fs), dir: dir, known: true,
				argv: slices.Contains(e.argv, f.name), rest: restOf(fs, f),
			}, f.value, depth)
		case !slices.Contains(e.path, f.name) && !slices.Contains(e.content, f.name) && (namedLikeCommand(f.name) || namedLikeSQL(name, f.name)) && mayBeCommand(f.value):
			r.command(reading{
				tool: name, lang: r.language(toolcall.LangShell, name, f, fs), dir: dir, either: true, rest: restOf(fs, f),
			}, f.value, depth)
		}
	}
	if e.kind == toolcall.KindCommand && len(r.out) == before {
		r.program(name, dir, fs)
	}
	if e.kind == toolcall.KindFile {
		r.files(name, e, op, dir, fs)
	}
	r.escalates(name, e, fs)
}

// onlyKeys says that what is typed into a program holds nothing but the keys
// that interrupt it, end its input or end a line.
func onlyKeys(v gjson.Result) bool {
	return v.Type == gjson.String && strings.Trim(v.String(), "\x03\x04\r\n ") == ""
}

// files gives an action for each path that a file tool names.
func (r *reader) files(name string, e *entry, op toolcall.Op, dir string, fs []field) {
	var paths []string
	var content []byte
	for _, f := range fs {
		switch {
		case slices.Contains(e.path, f.name):
			paths = collect(paths, f.value, e.path, true)
		case slices.Contains(e.content, f.name):
			paths = collect(paths, f.value, e.path, false)
			content = appendContent(content, f.value)
		}
	}
	for _, p := range paths {
		r.out = append(r.out, toolcall.Action{Kind: toolcall.KindFile, Tool: name, Known: true, Dir: dir, Path: p, Op: op, Content: content})
	}
}

// collect appends the strings of a value: all of them when it stands for what
// is looked for, else those below a key of that name.
func collect(out []string, v gjson.Result, names []string, all bool) []string {
	switch {
	case v.Type == gjson.String && all:
		return append(out, v.String())
	case v.IsArray():
		v.ForEach(func(_, e gjson.Result) bool {
			out = collect(out, e, names, all)
			return true
		})
	case v.IsObject():
		v.ForEach(func(k, e gjson.Result) bool {
			out = collect(out, e, names, slices.Contains(names, fold(k.String())))
			return true
		})
	}
	return out
}

// oldNames are the arguments of an edit that hold what is taken away.
var oldNames = []string{"oldtext", "oldstring", "oldstr", "search", "path", "filepath"}

// appendContent appends what is written: a text as it is, and of a list of
// edits every text but those that are replaced.
func appendContent(out []byte, v gjson.Result) []byte {
	switch {
	case v.Type == gjson.String:
		if out == nil {
			out = []byte{} // an empty file is written, too
		} else {
			out = append(out, '\n')
		}
		return append(out, v.String()...)
	case v.IsArray() || v.IsObject():
		v.ForEach(func(k, e gjson.Result) bool {
			if k.Type != gjson.String || !slices.Contains(oldNames, fold(k.String())) {
				out = appendContent(out, e)
			}
			return true
		})
	}
	return out
}

// escalates adds a permissions action when the call asks for more rights.
func (r *reader) escalates(name string, e *entry, fs []field) {
	for _, f := range fs {
		if slices.Contains(e.escalate[f.name], f.value.String()) {
			r.out = append(r.out, toolcall.Action{Kind: toolcall.KindPermissions, Tool: name, Known: true})
			return
		}
	}
}

// wrapped reads a tool that calls other tools.
func (r *reader) wrapped(name string, w *wrapper, fs []field, depth int) {
	r.tool = nil // the declaration is the wrapper's
	if len(w.list) == 0 {
		r.inner(name, w, fs, depth)
		return
	}
	var rest []field
	for _, f := range fs {
		if !slices.Contains(w.list, f.name) {
			rest = append(rest, f)
			continue
		}
		list := f.value
		if v, ok := innerJSON(list); ok {
			list = v
		}
		if !list.IsArray() {
			r.unread(name, list)
			continue
		}
		list.ForEach(func(_, one gjson.Result) bool {
			if v, ok := innerJSON(one); ok {
				one = v
			}
			if one.IsObject() {
				r.inner(name, w, fields(one), depth)
			} else {
				r.unread(name, one)
			}
			return true
		})
	}
	r.unknownFields(name, rest, depth)
}

// inner reads one call of a wrapper. Where several arguments could name the
// tool or hold its arguments, each pair of them is read.
func (r *reader) inner(name string, w *wrapper, fs []field, depth int) {
	var tools []string
	var rest []field
	for _, f := range fs {
		switch {
		case slices.Contains(w.name, f.name) && f.value.Type == gjson.String:
			tools = append(tools, f.value.String())
		case !slices.Contains(w.arguments, f.name):
			rest = append(rest, f)
		}
	}
	if len(tools) == 0 {
		r.unknownFields(name, fs, depth)
		return
	}
	for _, tool := range tools {
		read := false
		for _, f := range fs {
			if slices.Contains(w.arguments, f.name) {
				r.call(tool, f.value, depth+1)
				read = true
			}
		}
		if !read {
			r.flat(tool, w, fs, depth+1)
			return
		}
	}
	r.unknownFields(name, rest, depth)
}

// flat reads a wrapped call whose arguments stand beside its name.
func (r *reader) flat(tool string, w *wrapper, fs []field, depth int) {
	var b strings.Builder
	b.WriteByte('{')
	for _, f := range fs {
		if slices.Contains(w.name, f.name) {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(gjson.AppendJSONString(nil, f.key))
		b.WriteByte(':')
		b.WriteString(f.value.Raw)
	}
	b.WriteByte('}')
	r.call(tool, gjson.Parse(b.String()), depth)
}

// unread gives out a value that could not be taken apart.
func (r *reader) unread(tool string, v gjson.Result) {
	r.out = append(r.out, toolcall.Action{Kind: toolcall.KindCommand, Tool: tool, Command: v.Raw, Language: toolcall.LangUnknown})
}
