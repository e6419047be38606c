package gemini

import (
	"bytes"
	"fmt"
	"slices"

	"callgate/inspect/frame"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// chunk is one object of an answer: a whole one, or a piece of a stream. It says
// where in the data things stand.
type chunk struct {
	root rawjson.Span // the object that holds the candidates
	list rawjson.Span // of candidates
	// id, model and usage are values.
	id, model, usage rawjson.Span
	cands            []candidate
	parts            []part // of all candidates
	strays           []stray
	broke            bool // it is an error
	finishes         bool // a candidate has its finish in it
	logprobs         bool
	blocked          bool // it says why there is no answer
}

// candidate is one answer of several. Its parts are a range of the chunk's.
type candidate struct {
	at, content, list, finish rawjson.Span
	lane                      *lane
	from, to                  int
}

// part is a piece of an answer.
type part struct {
	at, text, signature rawjson.Span
	// inner, args and id are of a call.
	inner, args, id rawjson.Span
	thought         bool
	plain           bool // there is nothing in it but a text, thought or not
	hosted          bool // the provider runs it
	result          bool // it is what that gave
	call            *call
}

// stray is a member that is none of the format's, with the call that it counts
// as.
type stray struct {
	item rawjson.Span
	cand int // the candidate that it stands in, -1 for none
	call *call
}

// flaw says what is wrong with something, nothing for its zero value.
type flaw struct {
	fault  toolcall.Fault
	reason string
}

func ambiguous(reason string) flaw { return flaw{toolcall.FaultAmbiguous, reason} }
func unknown(reason string) flaw   { return flaw{toolcall.FaultUnknown, reason} }

// readChunk reads one object of the answer. With a flaw it is withheld as a
// whole, and nothing of it counts.
func (t *turn) readChunk(b []byte) (*chunk, flaw) {
	if err := strictjson.Object(b, strictjson.Options{Depth: t.lim.Depth, Surrogates: true}); err != nil {
		return nil, ambiguous("it cannot be read: " + err.Error())
	}
	c := &t.room
	*c = chunk{cands: c.cands[:0], parts: c.parts[:0], root: rawjson.All(b)}
	if t.wrapped {
		if f := t.unwrap(b, c); f.reason != "" || c.broke {
			return c, f
		}
	}
	for w := rawjson.Open(b, c.root); w.Next(); {
		switch string(w.Key.In(b)) {
		case "candidates":
			c.list = w.Val
		case "responseId":
			c.id = w.Val
		case "modelVersion":
			c.model = w.Val
		case "usageMetadata":
			c.usage = w.Val
		case "promptFeedback":
			c.blocked = rawjson.Nested(b, w.Val)
		case "error":
			c.broke = c.broke || !rawjson.Null(b, w.Val)
		default:
			t.stray(c, b, &w, quietTop, -1)
		}
	}
	if rawjson.Null(b, c.list) {
		return c, flaw{}
	}
	if !rawjson.IsArray(b, c.list) {
		return nil, unknown("its candidates are no list")
	}
	for w := rawjson.Open(b, c.list); w.Next(); {
		if f := t.candidate(c, b, w.Val); f.reason != "" {
			return nil, f
		}
	}
	if c.broke && len(c.parts) > 0 {
		return nil, ambiguous("it is an error and an answer at once")
	}
	return c, flaw{}
}

// unwrap steps into the object that Code Assist puts an answer into.
func (t *turn) unwrap(b []byte, c *chunk) flaw {
	outer := c.root
	c.root = rawjson.Span{From: outer.From, To: outer.From}
	for w := rawjson.Open(b, outer); w.Next(); {
		switch string(w.Key.In(b)) {
		case "response":
			if !rawjson.Null(b, w.Val) && !rawjson.IsObject(b, w.Val) {
				return unknown("where the answer belongs stands no object")
			}
			c.root = w.Val
		case "error":
			c.broke = !rawjson.Null(b, w.Val)
		default:
			if why := oddMember(b, &w, quietWrapper, false); why != "" {
				return unknown(why)
			}
		}
	}
	if c.broke && rawjson.IsObject(b, c.root) && rawjson.Nested(b, c.root) {
		return ambiguous("it is an error and an answer at once")
	}
	return flaw{}
}

// stray takes in a member that is not read: it counts as a call unless it
// cannot hold one.
func (t *turn) stray(c *chunk, b []byte, w *rawjson.Walk, quiet map[string]bool, cand int) {
	why := oddMember(b, w, quiet, false)
	if why == "" {
		return
	}
	k := t.odd("member", b, w.Val, unknown(why))
	if cand >= 0 {
		k.Lane = c.cands[cand].lane.n
	}
	c.strays = append(c.strays, stray{w.Item, cand, k})
}

// odd makes a call of something that is none of the format's.
func (t *turn) odd(typ string, b []byte, at rawjson.Span, f flaw) *call {
	k := &call{}
	k.Type = typ
	k.Args = bytes.Clone(b[at.From:min(at.To, at.From+t.lim.Args)])
	k.blame(f)
	return k
}

func (t *turn) candidate(c *chunk, b []byte, at rawjson.Span) flaw {
	if !rawjson.IsObject(b, at) {
		return unknown("a candidate is no object")
	}
	n := len(c.cands)
	k := candidate{at: at, from: len(c.parts)}
	index := n
	for w := rawjson.Open(b, at); w.Next(); {
		switch string(w.Key.In(b)) {
		case "content":
			k.content = w.Val
		case "finishReason":
			if k.finish = w.Val; !rawjson.Null(b, w.Val) && !rawjson.IsString(b, w.Val) {
				return unknown("a reason for the end is no word")
			}
		case "index":
			if i, ok := rawjson.Whole(b, w.Val); ok && i < maxLanes {
				index = i
			} else if !rawjson.Null(b, w.Val) {
				return ambiguous("the index of a candidate is no small whole number")
			}
		case "logprobsResult":
			c.logprobs = c.logprobs || !rawjson.Null(b, w.Val)
		}
	}
	if string(k.finish.In(b)) == `""` || string(k.finish.In(b)) == `"FINISH_REASON_UNSPECIFIED"` {
		k.finish = rawjson.Span{}
	}
	k.lane = t.lane(index)
	if slices.ContainsFunc(c.cands, func(o candidate) bool { return o.lane == k.lane }) {
		return ambiguous("two candidates have one index")
	}
	c.cands = append(c.cands, k)
	for w := rawjson.Open(b, at); w.Next(); {
		if string(w.Key.In(b)) != "content" {
			t.stray(c, b, &w, quietCandidate, n)
		}
	}
	if f := t.content(c, b, n); f.reason != "" {
		return f
	}
	c.cands[n].to = len(c.parts)
	c.finishes = c.finishes || !rawjson.Null(b, k.finish)
	return flaw{}
}

func (t *turn) content(c *chunk, b []byte, n int) flaw {
	content := c.cands[n].content
	if rawjson.Null(b, content) {
		return flaw{}
	}
	if !rawjson.IsObject(b, content) {
		return unknown("a content is no object")
	}
	var list rawjson.Span
	for w := rawjson.Open(b, content); w.Next(); {
		if string(w.Key.In(b)) == "parts" {
			list = w.Val
			continue
		}
		t.stray(c, b, &w, quietContent, n)
	}
	if rawjson.Null(b, list) {
		return flaw{}
	}
	if !rawjson.IsArray(b, list) {
		return unknown("its parts are no list")
	}
	c.cands[n].list = list
	for w := rawjson.Open(b, list); w.Next(); {
		c.parts = append(c.parts, t.readPart(b, w.Val, c.cands[n].lane))
	}
	return flaw{}
}

// readPart reads one part. A part is of one kind; what is of two or of none
// counts as a call.
func (t *turn) readPart(b []byte, at rawjson.Span, l *lane) (p part) {
	p.at, p.plain = at, true
	kinds, odd, kind := 0, "", "part"
	var hosted rawjson.Span
	if !rawjson.IsObject(b, at) {
		odd = "a part is no object"
	}
	for w := rawjson.Open(b, at); w.Next(); {
		switch key := string(w.Key.In(b)); key {
		case "text":
			if p.text = w.Val; !rawjson.IsString(b, w.Val) && !rawjson.Null(b, w.Val) {
				odd = "the text of a part is no text"
			}
			continue
		case "thought":
			p.thought = string(w.Val.In(b)) == "true"
			continue
		case "thoughtSignature":
			if p.signature = w.Val; !rawjson.IsString(b, w.Val) {
				p.signature = rawjson.Span{}
			}
		case "functionCall":
			if rawjson.Null(b, w.Val) {
				continue
			}
			p.inner = w.Val
			kinds++
		case "executableCode", "toolCall":
			if rawjson.Null(b, w.Val) {
				continue
			}
			hosted, kind = w.Val, key
			kinds++
		case "codeExecutionResult", "toolResponse":
			p.result = p.result || !hollow(b, w.Val)
		default:
			if why := oddMember(b, &w, quietPart, true); why != "" {
				odd, kind = why, rawjson.KeyText(b, w.Key)
			}
		}
		p.plain = false
	}
	spoken := rawjson.IsString(b, p.text) && p.text.Len() > 2
	switch {
	case odd != "":
		p.call = t.odd(short(kind), b, at, unknown(odd))
	case p.inner.There():
		p.call = t.readCall(b, &p)
		if kinds > 1 || spoken {
			p.call.blame(ambiguous("more than the call stands in its part"))
		}
	case hosted.There():
		if why := t.notHosted(b, kind, hosted); why != "" || kinds > 1 || spoken {
			p.call = t.odd(kind, b, at, unknown("a part says that the provider runs it, and "+firstOf(why, "more stands in it")))
			break
		}
		p.hosted = true
		t.hosted(b, kind, hosted, l)
	}
	if p.call != nil {
		p.call.Lane = l.n
		p.plain = false
	}
	return p
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// readCall reads the call in a part.
func (t *turn) readCall(b []byte, p *part) *call {
	k := &call{}
	k.Type = "functionCall"
	if !rawjson.IsObject(b, p.inner) {
		return t.odd(k.Type, b, p.at, unknown("where a call belongs stands no object"))
	}
	var name rawjson.Span
	for w := rawjson.Open(b, p.inner); w.Next(); {
		switch key := string(w.Key.In(b)); key {
		case "name":
			name = w.Val
		case "id":
			p.id = w.Val
		case "args":
			p.args = w.Val
		case "partialArgs", "willContinue":
			if !hollow(b, w.Val) {
				k.blame(unknown("its arguments come in pieces"))
			}
		default:
			if word := rawjson.KeyText(b, w.Key); !hollow(b, w.Val) && likeArgs(word) {
				k.blame(ambiguous(fmt.Sprintf("the key %q in it can be read as another one", short(word))))
			}
		}
	}
	k.word(&k.Name, b, name)
	k.word(&k.ID, b, p.id)
	if !rawjson.IsString(b, name) || k.Name == "" {
		k.blame(ambiguous("the call has no name"))
	}
	if rawjson.Null(b, p.args) {
		k.Args = []byte("{}")
	} else {
		k.Args = bytes.Clone(b[p.args.From:min(p.args.To, p.args.From+t.lim.Args)])
		if p.args.Len() > t.lim.Args {
			k.blame(flaw{toolcall.FaultOversize, fmt.Sprintf("its arguments are longer than %d bytes", t.lim.Args)})
		}
	}
	if k.Fault == toolcall.FaultNone {
		k.blame(checkArgs(k.Args, t.lim.Depth))
	}
	if lone(p.at.In(b), t.lim.Depth) {
		k.blame(ambiguous("half a surrogate pair stands in its part"))
	}
	if t.events && frame.OtherBreaks(p.at.In(b)) {
		k.blame(ambiguous("a character stands in it at which some readers break lines"))
	}
	return k
}
