package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"callgate/gate/redact"
)

// runGreeting is what a run says before the agent starts.
type runGreeting struct {
	launch  *launch
	recipe  *recipe
	place   string
	token   string // the token that was made, "" when the operator has one
	control string
	kept    string // the state directory that is kept, "" for none
	open    []string
}

// greetRun says on standard error where the agent is sent and how questions
// are answered. A token that was made goes to the terminal alone: standard
// error may be a file that the agent can read.
func greetRun(e *env, tty *terminal, g runGreeting) {
	var b strings.Builder
	s := newStyle(e, e.StderrTTY)
	name := noRecipe
	if g.recipe != nil {
		name = g.recipe.name
	}
	fmt.Fprintf(&b, "%s %s is sent to %s (recipe %s)\n", s.bold("callgate:"), redact.Visible(g.launch.program), g.launch.base, name)
	for _, o := range g.open {
		fmt.Fprintf(&b, "  %s %s\n", s.yellow("open"), o)
	}
	for _, n := range g.launch.notes {
		fmt.Fprintf(&b, "  %s %s\n", s.dim("note"), redact.Visible(redact.Secrets(n)))
	}
	if g.kept != "" {
		fmt.Fprintf(&b, "  state %s\n", g.kept)
	}
	switch g.place {
	case askNone:
		fmt.Fprintln(&b, "  nobody is asked: dangerous calls are denied at once")
	case askTTY:
		fmt.Fprintln(&b, "  questions come to this terminal; from another one:")
	default:
		fmt.Fprintln(&b, "  questions are answered from another terminal:")
	}
	_, _ = io.WriteString(e.Stderr, b.String()) // nobody could be told
	if g.place == askNone {
		return
	}
	if g.token != "" && tty != nil {
		fmt.Fprintf(tty.f, "    export CALLGATE_CONTROL_TOKEN=%s\n", g.token)
	}
	fmt.Fprintf(e.Stderr, "    %s approvals list --control %s\n", programName(), g.control)
}

// farewell says what a person should know once the agent has ended.
func farewell(e *env, count *tally, kept string, left []int) {
	if len(left) > 0 {
		which, more := left[:min(len(left), 5)], ""
		if len(left) > len(which) {
			more = " ..."
		}
		note(e, "the agent left processes behind that can reach no model any more, as callgate ends: %s%s", strings.Trim(fmt.Sprint(which), "[]"), more)
	}
	switch n := count.denied.Load(); {
	case count.requests.Load() == 0:
		note(e, "the agent sent nothing to callgate, so nothing of it was gated; callgate doctor helps to find out why")
	case count.read.Load() == 0:
		note(e, "the agent asked no model in a form that callgate reads, so no call of it was decided; if it did work, it went past callgate")
	case n == 1:
		note(e, "1 call was denied%s", auditHint(kept))
	case n > 1:
		note(e, "%d calls were denied%s", n, auditHint(kept))
	}
}

func auditHint(kept string) string {
	if kept == "" {
		return ""
	}
	return fmt.Sprintf("; see %s audit list --state %s", programName(), kept)
}

// recipeJSON is a recipe as JSON.
type recipeJSON struct {
	Name     string   `json:"name"`
	Programs []string `json:"programs"`
	APIs     []string `json:"apis"`
	Read     bool     `json:"read"`
	Sets     string   `json:"sets"`
}

