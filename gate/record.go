package gate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Digest names a tool together with its exact arguments: SHA-256 in hex over
// the length of the name, the name and the arguments.
func Digest(tool string, args []byte) string {
	return digest([]byte(tool), args)
}

// ApprovalKey is what a person's yes to this request is bound to: principal,
// session, tool and exact arguments. Requests with one key ask one question.
func ApprovalKey(r *Request) string {
	return digest([]byte(r.Principal), []byte(r.Session), []byte(r.Call.Name), r.Call.Args)
}

// digest hashes parts so that no two lists of parts give the same text.
func digest(parts ...[]byte) string {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0]))
}

// Briefs gives findings as people and logs see them; mask hides secrets.
func Briefs(findings []Finding, mask func(string) string) []FindingBrief {
	if len(findings) == 0 {
		return nil
	}
	out := make([]FindingBrief, len(findings))
	for i, f := range findings {
		out[i] = FindingBrief{Rule: f.Rule, Severity: f.Severity.String(), Category: f.Category,
			Reason: mask(f.Reason), Words: mask(f.Words), Instead: f.Instead}
	}
	return out
}

// conclude records a decision and tells of it. What cannot be recorded is
// denied.
func (g *Gate) conclude(ctx context.Context, r *Request, d Decision, start time.Time) Decision {
	if g.c.Audit != nil {
		flagged := d.Verdict != Allow || len(d.Findings) > 0
		begun := time.Now()
		if failed := g.record(ctx, g.entry(r, d, start), flagged); failed != "" {
			d = d.unrecorded(g.detail(failed), begun)
		}
	}
	if g.c.OnDecision != nil {
		g.tell(r, d)
	}
	return d
}

// unrecorded is the denial of a call whose decision could not be kept. The
// reason of a denial stays, it is still true; that of a yes counts no more.
func (d Decision) unrecorded(failed string, begun time.Time) Decision {
	reason := ""
	if d.Verdict != Allow {
		reason = d.Reason
	}
	d.Steps = append(slices.Clip(d.Steps), Step{Name: "audit", Start: begun, End: time.Now(), Note: string(StoreFailed) + ": " + failed})
	if d.Detail != "" {
		failed += "; before that: " + d.Detail
	}
	d.Detail = cutDetail("the decision (" + d.Verdict.String() + ", " + string(d.Outcome) + ") could not be written to the audit log: " + failed)
	return d.ending(Deny, StoreFailed, "gate", orElse(reason, "the audit log could not be written"))
}

// record writes one entry; failed says why it could not. A client's hang-up
// does not end it.
func (g *Gate) record(ctx context.Context, e Entry, durable bool) (failed string) {
	defer func() {
		if v := recover(); v != nil {
			reason, detail := caught("the audit log", v)
			failed = reason + ": " + detail
		}
	}()
	if err := g.c.Audit.Record(context.WithoutCancel(ctx), e, durable); err != nil {
		return err.Error()
	}
	return ""
}

// tell calls OnDecision. A listener that panics has heard enough: the decision
// stands as it was recorded.
func (g *Gate) tell(r *Request, d Decision) {
	defer func() { _ = recover() }()
	g.c.OnDecision(r, d)
}

// maxDetail bounds a detail, in bytes.
const maxDetail = 4 << 10

// detail makes text of others fit to be a Decision's Detail.
func (g *Gate) detail(s string) string {
	if g.c.Mask != nil {
		s = g.masked(s)
	}
	return cutDetail(s)
}

// cutDetail keeps the beginning of a long detail.
func cutDetail(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= maxDetail {
		return s
	}
	end := maxDetail
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// maxAuditArgs is how much of a call's arguments the audit log keeps, in
// bytes; the digest is of all of them.
const maxAuditArgs = 16 << 10

// entry is the decision as the audit log keeps it.
func (g *Gate) entry(r *Request, d Decision, start time.Time) Entry {
	now := time.Now()
	concerned := r
	if len(r.Findings) == 0 && len(d.Findings) > 0 {
		with := *r
		with.Findings = d.Findings
		concerned = &with
	}
	return Entry{
		Time: now, Took: now.Sub(start),
		Agent: r.Agent, Principal: r.Principal, Claimed: r.Claimed,
		Upstream: r.Upstream, Dialect: r.Dialect, Model: r.Model, Turn: r.Turn, Trace: r.Trace,
		CallID: r.Call.ID, Tool: r.Call.Name, Kind: concerned.Concerns().Kind.String(),
		Args: g.masked(cutArgs(r.Call.Args)), Digest: Digest(r.Call.Name, r.Call.Args),
		Verdict: d.Verdict.String(), Outcome: d.Outcome, By: d.By, Rule: d.Rule, Reason: g.masked(d.Reason),
		Detail: g.masked(d.Detail), Approval: d.Approval, Findings: Briefs(d.Findings, g.masked),
	}
}

// cutArgs keeps the first bytes of long arguments and says how many there
// were. It cuts before masking and behind a white space or quote if one is
// near, so that no half of a secret escapes the mask.
func cutArgs(args []byte) string {
	if len(args) <= maxAuditArgs {
		return string(args)
	}
	end := maxAuditArgs
	for i := end; i > end-4096; i-- {
		if c := args[i-1]; c == ' ' || c == '\n' || c == '"' || c == '\'' {
			end = i
			break
		}
	}
	for end > 0 && !utf8.RuneStart(args[end]) {
		end--
	}
	return fmt.Sprintf("%s…[%d bytes]", args[:end], len(args))
}

// masked hides secrets, or everything where nothing is there that could.
func (g *Gate) masked(s string) (out string) {
	if s == "" {
		return ""
	}
	if g.c.Mask == nil {
		return fmt.Sprintf("…[%d]", len(s))
	}
	defer func() {
		if v := recover(); v != nil {
			out = fmt.Sprintf("…[%d]", len(s))
		}
	}()
	return g.c.Mask(s)
}
