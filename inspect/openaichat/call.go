package openaichat

import (
	"bytes"
	"errors"
	"fmt"
	"math"
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
	// identified says that its id was held against those of the lane.
	identified bool
	// mentioned says that it was seen before, numbered that the choice it was
	// seen in gave its own index.
	mentioned, numbered bool

	announced bool
	resolved  bool
	released  bool
	edited    []byte // arguments to give in place of its own, nil for none
	fits      bool   // it can be put back into a history
	extra     []byte // its extra_content, as written
	given     bool   // the edited arguments were given out
	refusal   string // shown in its place when it is withheld
	passed    bool   // its first mention was given out, or dropped

	last int // ordinal of the last event that mentions it

	place  int // its number among the calls left, once placed
	placed bool
}

// fail marks the call as one that cannot be judged. The first fault stands.
func (c *call) fail(f toolcall.Fault, detail string) {
	if c.Fault == toolcall.FaultNone {
		c.Fault, c.Detail = f, detail
	}
}

// once sets a field that the wire gives once. Empty values say nothing. Of a
// value that comes again some clients take the last and others put the two
// together, so that the same again is another one.
func (c *call) once(field *string, value, what string) {
	switch {
	case value == "":
	case *field == "":
		*field = c.word(value, what)
	default:
		c.fail(toolcall.FaultAmbiguous, "its "+what+" came twice")
	}
}

// kind sets the type, which no client puts together.
func (c *call) kind(value string) {
	if value != c.Type {
		c.once(&c.Type, value, "type")
	}
}

// maxWord is the longest id, name or type, in bytes: APIs allow 64, and some
// ids carry a signature.
const maxWord = 16 << 10

// word bounds what is kept of an id, a name or a type.
func (c *call) word(value, what string) string {
	if len(value) <= maxWord {
		return value
	}
	c.fail(toolcall.FaultOversize, fmt.Sprintf("its %s is longer than %d bytes", what, maxWord))
	return strings.Clone(value[:maxWord])
}

// lane is one choice of the answer.
type lane struct {
	n     int
	calls []*call // in the order in which they were first seen
	// newest is the call of a stream that began last, named the last one that
	// began with an id: the ones that readers go on with who look at no index.
	newest, named *call
	older         *call // the call of the form before tool_calls
	// index and ids find calls by what the wire gave them, once there are more
	// than fewCalls.
	index map[int]*call
	ids   map[string]*call
	// finished and reason tell what was read.
	finished bool
	reason   string
	// What the agent was shown.
	role, text, refusal bool
	closed              bool     // a finish was shown
	refusals            []string // texts that wait for their place
	// How many calls were withheld and how many let out, up to the place that
	// the agent has reached.
	withheld, left int
	waits          int      // the smallest number of a call without a ruling
	few            [2]*call // memory of calls, which are few as a rule
}

// fewCalls is how many calls of a lane are looked through one by one.
const fewCalls = 8

// find gives the lane's call of a number, nil when there is none.
func (l *lane) find(index int) *call {
	if c := l.newest; c != nil && c.indexed && c.index == index {
		return c
	}
	if l.index != nil {
		return l.index[index]
	}
	for _, c := range l.calls {
		if c.indexed && c.index == index {
			return c
		}
	}
	return nil
}

// number notes the number that the wire gave a call of the lane.
func (l *lane) number(c *call, index int) {
	c.index, c.indexed = index, true
	l.waits = min(l.waits, index)
	if len(l.calls) <= fewCalls {
		return
	}
	if l.index == nil {
		l.index = make(map[int]*call, 2*fewCalls)
		for _, o := range l.calls {
			if o.indexed {
				l.index[o.index] = o
			}
		}
	}
	l.index[index] = c
}

// identify takes in a call's id. Two calls of one id are one for some clients.
func (l *lane) identify(c *call, id string) {
	c.once(&c.ID, id, "id")
	if id == "" || c.ID == "" || c.identified {
		return
	}
	o := l.sameID(c)
	if c.identified = true; o != nil {
		tangle(o, c, "another call of its choice has the same id")
	}
}

// sameID gives another call with the id of a call.
func (l *lane) sameID(c *call) *call {
	if len(l.calls) <= fewCalls {
		for _, o := range l.calls {
			if o.identified && o.ID == c.ID {
				return o
			}
		}
		return nil
	}
	if l.ids == nil {
		l.ids = make(map[string]*call, 2*fewCalls)
		for _, o := range l.calls {
			if o.identified && l.ids[o.ID] == nil {
				l.ids[o.ID] = o
			}
		}
	}
	o := l.ids[c.ID]
	if o == nil {
		l.ids[c.ID] = c
	}
	return o
}

// tangle marks two calls of which clients may put parts together in ways of
// their own.
func tangle(x, y *call, why string) {
	x.fail(toolcall.FaultAmbiguous, why)
	y.fail(toolcall.FaultAmbiguous, why)
}

// begin takes in what a call of a stream begins with, before anything was added
// to it elsewhere. Many clients look at no index: they begin a call at an id or
// at a name and put all else on the one that began last.
func (l *lane) begin(c *call) {
	const why = "a call of its choice begins without what tells it from the one before"
	if l.newest != nil && c.Name == "" {
		tangle(l.newest, c, why)
	}
	if l.named != nil && c.ID == "" && c.Type != typeLegacy {
		tangle(l.named, c, why)
	}
	l.newest = c
	if c.ID != "" {
		l.named = c
	}
}

