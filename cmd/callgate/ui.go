package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// The wording rules for what users see:
//
//   - Results go to standard output, all else to standard error.
//   - An error is one line: "callgate: ", then lower case words without a full
//     stop that name the place, the reason and the remedy. Hints follow, one a
//     line, indented.
//   - Colour only on a terminal, never when NO_COLOR is set or TERM is dumb,
//     and never as the only carrier of a meaning.
//   - With --json a command prints JSON and nothing else on standard output:
//     one value, or one a line where there may be many.
//   - Text that a model or an agent wrote is shown with its invisible and
//     control characters escaped.

// printError prints an error and its hints on standard error.
func printError(e *env, err error, hints ...string) {
	s := newStyle(e, e.StderrTTY)
	fmt.Fprintf(e.Stderr, "%s %v\n", s.red("callgate:"), err)
	for _, h := range hints {
		fmt.Fprintf(e.Stderr, "  %s\n", h)
	}
}

// note prints a remark on standard error.
func note(e *env, format string, args ...any) {
	fmt.Fprintf(e.Stderr, "callgate: "+format+"\n", args...)
}

// usagef is an error of wrong usage.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// failf is an error with that exit code.
func failf(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// columns is the width of the terminal that standard output is, or a width
// that most readers have.
func (e *env) columns() int {
	if f, ok := e.Stdout.(*os.File); ok && e.StdoutTTY {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	return questionWidth
}

// printJSON writes v as indented JSON. Characters such as < and & stay as they
// are: they are shell text here, and nobody reads this as HTML.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printJSONLine writes v as one line of JSON.
func printJSONLine(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// style colours words, or leaves them as they are.
type style struct{ on bool }

// newStyle gives the style for a stream that is a terminal or not.
func newStyle(e *env, tty bool) style {
	return style{on: tty && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"}
}

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(t string) string   { return s.paint("1", t) }
func (s style) dim(t string) string    { return s.paint("2", t) }
func (s style) red(t string) string    { return s.paint("31", t) }
func (s style) green(t string) string  { return s.paint("32", t) }
func (s style) yellow(t string) string { return s.paint("33", t) }

// verdict colours one of the three words.
func (s style) verdict(word string) string {
	switch word {
	case "allow":
		return s.green(word)
	case "ask":
		return s.yellow(word)
	}
	return s.red(word)
}
