package config

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time. It is written as a number of seconds (30) or
// with units (30s, 5m, 1h30m).
type Duration time.Duration

// Std gives the duration as the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String gives the duration with units, without the zero ones at its end.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText gives the form that UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads seconds or a duration with units.
func (d *Duration) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if secs, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(secs) || math.Abs(secs) > maxDuration.Seconds() {
			return errors.New("is out of range")
		}
		*d = Duration(secs * float64(time.Second))
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("is not a length of time; write seconds (30) or units (30s, 5m)")
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes, written as such or with a unit (64KiB, 32MiB).
type Size int64

var sizeUnits = []struct {
	name string
	size Size
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// String gives the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits[:3] {
		if s != 0 && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText gives the form that UnmarshalText reads.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads bytes or a number with a unit.
func (s *Size) UnmarshalText(text []byte) error {
	t := strings.TrimSpace(string(text))
	unit := Size(1)
	for _, u := range sizeUnits {
		if num, ok := strings.CutSuffix(t, u.name); ok {
			t, unit = strings.TrimSpace(num), u.size
			break
		}
	}
	n, err := strconv.ParseInt(t, 10, 64)
	if err != nil {
		return errors.New("is not a size; write bytes (1048576) or a unit (64KiB, 32MiB)")
	}
	if n > math.MaxInt64/int64(unit) || n < math.MinInt64/int64(unit) {
		return errors.New("is out of range")
	}
	*s = Size(n) * unit
	return nil
}

// modeWords says which values of approvals.mode this version takes.
const modeWords = "write manual (a person is asked), custom (a hook is asked, then a person) or off (nobody is asked)"

// UnmarshalText reads a mode. YAML reads a bare off as false, and on as true,
// which Hermes takes for manual.
func (m *Mode) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "manual", "custom", "off":
		*m = Mode(s)
	case "false":
		*m = ModeOff
	case "true":
		*m = ModeManual
	case "smart":
		return errors.New("is no mode of this version, which has no model to judge calls; " + modeWords)
	default:
		return errors.New("is no mode; " + modeWords)
	}
	return nil
}

// Upstreams are providers by name. As one text they are written NAME=URL, with
// white space or commas between them.
type Upstreams map[string]Upstream

// UnmarshalText adds the providers of the text to those that are there. One of
// the same name is replaced as a whole, so that a permission given for one
// URL never goes over to another.
func (u *Upstreams) UnmarshalText(text []byte) error {
	next := maps.Clone(*u)
	if next == nil {
		next = Upstreams{}
	}
	var bad notPairs
	for item := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }) {
		name, url, ok := strings.Cut(item, "=")
		if !ok || name == "" || url == "" {
			bad = append(bad, item)
			continue
		}
		next[name] = Upstream{URL: url}
	}
	if len(bad) > 0 {
		return bad
	}
	*u = next
	return nil
}

const notPair = "is not NAME=URL"

// notPairs are the items of a list of providers that are none.
type notPairs []string

func (n notPairs) Error() string {
	quoted := make([]string, len(n))
	for i, item := range n {
		quoted[i] = strconv.Quote(item)
	}
	return strings.Join(quoted, ", ") + " " + notPair
}

// Names gives the names in order.
func (u Upstreams) Names() []string { return slices.Sorted(maps.Keys(u)) }
