package detect

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// shellReader reads POSIX shell and bash text, and the other variants of the
// parser where bash does not understand it.
type shellReader struct{}

// shell walks one script. A subshell is a copy with a scope of its own.
type shell struct {
	r       *run
	t       text
	vars    *scope
	funcs   map[string]*function
	aliases map[string]string
	// dir is the working directory, with a hole when it is not known.
	dir string
	// params are $1 and so on, nil when not known.
	params []field
	// maybe counts the enclosing branches and loops: what stands there may be
	// skipped.
	maybe int
}

// function is a function of the script.
type function struct {
	body   *syntax.Stmt
	t      text
	active int
	called bool
	done   map[string]stream
}

var shellNames = map[string]bool{
	"sh": true, "bash": true, "zsh": true, "ksh": true, "dash": true, "ash": true, "mksh": true, "rbash": true, "fish": true,
	"csh": true, "tcsh": true, "yash": true, "elvish": true, "pdksh": true, "oksh": true, "posh": true, "hush": true, "ksh93": true, "lksh": true, "bosh": true, "nu": true, "xonsh": true, "osh": true,
}

// shellFiles are start-up files written in shell.
var shellFiles = map[string]bool{
	".bashrc": true, ".bash_profile": true, ".bash_login": true, ".bash_logout": true, ".bash_aliases": true, ".profile": true, ".zshrc": true, ".zprofile": true,
	".zshenv": true, ".zlogin": true, ".kshrc": true, ".envrc": true, "bash.bashrc": true, "profile": true, "rc.local": true,
}

func (shellReader) read(r *run, t text) {
	s := (&shell{r: r, t: t, funcs: map[string]*function{}, aliases: map[string]string{}, dir: t.dir, params: t.args}).sub()
	s.script(t)
	s.uncalled(nil)
}

// script parses t and walks it in s, and gives what it prints.
func (s *shell) script(t text) stream {
	old := s.t
	s.t = t
	defer func() { s.t = old }()
	s.r.bytes(len(t.s) * 8) // parsing costs more than copying
	stmts := s.parse(t)
	return s.stmts(stmts, t.in)
}

// uncalled walks the functions that the script defines and never calls, other
// than those it was given; a later command may call them.
func (s *shell) uncalled(given map[string]*function) {
	if len(s.funcs) == 0 {
		return
	}
	for _, n := range slices.Sorted(maps.Keys(s.funcs)) {
		if f := s.funcs[n]; !f.called && given[n] != f {
			s.callFunc(f, nil, stream{})
		}
	}
}

// parse gives the statements of t. When no variant can read all of it, that is
// a finding, and the statements before the error are given.
func (s *shell) parse(t text) []*syntax.Stmt {
	var first error
	for v := range variants {
		p := takeParser(v)
		f, err := p.Parse(s.r.reader(t.s), "")
		putParser(v, p)
		if s.r.deep {
			panic(stop{"nesting"})
		}
		if err == nil {
			return f.Stmts
		}
		if first == nil {
			first = err
		}
	}
	at, why := t.at, first.Error()
	var pe syntax.ParseError
	var le syntax.LangError
	switch {
	case errors.As(first, &pe):
		why = fmt.Sprintf("line %d, column %d: %s", pe.Pos.Line(), pe.Pos.Col(), pe.Text)
		if o := int(pe.Pos.Offset()); t.exact && o < len(t.s) {
			at = span{t.at.start + o, t.at.end}
		}
	case errors.As(first, &le):
		why = fmt.Sprintf("line %d, column %d: %s", le.Pos.Line(), le.Pos.Col(), le.Feature)
	}
	s.r.report("shell.unreadable", at, why)
	var got []*syntax.Stmt
	p := takeParser(0)
	defer putParser(0, p)
	for st, err := range p.StmtsSeq(s.r.reader(t.s)) {
		if err != nil { // the one above
			break
		}
		got = append(got, st)
	}
	return got
}

// span gives the place of a node in the action's text.
func (s *shell) span(n syntax.Node) span {
	if !s.t.exact {
		return s.t.at
	}
	return span{s.t.at.start + int(n.Pos().Offset()), s.t.at.start + int(n.End().Offset())}
}

// sub gives a copy of s for a subshell.
func (s *shell) sub() *shell {
	c := &struct { // one piece of memory for both
		s    shell
		vars scope
	}{*s, scope{up: s.vars}}
	c.s.vars = &c.vars
	return &c.s
}

