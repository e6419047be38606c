package detect

import (
	"regexp"
	"strings"
	"testing"

	"callgate/gate"
	"callgate/inspect/toolcall"
)

// testWorld is the world that the examples of the rules live in.
func testWorld() World {
	return World{Home: "/home/dev", Workspace: "/home/dev/app", User: "dev"}
}

func shellAction(c string) []toolcall.Action {
	return []toolcall.Action{{Kind: toolcall.KindCommand, Language: toolcall.LangShell, Command: c}}
}

func detectShell(c string) gate.Report { return New(testWorld()).Detect(shellAction(c)) }

func ruleIDs(rep gate.Report) string {
	var ids []string
	for _, f := range rep.Findings {
		ids = append(ids, f.Rule)
	}
	if rep.Limit != "" {
		ids = append(ids, "limit:"+rep.Limit)
	}
	return strings.Join(ids, " ")
}

func hasRule(rep gate.Report, id string) bool {
	for _, f := range rep.Findings {
		if f.Rule == id {
			return true
		}
	}
	return false
}

func TestEveryRuleFindsItsExamplesAndNotItsCounterExamples(t *testing.T) {
	for _, r := range Rules() {
		for _, c := range r.Match {
			if rep := detectShell(c); !hasRule(rep, r.ID) {
				t.Errorf("%s does not find %q: got [%s]", r.ID, c, ruleIDs(rep))
			}
		}
		for _, c := range r.NoMatch {
			if rep := detectShell(c); len(rep.Findings) > 0 && r.Severity == gate.Hardline || hasRule(rep, r.ID) || rep.Limit != "" {
				t.Errorf("%s: %q gives [%s]", r.ID, c, ruleIDs(rep))
			}
		}
	}
}

func TestTheCatalogueIsWellFormed(t *testing.T) {
	id := regexp.MustCompile(`^[a-z]+\.[a-z-]+$`)
	seen := map[string]bool{}
	for _, r := range Rules() {
		if !id.MatchString(r.ID) || seen[r.ID] {
			t.Errorf("id %q is malformed or taken", r.ID)
		}
		seen[r.ID] = true
		if r.Category != strings.Split(r.ID, ".")[0] {
			t.Errorf("%s: category %q", r.ID, r.Category)
		}
		if r.Title == "" || strings.HasSuffix(r.Title, ".") || strings.HasSuffix(r.Instead, ".") {
			t.Errorf("%s: title %q, instead %q", r.ID, r.Title, r.Instead)
		}
		if r.ID != "agent.permissions" && (len(r.Match) == 0 || len(r.NoMatch) == 0) {
			t.Errorf("%s has no examples", r.ID)
		}
	}
}

// TestEveryRuleOfTheTablesExists runs the tables, where a rule without an entry
// in the catalogue would only show when it is found.
func TestEveryRuleOfTheTablesExists(t *testing.T) {
	d := New(World{})
	for name, p := range d.programs {
		if _, ok := d.rules[p.rule]; p.rule != "" && !ok {
			t.Errorf("program %s: no rule %q", name, p.rule)
		}
	}
	for name, vs := range d.verbs {
		for _, v := range vs {
			if _, ok := d.rules[v.rule]; !ok {
				t.Errorf("verb of %s: no rule %q", name, v.rule)
			}
		}
	}
}
