package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"callgate/inspect/strictjson"
)

// told lists what a walk gives.
func told(doc string) string {
	b := []byte(doc)
	var all []string
	w := Open(b, All(b))
	for w.Next() {
		all = append(all, fmt.Sprintf("%s=%s (%s)", w.Key.In(b), w.Val.In(b), w.Item.In(b)))
	}
	return fmt.Sprintf("%s bad=%v at=%d", strings.Join(all, "; "), w.Bad(), w.At())
}

func TestAWalkGivesMembersAndElements(t *testing.T) {
	for _, c := range []struct{ says, doc, want string }{
		{"an object gives its members as written", `{"a":1, "b" : {"c":[2]} }`, `a=1 ("a":1); b={"c":[2]} ("b" : {"c":[2]}) bad=false at=25`},
		{"an array gives its elements without keys", "[1,\t\"x\" ,[],null]", "=1 (1); =\"x\" (\"x\"); =[] ([]); =null (null) bad=false at=17"},
		{"white space before the document is stepped over", " \r\n{}", ` bad=false at=5`},
		{"an escaped key stays escaped", `{"\u0061\"":true}`, `\u0061\"=true ("\u0061\"":true) bad=false at=17`},
		{"a quote behind two backslashes ends the string", `["\\",1]`, `="\\" ("\\"); =1 (1) bad=false at=8`},
		{"brackets inside strings are text", `{"a":["]}",{"b":"}"}],"c":0}`, `a=["]}",{"b":"}"}] ("a":["]}",{"b":"}"}]); c=0 ("c":0) bad=false at=28`},
		{"what stands behind the end is left alone", `[1] [2]`, `=1 (1) bad=false at=3`},
		{"a scalar is nothing to walk over", `"a"`, ` bad=true at=0`},
		{"nothing is nothing to walk over", ``, ` bad=true at=0`},
		{"a text that ends early is bad", `{"a":1`, `a=1 ("a":1) bad=true at=6`},
		{"a string that does not end is bad", `{"a":"x\"}`, ` bad=true at=5`},
		{"a key without a colon is bad", `{"a" 1}`, ` bad=true at=5`},
		{"a key that is no string is bad", `{1:1}`, ` bad=true at=1`},
		{"a member without a value is bad", `{"a":}`, ` bad=true at=5`},
		{"elements without a comma between them are bad", `[1 2]`, `=1 (1) bad=true at=3`},
		{"a comma before the first element is bad", `[,1]`, ` bad=true at=1`},
		{"a comma behind the last element is bad", `[1,]`, `=1 (1) bad=true at=3`},
		{"a comma behind the last member is bad", `{"a":1,}`, `a=1 ("a":1) bad=true at=7`},
		{"a value that does not close is bad", `[[1,[2]`, ` bad=true at=1`},
	} {
		t.Run(c.says, func(t *testing.T) {
			if got := told(c.doc); got != c.want {
				t.Errorf("%s gives %s\nwant %s", c.doc, got, c.want)
			}
		})
	}
}

func TestASpentWalkStaysSpent(t *testing.T) {
	b := []byte(`[1]2]`)
	w := Open(b, All(b))
	if !w.Next() || w.Next() || w.Next() || w.At() != 3 {
		t.Errorf("it went on to %d", w.At())
	}
}

func TestValuesAreToldApart(t *testing.T) {
	doc := []byte(`{"s":"a\nb","e":"","n":null,"o":{ "x":1},"eo":{ },"a":[0],"ea":[ ],"i":120,"neg":-1,"frac":1.5,"big":1234567890,"s":"second","t":true}`)
	get := func(key string) Span { return Get(doc, All(doc), key) }
	for _, c := range []struct {
		key                                  string
		null, str, object, array, nested, ok bool
		text                                 string
		whole                                int
	}{
		{key: "s", str: true, text: "a\nb"},
		{key: "e", str: true},
		{key: "n", null: true},
		{key: "o", object: true, nested: true},
		{key: "eo", object: true},
		{key: "a", array: true, nested: true},
		{key: "ea", array: true},
		{key: "i", ok: true, whole: 120},
		{key: "neg"}, {key: "frac"}, {key: "big"}, {key: "t"},
		{key: "missing", null: true},
	} {
		t.Run(c.key, func(t *testing.T) {
			s := get(c.key)
			n, ok := Whole(doc, s)
			if Null(doc, s) != c.null || IsString(doc, s) != c.str || IsObject(doc, s) != c.object || IsArray(doc, s) != c.array ||
				Nested(doc, s) != c.nested || ok != c.ok || n != c.whole || Text(doc, s) != c.text {
				t.Errorf("%q is read as null %v, string %v, object %v, array %v, nested %v, whole %v %d, text %q", s.In(doc),
					Null(doc, s), IsString(doc, s), IsObject(doc, s), IsArray(doc, s), Nested(doc, s), ok, n, Text(doc, s))
			}
		})
	}
}

