package anthropic

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
)

// nothingSaid stands in an answer of which nothing else would be left: the
// provider takes no message without content, and roles must take turns.
const nothingSaid = `{"type":"text","text":"(nothing said)"}`

// mending collects the changes of one Edit.
type mending struct {
	h     *conversation
	edits []rawjson.Edit
	// lost are the units that miss thinking which the client still has, led
	// those that refusals were put behind.
	lost, led map[int]bool
	// unbound says that thinking is taken out of all units from here on.
	unbound bool
}

// Edit changes the units of mends.
//
// Clients trim the thinking of old turns. A unit that shows none, although
// rounds of it hold some, was trimmed: all thinking is shown to clients, so
// that none of it can have been hidden from this one. Then the rounds are put
// back without theirs, too: what is behind them was answered to such a history.
func (h *conversation) Edit(dst []byte, mends map[int]inspect.Mend) ([]byte, error) {
	if len(mends) == 0 {
		return append(dst, h.b...), nil
	}
	for i := range mends {
		if i < 0 || i >= len(h.units) {
			return dst, unmended("messages", fmt.Sprintf("there is no answer %d among the %d in the history", i, len(h.units)))
		}
	}
	e := mending{h: h, lost: map[int]bool{}, led: map[int]bool{}}
	for i := range h.units {
		m, ok := mends[i]
		e.unbound = e.unbound || m.Unbind
		if !ok && !e.unbound {
			continue
		}
		if err := e.unit(i, m, e.unbound); err != nil {
			return dst, err
		}
	}
	e.setting()
	return rawjson.Apply(dst, h.b, e.edits), nil
}

func unmended(where, reason string) error {
	return &inspect.Error{Dialect: Name, Where: where, Reason: reason}
}

func (e *mending) unit(i int, m inspect.Mend, unbound bool) error {
	h, r := e.h, e.h.runs[i]
	if h.units[i].Answer != "" {
		return e.held(i, m)
	}
	var has traits
	for _, msg := range h.said[r.from:r.to] {
		has |= msg.has
	}
	where := "messages." + strconv.Itoa(r.from)
	rounds, thinks, err := standing(where, m.Rounds, unbound || has&hasThinking == 0)
	if err != nil {
		return err
	}
	// Earlier rounds of an edited unit stand without their words and thinking,
	// which all thinking in the client's words is bound to.
	loose := unbound || m.Edited && len(rounds) > 1
	if loose && (thinks || has&hasThinking != 0) {
		e.lost[i] = true
	}
	unit := rawjson.Span{From: h.said[r.from].item.From, To: h.said[r.to-1].item.To}
	var text []byte
	switch {
	case len(rounds) == 0, m.Edited:
		own := ownWords{b: h.b, said: h.said[r.from:r.to], unbound: loose}
		if m.Edited {
			own.notices = m.Notices
		}
		if n := len(rounds); n > 0 {
			for _, round := range rounds[:n-1] {
				text = append(append(round.appendUses(text), ','), round.appendRefused()...)
				text = append(text, ',')
			}
			own.last = &rounds[n-1]
		}
		before := len(text)
		var changed bool
		if text, changed = own.append(text); !changed && before == 0 {
			text = nil // every byte of it stands as it did
		}
	default:
		n := len(rounds)
		for _, round := range rounds[:n-1] {
			text = append(append(round.append(text, nil), ','), round.appendRefused()...)
			text = append(text, ',')
		}
		text = rounds[n-1].append(text, h.mark(has, r))
	}
	if text != nil {
		e.edits = append(e.edits, rawjson.Edit{At: unit, Text: text})
	}
	if n := len(rounds); n > 0 {
		e.refuse(i, rounds[n-1].calls, rounds[n-1].refusals)
	}
	return nil
}

