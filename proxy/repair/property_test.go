package repair

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// oracle says what Find must find, by going through everything for everything.
// It is written from the rules in the package's comment, about words and not
// digests, and shares no code with the book.
type oracle struct {
	tenant  Tenant
	records []kept
	units   []unit

	out             []string     // by unit
	settled         map[int]bool // units
	used            map[int]bool // records that are some unit's, or could not be told from those
	lost, ambiguous int
	shared          bool // several units had their own of equal records
}

func (o *oracle) say() string {
	o.out, o.settled, o.used = make([]string, len(o.units)), map[int]bool{}, map[int]bool{}
	for i := range o.units {
		o.rule1(i)
	}
	for i := range o.units {
		o.rule2(i)
	}
	for i := range o.units {
		if !o.settled[i] {
			o.rule3(i)
		}
	}
	var list []string
	for i, s := range o.out {
		if s != "" {
			list = append(list, fmt.Sprintf("%d %s", i, s))
		}
	}
	if o.lost > 0 {
		list = append(list, fmt.Sprintf("%d lost", o.lost))
	}
	if o.ambiguous > 0 {
		list = append(list, fmt.Sprintf("%d ambiguous", o.ambiguous))
	}
	return strings.Join(list, ", ")
}

// own says whether the rules are for a record as they are; stranger whether it
// is one that needs its session.
func (o *oracle) own(k kept) bool { return o.tenant.Stable || k.exact == o.tenant.Exact }

func (o *oracle) stranger(k kept) bool {
	return !o.own(k) && o.tenant.Session != "" && k.session == o.tenant.Session
}

// which gives the tenant's records that are not used and for which is holds.
func (o *oracle) which(used map[int]bool, is func(kept) bool) (list []int) {
	for n, k := range o.records {
		if k.tenant == o.tenant.Key && k.family == o.tenant.Family && !used[n] && is(k) {
			list = append(list, n)
		}
	}
	return list
}

// rather gives those for which is holds, or all when there are none.
func (o *oracle) rather(list []int, is func(kept) bool) (some []int) {
	for _, n := range list {
		if is(o.records[n]) {
			some = append(some, n)
		}
	}
	if len(some) == 0 {
		return list
	}
	return some
}

func (o *oracle) ofSession(list []int) []int {
	return o.rather(list, func(k kept) bool { return o.tenant.Session != "" && k.session == o.tenant.Session })
}

// choose settles a unit with one of several records that are as good.
func (o *oracle) choose(i int, list []int, edited bool) { o.deal([]int{i}, list, edited) }

// deal settles units that are as good with records that are.
func (o *oracle) deal(units, list []int, edited bool) {
	list = o.ofSession(list)
	texts, bounds := map[string]bool{}, map[bool]bool{}
	var alive, gone []int
	for _, n := range list {
		k := o.records[n]
		o.used[n] = true
		if k.gone {
			gone = append(gone, n)
		} else {
			alive = append(alive, n)
		}
		texts[fmt.Sprint(k.put, len(strings.Fields(k.calls)))], bounds[k.bound] = true, true // ids alone make no difference
	}
	differ := len(texts) > 1 && (len(alive) > 0 || len(bounds) > 1)
	dealt := append(alive, gone...)
	for n, i := range units {
		o.settled[i] = true
		if differ || len(list) < len(units) {
			o.ambiguous++
			if bounds[true] {
				o.out[i] = "unbind"
			}
			continue
		}
		o.shared = o.shared || len(units) > 1
		switch k := o.records[dealt[n]]; {
		case !k.gone && edited:
			o.out[i] = "put " + k.put + " edited"
		case !k.gone:
			o.out[i] = "put " + k.put
		case k.bound:
			o.out[i] = "unbind"
		default:
			o.lost++
		}
	}
}

func (o *oracle) rule1(i int) {
	u := o.units[i]
	if u.answer == "" {
		return
	}
	o.settled[i] = true
	list := o.which(nil, func(k kept) bool { return k.answer == u.answer && (o.own(k) || o.stranger(k)) }) // they are strong
	if len(list) > 0 {
		o.choose(i, list, false)
	}
}

// strongIds are those of the tests' ids that nobody else makes.
var strongIds = []string{"call_1aaaaaaa", "call_2aaaaaaa", "call_3aaaaaaa"}

func (o *oracle) rule2(i int) {
	u := o.units[i]
	if o.settled[i] {
		return
	}
	anyStrong, anyKnown := false, false
	var list []int
	for _, id := range strongIds {
		if !slices.Contains(strings.Fields(u.calls), id) {
			continue
		}
		anyStrong = true
		units := 0
		for _, other := range o.units {
			if other.answer == "" && slices.Contains(strings.Fields(other.calls), id) {
				units++
			}
		}
		for _, k := range o.records {
			anyKnown = anyKnown || k.tenant == o.tenant.Key && slices.Contains(strings.Fields(k.calls), id)
		}
		if units == 1 {
			list = append(list, o.which(o.used, func(k kept) bool {
				return k.calls == u.calls && (o.own(k) || o.stranger(k) && k.says == u.says && k.last == u.last && k.all == u.all)
			})...)
		}
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) == 0 {
		o.settled[i] = anyStrong && !anyKnown
		return
	}
	list = o.rather(list, func(k kept) bool { return k.last == u.last })
	list = o.rather(list, func(k kept) bool { return k.all == u.all })
	o.choose(i, list, !slices.ContainsFunc(o.ofSession(list), func(n int) bool { return o.records[n].says == u.says }))
}

