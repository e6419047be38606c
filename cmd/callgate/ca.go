package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"callgate/config"
	"callgate/proxy/forward"
	"callgate/proxy/mitm"
)

type caOptions struct {
	config, state string
	json          bool
}

// newCACommand is for the authority that clients of HTTPS_PROXY trust.
func newCACommand(e *env) *cobra.Command {
	o := &caOptions{}
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Make, show and hand out the authority that HTTPS_PROXY clients trust",
		Long: `An agent that comes by HTTPS_PROXY gets a certificate of callgate's in the
place of its provider's, and must trust the authority behind it. That is made
here on this machine, and is good for the hosts of model providers alone: those
of the upstreams and those that callgate knows. serve makes it at its first
start; an agent that comes by base URL needs none.

The key stays in ca-key.pem of the state directory (or of ca.dir), which its
owner alone may read.

Exit codes: 0 done; 1 failed (there is none, or there is one already);
64 wrong usage; 78 wrong configuration.`,
		Example: `  callgate ca init
  callgate ca show
  callgate ca trust node
  callgate ca export > callgate-ca.pem`,
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&o.config, "config", "", "configuration `file`")
	flags.StringVar(&o.state, "state", "", "`directory` of the state, where ca.dir names no other")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	return group(cmd, newCAInitCommand(e, o), newCAShowCommand(e, o), newCAExportCommand(e, o), newCATrustCommand(e, o))
}

// load gives the settings, with a directory for the authority.
func (o *caOptions) load(e *env, cmd *cobra.Command) (*config.Config, error) {
	if err := refuseEmpty(cmd); err != nil {
		return nil, err
	}
	var flags []config.Flag
	if cmd.Flags().Changed("state") {
		flags = append(flags, config.Flag{Name: "--state", Key: "state", Value: o.state})
	}
	cfg, _, err := loadChecked(e, o.config, func(cfg *config.Config) config.Faults {
		if cfg.CADir() != "" {
			return nil
		}
		return config.Faults{{Key: "state", Reason: "is not known, as neither XDG_STATE_HOME nor HOME is set", Remedy: "name a directory"}}
	}, flags...)
	return cfg, err
}

// certificate loads the authority without its key.
func (o *caOptions) certificate(e *env, cmd *cobra.Command) (*mitm.CA, string, error) {
	cfg, err := o.load(e, cmd)
	if err != nil {
		return nil, "", err
	}
	path := filepath.Join(cfg.CADir(), mitm.CertFile)
	ca, err := mitm.LoadCertificate(cfg.CADir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", failf(exitFailed, "%s does not exist: no authority was made yet; run %q, or %q, which makes one", path, "callgate ca init", "callgate serve")
	}
	return ca, path, err
}

// caShown is an authority as it is printed.
type caShown struct {
	Path        string    `json:"path"`
	Key         string    `json:"key"`
	Subject     string    `json:"subject"`
	Fingerprint string    `json:"sha256"`
	From        time.Time `json:"not_before"`
	To          time.Time `json:"not_after"`
	Valid       bool      `json:"valid"`
	Hosts       []string  `json:"hosts"`
}

func showCA(e *env, ca *mitm.CA, path string, asJSON bool) error {
	from, to := ca.Validity()
	s := caShown{
		Path: path, Key: filepath.Join(filepath.Dir(path), mitm.KeyFile), Subject: ca.Subject(), Fingerprint: ca.Fingerprint(),
		From: from.UTC(), To: to.UTC(), Valid: !ca.Expired(time.Now()), Hosts: ca.Hosts(),
	}
	if asJSON {
		return printJSON(e.Stdout, s)
	}
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "subject\t%s\n", s.Subject)
	fmt.Fprintf(w, "sha256\t%s\n", s.Fingerprint)
	validity := s.From.Format(time.DateOnly) + " to " + s.To.Format(time.DateOnly)
	if !s.Valid {
		validity += " (not now)"
	}
	fmt.Fprintf(w, "valid\t%s\n", validity)
	fmt.Fprintf(w, "certificate\t%s\n", s.Path)
	fmt.Fprintf(w, "key\t%s\n", s.Key)
	shown, more := s.Hosts, ""
	if len(shown) > 8 {
		shown, more = shown[:8], fmt.Sprintf(" and %d more (--json)", len(s.Hosts)-8)
	}
	fmt.Fprintf(w, "good for\t%s%s\n", strings.Join(shown, ", "), more)
	return w.Flush()
}

