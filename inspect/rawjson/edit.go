package rawjson

import "slices"

// Edit replaces a part of a document; an empty part puts the text in.
type Edit struct {
	At   Span
	Text []byte
}

// Insert is the edit that puts a text in before the byte at that place.
func Insert(at int, text []byte) Edit { return Edit{Span{at, at}, text} }

// Apply appends the document with its edits, which must not overlap. It brings
// the edits into the order of their places.
func Apply(dst, b []byte, edits []Edit) []byte {
	slices.SortStableFunc(edits, func(x, y Edit) int {
		if d := x.At.From - y.At.From; d != 0 {
			return d
		}
		return x.At.To - y.At.To // what is put in comes before what is taken out
	})
	at := 0
	for _, e := range edits {
		dst = append(append(dst, b[at:e.At.From]...), e.Text...)
		at = e.At.To
	}
	return append(dst, b[at:]...)
}

// Cut gives the edits that take items out of an object or array, commas and
// all, and how many are left in it.
func Cut(b []byte, holder Span, gone func(item Span) bool) (edits []Edit, left int) {
	before := 0 // end of the item before, when one of those before is kept
	var first Span
	for w := Open(b, holder); w.Next(); {
		item := w.Item
		switch {
		case !gone(item):
			if first.There() {
				// All before this one go, up to where it starts.
				edits = append(edits, Edit{At: Span{first.From, item.From}})
				first = Span{}
			}
			left++
			before = item.To
		case left > 0:
			edits = append(edits, Edit{At: Span{before, item.To}})
			before = item.To
		default:
			if !first.There() {
				first = item
			}
			first.To = item.To
		}
	}
	if first.There() {
		edits = append(edits, Edit{At: first})
	}
	return edits, left
}