func hasStrong(calls string) bool {
	return slices.ContainsFunc(strongIds, func(id string) bool { return slices.Contains(strings.Fields(calls), id) })
}

// rule3 settles unit i, and with it all that say the same at the same place.
func (o *oracle) rule3(i int) {
	u := o.units[i]
	here := func(is func(kept) bool) []int {
		return o.which(o.used, func(k kept) bool { return k.says == u.says && k.last == u.last && is(k) })
	}
	like := func() (list []int) {
		for j, other := range o.units {
			if !o.settled[j] && other.says == u.says && other.last == u.last {
				list = append(list, j)
			}
		}
		return list
	}
	// In the order of the package's comment: all before, the calls before, the
	// session and the exchange before. What one of them has given is gone for
	// the next.
	for _, j := range like() {
		if list := here(func(k kept) bool { return k.all == o.units[j].all && (o.own(k) || o.stranger(k)) }); len(list) > 0 {
			o.choose(j, list, false) // there is one unit with all this before it
		}
	}
	before := map[string][]int{}
	var order []string
	for _, j := range like() {
		if j == 0 || !hasStrong(o.units[j-1].calls) {
			continue
		}
		calls := o.units[j-1].calls
		if before[calls] == nil {
			order = append(order, calls)
		}
		before[calls] = append(before[calls], j)
	}
	for _, calls := range order {
		if list := here(func(k kept) bool { return k.before == calls && o.own(k) }); len(list) > 0 {
			o.deal(before[calls], list, false)
		}
	}
	behind := func(j int) string {
		if j == 0 {
			return ""
		}
		if o.units[j-1].answer != "" {
			return "nobody knows"
		}
		return o.units[j-1].says + " " + o.units[j-1].last
	}
	alike := map[string][]int{}
	order = nil
	for _, j := range like() {
		if alike[behind(j)] == nil {
			order = append(order, behind(j))
		}
		alike[behind(j)] = append(alike[behind(j)], j)
	}
	for _, d := range order {
		if list := here(func(k kept) bool {
			return o.own(k) && o.tenant.Session != "" && k.session == o.tenant.Session && k.behind == d
		}); len(list) > 0 {
			o.deal(alike[d], list, false)
		}
	}
}

// scene makes records and a history of few words, so that they meet.
func scene(rng *rand.Rand) (records []kept, units []unit, tenant Tenant) {
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	calls := func() string {
		var ids []string
		for range max(rng.IntN(5)-2, 0) {
			ids = append(ids, pick("call_1aaaaaaa", "call_2aaaaaaa", "call_3aaaaaaa", "call_0", "run_tool"))
		}
		return strings.Join(ids, " ")
	}
	// What is said includes how many calls there are.
	says := func(calls string) string { return fmt.Sprint(pick("p", "p", "q"), len(strings.Fields(calls))) }
	for i := range 1 + rng.IntN(7) {
		k := kept{calls: calls(), last: pick("l", "l", "m"), all: pick("a0", "a1", "a2", "a3", "a9"), put: pick("A", "B", "C"),
			bound: rng.IntN(2) == 0, tenant: pick("tenant", "tenant", "tenant", "tenant", "tenant", "else"), family: pick("family", "family", "family", "family", "family", "other"),
			session: pick("session", "session", "else", "third"), exact: pick("exact", "exact", "other"), id: fmt.Sprint("id ", i)}
		k.says, k.before = says(k.calls), calls()
		if rng.IntN(3) > 0 {
			k.behind = says(k.before) + " " + pick("l", "l", "m")
		}
		if i > 0 && rng.IntN(3) == 0 { // the same again
			again := records[i-1]
			again.all, again.id, again.answer = k.all, k.id, ""
			k = again
		} else if rng.IntN(8) == 0 {
			k.answer = fmt.Sprint("msg_9aaaaaaa", i) // one record of each: several are an error
		} else {
			k.gone = rng.IntN(4) == 0
		}
		records = append(records, k)
	}
	for i := range rng.IntN(8) {
		u := unit{calls: calls(), last: pick("l", "l", "m"), all: fmt.Sprint("a", i)}
		u.says = says(u.calls)
		if rng.IntN(3) > 0 { // one that was answered before
			k := records[rng.IntN(len(records))]
			if i > 0 && rng.IntN(3) == 0 && units[i-1].answer == "" {
				units[i-1].calls = k.before
				units[i-1].says = says(k.before)
				if said, last, ok := strings.Cut(k.behind, " "); ok && rng.IntN(3) > 0 {
					units[i-1].says, units[i-1].last = said, last
				}
			}
			if u.calls, u.says = k.calls, k.says; rng.IntN(3) > 0 {
				u.last = k.last
			} else {
				u.says = says(u.calls)
			}
		}
		if back := 1 + rng.IntN(2); i >= back && rng.IntN(2) == 0 { // what was said comes again, or the exchange before it too
			u.calls, u.says, u.last = units[i-back].calls, units[i-back].says, units[i-back].last
		}
		if rng.IntN(12) == 0 {
			u.answer = fmt.Sprint("msg_9aaaaaaa", (rng.IntN(2)*3+i)%7) // no two name the same: that is an error
			if slices.ContainsFunc(units, func(other unit) bool { return other.answer == u.answer }) {
				u.answer = ""
			}
		}
		units = append(units, u)
	}
	if rng.IntN(4) == 0 { // an exchange that was altered comes twice
		k := records[len(records)-1]
		prior := unit{calls: k.before, says: says(k.before), last: "l"}
		if said, last, ok := strings.Cut(k.behind, " "); ok {
			prior.says, prior.last = said, last
		}
		for range 2 {
			for _, u := range []unit{prior, {calls: k.calls, says: k.says, last: k.last}} {
				u.all = fmt.Sprint("a", len(units))
				units = append(units, u)
			}
		}
	}
	tenant = Tenant{Key: pick("tenant", "tenant", "tenant", "tenant", "else"), Family: "family", Stable: rng.IntN(2) > 0, Exact: pick("exact", "exact", "other"), Session: pick("", "session", "session")}
	return records, units, tenant
}

