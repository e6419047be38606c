package frame

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// lines reads a text in pieces of the given length and writes down what comes
// out.
func lines(t testing.TB, text string, piece, limit int) (all []string, err error) {
	t.Helper()
	d := NDJSON{Max: limit}
	var raw strings.Builder
	yield := func(l *Line) error {
		raw.Write(l.Raw)
		if !bytes.Equal(l.Raw[l.At:l.At+len(l.Data)], l.Data) {
			t.Fatalf("the data %q is not at %d of %q", l.Data, l.At, l.Raw)
		}
		if l.Blank() != (strings.TrimSpace(string(l.Raw)) == "" && !strings.ContainsAny(string(l.Raw), "\v\f")) && isASCII(l.Raw) {
			t.Fatalf("%q is blank: %v", l.Raw, l.Blank())
		}
		all = append(all, fmt.Sprintf("%q odd=%v", l.Data, l.Odd != ""))
		return nil
	}
	for b := []byte(text); len(b) > 0; {
		n := min(piece, len(b))
		p := bytes.Clone(b[:n])
		if err := d.Feed(p, yield); err != nil {
			return all, err
		}
		for i := range p {
			p[i] = 0xEE
		}
		b = b[n:]
	}
	if raw.Len()+d.Pending() != len(text) {
		t.Fatalf("%d bytes came out and %d are held of %d", raw.Len(), d.Pending(), len(text))
	}
	if err := d.Close(yield); err != nil {
		return all, err
	}
	if raw.String() != text || d.Count() != len(all) || d.Pending() > 0 {
		t.Fatalf("%q came out of %q, %d lines of %d", raw.String(), text, d.Count(), len(all))
	}
	return all, nil
}

func isASCII(b []byte) bool { return bytes.IndexFunc(b, func(r rune) bool { return r >= 0x80 }) < 0 }

func TestNDJSONReadsLines(t *testing.T) {
	for _, c := range []struct {
		says, text string
		want       []string
	}{
		{"nothing is no line", "", nil},
		{"lines end in LF", "{}\n[1]\n", []string{`"{}" odd=false`, `"[1]" odd=false`}},
		{"lines end in CRLF", "{}\r\n[1]\r\n", []string{`"{}" odd=false`, `"[1]" odd=false`}},
		{"the last line may lack its end", "{}\n[1]", []string{`"{}" odd=false`, `"[1]" odd=false`}},
		{"blank lines are lines", "\n{}\n\n \t\r\n", []string{`"" odd=false`, `"{}" odd=false`, `"" odd=false`, `"" odd=false`}},
		{"white space around a document is none of it", "  {} \n", []string{`"{}" odd=false`}},
		{"a carriage return inside is odd", "{\r}\n{}\r{}\n", []string{`"{\r}" odd=true`, `"{}\r{}" odd=true`}},
		{"other breaks end no line", "a\vb\u2028c\u0085d\n", []string{`"a\vb\u2028c\u0085d" odd=false`}},
		{"what is in a line is not looked at", "data: x\n", []string{`"data: x" odd=false`}},
	} {
		t.Run(c.says, func(t *testing.T) {
			for piece := 1; piece <= len(c.text)+1; piece++ {
				got, err := lines(t, c.text, piece, 0)
				if err != nil || !slices.Equal(got, c.want) {
					t.Errorf("in pieces of %d: %q, %v, want %q", piece, got, err, c.want)
				}
			}
		})
	}
}

func TestNDJSONHoldsNoMoreThanItsLimit(t *testing.T) {
	for piece := 1; piece < 12; piece++ {
		var large *TooLargeError
		if _, err := lines(t, "12345678\n", piece, 9); err != nil {
			t.Errorf("in pieces of %d a line of the limit: %v", piece, err)
		}
		if got, err := lines(t, "{}\n123456789\n", piece, 9); !errors.As(err, &large) || large.Limit != 9 || len(got) != 1 {
			t.Errorf("in pieces of %d a longer one: %q, %v", piece, got, err)
		}
		if _, err := lines(t, "1234567890", piece, 9); !errors.As(err, &large) {
			t.Errorf("in pieces of %d one that does not end: %v", piece, err)
		}
	}
}

func TestNDJSONStopsAtAnErrorOfItsReader(t *testing.T) {
	stop := errors.New("stop")
	n := 0
	d := NDJSON{}
	err := d.Feed([]byte("1\n2\n3\n"), func(*Line) error {
		if n++; n == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || n != 2 {
		t.Errorf("%v after %d lines", err, n)
	}
}

func TestNDJSONCopiesNothingThatIsWhole(t *testing.T) {
	d := NDJSON{}
	p := []byte(strings.Repeat(`{"message":{"content":"word"},"done":false}`+"\n", 20))
	n := 0
	yield := func(*Line) error { n++; return nil }
	if allocs := testing.AllocsPerRun(20, func() { _ = d.Feed(p, yield) }); allocs > 0 {
		t.Errorf("%v allocations for twenty lines", allocs)
	}
}

func FuzzNDJSON(f *testing.F) {
	for _, s := range []string{"{}\n", "{}\r\n\n[1]", "\r\r\n", "a\rb\n", "\u2028\n"} {
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, text string, piece int) {
		if piece < 1 || len(text) > 1<<12 {
			return
		}
		whole, err := lines(t, text, len(text)+1, 64)
		got, perr := lines(t, text, piece, 64)
		if (err == nil) != (perr == nil) || !slices.Equal(whole, got) {
			t.Fatalf("in pieces of %d: %q, %v, whole: %q, %v", piece, got, perr, whole, err)
		}
	})
}
