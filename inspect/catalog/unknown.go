package catalog

import (
	"slices"

	"github.com/tidwall/gjson"

	"callgate/inspect/toolcall"
)

// unknown reads the arguments of a tool that nobody has listed.
func (r *reader) unknown(name string, args gjson.Result, depth int) {
	if depth > maxDepth {
		r.unread(name, args)
		return
	}
	r.unknownFields(name, fields(args), depth)
}

// unknownFields reads arguments by their names alone.
func (r *reader) unknownFields(name string, fs []field, depth int) {
	declared := r.declared()
	r.tool = nil // the schema speaks of the outermost arguments only
	dir := firstString(fs, dirNames)
	before := len(r.out)
	for _, f := range fs {
		if (namedLikeCommand(f.name) || namedLikeSQL(name, f.name)) && mayBeCommand(f.value) {
			r.command(reading{
				tool: name, lang: r.language(toolcall.LangShell, name, f, fs), dir: dir,
				known: slices.Contains(declared, f.name), either: true, rest: restOf(fs, f),
			}, f.value, depth)
			continue
		}
		if !slices.Contains(contentNames, f.name) || f.value.Type != gjson.String {
			r.nested(name, f.value, depth)
		}
	}
	if len(r.out) == before {
		r.program(name, dir, fs)
	}
	r.innerCall(fs, depth)
	r.file(name, fs, declared, dir)
}

// nested looks for commands within a value of an unknown tool.
func (r *reader) nested(name string, v gjson.Result, depth int) {
	if !r.spend(v) {
		return
	}
	if in, ok := innerJSON(v); ok {
		v = in
	}
	switch {
	case v.IsObject():
		r.unknown(name, v, depth+1)
	case v.IsArray():
		if depth > maxDepth {
			r.unread(name, v)
			return
		}
		v.ForEach(func(_, e gjson.Result) bool {
			r.nested(name, e, depth+1)
			return true
		})
	}
}

// innerCall reads arguments that look like another call: a name of a known
// tool beside an object of arguments.
func (r *reader) innerCall(fs []field, depth int) {
	for _, n := range fs {
		if n.value.Type != gjson.String || !slices.Contains([]string{"name", "tool", "toolname", "function", "recipientname"}, n.name) {
			continue
		}
		if e, _ := r.c.lookup(n.value.String()); e == nil {
			continue
		}
		for _, f := range fs {
			if slices.Contains([]string{"arguments", "args", "parameters", "input", "params", "toolinput", "toolarguments"}, f.name) {
				r.call(n.value.String(), f.value, depth+1)
			}
		}
	}
}

// file classes arguments with a path: with content they write, and the tool's
// name may say that they read or delete.
func (r *reader) file(name string, fs []field, declared []string, dir string) {
	var paths []field
	var content []byte
	var contentName string
	for _, f := range fs {
		switch {
		case slices.Contains(pathNames, f.name) && f.value.Type == gjson.String:
			paths = append(paths, f)
		case slices.Contains(contentNames, f.name):
			if c := appendContent(content, f.value); c != nil {
				content, contentName = c, f.name
			}
		}
	}
	op := toolcall.OpWrite
	switch {
	case saysAny(name, deleteWords):
		op = toolcall.OpDelete
	case content != nil:
	case saysAny(name, readWords):
		op = toolcall.OpRead
	default:
		return
	}
	for _, p := range paths {
		r.out = append(r.out, toolcall.Action{
			Kind: toolcall.KindFile, Tool: name, Dir: dir, Path: p.value.String(), Op: op, Content: content,
			Known: slices.Contains(declared, p.name) && slices.Contains(declared, contentName),
		})
	}
}

// declared lists the folded names of the properties in the tool's schema.
func (r *reader) declared() []string {
	if r.tool == nil || len(r.tool.Schema) == 0 || !gjson.ValidBytes(r.tool.Schema) {
		return nil
	}
	var names []string
	gjson.GetBytes(r.tool.Schema, "properties").ForEach(func(k, v gjson.Result) bool {
		switch v.Get("type").String() {
		case "", "string", "array", "object":
			names = append(names, fold(k.String()))
		}
		return true
	})
	return names
}