// goOn takes in that more came for a call. Clients that look at no index put
// it on the one that began last.
func (l *lane) goOn(c *call) {
	if l.newest != c {
		tangle(l.newest, c, "its parts are mixed with those of another call of its choice")
	}
}

// pass notes that the agent has reached the place of a call. A refusal then
// waits for its own place in the lane.
func (l *lane) pass(c *call) {
	if c.passed {
		return
	}
	c.passed = true
	if c.released {
		l.left++
		return
	}
	l.withheld++
	if c.fits {
		return // the model reads its refusal as a result
	}
	l.refusals = append(l.refusals, c.refusal)
}

// callFinishes are the finish reasons that say calls were made.
var callFinishes = []string{"tool_calls", "function_call", "tool_use", "tool_call"}

// finishShown is the finish reason that the agent is shown for the provider's:
// a word that promises calls becomes stop when all of them were withheld.
func (l *lane) finishShown(reason string) string {
	if l.withheld > 0 && l.left == 0 && slices.Contains(callFinishes, reason) {
		return "stop"
	}
	return reason
}

// position gives the number that a released call has among those left. It
// differs from the wire's only behind a withheld call. It is asked for when all
// calls of the lane are known and those with smaller numbers have rulings.
func (c *call) position() int {
	if !c.placed {
		c.place, c.placed = c.findPlace(), true
	}
	return c.place
}

func (c *call) findPlace() int {
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
	args  int     // bytes of all their arguments
	rounds
	// argsRoom is how large arguments that come in pieces begin.
	argsRoom int
	rec      inspect.Record

	fresh  []toolcall.Call // announced since the last step
	failed bool            // an error of the provider was read
	err    error           // that ended the reading
	ended  bool            // the round has ended
	over   bool            // the turn has ended
	out    []byte
	room   []byte // for arguments while they are unescaped

	// Memory of what most answers hold little of.
	one struct {
		lane  lane
		lanes [1]*lane
		calls [2]*call
		room  [128]byte
	}
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
	var l *lane
	if t.lanes == nil {
		l, t.lanes = &t.one.lane, t.one.lanes[:0]
	} else {
		l = new(lane)
	}
	l.n, l.waits, l.calls = n, math.MaxInt, l.few[:0]
	if t.lanes = append(t.lanes, l); len(t.lanes) == 1 {
		return l, nil
	}
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
	if t.calls == nil {
		t.calls = t.one.calls[:0]
	}
	c.Seq = len(t.calls)
	t.calls = append(t.calls, c)
	t.open++
	t.fresh = append(t.fresh, c.Call)
}

// argue adds to a call's arguments. They are kept until the turn is over, so
// those of all calls together are bounded like what waits.
func (t *turn) argue(c *call, more []byte) {
	if len(c.Args)+len(more) > t.lim.Args {
		c.fail(toolcall.FaultOversize, fmt.Sprintf("its arguments are larger than %d bytes", t.lim.Args))
		more = more[:t.lim.Args-len(c.Args)]
	}
	if t.args+len(more) > t.lim.Held {
		c.fail(toolcall.FaultOversize, fmt.Sprintf("the arguments of all calls together are larger than %d bytes", t.lim.Held))
		more = more[:t.lim.Held-t.args]
	}
	t.args += len(more)
	if c.Args == nil && len(more) > 0 {
		c.Args = make([]byte, 0, max(len(more), t.argsRoom))
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
	}
	t.fit(l)
	for _, c := range l.calls {
		t.announce(c)
	}
}

// judgeable marks a call that is whole and cannot be judged all the same. short
// says that the provider stopped early, last that no call stands behind.
func (t *turn) judgeable(c *call, short, last bool) {
	if c.Name == "" {
		c.fail(toolcall.FaultAmbiguous, "it has no name")
	}
	if t.begun > 1 && c.ID == "" && c.Type != typeLegacy {
		c.fail(toolcall.FaultAmbiguous, "it has no id, and the answer goes on behind others")
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
	c.lane.resolved(c)
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
		t.silent, t.mend = t.silent || c.fits, t.mend || c.fits
	}
	t.released = t.released || c.released
	return c, nil
}

// resolved notes that a call has its ruling.
func (l *lane) resolved(c *call) {
	if !c.indexed || c.index != l.waits {
		return
	}
	l.waits = math.MaxInt
	for _, o := range l.calls {
		if o.indexed && !o.resolved {
			l.waits = min(l.waits, o.index)
		}
	}
}

// blocks reports whether what stands in the place of the call cannot be given
// out: it, or a call with a smaller number, has no ruling.
func (c *call) blocks() bool { return !c.resolved || c.indexed && c.index > c.lane.waits }

// step closes a drive of the turn.
func (t *turn) step() inspect.Step {
	s := inspect.Step{Out: t.out, Calls: t.fresh, Held: t.args + t.rounds.kept()}
	t.out, t.fresh = nil, nil
	switch {
	case t.over && t.open == 0:
		s.State = inspect.Done
	case t.open > 0:
		s.State = inspect.Waiting
	case t.suspended:
		s.State = inspect.Suspended
	}
	return s
}

// Record tells what was said and shown.
func (t *turn) Record() inspect.Record {
	r := t.rec
	r.ID, r.Model, r.Calls = t.env.idText, t.env.modelText, len(t.calls)
	r.Rounds, r.Billed = t.begun, t.billed
	if r.InputTokens < 0 {
		r.Billed = -1
	} else if r.Billed >= 0 {
		r.Billed += r.InputTokens
	}
	if t.outputs > 0 {
		r.OutputTokens = t.outputs + max(0, r.OutputTokens)
	}
	return r
}
