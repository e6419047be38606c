package frame

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// got is an event as a test sees it: copied, since events do not last.
type got struct {
	Raw, Name, Data string
	Named, HasData  bool
	Odd             string
	Cut             bool
}

// left takes the one event of a list that lacks comments.
func left(in string) (got, error) {
	var g got
	cut := false
	var s SSE
	take := func(ev *Event) error {
		g = got{Raw: string(ev.Raw), Name: string(ev.Name), Data: string(ev.Data), Named: ev.Name != nil, HasData: ev.HasData, Odd: ev.Odd}
		cut = ev.Cut
		if ev.HasData && !strings.HasPrefix(g.Raw[ev.At:], g.Data) {
			return fmt.Errorf("At is %d, where %q does not stand", ev.At, g.Data)
		}
		return nil
	}
	if err := errors.Join(s.Feed([]byte(in), take), s.Close(take)); err != nil {
		return g, err
	}
	if s.Count() != 1 || cut == (g.Raw == in) {
		return g, fmt.Errorf("%d events, cut is %t, of %q %q is left", s.Count(), cut, in, g.Raw)
	}
	return g, nil
}

func TestCommentsThatAreMoreThanCommentsAreLeftOut(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct{ name, in, left string }{
		{"a keep-alive", ": keep-alive\n\n", ": keep-alive\n\n"},
		{"the one of a router", ": OPENROUTER PROCESSING\n\n", ": OPENROUTER PROCESSING\n\n"},
		{"one with the time", ": ping - 2026-01-02 03:04:05.678901+00:00\r\n\r\n", ": ping - 2026-01-02 03:04:05.678901+00:00\r\n\r\n"},
		{"nothing in it", ":\n\n", ":\n\n"},
		{"as long as may be", ":" + long[1:] + "\n\n", ":" + long[1:] + "\n\n"},
		{"too long", ":" + long + "\n\n", "\n"},
		{"a document", ": {\"choices\":[]}\n\n", "\n"},
		{"the start of an object", ": {\n\n", "\n"},
		{"the end of one", ":}\r\n\r\n", "\r\n"},
		{"a quote", ":\"\n\n", "\n"},
		{"a line separator", ": x\u2028data: y\n\n", "\n"},
		{"a paragraph separator", ": x\u2029data: y\n\n", "\n"},
		{"a next line", ": x\u0085data: y\n\n", "\n"},
		{"a vertical tab", ": x\vdata: y\n\n", "\n"},
		{"a form feed", ": x\fdata: y\n\n", "\n"},
		{"a file separator", ": x\x1cdata: y\n\n", "\n"},
		{"a group separator", ": x\x1ddata: y\n\n", "\n"},
		{"a record separator", ": x\x1edata: y\n\n", "\n"},
		{"a byte of no text", ": \xff\n\n", "\n"},
		{"a zero", ": \x00\n\n", "\n"},
		{"one of several", ": a\n: {\n: b\n\n", ": a\n: b\n\n"},
		{"before data", ": {}\ndata: b\n\n", "data: b\n\n"},
		{"behind data", "event: a\ndata: b\n: {}\nid: 1\n\n", "event: a\ndata: b\nid: 1\n\n"},
		{"without a line end", ": {", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := left(c.in)
			if err != nil || g.Raw != c.left || g.Odd != "" {
				t.Errorf("%+v (%v)", g, err)
			}
		})
	}
}

