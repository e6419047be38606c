package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completions writes the completion script of each shell.
var completions = map[string]func(*cobra.Command, io.Writer) error{
	"bash":       func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) },
	"zsh":        (*cobra.Command).GenZshCompletion,
	"fish":       func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) },
	"powershell": (*cobra.Command).GenPowerShellCompletionWithDesc,
}

func newCompletionCommand(e *env) *cobra.Command {
	shells := slices.Sorted(maps.Keys(completions))
	return &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Print the completion script of a shell",
		Long:      "Print the completion script of a shell: " + strings.Join(shells, ", ") + ".",
		Example:   "  source <(callgate completion bash)\n  callgate completion fish > ~/.config/fish/completions/callgate.fish",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			return completions[args[0]](cmd.Root(), e.Stdout)
		},
	}
}

// flagWords are the words that a flag takes, by the command's path and the
// flag's name.
func flagWords() map[[2]string][]string {
	var ends []string
	for _, o := range outcomes {
		ends = append(ends, string(o))
	}
	return map[[2]string][]string{
		{"audit list", "verdict"}: {"allow", "deny"},
		{"audit list", "outcome"}: ends,
		{"check", "tool"}:         {"bash", "powershell", "python", "node", "write", "read"},
		{"demo", "answer"}:        {"yes", "no"},
	}
}

// What the values of flags of that name are, in every command.
var (
	settingsFiles = []string{"config"}
	otherFiles    = []string{"addr-file", "output", "token-file", "write-bundle"}
	directories   = []string{"cwd", "home", "state", "workspace"}
)

// isCompletion says that a shell asks what may stand next.
func isCompletion(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// prepareCompletion readies the commands for a shell's question: which values
// their flags take, and descriptions without the marks that only the help
// reads.
func prepareCompletion(root *cobra.Command, args []string) error {
	if !isCompletion(args) {
		return nil
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for at, words := range flagWords() {
		cmd, rest, err := root.Find(strings.Fields(at[0]))
		if err != nil || len(rest) > 0 {
			return fmt.Errorf("completion: there is no command %q", at[0])
		}
		if err := cmd.RegisterFlagCompletionFunc(at[1], cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			return fmt.Errorf("completion: %w", err)
		}
	}
	return prepareFlags(root)
}

// prepareFlags readies the flags of cmd and of every command below it.
func prepareFlags(cmd *cobra.Command) (err error) {
	each := func(f *pflag.Flag) {
		f.Usage = strings.ReplaceAll(f.Usage, "`", "")
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		switch {
		case slices.Contains(settingsFiles, f.Name):
			f.Annotations[cobra.BashCompFilenameExt] = []string{"yaml", "yml"}
		case slices.Contains(directories, f.Name):
			f.Annotations[cobra.BashCompSubdirsInDir] = []string{}
		case slices.Contains(otherFiles, f.Name):
			files := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
			if rerr := cmd.RegisterFlagCompletionFunc(f.Name, files); rerr != nil {
				err = fmt.Errorf("completion: %w", rerr)
			}
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(each)
	cmd.PersistentFlags().VisitAll(each)
	if cmd.CommandPath() == "callgate config validate" {
		cmd.ValidArgsFunction = cobra.FixedCompletions([]string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt)
	}
	for _, c := range cmd.Commands() {
		if cerr := prepareFlags(c); cerr != nil {
			err = cerr
		}
	}
	return err
}
