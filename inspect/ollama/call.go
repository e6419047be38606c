package ollama

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"callgate/inspect"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// The types of call. The wire has a word for the first alone, and seldom.
const (
	typeFunction = "function"
	typeMember   = "member"   // a member of a document that could be a call
	typeDocument = "document" // a document that could not be read
)

// call is one call of a turn.
type call struct {
	toolcall.Call
	index   int // as the wire gives it
	indexed bool
	raw     []byte // its entry as it came, where it may be put into a history
	kept    int    // bytes of it that count among those of all calls

	resolved, released bool
	// fits says that it leaves nothing in its place when it is withheld: the
	// model reads its refusal as a result.
	fits    bool
	passed  bool   // the agent has reached its place
	edited  []byte // arguments in the place of its own
	refusal string
}

// maxWord is how long an id, a name or a type may be, in bytes.
const maxWord = 4 << 10

// fail gives a call a fault, if it has none yet.
func (c *call) fail(f toolcall.Fault, detail string) {
	if c.Fault == toolcall.FaultNone {
		c.Fault, c.Detail = f, detail
	}
}

// word gives a word of a call, cut where it is too long.
func (c *call) word(s, what string) string {
	if len(s) > maxWord {
		c.fail(toolcall.FaultOversize, fmt.Sprintf("its %s is longer than %d bytes", what, maxWord))
		s = strings.ToValidUTF8(s[:maxWord], "")
	}
	return s
}

// unsound says why arguments cannot be judged, FaultNone when they can.
func unsound(args []byte, depth int) (toolcall.Fault, string) {
	err := strictjson.Object(args, strictjson.Options{Depth: depth})
	if err == nil {
		return toolcall.FaultNone, ""
	}
	fault := toolcall.FaultArguments
	if e, ok := errors.AsType[*strictjson.Error](err); ok && e.Differ {
		fault = toolcall.FaultAmbiguous
	}
	return fault, "its arguments: " + err.Error()
}

// add makes a new call of the round.
func (t *turn) add(kind string) (*call, error) {
	if t.total++; t.total > t.lim.Calls {
		return nil, limit("calls", fmt.Sprintf("the answer holds more than %d calls", t.lim.Calls))
	}
	c := &call{Call: toolcall.Call{Type: kind}}
	t.now = append(t.now, c)
	return c, nil
}

// drop takes back a call that was not announced.
func (t *turn) drop(c *call) {
	t.args -= c.kept
	t.now = slices.DeleteFunc(t.now, func(o *call) bool { return o == c })
}

// argue gives a call its arguments. They are kept until the turn is over, so
// those of all calls together are bounded like what waits.
func (t *turn) argue(c *call, args []byte) {
	if len(args) > t.lim.Args {
		c.fail(toolcall.FaultOversize, fmt.Sprintf("its arguments are larger than %d bytes", t.lim.Args))
		args = args[:t.lim.Args]
	}
	if t.args+len(args) > t.lim.Held {
		c.fail(toolcall.FaultOversize, fmt.Sprintf("the arguments of all calls together are larger than %d bytes", t.lim.Held))
		args = args[:t.lim.Held-t.args]
	}
	t.args, c.kept = t.args+len(args), c.kept+len(args)
	c.Args = bytes.Clone(args)
}

// keep keeps the entry of a call as it came, which counts like its arguments.
func (t *turn) keep(c *call, entry []byte) {
	if t.args+len(entry) > t.lim.Held {
		c.fail(toolcall.FaultOversize, fmt.Sprintf("all calls together are larger than %d bytes", t.lim.Held))
		return
	}
	t.args, c.kept = t.args+len(entry), c.kept+len(entry)
	c.raw = bytes.Clone(entry)
}

// announce hands a call over to be ruled on.
func (t *turn) announce(c *call) {
	c.Seq = len(t.calls)
	c.fits = t.repair && c.Fault == toolcall.FaultNone
	t.calls = append(t.calls, c)
	t.open++
	t.fresh = append(t.fresh, c.Call)
}

// rule carries out a ruling.
func (t *turn) rule(seq int, r inspect.Ruling) error {
	if t.over || seq < 0 || seq >= len(t.calls) || t.calls[seq].resolved {
		return inspect.Unresolvable(seq)
	}
	c := t.calls[seq]
	c.resolved = true
	t.open--
	c.released = r.Release && c.Fault == toolcall.FaultNone
	if c.released && r.Args != nil && !bytes.Equal(r.Args, c.Args) {
		// A ruling that gives what no client could read releases nothing.
		if fault, _ := unsound(r.Args, t.lim.Depth); fault != toolcall.FaultNone {
			c.released = false
		} else {
			c.edited = oneLine(r.Args)
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
	return nil
}

// oneLine gives JSON without the characters at which readers of lines break them.
// Outside of ASCII these stand inside of strings alone.
func oneLine(args []byte) []byte {
	var dst []byte
	for _, r := range string(args) {
		switch r {
		case '\n', '\r':
			dst = append(dst, ' ')
		case 0x85, 0x2028, 0x2029:
			dst = appendEscaped(dst, string(r))
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// waits reports whether a call of a document has no ruling.
func (rd *reading) waits() bool {
	if rd.whole != nil {
		return !rd.whole.resolved
	}
	return slices.ContainsFunc(rd.mentions, func(m mention) bool { return !m.c.resolved })
}

// pass notes that the agent has reached a document, and gives the refusals that
// it must see there.
func (rd *reading) pass() (refusals []string) {
	if rd.whole != nil {
		rd.whole.passed = true
		return []string{rd.whole.refusal}
	}
	for _, m := range rd.mentions {
		m.c.passed = true
		if !m.c.released && !m.c.fits {
			refusals = append(refusals, m.c.refusal)
		}
	}
	return refusals
}
