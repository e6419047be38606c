package inspecttest

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// Client puts together the calls that one kind of client would run after an
// answer, each as "NAME ARGUMENTS", with the arguments as they came or, where
// they are no text, as Written gives them.
type Client func(answer []byte, r Reading) []string

// Mutate is FuzzResponse without chance and with a mind: it changes the answers
// of the cases by rules that look for seams between readers (keys spelt
// otherwise or standing twice, snippets put in, events copied, moved and torn,
// line ends of other kinds), and checks the same, the given number of times.
// With a client it also checks that what that client would run is what was
// judged, call by call.
func Mutate(t *testing.T, d inspect.Dialect, media, glob string, rounds int, find Finder, snippets []string, client Client) {
	t.Helper()
	var all []*Case
	for _, path := range files(t, glob) {
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(c.Response.Header.Get("Content-Type"), media) && c.Error == "" && len(c.ResponseBody) > 0 {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no case file of %s has an answer of type %s", glob, media)
	}
	for round := range (rounds + splitStride - 1) / splitStride {
		rnd := rand.New(rand.NewPCG(uint64(round), 7))
		c := all[rnd.IntN(len(all))]
		m := mutator{rnd: rnd, body: bytes.Clone(c.ResponseBody), snippets: snippets, other: all[rnd.IntN(len(all))].ResponseBody}
		for range 1 + rnd.IntN(4) {
			m.mutate()
		}
		z := fuzzed{d: d, c: c, body: m.body, piece: 1 + rnd.IntN(len(m.body)+1), find: find}
		err := z.check()
		if err == nil && client != nil {
			err = z.judged(client)
		}
		if err != nil {
			t.Fatalf("round %d, from %s: %v\nthe answer was:\n%s", round, c.Name, err, encode(m.body))
		}
	}
}

type mutator struct {
	rnd      *rand.Rand
	body     []byte
	other    []byte
	snippets []string
}

func (m *mutator) mutate() {
	switch m.rnd.IntN(10) {
	case 0, 1:
		m.key()
	case 2, 3:
		m.snippet()
	case 4:
		m.events()
	case 5:
		m.replaceOne([]string{"\n", "\n\n", "data: ", ":", ","}, []string{"\r", "\r\n", "\n", "", "\ndata: ", "\n\n", ": ", " ", "\rdata:", "event: x\n"})
	case 6:
		m.replaceOne([]string{"0", "1", "2", "null", "{}", "[]", `""`, "stop", "tool_calls", "function"},
			[]string{"0", "1", "2", "-1", "1.0", `"0"`, "null", "{}", "[]", `"x"`, `"stop"`, `"tool_calls"`, "tool_use", "true"})
	case 7:
		at := m.rnd.IntN(len(m.other))
		m.insert(m.place(), m.other[at:at+m.rnd.IntN(len(m.other)-at)])
	case 8:
		if len(m.body) > 0 {
			at := m.rnd.IntN(len(m.body))
			m.body = slices.Delete(m.body, at, min(len(m.body), at+1+m.rnd.IntN(40)))
		}
	case 9:
		m.smuggle()
	}
}

func (m *mutator) place() int { return m.rnd.IntN(len(m.body) + 1) }

func (m *mutator) insert(at int, what []byte) {
	m.body = slices.Concat(m.body[:at], what, m.body[at:])
}

// occurrence picks one of the places where a text stands, -1 for none.
func (m *mutator) occurrence(text string) int {
	var at []int
	for i := 0; ; {
		n := bytes.Index(m.body[i:], []byte(text))
		if n < 0 {
			break
		}
		at = append(at, i+n)
		i += n + len(text)
	}
	if len(at) == 0 {
		return -1
	}
	return at[m.rnd.IntN(len(at))]
}

func (m *mutator) replaceOne(old, with []string) {
	o := old[m.rnd.IntN(len(old))]
	if at := m.occurrence(o); at >= 0 {
		m.body = slices.Concat(m.body[:at], []byte(with[m.rnd.IntN(len(with))]), m.body[at+len(o):])
	}
}

// key spells a key otherwise, or puts it in twice.
func (m *mutator) key() {
	end := m.occurrence(`":`)
	if end < 0 {
		return
	}
	from := bytes.LastIndexByte(m.body[:end], '"') + 1
	key := string(m.body[from:end])
	if key == "" {
		return
	}
	at := m.rnd.IntN(len(key))
	switch m.rnd.IntN(5) {
	case 0:
		key = strings.ToUpper(key[:at+1]) + key[at+1:]
	case 1:
		key = key[:at] + `\u00` + hexByte(key[at]) + key[at+1:]
	case 2:
		key = strings.NewReplacer("s", "\u017f", "k", "\u212a").Replace(key)
	case 3:
		key = key + `":[],"` + key
	case 4:
		key = key + `":{},"` + strings.ToUpper(key)
	}
	m.body = slices.Concat(m.body[:from], []byte(key), m.body[end:])
}

func hexByte(c byte) string {
	const hex = "0123456789abcdef"
	return string([]byte{hex[c>>4], hex[c&15]})
}

// snippet puts members into an object, or elements into a list.
func (m *mutator) snippet() {
	if len(m.snippets) == 0 {
		return
	}
	s := m.snippets[m.rnd.IntN(len(m.snippets))]
	open := "{"
	if !strings.HasPrefix(s, `"`) {
		open = "["
	}
	if at := m.occurrence(open); at >= 0 {
		m.insert(at+1, []byte(s+","))
	}
}

// smuggle puts an event of the other answer into a line that is no data, behind
// a line break of one kind, or such a break into any text.
func (m *mutator) smuggle() {
	breaks := []string{"\u2028", "\u2029", "\u0085", "\v", "\f", "\x1c", "\x1d", "\x1e", "\r", " "}
	br := breaks[m.rnd.IntN(len(breaks))]
	if m.rnd.IntN(3) == 0 {
		m.insert(m.place(), []byte(br))
		return
	}
	ev := bytes.Split(bytes.TrimSpace(m.other), []byte("\n\n"))
	what := strings.ReplaceAll(string(ev[m.rnd.IntN(len(ev))]), "\n", br)
	fields := []string{":", ": x" + br, "id: 1" + br, "event: x" + br, "retry: 1" + br, "id:", "retry:"}
	line := fields[m.rnd.IntN(len(fields))] + what + br + br + "\n"
	at := 0
	if m.rnd.IntN(4) > 0 {
		at = m.occurrence("\n") + 1
	}
	m.insert(at, []byte(line))
}

// events copies, drops or swaps whole events, or lines where no event ends.
func (m *mutator) events() {
	end := []byte("\n\n")
	if !bytes.Contains(m.body, end) {
		end = end[:1]
	}
	ev := bytes.SplitAfter(m.body, end)
	i, j := m.rnd.IntN(len(ev)), m.rnd.IntN(len(ev))
	switch m.rnd.IntN(3) {
	case 0:
		ev = slices.Insert(ev, j, ev[i])
	case 1:
		ev = slices.Delete(ev, i, i+1)
	case 2:
		ev[i], ev[j] = ev[j], ev[i]
	}
	m.body = bytes.Join(ev, nil)
}

// judged releases every sound call and checks that a client would run these and
// no others.
func (z *fuzzed) judged(client Client) error {
	o, err := z.run(z.piece, true, true)
	if err != nil || o.failed {
		return err
	}
	may := map[string]bool{}
	for _, c := range o.calls {
		if c.Fault == toolcall.FaultNone {
			may[c.Name+" "+string(c.Args)] = true
			for _, r := range Readings {
				args, _ := Parse(c.Args, r)
				may[c.Name+" "+Written(args)] = true
			}
		}
	}
	for _, r := range Readings {
		for _, call := range client(o.out, r) {
			if !may[call] {
				return errUnjudged{call: call, reading: r, out: o.out, calls: o.calls}
			}
		}
	}
	return nil
}

type errUnjudged struct {
	call    string
	reading Reading
	out     []byte
	calls   []toolcall.Call
}

func (e errUnjudged) Error() string {
	return "reading " + string('0'+rune(e.reading)) + " would run " + e.call + " and judged was\n" + callLines(e.calls) + "shown was\n" + string(encode(e.out))
}
