package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"callgate/gate"
	"callgate/inspect/toolcall"
)

// Event is what a hook reads: one JSON object that describes one flagged call.
// Texts are raw and whole, nothing is masked or cut. Keys whose value is empty
// are there all the same, except in the lists.
type Event struct {
	Tool string `json:"tool"`
	// Kind, Command, Path and Cwd are of the action that the first finding
	// concerns; Actions holds all.
	Kind    string `json:"kind"`
	Command string `json:"command"`
	Path    string `json:"path"`
	Cwd     string `json:"cwd"`
	// Reason, Rule, Severity and Category are of the first finding.
	Reason   string         `json:"reason"`
	Rule     string         `json:"rule"`
	Severity string         `json:"severity"`
	Category string         `json:"category"`
	Findings []EventFinding `json:"findings"`
	// Args are the call's arguments: a JSON value, or a string where the tool
	// takes free text.
	Args    json.RawMessage `json:"args"`
	Actions []EventAction   `json:"actions"`
	// Siblings are the other calls of the turn that are known so far.
	Siblings []EventSibling `json:"siblings"`
	// SessionID, Platform and UserID are what the agent says of itself: claims
	// that nothing proves, under the names that hooks know. Claimed holds the
	// same. Agent is the name of the agent that was proved, or default.
	SessionID string      `json:"session_id"`
	Platform  string      `json:"platform"`
	UserID    string      `json:"user_id"`
	Claimed   EventClaims `json:"claimed"`
	Agent     string      `json:"agent"`
	Upstream  string      `json:"upstream"`
	Dialect   string      `json:"dialect"`
	Model     string      `json:"model"`
	CallID    string      `json:"call_id"`
	TurnID    string      `json:"turn_id"`
	TraceID   string      `json:"trace_id"`
	// Digest names the tool together with its exact arguments.
	Digest string `json:"digest"`
	// Context is the operator's text from the configuration.
	Context string `json:"context"`
}

// EventClaims are what an agent says of itself.
type EventClaims struct {
	Session  string `json:"session"`
	User     string `json:"user"`
	Platform string `json:"platform"`
}

// EventFinding is one reason why the call is flagged.
type EventFinding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Category string `json:"category"`
	Reason   string `json:"reason"`
	// Action is the index in actions; Words are the words of it that count.
	Action  int    `json:"action"`
	Words   string `json:"words,omitempty"`
	Instead string `json:"instead,omitempty"`
}

// EventAction is one thing the call does.
type EventAction struct {
	Kind     string `json:"kind"`
	Tool     string `json:"tool"`
	Command  string `json:"command,omitempty"`
	Language string `json:"language,omitempty"`
	Cwd      string `json:"cwd,omitempty"`
	Path     string `json:"path,omitempty"`
	Op       string `json:"op,omitempty"`
	Content  string `json:"content,omitempty"`
}

// EventSibling is another call of the same turn.
type EventSibling struct {
	Tool   string          `json:"tool"`
	CallID string          `json:"call_id"`
	Args   json.RawMessage `json:"args"`
}

// errNotText is a call that JSON cannot carry unchanged; the hook would judge
// something else than what runs.
var errNotText = errors.New("the call holds bytes that are not text, so the hook cannot be shown what would run")

// event describes a request as the hook reads it.
func (h *Hook) event(r *gate.Request) ([]byte, error) {
	act := r.Concerns()
	e := Event{
		Tool: r.Call.Name, Kind: act.Kind.String(), Command: act.Command, Path: act.Path, Cwd: act.Dir,
		Findings: make([]EventFinding, 0, len(r.Findings)), Actions: make([]EventAction, 0, len(r.Actions)),
		Siblings:  make([]EventSibling, 0, len(r.Siblings)),
		SessionID: r.Claimed.Session, Platform: r.Claimed.Platform, UserID: r.Claimed.User,
		Claimed: EventClaims{Session: r.Claimed.Session, User: r.Claimed.User, Platform: r.Claimed.Platform},
		Agent:   r.Agent, Upstream: r.Upstream, Dialect: r.Dialect, Model: r.Model,
		CallID: r.Call.ID, TurnID: r.Turn, TraceID: r.Trace,
		Digest: gate.Digest(r.Call.Name, r.Call.Args), Context: h.context,
	}
	var err error
	if e.Args, err = rawArgs(&r.Call); err != nil {
		return nil, err
	}
	for _, f := range r.Findings {
		e.Findings = append(e.Findings, EventFinding{Rule: f.Rule, Severity: f.Severity.String(), Category: f.Category,
			Reason: f.Reason, Action: f.Action, Words: f.Words, Instead: f.Instead})
	}
	if len(e.Findings) > 0 {
		f := e.Findings[0]
		e.Reason, e.Rule, e.Severity, e.Category = f.Reason, f.Rule, f.Severity, f.Category
	}
	for _, a := range r.Actions {
		if !utf8.ValidString(a.Command) || !utf8.ValidString(a.Path) || !utf8.Valid(a.Content) {
			return nil, errNotText
		}
		out := EventAction{Kind: a.Kind.String(), Tool: a.Tool, Command: a.Command, Language: a.Language, Cwd: a.Dir}
		if a.Kind == toolcall.KindFile {
			out.Path, out.Op, out.Content = a.Path, a.Op.String(), string(a.Content)
		}
		e.Actions = append(e.Actions, out)
	}
	for i := range r.Siblings {
		s := &r.Siblings[i]
		args, err := rawArgs(s)
		if err != nil { // it is judged, and refused, by itself
			continue
		}
		e.Siblings = append(e.Siblings, EventSibling{Tool: s.Name, CallID: s.ID, Args: args})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("the call could not be written for the hook: %w", err)
	}
	return b.Bytes(), nil
}

// rawArgs gives a call's arguments as a JSON value.
func rawArgs(c *toolcall.Call) (json.RawMessage, error) {
	switch {
	case !utf8.Valid(c.Args):
		return nil, errNotText
	case !c.Text && json.Valid(c.Args):
		return c.Args, nil
	case !c.Text && len(c.Args) == 0:
		return json.RawMessage("null"), nil
	}
	return json.Marshal(string(c.Args))
}
