package anthropic

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// call is a call of a turn on its way to its ruling.
type call struct {
	toolcall.Call
	complete bool // nothing more will be added to it
	ruled    bool
	ruling   inspect.Ruling
	given    bool // it was shown
	silent   bool // it was withheld, and later requests tell of it: nothing stands in its place
	said     bool // its refusal was shown as text

	// Of a stream:
	start  []byte       // the input that stands in the block's start
	input  rawjson.Span // where in the data
	deltas []byte       // the input that came in deltas
	heard  rawjson.Span // the block's start in what was heard
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

// refusal is the text that stands in the call's place.
func (c *call) refusal() string {
	if strings.TrimSpace(c.ruling.Refusal) == "" {
		return inspect.NoReason
	}
	return c.ruling.Refusal
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
	first  int // the number of the round's first call
	silent int // how many of the round's calls are silent
	hosted int
	weight int             // bytes of arguments and names, of all calls together
	ids    map[string]bool // of many calls
}

// add takes a new call in.
func (l *ledger) add(c *call) error {
	if len(l.calls) >= l.lim.Calls {
		return &inspect.Error{Dialect: Name, Where: "call " + strconv.Itoa(len(l.calls)), Reason: "the answer holds more calls than the limit of " + strconv.Itoa(l.lim.Calls), Limit: true}
	}
	c.Seq = len(l.calls)
	l.weight += len(c.ID) + len(c.Name)
	if c.Type == "tool_use" && c.ID != "" {
		if l.known(c.ID) {
			c.blame(toolcall.FaultAmbiguous, "another call of the round has the same id")
		}
	}
	l.calls = append(l.calls, c)
	return nil
}

// fewCalls is how many calls are looked through for an id before a map of them
// takes over.
const fewCalls = 16

// known reports whether a call of the round has this id, and notes it for those
// to come. Some servers begin to count anew in each answer.
func (l *ledger) known(id string) bool {
	if round := l.calls[l.first:]; l.ids == nil {
		if len(round) < fewCalls {
			return slices.ContainsFunc(round, func(c *call) bool { return c.Type == "tool_use" && c.ID == id })
		}
		l.ids = make(map[string]bool, 2*fewCalls)
		for _, c := range round {
			if c.Type == "tool_use" {
				l.ids[c.ID] = true
			}
		}
	}
	twice := l.ids[id]
	l.ids[id] = true
	return twice
}

// next makes the ledger ready for a further round.
func (l *ledger) next() { l.first, l.silent, l.ids = len(l.calls), 0, nil }

// settle chooses and checks the arguments of a call that is complete.
func (l *ledger) settle(c *call) {
	inStart := len(c.start) > 0 && string(c.start) != "{}" && string(c.start) != "null"
	switch {
	case len(c.deltas) > 0:
		c.Args = c.deltas
		if inStart {
			c.blame(toolcall.FaultAmbiguous, "its input stands in its start and in deltas")
		}
	case len(c.start) > 0:
		c.Args = c.start
	default:
		c.Args = []byte("{}")
	}
	if len(c.Args) > l.lim.Args {
		c.Args = c.Args[:l.lim.Args]
		c.blame(toolcall.FaultOversize, "its arguments are longer than "+strconv.Itoa(l.lim.Args)+" bytes")
	}
	if c.Fault == toolcall.FaultNone {
		f := checkArgs(c.Args, l.lim.Depth)
		c.blame(f.fault, f.reason)
	}
	c.complete = true
}

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
		if f := checkArgs(r.Args, l.lim.Depth); f.fault != toolcall.FaultNone {
			// Nobody could have meant these: the call stays in.
			r.Release = false
		}
		r.Args = bytes.Clone(r.Args)
	}
	c.ruled, c.ruling = true, r
	l.ruled++
	return true
}

// hush makes a withheld call silent if it can stand in a history, where block
// is how it would stand there.
func (l *ledger) hush(c *call, block []byte) {
	if l.repair && !c.released() && c.sound() && readable(block) {
		c.silent = true
		l.silent++
	}
}

// sound reports whether nothing is wrong with a call that has come whole.
func (c *call) sound() bool { return c.complete && c.Fault == toolcall.FaultNone }

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
func completes(finish string) bool {
	return finish == "tool_use" || finish == "end_turn" || finish == "stop_sequence"
}

// hand notes that a call was shown.
func (l *ledger) hand(c *call) {
	c.given = true
	l.given++
}

// waiting reports whether a call that was handed over has no ruling.
func (l *ledger) waiting() bool { return l.ruled < l.issued }

// tally gives how many calls there were, and how many were not given out.
func (l *ledger) tally() (calls, withheld int) { return len(l.calls), len(l.calls) - l.given }

// anyShown reports whether a call was given out.
func (l *ledger) anyShown() bool { return l.given > 0 }

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
func (l *ledger) hostedCall(typ, id, name string, args []byte) toolcall.Call {
	h := toolcall.Call{Seq: l.hosted, Type: typ, ID: id, Name: name, Args: args}
	l.hosted++
	if err := strictjson.Object(args, strictjson.Options{Depth: l.lim.Depth}); err != nil {
		h.Fault, h.Detail = toolcall.FaultArguments, shortened(err.Error())
	}
	return h
}
