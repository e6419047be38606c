package responses

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// call is a call of a turn on its way to its ruling.
type call struct {
	toolcall.Call
	kind      *kind
	member    string // of its item, that holds the arguments
	complete  bool   // nothing more will be added to it
	ruled     bool
	ruling    inspect.Ruling
	given     bool // it was shown
	silent    bool // it was withheld, and later requests tell of it: nothing stands in its place
	said      bool // its refusal was shown as text
	rewritten bool // a piece with its new arguments was shown

	// Of a stream:
	start  []byte // its item as it was added
	pieces []*piece
}

// blame sets the first fault of a call.
func (c *call) blame(f toolcall.Fault, reason string) {
	if c.Fault == toolcall.FaultNone && f != toolcall.FaultNone {
		c.Fault, c.Detail = f, shortened(reason)
	}
}

// maxDetail is the longest reason that is kept of a fault, in bytes. Reasons
// quote the answer, which may be made of one long word.
const maxDetail = 500

func shortened(reason string) string {
	if len(reason) <= maxDetail {
		return reason
	}
	return strings.ToValidUTF8(reason[:maxDetail], "") + " ..."
}

// released reports whether the call goes out. A faulty call never does,
// whatever its ruling says.
func (c *call) released() bool {
	return c.ruled && c.ruling.Release && c.Fault == toolcall.FaultNone
}

// edited reports whether it goes out with other arguments.
func (c *call) edited() bool { return c.released() && c.ruling.Args != nil }

// refusal is the text that stands in the call's place.
func (c *call) refusal() string {
	if strings.TrimSpace(c.ruling.Refusal) == "" {
		return inspect.NoReason
	}
	return c.ruling.Refusal
}

// sound reports whether nothing is wrong with a call that has come whole.
func (c *call) sound() bool { return c.complete && c.Fault == toolcall.FaultNone }

// refusable reports whether a refusal of it can stand in a history.
func (c *call) refusable() bool { return c.sound() && c.ID != "" && c.kind.output != "" }

// stands reports whether it stands in a history, with the result of the client
// or a refusal.
func (c *call) stands() bool { return c.sound() && c.ID != "" && (c.given || c.kind.output != "") }

// fit takes new arguments in. Those that cannot be the call's keep it in.
func (c *call) fit(args []byte, lim *inspect.Limits) (ok bool) {
	switch {
	case c.kind == nil || c.kind.class != callItem, c.kind.name == computerName:
		return false
	case c.Text:
		return utf8.Valid(args)
	}
	return strictjson.Object(args, strictjson.Options{Depth: lim.Depth}) == nil
}

// argsText gives the call's new arguments as its item holds them.
func (c *call) argsText() []byte {
	if c.kind.form == asValue {
		return c.ruling.Args
	}
	return appendString(nil, string(c.ruling.Args))
}

// withArgs gives an item of the call with the arguments that it ran with.
func (c *call) withArgs(raw []byte) []byte {
	if !c.edited() {
		return raw
	}
	p := patch{b: raw, obj: rawjson.All(raw)}
	p.set(c.member, c.argsText())
	return p.append(nil)
}

// settle reads the whole item of a call and checks its arguments.
func (l *ledger) settle(c *call, b []byte, at rawjson.Span) {
	c.complete = true
	if c.kind.class != callItem {
		c.Args = bytes.Clone(at.In(b)[:min(at.Len(), l.lim.Args)])
		l.weight += len(c.Args)
		return
	}
	args, f := argsOf(b, at, c.kind, l.lim.Depth)
	c.member = argMember(b, at, c.kind)
	c.Args = args
	if len(bytes.TrimLeft(args, " \t\r\n")) == 0 && c.kind.form == jsonText {
		c.Args = []byte("{}") // as clients read none
	}
	if len(c.Args) > l.lim.Args {
		c.Args = c.Args[:l.lim.Args]
		c.blame(toolcall.FaultOversize, "its arguments are longer than "+strconv.Itoa(l.lim.Args)+" bytes")
	}
	c.blame(f.fault, f.reason)
	if c.Fault == toolcall.FaultNone && !c.Text {
		f := checkArgs(c.Args, l.lim.Depth)
		c.blame(f.fault, f.reason)
	}
	if rawjson.Text(b, rawjson.Get(b, at, "status")) == "incomplete" {
		c.blame(toolcall.FaultTruncated, "its item says that it is incomplete")
	}
	l.weight += len(c.Args)
}

// checkArgs says what is wrong with the arguments of a call, which must be one
// JSON object that all readers read alike.
func checkArgs(args []byte, depth int) flaw {
	err := strictjson.Object(args, strictjson.Options{Depth: depth})
	if err == nil {
		return flaw{}
	}
	f := flaw{toolcall.FaultArguments, "its arguments cannot be read: " + err.Error()}
	if e, ok := errors.AsType[*strictjson.Error](err); ok {
		switch {
		case e.Early:
			f.fault = toolcall.FaultTruncated
		case e.Differ:
			f.fault = toolcall.FaultAmbiguous
		}
	}
	return f
}

