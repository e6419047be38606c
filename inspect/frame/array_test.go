package frame

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// elements lists what an array is cut into, fed in pieces of that size.
func elements(doc string, size, limit int) (list []string, all string, err error) {
	a := Array{Max: limit}
	var tail string
	for b := []byte(doc); len(b) > 0 && err == nil; {
		n := min(size, len(b))
		piece := bytes.Clone(b[:n])
		err = a.Feed(piece, func(e *Element) error {
			all += string(e.Raw)
			switch {
			case e.End && e.Mark >= 0:
				tail += "end with " + string(e.Raw[e.Mark])
			case e.End:
				tail += strings.TrimSpace(string(e.Raw))
			default:
				list = append(list, string(e.Raw[e.Mark])+string(e.Raw[e.At:]))
			}
			return nil
		})
		for i := range piece {
			piece[i] = 0xEE // whoever kept it will be seen
		}
		b = b[n:]
	}
	if tail != "" {
		list = append(list, tail)
	}
	return list, all, err
}

func TestAnArrayIsCutIntoItsElements(t *testing.T) {
	for _, c := range []struct{ says, doc, want string }{
		{"elements come with what stands between them", "[{\"a\":1}\n,\r\n{\"b\":[{}]}\n]\n", `[{"a":1} | ,{"b":[{}]} | ]`},
		{"brackets and quotes in strings are text", `[{"a":"]}\"{"},{"\\":"\\"}]`, `[{"a":"]}\"{"} | ,{"\\":"\\"} | ]`},
		{"an empty array is its end", " [ ] ", `end with [`},
		{"white space may stand before it", " \n[{}]", `[{} | ]`},
		{"a cut one gives what is whole", `[{"a":1},{"b"`, `[{"a":1}`},
	} {
		t.Run(c.says, func(t *testing.T) {
			for size := 1; size <= len(c.doc); size++ {
				list, all, err := elements(c.doc, size, 0)
				if got := strings.Join(list, " | "); got != c.want || err != nil || !strings.HasPrefix(c.doc, all) {
					t.Fatalf("in pieces of %d: %s %v, in all %q", size, got, err, all)
				}
			}
		})
	}
}

func TestWhatIsNoArrayOfObjectsIsRefused(t *testing.T) {
	for _, doc := range []string{`{}`, `x`, `[1]`, `["a"]`, `[null]`, `[[{}]]`, `[,{}]`, `[{},]`, `[{},,{}]`, `[{}{}]`, `[{}] {}`, `[{}]]`, `[{}];`, `]`} {
		for size := range len(doc) {
			_, _, err := elements(doc, size+1, 0)
			if _, ok := errors.AsType[*ArrayError](err); !ok {
				t.Errorf("%s in pieces of %d: the error is %v", doc, size+1, err)
			}
		}
	}
}

func TestALongElementIsRefusedHoweverItComes(t *testing.T) {
	doc := `[{"a":"` + strings.Repeat("x", 100) + `"},{}]`
	for size := 1; size <= len(doc); size++ {
		if _, _, err := elements(doc, size, 50); !errors.Is(err, err.(*TooLargeError)) {
			t.Fatalf("in pieces of %d: the error is %v", size, err)
		}
	}
	if _, _, err := elements(doc, 7, len(doc)); err != nil {
		t.Error(err)
	}
}

func TestAnErrorOfTheReceiverEndsTheReading(t *testing.T) {
	stop := errors.New("stop")
	for _, doc := range []string{`[{}`, `[]`, `[] `} {
		var a Array
		if err := a.Feed([]byte(doc), func(*Element) error { return stop }); err != stop {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// FuzzArray holds the reader against encoding/json: how a text is cut changes
// nothing, no byte is lost, and of an array of objects all are found.
func FuzzArray(f *testing.F) {
	for _, s := range []string{`[{"a":1},{"b":"]}\""}]`, "[\n{}\n,\n{}]\n", `[]`, ` [ ] `, `[{`, `[{}x]`} {
		f.Add([]byte(s), uint8(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		doc := string(b)
		whole, all, err := elements(doc, len(doc)+1, 0)
		cut, allCut, errCut := elements(doc, int(size)+1, 0)
		if fmt.Sprint(whole, err) != fmt.Sprint(cut, errCut) || err == nil && all != allCut {
			t.Fatalf("%q is read as %q %v, and cut as %q %v", doc, whole, err, cut, errCut)
		}
		if !strings.HasPrefix(doc, all) {
			t.Fatalf("%q is given out as %q", doc, all)
		}
		var objects []map[string]any
		if json.Unmarshal(b, &objects) != nil || objects == nil {
			return
		}
		for _, o := range objects {
			if o == nil {
				return // null is no object here
			}
		}
		if err != nil || all != doc || len(whole) != len(objects)+1 {
			t.Fatalf("%q holds %d objects, and %q %v were found", doc, len(objects), whole, err)
		}
	})
}
