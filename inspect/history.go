package inspect

import "callgate/inspect/digest"

// Denial says what a turn leaves in the place of a withheld call.
type Denial uint8

// The ways a withheld call is made good. The zero value needs nothing of later
// requests.
const (
	// DenialText shows the refusal as text.
	DenialText Denial = iota
	// DenialRepair shows nothing in the place of a call that can be put back
	// into the history of later requests: Turn.Told says what to put there. A
	// round of which no call is left suspends the turn. Calls that cannot be
	// put back (cut off, without an id, of one choice among several) are shown
	// as text.
	DenialRepair
)

// Told is what a turn has to say for the requests after it: what the provider
// said, round by round, against what the agent was shown.
type Told struct {
	// Rounds are the provider's answers as they came, one for each round that
	// ended, and the last one as far as it came when it was cut short.
	Rounds []Round
	// Unit and Shown are the answer that the agent was shown, as it will stand
	// in the history of an agent that changes nothing.
	Unit  Unit
	Shown digest.Digest
	// Notices are the texts in it that are not the provider's, as they were
	// shown, each a text or a part of one.
	Notices []string
	// Bound says that thinking in Rounds is bound to what stands before it.
	Bound bool
	// Mend says that Rounds must stand in place of what was shown in later
	// requests: a call was withheld and can be put back, there was more than
	// one round, or a notice was shown that the provider must not read.
	Mend bool
}

// Round is one answer of the provider and what became of its calls.
type Round struct {
	// ID is the provider's id of the answer, for providers that hold histories.
	ID string `json:"id,omitempty"`
	// Message is the answer as a message of a request's history: one raw JSON
	// object in the dialect's form, thinking and signatures as they came.
	// Calls that cannot stand in a history are not in it. Empty when nothing
	// of the answer can.
	Message []byte `json:"message,omitempty"`
	// Calls are the ids of the calls in it, in order.
	Calls []string `json:"calls,omitempty"`
	// Refusals answer those of the calls that were withheld, in order.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Refusal is the result that the model reads for a withheld call.
type Refusal struct {
	// Call is the index of the call in Round.Calls.
	Call int `json:"call"`
	// Text is the result's text.
	Text string `json:"text"`
}

// History is a walk over the conversation that a request holds, made to find
// the answers that callgate has altered and to put back what is missing. It
// belongs to one request and one goroutine.
//
// An answer is a unit: all messages of the assistant in a row, since some
// clients split what they were shown. Digests leave out what clients change
// (see digest), markers for a cache and thinking. They are made when they are
// asked for: most histories need few or none.
type History interface {
	// Units are the answers in the history, oldest first.
	Units() []Unit
	// Shown is the digest of what unit i says: its text, then its calls.
	Shown(i int) digest.Digest
	// Last is the digest of what the one message before unit i says, All of
	// all messages before it, the system's left out: clients change those from
	// request to request. With i the number of units they are about the end
	// of the history: what an answer to this request will have before it.
	Last(i int) digest.Digest
	All(i int) digest.Digest
	// Task is the first unit behind the last message in which a user speaks, 0
	// when there is none. Words beside results of calls, or right behind them,
	// are no new task: clients put reminders and the like there.
	Task() int
	// Edit appends the request's body with the units of mends changed and
	// nothing else, byte for byte. What names an item of callgate's own in one of
	// them (OwnItem) is taken out. The same unit and Mend give the same bytes
	// in whatever request they stand.
	Edit(dst []byte, mends map[int]Mend) ([]byte, error)
}

// Unit is one answer in a history.
type Unit struct {
	// Answer is the provider's id of an answer that the provider itself holds:
	// the request names it and does not hold it. "" for all others.
	Answer string
	// Held says of an answer without such an id that the provider holds it all
	// the same: the request names the conversation that it is the last of.
	Held bool
	// Calls are the ids of the calls in it, in order; "" for one without. Of an
	// answer that the provider holds they are those of the results that the
	// request begins with.
	Calls []string
}

// Mend is what is done with a unit.
type Mend struct {
	// Rounds stand in place of the unit: the message of each, and behind it
	// its refusals. Those of the last round are put among the results that the
	// client gives for its other calls, each in its place. Of an answer that
	// the provider holds, the id becomes that of the last round, and its
	// refusals are put among the results in the request.
	Rounds []Round
	// Edited says that the client has changed what the unit says, which was
	// found by the ids of its calls: its own words stay, and only calls and
	// refusals are put back; rounds before the last one stand before it
	// without their words.
	Edited bool
	// Notices are taken out of the client's words of an edited unit, where
	// they stand byte for byte.
	Notices []string
	// Unbind takes thinking out of the unit, of Rounds and of all units behind
	// it, and has the model think no more: what thinking was bound to is lost.
	// Rounds may be empty then.
	Unbind bool
}
