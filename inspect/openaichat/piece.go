package openaichat

import (
	"bytes"

	"callgate/inspect/rawjson"
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
	head, tail []byte // of an event that waits, before and behind the arguments
	args       int    // how long the arguments were
	at, behind int    // bytes before and behind the data
}

// cast makes the form of what was read. It is none when anything in it tells
// more than the arguments of a call that goes on without fault.
func (p *piece) cast(s *stream, e *event) {
	rd, raw, data := e.rd, e.raw, e.data
	if len(rd.choices) != 1 || len(rd.calls) != 1 || rd.whole != nil || len(rd.top) > 0 || rd.failed || rd.usage || !s.env.known {
		return
	}
	ch := &rd.choices[0]
	if len(ch.mentions) != 1 || ch.reason != "" || ch.shows != (shown{lane: ch.lane.n}) {
		return
	}
	m := &ch.mentions[0]
	if c := m.c; !m.bare || !ended(raw) || !rawjson.IsString(data.In(raw), m.args) || !s.goesOn(c) || c.Type == typeLegacy || !c.indexed || c.object {
		return
	}
	p.rd, p.c = rd, m.c
	p.head, p.tail = raw[:data.From+m.args.From], raw[data.From+m.args.To:]
	p.args, p.at, p.behind = m.args.Len(), data.From, len(raw)-data.To
}

// goesOn reports whether more may be added to a call.
func (s *stream) goesOn(c *call) bool {
	return c.Fault == toolcall.FaultNone && !c.announced && !c.lane.finished && !s.failed && !s.behind
}

// fits gives the arguments, as written, of an event of the form that b starts
// with, and how long the event is. Escapes by number are left to the reader,
// which looks for halves of pairs, and so are line breaks of other readers.
func (p *piece) fits(b []byte) (args []byte, n int) {
	rest, ok := bytes.CutPrefix(b, p.head)
	if !ok {
		return nil, 0
	}
	n = strictjson.StringLen(rest)
	if n < 0 || !bytes.HasPrefix(rest[n:], p.tail) {
		return nil, 0
	}
	if args = rest[:n]; bytes.Contains(args, []byte(`\u`)) || breaksLines(args) {
		return nil, 0
	}
	return args, len(p.head) + n + len(p.tail)
}

// goOn takes in the event at the start of b, when it has the form of the last
// one that was read, and gives its length. It is 0 when the event must be read.
func (s *stream) goOn(b []byte) (int, error) {
	p := &s.piece
	if p.c == nil || s.long || !s.goesOn(p.c) {
		return 0, nil
	}
	args, n := p.fits(b)
	if n == 0 || n > s.lim.Frame {
		return 0, nil
	}
	raw := b[:n]
	s.unescape(args)
	s.argue(p.c, s.room)
	e := event{raw: raw, data: rawjson.Span{From: p.at, To: n - p.behind}, kind: eventRead, rd: p.rd, grown: len(args) - p.args}
	if k := len(s.queue); k > 0 && s.queue[k-1].rd == p.rd {
		cost, last := s.cost(&e), &s.queue[k-1]
		if err := s.hold(cost); err != nil {
			return n, err
		}
		last.more, last.cost = append(last.more, args...), last.cost+cost
		return n, nil
	}
	return n, s.push(e)
}

// emitMore gives out the events that came right behind one of their form.
func (s *stream) emitMore(e *event) {
	if len(e.more) == 0 {
		return
	}
	args := e.rd.choices[0].mentions[0].args
	from, to := e.data.From+args.From, e.data.From+args.To+e.grown
	head, tail := e.raw[:from], e.raw[to:]
	asIs := e.rd.untouched()
	var room []byte
	for more := e.more; len(more) > 0; {
		n := rawjson.SkipString(more, 0)
		if asIs {
			s.out = append(append(append(s.out, head...), more[:n]...), tail...)
		} else {
			room = append(append(append(room[:0], head...), more[:n]...), tail...)
			grown := n - args.Len()
			s.emitRead(&event{raw: room, data: rawjson.Span{From: e.data.From, To: e.data.To + grown - e.grown}, rd: e.rd, grown: grown})
		}
		more = more[n:]
	}
}

// grow gives the reading of an event of the same form whose arguments are n
// bytes longer.
func (rd *reading) grow(n int) *reading {
	if n == 0 {
		return rd
	}
	from := rd.choices[0].mentions[0].args
	move := func(s *rawjson.Span) {
		if s.From >= from.To {
			s.From += n
		}
		if s.To >= from.To {
			s.To += n
		}
	}
	own := *rd
	ch := rd.choices[0]
	m := ch.mentions[0]
	for _, s := range []*rawjson.Span{&own.list, &ch.at, &ch.body, &ch.list, &ch.listItem, &ch.content, &ch.refusal, &ch.finish, &ch.native, &ch.logprobs,
		&m.holder, &m.item, &m.inner, &m.args, &m.index} {
		move(s)
	}
	ch.mentions = []mention{m}
	own.choices = []choice{ch}
	return &own
}
