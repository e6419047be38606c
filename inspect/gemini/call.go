package gemini

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"callgate/inspect"
	"callgate/inspect/rawjson"
	"callgate/inspect/strictjson"
	"callgate/inspect/toolcall"
)

// call is a call of a turn on its way to its ruling.
type call struct {
	toolcall.Call
	ruled  bool
	ruling inspect.Ruling
	given  bool // it was shown
	silent bool // it was withheld, and later requests tell of it: nothing stands in its place
	said   bool // its refusal was shown as text
}

// maxDetail is the longest reason that is kept of a fault, in bytes. Reasons
// quote the answer, which may be made of one long word.
const maxDetail = 500

// blame sets the first fault of a call.
func (k *call) blame(f flaw) {
	if k.Fault != toolcall.FaultNone || f.fault == toolcall.FaultNone {
		return
	}
	k.Fault, k.Detail = f.fault, f.reason
	if len(k.Detail) > maxDetail {
		k.Detail = strings.ToValidUTF8(k.Detail[:maxDetail], "") + " ..."
	}
}

// maxWord is the longest id or name, in bytes: the API allows 128, and some ids
// carry more.
const maxWord = 16 << 10

// word takes in an id or a name.
func (k *call) word(field *string, b []byte, v rawjson.Span) {
	switch {
	case rawjson.Null(b, v):
	case !rawjson.IsString(b, v):
		k.blame(ambiguous("its name or id is no text"))
	case v.Len() > maxWord:
		k.blame(flaw{toolcall.FaultOversize, fmt.Sprintf("its name or id is longer than %d bytes", maxWord)})
	default:
		*field = rawjson.Text(b, v)
	}
}

// released reports whether the call goes out. A faulty call never does,
// whatever its ruling says.
func (k *call) released() bool {
	return k.ruled && k.ruling.Release && k.Fault == toolcall.FaultNone
}

// refusal is the text that stands in the call's place.
func (k *call) refusal() string {
	if strings.TrimSpace(k.ruling.Refusal) == "" {
		return inspect.NoReason
	}
	return k.ruling.Refusal
}

// ranWith are the arguments that a call has in a history.
func (k *call) ranWith() []byte {
	if k.given && k.ruling.Args != nil {
		return k.ruling.Args
	}
	return k.Args
}

// calls holds the calls of a turn in the provider's order.
type calls struct {
	list   []*call
	issued int // how many of them were handed over for a ruling
	ruled  int
	given  int // how many were shown
	denied int // how many have a ruling and will not be
	first  int // the number of the round's first call
	silent int // how many of the round's calls are silent
	owned  int // calls of the provider's own
	weight int // bytes of arguments and names, of all calls together
	begun  int // the number of the chunk's first call
	ids    map[string]*call
}

// add takes a new call in.
func (t *turn) add(k *call) error {
	if len(t.list) >= t.lim.Calls {
		return t.limit("the answer holds more calls than the limit of " + strconv.Itoa(t.lim.Calls))
	}
	k.Seq = len(t.list)
	if t.weight += len(k.ID) + len(k.Name) + len(k.Args); t.weight > t.lim.Held {
		return t.limit("the calls of the answer hold more than " + strconv.Itoa(t.lim.Held) + " bytes")
	}
	if k.ID != "" && k.Type == "functionCall" {
		other, twice := t.ids[k.ID]
		if twice {
			f := ambiguous("another call of the answer has the same id")
			if k.blame(f); other.Seq >= t.begun {
				other.blame(f)
			}
		}
		if t.ids == nil {
			t.ids = map[string]*call{}
		}
		t.ids[k.ID] = k
	}
	t.list = append(t.list, k)
	return nil
}

// rule notes a ruling. It reports whether there was a call to rule on.
func (t *turn) rule(seq int, r inspect.Ruling) bool {
	if seq < 0 || seq >= t.issued || t.list[seq].ruled {
		return false
	}
	k := t.list[seq]
	if r.Args != nil {
		if f := checkArgs(r.Args, t.lim.Depth); f.fault != toolcall.FaultNone {
			// Nobody could have meant these: the call stays in.
			r.Release = false
		}
		r.Args = bytes.Clone(r.Args)
	}
	k.ruled, k.ruling = true, r
	t.ruled++
	if k.released() {
		return true
	}
	t.denied++
	if t.told != nil && !t.told.full && k.Fault == toolcall.FaultNone && len(t.lanes) == 1 {
		k.silent = true
		t.silent++
	}
	return true
}

// resumable reports whether the model can be told of the round's calls at once:
// the agent has none to wait for, and the round ended with all said.
func (t *turn) resumable() bool {
	return t.silent > 0 && t.given == 0 && t.ruled == len(t.list) && t.denied == len(t.list) && len(t.lanes) == 1 && completes(t.lanes[0].finish)
}

// completes reports whether a finish says that the model has said all it had to
// say. With it the API ends an answer with calls, too.
func completes(finish string) bool { return finish == "STOP" }

// checkArgs says what is wrong with the arguments of a call, which must be one
// JSON object that all readers read alike.
func checkArgs(args []byte, depth int) flaw {
	err := strictjson.Object(args, strictjson.Options{Depth: depth})
	if err == nil {
		return flaw{}
	}
	reason := "its arguments cannot be read: " + err.Error()
	if e, ok := errors.AsType[*strictjson.Error](err); ok && e.Differ && gjson.ParseBytes(args).IsObject() {
		return ambiguous(reason)
	}
	return flaw{toolcall.FaultArguments, reason}
}

// lone reports whether a JSON text holds half of a surrogate pair, which
// readers keep, replace or refuse.
func lone(raw []byte, depth int) bool {
	return bytes.Contains(raw, []byte(`\u`)) && strictjson.Validate(raw, strictjson.Options{Depth: depth}) != nil
}
