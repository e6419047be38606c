package main

import (
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"golang.org/x/text/width"

	"callgate/gate"
	"callgate/gate/redact"
)

const (
	// questionWidth is how wide a question is printed where the width of the
	// terminal is not known.
	questionWidth = 100
	// questionLines is how much of a call a question shows. One that is longer
	// has to be looked at before it can be approved.
	questionLines = 40
	// margin stands before every line that a model wrote, so that none of them
	// can pass for a line of callgate's own.
	margin = "  │ "
)

// callText is all that a person has to read of a call: its arguments, one
// below the other. A call with one argument is that argument's text.
func callText(a gate.Approval) string {
	args := gjson.Parse(a.Args)
	if !gjson.Valid(a.Args) || !args.IsObject() {
		if a.Command != "" { // free text that is a command
			return a.Command
		}
		return a.Args
	}
	var keys []string
	var values []gjson.Result
	args.ForEach(func(k, v gjson.Result) bool {
		keys, values = append(keys, k.String()), append(values, v)
		return true
	})
	if len(keys) == 1 && values[0].Type == gjson.String {
		return values[0].String()
	}
	var b strings.Builder
	for i, k := range keys {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(k + ": ")
		text := values[i].Raw
		if values[i].Type == gjson.String {
			text = values[i].String()
		}
		if strings.Contains(text, "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String()
}

// framed gives text line by line behind the margin, wrapped to the width, with
// everything escaped that a terminal would hide or obey. It gives at most limit
// lines, and how many there are beyond.
func framed(text string, wide, limit int) (lines []string, more int) {
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		for _, part := range chop(redact.Visible(line), max(wide-utf8.RuneCountInString(margin)-1, 20)) {
			if len(lines) == limit {
				more++
				continue
			}
			lines = append(lines, strings.TrimRight(margin+part, " "))
		}
	}
	return lines, more
}

// chop cuts a line into pieces of at most width characters, wherever that is:
// between words a command could be read as two.
func chop(line string, wide int) []string {
	var out []string
	n, from := 0, 0
	for i, r := range line {
		w := columns(r)
		if n+w > wide {
			out = append(out, line[from:i])
			n, from = 0, i
		}
		n += w
	}
	return append(out, line[from:])
}

// columns is how many columns of a terminal a character takes (Unicode
// Technical Report 11).
func columns(r rune) int {
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// hanging wraps words of callgate's own, which may quote a model's, behind a
// label of nine columns; what goes on stands below the first word and never at the label.
func hanging(text string, wide int) string {
	const indent = 9
	room := max(wide-indent-1, 20)
	var lines []string
	for _, p := range wrap(redact.Visible(text), room) {
		lines = append(lines, chop(p, room)...)
	}
	return strings.Join(lines, "\n"+strings.Repeat(" ", indent))
}
