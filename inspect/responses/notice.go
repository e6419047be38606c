package responses

import (
	"bytes"

	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// cutNotices takes out each notice once, in the order in which they were shown.
// A message that holds nothing else goes with it.
func cutNotices(list []slot, notices []string) {
	type words struct {
		slot *slot
		lit  rawjson.Span // in the slot's raw
		text []byte
		cuts []rawjson.Span // of text
	}
	var all []words
	for k := range list {
		s := &list[k]
		if s.typ != "message" {
			continue
		}
		eachText(s.raw, rawjson.Get(s.raw, rawjson.All(s.raw), "content"), func(lit rawjson.Span) {
			all = append(all, words{slot: s, lit: lit, text: strictjson.AppendString([]byte{}, lit.In(s.raw))})
		})
	}
	at, from := 0, 0 // the text looked into, and where in it
	for _, notice := range notices {
		start := from
		for k := at; k < len(all) && notice != ""; k, start = k+1, 0 {
			n := bytes.Index(all[k].text[start:], []byte(notice))
			if n < 0 {
				continue
			}
			at, from = k, start+n+len(notice)
			all[k].cuts = append(all[k].cuts, rawjson.Span{From: start + n, To: from})
			break
		}
	}
	for k := 0; k < len(all); {
		s := all[k].slot
		var edits []rawjson.Edit
		said := false
		for ; k < len(all) && all[k].slot == s; k++ {
			w := &all[k]
			lit := w.lit.In(s.raw)
			if len(w.cuts) > 0 {
				lit = cutText(lit, w.cuts)
				edits = append(edits, rawjson.Edit{At: w.lit, Text: lit})
			}
			said = said || !nothing(rawjson.Text(lit, rawjson.Span{To: len(lit)}))
		}
		if len(edits) > 0 {
			s.raw, s.changed, s.gone = rawjson.Apply(nil, s.raw, edits), true, !said
		}
	}
}

// cutText takes parts out of a string as it is written. The parts say where
// they stand in what it stands for, in order.
func cutText(lit []byte, parts []rawjson.Span) []byte {
	out := make([]byte, 0, len(lit))
	read := 0 // of what it stands for
	for i := 0; i < len(lit); {
		raw, n := 1, 1
		switch {
		case i == 0 || i == len(lit)-1:
			out = append(out, lit[i]) // the quotes
			i++
			continue
		case lit[i] == '\\':
			raw = min(escapeLen(lit[i:]), len(lit)-1-i)
			quoted := append(append([]byte{'"'}, lit[i:i+raw]...), '"')
			n = len(strictjson.AppendString(nil, quoted))
		}
		for len(parts) > 0 && read >= parts[0].To {
			parts = parts[1:]
		}
		if len(parts) == 0 || read < parts[0].From {
			out = append(out, lit[i:i+raw]...)
		}
		i += raw
		read += n
	}
	return out
}
