package ollama

import (
	"bytes"
	"strings"

	"callgate/inspect/rawjson"
)

// emit gives one event out, or what is left of it.
func (s *stream) emit(e *event) {
	switch {
	case s.mute && (e.kind != eventLine || e.rd == nil):
	case e.kind == eventCut:
		if len(s.owes) > 0 && !s.shut {
			s.noteAll(s.owes)
			s.tell(s.owes, false)
			s.owes = nil
		}
		s.over = true
	case e.kind == eventEnd:
		s.end()
	case e.rd == nil:
		s.raw(e.raw)
	default:
		s.document(e)
	}
}

// end gives out what is still owed at the end of the answer: texts, and a last
// line where there was none and something was changed.
func (s *stream) end() {
	s.over = true
	if s.shut || s.failed || s.rec.Withheld == 0 && s.begun == 1 {
		return
	}
	s.noteAll(s.owes)
	s.tell(s.owes, true)
	s.owes = nil
}

func (s *stream) noteAll(texts []string) {
	for _, t := range texts {
		s.notice(t)
	}
}

// raw gives out bytes of the provider as they came.
func (s *stream) raw(b []byte) {
	if s.ragged {
		s.out = append(s.out, '\n')
	}
	s.out = append(s.out, b...)
	s.ragged = !bytes.HasSuffix(b, []byte{'\n'})
}

// document gives out a line that was read.
func (s *stream) document(e *event) {
	rd, b := e.rd, e.data.In(e.raw)
	refusals := rd.pass()
	s.noteAll(refusals)
	if rd.whole != nil {
		if s.shut {
			s.rec.Altered = true
			return
		}
		s.tell(refusals, false)
		return
	}
	s.introduce(b, rd)
	if s.mute && rd.end {
		s.saidLast(b, rd, refusals)
		return
	}
	if rd.failed { // clients stop reading there
		s.noteAll(s.owes)
		if texts := append(s.owes, refusals...); len(texts) > 0 {
			s.tell(texts, false)
		}
		s.owes, refusals, s.shut = nil, nil, true
	}
	if rd.end && !rd.failed {
		s.noteAll(s.owes)
		refusals = append(refusals, s.owes...)
		s.owes = nil
	}
	p := s.patch(b, rd, saying{}, strings.Join(refusals, "\n\n"))
	if e.of != nil && e.of.withholds() {
		p.edits = append(p.edits, rawjson.Edit{At: rd.logprobs, Text: []byte("null")})
	}
	if len(p.edits) > 0 && !p.calls && len(p.says.words)+len(p.says.thinking) == 0 && !rd.final() {
		s.rec.Altered = true
		return
	}
	p.edits = append(p.edits, s.laterEdits(b, rd)...)
	if rd.end {
		p.edits = append(p.edits, s.endEdits(b, rd)...)
		s.shut, s.rec.Finish, s.rec.Shown = true, s.reason, s.reasonShown()
	}
	s.show(p.says)
	if len(p.edits) == 0 {
		s.raw(e.raw)
		return
	}
	if s.ragged {
		s.out = append(s.out, '\n')
	}
	s.out = append(s.out, e.raw[:e.data.From]...)
	s.out = rawjson.Apply(s.out, b, p.edits)
	s.out = append(s.out, e.raw[e.data.To:]...)
	s.ragged = !bytes.HasSuffix(s.out, []byte{'\n'})
	s.rec.Altered = true
}

// withholds reports whether a call of a document was withheld.
func (rd *reading) withholds() bool {
	if rd.whole != nil {
		return true
	}
	for _, m := range rd.mentions {
		if !m.c.released {
			return true
		}
	}
	return false
}

// saidLast gives out what the last line of a round says that is not the last one
// of the answer.
func (s *stream) saidLast(b []byte, rd *reading, refusals []string) {
	s.rec.Altered, s.rec.Finish = true, s.reason
	p := s.patch(b, rd, saying{}, strings.Join(refusals, "\n\n"))
	if len(p.says.words)+len(p.says.thinking) > 0 {
		s.own(p.says, false)
	}
}