// held changes an answer that the provider holds: the request names the last
// round of it.
func (e *mending) held(i int, m inspect.Mend) error {
	for n := len(m.Rounds) - 1; n >= 0; n-- {
		r := m.Rounds[n]
		if r.ID == "" && len(r.Calls) == 0 {
			continue // it was cut off before the provider had an answer to hold
		}
		if r.ID == "" {
			return unmended("thread.previous_message_id", "the provider's id of the last answer is not known; the thread has to be started anew")
		}
		if err := sound("thread", r); err != nil {
			return err
		}
		e.edits = append(e.edits, rawjson.Edit{At: e.h.top.previous, Text: gjson.AppendJSONString(nil, r.ID)})
		e.refuse(i, r.Calls, inOrder(r.Refusals))
		return nil
	}
	return nil
}

// mark gives the last marker for a cache in the messages.
func (h *conversation) mark(has traits, r run) (mark []byte) {
	if has&hasMark == 0 {
		return nil
	}
	for _, m := range h.said[r.from:r.to] {
		for _, k := range blocksOf(h.b, m.content) {
			if k.mark.There() {
				mark = k.mark.In(h.b)
			}
		}
	}
	return mark
}

// refuse puts refusals among the results that stand behind a unit: each before
// the first result whose call comes later in the answer, else behind the last.
func (e *mending) refuse(i int, calls []string, refusals []inspect.Refusal) {
	if len(refusals) == 0 {
		return
	}
	e.led[i] = true
	h := e.h
	from := h.runs[i].to
	if from == len(h.said) || h.said[from].by != byUser {
		e.addUser(from, calls, refusals)
		return
	}
	place := make(map[string]int, len(calls))
	for k, id := range calls {
		place[id] = k
	}
	type result struct {
		item rawjson.Span
		call int
	}
	var results []result
	for _, m := range h.said[from:] {
		if m.by != byUser {
			break
		}
		for _, k := range blocksOf(h.b, m.content) {
			if k.kind != pastResult {
				continue
			}
			call, ok := place[rawjson.Text(h.b, k.of)]
			if !ok {
				call = -1
			}
			results = append(results, result{k.item, call})
		}
	}
	var front []byte
	k := 0 // the first result whose call comes later: refusals are in order
	for _, r := range refusals {
		text := appendRefusal(nil, calls[r.Call], r.Text)
		for k < len(results) && results[k].call <= r.Call {
			k++
		}
		switch {
		case k < len(results):
			e.edits = append(e.edits, rawjson.Insert(results[k].item.From, append(text, ',')))
		case len(results) > 0:
			e.edits = append(e.edits, rawjson.Insert(results[len(results)-1].item.To, append([]byte{','}, text...)))
		case front == nil:
			front = text
		default:
			front = append(append(front, ','), text...)
		}
	}
	if front != nil {
		e.lead(h.said[from].content, front)
	}
}

// lead puts refusals before all else in a message without results.
func (e *mending) lead(content rawjson.Span, refusals []byte) {
	b := e.h.b
	switch {
	case rawjson.IsString(b, content):
		text := append([]byte{'['}, refusals...)
		if !blank(b, content) {
			text = appendTextBlock(append(text, ','), content.In(b))
		}
		e.edits = append(e.edits, rawjson.Edit{At: content, Text: append(text, ']')})
	case rawjson.Nested(b, content):
		e.edits = append(e.edits, rawjson.Insert(content.From+1, append(refusals, ',')))
	default:
		e.edits = append(e.edits, rawjson.Insert(content.From+1, refusals))
	}
}

// addUser puts a message with refusals before message n.
func (e *mending) addUser(n int, calls []string, refusals []inspect.Refusal) {
	said := e.h.said
	text := appendResults(nil, calls, refusals)
	switch {
	case n > 0:
		e.edits = append(e.edits, rawjson.Insert(said[n-1].item.To, append([]byte{','}, text...)))
	case len(said) > 0:
		e.edits = append(e.edits, rawjson.Insert(said[0].item.From, append(text, ',')))
	default:
		e.edits = append(e.edits, rawjson.Insert(e.h.top.messages.From+1, text))
	}
}

