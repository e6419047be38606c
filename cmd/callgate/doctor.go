package main

import (
	"context"
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
	"golang.org/x/sys/unix"

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
		Args: noArgs,
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
	// sentTo is a callgate that the environment leads to, "" for none, and
	// proxied that it is one for HTTPS_PROXY.
	sentTo  string
	proxied bool
}

func (d *doctor) say(state, about, remedy, text string, args ...any) {
	// Much of it is what the examined program chose.
	d.found = append(d.found, finding{state, about, redact.Visible(fmt.Sprintf(text, args...)), redact.Visible(remedy)})
}

// examine looks at everything. pid is 0 for the environment of this process.
func (d *doctor) examine(ctx context.Context, path string, pid int) {
	d.gates = map[string]error{}
	d.configuration(path)
	if d.cfg != nil {
		d.state(d.cfg.State)
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
			getenv = func(string) string { return "" }
		} else {
			getenv = func(name string) string { return lookupVar(list, name) }
		}
	}
	d.way(ctx, getenv)
	if d.cfg != nil {
		d.listeners(ctx)
	}
	if pid == 0 || !slices.ContainsFunc(d.found, func(f finding) bool { return f.About == "process" }) {
		d.variables(ctx, getenv)
		d.proxies(ctx, getenv)
		d.certificates(ctx, getenv)
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
	cfg, src, err := loadChecked(d.e, path, servable)
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
		if at, err := unmakable(dir); err != nil {
			d.say(stateFail, "state", "let this user write there, or set state", "%s is not there and cannot be made: %s: %v", dir, at, err)
			return
		}
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
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		d.say(stateFail, "state", "let this user write to it, or set state", "%s cannot be written to: %v", dir, err)
		return
	}
	d.say(stateOK, "state", "", "%s", dir)
}

// unmakable says why a directory cannot be made, and at which of those above
// it; nil where it can.
func unmakable(dir string) (at string, err error) {
	for at = filepath.Dir(dir); ; at = filepath.Dir(at) {
		if _, err = os.Stat(at); !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			break
		}
	}
	if err != nil {
		return at, reasonOnly(err)
	}
	return at, unix.Access(at, unix.W_OK|unix.X_OK)
}

// listeners asks whether a callgate serve is there. Who is sent to another
// callgate needs none.
func (d *doctor) listeners(ctx context.Context) {
	base := d.base()
	err := d.gate(ctx, base)
	switch {
	case err == nil:
		d.say(stateOK, "serve", "", "callgate serves agents at %s", base)
	case d.sentTo != "":
		d.say(stateOK, "serve", "", "no callgate at %s, and none is needed there: the one at %s is used", base, d.sentTo)
	case errors.Is(err, errNoGate):
		d.say(stateWarn, "serve", "name another address with listen, or end that program; callgate run takes a free one", "something else than callgate answers at %s", base)
	default:
		d.say(stateWarn, "serve", "callgate serve starts it; callgate run -- AGENT brings its own", "no callgate runs at %s (%v)", base, err)
	}
}