func TestAKeyIsUnescaped(t *testing.T) {
	b := []byte(`{"\u0061\t\"":1}`)
	w := Open(b, All(b))
	w.Next()
	if got := KeyText(b, w.Key); got != "a\t\"" || KeyText(b, Span{}) != "" || w.Is(`a`) || !w.Is(`\u0061\t\"`) {
		t.Errorf("the key is %q", got)
	}
}

func TestEditsAreAppliedByPlaceAndTextIsPutInBeforeACut(t *testing.T) {
	b := []byte("abcdef")
	edits := []Edit{{Span{4, 6}, nil}, {Span{2, 3}, []byte("CC")}, Insert(2, []byte("+")), Insert(4, []byte("1")), Insert(4, []byte("2"))}
	if got := string(Apply([]byte("> "), b, edits)); got != "> ab+CCd12" {
		t.Errorf("it gives %q", got)
	}
	if got := string(Apply(nil, b, nil)); got != "abcdef" {
		t.Errorf("without edits it gives %q", got)
	}
}

func TestCutTakesAnySetOfItemsOut(t *testing.T) {
	for _, doc := range []string{`[ 0 , 1,2 ,3 ]`, `{"k0":0, "k1" : 1 ,"k2":2,"k3":3}`} {
		b := []byte(doc)
		var items []Span
		for w := Open(b, All(b)); w.Next(); {
			items = append(items, w.Item)
		}
		for set := range 1 << len(items) {
			var kept []string
			gone := map[Span]bool{}
			for i, it := range items {
				if gone[it] = set&(1<<i) != 0; !gone[it] {
					kept = append(kept, string(it.In(b)))
				}
			}
			edits, left := Cut(b, All(b), func(s Span) bool { return gone[s] })
			out := Apply(nil, b, edits)
			var still []string
			for w := Open(out, All(out)); w.Next(); {
				still = append(still, string(w.Item.In(out)))
			}
			if !json.Valid(out) || left != len(kept) || strings.Join(still, "|") != strings.Join(kept, "|") {
				t.Errorf("%s without %b is %s, %d left", doc, set, out, left)
			}
		}
	}
}

// FuzzWalk holds the walk over text that strictjson passes against
// encoding/json, and over any other text against its own bounds.
func FuzzWalk(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"\\\""}],"c":-1.5e3}`, `[ ]`, `[[[]],"x",{}]`, `{"a":`, `"a"`, `{"a":1,}`, `[,1]`, `{"\u0061":"\ud83d\ude00"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := bytes.Clone(data)
		ok := strictjson.Validate(b, strictjson.Options{}) == nil
		check(t, b, All(b), ok, 0)
		if !bytes.Equal(b, data) {
			t.Fatal("the text was changed")
		}
	})
}

func check(t *testing.T, b []byte, s Span, ok bool, depth int) {
	t.Helper()
	w := Open(b, s)
	if depth > 50 {
		return
	}
	var elements []json.RawMessage
	var members map[string]json.RawMessage
	if ok {
		switch {
		case IsObject(b, s):
			if err := json.Unmarshal(s.In(b), &members); err != nil {
				t.Fatal(err)
			}
		case IsArray(b, s):
			if err := json.Unmarshal(s.In(b), &elements); err != nil {
				t.Fatal(err)
			}
		}
	}
	nested, at, n := Nested(b, s), s.From, 0
	for ; w.Next(); n++ {
		if !w.Val.There() || !w.Val.Within(w.Item) || w.Item.From < at || w.Item.To > len(b) || w.Item.To != w.Val.To {
			t.Fatalf("%q: a walk gives %v %v at %d", b, w.Item, w.Val, at)
		}
		at = w.Item.To
		if ok {
			want := json.RawMessage(nil)
			switch {
			case elements != nil:
				want = elements[n]
			default:
				want = members[KeyText(b, w.Key)]
			}
			if !bytes.Equal(w.Val.In(b), want) {
				t.Fatalf("%q: a walk gives %q, want %q", b, w.Val.In(b), want)
			}
			if IsString(b, w.Val) {
				var text string
				if err := json.Unmarshal(want, &text); err != nil || text != Text(b, w.Val) {
					t.Fatalf("%q is read as %q", want, Text(b, w.Val))
				}
			}
		}
		check(t, b, w.Val, ok, depth+1)
	}
	if ok && (n != len(elements)+len(members) || nested != (n > 0)) {
		t.Fatalf("%q: a walk gives %d items of %d", b, n, len(elements)+len(members))
	}
	if ok && (IsObject(b, s) || IsArray(b, s)) && (w.Bad() || w.At() > s.To) {
		t.Fatalf("%q: the walk over %v ends at %d", b, s, w.At())
	}
}
