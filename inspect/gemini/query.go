package gemini

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// badQuery says why the answer to a request with this query could come in a
// form that is not read here, "" when it cannot. Google's APIs take parameters
// for all methods, with a dollar sign before them or without: some choose a
// form, some cut the answer down or wrap it into a script, and some stand for
// headers or for another method.
func badQuery(raw string) string {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return "it cannot be read: " + err.Error()
	}
	forms := 0
	for name, all := range values {
		plain := strings.ToLower(strings.TrimPrefix(name, "$"))
		switch plain {
		case "alt":
			if forms += len(all); slices.ContainsFunc(all, func(v string) bool { return v != "sse" && v != "json" }) {
				return "alt may be json or sse, and nothing else is read here"
			}
		case "key", "prettyprint", ".xgafv", "quotauser":
		case "callback", "fields", "jsonp":
			return "the parameter " + strconv.Quote(name) + " gives the answer a form that is not read here"
		default:
			if strings.HasPrefix(name, "$") {
				return "the parameter " + strconv.Quote(name) + " is unknown and may change how the answer comes"
			}
		}
	}
	if forms > 1 {
		return "it names the form of the answer twice"
	}
	return ""
}