func TestFieldsThatAreNotPlainAreOdd(t *testing.T) {
	const (
		id    = "its id is long or not plain"
		name  = "its event name is long or not plain"
		retry = "its retry is no number"
	)
	long := strings.Repeat("a", 201)
	for line, odd := range map[string]string{
		"id: msg_1:2/x =":       "",
		"id:":                   "",
		"id: " + long[1:]:       "",
		"id: " + long:           id,
		"id: {}":                id,
		"id: \"":                id,
		"id: 1\u2028data: x":    id,
		"id: 1\u0085data: x":    id,
		"id: 1\fdata: x":        id,
		"event: response.a_b-1": "",
		"event: " + long:        name,
		"event: a b":            name,
		"event: a\vdata: x":     name,
		"event: a\u2028data: x": name,
		"event: {\"a\":1}":      name,
		"retry: 3000":           "",
		"retry:":                "",
		"retry: -1":             retry,
		"retry: 3 000":          retry,
		"retry: {\"a\":1}":      retry,
		"retry: 1\x1edata: x":   retry,
		"retry: " + "1" + strings.Repeat("0", 20): retry,
	} {
		for _, in := range []string{line + "\ndata: b\n\n", "data: b\r\n" + line + "\r\n\r\n", ": {\n" + line + "\ndata: b\n\n"} {
			all, err := collect(&SSE{}, in)
			if err != nil || len(all) != 1 || all[0].Odd != odd {
				t.Errorf("%q reads as %+v (%v), want %q", in, all, err, odd)
			}
		}
	}
}

func TestOtherBreaks(t *testing.T) {
	for in, want := range map[string]bool{
		"": false, "plain": false, "a\nb\r\tc": false, "é ü – 本 \u2027 \u202a \u0084 \u0086": false, "\xc2": false, "\xe2\x80": false,
		"a\u2028b": true, "\u2029": true, "x\u0085": true, "\v": true, "\f": true, "\x1c": true, "\x1d": true, "\x1e": true, "\x1f": false,
	} {
		if got := OtherBreaks([]byte(in)); got != want {
			t.Errorf("%q: %t", in, got)
		}
	}
}

func TestAppendCommentStaysAComment(t *testing.T) {
	for text, want := range map[string]string{
		"":                       ": \n\n",
		"it broke":               ": it broke\n\n",
		"a\nb\r\nc":              ": a b c\n\n",
		"\"x\"\u2028{data: y}\v": ": xdata: y\n\n",
		strings.Repeat("y", 500): ": " + strings.Repeat("y", 198) + "\n\n",
		"a\n\ndata: {\"choices\":[]}\n\nrest\x85": ": a  data: choices:[]  rest\n\n",
	} {
		got := string(AppendComment(nil, text))
		if got != want {
			t.Errorf("%q becomes %q", text, got)
		}
		if g, err := left(got); err != nil || g.Raw != got || g.HasData || g.Odd != "" {
			t.Errorf("%q reads back as %+v (%v)", got, g, err)
		}
	}
}

func collect(s *SSE, pieces ...string) ([]got, error) {
	var all []got
	take := func(ev *Event) error {
		g := got{Raw: string(ev.Raw), Name: string(ev.Name), Data: string(ev.Data), Named: ev.Name != nil, HasData: ev.HasData, Odd: ev.Odd, Cut: ev.Cut}
		if ev.HasData && ev.Odd == "" && !strings.HasPrefix(g.Raw[ev.At:], g.Data) {
			return fmt.Errorf("At is %d, where %q does not stand", ev.At, g.Data)
		}
		all = append(all, g)
		return nil
	}
	for _, p := range pieces {
		b := []byte(p)
		if err := s.Feed(b, take); err != nil {
			return all, err
		}
		clear(b) // the reader must not keep what it was fed
	}
	return all, s.Close(take)
}

