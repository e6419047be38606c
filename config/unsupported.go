package config

import "strings"

// notTaken is a setting that people bring along from the design of callgate or
// from other programs and that this version does not take.
type notTaken struct{ reason, remedy string }

// unsupported tells such a setting from a misspelt one.
func unsupported(path string) (notTaken, bool) {
	if parts := strings.Split(path, "."); len(parts) == 3 && parts[0] == "agents" {
		path = "agents.NAME." + parts[2]
	}
	u, ok := unsupportedKeys[path]
	return u, ok
}

const (
	peopleAlways = "is not taken by this version: a question that nobody answers is denied, for every agent"
	allAgents    = "is not taken by this version: all agents share approvals"
	noRules      = "is not taken by this version: it has the built-in detector and no rules of one's own"
)

var unsupportedKeys = map[string]notTaken{
	"approvals.cron_mode":                 {peopleAlways, "remove the key"},
	"approvals.single_query_mode":         {peopleAlways, "remove the key"},
	"approvals.unattended_mode":           {peopleAlways, "remove the key"},
	"approvals.enforce":                   {"is not taken by this version: decisions are always enforced", "remove the key"},
	"approvals.deny":                      {noRules, "remove the key"},
	"approvals.smart_policy":              {"is not the name it has here", "use approvals.context"},
	"approvals.denial_breaker_threshold":  {"is not the name it has here", "use denial.breaker"},
	"approvals.mcp_reload_confirm":        {"belongs to the agent, not to callgate", "remove the key"},
	"approvals.destructive_slash_confirm": {"belongs to the agent, not to callgate", "remove the key"},
	"command_allowlist":                   {noRules, "remove the key"},
	"rules":                               {noRules, "remove the key"},
	"grants":                              {"is not taken by this version: each approval covers one call", "remove the key"},
	"agents.NAME.approvals":               {allAgents, "remove the key, or run one callgate for each agent"},
	"agents.NAME.rules":                   {allAgents, "remove the key, or run one callgate for each agent"},
	"agents.NAME.context":                 {allAgents, "remove the key, and write approvals.context"},
	"hosted_tools":                        {"is not taken by this version: tools that the provider runs are recorded", "remove the key"},
	"text_calls":                          {"is not taken by this version: only tool calls are read, not plain text", "remove the key"},
	"metrics":                             {"is not a setting of the file", "use the OTEL_* environment variables"},
	"traces":                              {"is not a setting of the file", "use the OTEL_* environment variables"},
	"telemetry":                           {"is not a setting of the file", "use the OTEL_* environment variables"},
}
