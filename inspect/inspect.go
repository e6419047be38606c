// Package inspect defines how an answer of a model provider is read and
// rewritten: the dialects, the view of one request, and the turn, a pure state
// machine that takes the provider's bytes and gives the bytes the agent may
// see. It holds wire formats and no policy: it finds calls, withholds them
// until somebody outside rules on each, and carries the ruling out.
//
// A dialect is one subpackage. Nothing here or below does I/O, starts a
// goroutine or reads a clock.
//
// The promises every dialect keeps:
//
//   - From the first byte of a call until its ruling, nothing of the call is
//     given out. Text before it flows at once; what stands behind it waits.
//   - An answer whose calls are all released as they came is given out byte
//     for byte as it was fed, unless a KeepAlive was asked for in between, or
//     comments of an event stream were left out that some reader could take
//     for more (frame.Event.Cut).
//   - What is withheld leaves a well-formed answer: indexes close up, the
//     finish reason is changed when no call is left and only then, and some
//     visible text stands in its place. With DenialRepair a call that can be put
//     back into a history leaves nothing; then the end of the answer is given out
//     in the step whose state is Done and in none before.
//   - What was judged is what a client will read: anything two readers could
//     read differently is a call with a Fault, or dropped with one.
package inspect

import (
	"errors"
	"fmt"
	"net/http"

	"callgate/inspect/toolcall"
)

// Head is the start of a request or a response, as far as dialects read it.
type Head struct {
	Method string      // of a request
	Path   string      // of a request: URL path below the upstream's base, cleaned
	Query  string      // of a request: the raw query
	Status int         // of a response
	Header http.Header // of either; never changed by a dialect
}

// Class says what the gate does with an endpoint.
type Class uint8

// The classes. The zero value is the careful one: the answer is sniffed.
const (
	ClassUnknown  Class = iota // not in any list: answers are sniffed or refused
	ClassGated                 // answers may hold calls in this dialect's form
	ClassHarmless              // answers cannot hold calls: passed through
	// ClassAside is harmless too, but the request holds a conversation, in which
	// the model must see what it sees when it answers: to count its tokens, say.
	ClassAside
)

// Dialect is one wire format. Implementations hold only settings and are safe
// for concurrent use.
type Dialect interface {
	// Name is the dialect's name in logs, audit and configuration.
	Name() string
	// Classify tells by exact lists of method and path how an endpoint of this
	// dialect is treated; ClassUnknown when it is not one of its endpoints.
	Classify(Head) Class
	// Request reads one request body (after content decoding). It scans the
	// top level once and does not descend into the history. The body is kept
	// by the Request and must not be changed while the Request is in use.
	Request(Head, []byte) (Request, error)
	// Refuse gives the dialect's own error answer to a request that is not
	// forwarded. The reason is shown to the user by most agents.
	Refuse(status int, reason string) (Head, []byte)
}

// Request is a view of one request body.
//
// Rewriting a request (putting withheld calls and their refusals back into
// its history, or asking the provider again within the same turn) belongs to
// this type: it is the only one that knows both the body and the dialect.
type Request interface {
	// Info gives what the top level of the body says.
	Info() Info
	// Open starts the turn that answers this request. The response's head
	// says whether it is one JSON document or a stream; a content type the
	// dialect has no reading for is an error.
	Open(response Head) (Turn, error)
	// History walks the conversation that the body holds. An error is an
	// *Error: the body does not say one thing to all its readers.
	History() (History, error)
	// Resume gives the body that asks the provider again in the same turn: this
	// one with the rounds so far and their refusals behind its history, and no
	// tool that must be called. An error is an *Error.
	Resume(rounds []Round) ([]byte, error)
}

// Info is what a request says about itself.
type Info struct {
	Model  string
	Stream bool
	// Elements says that an answer in JSON comes piece by piece, too: as an array.
	Elements bool
	// Lanes is the number of choices asked for, at least 1.
	Lanes int
	// Tools are the tools offered to the model, in order.
	Tools []toolcall.Tool
	// Structured says that the answer's text must follow a schema, so that a
	// notice in it would break it.
	Structured bool
	// Session and User are what the client claims, "" where it claims nothing.
	// They are shown and passed on; no permission may rest on them alone.
	Session string
	User    string
}

// State is what a turn needs next.
type State uint8

// The states of a turn.
const (
	More    State = iota // feed more, or end the round
	Waiting              // output is blocked behind a call without a ruling, or one that is still coming; feeding goes on
	// Suspended: the round has ended and no call of the turn is left, but nothing
	// of its end was given out: NextRound goes on with what the provider says to
	// the refusals, or Abandon ends the turn.
	Suspended
	Done // everything was given out; nothing more may be fed
)

// Step is the result of driving a turn a little further.
type Step struct {
	// Out is dst with what the agent may now see appended.
	Out []byte
	// Calls became complete in this step and need a ruling, in order. Their
	// Args stay valid until the turn is done.
	Calls []toolcall.Call
	// Hosted are calls that the provider ran itself: to be recorded, they
	// cannot be ruled on.
	Hosted []toolcall.Call
	State  State
	// Held is about how much of the answer the turn keeps in memory by now, in
	// bytes: what waits behind calls, and what is gathered for later requests.
	Held int
}

// End says how a round of the provider ended.
type End uint8