// base is where agents reach a callgate serve of this configuration.
func (d *doctor) base() string {
	if d.cfg == nil {
		return "http://127.0.0.1:4141"
	}
	return "http://" + dialable(d.cfg.Listen)
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

var (
	errNoGate = errors.New("something else answers there")
	errNoURL  = errors.New("it is no http or https URL")
	errToken  = errors.New("callgate is there and does not know the token")
)

// gate says why no callgate answers at the origin of a URL, nil where one does
// that takes the agent's token in it, if it has one (errToken).
// No proxy is asked: an agent that is set up rightly asks none either.
func (d *doctor) gate(ctx context.Context, base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errNoURL
	}
	at := u.Scheme + "://" + u.Host + "/"
	if _, known := d.gates[at]; !known {
		d.gates[at] = askGate(ctx, at, nil)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	if !strings.HasPrefix(first, "~") && u.User == nil || d.gates[at] != nil {
		return d.gates[at]
	}
	if !strings.HasPrefix(first, "~") {
		return askGate(ctx, at, u.User)
	}
	return askGate(ctx, at+first+"/", nil)
}

// askGate asks whether callgate is at an address. user is what a client of a
// proxy shows it.
func askGate(ctx context.Context, at string, user *url.Userinfo) error {
	ctx, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	if user != nil {
		pass, _ := user.Password()
		req.SetBasicAuth(user.Username(), pass)
		req.Header["Proxy-Authorization"] = req.Header["Authorization"]
		delete(req.Header, "Authorization")
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return unreached(err)
	}
	defer res.Body.Close()
	head, err := io.ReadAll(io.LimitReader(res.Body, 64))
	if err != nil {
		return err
	}
	if res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusProxyAuthRequired {
		return errToken
	}
	if !strings.HasPrefix(string(head), "callgate is running") {
		return errNoGate
	}
	return nil
}

// unreached is why nothing could be asked, without the address, which stands
// beside it anyway.
func unreached(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if oe, ok := errors.AsType[*net.OpError](err); ok {
		err = oe.Err
	}
	if de, ok := errors.AsType[*net.DNSError](err); ok {
		return errors.New(de.Err)
	}
	if se, ok := errors.AsType[*os.SyscallError](err); ok {
		err = se.Err
	}
	return err
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

// way finds out which callgate the environment leads to.
func (d *doctor) way(ctx context.Context, getenv func(string) string) {
	for _, v := range baseVariables {
		if raw := getenv(v.name); d.sentTo == "" && raw != "" && d.gate(ctx, raw) == nil {
			d.sentTo = strings.TrimSuffix(shown(raw), "/v1")
		}
	}
	if name := anySet(getenv, httpsProxyNames); name != "" && forwardProxy {
		if at := proxyOrigin(getenv(name)); at != "" && d.gate(ctx, at) == nil {
			d.proxied = true
			d.sentTo = firstOf(d.sentTo, at)
		}
	}
}

// variables looks where the base URLs lead.
func (d *doctor) variables(ctx context.Context, getenv func(string) string) {
	set := map[string]bool{}
	for _, v := range baseVariables {
		raw := getenv(v.name)
		if raw == "" {
			continue
		}
		set[v.api] = true
		remedy := fmt.Sprintf("start the agent with callgate run, or set %s=%s", v.name, d.base()+v.path)
		err := d.gate(ctx, raw)
		switch {
		case err == nil:
			d.say(stateOK, v.name, "", "leads to callgate at %s", shown(raw))
		case errors.Is(err, errToken):
			d.say(stateFail, v.name, "set it anew with the agent's token; callgate agents token makes one", "leads to callgate, which does not know the agent's token in it: its requests are refused")
		case errors.Is(err, errNoGate):
			d.say(stateFail, v.name, remedy, "leads past callgate, to %s", shown(raw))
		case errors.Is(err, errNoURL):
			d.say(stateFail, v.name, remedy, "is no http or https URL")
		case isLoopbackURL(raw):
			d.say(stateFail, v.name, "start callgate there, or start the agent with callgate run", "nothing can be reached at %s: %v", shown(raw), err)
		default:
			d.say(stateFail, v.name, remedy, "leads past callgate, to %s, where nothing can be reached from here: %v", shown(raw), err)
		}
	}
	for _, api := range slices.Sorted(maps.Keys(keysOf)) {
		key := anySet(getenv, keysOf[api])
		if set[api] || key == "" {
			continue
		}
		i := slices.IndexFunc(baseVariables, func(v variable) bool { return v.api == api })
		v := baseVariables[i]
		if host := d.hostOf(api); d.proxied && host != "" && !excepted(getenv, host) {
			d.say(stateOK, v.name, "", "is not set, and need not be: %s is asked through the proxy, which is callgate", host)
			continue
		}
		d.say(stateWarn, v.name, fmt.Sprintf("start the agent with callgate run, or set %s=%s", v.name, d.base()+v.path),
			"is not set, and %s is: programs use it at the provider itself, past callgate", key)
	}
	if len(set) == 0 && anySet(getenv, append(slices.Clone(keysOf["openai-chat"]), keysOf["anthropic"]...)) == "" {
		d.say(stateOK, "base URLs", "", "none is set, and there is no key that could be used without one")
	}
}

// hostOf is the host of the default upstream of an API, "" for none.
func (d *doctor) hostOf(api string) string {
	if d.cfg == nil {
		return ""
	}
	u, err := url.Parse(d.cfg.Upstreams[d.cfg.DefaultUpstreams.ByDialect()[api]].URL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// shown is a URL as it may be printed.
func shown(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "what is no URL"
	}
	return redact.Visible(redact.Secrets(u.Redacted()))
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
	b.WriteString(d.summary())
	_, err := io.WriteString(d.e.Stdout, b.String())
	return err
}

// summary says at the end how much there is to do.
func (d *doctor) summary() string {
	var failed, warned int
	for _, f := range d.found {
		switch f.State {
		case stateFail:
			failed++
		case stateWarn:
			warned++
		}
	}
	switch {
	case failed > 0:
		return fmt.Sprintf("\n%d failed, %d to look at\n", failed, warned)
	case warned > 0:
		return fmt.Sprintf("\nnothing failed, %d to look at\n", warned)
	}
	return "\nnothing to do\n"
}

// environOf is the environment a process was started with.
func environOf(proc string, pid int) ([]string, error) {
	b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "environ"))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
}
