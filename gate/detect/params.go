package detect

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// param evaluates a parameter expansion.
func (s *shell) param(p *syntax.ParamExp) ([]field, bool) {
	unknown := []field{{text: hole}}
	if p.Param == nil {
		return unknown, false
	}
	s.paramWords(p)
	name := p.Param.Value
	v, set := s.lookup(name)
	if p.Excl && set && len(v.alts) == 1 && p.Names == 0 && syntax.ValidName(v.alts[0]) {
		v, set = s.lookup(v.alts[0])
	} else if p.Excl || p.Length || p.Width || p.IsSet || p.Flags != nil || p.Names != 0 || len(p.Modifiers) > 0 {
		return unknown, false
	}
	if p.Exp != nil {
		v, set = s.paramOp(p, name, v, set)
	}
	if !set {
		if secretVariable(name) {
			unknown[0].from = fromSecret
		}
		return unknown, false
	}
	if v.list {
		v = s.element(p, v)
	}
	var orig, with field
	if p.Repl != nil {
		orig, with = s.one(p.Repl.Orig), s.one(p.Repl.With)
	}
	out := make([]field, 0, len(v.alts))
	for _, a := range v.alts {
		s.r.bytes(len(a))
		if p.Slice != nil {
			a = s.slice(a, p.Slice)
		}
		if p.Repl != nil {
			a = s.replace(a, orig, with, p.Repl.All)
		}
		out = append(out, field{text: a, from: v.from, alt: len(v.alts) > 1 && !v.list})
	}
	if len(out) == 0 {
		return nil, true
	}
	return out, v.list
}

// secretVariable says whether a variable's name tells that it holds a secret.
func secretVariable(name string) bool {
	for _, w := range [...]string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "PRIVATE_KEY", "CREDENTIAL"} {
		if strings.Contains(strings.ToUpper(name), w) {
			return true
		}
	}
	return false
}

// paramWords runs the substitutions in the words of an expansion once, where
// the expansion itself would not.
func (s *shell) paramWords(p *syntax.ParamExp) {
	if w, ok := p.Index.(*syntax.Word); ok && w != nil && w.Lit() == "" {
		s.one(w)
	} else if p.Index != nil {
		s.arith(p.Index)
	}
	if p.Slice != nil {
		s.arith(p.Slice.Offset)
		s.arith(p.Slice.Length)
	}
}

// element picks from an array what the index asks for.
func (s *shell) element(p *syntax.ParamExp, v value) value {
	if p.Param.Value == "@" || p.Param.Value == "*" {
		return v
	}
	w, ok := p.Index.(*syntax.Word)
	if !ok || w == nil {
		return value{alts: v.alts[:min(1, len(v.alts))], from: v.from}
	}
	switch lit := w.Lit(); lit {
	case "@", "*":
		return v
	default:
		if n, err := strconv.Atoi(lit); err == nil && n >= 0 && n < len(v.alts) {
			return value{alts: v.alts[n : n+1], from: v.from}
		}
	}
	return value{alts: v.alts, from: v.from}
}

// paramOp applies ${x:-y}, ${x:+y}, ${x#y} and the like.
func (s *shell) paramOp(p *syntax.ParamExp, name string, v value, set bool) (value, bool) {
	word := s.one(p.Exp.Word)
	other := value{alts: []string{word.text}, from: word.from}
	empty := set && len(v.alts) == 1 && v.alts[0] == ""
	switch op := p.Exp.Op; op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull, syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if !set || empty && (op == syntax.DefaultUnsetOrNull || op == syntax.AssignUnsetOrNull) {
			if op == syntax.AssignUnset || op == syntax.AssignUnsetOrNull {
				s.vars.set(name, other)
			}
			return other, true
		}
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		if !set || empty {
			return value{alts: []string{"", word.text}, from: word.from}, true
		}
		return other, true
	case syntax.RemSmallSuffix, syntax.RemLargeSuffix, syntax.RemSmallPrefix, syntax.RemLargePrefix:
		if set {
			return mapValue(v, func(a string) string { return s.trim(a, word.text, op) }), true
		}
	case syntax.UpperAll:
		return mapValue(v, strings.ToUpper), set
	case syntax.LowerAll:
		return mapValue(v, strings.ToLower), set
	case syntax.UpperFirst, syntax.LowerFirst:
		f := strings.ToUpper
		if op == syntax.LowerFirst {
			f = strings.ToLower
		}
		return mapValue(v, func(a string) string { return f(a[:min(1, len(a))]) + a[min(1, len(a)):] }), set
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
	default:
		return mapValue(v, func(string) string { return hole }), set
	}
	return v, set
}