// listRecipes shows what callgate run knows.
func listRecipes(e *env, asJSON bool) error {
	if asJSON {
		var list []recipeJSON
		for _, r := range recipes() {
			list = append(list, recipeJSON{r.name, r.programs, r.apis, r.unread() == nil, r.sets})
		}
		return printEach(e.Stdout, list)
	}
	var b strings.Builder
	fmt.Fprintln(&b, "every agent gets:")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, v := range baseVariables {
		fmt.Fprintf(t, "  %s\tBASE%s\t%s\n", v.name, v.path, v.readers)
	}
	fmt.Fprintf(t, "  %s\t+ %s\t%s\n", strings.Join(noProxyNames, ", "), strings.Join(loopbackNames, ","), "everything that knows proxies")
	for _, n := range proxyNames {
		if n == strings.ToUpper(n) {
			fmt.Fprintf(t, "  %s, %s\tBASE\t%s\n", n, strings.ToLower(n), "everything that knows proxies, unless the user has one")
		}
	}
	fmt.Fprintf(t, "  %s\t1\t%s\n", nodeUsesProxy, "fetch of Node, without a recipe")
	for _, n := range bundleNames {
		fmt.Fprintf(t, "  %s\tall CAs\t%s\n", n.Name, n.For)
	}
	for _, n := range extraNames {
		fmt.Fprintf(t, "  %s\t+ CA\t%s\n", n.Name, n.For)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&b, "\nrecipes:")
	t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range recipes() {
		sets := r.sets
		if err := r.unread(); err != nil {
			sets = "not started without --force: " + err.Error()
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", r.name, strings.Join(r.programs, ", "), sets)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(e.Stdout, b.String())
	return err
}

// launchJSON is what would be set, as JSON.
type launchJSON struct {
	Recipe    string            `json:"recipe"`
	Command   []string          `json:"command"`
	Set       []setting         `json:"set"`
	Unset     []string          `json:"unset,omitempty"`
	Files     []launchFile      `json:"files,omitempty"`
	Upstreams map[string]string `json:"upstreams"`
	Notes     []string          `json:"notes,omitempty"`
}

// printLaunch shows what would be set for the agent.
func printLaunch(e *env, o runOptions, args []string) error {
	cfg, src, err := o.load(e, firstOf(o.state, unmade))
	if err != nil {
		return err
	}
	l, r, err := o.prepared(e, cfg, src, o.portless(), "", args)
	if err != nil {
		return err
	}
	l.held(e.Environ, newOwnAgent(cfg, r, args[0]))
	if err := l.forward(); err != nil {
		return err
	}
	v := launchJSON{
		Recipe: noRecipe, Command: append([]string{args[0]}, l.args...), Set: l.sets, Files: l.files,
		Upstreams: map[string]string{}, Notes: l.notes,
	}
	if r != nil {
		v.Recipe = r.name
	}
	// The user's own settings may stand in all of it, keys and tokens too.
	for name, u := range cfg.Upstreams {
		v.Upstreams[name] = redact.Secrets(u.URL)
	}
	for i := range v.Set {
		v.Set[i].Value = redact.Secrets(v.Set[i].Value)
	}
	for i := range v.Notes {
		v.Notes[i] = redact.Secrets(v.Notes[i])
	}
	for _, kv := range e.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if scrubbed(name, value, cfg.Control.Token) || slices.Contains(l.gone, name) {
			v.Unset = append(v.Unset, name)
		}
	}
	slices.Sort(v.Unset)
	if o.json {
		return printJSON(e.Stdout, v)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "recipe    %s\ncommand   %s\n", v.Recipe, shellWords(v.Command))
	for _, s := range v.Set {
		fmt.Fprintf(&b, "set       %s=%s\n", s.Name, shellWord(s.Value))
	}
	for _, n := range v.Unset {
		fmt.Fprintf(&b, "unset     %s\n", redact.Visible(n))
	}
	for _, f := range v.Files {
		fmt.Fprintf(&b, "file      %s (%s)\n", f.Path, f.What)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Upstreams)) {
		fmt.Fprintf(&b, "upstream  %s=%s\n", name, redact.Visible(v.Upstreams[name]))
	}
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "note      %s\n", redact.Visible(n))
	}
	_, err = io.WriteString(e.Stdout, b.String())
	return err
}

// shellWords are words as a shell would take them.
func shellWords(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = shellWord(w)
	}
	return strings.Join(out, " ")
}

func shellWord(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:=@,+%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(redact.Visible(s), "'", `'\''`) + "'"
}
