package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"callgate/config"
)

// loadConfig gives the settings in force, with all that serve needs; path is
// the value of --config. An error has the exit code of a wrong configuration,
// or of wrong usage where only flags are at fault.
func loadConfig(e *env, path string, flags ...config.Flag) (*config.Config, config.Sources, error) {
	return loaded(config.Load(config.LoadOptions{Path: path, Environ: e.Environ, Flags: flags, Check: servable}))
}

// loadChecked is loadConfig for a command that needs something else, and no
// secrets: those may be where only serve can read them.
func loadChecked(e *env, path string, check func(*config.Config) config.Faults, flags ...config.Flag) (*config.Config, config.Sources, error) {
	return loaded(config.Load(config.LoadOptions{Path: path, Environ: e.Environ, Secretless: true, Flags: flags, Check: check}))
}

func loaded(cfg *config.Config, src config.Sources, err error) (*config.Config, config.Sources, error) {
	if err != nil {
		return nil, src, configError(err)
	}
	return cfg, src, nil
}

// servable says what serve lacks.
func servable(cfg *config.Config) config.Faults {
	faults := hookRuns(cfg)
	if cfg.State == "" {
		faults = append(faults, config.Fault{
			Key: "state", Reason: "is not known, as neither XDG_STATE_HOME nor HOME is set", Remedy: "name a directory",
		})
	}
	return faults
}

// hookRuns says why the hook cannot be run, where the mode asks it.
func hookRuns(cfg *config.Config) config.Faults {
	if cfg.Approvals.Mode != config.ModeCustom {
		return nil
	}
	_, err := buildHook(cfg.Approvals)
	if f, ok := errors.AsType[config.Fault](err); ok {
		return config.Faults{f}
	}
	return nil
}

// configError gives an error of config its exit code, and several faults a
// line each.
func configError(err error) error {
	faults, ok := errors.AsType[config.Faults](err)
	if !ok {
		return &exitError{code: exitConfig, err: err}
	}
	code := exitUsage
	for _, f := range faults {
		if !strings.HasPrefix(f.Place, "--") {
			code = exitConfig
		}
	}
	if len(faults) == 1 {
		return &exitError{code: code, err: faults[0]}
	}
	hints := make([]string, len(faults))
	for i, f := range faults {
		hints[i] = f.Error()
	}
	return &exitError{code: code, err: fmt.Errorf("the configuration has %d faults", len(faults)), hints: hints}
}

func newConfigCommand(e *env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "config",
		Short: "Show, check and write the configuration",
		Long: `Show the settings in force, check a configuration file, write a new one.

A setting comes from a flag, else from the environment, else from the file,
else it has its default. The file is the one that --config or CALLGATE_CONFIG
names, else callgate/callgate.yaml in $XDG_CONFIG_HOME (or ~/.config), else
/etc/callgate/callgate.yaml.`,
		Example: `  callgate config show
  callgate config validate callgate.yaml
  callgate config init --output ~/.config/callgate/callgate.yaml`,
	}, newConfigShowCommand(e), newConfigValidateCommand(e), newConfigInitCommand(e))
}

