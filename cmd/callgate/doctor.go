package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"callgate/config"
	"callgate/gate/redact"
)

const doctorLong = `Looks at what can go wrong between an agent and callgate: the configuration, the
state directory, whether callgate runs, and what the environment of this shell,
or with --pid that of a running agent, makes of base URLs, proxies, certificates
and keys. With --pid it also looks, where /proc can be read, at the connections
of the agent and of what it started.

Each line is ok, warn (it may be meant) or fail, with what can be done.

Exit codes: 0 nothing failed; 1 something failed; 64 wrong usage.`

// newDoctorCommand makes the doctor command.
func newDoctorCommand(e *env) *cobra.Command {
	var path string
	var pid int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out why an agent does not go through callgate",
		Long:  doctorLong,
		Example: `  callgate doctor
  callgate doctor --pid 4711
  callgate doctor --json | jq 'select(.state == "fail")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseEmpty(cmd); err != nil {
				return err
			}
			if cmd.Flags().Changed("pid") && pid <= 0 {
				return usagef("--pid %d: the number of a process is wanted", pid)
			}
			d := &doctor{e: e, lookup: net.DefaultResolver.LookupHost, proc: "/proc"}
			d.examine(cmd.Context(), path, pid)
			if err := d.print(asJSON); err != nil {
				return err
			}
			if slices.ContainsFunc(d.found, func(f finding) bool { return f.State == stateFail }) {
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "configuration `file`")
	cmd.Flags().IntVar(&pid, "pid", 0, "look at the agent with that process `number`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, one object a line")
	return cmd
}

// The states of what the doctor found.
const (
	stateOK   = "ok"
	stateWarn = "warn"
	stateFail = "fail"
)

// finding is one line of the doctor's.
type finding struct {
	State string `json:"state"`
	About string `json:"about"`
	Text  string `json:"text"`
	// Remedy is what can be done, "" where nothing has to be.
	Remedy string `json:"remedy,omitempty"`
}

// doctor examines one setup.
type doctor struct {
	e      *env
	lookup func(ctx context.Context, host string) ([]string, error)
	proc   string // where the process table is mounted
	found  []finding

	cfg *config.Config // nil when it could not be read
	// gates remembers of each origin whether callgate answers there.
	gates map[string]error
}

func (d *doctor) say(state, about, remedy, text string, args ...any) {
	d.found = append(d.found, finding{state, about, fmt.Sprintf(text, args...), remedy})
}

// examine looks at everything. pid is 0 for the environment of this process.
func (d *doctor) examine(ctx context.Context, path string, pid int) {
	d.gates = map[string]error{}
	d.configuration(path)
	if d.cfg != nil {
		d.state(d.cfg.State)
		d.listeners(ctx)
	}
	getenv := d.e.Getenv
	if pid != 0 {
		list, err := environOf(d.proc, pid)
		if err != nil {
			state := stateWarn
			if errors.Is(err, fs.ErrNotExist) {
				state = stateFail
			}
			d.say(state, "process", "name a process of your own that runs, on Linux", "the environment of %d cannot be read: %v", pid, reasonOnly(err))
			if state == stateFail {
				return
			}
			getenv = nil
		} else {
			getenv = func(name string) string { return lookupVar(list, name) }
		}
	}
	if getenv != nil {
		d.variables(ctx, getenv)
		d.proxies(getenv)
		d.certificates(getenv)
		d.keys(getenv)
		d.token(getenv, pid)
	}
	if pid != 0 {
		d.connections(ctx, pid)
	}
}

func lookupVar(list []string, name string) string {
	for _, kv := range list {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

func (d *doctor) configuration(path string) {
	cfg, src, err := loadConfig(d.e, path)
	if err != nil {
		d.say(stateFail, "configuration", "callgate config validate shows each fault", "%v", err)
		return
	}
	d.cfg = cfg
	file := firstOf(src.File, "no file, defaults and environment")
	d.say(stateOK, "configuration", "", "%s", file)
}

// state looks at who can get at approvals, audit log and keys.
func (d *doctor) state(dir string) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.say(stateOK, "state", "", "%s is not there yet; the first start makes it", dir)
		return
	case err != nil:
		d.say(stateFail, "state", "let this user read it, or set state", "%s: %v", dir, reasonOnly(err))
		return
	case !info.IsDir():
		d.say(stateFail, "state", "name a directory", "%s is no directory", dir)
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		d.say(stateWarn, "state", "run callgate as its owner, or name a directory of your own", "%s belongs to user %d", dir, st.Uid)
		return
	}
	if rights := info.Mode().Perm(); rights&0o077 != 0 {
		d.say(stateFail, "state", "chmod 700 "+dir, "%s can be used by others (mode %04o)", dir, rights)
		return
	}
	d.say(stateOK, "state", "", "%s", dir)
}

// listeners asks whether a callgate serve is there.
func (d *doctor) listeners(ctx context.Context) {
	base := "http://" + dialable(d.cfg.Listen)
	if err := d.gate(ctx, base); err != nil {
		d.say(stateWarn, "serve", "callgate serve starts it; callgate run brings its own", "no callgate at %s: %v", base, err)
		return
	}
	d.say(stateOK, "serve", "", "callgate serves agents at %s", base)
}

// dialable is an address by which a listener can be reached from here.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// gatePatience is how long callgate may take to say that it is one.
const gatePatience = 3 * time.Second

var errNoGate = errors.New("something else answers there")

// gate says why no callgate answers at the origin of a URL, nil where one does.
// No proxy is asked: an agent that is set up rightly asks none either.
func (d *doctor) gate(ctx context.Context, base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("it is no http or https URL")
	}
	origin := u.Scheme + "://" + u.Host
	if err, known := d.gates[origin]; known {
		return err
	}
	err = askGate(ctx, origin+"/")
	d.gates[origin] = err
	return err
}

func askGate(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return err
	}
	defer res.Body.Close()
	head, err := io.ReadAll(io.LimitReader(res.Body, 64))
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(head), "callgate is running") {
		return errNoGate
	}
	return nil
}

// keysOf are the variables with the key of each API.
var keysOf = map[string][]string{
	"openai-chat": {"OPENAI_API_KEY"},
	"anthropic":   {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"},
}

func anySet(getenv func(string) string, names []string) string {
	for _, n := range names {
		if getenv(n) != "" {
			return n
		}
	}
	return ""
}

// variables looks where the base URLs lead.
func (d *doctor) variables(ctx context.Context, getenv func(string) string) {
	remedy := "start the agent with callgate run, or set it to callgate's address"
	set := map[string]bool{}
	for _, v := range baseVariables {
		raw := getenv(v.name)
		if raw == "" {
			continue
		}
		set[v.api] = true
		switch err := d.gate(ctx, raw); {
		case err == nil:
			d.say(stateOK, v.name, "", "leads to callgate at %s", shown(raw))
		case errors.Is(err, errNoGate):
			d.say(stateFail, v.name, remedy, "leads past callgate, to %s", shown(raw))
		default:
			d.say(stateFail, v.name, "start callgate there, or start the agent with callgate run", "nothing can be reached at %s: %v", shown(raw), err)
		}
	}
	for _, api := range slices.Sorted(maps.Keys(keysOf)) {
		key := anySet(getenv, keysOf[api])
		if set[api] || key == "" {
			continue
		}
		for _, v := range baseVariables {
			if v.api == api {
				d.say(stateWarn, v.name, remedy, "is not set, and %s is: programs use it at the provider itself, past callgate", key)
				break
			}
		}
	}
	if len(set) == 0 && anySet(getenv, append(slices.Clone(keysOf["openai-chat"]), keysOf["anthropic"]...)) == "" {
		d.say(stateOK, "base URLs", "", "none is set, and there is no key that could be used without one")
	}
}

// shown is a URL as it may be printed.
func shown(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "what is no URL"
	}
	return redact.Visible(u.Redacted())
}

// proxies looks whether a proxy stands between the agent and callgate.
func (d *doctor) proxies(getenv func(string) string) {
	var names []string
	for _, n := range proxyNames {
		if getenv(n) != "" {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		d.say(stateOK, "proxies", "", "none is set")
		return
	}
	for _, n := range names {
		u, err := url.Parse(getenv(n))
		if err != nil || u.Host == "" {
			d.say(stateWarn, n, "write it like http://HOST:PORT", "is no URL")
			continue
		}
		ours := slices.ContainsFunc(slices.Collect(maps.Keys(d.gates)), func(origin string) bool {
			return d.gates[origin] == nil && strings.HasSuffix(origin, "://"+u.Host)
		})
		switch {
		case ours && forwardProxy:
			d.say(stateOK, n, "", "is callgate, at %s", u.Host)
		case ours:
			d.say(stateFail, n, "unset it; base URLs are enough", "is callgate, which is no forward proxy in this version")
		default:
			d.say(stateOK, n, "", "is %s, which only hosts outside of this machine should need", redact.Visible(u.Host))
		}
	}
	local := ""
	for _, v := range baseVariables {
		if isLoopbackURL(getenv(v.name)) {
			local = v.name
			break
		}
	}
	now := firstOf(getenv("NO_PROXY"), getenv("no_proxy"))
	switch want := noProxy(now); {
	case want == now:
		d.say(stateOK, "NO_PROXY", "", "keeps traffic to this machine from the proxy")
	case local != "":
		d.say(stateFail, "NO_PROXY", "set NO_PROXY="+want, "lacks this machine: several agents would send what is meant for %s to the proxy", local)
	default:
		d.say(stateWarn, "NO_PROXY", "set NO_PROXY="+want, "lacks this machine, where callgate is reached")
	}
}

// certificates looks at the files that programs take their authorities from.
func (d *doctor) certificates(getenv func(string) string) {
	var own []byte
	if d.cfg != nil {
		if b, err := os.ReadFile(filepath.Join(d.cfg.State, "ca.pem")); err == nil {
			own = firstCertificate(b)
		}
	}
	var good, without []string
	for _, n := range slices.Concat(bundleNames, extraNames) {
		path := getenv(n.Name)
		if path == "" {
			continue
		}
		b, err := os.ReadFile(path)
		switch {
		case err != nil:
			d.say(stateFail, n.Name, "name a file that is there, or unset it", "%s: %v", redact.Visible(path), reasonOnly(err))
			continue
		case firstCertificate(b) == nil:
			d.say(stateFail, n.Name, "name a file with certificates in PEM", "%s holds no certificate", redact.Visible(path))
			continue
		}
		good = append(good, n.Name)
		if own != nil && !holds(b, own) {
			without = append(without, n.Name)
		}
	}
	if len(good) > 0 {
		d.say(stateOK, "certificates", "", "%s can be read", strings.Join(good, ", "))
	}
	switch {
	case own == nil:
		return // there is no authority yet whom anybody would have to trust
	case len(good) == 0:
		d.say(stateWarn, "certificates", "callgate run sets what is needed; callgate ca trust shows it", "no variable makes programs trust callgate's authority; only base URLs will do")
	case len(without) > 0:
		d.say(stateWarn, "certificates", "callgate run sets what is needed; callgate ca trust shows it", "%s: callgate's authority is not in the file", strings.Join(without, ", "))
	}
}

// firstCertificate gives the first certificate of a PEM file, nil for none.
func firstCertificate(b []byte) []byte {
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			return nil
		}
		if block.Type == "CERTIFICATE" {
			if c, err := x509.ParseCertificate(block.Bytes); err == nil {
				return c.Raw
			}
		}
		b = rest
	}
}

// holds says that a certificate is in a PEM file.
func holds(b, der []byte) bool {
	for {
		block, rest := pem.Decode(b)
		if block == nil {
			return false
		}
		if string(block.Bytes) == string(der) {
			return true
		}
		b = rest
	}
}

// keys warns of keys with which an agent could go past callgate.
func (d *doctor) keys(getenv func(string) string) {
	var gated, other []string
	for _, api := range slices.Sorted(maps.Keys(keysOf)) {
		for _, n := range keysOf[api] {
			if getenv(n) != "" {
				gated = append(gated, n)
			}
		}
	}
	for _, p := range knownProviders {
		if p.key != "" && getenv(p.key) != "" && !slices.Contains(gated, p.key) && !slices.Contains(other, p.key) {
			other = append(other, p.key)
		}
	}
	if len(gated) > 0 {
		d.say(stateWarn, "keys", "keep the key from the agent where that matters: with it callgate advises, it does not enforce",
			"%s: whoever has the key can use it past callgate", strings.Join(gated, ", "))
	}
	if len(other) > 0 {
		d.say(stateWarn, "keys", "name the provider with --upstream NAME=URL and give its base URL to the agent", "%s: no variable sends programs to callgate for it", strings.Join(other, ", "))
	}
	if len(gated)+len(other) == 0 {
		d.say(stateOK, "keys", "", "no provider key is in the environment")
	}
}

// token looks whether an agent would get the right to answer its own questions.
func (d *doctor) token(getenv func(string) string, pid int) {
	switch {
	case getenv("CALLGATE_CONTROL_TOKEN") == "":
		return
	case pid != 0:
		d.say(stateFail, "control token", "start the agent with callgate run, which keeps it away", "the agent has CALLGATE_CONTROL_TOKEN and can answer its own questions")
	default:
		d.say(stateWarn, "control token", "set it in the terminal of whoever answers; callgate run keeps it from the agent", "CALLGATE_CONTROL_TOKEN is in this environment: an agent started from here could answer its own questions")
	}
}

// print writes what was found.
func (d *doctor) print(asJSON bool) error {
	if asJSON {
		return printEach(d.e.Stdout, d.found)
	}
	var b strings.Builder
	s := newStyle(d.e, d.e.StdoutTTY)
	for _, f := range d.found {
		word := fmt.Sprintf("%-4s", f.State)
		switch f.State {
		case stateOK:
			word = s.green(word)
		case stateWarn:
			word = s.yellow(word)
		default:
			word = s.red(word)
		}
		fmt.Fprintf(&b, "%s  %s: %s\n", word, f.About, f.Text)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "      %s %s\n", s.dim("->"), f.Remedy)
		}
	}
	_, err := io.WriteString(d.e.Stdout, b.String())
	return err
}

// environOf is the environment a process was started with.
func environOf(proc string, pid int) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
}
