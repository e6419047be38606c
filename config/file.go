package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder reads a YAML file into a Config. It walks the syntax tree itself, so
// that every fault and every setting has its place and nothing is converted
// silently.
type decoder struct {
	file   string
	src    Sources
	c      *Config
	broken *broken
	faults Faults
}

// byteOrderMark begins a text of some editors and means nothing in UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// document reads the whole file.
func (d *decoder) document(text []byte) {
	if !utf8.Valid(text) {
		d.broken.add("")
		d.faults = append(d.faults, Fault{Place: d.file, Reason: "is not UTF-8 text", Remedy: "save it as UTF-8"})
		return
	}
	// Keys that stand twice are found below, all of them.
	f, err := parser.ParseBytes(bytes.TrimPrefix(text, byteOrderMark), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return
	}
	var body ast.Node
	for _, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		if _, ok := doc.Body.(*ast.DirectiveNode); ok {
			d.fault(doc.Body, "", "", "is a directive, which the file cannot have", "leave the line out")
			continue
		}
		if body != nil {
			d.fault(doc.Body, "", "", "begins a second document", "keep one document in the file")
			break
		}
		body = doc.Body
	}
	if body != nil {
		d.mapping("", body, reflect.ValueOf(d.c).Elem())
	}
}

// syntax turns a parser's error into a fault.
func (d *decoder) syntax(err error) {
	d.broken.add("")
	f := Fault{Place: d.file, Reason: err.Error()}
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		f.Place, f.Reason = d.place(ye.GetToken()), ye.GetMessage()
	}
	d.faults = append(d.faults, f)
}

// mapping reads a mapping into a struct.
func (d *decoder) mapping(path string, n ast.Node, v reflect.Value) {
	for key, value := range d.pairs(path, n) {
		i := fieldByKey(v.Type(), key.name)
		full := join(path, key.name)
		if i < 0 {
			d.unknown(key.node, path, key.name, v.Type())
			continue
		}
		d.value(full, value, v.Field(i))
	}
}

// value reads one node into whatever the setting is.
func (d *decoder) value(path string, n ast.Node, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		d.mapping(path, n, v)
		if v.Type() == reflect.TypeFor[Credential]() {
			d.src.byKey[path] = Source{Kind: "file", Place: d.place(firstToken(n))}
		}
	case v.Type() == reflect.TypeFor[Upstreams]():
		d.upstreams(path, n, v.Addr().Interface().(*Upstreams))
	case v.Type() == reflect.TypeFor[Agents]():
		d.agents(path, n, v.Addr().Interface().(*Agents))
	case v.Type() == reflect.TypeFor[Names]():
		d.names(path, n, v.Addr().Interface().(*Names))
	default:
		d.scalar(path, n, v)
	}
}

// upstreams reads NAME: URL and NAME: {url: URL, ...}.
func (d *decoder) upstreams(path string, n ast.Node, into *Upstreams) {
	for key, value := range d.pairs(path, n) {
		full := join(path, key.name)
		var up Upstream
		if _, ok := value.(*ast.MappingNode); ok {
			d.mapping(full, value, reflect.ValueOf(&up).Elem())
		} else {
			d.scalar(full, value, reflect.ValueOf(&up.URL).Elem())
		}
		(*into)[key.name] = up
		if _, ok := d.src.byKey[full]; !ok {
			d.src.byKey[full] = Source{Kind: "file", Place: d.place(value.GetToken())}
		}
	}
}

// agents reads NAME: {token: TOKEN, ...}; what stands there without any
// setting is an agent all the same.
func (d *decoder) agents(path string, n ast.Node, into *Agents) {
	for key, value := range d.pairs(path, n) {
		full := join(path, key.name)
		var a Agent
		d.mapping(full, value, reflect.ValueOf(&a).Elem())
		if *into == nil {
			*into = Agents{}
		}
		(*into)[key.name] = a
		d.src.byKey[full] = Source{Kind: "file", Place: d.place(key.node.GetToken())}
	}
}

// names reads a list of names.
func (d *decoder) names(path string, n ast.Node, into *Names) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.broken.add(path)
		d.fault(n, path, "", "must be a list of names", "write it like [anthropic, openai]")
		return
	}
	*into = Names{}
	for _, item := range list.Values {
		text, kind, ok := scalarText(item)
		if !ok || kind != "text" {
			d.broken.add(path)
			d.fault(item, path, "", "has an item that is no name", "write it like [anthropic, openai]")
			continue
		}
		*into = append(*into, text)
	}
	d.src.byKey[path] = Source{Kind: "file", Place: d.place(n.GetToken())}
}

type keyNode struct {
	name string
	node ast.Node
}

// pairs yields the entries of a mapping. A key without any value below it is
// an empty mapping, as when all its settings are commented out.
func (d *decoder) pairs(path string, n ast.Node) func(yield func(keyNode, ast.Node) bool) {
	return func(yield func(keyNode, ast.Node) bool) {
		var values []*ast.MappingValueNode
		switch m := n.(type) {
		case *ast.MappingNode:
			values = m.Values
		case *ast.MappingValueNode:
			values = []*ast.MappingValueNode{m}
		case *ast.NullNode:
			return
		default:
			d.broken.add(path)
			reason, remedy := "must be a mapping of settings", "write its settings below it, indented"
			if special, what := specialNode(n); special != "" {
				reason, remedy = "is "+special+", which the file cannot have", what
			}
			d.fault(n, path, "", reason, remedy)
			return
		}
		seen := map[string]*token.Token{}
		for _, kv := range values {
			if kv.Key.IsMergeKey() {
				d.fault(kv.Key, path, "", "uses a merge key", "write the settings out")
				continue
			}
			switch kv.Key.(type) {
			case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
			default:
				remedy := "write the key as plain text"
				if _, what := specialNode(kv.Key); what != "" {
					remedy = what
				}
				d.fault(kv.Key, path, "", "has a key that is not plain text", remedy)
				continue
			}
			name := kv.Key.GetToken().Value
			if at, twice := seen[name]; twice {
				d.fault(kv.Key, join(path, name), "", fmt.Sprintf("stands here and in line %d", at.Position.Line), "remove one of the two")
				continue
			}
			seen[name] = kv.Key.GetToken()
			if !yield(keyNode{name, kv.Key}, kv.Value) {
				return
			}
		}
	}
}

