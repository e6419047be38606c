package repair

import (
	"fmt"
	"strings"
	"testing"

	"callgate/inspect"
	"callgate/inspect/digest"
)

// full gives a book with the records of many tenants, and ten of one.
func full(b *testing.B) *Book {
	b.Helper()
	book := opened(b, newMemory(), Options{})
	for i := range 10_000 {
		keep(b, book, kept{tenant: fmt.Sprint("tenant ", i%1000), calls: fmt.Sprintf("toolu_01%022d", i), says: fmt.Sprint(i), last: "l", put: "A"}.entry())
	}
	for i := range 10 {
		keep(b, book, kept{calls: fmt.Sprintf("toolu_02%022d", i*40), says: fmt.Sprint(i * 40), put: strings.Repeat("x", 2000), refusals: 1}.entry())
	}
	return book
}

// cheap is a History whose walk and digests are there already.
type cheap struct {
	history
	list    []inspect.Unit
	digests []digest.Digest
}

func (h *cheap) prepare() {
	h.list = h.history.Units()
	for _, u := range h.units {
		h.digests = append(h.digests, said(u.says))
	}
}

func (h *cheap) Units() []inspect.Unit     { return h.list }
func (h *cheap) Shown(i int) digest.Digest { return h.digests[i] }

func BenchmarkLive(b *testing.B) {
	book := full(b)
	for name, key := range map[string]string{"with records": whole.Key, "without": "nobody"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				book.Live(key)
			}
		})
	}
	b.Run("side by side", func(b *testing.B) {
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				book.Live("nobody")
			}
		})
	})
}

func BenchmarkFind(b *testing.B) {
	book := full(b)
	for _, n := range []int{40, 400, 4000} {
		h := &cheap{}
		for i := range n {
			u := unit{calls: fmt.Sprintf("toolu_02%022d", i), says: fmt.Sprint(i)}
			if i%8 == 1 { // a text now and then
				u.calls = ""
			}
			h.units = append(h.units, u)
		}
		h.prepare()
		b.Run(fmt.Sprint(n, " units"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := book.Find(b.Context(), whole, h)
				if err != nil || f.Mended != min(n/40, 10) {
					b.Fatal(f.Mended, err)
				}
			}
		})
	}
}

func BenchmarkKeep(b *testing.B) {
	book := full(b)
	e := kept{calls: "toolu_0312345678", says: "s", last: "l", put: strings.Repeat("x", 2000), refusals: 1}.entry()
	b.ReportAllocs()
	for b.Loop() {
		e.Replace = keep(b, book, e)
	}
}

func BenchmarkOpen(b *testing.B) {
	m := newMemory()
	book := opened(b, m, Options{})
	const n = 100_000
	for i := range n {
		keep(b, book, kept{tenant: fmt.Sprint("tenant ", i%1000), calls: fmt.Sprintf("toolu_01%022d", i), says: "Done.", last: fmt.Sprint(i), put: "A"}.entry())
	}
	b.ReportAllocs()
	for b.Loop() {
		opened(b, m, Options{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
}

// BenchmarkFindAtOnePlace has records that nothing but what stands before tells
// apart, or not even that, against units that want one of them.
func BenchmarkFindAtOnePlace(b *testing.B) {
	for _, tt := range []struct {
		name string
		e    func(i int) kept
		u    func(i int) unit
	}{
		{"all before differs", func(i int) kept { return kept{all: fmt.Sprint(i)} }, func(i int) unit { return unit{all: fmt.Sprint("?", i)} }},
		{"some are found", func(i int) kept { return kept{all: fmt.Sprint(i)} }, func(i int) unit { return unit{all: fmt.Sprint(i)} }},
		{"all before is the same", func(int) kept { return kept{all: "a"} }, func(int) unit { return unit{all: "a"} }},
		{"no session is the same", func(int) kept { return kept{session: "else"} }, func(int) unit { return unit{all: "?"} }},
	} {
		book := opened(b, newMemory(), Options{})
		for i := range 10_000 {
			k := tt.e(i)
			k.says, k.last, k.put = "Done.", "l", fmt.Sprint(i)
			keep(b, book, k.entry())
		}
		h := &cheap{}
		for i := range 2000 {
			u := tt.u(i)
			u.says, u.last = "Done.", "l"
			h.units = append(h.units, u)
		}
		h.prepare()
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				find(b, book, whole, h)
			}
		})
	}
	// Ids: each unit has one that many records have.
	book := opened(b, newMemory(), Options{})
	var ids []string
	for i := range 200 {
		ids = append(ids, fmt.Sprintf("toolu_01%022d", i))
	}
	for range 10_000 {
		keep(b, book, kept{calls: strings.Join(ids, " "), says: "s", last: "l", put: "A"}.entry())
	}
	h := &cheap{}
	for i := range 200 {
		h.units = append(h.units, unit{calls: ids[i] + strings.Repeat(" x", 199), says: "t"})
	}
	h.prepare()
	b.Run("ids of many", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			find(b, book, whole, h)
		}
	})
}
