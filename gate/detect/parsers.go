package detect

import (
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// variants are the languages that a shell text is tried in, in this order.
var variants = [...]syntax.LangVariant{syntax.LangBash, syntax.LangZsh, syntax.LangMirBSDKorn}

// blank are parsers that never read anything, by their place in variants; they
// are only copied.
var blank = func() (list [len(variants)]*syntax.Parser) {
	for i, v := range variants {
		list[i] = syntax.NewParser(syntax.Variant(v))
	}
	return list
}()

// idle are parsers that nobody uses, by their place in variants. A parser holds
// two kilobytes of buffers, which are a third of what reading a command takes.
var idle [len(variants)]sync.Pool

// takeParser gives a parser that is the caller's alone until it is put back.
func takeParser(variant int) *syntax.Parser {
	if p, ok := idle[variant].Get().(*syntax.Parser); ok {
		return p
	}
	p := *blank[variant]
	return &p
}

// putParser takes a parser back. It becomes what a new one is, byte for byte:
// nothing of a text, and no state in which an error left it, may reach the next
// reading. What it gave (the tree) is not its own and stays.
func putParser(variant int, p *syntax.Parser) {
	*p = *blank[variant]
	idle[variant].Put(p)
}