func mapValue(v value, f func(string) string) value {
	out := value{list: v.list, from: v.from}
	for _, a := range v.alts {
		out.alts = append(out.alts, f(a))
	}
	return out
}

// trim removes the part at one end that matches a pattern. Only constants and
// the plain star are worked out.
func (s *shell) trim(a, pat string, op syntax.ParExpOperator) string {
	if strings.Contains(a, hole) || strings.Contains(pat, hole) || len(a) > 1024 || len(pat) > 64 {
		return hole
	}
	s.r.step(1 + len(a)/8)
	try := func(i int) bool {
		if op == syntax.RemSmallPrefix || op == syntax.RemLargePrefix {
			return s.match(pat, a[:i])
		}
		return s.match(pat, a[i:])
	}
	up := op == syntax.RemSmallPrefix || op == syntax.RemLargeSuffix
	for k := 0; k <= len(a); k++ {
		i := k
		if !up {
			i = len(a) - k
		}
		if try(i) {
			if op == syntax.RemSmallPrefix || op == syntax.RemLargePrefix {
				return a[i:]
			}
			return a[:i]
		}
	}
	return a
}

// match says whether the whole of a matches a shell pattern of stars, question
// marks and plain characters; a bracket stands for any one character.
func (s *shell) match(pat, a string) bool {
	s.r.step(1 + len(a)/16)
	p, i, star, mark := 0, 0, -1, 0
	for i < len(a) {
		switch {
		case p < len(pat) && pat[p] == '*':
			star, mark = p, i
			p++
		case p < len(pat) && (pat[p] == '?' || pat[p] == a[i]):
			p++
			i++
		case p < len(pat) && pat[p] == '[' && strings.IndexByte(pat[p:], ']') > 0:
			p += strings.IndexByte(pat[p:], ']') + 1
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pat[p:], "*") == ""
}

func (s *shell) slice(a string, sl *syntax.Slice) string {
	num := func(x syntax.ArithmExpr, def int) (int, bool) {
		if x == nil {
			return def, true
		}
		if w, ok := x.(*syntax.Word); ok {
			n, err := strconv.Atoi(w.Lit())
			return n, err == nil
		}
		if u, ok := x.(*syntax.UnaryArithm); ok && u.Op == syntax.Minus {
			if w, ok := u.X.(*syntax.Word); ok {
				n, err := strconv.Atoi(w.Lit())
				return -n, err == nil
			}
		}
		return 0, false
	}
	from, ok1 := num(sl.Offset, 0)
	if from < 0 {
		from += len(a)
	}
	n, ok2 := num(sl.Length, len(a))
	if !ok1 || !ok2 || strings.Contains(a, hole) || from < 0 || from > len(a) {
		return hole
	}
	end := from + n
	if n < 0 {
		end = len(a) + n
	}
	if end = min(end, len(a)); end < from {
		return ""
	}
	return a[from:end]
}

func (s *shell) replace(a string, orig, with field, all bool) string {
	if strings.Contains(a, hole) || !orig.known() || !with.known() || strings.ContainsAny(orig.text, "*?[#%") || orig.text == "" {
		return hole
	}
	n := 1
	if all {
		n = -1
	}
	if len(a)*(1+len(with.text)) > MaxValue {
		return hole
	}
	out := strings.Replace(a, orig.text, with.text, n)
	s.r.bytes(len(out))
	return out
}

// lookup finds a variable: set by the script, a parameter of it, or one that
// every shell has.
func (s *shell) lookup(name string) (value, bool) {
	if v, ok := s.vars.get(name); ok {
		return v, true
	}
	one := func(t string) (value, bool) { return value{alts: []string{t}}, true }
	switch name {
	case "HOME":
		return one(s.r.d.places.home)
	case "USER", "LOGNAME":
		return one(s.r.d.places.user)
	case "PWD":
		if s.dir != "" {
			return one(s.dir)
		}
	case "TMPDIR", "TMP", "TEMP":
		return one("/tmp")
	case "IFS":
		return one(" \t\n")
	case "SHELL", "BASH":
		return one("/bin/bash")
	case "?":
		return one("0")
	case "@", "*":
		if s.params != nil {
			v := value{list: true}
			for _, f := range s.params {
				v.alts, v.from = append(v.alts, f.text), v.from|f.from
			}
			return v, true
		}
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 && s.params != nil {
		if n > len(s.params) {
			return one("")
		}
		return value{alts: []string{s.params[n-1].text}, from: s.params[n-1].from}, true
	}
	return value{}, false
}