func TestSSE(t *testing.T) {
	const (
		lines  = "its data stands in several lines"
		noName = "it has a line that is no field of the standard"
	)
	for _, c := range []struct {
		name, in string
		want     []got
	}{
		{"nothing", "", nil},
		{"an event", "event: a\ndata: b\n\n", []got{{"event: a\ndata: b\n\n", "a", "b", true, true, "", false}}},
		{"data without a space", "data:b\n\n", []got{{"data:b\n\n", "", "b", false, true, "", false}}},
		{"one space of several is taken off", "data:  b\n\n", []got{{"data:  b\n\n", "", " b", false, true, "", false}}},
		{"data that is empty", "data:\n\n", []got{{"data:\n\n", "", "", false, true, "", false}}},
		{"data before the name", "data: b\nevent: a\n\n", []got{{"data: b\nevent: a\n\n", "a", "b", true, true, "", false}}},
		{"a name that is empty", "event:\ndata: b\n\n", []got{{"event:\ndata: b\n\n", "", "b", true, true, "", false}}},
		{"colons in the data", "data: {\"a\": 1}\n\n", []got{{"data: {\"a\": 1}\n\n", "", `{"a": 1}`, false, true, "", false}}},
		{"CRLF", "event: a\r\ndata: b\r\n\r\n", []got{{"event: a\r\ndata: b\r\n\r\n", "a", "b", true, true, "", false}}},
		{"CRLF and LF mixed", "data: b\r\n\ndata: c\n\r\n", []got{{"data: b\r\n\n", "", "b", false, true, "", false}, {"data: c\n\r\n", "", "c", false, true, "", false}}},
		{"two events", "data: b\n\ndata: c\n\n", []got{{"data: b\n\n", "", "b", false, true, "", false}, {"data: c\n\n", "", "c", false, true, "", false}}},
		{"blank lines more than needed", "data: b\n\n\n\n", []got{{"data: b\n\n", "", "b", false, true, "", false}, {"\n", "", "", false, false, "", false}, {"\n", "", "", false, false, "", false}}},
		{"a comment of its own", ": hi\n\n", []got{{": hi\n\n", "", "", false, false, "", false}}},
		{"a comment within", ": hi\ndata: b\n\n", []got{{": hi\ndata: b\n\n", "", "b", false, true, "", false}}},
		{"id and retry", "id: 1\nretry: 2\ndata: b\n\n", []got{{"id: 1\nretry: 2\ndata: b\n\n", "", "b", false, true, "", false}}},
		{"data in two lines", "data: b\ndata: c\n\n", []got{{"data: b\ndata: c\n\n", "", "b\nc", false, true, lines, false}}},
		{"data in three lines", "data: b\ndata: c\ndata:\n\n", []got{{"data: b\ndata: c\ndata:\n\n", "", "b\nc\n", false, true, lines, false}}},
		{"two names", "event: a\nevent: b\ndata: c\n\n", []got{{"event: a\nevent: b\ndata: c\n\n", "b", "c", true, true, "it has two event names", false}}},
		{"a name without data", "event: a\n\n", []got{{"event: a\n\n", "a", "", true, false, "it has a name and no data", false}}},
		{"a field name in capitals", "Data: b\n\n", []got{{"Data: b\n\n", "", "", false, false, noName, false}}},
		{"a space before the colon", "data : b\n\n", []got{{"data : b\n\n", "", "", false, false, noName, false}}},
		{"a space before the field", " data: b\n\n", []got{{" data: b\n\n", "", "", false, false, noName, false}}},
		{"a line without a colon", "data\n\n", []got{{"data\n\n", "", "", false, true, "it has a line without a colon", false}}},
		{"a name without a colon", "event\ndata: b\n\n", []got{{"event\ndata: b\n\n", "", "b", true, true, "it has a line without a colon", false}}},
		{"JSON instead of a field", "{\"a\":1}\n\n", []got{{"{\"a\":1}\n\n", "", "", false, false, noName, false}}},
		{"a byte order mark", "\ufeffdata: b\n\n", []got{{"\ufeffdata: b\n\n", "", "", false, false, noName, false}}},
		{"a byte order mark before a comment", "\ufeff: b\n\n", []got{{"\ufeff: b\n\n", "", "", false, false, noName, false}}},
		{"a lone CR inside a line", "data: b\rdata: c\n\n", []got{{"data: b\rdata: c\n\n", "", "b\rdata: c", false, true, "a carriage return stands inside a line", false}}},
		{"a lone CR in a comment", ": b\rdata: c\n\n", []got{{": b\rdata: c\n\n", "", "", false, false, "a carriage return stands inside a line", false}}},
		{"two CR before a LF", "data: b\r\r\n\n", []got{{"data: b\r\r\n\n", "", "b\r", false, true, "a carriage return stands inside a line", false}}},
		{"CR only", "data: b\r\rdata: c\r\r", []got{{"data: b\r\rdata: c\r\r", "", "b\r\rdata: c\r", false, true, "a carriage return stands inside a line", false}}},
		{"no blank line at the end", "data: b\n", []got{{"data: b\n", "", "b", false, true, Unended, false}}},
		{"no line end at the end", "data: b", []got{{"data: b", "", "b", false, true, Unended, false}}},
		{"a comment at the end", ": b", []got{{": b", "", "", false, false, "", false}}},
		{"half a field at the end", "data: b\n\neve", []got{{"data: b\n\n", "", "b", false, true, "", false}, {"eve", "", "", false, false, noName, false}}},
		{"a line separator of Unicode is no line end", "data: b\u2028data: c\n\n", []got{{"data: b\u2028data: c\n\n", "", "b\u2028data: c", false, true, "", false}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pieces := range splits(c.in) {
				all, err := collect(&SSE{}, pieces...)
				if err != nil {
					t.Fatalf("%q: %v", pieces, err)
				}
				if diff := cmp.Diff(c.want, all); diff != "" {
					t.Fatalf("%q (- want, + got):\n%s", pieces, diff)
				}
			}
		})
	}
}