func newCAInitCommand(e *env, o *caOptions) *cobra.Command {
	var replace bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the authority",
		Long: `init makes the authority, for the hosts of the upstreams in the configuration
and of the providers that callgate knows. One that is there already is left as
it is unless --replace is given: then whoever trusted the old one has to trust
the new one instead, and a callgate that runs has to be started anew.`,
		Example: "  callgate ca init\n  callgate ca init --replace",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := o.load(e, cmd)
			if err != nil {
				return err
			}
			ups, err := upstreams(cfg)
			if err != nil {
				return err
			}
			need, later, err := forward.Hosts(forwarded(ups))
			if err != nil {
				return failf(exitConfig, "%w", err)
			}
			ca, err := mitm.New(slices.Concat(need, later), time.Now())
			if err != nil {
				return err
			}
			save := mitm.Save
			if replace {
				save = mitm.Replace
			}
			if err := save(cfg.CADir(), ca); errors.Is(err, mitm.ErrExists) {
				return &exitError{code: exitFailed, err: err, hints: []string{
					"callgate ca show tells about it", "callgate ca init --replace makes a new one, which clients have to trust anew",
				}}
			} else if err != nil {
				return err
			}
			if err := showCA(e, ca, filepath.Join(cfg.CADir(), mitm.CertFile), o.json); err != nil {
				return err
			}
			note(e, "callgate ca trust tells who has to trust it, and how")
			return nil
		},
	}
	cmd.Flags().BoolVar(&replace, "replace", false, "make a new one in the place of the one that is there")
	return cmd
}

func newCAShowCommand(e *env, o *caOptions) *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Short:   "Show the authority: name, fingerprint, validity, files",
		Example: "  callgate ca show\n  callgate ca show --json | jq -r .sha256",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ca, path, err := o.certificate(e, cmd)
			if err != nil {
				return err
			}
			return showCA(e, ca, path, o.json)
		},
	}
}

