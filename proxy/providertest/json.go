package providertest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// object and array are parsed JSON; other values are string, bool, nil and
// json.Number.
type (
	object = map[string]any
	array  = []any
)

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// parse reads one JSON object: valid UTF-8, no key twice, nothing behind it.
func parse(body []byte) (object, error) {
	if !utf8.Valid(body) {
		return nil, badf("the body is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	v, err := value(dec)
	if err != nil {
		return nil, badf("the body is not valid JSON: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, badf("something stands behind the JSON body")
	}
	o, ok := v.(object)
	if !ok {
		return nil, badf("the body is not a JSON object")
	}
	return o, nil
}

func value(dec *json.Decoder) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		return members(dec)
	case json.Delim('['):
		out := array{}
		for dec.More() {
			v, err := value(dec)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err := dec.Token()
		return out, err
	}
	return tok, nil
}

func members(dec *json.Decoder) (object, error) {
	out := object{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		k, _ := key.(string)
		if _, twice := out[k]; twice {
			return nil, badf("key %q stands twice", k)
		}
		if out[k], err = value(dec); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token()
	return out, err
}

// validObject tells whether raw is one JSON object.
func validObject(raw string) bool {
	_, err := parse([]byte(raw))
	return err == nil
}

// known refuses keys that are not in the list.
func known(o object, at string, keys ...string) error {
	for _, k := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(keys, k) {
			return badf("%s%s: extra inputs are not permitted", at, k)
		}
	}
	return nil
}

// str gives a string that has to be there and not be empty.
func str(o object, at, key string) (string, error) {
	s, ok := o[key].(string)
	if !ok || s == "" {
		return "", badf("%s%s: a string that is not empty is required", at, key)
	}
	return s, nil
}

// flag gives a bool that may be missing.
func flag(o object, at, key string) (bool, error) {
	v, there := o[key]
	if !there || v == nil {
		return false, nil
	}
	b, ok := v.(bool)
	if !ok {
		return false, badf("%s%s: input should be a valid boolean", at, key)
	}
	return b, nil
}

// count gives an integer of at least low that may be missing.
func count(o object, at, key string, low, missing int) (int, error) {
	v, there := o[key]
	if !there || v == nil {
		return missing, nil
	}
	num, ok := v.(json.Number)
	if !ok {
		return 0, badf("%s%s: input should be a valid integer", at, key)
	}
	n, err := num.Int64()
	if err != nil || int(n) < low {
		return 0, badf("%s%s: input should be an integer of at least %d", at, key, low)
	}
	return int(n), nil
}

// textOf gives the text of a content: a string, or parts of type text.
func textOf(content any) string {
	switch c := content.(type) {
	case string:
		return c
	case array:
		var out strings.Builder
		for _, v := range c {
			part, _ := v.(object)
			if text, ok := part["text"].(string); ok && part["type"] == "text" {
				out.WriteString(text)
			}
		}
		return out.String()
	}
	return ""
}
