package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

var known = Keys("tool_calls", "content", "id")

func TestWhatAllReadersReadAlikePasses(t *testing.T) {
	for _, s := range []string{
		`{}`, `[]`, `""`, `0`, `-0`, `1.5e+10`, `-12E-2`, `true`, `false`, `null`, " {\"a\" : [ 1 , 2 ] }\r\n\t",
		`{"tool_calls":[],"content":null,"id":"x"}`,
		`{"a":{"a":{"a":1}}}`,
		`["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00", "é😀"]`,
		`{"tool_call":1,"tool_callss":2,"contents":3}`,
		`{"é":1,"e":2,"É2":3}`,
		`{"":1}`,
		`"` + strings.Repeat("abcdefg", 100) + "\\n" + strings.Repeat("x", 33) + `"`,
	} {
		if err := Validate([]byte(s), Options{Known: known}); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestWhatReadersReadDifferentlyIsRefused(t *testing.T) {
	deep := strings.Repeat("[", DefaultDepth+1) + strings.Repeat("]", DefaultDepth+1)
	for _, c := range []struct{ name, in, reason string }{
		{"nothing at all", ``, "ended where a value"},
		{"only space", ` `, "ended where a value"},
		{"a key twice", `{"a":1,"a":2}`, "twice"},
		{"a key twice deep down", `[{"b":{"a":1,"c":0,"a":2}}]`, "twice"},
		{"a key twice by case", `{"abc":1,"aBc":2}`, "twice"},
		{"a key twice by an escape", `{"a":1,"\u0061":2}`, "twice"},
		{"a key twice by the long s", `{"rules":1,"ruleſ":2}`, "twice"},
		{"a key twice by the Kelvin sign", `{"\u212aey":1,"key":2}`, "twice"},
		{"the empty key twice", `{"":1,"":2}`, "twice"},
		{"a key twice among very many", manyKeys(100, `,"K7":1`), "twice"},
		{"an escaped key twice among very many", manyKeys(100, `,"\u006b7":1`), "twice"},
		{"a key twice at the end of the few", manyKeys(fewKeys, `,"k0":1`), "twice"},
		{"a known key in capitals", `{"Tool_Calls":[]}`, "reads like tool_calls"},
		{"a known key with the long s", `{"tool_callſ":[]}`, "reads like tool_calls"},
		{"a known key by an escape", `{"tool\u005fcalls":[]}`, "reads like tool_calls"},
		{"a known key in capitals deep down", `{"a":[{"CONTENT":1}]}`, "reads like content"},
		{"bad UTF-8", "\"\xff\"", "not UTF-8"},
		{"an overlong form", "\"\xc0\xaf\"", "not UTF-8"},
		{"a surrogate in UTF-8", "\"\xed\xa0\x80\"", "not UTF-8"},
		{"bad UTF-8 in a key", "{\"a\xff\":1}", "not UTF-8"},
		{"half a pair", `"\ud83d"`, "half a surrogate"},
		{"the second half alone", `"\ude00"`, "half a surrogate"},
		{"two first halves", `"\ud83d\ud83d"`, "half a surrogate"},
		{"half a pair in a key", `{"\ud83d":1}`, "half a surrogate"},
		{"a control character", "\"a\nb\"", "control character"},
		{"a control character behind eight", "\"abcdefgh\x01\"", "control character"},
		{"a control character among eight", "\"abcd\x1fefgh\"", "control character"},
		{"an unknown escape", `"\x"`, "escape is unknown"},
		{"an escape without digits", `"\u00zz"`, "lacks its digits"},
		{"a second document", `{} {}`, "behind the document"},
		{"letters behind the document", `{}x`, "behind the document"},
		{"a comma too many", `[1,]`, "no value can start"},
		{"a comma too many in an object", `{"a":1,}`, "a key is wanted"},
		{"a key without quotes", `{a:1}`, "a key is wanted"},
		{"a key without a colon", `{"a" 1}`, "lacks its colon"},
		{"values without a comma", `[1 2]`, "goes on wrongly"},
		{"members without a comma", `{"a":1 "b":2}`, "goes on wrongly"},
		{"leading zeros", `01`, "leading zeros"},
		{"a plus sign", `+1`, "no value can start"},
		{"a lone minus", `-`, "lacks its digits"},
		{"a bare point", `1.`, "behind its point"},
		{"an exponent without digits", `1e`, "in its exponent"},
		{"not a number", `NaN`, "no value can start"},
		{"a wrong word", `nul1`, "no value can start"},
		{"single quotes", `'a'`, "no value can start"},
		{"a comment", `{}/**/`, "behind the document"},
		{"a byte order mark", "\ufeff{}", "no value can start"},
		{"too deep", deep, "too deep"},
		{"too deep in objects", strings.Repeat(`{"a":`, DefaultDepth+1), "too deep"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Validate([]byte(c.in), Options{Known: known})
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(e.Reason, c.reason) {
				t.Fatalf("got %v, want a reason with %q", err, c.reason)
			}
			if e.Offset < 0 || e.Offset > len(c.in) {
				t.Fatalf("offset %d lies outside the text", e.Offset)
			}
		})
	}
}

func manyKeys(n int, last string) string {
	var b strings.Builder
	b.WriteString(`{"k0":0`)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	return b.String() + last + "}"
}

func TestManyKeysThatDifferPass(t *testing.T) {
	for _, n := range []int{1, fewKeys - 1, fewKeys, fewKeys + 1, 1000} {
		if err := Validate([]byte(manyKeys(n, `,"é":1,"z":2`)), Options{}); err != nil {
			t.Errorf("%d keys: %v", n, err)
		}
	}
}

func TestEveryTextThatMoreBytesCouldMendIsEarly(t *testing.T) {
	doc := `{"a":[1.5e3,-2,true,false,null,"x\u00e9\ud83d\ude00é\n",{"b":{}}],"cé":""}`
	for i := range doc {
		err := Validate([]byte(doc[:i]), Options{Known: known})
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%q: got %v", doc[:i], err)
		}
		// A pair cut between its halves may be read as a half alone, and its
		// first half stands where it was found.
		if !e.Early && !strings.Contains(e.Reason, "surrogate") {
			t.Errorf("%q: %v is not early", doc[:i], err)
		}
	}
	for _, s := range []string{`{"a":1,"a"`, `[1,]`, "\"\xff", `{"a":1}}`} {
		var e *Error
		if err := Validate([]byte(s), Options{}); !errors.As(err, &e) || e.Early {
			t.Errorf("%q: %v is early, and no more bytes can mend it", s, err)
		}
	}
}

