package digest

import (
	"strings"
	"testing"
)

func sum(build func(*Writer)) Digest {
	var w Writer
	build(&w)
	return w.Sum()
}

func TestWhatClientsChangeDoesNotCount(t *testing.T) {
	for name, pair := range map[string][2]func(*Writer){
		"white space": {
			func(w *Writer) { w.Part(Text); w.String([]byte(`"one  two\n three "`)) },
			func(w *Writer) { w.Part(Text); w.String([]byte(`"one two three"`)) },
		},
		"white space of other scripts": {
			func(w *Writer) { w.Part(Text); w.Plain("one\u00a0two\u3000three\u2028") },
			func(w *Writer) { w.Part(Text); w.Plain("one two three") },
		},
		"escapes": {
			func(w *Writer) { w.Part(Text); w.String([]byte(`"gr\u00fcn \/ \ud83d\ude00"`)) },
			func(w *Writer) { w.Part(Text); w.String([]byte(`"grün / 😀"`)) },
		},
		"how a text is cut into pieces": {
			func(w *Writer) { w.Part(Text); w.String([]byte(`"one"`)); w.String([]byte(`"two"`)) },
			func(w *Writer) { w.Part(Text); w.String([]byte(`"onetwo"`)) },
		},
		"spaces and numbers of arguments": {
			func(w *Writer) { w.Part(Args); w.Strings([]byte(`{"cmd":"ls -l", "n":1.0}`)) },
			func(w *Writer) { w.Part(Args); w.Strings([]byte(`{ "cmd" : "ls -l","n":1}`)) },
		},
		"texts longer than what is hashed at once": {
			func(w *Writer) { w.Part(Text); w.Plain(strings.Repeat("a b", 1000)) },
			func(w *Writer) { w.Part(Text); w.Plain(strings.Repeat("ab", 1000)) },
		},
	} {
		if sum(pair[0]) != sum(pair[1]) {
			t.Errorf("%s makes another digest", name)
		}
	}
}

func TestWhatIsSaidCounts(t *testing.T) {
	seen := map[Digest]string{}
	for name, build := range map[string]func(*Writer){
		"nothing":                func(w *Writer) {},
		"an empty text":          func(w *Writer) { w.Part(Text) },
		"an empty call":          func(w *Writer) { w.Part(Call) },
		"a text":                 func(w *Writer) { w.Part(Text); w.Plain("rm") },
		"a text of a user":       func(w *Writer) { w.Part(User); w.Plain("rm") },
		"a call":                 func(w *Writer) { w.Part(Call); w.Plain("rm") },
		"two calls":              func(w *Writer) { w.Part(Call); w.Plain("r"); w.Part(Call); w.Plain("m") },
		"case":                   func(w *Writer) { w.Part(Text); w.Plain("RM") },
		"a key is no value":      func(w *Writer) { w.Part(Args); w.Strings([]byte(`{"rm":1}`)) },
		"a value":                func(w *Writer) { w.Part(Args); w.Strings([]byte(`{"a":"rm"}`)) },
		"two values":             func(w *Writer) { w.Part(Args); w.Strings([]byte(`{"a":"r","b":"m"}`)) },
		"two values, cut others": func(w *Writer) { w.Part(Args); w.Strings([]byte(`{"a":"","b":"rm"}`)) },
		"a digest before": func(w *Writer) {
			w.Digest(Digest{1})
			w.Part(Text)
			w.Plain("rm")
		},
		"another digest before": func(w *Writer) {
			w.Digest(Digest{2})
			w.Part(Text)
			w.Plain("rm")
		},
	} {
		d := sum(build)
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have one digest", name, other)
		}
		seen[d] = name
	}
}

func TestAWriterStartsAnewAfterASum(t *testing.T) {
	var w Writer
	w.Part(Text)
	w.Plain("one")
	first := w.Sum()
	w.Part(Text)
	w.Plain("one")
	if w.Sum() != first {
		t.Error("what was added before the sum counts after it")
	}
}

func FuzzStrings(f *testing.F) {
	for _, s := range []string{`{"a":"b"}`, `"`, `"\`, `["\u00e9"]`, "{\"a\" \n: \"b\"}", "\xff", `"a":`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var w Writer
		w.Part(Args)
		w.Strings(raw)
		w.String(raw)
		w.Sum()
	})
}

func BenchmarkText(b *testing.B) {
	text := []byte(`"` + strings.Repeat("the words of an answer, and some more ", 1000) + `"`)
	b.SetBytes(int64(len(text)))
	var w Writer
	for b.Loop() {
		w.Part(Text)
		w.String(text)
		w.Sum()
	}
}
