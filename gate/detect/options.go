package detect

import (
	"slices"
	"strings"
)

// flag is one option as it was given.
type flag struct {
	name string // without dashes
	long bool
	has  bool
	val  field // its value, when it has one
}

// options are a program's arguments, told apart.
type options struct {
	flags    []flag
	operands []field
}

// parseOptions reads args as getopt does. values are the short options that
// take a value and long, blank-separated, the long ones that take it as the
// next word. With stop set the first operand ends the options.
func parseOptions(args []field, values, long string, stop bool) options {
	var o options
	for i := 0; i < len(args); i++ {
		a := args[i]
		t := a.text
		switch {
		case t == "--":
			o.operands = append(o.operands, args[i+1:]...)
			return o
		case strings.HasPrefix(t, "--"):
			name, val, has := strings.Cut(t[2:], "=")
			f := flag{name: name, long: true, has: has, val: a}
			f.val.text = val
			if !has && hasWord(long, name) && i+1 < len(args) {
				i++
				f.val, f.has = args[i], true
			}
			o.flags = append(o.flags, f)
		case len(t) > 1 && t[0] == '-':
			if rest := t[1:]; hasWord(long, rest) && len(rest) > 1 { // -name value
				f := flag{name: rest, long: true}
				if i+1 < len(args) {
					i++
					f.val, f.has = args[i], true
				}
				o.flags = append(o.flags, f)
				continue
			}
			i = o.bundle(args, i, values)
		default:
			if stop {
				o.operands = append(o.operands, args[i:]...)
				return o
			}
			if o.operands == nil {
				o.operands = make([]field, 0, len(args)-i)
			}
			o.operands = append(o.operands, a)
		}
	}
	return o
}

// bundle reads the short options of args[i] and gives the index of the last
// word it used.
func (o *options) bundle(args []field, i int, values string) int {
	a := args[i]
	o.flags = slices.Grow(o.flags, len(a.text)-1)
	for j := 1; j < len(a.text); j++ {
		f := flag{name: a.text[j : j+1]}
		if strings.IndexByte(values, a.text[j]) >= 0 {
			f.has = true
			f.val = a
			if j+1 < len(a.text) {
				f.val.text = strings.TrimPrefix(a.text[j+1:], "=")
			} else if i+1 < len(args) {
				i++
				f.val = args[i]
			} else {
				f.has = false
			}
			o.flags = append(o.flags, f)
			return i
		}
		o.flags = append(o.flags, f)
	}
	return i
}

// has says whether one of the options was given. A long option also counts
// when it is cut short, as getopt allows.
func (o options) has(names ...string) bool {
	_, ok := o.get(names...)
	return ok
}

// get gives the last of the options that were given.
func (o options) get(names ...string) (flag, bool) {
	for i := len(o.flags) - 1; i >= 0; i-- {
		f := o.flags[i]
		for _, n := range names {
			if f.name == n || f.long && len(n) > 1 && len(f.name) > 0 && strings.HasPrefix(n, f.name) {
				return f, true
			}
		}
	}
	return flag{}, false
}

// exact is has without shortened long options.
func (o options) exact(names ...string) bool {
	for _, f := range o.flags {
		for _, n := range names {
			if f.name == n {
				return true
			}
		}
	}
	return false
}

// hasWord says whether w is one of the blank-separated words of list.
func hasWord(list, w string) bool {
	for list != "" {
		var f string
		f, list, _ = strings.Cut(list, " ")
		if f == w && w != "" {
			return true
		}
	}
	return false
}

// hasRaw says whether one of the words stands among args as it is.
func hasRaw(args []field, words ...string) bool {
	for _, a := range args {
		for _, w := range words {
			if a.text == w {
				return true
			}
		}
	}
	return false
}
