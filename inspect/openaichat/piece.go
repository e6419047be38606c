package openaichat

import (
	"bytes"

	"callgate/inspect/frame"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// piece is the form of an event that went on with one call and did nothing
// else, as a mould is that of a plain one: an event that differs in the piece of
// the arguments alone is read for the same reasons in the same way. Only what
// was read last is such a form, so that nothing it rests on has changed since.
type piece struct {
	rd         *reading
	c          *call
	head, tail []byte // of the data, before and behind the arguments
}

// cast makes the form of what was read. It is none when anything in it tells
// more than the arguments of a call that goes on without fault.
func (p *piece) cast(s *stream, b []byte, rd *reading) {
	if len(rd.choices) != 1 || len(rd.calls) != 1 || rd.whole != nil || len(rd.top) > 0 || rd.failed || rd.usage || !s.env.known {
		return
	}
	ch := &rd.choices[0]
	if len(ch.mentions) != 1 || ch.reason != "" || ch.shows != (shown{lane: ch.lane.n}) {
		return
	}
	m := &ch.mentions[0]
	if c := m.c; !m.bare || !isString(b, m.args) || !s.goesOn(c) || c.Type == typeLegacy || !c.indexed || c.object {
		return
	}
	p.rd, p.c = rd, m.c
	p.head = append(p.head[:0], b[:m.args.from]...)
	p.tail = append(p.tail[:0], b[m.args.to:]...)
}

// goesOn reports whether more may be added to a call.
func (s *stream) goesOn(c *call) bool {
	return c.Fault == toolcall.FaultNone && !c.announced && !c.lane.finished && !s.failed && !s.behind
}

// fits gives the place of the arguments in an event of the form. Escapes by
// number are left to the reader, which looks for halves of pairs, and so are
// line breaks of other readers.
func (p *piece) fits(data []byte) (args span, ok bool) {
	rest, ok := bytes.CutPrefix(data, p.head)
	if !ok {
		return span{}, false
	}
	n := strictjson.StringLen(rest)
	if n < 0 || string(rest[n:]) != string(p.tail) || bytes.Contains(rest[:n], []byte(`\u`)) || frame.OtherBreaks(rest[:n]) {
		return span{}, false
	}
	return span{len(p.head), len(p.head) + n}, true
}

// goOn takes in an event of the form of the last one that was read. It reports
// false when the event must be read.
func (s *stream) goOn(raw []byte, data span) (bool, error) {
	p := &s.piece
	if p.c == nil || !s.goesOn(p.c) {
		return false, nil
	}
	b := data.in(raw)
	args, ok := p.fits(b)
	if !ok {
		return false, nil
	}
	s.room = strictjson.AppendString(s.room[:0], args.in(b))
	s.argue(p.c, s.room)
	was := p.rd.choices[0].mentions[0].args
	return true, s.push(event{raw: raw, data: data, kind: eventRead, rd: p.rd, grown: args.to - was.to})
}

// grow gives the reading of an event of the same form whose arguments are n
// bytes longer.
func (rd *reading) grow(n int) *reading {
	if n == 0 {
		return rd
	}
	from := rd.choices[0].mentions[0].args
	move := func(s *span) {
		if s.from >= from.to {
			s.from += n
		}
		if s.to >= from.to {
			s.to += n
		}
	}
	own := *rd
	ch := rd.choices[0]
	m := ch.mentions[0]
	for _, s := range []*span{&own.list, &ch.at, &ch.body, &ch.list, &ch.listItem, &ch.content, &ch.refusal, &ch.finish, &ch.native, &ch.logprobs,
		&m.holder, &m.item, &m.inner, &m.args, &m.index} {
		move(s)
	}
	ch.mentions = []mention{m}
	own.choices = []choice{ch}
	return &own
}
