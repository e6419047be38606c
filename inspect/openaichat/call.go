package openaichat

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"callgate/inspect"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// maxLanes is how many choices an answer may have; the API allows 128.
const maxLanes = 128

// The words for what can stand in the place of a call.
const (
	typeFunction = "function"
	typeCustom   = "custom"
	typeLegacy   = "function_call" // the form before tool_calls, still spoken by some servers
	typePart     = "content part"
	typeMember   = "member" // an unknown key that holds an object or a list
	typeEvent    = "event"  // a whole event that cannot be read one way only
)

// call is one call as it is gathered and given out.
type call struct {
	toolcall.Call
	lane *lane
	// index is the call's number in its lane; indexed says the wire gave it.
	index   int
	indexed bool
	object  bool // its arguments came as an object, not as text
	// mentioned says that it was seen before, numbered that the choice it was
	// seen in gave its own index.
	mentioned, numbered bool

	announced bool
	resolved  bool
	released  bool
	edited    []byte // arguments to give in place of its own, nil for none
	given     bool   // the edited arguments were given out
	refusal   string // shown in its place when it is withheld
	passed    bool   // its first mention was given out, or dropped

	last int // ordinal of the last event that mentions it
}

// fail marks the call as one that cannot be judged. The first fault stands.
func (c *call) fail(f toolcall.Fault, detail string) {
	if c.Fault == toolcall.FaultNone {
		c.Fault, c.Detail = f, detail
	}
}

// once sets a field that the wire gives once. Empty values say nothing, and a
// value that comes again must be the same.
func (c *call) once(field *string, value, what string) {
	switch {
	case value == "" || value == *field:
	case *field == "":
		*field = value
	default:
		c.fail(toolcall.FaultAmbiguous, "its "+what+" came twice and differs")
	}
}

// lane is one choice of the answer.
type lane struct {
	n     int
	calls []*call // in the order in which they were first seen
	// finished and reason tell what was read.
	finished bool
	reason   string
	// What the agent was shown.
	role, text, refusal bool
	closed              bool     // a finish was shown
	refusals            []string // texts that wait for their place
}

// find gives the lane's call of a type and number, nil when there is none.
func (l *lane) find(index int) *call {
	for _, c := range l.calls {
		if c.indexed && c.index == index {
			return c
		}
	}
	return nil
}

// legacy gives the lane's call of the older form.
func (l *lane) legacy() *call {
	for _, c := range l.calls {
		if c.Type == typeLegacy {
			return c
		}
	}
	return nil
}

// counts tells how many calls of the lane were withheld and how many were let
// out, up to the place that the agent has reached.
func (l *lane) counts() (withheld, left int) {
	for _, c := range l.calls {
		switch {
		case !c.passed:
		case c.released:
			left++
		default:
			withheld++
		}
	}
	return withheld, left
}

// pass notes that the agent has reached the place of a call. A refusal then
// waits for its own place in the lane.
func (l *lane) pass(c *call) {
	if c.passed {
		return
	}
	c.passed = true
	if !c.released {
		l.refusals = append(l.refusals, c.refusal)
	}
}

// callFinishes are the finish reasons that say calls were made.
var callFinishes = []string{"tool_calls", "function_call", "tool_use", "tool_call"}

// finishShown is the finish reason that the agent is shown for the provider's:
// a word that promises calls becomes stop when all of them were withheld.
func (l *lane) finishShown(reason string) string {
	if withheld, left := l.counts(); withheld > 0 && left == 0 && slices.Contains(callFinishes, reason) {
		return "stop"
	}
	return reason
}

// position gives the number that a released call has among those left. It
// differs from the wire's only behind a withheld call.
func (c *call) position() int {
	var before []*call
	moved := false
	for _, o := range c.lane.calls {
		if o.indexed && o.index < c.index {
			before = append(before, o)
			moved = moved || !o.released
		}
	}
	if !moved {
		return c.index
	}
	slices.SortStableFunc(before, func(x, y *call) int { return x.index - y.index })
	next, moved := 0, false
	for _, o := range before {
		switch {
		case !o.released:
			moved = true
		case moved:
			next++
		default:
			next = o.index + 1
		}
	}
	return next
}

// turn is what a streamed and a whole answer have in common.
type turn struct {
	lim        inspect.Limits
	lanesAsked int
	structured bool
	model      string // as the request names it

	env   envelope
	lanes []*lane
	calls []*call // that were announced, by their number
	open  int     // announced and without a ruling
	total int     // calls seen
	rec   inspect.Record

	fresh  []toolcall.Call // announced since the last step
	failed bool            // an error of the provider was read
	err    error           // that ended the reading
	ended  bool            // the round has ended
	over   bool            // the turn has ended
	out    []byte
	room   []byte // for arguments while they are unescaped
}

// lane gives the lane of that number, new when it was not seen before.
func (t *turn) lane(n int) (*lane, error) {
	for _, l := range t.lanes {
		if l.n == n {
			return l, nil
		}
	}
	if len(t.lanes) == maxLanes {
		return nil, t.limit("choices", fmt.Sprintf("the answer has more than %d choices", maxLanes))
	}
	l := &lane{n: n}
	t.lanes = append(t.lanes, l)
	slices.SortFunc(t.lanes, func(x, y *lane) int { return x.n - y.n })
	return l, nil
}

