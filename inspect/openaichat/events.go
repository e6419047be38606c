package openaichat

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// formed takes in the events at the start of p that have a form, and gives how
// many bytes they take.
func (s *stream) formed(p []byte) (int, error) {
	if s.sse.Pending() > 0 || s.behind || s.long {
		return 0, nil
	}
	at := 0
	for at < len(p) {
		n, err := s.goOn(p[at:])
		if n > 0 {
			s.forms++
		} else {
			n, err = s.plainForms(p[at:])
		}
		if n == 0 || err != nil {
			return at, err
		}
		at += n
	}
	return at, nil
}

// plainForms takes in the events at the start of p that have the form of the last
// plain one, together where nothing waits.
func (s *stream) plainForms(p []byte) (int, error) {
	n := s.plainForm(p)
	switch {
	case n == 0:
		return 0, nil
	case len(s.queue) > 0:
		s.gatherMould(p)
		return n, s.pushPlain(p[:n])
	}
	at := 0
	var err error
	for n > 0 && err == nil {
		if err = s.showPlain(); err == nil {
			if s.gathering {
				s.gatherMould(p[at:])
			}
			at += n
			n = s.plainForm(p[at:])
		}
	}
	if at > 0 {
		s.raw(p[:at])
	}
	return at, err
}

// plainForm gives the length of the event at the start of p when it has the form
// of the last plain one, and matches it.
func (s *stream) plainForm(p []byte) int {
	n := s.plain.mould.fits(p, &s.plain.shown)
	if n == 0 || n > s.lim.Frame {
		return 0
	}
	s.forms++
	s.plain.n = s.plain.mould.lanes
	return n
}

// take takes in one event of the provider.
func (s *stream) take(ev *frame.Event) error {
	s.rec.Altered = s.rec.Altered || ev.Cut
	switch {
	case ev.Empty():
		return s.push(event{raw: ev.Raw})
	case ev.Odd != "":
		return s.odd(ev)
	case !ev.HasData || len(ev.Data) == 0:
		return s.push(event{raw: ev.Raw}) // a name alone is dispatched by no reader
	case string(ev.Data) == doneData:
		return s.end(ev.Raw)
	}
	data := rawjson.Span{From: ev.At, To: ev.At + len(ev.Data)}
	named := ev.Name != nil && string(ev.Name) != "message"
	if !named {
		if n, err := s.goOn(ev.Raw); n > 0 {
			return err
		}
	}
	if done, err := s.matched(ev.Raw, data, !named); done {
		return err
	}
	why := ""
	if named {
		why = fmt.Sprintf("it came in an event named %q, which some clients skip", ev.Name)
	}
	return s.readEvent(ev.Raw, data, why)
}

// templateDepth is how deep an event of the template may nest.
const templateDepth = 8

// matched takes in an event of the template. It reports false when the event
// must be read; so must one that tells of a call or of an end, unless calls
// says that clients agree on where it stands.
func (s *stream) matched(raw []byte, data rawjson.Span, calls bool) (bool, error) {
	if s.behind || s.long {
		return false, nil
	}
	p := &s.plain
	if p.mould.fits(raw, &p.shown) > 0 {
		p.n = p.mould.lanes
		s.gatherMould(raw)
		return true, s.pushPlain(raw)
	}
	b := data.In(raw)
	if !p.match(b) || !p.isPlain() && (!calls || s.lim.Depth < templateDepth) {
		return false, nil
	}
	r := reader{turn: &s.turn, b: b}
	if p.usage.There() {
		r.usage(p.usage, p.n > 0)
	}
	s.gatherOpen(b)
	s.env.take(b, p.id, p.created, p.model, p.n > 0)
	if !p.isPlain() {
		return true, s.told(&r, raw, data)
	}
	if s.env.known {
		p.cast(raw, data.From)
	}
	return true, s.pushPlain(raw)
}

// told takes in what the template found in the event that matched last.
func (s *stream) told(r *reader, raw []byte, data rawjson.Span) error {
	p := &s.plain
	s.piece.c = nil
	l, err := s.lane(p.shown[0].lane)
	if err != nil {
		return err
	}
	r.rd = newOneChoice(&p.choice)
	r.rd.list, r.rd.usage = p.choices, rawjson.Nested(r.b, p.usage)
	ch := &r.rd.choices[0]
	ch.lane, ch.shows, ch.reason = l, p.shown[0], word(r.b, p.choice.finish)
	if ch.list.There() && breaksLines(r.b) {
		r.odd = otherBreaks
	}
	for e := rawjson.Open(r.b, ch.list); e.Next(); {
		if err := r.entry(ch, e); err != nil {
			return err
		}
	}
	r.end(ch)
	return s.pushRead(r, raw, data)
}

