package anthropic

import (
	"bytes"
	"strconv"
	"strings"

	"callgate/inspect"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// call is a call of a turn on its way to its ruling.
type call struct {
	toolcall.Call
	complete bool // nothing more will be added to it
	ruled    bool
	ruling   inspect.Ruling

	// Of a stream:
	start  []byte // the input that stands in the block's start
	input  spot   // where
	deltas []byte // the input that came in deltas
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
	l.calls = append(l.calls, c)
	if c.Type == "tool_use" && c.ID != "" {
		if l.ids[c.ID] {
			c.blame(toolcall.FaultAmbiguous, "another call of the turn has the same id")
		}
		if l.ids == nil {
			l.ids = map[string]bool{}
		}
		l.ids[c.ID] = true
	}
	return nil
}

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

// waiting reports whether a call that was handed over has no ruling.
func (l *ledger) waiting() bool { return l.ruled < l.issued }

// count gives how many calls there were, and how many were not given out.
func (l *ledger) count() (calls, withheld int) { return len(l.calls), len(l.calls) - l.given }

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
