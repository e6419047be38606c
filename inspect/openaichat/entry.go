package openaichat

import (
	"bytes"
	"fmt"
	"slices"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// part is one entry of tool_calls, or a function_call, taken apart.
type part struct {
	index, id, kind  rawjson.Span
	function, custom rawjson.Span
	extra            rawjson.Span
	trouble          string // why two readers could differ over it
}

// take takes an entry apart. Keys that could be read as another's, or that other
// formats use for what stands elsewhere here, are trouble.
func (r *reader) take(s rawjson.Span) part {
	b := r.b
	var p part
	for w := rawjson.Open(b, s); w.Next(); {
		switch key := string(w.Key.In(b)); key {
		case "index":
			p.index = w.Val
		case "id":
			p.id = w.Val
		case "type":
			p.kind = w.Val
		case "function":
			p.function = w.Val
		case "custom":
			p.custom = w.Val
		case "extra_content":
			if p.extra = w.Val; suspicious(b, w.Key, w.Val) {
				p.trouble = "the entry holds a member that could be read as a part of the call"
			}
		case "name", "arguments", "input", "parameters":
			if !rawjson.Null(b, w.Val) {
				p.trouble = "the entry itself holds " + key
			}
		default:
			if !lower(w.Key.In(b)) || suspicious(b, w.Key, w.Val) {
				p.trouble = "the entry holds a member that could be read as a part of the call"
			}
		}
	}
	for _, s := range []rawjson.Span{p.function, p.custom} {
		if speaks(b, s) {
			p.trouble = "where its name and arguments belong stands text"
		}
	}
	for _, s := range []rawjson.Span{p.id, p.kind} {
		if !rawjson.Null(b, s) && !rawjson.IsString(b, s) {
			p.trouble = "its id or type is no string"
		}
		if torn(b, s) {
			p.trouble = "half a surrogate pair stands in its id or type"
		}
	}
	return p
}

// lower reports whether a key is of lower-case letters, digits and signs, so
// that no reader takes it for another one.
func lower(key []byte) bool {
	for _, c := range key {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// torn reports whether a string holds half a surrogate pair: joined with its
// other half by some readers and lost by others.
func torn(b []byte, s rawjson.Span) bool {
	return rawjson.IsString(b, s) && bytes.Contains(s.In(b), []byte(`\u`)) &&
		strictjson.Validate(s.In(b), strictjson.Options{}) != nil
}

// entry reads one entry of tool_calls.
func (r *reader) entry(ch *choice, e rawjson.Walk) error {
	b := r.b
	if r.entries++; r.entries > r.lim.Calls {
		return r.limit("tool_calls", fmt.Sprintf("one event holds more than %d entries", r.lim.Calls))
	}
	p := r.take(e.Val)
	c, err := r.callOf(ch.lane, p)
	if err != nil {
		return err
	}
	fresh := !c.mentioned
	m := mention{c: c, holder: ch.list, item: e.Item, index: p.index}
	if why := r.past(ch.lane); why != "" {
		c.once(&c.Type, rawjson.Text(b, p.kind), "type")
		c.once(&c.ID, rawjson.Text(b, p.id), "id")
		c.once(&c.Name, rawjson.Text(b, rawjson.Get(b, p.function, "name")), "name")
		r.argue(c, e.Val.In(b))
		r.late(c, why)
		r.mention(ch, m)
		return nil
	}
	if b[e.Val.From] != '{' {
		c.fail(toolcall.FaultUnknown, "an entry of tool_calls is no object")
		r.argue(c, e.Val.In(b))
	}
	if p.trouble != "" {
		c.fail(toolcall.FaultAmbiguous, p.trouble)
	}
	id := rawjson.Text(b, p.id)
	if !fresh && !r.message && c.ID == "" && id != "" {
		c.fail(toolcall.FaultAmbiguous, "its id comes when it has begun, where some clients begin another call")
	}
	ch.lane.identify(c, id)
	if r.repair && !rawjson.Null(b, p.extra) {
		c.extra = slices.Clone(p.extra.In(b))
	}
	kind := word(b, p.kind)
	m.bare = rawjson.Null(b, p.id) && kind == ""
	hasFunction, hasCustom := rawjson.Nested(b, p.function), rawjson.Nested(b, p.custom)
	switch {
	case kind == "" && hasCustom:
		kind = typeCustom
	case kind == "" && hasFunction:
		kind = typeFunction
	}
	c.kind(kind)
	c.Text = c.Type == typeCustom
	switch {
	case c.Type != "" && c.Type != typeFunction && c.Type != typeCustom:
		c.fail(toolcall.FaultUnknown, "a call of type "+c.Type+" is unknown")
		r.argue(c, e.Val.In(b))
	case hasFunction && (hasCustom || c.Text):
		c.fail(toolcall.FaultAmbiguous, "it is a function and a custom tool at once")
		m.inner, m.key = p.function, "arguments"
	case c.Text:
		m.inner, m.key = p.custom, "input"
	default:
		m.inner, m.key = p.function, "arguments"
	}
	r.inner(c, &m)
	r.follow(ch.lane, c, fresh)
	r.mention(ch, m)
	return nil
}

// follow looks at how what was read of a call follows what stands before it in
// a stream.
func (r *reader) follow(l *lane, c *call, fresh bool) {
	if c.Name == "" && len(c.Args) > 0 {
		// Clients that begin a call at its name lose what comes before it.
		c.fail(toolcall.FaultAmbiguous, "its arguments begin before its name")
	}
	switch {
	case r.message:
	case fresh:
		l.begin(c)
	default:
		l.goOn(c)
	}
}

// callOf finds the call that an entry belongs to, or makes one.
func (r *reader) callOf(l *lane, p part) (*call, error) {
	b := r.b
	n, ok := rawjson.Whole(b, p.index)
	if r.message || r.past(l) != "" {
		c, err := r.add(l, "")
		if err == nil && r.message && ok {
			l.number(c, n)
		}
		return c, err
	}
	if !rawjson.Null(b, p.index) {
		if c := l.find(n); c != nil && ok {
			return c, nil
		}
		c, err := r.add(l, "")
		if err != nil {
			return nil, err
		}
		if ok {
			l.number(c, n)
		} else {
			c.fail(toolcall.FaultAmbiguous, "its index is no whole number")
		}
		r.mixed(l, c)
		return c, nil
	}
	// Some servers give a call whole and leave its index out. Where one goes
	// on without an index clients do not agree on which one that is.
	if rawjson.Text(b, p.id) == "" && rawjson.Text(b, rawjson.Get(b, p.function, "name")) == "" && rawjson.Text(b, rawjson.Get(b, p.custom, "name")) == "" {
		for i := len(l.calls) - 1; i >= 0; i-- {
			if c := l.calls[i]; !c.announced {
				c.fail(toolcall.FaultAmbiguous, "it goes on without an index")
				return c, nil
			}
		}
	}
	c, err := r.add(l, "")
	if err != nil {
		return nil, err
	}
	r.mixed(l, c)
	return c, nil
}

// mixed marks a call that has an index where others of its lane have none, or
// the other way round: clients number those in ways of their own.
func (r *reader) mixed(l *lane, c *call) {
	for _, o := range l.calls {
		if o != c && o.Type != typeLegacy && !o.announced && o.indexed != c.indexed {
			o.fail(toolcall.FaultAmbiguous, "some calls of its choice have an index and others have none")
			c.fail(toolcall.FaultAmbiguous, "some calls of its choice have an index and others have none")
		}
	}
}

// inner reads the object that holds a call's name and arguments.
func (r *reader) inner(c *call, m *mention) {
	b := r.b
	if rawjson.Null(b, m.inner) {
		m.inner = rawjson.Span{}
		return
	}
	if b[m.inner.From] != '{' {
		c.fail(toolcall.FaultAmbiguous, "where its name and arguments belong stands no object")
		return
	}
	for w := rawjson.Open(b, m.inner); w.Next(); {
		switch key := string(w.Key.In(b)); key {
		case "name":
			if !rawjson.Null(b, w.Val) && !rawjson.IsString(b, w.Val) || torn(b, w.Val) {
				c.fail(toolcall.FaultAmbiguous, "its name is no string that all clients read alike")
			}
			name := rawjson.Text(b, w.Val)
			c.once(&c.Name, name, "name")
			m.bare = m.bare && name == ""
		case m.key:
			m.args = w.Val
			r.arguments(c, w.Val)
		case "arguments", "input", "parameters":
			if !rawjson.Null(b, w.Val) {
				c.fail(toolcall.FaultAmbiguous, "it holds "+key+" beside its "+m.key)
			}
		default:
			if !lower(w.Key.In(b)) {
				c.fail(toolcall.FaultAmbiguous, "it holds a member that could be read as another one")
			}
		}
	}
}

// arguments takes in a piece of a call's arguments.
func (r *reader) arguments(c *call, s rawjson.Span) {
	b := r.b
	switch {
	case rawjson.Null(b, s):
	case rawjson.IsString(b, s):
		if torn(b, s) {
			c.fail(toolcall.FaultAmbiguous, "half a surrogate pair stands in its arguments")
		}
		if c.object && s.To-s.From > 2 {
			c.fail(toolcall.FaultAmbiguous, "its arguments come as an object and as text")
		}
		r.unescape(s.In(b))
		r.argue(c, r.room)
	case b[s.From] == '{' && !c.Text:
		// Some servers give the arguments as the object itself.
		if len(c.Args) > 0 {
			c.fail(toolcall.FaultAmbiguous, "its arguments come more than once")
		}
		c.object = true
		r.argue(c, s.In(b))
	default:
		c.fail(toolcall.FaultArguments, "its arguments are neither text nor an object")
		r.argue(c, s.In(b))
	}
}

// unescape puts what a string stands for into room.
func (t *turn) unescape(lit []byte) {
	if t.room == nil {
		t.room = t.one.room[:0]
	}
	t.room = strictjson.AppendString(t.room[:0], lit)
}

// legacy reads a function_call, the form before tool_calls.
func (r *reader) legacy(ch *choice, w rawjson.Walk) error {
	b, l := r.b, ch.lane
	if speaks(b, w.Val) {
		return r.stray(&ch.mentions, l.n, ch.body, w, toolcall.FaultUnknown)
	}
	if !rawjson.Nested(b, w.Val) {
		return nil
	}
	c := l.older
	why := r.past(l)
	if c == nil || r.message || why != "" {
		if hollow(b, w.Val) {
			return nil // servers that fill in every field
		}
		var err error
		if c, err = r.add(l, typeLegacy); err != nil {
			return err
		}
		if why == "" {
			l.older = c
		}
	}
	fresh := !c.mentioned
	m := mention{c: c, holder: ch.body, item: w.Item, inner: w.Val, key: "arguments", bare: true}
	if why != "" {
		r.argue(c, w.Val.In(b))
		r.late(c, why)
		r.mention(ch, m)
		return nil
	}
	r.inner(c, &m)
	r.follow(l, c, fresh)
	r.mention(ch, m)
	return nil
}

// hollow reports whether every member of an object says nothing.
func hollow(b []byte, s rawjson.Span) bool {
	w := rawjson.Open(b, s)
	for w.Next() {
		if !empty(b, w.Val) {
			return false
		}
	}
	return true
}

// speaks reports whether a value is text where an object or a list belongs. Some
// clients read such text as JSON once more.
func speaks(b []byte, s rawjson.Span) bool { return rawjson.IsString(b, s) && s.To-s.From > 2 }

// empty reports whether a value says nothing: missing, null, "" or one without
// members.
func empty(b []byte, s rawjson.Span) bool {
	return rawjson.Null(b, s) || rawjson.IsString(b, s) && s.To-s.From == 2 || (b[s.From] == '{' || b[s.From] == '[') && !rawjson.Nested(b, s)
}