// stmts walks a list of statements.
func (s *shell) stmts(list []*syntax.Stmt, in stream) stream {
	var few [4]string // most lists are short
	out := collector{parts: few[:0]}
	for _, st := range list {
		out.add(s.stmt(st, in))
	}
	return out.stream(s)
}

// stmt walks one statement with its redirects.
func (s *shell) stmt(st *syntax.Stmt, in stream) stream {
	s.r.step(2)
	s.r.enter()
	defer s.r.leave()
	var outs []redirect
	for _, rd := range st.Redirs {
		if o, ok := s.redirect(rd, &in); ok {
			outs = append(outs, o)
		}
	}
	if st.Cmd == nil {
		for _, o := range outs {
			s.writeTo(o, stream{known: true})
		}
		if len(outs) == 0 { // $(<file)
			return in
		}
		return stream{known: true}
	}
	out := s.command(st.Cmd, in)
	for _, o := range outs {
		s.writeTo(o, out)
	}
	for _, o := range outs {
		if o.stdout {
			return stream{known: true}
		}
	}
	return out
}

// redirect is an output redirect.
type redirect struct {
	to     field
	stdout bool
	append bool
}

// redirect evaluates a redirect. Input becomes in; output is given back, to be
// done when it is known what the command prints.
func (s *shell) redirect(rd *syntax.Redirect, in *stream) (redirect, bool) {
	s.r.step(1)
	switch rd.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		*in = s.heredoc(rd)
		return redirect{}, false
	case syntax.WordHdoc:
		f := s.one(rd.Word)
		*in = f.stream()
		in.text += "\n"
		return redirect{}, false
	}
	to := s.one(rd.Word)
	if s.netRedirect(to) {
		in.from |= fromNet
		return redirect{}, false
	}
	switch rd.Op {
	case syntax.RdrIn:
		*in = s.readFrom(to)
		return redirect{}, false
	case syntax.DplIn:
		return redirect{}, false
	case syntax.DplOut:
		if strings.Trim(to.text, "0123456789-") == "" {
			return redirect{}, false
		}
	}
	stdout := rd.N == nil || rd.N.Value == "1"
	return redirect{to: to, stdout: stdout, append: rd.Op == syntax.AppOut || rd.Op == syntax.AppAll || rd.Op == syntax.RdrInOut}, true
}

// heredoc gives the text of a here-document.
func (s *shell) heredoc(rd *syntax.Redirect) stream {
	if rd.Hdoc == nil {
		return stream{known: true}
	}
	quotedWord := false
	for _, p := range rd.Word.Parts {
		l, ok := p.(*syntax.Lit)
		quotedWord = quotedWord || !ok || strings.IndexByte(l.Value, '\\') >= 0
	}
	if quotedWord {
		t := rd.Hdoc.Lit()
		s.r.bytes(len(t))
		return stream{text: t, known: true}
	}
	b := &builder{cur: []field{{}}}
	s.quoted(b, rd.Hdoc.Parts, false)
	f := b.cur[0]
	if len(b.cur) > 1 {
		f.text = hole
	}
	return f.stream()
}

// command walks a command and gives what it prints.
func (s *shell) command(c syntax.Command, in stream) stream {
	switch c := c.(type) {
	case *syntax.CallExpr:
		return s.callExpr(c, in)
	case *syntax.BinaryCmd:
		return s.binary(c, in)
	case *syntax.Block:
		return s.stmts(c.Stmts, in)
	case *syntax.Subshell:
		return s.sub().stmts(c.Stmts, in)
	case *syntax.IfClause:
		return s.ifClause(c, in)
	case *syntax.WhileClause:
		s.stmts(c.Cond, in)
		return s.branch(c.Do, in)
	case *syntax.ForClause:
		return s.forClause(c, in)
	case *syntax.CaseClause:
		s.one(c.Word)
		out := stream{}
		for _, it := range c.Items {
			for _, p := range it.Patterns {
				s.one(p)
			}
			out = either(out, s.branch(it.Stmts, in))
		}
		return out
	case *syntax.FuncDecl:
		s.funcDecl(c)
	case *syntax.DeclClause:
		for _, a := range c.Args {
			s.assign(a)
		}
	case *syntax.TimeClause:
		if c.Stmt != nil {
			return s.stmt(c.Stmt, in)
		}
	case *syntax.CoprocClause:
		return s.stmt(c.Stmt, in)
	case *syntax.TestDecl:
		return s.stmt(c.Body, in)
	case *syntax.ArithmCmd:
		s.arith(c.X)
	case *syntax.LetClause:
		for _, x := range c.Exprs {
			s.arith(x)
		}
	case *syntax.TestClause:
		s.arith(c.X)
	}
	return stream{known: true}
}