// setting takes the setting for thinking out of a request whose history is
// unbound: what the model would think from now on would be taken out of the
// next request, too, for nobody could tell it from what is lost, and the
// provider takes the answers of a running tool loop with their thinking only.
// Of one that goes on with a tool loop whose thinking the client has lost it
// goes for that reason. Settings that cannot be without it go, too.
func (e *mending) setting() {
	b, top := e.h.b, e.h.top
	if !rawjson.IsObject(b, top.thinking) || !e.unbound && !e.inLostLoop() {
		return
	}
	if m, reason := fields(b, top.thinking, "type"); !e.unbound && reason == "" && rawjson.Text(b, m[0]) != "enabled" {
		return
	}
	clears := func(item rawjson.Span) bool {
		return strings.HasPrefix(rawjson.Text(b, rawjson.Get(b, item, "type")), "clear_thinking_")
	}
	list := rawjson.Get(b, top.context, "edits")
	inner, left := rawjson.Cut(b, list, clears)
	edits, _ := rawjson.Cut(b, rawjson.All(b), func(item rawjson.Span) bool {
		return top.thinking.Within(item) || len(inner) > 0 && left == 0 && top.context.Within(item)
	})
	e.edits = append(e.edits, edits...)
	if left > 0 {
		e.edits = append(e.edits, inner...)
	}
}

// inLostLoop reports whether an answer that lost its thinking belongs to the
// tool loop that is going on: behind it no user speaks but to give results.
func (e *mending) inLostLoop() bool {
	h := e.h
	if len(e.lost) == 0 {
		return false
	}
	for i := len(h.units) - 1; i >= 0; i-- {
		to := h.runs[i].to
		results := e.led[i] || to < len(h.said) && h.said[to].has&startsByResult != 0
		if !results {
			return false
		}
		if e.lost[i] {
			return true
		}
	}
	return false
}

// ownWords is an answer that keeps the client's words.
type ownWords struct {
	b    []byte
	said []pastMessage
	// last is the round whose withheld calls are put in, nil for none.
	last    *pastRound
	notices []string
	// unbound takes its thinking out.
	unbound bool
}

// slot is a block of the client's with what becomes of it.
type slot struct {
	pastBlock
	before, behind [][]byte // calls that are put in
	words          []byte   // a string in place of its text
	gone           bool
}

func (s *slot) changed() bool {
	return s.gone || s.words != nil || len(s.before) > 0 || len(s.behind) > 0
}

// append adds the answer, and reports whether anything in it was changed.
func (o *ownWords) append(dst []byte) ([]byte, bool) {
	messages := make([][]slot, len(o.said))
	var all []*slot
	for k, m := range o.said {
		for _, block := range blocksOf(o.b, m.content) {
			messages[k] = append(messages[k], slot{pastBlock: block, gone: o.unbound && block.kind == pastThinking})
		}
		for j := range messages[k] {
			all = append(all, &messages[k][j])
		}
	}
	o.cutNotices(all)
	tail := o.putCalls(all)

	from, kept, changed := len(dst), 0, false
	for k, m := range o.said {
		touched := k == len(o.said)-1 && len(tail) > 0
		for j := range messages[k] {
			touched = touched || messages[k][j].changed()
		}
		if !touched {
			dst = append(comma(dst, from), m.item.In(o.b)...)
			kept++
			continue
		}
		changed = true
		var calls [][]byte
		if k == len(o.said)-1 {
			calls = tail
		}
		content := o.content(m.content, messages[k], calls)
		if content == nil && (k < len(o.said)-1 || kept > 0) {
			// Another message of the answer is left, or may be.
			continue
		}
		if content == nil {
			content = []byte("[" + nothingSaid + "]")
		}
		dst = append(comma(dst, from), o.b[m.item.From:m.content.From]...)
		dst = append(append(dst, content...), o.b[m.content.To:m.item.To]...)
		kept++
	}
	return dst, changed
}

// comma adds a comma unless nothing stands behind from.
func comma(dst []byte, from int) []byte {
	if len(dst) > from {
		return append(dst, ',')
	}
	return dst
}

