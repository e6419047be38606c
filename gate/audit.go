package gate

import (
	"context"
	"encoding/json"
	"time"
)

// Entry is one line of the audit log: a decision, or something else that
// happened to a call. Arguments stand in it redacted, with their digest.
type Entry struct {
	// Seq and Writer place the entry in its hash chain; the store sets them,
	// Hash and Prev.
	Seq    int64  `json:"seq"`
	Writer string `json:"writer"`
	// Time is when the decision fell; Took how long it took in all.
	Time time.Time     `json:"time"`
	Took time.Duration `json:"took_ns"`

	Agent     string `json:"agent"`
	Principal string `json:"principal"`
	Claimed   Claims `json:"claimed,omitzero"`
	Upstream  string `json:"upstream"`
	Dialect   string `json:"dialect"`
	Model     string `json:"model,omitempty"`
	Turn      string `json:"turn,omitempty"`
	Trace     string `json:"trace,omitempty"`

	CallID string `json:"call_id,omitempty"`
	Tool   string `json:"tool"`
	Kind   string `json:"kind"`
	Args   string `json:"args"`
	Digest string `json:"digest"`

	// Verdict is allow or deny.
	Verdict  string         `json:"verdict"`
	Outcome  Outcome        `json:"outcome"`
	By       string         `json:"by"`
	Rule     string         `json:"rule,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	Detail   string         `json:"detail,omitempty"` // for operators alone
	Approval string         `json:"approval,omitempty"`
	Findings []FindingBrief `json:"findings,omitempty"`

	Prev string `json:"prev"`
	Hash string `json:"hash"`
}

// UnmarshalJSON reads an entry, and those that were written before there were
// claims.
func (e *Entry) UnmarshalJSON(b []byte) error {
	type plain Entry
	if err := json.Unmarshal(b, (*plain)(e)); err != nil {
		return err
	}
	return e.Claimed.readAlone(b)
}

// Auditor keeps entries. When durable is set, Record returns after the entry
// is on disk; otherwise it may batch it, for at most a second.
type Auditor interface {
	Record(ctx context.Context, e Entry, durable bool) error
}
