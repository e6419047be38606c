package providertest

import (
	"context"
	"net/http"
	"time"
)

// Script is what the model says, one Turn for each answer.
type Script []Turn

// Turn is one answer of the model. The same turn can be given in each wire
// format, streamed or as one document, as the request asks.
type Turn struct {
	// Say is what the answer holds, in order.
	Say []Item
	// Other are what further choices hold when a Chat Completions request
	// asks for several. A choice that is not here says the same as the first,
	// its call ids marked with the choice's number.
	Other [][]Item
	// Finish is the finish reason in the wire's own word; "" stands for the
	// one that fits what is said.
	Finish string
	// Usage are the token counts; zero stands for counts made from lengths.
	Usage Usage

	// Instead is sent in place of an answer of the model.
	Instead *Answer
	// Before is called before each event of a stream, and once with 0 before a
	// JSON answer; it may wait. Nil waits for nothing.
	Before func(ctx context.Context, event int)
	// Cut ends the answer too early.
	Cut *Cut
	// Chunk is how many bytes are written and flushed at a time: PerEvent,
	// Whole, or a number above 0.
	Chunk int
	// Coding is the content coding: "", gzip, br or zstd. It is used whatever
	// the request accepts.
	Coding string
}

// The two special values of Turn.Chunk.
const (
	PerEvent = 0  // each event of a stream is one write
	Whole    = -1 // the whole answer is one write
)

// Item is one part of an answer: Text, Thinking or Call.
type Item interface{ item() }

// Text is visible text.
type Text string

// Thinking is what the model thinks. In Messages it becomes a thinking block
// with a signature, in Chat Completions reasoning_content.
type Thinking string

// Call is a tool call.
type Call struct {
	ID, Name string
	// Args are the raw arguments, or the free text of a Custom call. They need
	// not be valid.
	Args string
	// Form is how Chat Completions and Responses carry the call; the others have
	// one form.
	Form Form
}

// Form is how a call is carried where there is more than one way.
type Form uint8

// The forms of a call.
const (
	Function Form = iota // an entry of tool_calls of type function
	Custom               // an entry of tool_calls of type custom
	Legacy               // Chat Completions: function_call of the message
	Native               // Responses: an item of the type of local_shell, shell or apply_patch, or else the question whether a tool of MCP may run
)

func (Text) item()     {}
func (Thinking) item() {}
func (Call) item()     {}

// Usage are token counts.
type Usage struct{ Input, Output int }

// Answer is an answer given as it stands.
type Answer struct {
	Status int // 0 stands for 200
	Header http.Header
	// Body is sent byte for byte. When it is empty and the status is not 2xx,
	// the wire format's own error body takes its place.
	Body string
	// Message is the text of that error body.
	Message string
}

// Cut says where an answer breaks off.
type Cut struct {
	// Events and Bytes are how much is still sent, whichever is reached
	// first; a negative number is no bound.
	Events, Bytes int
	// Clean ends the HTTP body as if it were whole; otherwise the connection
	// breaks.
	Clean bool
}

// AfterEvents cuts the connection when n events were sent.
func AfterEvents(n int) *Cut { return &Cut{Events: n, Bytes: -1} }

// AfterBytes cuts the connection when n bytes were sent, counted before
// content coding.
func AfterBytes(n int) *Cut { return &Cut{Events: -1, Bytes: n} }

// Every is a Turn.Before that waits for d before each event.
func Every(d time.Duration) func(context.Context, int) {
	return func(ctx context.Context, _ int) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}