// content gives the content of a changed message, nil when nothing is left.
func (o *ownWords) content(was rawjson.Span, slots []slot, tail [][]byte) []byte {
	text := rawjson.IsString(o.b, was)
	if text && len(slots[0].before)+len(slots[0].behind)+len(tail) == 0 {
		if slots[0].gone {
			return nil
		}
		return slots[0].words
	}
	list := []byte{'['}
	add := func(raw []byte) { list = append(comma(list, 1), raw...) }
	for _, s := range slots {
		for _, call := range s.before {
			add(call)
		}
		words := s.words
		switch {
		case s.gone, text && words == nil && blank(o.b, s.item):
		case text && words == nil:
			add(appendTextBlock(nil, s.item.In(o.b)))
		case text:
			add(appendTextBlock(nil, words))
		case words == nil:
			add(s.item.In(o.b))
		default:
			list = append(comma(list, 1), o.b[s.item.From:s.text.From]...)
			list = append(append(list, words...), o.b[s.text.To:s.item.To]...)
		}
		for _, call := range s.behind {
			add(call)
		}
	}
	for _, call := range tail {
		add(call)
	}
	if len(list) == 1 {
		return nil
	}
	return append(list, ']')
}

// putCalls gives each withheld call of the last round its place among the
// client's calls, and returns those that stand behind all else.
func (o *ownWords) putCalls(all []*slot) (tail [][]byte) {
	if o.last == nil {
		return nil
	}
	place := make(map[string]int, len(o.last.calls))
	for k, id := range o.last.calls {
		place[id] = k
	}
	var calls []*slot
	var places []int
	for _, s := range all {
		if s.kind != pastUse {
			continue
		}
		at, ok := place[rawjson.Text(o.b, s.id)]
		if !ok {
			at = -1 // of the client's own making, or of an earlier round
		}
		calls, places = append(calls, s), append(places, at)
	}
	k := 0 // the first call that comes later: refusals are in order
	for _, r := range o.last.refusals {
		call := o.last.uses[r.Call]
		for k < len(calls) && places[k] <= r.Call {
			k++
		}
		switch {
		case k < len(calls):
			calls[k].before = append(calls[k].before, call)
		case k > 0:
			calls[k-1].behind = append(calls[k-1].behind, call)
		default:
			tail = append(tail, call)
		}
	}
	return tail
}

// cutNotices takes out each notice once, in the order in which they were shown.
func (o *ownWords) cutNotices(all []*slot) {
	if len(o.notices) == 0 {
		return
	}
	texts := make([][]byte, len(all))
	for k, s := range all {
		if s.kind == pastText && rawjson.IsString(o.b, s.text) {
			texts[k] = strictjson.AppendString([]byte{}, s.text.In(o.b))
		}
	}
	at, from := 0, 0 // the text looked into, and where in it
	cuts := make([][]rawjson.Span, len(all))
	for _, notice := range o.notices {
		start := from
		for k := at; k < len(all) && notice != ""; k, start = k+1, 0 {
			n := bytes.Index(texts[k][start:], []byte(notice))
			if n < 0 {
				continue
			}
			at, from = k, start+n+len(notice)
			cuts[k] = append(cuts[k], rawjson.Span{From: start + n, To: from})
			break
		}
	}
	for k, list := range cuts {
		if len(list) == 0 {
			continue
		}
		s := all[k]
		s.words = cutText(s.text.In(o.b), list)
		s.gone = blank(s.words, rawjson.Span{To: len(s.words)})
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

// escapeLen is the length of the escape that b starts with; both halves of a
// surrogate pair are one.
func escapeLen(b []byte) int {
	if len(b) < 6 || b[1] != 'u' {
		return 2
	}
	if half(b, "89abAB") && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' && half(b[6:], "cdefCDEF") {
		return 12
	}
	return 6
}

// half reports whether an escape is a surrogate whose second digit is one of
// those.
func half(b []byte, second string) bool {
	return (b[2] == 'd' || b[2] == 'D') && strings.IndexByte(second, b[3]) >= 0
}

// blank reports whether a string stands for white space alone.
func blank(b []byte, s rawjson.Span) bool { return strings.TrimSpace(rawjson.Text(b, s)) == "" }

// appendTextBlock adds a block of text; lit is the text with its quotes.
func appendTextBlock(dst, lit []byte) []byte {
	return append(append(append(dst, `{"type":"text","text":`...), lit...), '}')
}
