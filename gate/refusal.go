package gate

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"callgate/inspect/toolcall"
)

// maxReason bounds a reason, in runes.
const maxReason = 500

// maxShownName bounds a tool's name in a refusal, in runes.
const maxShownName = 80

// RefusalText is what the model reads in place of a call that did not run: what
// happened, by whom and why, that no other way to the same end may be tried,
// what would be acceptable, and one line for machines. It holds no link and no
// secret that could approve anything, whatever the parts it is made of say,
// and nothing of what only operators should read (Decision.Detail).
func RefusalText(d Decision, c toolcall.Call) string {
	var b strings.Builder
	b.WriteString("[callgate] The call to ")
	b.WriteString(orElse(line(c.Name, maxShownName), "a tool without a name"))
	b.WriteString(" did not run: ")
	b.WriteString(refusedBy(d))
	b.WriteString(rules(d))
	b.WriteString(".")
	if reason := line(d.Reason, maxReason); reason != "" {
		b.WriteString(" Reason: " + strings.TrimRight(reason, ".") + ".")
	}
	b.WriteString("\n" + whatNow(d))
	if instead := line(d.Instead, maxReason); instead != "" {
		b.WriteString(" What would be acceptable: " + strings.TrimRight(instead, ".") + ".")
	}
	b.WriteString("\ncallgate: outcome=" + orElse(word(string(d.Outcome)), string(Denied)))
	if rule := word(d.Rule); rule != "" {
		b.WriteString(" rule=" + rule)
	}
	if id := word(d.Approval); id != "" {
		b.WriteString(" approval=" + id)
	}
	b.WriteString(" user_consent=false")
	return b.String()
}

// maxRules bounds how many rules a refusal names.
const maxRules = 8

// rules names the rule that led to the decision and those of the other
// findings, so that nobody mends one only to meet the next.
func rules(d Decision) string {
	var names []string
	add := func(rule string) {
		if rule = word(rule); rule != "" && !slices.Contains(names, rule) {
			names = append(names, rule)
		}
	}
	add(d.Rule)
	for _, f := range d.Findings {
		add(f.Rule)
	}
	more := ""
	if n := len(names) - maxRules; n > 0 {
		names, more = names[:maxRules], " and "+strconv.Itoa(n)+" more"
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return " (rule " + names[0] + ")"
	}
	return " (rules " + strings.Join(names, ", ") + more + ")"
}

// refusedBy is the half of the first sentence that says who refused, and how.
func refusedBy(d Decision) string {
	switch d.Outcome {
	case Timeout:
		return "a person was asked and did not answer in time; silence is not consent"
	case Cancelled:
		return "the question about it ended before anybody answered; nobody has allowed it"
	case NotifyFailed:
		return "it needs a person's consent and no person could be told of it"
	case HookFailed:
		return "the approval hook failed, so nobody has allowed it"
	case JudgeFailed:
		return "the judge failed, so nobody has allowed it"
	case HardlineHit:
		return "it is on the list of things that never run, whoever allows them"
	case RuleHit:
		return "a rule of the operator refuses it"
	case LimitHit:
		return "it is beyond a limit within which calls can be checked"
	case BreakerHit:
		return "so many calls were denied since the user last spoke that nobody is asked about further ones"
	case Malformed:
		return "it could not be read safely"
	case Pending:
		return "it waits for a person's consent, pending as " + orElse(word(d.Approval), "an open question")
	case StoreFailed:
		return "the decision on it could not be stored, and what cannot be stored is not allowed"
	case Unattended:
		return "it needs a person's consent and nobody is there to give it"
	}
	switch by := line(d.By, maxShownName); by {
	case "":
		return "it was refused"
	case "person":
		return "a person refused it"
	case "hook":
		return "the operator's approval hook refused it"
	default:
		return "it was refused by " + by
	}
}

// whatNow tells the model how to go on.
func whatNow(d Decision) string {
	switch d.Outcome {
	case Pending:
		return "Do not rephrase it or reach the same outcome another way. " +
			"Go on with other work or tell the user that an approval is open; the same call, repeated later without any change, goes through if it was approved by then."
	case BreakerHit:
		return "Stop trying. Tell the user what you wanted to do, what was denied, and ask how to go on."
	case Malformed:
		return "Do not reach the same outcome another way. If the call is still needed, send it again complete and well-formed."
	case LimitHit:
		return "Do not reach the same outcome another way or hide what is done. If the call is still needed, make it smaller and simpler, so that it can be checked."
	}
	return "Do not rephrase or retry it, and do not try to reach the same outcome another way. Go on without it, or tell the user what you wanted to do and why."
}

// word keeps a value of the machine-readable line to one plain word.
func word(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() >= 64 {
			break
		}
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._-", r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// line makes one line of at most limit runes out of a text that others wrote:
// white space becomes one space, characters nobody sees go, and so does each
// address on this machine, where the control interface listens.
func line(s string, limit int) string {
	if plain(s, limit) {
		return s
	}
	var b strings.Builder
	n := 0
	for _, field := range strings.FieldsFunc(s, unicode.IsSpace) {
		field = visible(field)
		if pointsHome(field) {
			field = "[address removed]"
		}
		if field == "" {
			continue
		}
		if n > 0 {
			field = " " + field
		}
		for _, r := range field {
			if n == limit {
				return b.String() + "…"
			}
			b.WriteRune(r)
			n++
		}
	}
	return b.String()
}

// plain tells, without any work, that line would change nothing.
func plain(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == ' ' && (i == 0 || i == len(s)-1 || s[i-1] == ' '):
			return false
		case c < ' ' || c >= 0x7f || c == ':' || c == '/' || c == '@' || c == '[':
			return false
		}
	}
	return true
}

// visible drops what cannot be seen.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsGraphic(r) || unicode.Is(unicode.Variation_Selector, r) {
			return -1
		}
		return r
	}, s)
}

// pointsHome tells whether a word holds an address on this machine: a URL, or
// a host with a port or a path.
func pointsHome(field string) bool {
	s := strings.ToLower(field)
	for rest := s; ; {
		i := strings.Index(rest, "//")
		if i < 0 {
			break
		}
		rest = rest[i+2:]
		if host := hostOf(rest); home(host) || homeNumber(host) {
			return true
		}
	}
	if !strings.ContainsAny(s, ":/") {
		return false
	}
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune("/()<>\"'`,;=|{}", r) }) {
		if home(hostOf(part)) {
			return true
		}
	}
	return false
}

// hostOf is the host of an authority, whatever stands behind it.
func hostOf(s string) string {
	if i := strings.IndexAny(s, "/?#\"'`<>)\\"); i >= 0 {
		s = s[:i]
	}
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		s = s[i+1:]
	}
	if rest, ok := strings.CutPrefix(s, "["); ok {
		s, _, _ = strings.Cut(rest, "]")
	} else if strings.Count(s, ":") == 1 {
		s, _, _ = strings.Cut(s, ":")
	}
	return strings.TrimRight(s, ".,;:!")
}

// home tells whether a host is this machine.
func home(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return strings.HasPrefix(host, "127.") && strings.Trim(host, "0123456789.") == "" // 127.1 and the like
	}
	ip = ip.Unmap()
	return ip.IsLoopback() || ip.IsUnspecified()
}

// homeNumber knows the forms of 127.0.0.1 and 0.0.0.0 that are one number.
func homeNumber(host string) bool {
	return host == "0" || host == "2130706433" || strings.HasPrefix(host, "0x7f") || strings.HasPrefix(host, "017")
}