func TestOnlyObjectsAreObjects(t *testing.T) {
	for _, s := range []string{`[]`, `"{}"`, `1`, ` null`, ``, `{`, `{}{}`} {
		if err := Object([]byte(s), Options{}); err == nil {
			t.Errorf("%q passes as an object", s)
		}
	}
	for _, s := range []string{`{}`, " \r\n\t{\"a\":1} "} {
		if err := Object([]byte(s), Options{}); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestSurrogatesPassInValuesWhenPermitted(t *testing.T) {
	o := Options{Surrogates: true}
	if err := Validate([]byte(`["\ud83d","\ud83dx","\ude00"]`), o); err != nil {
		t.Error(err)
	}
	if err := Validate([]byte(`{"\ud83d":1}`), o); err == nil {
		t.Error("half a pair passes in a key")
	}
}

func TestFoldingIsThatOfEqualFold(t *testing.T) {
	words := []string{"tool_calls", "TOOL_CALLS", "tool_callſ", "Key", "\u212aey", "ÉTÉ", "été", "ΣΑΣ", "σας", "İ", "i", "ß", "ẞ", "x\xff"}
	for _, a := range words {
		for _, b := range words {
			if got, want := Fold(a) == Fold(b), strings.EqualFold(a, b); got != want {
				t.Errorf("%q and %q: got %t, want %t", a, b, got, want)
			}
		}
	}
}

func TestDepthIsCounted(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if err := Validate(nest(3), Options{Depth: 3}); err != nil {
		t.Error(err)
	}
	if err := Validate(nest(4), Options{Depth: 3}); err == nil {
		t.Error("one level too many passes")
	}
}

func TestOrdinaryObjectsNeedNoMemory(t *testing.T) {
	doc := []byte(`{"id":"c","object":"chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a\nb é"},"finish_reason":null}],"usage":null,"a":1,"b":2,"c":3,"d":4}`)
	o := Options{Known: known}
	if n := testing.AllocsPerRun(100, func() {
		if Validate(doc, o) != nil {
			t.Fail()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOnlyWhatIsJSONAllTheSameDiffers(t *testing.T) {
	for in, want := range map[string]bool{
		`{"a":1,"A":2}`: true, `{"Content":1}`: true, `"\ud800"`: true,
		`{"a":1`: false, `{"a":01}`: false, "\"\xff\"": false, `{}{}`: false,
	} {
		var e *Error
		if err := Validate([]byte(in), Options{Known: known}); !errors.As(err, &e) || e.Differ != want {
			t.Errorf("%s: %v differs=%t, want %t", in, err, !want, want)
		}
	}
}

func TestStringsAreMeasuredAndRead(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		text string
	}{
		{`""`, 2, ""}, {`"a" x`, 3, "a"}, {`"a\"b"`, 6, `a"b`}, {`"\\"`, 4, `\`}, {`"é\n\u00e9\/"`, 14, "é\né/"},
		{`"\ud83d\ude00!"`, 15, "😀!"}, {`"\ud83d"`, 8, "\ufffd"}, {`"\ud83d\u0041"`, 14, "\ufffdA"},
		{`"a`, -1, ""}, {``, -1, ""}, {`a"`, -1, ""}, {`"\x"`, -1, ""}, {"\"a\nb\"", -1, ""}, {"\"\xff\"", -1, ""},
	} {
		n := StringLen([]byte(c.in))
		if n != c.n {
			t.Errorf("%s: length %d, want %d", c.in, n, c.n)
		} else if n > 0 {
			if got := string(AppendString([]byte("x"), []byte(c.in[:n]))); got != "x"+c.text {
				t.Errorf("%s: reads %q", c.in, got)
			}
		}
	}
}

// TestPlainEndStopsAtEachByteThatNeedsALook holds the eight at a time against one
// by one, with bytes behind that may borrow.
func TestPlainEndStopsAtEachByteThatNeedsALook(t *testing.T) {
	for _, behind := range []string{"", "a", "\"", "\x00\x00!", "\\]]#!\xff   "} {
		for at := range 20 {
			for c := range 256 {
				b := append(append(bytes.Repeat([]byte{'!'}, at), byte(c)), behind...)
				want := 0
				for want < len(b) && b[want] >= ' ' && b[want] < 0x80 && b[want] != '"' && b[want] != '\\' {
					want++
				}
				if got := plainEnd(b, 0); got != want {
					t.Fatalf("%q is plain up to %d, want %d", b, got, want)
				}
			}
		}
	}
}

// FuzzString holds StringLen and AppendString against encoding/json.
func FuzzString(f *testing.F) {
	for _, s := range []string{`"a\n\u00e9\ud83d\ude00\ud83d"`, `"`, `"\`, `"\u12`, "\"\xc3\xa9\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := StringLen(b)
		if n < 0 {
			return
		}
		var want string
		if err := json.Unmarshal(b[:n], &want); err != nil {
			t.Fatalf("%q passes: %v", b[:n], err)
		}
		if got := string(AppendString(nil, b[:n])); got != want {
			t.Fatalf("%q reads %q, want %q", b[:n], got, want)
		}
	})
}

// FuzzValidate holds the validator against encoding/json and against what it
// promises: what passes is valid for others, and each key stands once.
func FuzzValidate(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2.5e-3,true,null,"x\u00e9\ud83d\ude00"]}`, `{"tool_calls":1,"Tool_Calls":2}`, `{"a":1,"\u0061":2}`,
		`"\ud800"`, "\"\xff\"", `[[[]]]`, `{} {}`, `01`, `-`, `{"ſ":1,"s":2}`, manyKeys(20, `,"é":1`), `"12345678\u0000"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := Validate(b, Options{Known: known})
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(b) {
				t.Fatalf("%q: %v", b, err)
			}
			if again := Validate(append(bytes.Clone(b), "\xff"...), Options{Known: known}); again == nil {
				t.Fatalf("%q is refused and passes with a bad byte behind it", b)
			}
			return
		}
		if !json.Valid(b) || !utf8.Valid(b) {
			t.Fatalf("%q passes and is not valid JSON in UTF-8", b)
		}
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		if err := uniqueKeys(dec); err != nil {
			t.Fatalf("%q passes: %v", b, err)
		}
	})
}