// arith runs the substitutions inside an arithmetic or test expression.
func (s *shell) arith(n syntax.Node) {
	if n == nil {
		return
	}
	syntax.Walk(n, func(n syntax.Node) bool {
		if n == nil {
			return false
		}
		s.r.step(1)
		switch n := n.(type) {
		case *syntax.CmdSubst:
			s.substitute(n)
			return false
		case *syntax.ProcSubst:
			s.procSubst(n)
			return false
		case *syntax.BinaryArithm:
			if w, ok := n.X.(*syntax.Word); ok && n.Op >= syntax.Assgn && n.Op <= syntax.PowAssgn && w.Lit() != "" {
				s.vars.set(w.Lit(), value{alts: []string{hole}})
			}
		}
		return true
	})
}

// binary walks pipes and lists. The tree leans to the left, so its spine is
// walked in a loop.
func (s *shell) binary(c *syntax.BinaryCmd, in stream) stream {
	pipe := c.Op == syntax.Pipe || c.Op == syntax.PipeAll
	var few [8]*syntax.Stmt // most spines are short
	spine := append(few[:0], c.Y)
	for x := c.X; ; {
		b, ok := x.Cmd.(*syntax.BinaryCmd)
		if !ok || len(x.Redirs) > 0 || x.Negated || x.Background || (b.Op == syntax.Pipe || b.Op == syntax.PipeAll) != pipe {
			spine = append(spine, x)
			break
		}
		s.r.step(1)
		spine = append(spine, b.Y)
		x = b.X
	}
	if !pipe {
		var few [4]string
		out := collector{parts: few[:0]}
		for i := len(spine) - 1; i >= 0; i-- {
			out.add(s.stmt(spine[i], in))
		}
		return out.stream(s)
	}
	for i := len(spine) - 1; i >= 0; i-- {
		st := s
		if i > 0 {
			st = s.sub()
		}
		in = st.stmt(spine[i], in)
		in.piped = true
	}
	return in
}

func (s *shell) branch(list []*syntax.Stmt, in stream) stream {
	s.maybe++
	defer func() { s.maybe-- }()
	return s.stmts(list, in)
}

func (s *shell) ifClause(c *syntax.IfClause, in stream) stream {
	var out stream
	for ; c != nil; c = c.Else {
		s.stmts(c.Cond, in)
		out = either(out, s.branch(c.Then, in))
	}
	return out
}

func (s *shell) forClause(c *syntax.ForClause, in stream) stream {
	switch l := c.Loop.(type) {
	case *syntax.WordIter:
		v := value{}
		if !l.InPos.IsValid() && s.params != nil {
			for _, p := range s.params {
				v.alts = append(v.alts, p.text)
			}
		}
		for i, w := range l.Items {
			for _, f := range s.expand(w, i) {
				v.alts, v.from = append(v.alts, f.text), v.from|f.from
			}
		}
		s.r.step(len(v.alts))
		v.alts = some(v.alts)
		s.vars.set(l.Name.Value, v)
	case *syntax.CStyleLoop:
		s.arith(l.Init)
		s.arith(l.Cond)
		s.arith(l.Post)
	}
	return s.branch(c.Do, in)
}

// some keeps at most maxAlts different values; when there are more, they are
// thinned to one of each place and ending, and a hole stands for the rest.
func some(alts []string) []string {
	if len(alts) == 0 {
		return []string{hole}
	}
	if len(alts) <= maxAlts {
		return alts
	}
	seen := map[string]bool{}
	out := []string{hole}
	for _, a := range alts {
		k := path.Dir(a)
		if strings.HasPrefix(a, "/") || strings.HasPrefix(a, "~") || strings.HasPrefix(a, ".") {
			k = a
		}
		if !seen[k] && len(out) < maxAlts {
			seen[k] = true
			out = append(out, a)
		}
	}
	return out
}

