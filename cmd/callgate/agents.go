package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"callgate/config"
	"callgate/proxy"
)

// newAgentsCommand is for the clients that callgate tells apart.
func newAgentsCommand(e *env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "agents",
		Short: "Make tokens for agents, and list the agents of the configuration",
		Long: `An agent is a client that callgate tells apart from others: its questions,
decisions and refused calls are its own, it may be limited to some upstreams,
and where callgate holds the provider's key (upstreams.NAME.credential) its token
is all that it has.

It shows the token in the path of its base URL (http://HOST:PORT/~TOKEN/...), as
its API key, or in the URL of its proxy (http://agent:TOKEN@HOST:PORT). One with an
address of its own (agents.NAME.listen) needs no token there.`,
		Example: `  callgate agents token
  callgate agents list
  ANTHROPIC_BASE_URL=http://127.0.0.1:4141/~TOKEN claude`,
	}, newAgentsTokenCommand(e), newAgentsListCommand(e))
}

// newToken makes a token of 130 bits.
func newToken() string { return proxy.TokenPrefix + rand.Text() }

func newAgentsTokenCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "token [NAME]",
		Short: "Print a new token, once, with the lines for the configuration",
		Long: `Makes a token and prints it with its SHA-256, which is what the configuration
needs. Nothing is kept: who loses the token makes another.`,
		Example: `  callgate agents token planner
  callgate agents token --json | jq -r .token`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := "NAME"
			if len(args) == 1 {
				name = args[0]
				if !config.ValidName(name) || name == config.DefaultAgent {
					return usagef("%q is no name for an agent with a token; use small letters, digits and hyphens", name)
				}
			}
			token := newToken()
			sum := sha256.Sum256([]byte(token))
			hash := hex.EncodeToString(sum[:])
			if asJSON {
				return printJSON(e.Stdout, struct {
					Token  string `json:"token"`
					SHA256 string `json:"token_sha256"`
				}{token, hash})
			}
			_, err := fmt.Fprintf(e.Stdout, `token   %s
sha256  %s

The token is shown this once. For the configuration:

agents:
  %s:
    token_sha256: %s

and for the agent, one of:

  base URL   http://127.0.0.1:4141/~%s   (OpenAI: with /v1 behind it)
  API key    %s
  proxy      http://agent:%s@127.0.0.1:4141
`, token, hash, name, hash, token, token, token)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// agentShown is an agent as it is listed.
type agentShown struct {
	Name string `json:"name"`
	// Token says how it may prove itself, "" for by no token.
	Token     string   `json:"token,omitempty"`
	Listen    string   `json:"listen,omitempty"`
	BaseURL   string   `json:"base_url,omitempty"`
	Upstreams []string `json:"upstreams,omitempty"`
}

// showAgents lists the agents; own are the base URLs of those addresses of
// their own that are served.
func showAgents(cfg *config.Config, own map[string]string) []agentShown {
	var list []agentShown
	for _, name := range cfg.Agents.Names() {
		a := cfg.Agents[name]
		s := agentShown{Name: name, Listen: a.Listen, BaseURL: own[name], Upstreams: a.Upstreams}
		if _, ok := a.TokenHash(); ok {
			s.Token = "set"
		}
		list = append(list, s)
	}
	return list
}

// how says in a few words how the agent comes in, and to what.
func (s agentShown) how() string {
	var ways []string
	if s.Token != "" {
		ways = append(ways, "by its token")
	}
	switch {
	case s.BaseURL != "":
		ways = append(ways, "at "+s.BaseURL)
	case s.Listen != "":
		ways = append(ways, "at "+s.Listen)
	}
	if len(ways) == 0 {
		ways = append(ways, "by no token")
	}
	if s.Upstreams != nil {
		ways = append(ways, "to "+strings.Join(s.Upstreams, ", ")+" alone")
	}
	return strings.Join(ways, ", ")
}

// tokenless says that requests without a token are taken at the main listener.
func tokenless(cfg *config.Config) bool {
	_, ok := cfg.Agents[config.DefaultAgent]
	return ok || len(cfg.Agents) == 0
}

func newAgentsListCommand(e *env) *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the agents of the configuration",
		Example: "  callgate agents list\n  callgate agents list --config callgate.yaml --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd); err != nil {
				return err
			}
			cfg, _, err := loadChecked(e, path, nil)
			if err != nil {
				return err
			}
			list := showAgents(cfg, nil)
			if asJSON {
				if list == nil {
					list = []agentShown{}
				}
				return printJSON(e.Stdout, list)
			}
			if len(list) == 0 {
				_, err := fmt.Fprintln(e.Stdout, "no agents are configured: whoever comes is the agent "+config.DefaultAgent)
				return err
			}
			w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "AGENT\tTOKEN\tLISTEN\tUPSTREAMS")
			for _, a := range list {
				ups := "all"
				if a.Upstreams != nil {
					ups = strings.Join(a.Upstreams, ", ")
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", a.Name, firstOf(a.Token, "-"), firstOf(a.Listen, "-"), ups)
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration `file`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
