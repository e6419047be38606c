package config

import (
	"regexp"
	"slices"
	"strings"
)

const envPrefix = "CALLGATE_"

// ownVars are variables of callgate that are no settings.
var ownVars = []string{"CALLGATE_CONFIG", "CALLGATE_CONTROL"}

// serviceVar are the variables that Kubernetes makes for services whose name
// begins with callgate.
var serviceVar = regexp.MustCompile(`^CALLGATE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// meantVars gives the variables that an unknown one was probably meant to be,
// the nearest first; none when it is known or somebody else's. vars are those
// of the settings.
func meantVars(name string, vars []string) []string {
	if !strings.HasPrefix(name, envPrefix) || slices.Contains(vars, name) || slices.Contains(ownVars, name) || serviceVar.MatchString(name) {
		return nil
	}
	vars = slices.Sorted(slices.Values(vars))
	slices.SortStableFunc(vars, func(a, b string) int { return EditDistance(name, a) - EditDistance(name, b) })
	if EditDistance(name, vars[0]) <= 2 {
		return vars[:1]
	}
	if ends := endingIn(strings.TrimPrefix(name, envPrefix), vars); len(ends) > 0 {
		return ends
	}
	if i := slices.IndexFunc(vars, func(v string) bool { return extends(name, v) }); i >= 0 {
		return vars[i : i+1]
	}
	if madeOfWords(name, vars) {
		return vars[:1]
	}
	return nil
}

// maxMeant is how many variables one is said to be meant for.
const maxMeant = 3

// endingIn gives the variables that end with those words: for MODE
// CALLGATE_APPROVALS_MODE.
func endingIn(words string, vars []string) []string {
	var out []string
	for _, v := range vars {
		if strings.HasSuffix(v, "_"+words) && len(out) < maxMeant {
			out = append(out, v)
		}
	}
	return out
}

// madeOfWords says that every word of the name is a word of some variable.
func madeOfWords(name string, vars []string) bool {
	var words []string
	for _, v := range vars {
		words = append(words, strings.Split(v, "_")...)
	}
	return !slices.ContainsFunc(strings.Split(name, "_"), func(w string) bool { return !slices.Contains(words, w) })
}

// extends says that the name is that of the variable with something behind it,
// as CALLGATE_STATEDIR is.
func extends(name, v string) bool {
	plain := func(s string) string { return strings.ReplaceAll(s, "_", "") }
	return strings.HasPrefix(plain(name), plain(v))
}