func (s *shell) funcDecl(c *syntax.FuncDecl) {
	names := c.Names
	if c.Name != nil {
		names = append(names, c.Name)
	}
	for _, n := range names {
		if forks(c.Body, n.Value) {
			s.r.report("host.fork-bomb", s.span(c), "")
		}
		if s.maybe > 0 {
			if old := s.funcs[n.Value]; old != nil {
				s.callFunc(old, nil, stream{})
			}
		}
		s.funcs[n.Value] = &function{body: c.Body, t: s.t}
	}
	if len(names) == 0 {
		s.stmt(c.Body, stream{})
	}
}

// forks says whether a function starts itself twice over: in a pipe with
// itself, or in the background and outside any condition.
func forks(body *syntax.Stmt, name string) bool {
	bomb := false
	syntax.Walk(body, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.IfClause, *syntax.CaseClause:
			return false
		case *syntax.BinaryCmd:
			if n.Op == syntax.AndStmt || n.Op == syntax.OrStmt {
				return false
			}
			bomb = bomb || calls(n.X, name, 8) && calls(n.Y, name, 8)
		case *syntax.Stmt:
			bomb = bomb || n.Background && calls(n, name, 8)
		}
		return !bomb
	})
	return bomb
}

// calls says whether a statement is a call of name, or a pipe of such calls. It
// looks at most depth levels down.
func calls(st *syntax.Stmt, name string, depth int) bool {
	if depth == 0 {
		return false
	}
	depth--
	switch c := st.Cmd.(type) {
	case *syntax.CallExpr:
		return len(c.Args) > 0 && c.Args[0].Lit() == name
	case *syntax.BinaryCmd:
		return calls(c.X, name, depth) || calls(c.Y, name, depth)
	case *syntax.Subshell:
		return len(c.Stmts) == 1 && calls(c.Stmts[0], name, depth)
	case *syntax.Block:
		return len(c.Stmts) == 1 && calls(c.Stmts[0], name, depth)
	}
	return false
}

// callFunc walks a function with its arguments, once for each set of them.
func (s *shell) callFunc(f *function, args []field, in stream) stream {
	f.called = true
	var key strings.Builder
	for _, a := range args {
		key.WriteString(a.text)
		key.WriteByte(1)
	}
	s.r.bytes(key.Len())
	if args == nil {
		key.WriteByte(2)
	}
	key.WriteString(in.text)
	if out, ok := f.done[key.String()]; ok {
		return out
	}
	if f.active >= 2 || len(f.done) >= 64 {
		return stream{from: fromCode}
	}
	s.r.enter()
	f.active++
	if f.done == nil {
		f.done = map[string]stream{}
	}
	f.done[key.String()] = stream{from: fromCode}
	oldT, oldP := s.t, s.params
	s.t, s.params = f.t, args
	out := s.stmt(f.body, in)
	s.t, s.params = oldT, oldP
	f.done[key.String()] = out
	f.active--
	s.r.leave()
	return out
}

// substitute walks $(...) and gives what it prints.
func (s *shell) substitute(c *syntax.CmdSubst) stream {
	return s.sub().stmts(c.Stmts, stream{})
}

func (s *shell) procSubst(c *syntax.ProcSubst) stream {
	return s.sub().stmts(c.Stmts, stream{})
}

// callExpr walks a simple command.
func (s *shell) callExpr(c *syntax.CallExpr, in stream) stream {
	if len(c.Args) == 0 {
		for _, a := range c.Assigns {
			s.assign(a)
		}
		return stream{known: true}
	}
	for _, a := range c.Assigns {
		s.prefix(a)
	}
	fields := make([]field, 0, len(c.Args))
	for i, w := range c.Args {
		fields = s.appendFields(fields, w, i)
	}
	return s.exec(fields, in)
}

// prefix evaluates an assignment that holds for one command.
func (s *shell) prefix(a *syntax.Assign) {
	f := s.one(a.Value)
	if a.Name != nil {
		s.prefixed(a.Name.Value, f, s.span(a))
	}
}

// nested reads text that a shell runs as part of the command at f, in a shell
// of its own that inherits the variables.
func (s *shell) nested(code string, at span, in stream, args []field) stream {
	s.r.enter()
	defer s.r.leave()
	c := s.sub()
	c.funcs = map[string]*function{}
	s.r.step(len(s.funcs))
	maps.Copy(c.funcs, s.funcs)
	c.params = args
	out := c.script(text{s: code, at: at, in: in})
	c.uncalled(s.funcs)
	return out
}

// inline reads text that the current shell itself runs: eval, source.
func (s *shell) inline(code string, at span, in stream) stream {
	s.r.enter()
	defer s.r.leave()
	return s.script(text{s: code, at: at, in: in})
}