// scalar reads a single value into a leaf.
func (d *decoder) scalar(path string, n ast.Node, v reflect.Value) {
	text, kind, ok := scalarText(n)
	if !ok {
		d.broken.add(path)
		what, remedy := nodeWord(n)
		d.fault(n, path, "", "must be a single value, not "+what, remedy)
		return
	}
	shown := text
	if secretKey(path) {
		shown = ""
	}
	if reason, remedy := kindFault(v, kind); reason != "" {
		d.broken.add(path)
		d.fault(n, path, shown, reason, remedy)
		return
	}
	if err := setText(v, text); err != nil {
		d.broken.add(path)
		d.fault(n, path, shown, err.Error(), "")
		return
	}
	d.src.byKey[path] = Source{Kind: "file", Place: d.place(n.GetToken())}
}

// kindFault says why a YAML value of that kind cannot be a setting of v's type.
func kindFault(v reflect.Value, kind string) (reason, remedy string) {
	if kind == "null" {
		return "has no value", "give it one or remove the key"
	}
	if _, ok := v.Interface().(Mode); ok {
		return "", "" // a bare off is a boolean in YAML
	}
	want := "text or number"
	switch v.Interface().(type) {
	case string:
		want = "text"
		remedy = "put it in quotes"
	case bool:
		want = "boolean"
		remedy = "write true or false"
	case int:
		want = "number"
		remedy = "write it without quotes"
	}
	if strings.Contains(want, kind) {
		return "", ""
	}
	return "is a " + kind + " where " + article(want) + " must stand", remedy
}

func article(s string) string {
	if s == "text" {
		return s
	}
	return "a " + s
}

// scalarText gives a scalar's text and which kind YAML takes it for.
func scalarText(n ast.Node) (text, kind string, ok bool) {
	switch s := n.(type) {
	case *ast.StringNode:
		return s.Value, "text", true
	case *ast.LiteralNode:
		return s.Value.Value, "text", true
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, "number", true
	case *ast.BoolNode:
		return fmt.Sprint(s.Value), "boolean", true
	case *ast.NullNode:
		return "", "null", true
	}
	return "", "", false
}

// nodeWord says what a node is that is no single value, and what to do.
func nodeWord(n ast.Node) (what, remedy string) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping", "write one value"
	case *ast.SequenceNode:
		return "a list", "write one value"
	}
	if what, remedy = specialNode(n); what != "" {
		return what, remedy
	}
	return "this", "write one value"
}

// specialNode names a node of those parts of YAML that the file cannot have,
// and says what to do; "" when it is another.
func specialNode(n ast.Node) (what, remedy string) {
	switch s := n.(type) {
	case *ast.AliasNode:
		return "an alias", "write out what it stands for"
	case *ast.AnchorNode:
		return "an anchor", "leave out &" + s.Name.GetToken().Value
	case *ast.TagNode:
		return "a tagged value", "leave out " + s.Start.Value
	}
	return "", ""
}

// unknown reports a key that is no setting.
func (d *decoder) unknown(n ast.Node, path, name string, in reflect.Type) {
	full := join(path, name)
	if u, ok := unsupported(full); ok {
		d.fault(n, full, "", u.reason, u.remedy)
		return
	}
	var keys []string
	for i := range in.NumField() {
		keys = append(keys, in.Field(i).Tag.Get("yaml"))
	}
	remedy := "the settings here are " + strings.Join(keys, ", ")
	if near := nearest(name, keys); near != "" {
		remedy = "did you mean " + near + "?"
		d.broken.mean(join(path, near))
	} else if other := elsewhere(name); other != "" {
		remedy = "did you mean " + other + "?"
		d.broken.mean(other)
	}
	d.fault(n, full, "", "is not a setting", remedy)
}

// elsewhere finds the setting of that name in another place of the file.
func elsewhere(name string) string {
	for _, k := range Keys() {
		if strings.HasSuffix(k, "."+name) {
			return k
		}
	}
	return ""
}

func (d *decoder) fault(n ast.Node, key, value, reason, remedy string) {
	d.faults = append(d.faults, Fault{Place: d.place(firstToken(n)), Key: key, Value: value, Reason: reason, Remedy: remedy})
}

func (d *decoder) place(t *token.Token) string {
	if t == nil || t.Position == nil {
		return d.file
	}
	return fmt.Sprintf("%s:%d:%d", d.file, t.Position.Line, t.Position.Column)
}

// firstToken is where a node begins; a mapping begins at its first key, not at
// the colon behind it.
func firstToken(n ast.Node) *token.Token {
	switch m := n.(type) {
	case *ast.MappingValueNode:
		return m.Key.GetToken()
	case *ast.MappingNode:
		if len(m.Values) > 0 && !m.IsFlowStyle {
			return m.Values[0].Key.GetToken()
		}
	}
	return n.GetToken()
}

func fieldByKey(t reflect.Type, key string) int {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == key {
			return i
		}
	}
	return -1
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