func (t *turn) limit(where, reason string) error {
	return &inspect.Error{Dialect: name, Where: where, Reason: reason, Limit: true}
}

// add puts a new call into a lane.
func (t *turn) add(l *lane, kind string) (*call, error) {
	if t.total++; t.total > t.lim.Calls {
		return nil, t.limit("calls", fmt.Sprintf("the answer holds more than %d calls", t.lim.Calls))
	}
	c := &call{lane: l, Call: toolcall.Call{Lane: l.n, Type: kind}}
	if l.n >= t.lanesAsked {
		c.fail(toolcall.FaultAmbiguous, fmt.Sprintf("it stands in choice %d, and %d were asked for", l.n, t.lanesAsked))
	}
	l.calls = append(l.calls, c)
	return c, nil
}

// announce hands a call over to be ruled on. Nothing can be added to it
// afterwards.
func (t *turn) announce(c *call) {
	if c.announced {
		return
	}
	c.announced = true
	if c.Type == "" {
		c.Type = typeFunction // what the API takes it for
	}
	c.Seq = len(t.calls)
	t.calls = append(t.calls, c)
	t.open++
	t.fresh = append(t.fresh, c.Call)
}

// argue adds to a call's arguments.
func (t *turn) argue(c *call, more []byte) {
	if len(c.Args)+len(more) > t.lim.Args {
		c.fail(toolcall.FaultOversize, fmt.Sprintf("its arguments are larger than %d bytes", t.lim.Args))
		more = more[:t.lim.Args-len(c.Args)]
	}
	c.Args = append(c.Args, more...)
}

// finish completes the calls of a lane. cut says that the answer broke off, and
// did not come to its end.
func (t *turn) finish(l *lane, cut bool) {
	for i, c := range l.calls {
		if c.announced {
			continue
		}
		if cut {
			c.fail(toolcall.FaultTruncated, "the answer ended before the call did")
		}
		t.judgeable(c, l.reason == "length" || l.reason == "content_filter", i == len(l.calls)-1)
		t.announce(c)
	}
}

// judgeable marks a call that is whole and cannot be judged all the same. short
// says that the provider stopped early, last that no call stands behind.
func (t *turn) judgeable(c *call, short, last bool) {
	if c.Name == "" {
		c.fail(toolcall.FaultAmbiguous, "it has no name")
	}
	if c.Text {
		if short && last {
			c.fail(toolcall.FaultTruncated, "the answer stopped at a limit, and free text does not show where it ends")
		}
		return
	}
	if len(bytes.TrimLeft(c.Args, " \t\r\n")) == 0 {
		if short {
			c.fail(toolcall.FaultTruncated, "the answer stopped at a limit before the arguments")
		}
		// Clients read no arguments as an empty object.
		c.Args = []byte("{}")
		return
	}
	err := strictjson.Object(c.Args, strictjson.Options{Depth: t.lim.Depth})
	if err == nil {
		return
	}
	fault := toolcall.FaultArguments
	if e, ok := errors.AsType[*strictjson.Error](err); ok {
		switch {
		case e.Early && short:
			fault = toolcall.FaultTruncated
		case e.Differ:
			fault = toolcall.FaultAmbiguous
		}
	}
	c.fail(fault, "its arguments: "+err.Error())
}

// rule carries out a ruling.
func (t *turn) rule(seq int, r inspect.Ruling) (*call, error) {
	if t.over || seq < 0 || seq >= len(t.calls) || t.calls[seq].resolved {
		return nil, inspect.Unresolvable(seq)
	}
	c := t.calls[seq]
	c.resolved = true
	t.open--
	c.released = r.Release && c.Fault == toolcall.FaultNone
	if c.released && r.Args != nil && !bytes.Equal(r.Args, c.Args) {
		c.edited = bytes.Clone(r.Args)
		// A ruling that gives what no client could read releases nothing.
		if !c.Text && strictjson.Object(r.Args, strictjson.Options{Depth: t.lim.Depth}) != nil {
			c.released, c.edited = false, nil
		}
	}
	if !c.released {
		t.rec.Withheld++
		if c.refusal = r.Refusal; strings.TrimSpace(c.refusal) == "" {
			c.refusal = inspect.NoReason
		}
	}
	return c, nil
}

// step closes a drive of the turn.
func (t *turn) step() inspect.Step {
	s := inspect.Step{Out: t.out, Calls: t.fresh}
	t.out, t.fresh = nil, nil
	switch {
	case t.open > 0:
		s.State = inspect.Waiting
	case t.over:
		s.State = inspect.Done
	}
	return s
}

// Record tells what was said and shown.
func (t *turn) Record() inspect.Record {
	r := t.rec
	r.ID, r.Model, r.Calls = t.env.idText, t.env.modelText, len(t.calls)
	return r
}