// The ends of a round.
const (
	EndClean End = iota // the body ended as HTTP says it should
	EndCut              // the connection broke, or a limit or deadline ended it
)

// Turn is one answer as the agent sees it. Not safe for concurrent use.
//
// A turn owns the envelope (id, model, indexes given out, finish) apart from
// the round it is reading, so that a later round of the provider can go on in
// the same envelope: EndRound ends a round, not the turn.
type Turn interface {
	// Feed takes the next bytes of the provider's answer (after content
	// decoding), appends to dst what may be shown, and returns it. p is not
	// kept. An error means the answer cannot be read further: it is a *Error,
	// what Step.Out holds may still be written, and Abandon ends the turn.
	Feed(dst, p []byte) (Step, error)
	// Resolve carries out the ruling on the call with that number and gives
	// out what it was blocking. Each call is resolved once; an unknown or
	// repeated number is an error and changes nothing.
	Resolve(dst []byte, seq int, r Ruling) (Step, error)
	// EndRound says that the provider's answer has ended. Calls that were
	// not complete come out in Step.Calls with a Fault. The turn is done when
	// every call has its ruling.
	EndRound(dst []byte, end End) (Step, error)
	// NextRound goes on with a further answer of the provider in a turn that is
	// suspended. An error is an *Error and changes nothing: the answer has
	// another form.
	NextRound(response Head) error
	// Told is what later requests have to be told of the turn. It can be asked
	// for while the turn is suspended and when it is done.
	Told() Told
	// KeepAlive appends bytes that keep the client's clocks running and
	// change nothing it will read as content. It may append nothing when the
	// turn has no place for it yet.
	KeepAlive(dst []byte) []byte
	// Abandon appends a well-formed end of the answer with the text as its
	// last visible words, withholding all that was not given out. The turn is
	// done afterwards. Before the first byte was given out it appends a whole
	// answer.
	Abandon(dst []byte, text string) []byte
	// Fail appends an end of the answer in the dialect's form of an error, with
	// the text as its message, withholding all that was not given out. The turn
	// is done afterwards.
	Fail(dst []byte, text string) []byte
	// Record tells what the provider said against what was shown.
	Record() Record
}

// Ruling is what is done with a call. Its zero value withholds.
type Ruling struct {
	// Release lets the call out, with Args in place of its own when not nil.
	Release bool
	Args    []byte
	// Refusal is the text shown in the place of a withheld call. Dialects
	// put in a text of their own when it is empty: something visible always
	// stands there.
	Refusal string
}

// Record is the account of a turn.
type Record struct {
	ID     string // the provider's id of the answer
	Model  string // the model that answered, as the provider names it
	Finish string // the provider's finish reason of the first lane, "" when none came
	Shown  string // the finish reason the agent was shown
	// InputTokens and OutputTokens as the provider counted them, -1 when it
	// did not say.
	// Of several rounds, InputTokens is that of the last one, OutputTokens the
	// sum.
	InputTokens, OutputTokens int64
	// Rounds is how many answers of the provider the turn has begun, and Billed
	// the prompt tokens of all of them together, -1 when one did not say.
	Rounds          int
	Billed          int64
	Calls, Withheld int
	// Altered says that the bytes given out differ from the bytes fed.
	Altered bool
}

// Limits bound what one turn may hold. A zero field stands for its default.
type Limits struct {
	// Frame is the largest single event of a stream, in bytes (default 16 MiB).
	Frame int
	// Answer is the largest JSON answer, in bytes (default 32 MiB).
	Answer int
	// Held is how much of a stream may wait behind an undecided call, in
	// bytes (default 32 MiB), counted with what keeping each event takes. It
	// bounds the arguments of all calls of a turn together, too.
	Held int
	// Args is the largest arguments of one call, in bytes (default 1 MiB);
	// beyond it the call is faulty (toolcall.FaultOversize).
	Args int
	// Calls is how many calls one turn may hold (default 1,000).
	Calls int
	// Depth is how deep JSON may nest (default 200).
	Depth int
}

// Defaults returns l with each zero field set to its default.
func (l Limits) Defaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Frame, 16<<20)
	def(&l.Answer, 32<<20)
	def(&l.Held, 32<<20)
	def(&l.Args, 1<<20)
	def(&l.Calls, 1000)
	def(&l.Depth, 200)
	return l
}

// Error is a fault in an answer that ends its reading.
type Error struct {
	Dialect string
	// Where names the place: "event 12", "choices.0.delta" ...
	Where string
	// Reason says what is wrong, in words a user can read.
	Reason string
	// Limit says that a limit was passed rather than a rule broken.
	Limit bool
	Err   error
}

// Error gives dialect, place and reason in one line.
func (e *Error) Error() string {
	s := e.Dialect
	if e.Where != "" {
		s += ": " + e.Where
	}
	s += ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause, nil when there is none.
func (e *Error) Unwrap() error { return e.Err }

// ErrResolved reports a ruling for a call that is unknown or already has one.
var ErrResolved = errors.New("inspect: no call with that number waits for a ruling")

// Unresolvable wraps ErrResolved with the number that was asked for.
func Unresolvable(seq int) error { return fmt.Errorf("%w: %d", ErrResolved, seq) }

// NoReason stands in the place of a withheld call when a ruling gives no text.
const NoReason = "[callgate] A tool call was withheld and did not run."
