package redact

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible shows every character that a terminal would act on, hide or reorder
// as a sign: control characters (line breaks and tabs too, so the result is one
// line) by the pictures that Unicode has for them, as ␉ for a tab; zero-width
// and bidirectional ones, blanks other than the space, variation selectors,
// tags, unassigned and private ones as <U+202E>; bytes that are not UTF-8 as
// <byte FF>. The rest stays as it is, backslashes too, except for what would
// read as such a sign, of which the first character is written as one: so a
// sign always stands for the character, and no text can pose as another.
func Visible(s string) string {
	if shown(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, "<byte %02X>", s[i])
		case r < 0x20:
			b.WriteRune(pictures + r)
		case r == 0x7f:
			b.WriteRune(pictureOfDelete)
		case hidden(r) || pictured(r) || r == '<' && sign(s[i:]):
			fmt.Fprintf(&b, "<U+%04X>", r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// The pictures of control characters begin with that of NUL.
const pictures, pictureOfDelete = '\u2400', '\u2421'

// pictured tells whether a rune is the picture of a control character.
func pictured(r rune) bool {
	return pictures <= r && r < pictures+0x20 || r == pictureOfDelete
}

// sign tells whether a text begins as a sign of Visible does.
func sign(s string) bool {
	return strings.HasPrefix(s, "<U+") || strings.HasPrefix(s, "<byte ")
}

// shown tells that a text is printable ASCII and holds no sign.
func shown(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' || s[i] == '<' && sign(s[i:]) {
			return false
		}
	}
	return true
}

// blank are letters and marks that fonts draw as nothing.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // combining grapheme joiner
		{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer inherent vowels
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // empty Braille pattern
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // halfwidth Hangul filler
		{Lo: 0xfffc, Hi: 0xfffc, Stride: 1}, // object replacement
	},
}

// hidden tells whether a rune is not plainly seen as what it is.
func hidden(r rune) bool {
	if r == ' ' {
		return false
	}
	return !unicode.IsGraphic(r) || unicode.Is(unicode.Zs, r) ||
		unicode.In(r, unicode.Variation_Selector, blank)
}
