package config

import (
	"encoding"
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// leaf is one setting of a Config: a value that is set as a whole.
type leaf struct {
	path   string // approvals.mode
	env    string // CALLGATE_APPROVALS_MODE, "" when it has none
	secret bool
	v      reflect.Value // addressable, within the Config
}

// leaves lists the settings of c in the order of the struct. Upstreams and
// agents are one leaf each: their names are the user's.
func leaves(c *Config) []leaf { return appendLeaves(nil, "", reflect.ValueOf(c).Elem()) }

func appendLeaves(out []leaf, prefix string, v reflect.Value) []leaf {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		path := prefix + f.Tag.Get("yaml")
		if f.Type.Kind() == reflect.Struct {
			out = appendLeaves(out, path+".", v.Field(i))
			continue
		}
		out = append(out, leaf{path: path, env: f.Tag.Get("env"), secret: f.Tag.Get("secret") == "true", v: v.Field(i)})
	}
	return out
}

// Keys lists the path of every setting, those of one upstream and one agent as
// upstreams.NAME.url, agents.NAME.token and so on.
func Keys() []string {
	var c Config
	var keys []string
	for _, l := range leaves(&c) {
		var each []leaf
		switch l.v.Interface().(type) {
		case Upstreams:
			each = appendLeaves(nil, "upstreams.NAME.", reflect.ValueOf(&Upstream{}).Elem())
		case Agents:
			each = appendLeaves(nil, "agents.NAME.", reflect.ValueOf(&Agent{}).Elem())
		default:
			keys = append(keys, l.path)
		}
		for _, sub := range each {
			keys = append(keys, sub.path)
		}
	}
	return keys
}

// EnvVars lists the environment variable of each setting that has one, by the
// setting's path.
func EnvVars() map[string]string {
	var c Config
	vars := map[string]string{}
	for _, l := range leaves(&c) {
		if l.env != "" {
			vars[l.path] = l.env
		}
	}
	return vars
}

// setText sets a leaf from text, as flags give it.
func setText(v reflect.Value, text string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errNotBool
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errNotNumber
		}
		v.SetInt(int64(n))
	default:
		return errors.New("cannot be set from text")
	}
	return nil
}

var (
	errNotBool   = errors.New("is not true or false")
	errNotNumber = errors.New("is not a whole number")
)

// getText gives a leaf as text, in the form that setText reads.
func getText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case encoding.TextMarshaler:
		b, err := x.MarshalText()
		if err != nil {
			return ""
		}
		return string(b)
	case bool:
		return strconv.FormatBool(x)
	case int:
		return strconv.Itoa(x)
	}
	return v.String()
}

// nearest gives the one of the words that is closest to w, "" when none is
// close enough to be what was meant.
func nearest(w string, words []string) string {
	best, dist := "", len(w)/3+2
	for _, c := range words {
		if d := EditDistance(strings.ToLower(w), c); d < dist {
			best, dist = c, d
		}
	}
	return best
}

// EditDistance is the number of bytes to add, drop or change to make b of a: how
// far a misspelt key, variable or flag is from the one that was meant.
func EditDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost = 1 + min(diag, row[j], row[j-1])
			}
			diag, row[j] = row[j], cost
		}
	}
	return row[len(b)]
}