// ledger holds the calls of a turn in the provider's order.
type ledger struct {
	lim    inspect.Limits
	tools  []toolcall.Tool // what the request offered
	calls  []*call
	issued int // how many of them were handed over for a ruling
	ruled  int
	given  int // how many were shown
	repair bool
	first  int  // the number of the round's first call
	silent int  // how many of the round's calls are silent
	full   bool // too much was said to be told of
	hosted int
	weight int // bytes of arguments and names, of all calls together
	ids    map[string]bool
}

// add takes a new call in.
func (l *ledger) add(c *call) error {
	if len(l.calls) >= l.lim.Calls {
		return &inspect.Error{Dialect: Name, Where: "call " + strconv.Itoa(len(l.calls)), Reason: "the answer holds more calls than the limit of " + strconv.Itoa(l.lim.Calls), Limit: true}
	}
	c.Seq = len(l.calls)
	l.weight += len(c.ID) + len(c.Name)
	if c.kind != nil && c.kind.class == callItem && c.ID != "" {
		if l.ids[c.ID] {
			c.blame(toolcall.FaultAmbiguous, "another call of the round has the same id")
		}
		if l.ids == nil {
			l.ids = map[string]bool{}
		}
		l.ids[c.ID] = true
	}
	l.calls = append(l.calls, c)
	return nil
}

// next makes the ledger ready for a further round.
func (l *ledger) next() { l.first, l.silent, l.ids = len(l.calls), 0, nil }

// issue hands over the calls that are complete, in the provider's order.
func (l *ledger) issue(to []toolcall.Call) []toolcall.Call {
	for l.issued < len(l.calls) && l.calls[l.issued].complete {
		to = append(to, l.calls[l.issued].Call)
		l.issued++
	}
	return to
}

// rule notes a ruling. It reports whether there was a call to rule on.
func (l *ledger) rule(seq int, r inspect.Ruling) bool {
	if seq < 0 || seq >= l.issued || l.calls[seq].ruled {
		return false
	}
	c := l.calls[seq]
	if r.Args != nil {
		// Nobody could have meant arguments that do not fit: the call stays in.
		r.Release = r.Release && c.fit(r.Args, &l.lim)
		r.Args = bytes.Clone(r.Args)
	}
	c.ruled, c.ruling = true, r
	l.ruled++
	if l.repair && !l.full && !c.released() && c.refusable() {
		c.silent = true
		l.silent++
	}
	return true
}

// resumable reports whether the model can be told of the round's calls at once,
// with this finish of the round: the agent has none to wait for. A round that
// ended for another reason than to have them run is not gone on with.
func (l *ledger) resumable(finish string) bool {
	if l.silent == 0 || l.given > 0 || l.ruled < len(l.calls) || !completes(finish) {
		return false
	}
	return !slices.ContainsFunc(l.calls, (*call).released)
}

// completes reports whether a finish says that the model has said all it had
// to say.
func completes(finish string) bool { return finish == "completed" }

// hand notes that a call was shown.
func (l *ledger) hand(c *call) {
	c.given = true
	l.given++
}

// waiting reports whether a call that was handed over has no ruling.
func (l *ledger) waiting() bool { return l.ruled < l.issued }

// tally gives how many calls there were, and how many were not given out.
func (l *ledger) tally() (calls, withheld int) { return len(l.calls), len(l.calls) - l.given }

// tooMuch says which limit on all calls together was passed, "" for none.
func (l *ledger) tooMuch() string {
	switch {
	case l.weight > l.lim.Held:
		return "the calls of the answer hold more than " + strconv.Itoa(l.lim.Held) + " bytes"
	case l.hosted > l.lim.Calls:
		return "the answer holds more calls of the provider's own than the limit of " + strconv.Itoa(l.lim.Calls)
	}
	return ""
}

// hostedCall makes the record of a call that the provider ran itself. These
// are counted apart: nobody can rule on them.
func (l *ledger) hostedCall(typ, id string, b []byte, at rawjson.Span) toolcall.Call {
	name := rawjson.Text(b, rawjson.Get(b, at, "name"))
	if label := rawjson.Text(b, rawjson.Get(b, at, "server_label")); label != "" {
		name = strings.TrimSuffix(label+"."+name, ".")
	}
	h := toolcall.Call{Seq: l.hosted, Type: typ, ID: id, Name: name, Args: hostedArgs(b, at, l.lim.Args)}
	l.hosted++
	if len(h.Args) > l.lim.Args {
		h.Args = h.Args[:l.lim.Args]
	}
	l.weight += len(h.Args)
	if err := strictjson.Object(h.Args, strictjson.Options{Depth: l.lim.Depth}); err != nil {
		h.Fault, h.Detail = toolcall.FaultArguments, shortened(err.Error())
	}
	return h
}