func newConfigShowCommand(e *env) *cobra.Command {
	var path string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the settings in force and where each comes from",
		Example: "  callgate config show\n  CALLGATE_APPROVALS_MODE=off callgate config show --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd); err != nil {
				return err
			}
			cfg, src, err := loadChecked(e, path, nil)
			if err != nil {
				return err
			}
			return showConfig(e, config.Settings(cfg, src), src.File, asJSON)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration `file`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func showConfig(e *env, settings []config.Setting, file string, asJSON bool) error {
	if asJSON {
		return printJSON(e.Stdout, struct {
			File     string           `json:"file,omitempty"`
			Settings []config.Setting `json:"settings"`
		}{file, settings})
	}
	s := newStyle(e, e.StdoutTTY)
	if file == "" {
		file = "none"
	}
	if _, err := fmt.Fprintf(e.Stdout, "%s\n", s.dim("file: "+file)); err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	for _, set := range settings {
		value := set.Value
		if value == "" {
			value = `""`
		}
		value = strings.ReplaceAll(value, "\n", `\n`)
		from := set.Source.String()
		if set.Source.Kind == "default" {
			from = s.dim(from)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", set.Key, value, from)
	}
	return w.Flush()
}

func newConfigValidateCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a configuration file, or the settings in force",
		Long: `Check a configuration file on its own, without the environment's settings: it
can be read, its values make sense, and its hook can be run by whoever runs this.

Without a file the settings in force are checked, with all that callgate serve
refuses before it listens: a hook that cannot be run, no state directory, OTEL_*
variables that it cannot follow.

Exit codes: 0 valid; 64 wrong usage; 78 not valid.`,
		Example: "  callgate config validate callgate.yaml\n  CALLGATE_APPROVALS_MODE=off callgate config validate",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			what := "the settings in force"
			o := config.LoadOptions{Environ: e.Environ, Check: func(cfg *config.Config) config.Faults {
				return append(servable(cfg), tracesGo(cmd.Context(), e)...)
			}}
			if len(args) == 1 {
				what = args[0]
				if what == "" {
					return usagef("the file's name is empty; name a file, or leave it out for the settings in force")
				}
				o = config.LoadOptions{Path: what, Environ: withoutSettings(e.Environ), Secrets: e.Environ, Check: hookRuns}
			}
			_, _, err := config.Load(o)
			if asJSON {
				return reportFaults(e, err)
			}
			if err != nil {
				return configError(err)
			}
			_, err = fmt.Fprintf(e.Stdout, "%s: valid\n", what)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// tracesGo says why traces cannot be sent as the environment wants it.
func tracesGo(ctx context.Context, e *env) config.Faults {
	t, err := startTracing(ctx, e.Getenv)
	if err == nil {
		err = t.close(ctx)
	}
	if err != nil {
		return config.Faults{{Reason: err.Error()}}
	}
	return nil
}

// withoutSettings is the environment without the settings of callgate.
func withoutSettings(environ []string) []string {
	var out []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "CALLGATE_") {
			out = append(out, kv)
		}
	}
	return out
}

// reportFaults prints faults as JSON; the exit code says the rest.
func reportFaults(e *env, err error) error {
	type fault struct {
		Place  string `json:"place,omitempty"`
		Key    string `json:"key,omitempty"`
		Value  string `json:"value,omitempty"`
		Reason string `json:"reason"`
		Remedy string `json:"remedy,omitempty"`
	}
	report := struct {
		Valid  bool    `json:"valid"`
		Faults []fault `json:"faults"`
	}{Valid: err == nil, Faults: []fault{}}
	faults, ok := errors.AsType[config.Faults](err)
	if err != nil && !ok {
		return configError(err)
	}
	for _, f := range faults {
		report.Faults = append(report.Faults, fault{f.Place, f.Key, f.Value, f.Reason, f.Remedy})
	}
	if perr := printJSON(e.Stdout, report); perr != nil {
		return perr
	}
	if err != nil {
		return &exitError{code: exitConfig}
	}
	return nil
}

func newConfigInitCommand(e *env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Print a commented file with every setting, or write it",
		Example: "  callgate config init > callgate.yaml\n  callgate config init --output ~/.config/callgate/callgate.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd); err != nil {
				return err
			}
			if output == "" {
				_, err := fmt.Fprint(e.Stdout, config.Sample)
				return err
			}
			return writeSample(e, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write; it must not exist")
	return cmd
}

// writeSample writes the sample to a new file that only its owner can read, so
// that a token may be put into it.
func writeSample(e *env, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return failf(exitFailed, "%s exists and is not overwritten; name another file or remove it", path)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(config.Sample)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	note(e, "wrote %s", path)
	return nil
}