func TestWhatIsFoundIsWhatTheRulesSay(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 2000
	}
	seeds := []uint64{1, uint64(time.Now().UnixNano())}
	t.Logf("seeds %d", seeds)
	kinds := map[string]int{}
	for _, seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range n {
			records, units, tenant := scene(rng)
			o := oracle{tenant: tenant, records: records, units: units}
			want := o.say()
			b, _ := bookOf(t, records...)
			f, err := b.Find(t.Context(), tenant, &history{units: units})
			if got := words(f); err != nil || got != want {
				t.Fatalf("seed %d, scene %d: %v\nfound  %s\nwanted %s\ntenant %+v\nrecords\n%sunits\n%s", seed, i, err, got, want, tenant, lines(records), lines(units))
			}
			for _, kind := range []string{"put", "edited", "unbind", "lost", "ambiguous"} {
				if strings.Contains(want, kind) {
					kinds[kind]++
				}
			}
			if want == "" {
				kinds["nothing"]++
			}
			// No record is put back twice, and nothing of another tenant or dialect.
			if id := putTwice(f); id != "" {
				t.Fatalf("seed %d, scene %d: %s is put back twice in\n%s", seed, i, id, lines(units))
			}
			if o.shared {
				kinds["shared"]++
			}
			for _, m := range f.Mends {
				if !m.Unbind && !slices.ContainsFunc(records, func(k kept) bool {
					return k.put == string(m.Rounds[0].Message) && k.tenant == tenant.Key && k.family == tenant.Family && !k.gone
				}) {
					t.Fatalf("%s was put back, which is not the tenant's", m.Rounds[0].Message)
				}
			}
		}
	}
	for _, kind := range []string{"put", "edited", "unbind", "lost", "ambiguous", "nothing", "shared"} {
		if kinds[kind] < n/200 {
			t.Errorf("only %d scenes had %q: %v", kinds[kind], kind, kinds)
		}
	}
}

// putTwice gives the id of a record that is put into two units.
func putTwice(f Found) string {
	put := map[string]bool{}
	for _, m := range f.Mends {
		if m.Unbind {
			continue
		}
		id := m.Rounds[0].ID
		if put[id] {
			return id
		}
		put[id] = true
	}
	return ""
}

func lines[T any](list []T) string {
	var b strings.Builder
	for i, v := range list {
		fmt.Fprintf(&b, "%d %+v\n", i, v)
	}
	return b.String()
}

// A conversation that grows is mended in the same way as far as it was:
// otherwise the provider would see another one with each request. What is said
// in it repeats itself, and some of its answers were altered.
func TestAGrowingConversationKeepsItsMends(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	for range 1000 {
		b := opened(t, newMemory(), Options{})
		h := &history{}
		want := map[int]string{}
		for i := range 12 {
			u := unit{says: fmt.Sprint("p", rng.IntN(3)), last: fmt.Sprint("l", rng.IntN(2)), all: fmt.Sprint("a", i)}
			if rng.IntN(3) == 0 {
				u.calls, u.says = fmt.Sprintf("call_%d_%08d", i, rng.IntN(1e8)), "c"
			}
			h.units = append(h.units, u)
			if rng.IntN(2) == 0 {
				want[i] = fmt.Sprint("A", i)
				keep(t, b, kept{calls: u.calls, says: u.says, last: u.last, all: u.all, put: want[i]}.entry())
			}
			got := map[int]string{}
			for i, m := range find(t, b, whole, h).Mends {
				got[i] = string(m.Rounds[0].Message)
			}
			if !maps.Equal(got, want) {
				t.Fatalf("after unit %d: found %v, want %v in\n%s", i, got, want, lines(h.units))
			}
		}
	}
}