// pushRead passes on an event that was read, and makes it the form of those that
// go on with its call.
func (s *stream) pushRead(r *reader, raw []byte, data rawjson.Span) error {
	if err := s.push(event{raw: raw, data: data, kind: eventRead, rd: r.rd}); err != nil {
		return err
	}
	if n := len(s.queue); n > 0 && r.odd == "" {
		s.piece.cast(s, &s.queue[n-1])
	}
	return nil
}

// pushPlain passes on the event that was matched last.
func (s *stream) pushPlain(raw []byte) error {
	note := s.plain.shown[:s.plain.n]
	if len(s.queue) == 0 && !s.hush {
		err := s.showPlain()
		if err == nil {
			s.raw(raw)
		}
		return err
	}
	for i := range note {
		if _, err := s.lane(note[i].lane); err != nil {
			return err
		}
	}
	return s.push(event{raw: raw, note: note})
}

// showPlain notes what the event that was matched last shows.
func (s *stream) showPlain() error {
	if n := &s.plain.shown[0]; s.plain.n == 1 && len(s.lanes) == 1 && s.lanes[0].n == n.lane {
		s.lanes[0].show(*n)
		return nil
	}
	for i := range s.plain.n {
		n := &s.plain.shown[i]
		l, err := s.lane(n.lane)
		if err != nil {
			return err
		}
		l.show(*n)
	}
	return nil
}

func (s *stream) emitPlain(raw []byte, note []shown) {
	s.raw(raw)
	for _, n := range note {
		s.show(n)
	}
}

// odd takes in an event that readers of the standard and readers of lines do
// not read alike. It passes only as a single line of data that holds no call.
func (s *stream) odd(ev *frame.Event) error {
	data := dataSpan(ev.Raw)
	line := data.There() && bytes.IndexByte(ev.Raw[data.From:data.To], '\r') < 0 &&
		bytes.HasPrefix(ev.Raw, []byte("data:")) && len(bytes.Trim(ev.Raw[data.To:], "\r\n")) == 0
	switch {
	case line && string(data.In(ev.Raw)) == doneData:
		return s.end(ev.Raw)
	case line:
		if done, err := s.matched(ev.Raw, data, false); done {
			return err
		}
		return s.readEvent(ev.Raw, data, ev.Odd)
	}
	return s.withhold(ev.Raw, toolcall.FaultAmbiguous, ev.Odd)
}

// end takes in [DONE]. What is not complete by now is as complete as it gets:
// some servers send no finish reason.
func (s *stream) end(raw []byte) error {
	if !s.behind {
		s.behind = true
		for _, l := range s.lanes {
			s.finish(l, false)
		}
	}
	return s.push(event{raw: raw, kind: eventDone})
}

// withhold takes in an event that cannot be read.
func (s *stream) withhold(raw []byte, f toolcall.Fault, why string) error {
	s.piece.c = nil
	rd := &reading{}
	if err := s.refuseWhole(rd, raw, f, why); err != nil {
		return err
	}
	return s.push(event{raw: raw, kind: eventRead, rd: rd})
}

// readEvent takes in an event that may hold something of a call.
func (s *stream) readEvent(raw []byte, data rawjson.Span, odd string) error {
	s.piece.c = nil
	if s.behind {
		return s.withhold(raw, toolcall.FaultAmbiguous, "it stands behind the end of the stream")
	}
	b := data.In(raw)
	err := strictjson.Validate(b, strictjson.Options{Depth: s.lim.Depth, Known: known, Surrogates: true})
	if err != nil {
		fault := toolcall.FaultAmbiguous
		if e, ok := errors.AsType[*strictjson.Error](err); ok && e.Early && s.ended {
			fault = toolcall.FaultTruncated
		}
		return s.withhold(raw, fault, err.Error())
	}
	if odd == "" && breaksLines(b) {
		odd = otherBreaks
	}
	r := reader{turn: &s.turn, b: b, odd: odd}
	if err := r.read(); err != nil {
		return err
	}
	s.gatherRead(b, r.rd)
	return s.pushRead(&r, raw, data)
}

const otherBreaks = "it came in an event with a character that breaks lines for some clients"

// breaksLines is frame.OtherBreaks for text in JSON: what it looks for is not
// in ASCII there.
func breaksLines(b []byte) bool {
	for i := range b {
		if b[i] >= utf8.RuneSelf {
			return frame.OtherBreaks(b[i:])
		}
	}
	return false
}

// dataSpan finds the value of the first data field in an event.
func dataSpan(raw []byte) rawjson.Span {
	for at := 0; at < len(raw); {
		end := len(raw)
		next := end
		if i := bytes.IndexByte(raw[at:], '\n'); i >= 0 {
			end, next = at+i, at+i+1
		}
		if end > at && raw[end-1] == '\r' {
			end--
		}
		if v, ok := bytes.CutPrefix(raw[at:end], []byte("data:")); ok {
			from := end - len(v)
			if len(v) > 0 && v[0] == ' ' {
				from++
			}
			return rawjson.Span{From: from, To: end}
		}
		at = next
	}
	return rawjson.Span{}
}