// uniqueKeys reads one value and compares all keys of each object in pairs.
func uniqueKeys(dec *json.Decoder) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	d, ok := tok.(json.Delim)
	if !ok {
		return nil
	}
	var keys []string
	for dec.More() {
		if d == '{' {
			k, err := dec.Token()
			if err != nil {
				return err
			}
			for _, other := range keys {
				if strings.EqualFold(k.(string), other) {
					return fmt.Errorf("%q and %q", k, other)
				}
			}
			keys = append(keys, k.(string))
			if exact, ok := known[Fold(k.(string))]; ok && exact != k {
				return fmt.Errorf("%q reads like %q", k, exact)
			}
		}
		if err := uniqueKeys(dec); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

func BenchmarkValidate(b *testing.B) {
	args := []byte(`{"command":"` + strings.Repeat("ls -la /var/log; ", 20) + `","timeout":30,"cwd":"/home/u"}`)
	chunk := []byte(`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]},"finish_reason":null}],"usage":null}`)
	o := Options{Known: Keys("id", "model", "choices", "index", "delta", "tool_calls", "function", "arguments", "finish_reason")}
	for _, c := range []struct {
		name string
		doc  []byte
	}{{"arguments", args}, {"chunk", chunk}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.doc)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Validate(c.doc, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
