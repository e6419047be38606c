// Package catalog says what a tool call does: which tools of known agents run
// commands or touch files, where in their arguments command, path, content and
// directory stand, and how tools that nobody has listed are classed by their
// schema and the names of their arguments. What is known is data
// (catalog.yaml). It knows no wire format and has no opinion on danger; its one
// promise is that no command in the arguments is lost on the way to those who
// have.
package catalog

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"callgate/inspect/toolcall"
)

//go:embed catalog.yaml
var data []byte

// Catalog knows tools. It is never changed after New and safe for concurrent
// use.
type Catalog struct {
	tools map[string]*entry // by folded name
}

// entry is one entry of the data, with folded names.
type entry struct {
	kind     toolcall.Kind
	language string
	command  []string
	argv     []string
	switchBy string
	ops      map[string]toolcall.Op
	path     []string
	content  []string
	patch    []string
	op       toolcall.Op
	dir      []string
	plain    []string
	wrapper  *wrapper
	escalate map[string][]string
	keys     bool
	text     string
}

type wrapper struct{ list, name, arguments []string }

// record is an entry as it stands in the data.
type record struct {
	Tools    []string
	Agents   []string
	Kind     string
	Language string
	Command  []string
	Argv     []string
	Switch   *struct {
		Argument string
		Ops      map[string]string
	}
	Path     []string
	Content  []string
	Patch    []string
	Op       string
	Dir      []string
	Plain    []string
	Wrapper  *struct{ List, Name, Arguments []string }
	Escalate map[string][]string
	Keys     bool
	Text     string
}

// New reads the catalogue that is part of the program. An error means that the
// program was built with a broken one.
func New() (*Catalog, error) { return parse(data) }

func parse(text []byte) (*Catalog, error) {
	var records []record
	if err := yaml.UnmarshalWithOptions(text, &records, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	c := &Catalog{tools: map[string]*entry{}}
	for i, r := range records {
		if len(r.Tools) == 0 {
			return nil, fmt.Errorf("catalog: entry %d names no tool", i)
		}
		e, err := r.entry()
		if err != nil {
			return nil, fmt.Errorf("catalog: entry of %s: %w", r.Tools[0], err)
		}
		for _, name := range r.Tools {
			if old, ok := c.tools[fold(name)]; ok && old != e {
				return nil, fmt.Errorf("catalog: %s stands in two entries", name)
			}
			c.tools[fold(name)] = e
		}
	}
	return c, nil
}

var (
	kinds = map[string]toolcall.Kind{
		"tool": toolcall.KindTool, "command": toolcall.KindCommand,
		"file": toolcall.KindFile, "permissions": toolcall.KindPermissions,
	}
	opWords = map[string]toolcall.Op{
		"": toolcall.OpWrite, "write": toolcall.OpWrite, "read": toolcall.OpRead, "delete": toolcall.OpDelete,
	}
	languages = []string{toolcall.LangShell, toolcall.LangPowerShell, toolcall.LangCmd, toolcall.LangPython, toolcall.LangJavaScript, toolcall.LangSQL}
	textForms = []string{"", "shell", "javascript", "python", "patch"}
)

func (r *record) entry() (*entry, error) {
	e := &entry{
		language: r.Language,
		command:  foldAll(r.Command), argv: foldAll(r.Argv),
		path: foldAll(r.Path), content: foldAll(r.Content), patch: foldAll(r.Patch),
		dir: foldAll(r.Dir), plain: foldAll(r.Plain), keys: r.Keys, text: r.Text,
	}
	var ok bool
	if e.kind, ok = kinds[r.Kind]; !ok {
		return nil, fmt.Errorf("%q is no kind", r.Kind)
	}
	if e.op, ok = opWords[r.Op]; !ok {
		return nil, fmt.Errorf("%q is no operation", r.Op)
	}
	if r.Language == "" {
		e.language = toolcall.LangShell
	}
	if !slices.Contains(languages, e.language) {
		return nil, fmt.Errorf("%q is no language", r.Language)
	}
	if !slices.Contains(textForms, r.Text) {
		return nil, fmt.Errorf("%q is no form of text", r.Text)
	}
	if e.kind == toolcall.KindCommand && len(e.command) == 0 {
		return nil, errors.New("a command tool needs an argument with the command")
	}
	for _, a := range e.argv {
		if !slices.Contains(e.command, a) {
			return nil, fmt.Errorf("argv argument %q is none of the command arguments", a)
		}
	}
	if r.Switch != nil {
		e.switchBy, e.ops = fold(r.Switch.Argument), map[string]toolcall.Op{}
		for word, op := range r.Switch.Ops {
			if e.ops[word], ok = opWords[op]; !ok || op == "" {
				return nil, fmt.Errorf("%q is no operation", op)
			}
		}
	}
	if r.Wrapper != nil {
		e.wrapper = &wrapper{foldAll(r.Wrapper.List), foldAll(r.Wrapper.Name), foldAll(r.Wrapper.Arguments)}
		if len(e.wrapper.name) == 0 || len(e.wrapper.arguments) == 0 {
			return nil, errors.New("a wrapper needs name and arguments")
		}
	}
	if len(r.Escalate) > 0 {
		e.escalate = map[string][]string{}
		for arg, values := range r.Escalate {
			e.escalate[fold(arg)] = values
		}
	}
	return e, nil
}

// lookup finds the entry of a tool. Behind a name space (functions.exec,
// mcp__server__bash) the bare name counts too, but exact is then false: it is
// some server's tool of that name.
func (c *Catalog) lookup(name string) (e *entry, exact bool) {
	if e := c.tools[fold(name)]; e != nil {
		return e, true
	}
	if bare, ok := strings.CutPrefix(name, "functions."); ok {
		if e := c.tools[fold(bare)]; e != nil {
			return e, true
		}
	}
	for _, sep := range []string{"__", ".", ":", "/"} {
		if i := strings.LastIndex(name, sep); i >= 0 {
			if e := c.tools[fold(name[i+len(sep):])]; e != nil {
				return e, false
			}
		}
	}
	return nil, false
}

// fold reduces a name to what two readers that fold case could both take it
// for, without _ and -. Unicode letters that fold to ASCII ones become these.
func fold(s string) string {
	if plain(s) {
		return s
	}
	b := make([]byte, 0, len(s))
	for _, r := range s {
		switch {
		case r == '_' || r == '-' || r == ' ':
		case r < utf8.RuneSelf:
			b = append(b, byte(unicode.ToLower(r)))
		default:
			b = utf8.AppendRune(b, foldRune(r))
		}
	}
	return string(b)
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// foldRune gives the smallest rune that r folds to, in lower case.
func foldRune(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	return unicode.ToLower(least)
}

func foldAll(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fold(n)
	}
	return out
}