func newCAExportCommand(e *env, o *caOptions) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "export",
		Short:   "Print the authority's certificate, or write it to a file",
		Long:    "export gives the certificate in PEM. The key is never given out.",
		Example: "  callgate ca export > callgate-ca.pem\n  callgate ca export --output /usr/local/share/ca-certificates/callgate.crt",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return fmt.Errorf("%w; to write a file: callgate ca export --output %s", err, shellWord(args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ca, _, err := o.certificate(e, cmd)
			if err != nil {
				return err
			}
			switch {
			case output != "":
				if err := writeNew(output, ca.PEM()); err != nil {
					return err
				}
				if !o.json {
					note(e, "wrote %s", output)
					return nil
				}
				return printJSON(e.Stdout, map[string]string{"file": output, "sha256": ca.Fingerprint()})
			case o.json:
				return printJSON(e.Stdout, map[string]string{"pem": string(ca.PEM()), "sha256": ca.Fingerprint()})
			}
			_, err = e.Stdout.Write(ca.PEM())
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write; it must not exist")
	return cmd
}

// writeNew writes a file that everybody may read, and never over another.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return failf(exitFailed, "%s exists and is not overwritten; name another file or remove it", path)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// place is a program or a system that keeps authorities, and what makes it
// trust one more. CA and BUNDLE stand for files.
type place struct {
	Name string   `json:"name"`
	What string   `json:"what"`
	Do   []string `json:"do"`
	Undo []string `json:"undo,omitempty"`
}

const (
	caWord     = "@CA@"
	bundleWord = "@BUNDLE@"
	nameWord   = "@NAME@"
)

var places = []place{
	{"debian", "the system's store on Debian, Ubuntu and Alpine, for all users", []string{
		"sudo cp " + caWord + " /usr/local/share/ca-certificates/callgate.crt", "sudo update-ca-certificates",
	}, []string{"sudo rm /usr/local/share/ca-certificates/callgate.crt", "sudo update-ca-certificates --fresh"}},
	{"fedora", "the system's store on Fedora, RHEL and CentOS, for all users", []string{
		"sudo cp " + caWord + " /etc/pki/ca-trust/source/anchors/callgate.pem", "sudo update-ca-trust",
	}, []string{"sudo rm /etc/pki/ca-trust/source/anchors/callgate.pem", "sudo update-ca-trust"}},
	{"macos", "the keychain of this user on macOS", []string{
		"security add-trusted-cert -r trustRoot -p ssl -k ~/Library/Keychains/login.keychain-db " + caWord,
	}, []string{"security delete-certificate -c '" + nameWord + "' ~/Library/Keychains/login.keychain-db"}},
	{"windows", "the store of this user on Windows", []string{"certutil -user -addstore Root " + caWord},
		[]string{"certutil -user -delstore Root \"" + nameWord + "\""}},
	{"node", "Node programs: Claude Code, Gemini CLI, qwen-code, pi, opencode, cline", []string{
		"export NODE_EXTRA_CA_CERTS=" + caWord, "export NODE_USE_ENV_PROXY=1   # Node 22.21 and later: for programs that use fetch alone",
	}, nil},
	{"python", "Python: requests and httpx (the SDKs) in the place of their own list, so that a bundle is needed", []string{
		"export REQUESTS_CA_BUNDLE=" + bundleWord, "export SSL_CERT_FILE=" + bundleWord,
	}, nil},
	{"go", "Go programs on Linux, in the place of the system's list; on macOS and Windows they ask the system's store", []string{
		"export SSL_CERT_FILE=" + bundleWord,
	}, nil},
	{"java", "Java, which reads no HTTPS_PROXY but -Dhttps.proxyHost and -Dhttps.proxyPort: into a copy of its own store (password changeit)", []string{
		"cp \"$JAVA_HOME/lib/security/cacerts\" callgate-cacerts", "keytool -importcert -noprompt -alias callgate -file " + caWord + " -keystore callgate-cacerts -storepass changeit",
		"export JAVA_TOOL_OPTIONS=\"-Djavax.net.ssl.trustStore=$PWD/callgate-cacerts\"",
	}, nil},
	{"curl", "curl and git, in the place of the system's list", []string{
		"export CURL_CA_BUNDLE=" + bundleWord, "export GIT_SSL_CAINFO=" + bundleWord,
	}, nil},
	{"codex", "Codex CLI", []string{"export CODEX_CA_CERTIFICATE=" + caWord}, nil},
}

func placeNames() []string {
	var names []string
	for _, p := range places {
		names = append(names, p.Name)
	}
	return names
}

func newCATrustCommand(e *env, o *caOptions) *cobra.Command {
	var bundle string
	cmd := &cobra.Command{
		Use:   "trust [PLACE]...",
		Short: "Tell how clients are made to trust the authority",
		Long: `trust prints what makes a system or a program trust the authority. It changes
nothing itself, but for --write-bundle, which writes a file with the system's
own authorities and this one, for programs that take one list alone.

Only what an agent runs has to trust it: variables for one agent do no harm to
others, the system's store is for all.

PLACE is one of the names below; without one all are told.

  ` + strings.Join(placeNames(), ", "),
		Example: `  callgate ca trust
  callgate ca trust node codex
  callgate ca trust python --write-bundle ~/.local/state/callgate/bundle.pem`,
		ValidArgs: placeNames(),
		Args:      cobra.OnlyValidArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ca, path, err := o.certificate(e, cmd)
			if err != nil {
				return err
			}
			at := filepath.Join(filepath.Dir(path), "bundle.pem")
			if bundle != "" {
				if at, err = filepath.Abs(bundle); err != nil {
					return err
				}
				from, n, err := writeBundle(e, at, ca)
				if err != nil {
					return err
				}
				note(e, "wrote %s: %d authorities of %s, and this one", at, n, from)
			}
			return printPlaces(e, ca, args, path, at, bundle != "", o.json)
		},
	}
	cmd.Flags().StringVar(&bundle, "write-bundle", "", "`file` to write the system's authorities and this one to; it must not exist")
	return cmd
}