// splits cuts a text whole, in two at every place, in three, and in bytes.
func splits(s string) [][]string {
	all := [][]string{{s}, strings.Split(s, "")}
	if strings.Join(all[1], "") != s { // Split cuts into runes
		all = all[:1]
	}
	var each []string
	for i := range len(s) {
		each = append(each, s[i:i+1])
		all = append(all, []string{s[:i], s[i:]})
		if i > 1 {
			all = append(all, []string{s[:i/2], s[i/2 : i], "", s[i:]})
		}
	}
	return append(all, each)
}

func TestEventsLongerThanTheLimitAreRefused(t *testing.T) {
	const limit = 16
	fits := "data: 12345678\n\n"
	if len(fits) != limit {
		t.Fatal("the test's own event has the wrong length")
	}
	for _, c := range []struct {
		name, in string
		bad      bool
	}{
		{"exactly the limit", fits, false},
		{"the limit, twice", fits + fits, false},
		{"one byte more", "data: 123456789\n\n", true},
		{"one byte more behind one that fits", fits + "data: 123456789\n\n", true},
		{"no end in sight", "data: 123456789012345", true},
		{"a comment without end", ":" + strings.Repeat("x", 99), true},
		{"many short lines", strings.Repeat(":\n", 9), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pieces := range splits(c.in) {
				_, err := collect(&SSE{Max: limit}, pieces...)
				large, is := errors.AsType[*TooLargeError](err)
				if is != c.bad {
					t.Fatalf("%q: the error is %v", pieces, err)
				}
				if is && (large.Limit != limit || !strings.Contains(err.Error(), "16 bytes")) {
					t.Fatalf("the error does not name the limit: %v", err)
				}
			}
		})
	}
}

func TestAnErrorOfYieldStopsTheReading(t *testing.T) {
	stop := errors.New("enough")
	for _, pieces := range [][]string{{"data: a\n\ndata: b\n\n"}, {"dat", "a: a\n\ndata: b\n\n"}} {
		var s SSE
		n := 0
		var err error
		for _, p := range pieces {
			err = s.Feed([]byte(p), func(*Event) error { n++; return stop })
		}
		if !errors.Is(err, stop) || n != 1 || s.Count() != 1 {
			t.Errorf("%q: error %v after %d events, count %d", pieces, err, n, s.Count())
		}
	}
}

func TestPendingTellsOfHalfAnEvent(t *testing.T) {
	var s SSE
	none := func(*Event) error { return nil }
	for _, c := range []struct {
		in      string
		pending int
	}{{"data: a\n", 8}, {"\n", 0}, {"da", 2}, {"ta: b\n\nx", 1}} {
		if err := s.Feed([]byte(c.in), none); err != nil || s.Pending() != c.pending {
			t.Errorf("after %q %d bytes are pending (%v)", c.in, s.Pending(), err)
		}
	}
	if err := s.Close(none); err != nil || s.Pending() != 0 || s.Count() != 3 {
		t.Errorf("after the end %d bytes are pending, %d events (%v)", s.Pending(), s.Count(), err)
	}
	if err := s.Close(func(*Event) error { return errors.New("again") }); err != nil {
		t.Error("the rest was given out twice")
	}
}

