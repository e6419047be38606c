package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// readSettings reads a settings file of an agent: JSON with comments and
// commas before closing brackets. A file that is not there is empty.
func readSettings(path string) (map[string]any, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the agent's settings: %w", err)
	}
	m, err := parseSettings(b)
	if err != nil {
		return nil, fmt.Errorf("the agent's settings: %s: %w; correct the file, or leave the recipe out with --recipe %s", path, err, noRecipe)
	}
	return m, nil
}

// parseSettings reads one object.
func parseSettings(b []byte) (map[string]any, error) {
	m := map[string]any{}
	b = plainJSON(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")))
	if len(bytes.TrimSpace(b)) == 0 {
		return m, nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // a number is passed on as it was written
	if err := dec.Decode(&m); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, errors.New("an object is wanted, not null")
	}
	if dec.More() {
		return nil, errors.New("something stands behind the object")
	}
	return m, nil
}

// plainJSON takes comments out, and commas before a closing bracket.
func plainJSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	comma := -1 // where the last comma stands that nothing has followed yet
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			end := stringEnd(b, i)
			out, comma = append(out, b[i:end]...), -1
			i = end - 1
		case c == '/' && i+1 < len(b) && b[i+1] == '/':
			for i+1 < len(b) && b[i+1] != '\n' {
				i++
			}
		case c == '/' && i+1 < len(b) && b[i+1] == '*':
			end := bytes.Index(b[i+2:], []byte("*/"))
			if end < 0 {
				return append(out, b[i:]...) // which no reader takes
			}
			out, i = append(out, ' '), i+2+end+1
		case c == ',':
			comma = -1
			if before := bytes.TrimRight(out, " \t\r\n"); len(before) > 0 && !bytes.ContainsRune([]byte("{[,"), rune(before[len(before)-1])) {
				comma = len(out)
			}
			out = append(out, c)
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			out = append(out, c)
		default:
			if comma >= 0 && (c == '}' || c == ']') {
				out[comma] = ' '
			}
			out, comma = append(out, c), -1
		}
	}
	return out
}

// stringEnd gives where the string that begins at i is over.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// settingsJSON writes settings for an agent.
func settingsJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// object gives the object at that key, made where there is none.
func object(m map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		next, ok := m[k].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[k] = next
		}
		m = next
	}
	return m
}

// text gives the text at the end of keys, "" where there is none.
func text(m map[string]any, keys ...string) string {
	for _, k := range keys[:len(keys)-1] {
		m, _ = m[k].(map[string]any)
	}
	s, _ := m[keys[len(keys)-1]].(string)
	return s
}

// merge lays over onto base, object by object.
func merge(base, over map[string]any) {
	for k, v := range over {
		into, ok := base[k].(map[string]any)
		from, also := v.(map[string]any)
		if ok && also {
			merge(into, from)
			continue
		}
		base[k] = v
	}
}

// reroute sends every base URL below v to callgate: the texts at those keys.
// name is what the provider is called there. It reports how many there were.
func (l *launch) reroute(name string, v any, keys ...string) (n int, err error) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			raw, ok := v[k].(string)
			if !ok || raw == "" || !slices.Contains(keys, k) {
				m, err := l.reroute(name, v[k], keys...)
				if n += m; err != nil {
					return n, err
				}
				continue
			}
			to, err := l.route(name, os.Expand(raw, l.getenv))
			if err != nil {
				return n, err
			}
			v[k], n = to, n+1
		}
	case []any:
		for _, e := range v {
			m, err := l.reroute(name, e, keys...)
			if n += m; err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