func printPlaces(e *env, ca *mitm.CA, names []string, path, bundle string, written, asJSON bool) error {
	fill := strings.NewReplacer(caWord, quoted(path), bundleWord, quoted(bundle), nameWord, ca.Name())
	var list []place
	needsBundle := false
	for _, p := range places {
		if len(names) > 0 && !slices.Contains(names, p.Name) {
			continue
		}
		q := place{Name: p.Name, What: p.What}
		for _, d := range p.Do {
			needsBundle = needsBundle || strings.Contains(d, bundleWord)
			q.Do = append(q.Do, fill.Replace(d))
		}
		for _, d := range p.Undo {
			q.Undo = append(q.Undo, fill.Replace(d))
		}
		list = append(list, q)
	}
	if asJSON {
		return printJSON(e.Stdout, struct {
			Path        string  `json:"path"`
			Fingerprint string  `json:"sha256"`
			Bundle      string  `json:"bundle,omitempty"`
			Places      []place `json:"places"`
		}{path, ca.Fingerprint(), map[bool]string{true: bundle}[written], list})
	}
	s := newStyle(e, e.StdoutTTY)
	var b strings.Builder
	fmt.Fprintf(&b, "%s, sha256 %s\n", path, ca.Fingerprint())
	for _, p := range list {
		fmt.Fprintf(&b, "\n%s: %s\n", s.bold(p.Name), p.What)
		for _, d := range p.Do {
			fmt.Fprintf(&b, "  %s\n", d)
		}
		for _, d := range p.Undo {
			fmt.Fprintf(&b, "  %s %s\n", s.dim("undo:"), d)
		}
	}
	if needsBundle && !written {
		if _, err := os.Stat(bundle); err != nil {
			fmt.Fprintf(&b, "\nthe bundle is not there yet:\n  %s ca trust --write-bundle %s\n", programName(), quoted(bundle))
		}
	}
	_, err := fmt.Fprint(e.Stdout, b.String())
	return err
}

// quoted makes a path a word of a shell.
func quoted(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+@:,", r)
	}
	if !strings.ContainsFunc(path, func(r rune) bool { return !plain(r) }) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// systemBundles are where systems keep all their authorities in one file.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
	"/etc/pki/tls/certs/ca-bundle.crt",                  // older ones
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/ssl/cert.pem",                                 // macOS, BSD
}

// writeBundle writes the system's authorities and ca to a new file.
func writeBundle(e *env, path string, ca *mitm.CA) (from string, n int, err error) {
	candidates := systemBundles
	if f := e.Getenv("SSL_CERT_FILE"); f != "" && f != path {
		candidates = []string{f}
	}
	for _, from := range candidates {
		text, err := os.ReadFile(from)
		if errors.Is(err, fs.ErrNotExist) && len(candidates) > 1 {
			continue
		}
		if err != nil {
			return "", 0, err
		}
		var out []byte
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			cert, err := x509.ParseCertificate(block.Bytes)
			if block.Type != "CERTIFICATE" || err != nil || strings.HasPrefix(cert.Subject.CommonName, "callgate local CA ") {
				continue // one of callgate's that was trusted before
			}
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
			n++
		}
		if n == 0 {
			return "", 0, failf(exitFailed, "%s holds no authority; name the system's bundle in SSL_CERT_FILE", from)
		}
		return from, n, writeNew(path, append(out, ca.PEM()...))
	}
	return "", 0, failf(exitFailed, "the system's authorities are in none of %s; name their file in SSL_CERT_FILE", strings.Join(candidates, ", "))
}