func TestAnEventThatLiesWholeInOnePieceIsNotCopied(t *testing.T) {
	p := []byte("x: y\n\ndata: abc\n\ndata: d")
	var s SSE
	if err := s.Feed([]byte("id"), func(*Event) error { return nil }); err != nil {
		t.Fatal(err)
	}
	n := 0
	err := s.Feed(p, func(ev *Event) error {
		n++
		if n == 2 && &ev.Raw[0] != &p[6] {
			t.Error("the second event was copied")
		}
		return nil
	})
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	p := []byte(strings.Repeat("event: content\ndata: {\"a\":1}\n\n", 20))
	var s SSE
	yield := func(*Event) error { return nil }
	half := len(p)/2 + 7
	if err := s.Feed(p[:half], yield); err != nil {
		t.Fatal(err)
	}
	if err := s.Feed(p[half:], yield); err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(20, func() {
		_ = s.Feed(p[:half], yield)
		_ = s.Feed(p[half:], yield)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendEventReadsBack(t *testing.T) {
	for _, c := range []struct{ name, data string }{{"", "x"}, {"ping", `{"type":"ping"}`}, {"a", ""}} {
		out := AppendEvent([]byte("before"), c.name, []byte(c.data))
		raw, ok := bytes.CutPrefix(out, []byte("before"))
		if !ok {
			t.Fatalf("%q does not start with what was there", out)
		}
		all, err := collect(&SSE{}, string(raw))
		if err != nil || len(all) != 1 || all[0].Name != c.name || all[0].Data != c.data || all[0].Odd != "" {
			t.Errorf("%q reads back as %+v (%v)", raw, all, err)
		}
	}
}

// dispatched is what a client makes of an event.
type dispatched struct{ name, data string }

// standard reads a whole stream as WHATWG HTML 9.2.6 says.
func standard(in string) []dispatched {
	in = strings.TrimPrefix(in, "\ufeff")
	in = strings.ReplaceAll(strings.ReplaceAll(in, "\r\n", "\n"), "\r", "\n")
	var all []dispatched
	name, data, any := "", "", false
	lines := strings.Split(in, "\n")
	for _, line := range lines[:len(lines)-1] {
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if any {
				all = append(all, dispatched{name, strings.TrimSuffix(data, "\n")})
			}
			name, data, any = "", "", false
		case field == "event":
			name = value
		case field == "data":
			data, any = data+value+"\n", true
		}
	}
	return all
}

// careless reads a whole stream as clients do that split it at line feeds,
// take the last data line for all of it and do not wait for a blank line.
func careless(in string) []dispatched {
	var all []dispatched
	name, data, some := "", "", false
	for _, line := range append(strings.Split(in, "\n"), "") {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case line == "":
			if some {
				all = append(all, dispatched{name, data})
			}
			name, data, some = "", "", false
		case strings.HasPrefix(line, "event:"):
			name = strings.TrimPrefix(line[len("event:"):], " ")
			some = true
		case strings.HasPrefix(line, "data:"):
			data, some = strings.TrimPrefix(line[len("data:"):], " "), true
		}
	}
	return all
}

// otherBreaks are the line breaks of Python's str.splitlines that are none of
// the standard's.
var otherBreaks = strings.NewReplacer("\v", "\n", "\f", "\n", "\x1c", "\n", "\x1d", "\n", "\x1e", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")

// smuggled gives the data that a reader of more line breaks finds in the lines
// of an event that are no data, and JSON that stands in them.
func smuggled(raw string) (found []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(raw, "\r\n", "\n"), "\n") {
		if strings.HasPrefix(line, "data:") {
			continue
		}
		for _, part := range strings.Split(otherBreaks.Replace(line), "\n") {
			if strings.HasPrefix(strings.TrimSpace(part), "data") || strings.ContainsAny(part, `{}"`) {
				found = append(found, part)
			}
		}
	}
	return found
}

// disagreement compares what the reader gives out, when none of it is odd,
// with two clients.
func disagreement(in string, pieces []string) error {
	all, err := collect(&SSE{}, pieces...)
	if err != nil {
		return err
	}
	var raw strings.Builder
	var mine []dispatched
	odd, cut := false, false
	for _, g := range all {
		if found := smuggled(g.Raw); g.Odd == "" && found != nil {
			return fmt.Errorf("some reader finds %q in the event %q", found, g.Raw)
		}
		cut = cut || g.Cut
		raw.WriteString(g.Raw)
		odd = odd || g.Odd != ""
		if g.HasData {
			mine = append(mine, dispatched{g.Name, g.Data})
		}
	}
	if cut {
		in = raw.String()
	}
	if raw.String() != in {
		return fmt.Errorf("the events' bytes are %q", raw.String())
	}
	if odd {
		return nil
	}
	for i, theirs := range [][]dispatched{standard(in), careless(in)} {
		if diff := cmp.Diff(theirs, mine, cmp.AllowUnexported(dispatched{})); diff != "" {
			return fmt.Errorf("client %d reads otherwise (- client, + reader):\n%s", i, diff)
		}
	}
	return nil
}

func FuzzSSE(f *testing.F) {
	for _, in := range []string{
		"", "event: a\ndata: b\n\n", "data: b\r\n\r\n", ": c\n\ndata:b", "data: b\ndata: c\n\n", "\ufeffdata: b\n\n",
		"data: b\r\rdata: c\n\n", "event\n\n", "id: 1\n\n\r\n", "data\n\n", ": x\u2028data: y\n\n", ": {}\ndata: b\n\n", "id: x\u0085data: y\ndata: b\n\n", "event: a\vdata: y\ndata: b\n\n", "retry:{}\n\n", "event: a\n\ndata: x\n\n", ":\r\n\r\n",
	} {
		f.Add(in, uint8(3))
	}
	f.Fuzz(func(t *testing.T, in string, n uint8) {
		size := int(n)%(len(in)+1) + 1
		var pieces []string
		for rest := in; rest != ""; {
			k := min(size, len(rest))
			pieces, rest = append(pieces, rest[:k]), rest[k:]
		}
		if err := disagreement(in, pieces); err != nil {
			t.Fatal(err)
		}
		whole, _ := collect(&SSE{}, in)
		cut, _ := collect(&SSE{}, pieces...)
		if diff := cmp.Diff(whole, cut); diff != "" {
			t.Fatalf("in pieces of %d (- whole, + pieces):\n%s", size, diff)
		}
	})
}

func BenchmarkSSE(b *testing.B) {
	event := "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" word\"}}\n\n"
	for _, c := range []struct {
		name string
		size int
	}{{"whole", 200 * len(event)}, {"reads of 4 KiB", 4096}, {"reads of 50 B", 50}} {
		b.Run(c.name, func(b *testing.B) {
			body := []byte(strings.Repeat(event, 200))
			var s SSE
			n := 0
			yield := func(*Event) error { n++; return nil }
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				for rest := body; len(rest) > 0; {
					k := min(c.size, len(rest))
					if err := s.Feed(rest[:k], yield); err != nil {
						b.Fatal(err)
					}
					rest = rest[k:]
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
		})
	}
}

func TestManyLinesOfDataCostLinearWork(t *testing.T) {
	work := func(n int) uint64 {
		in := append(bytes.Repeat([]byte("data:\n"), n), '\n')
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var s SSE
		if err := s.Feed(in, func(*Event) error { return nil }); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	// What is copied counts, in bytes: a copy for each line would be 64 times
	// as much.
	if one, eight := work(10_000), work(80_000); eight > 20*one {
		t.Errorf("8 times the lines take %d bytes instead of %d", eight, one)
	}
}
