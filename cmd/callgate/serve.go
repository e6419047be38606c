package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"callgate/config"
	"callgate/gate"
	"callgate/gate/console"
	"callgate/gate/redact"
)

// gcPercent is how much the heap may grow between two collections where GOGC
// does not say it.
const gcPercent = 400

// How an ending serve treats what is under way.
const (
	// drainTime is how long answers may still run on by themselves.
	drainTime = 3 * time.Second
	// leaveTime is how long they may take once every wait was ended.
	leaveTime = 5 * time.Second
)

const serveLong = `Runs the gate: agents speak to --listen instead of their provider, people answer
questions over --control.

Requests go to /NAME/... of a named upstream; openai and anthropic are built in,
--upstream adds others or replaces these. The well-known paths of the two, and
those of Ollama where an upstream has that name, also work bare, so that one
address serves every SDK. The same address is a proxy for agents whose base URL
cannot be set (HTTPS_PROXY): providers of the upstreams are gated, other hosts
refused unless forward.others is tunnel. The agent must trust the authority of
"callgate ca".

The control token is CALLGATE_CONTROL_TOKEN; without one serve makes a token and
prints it at its start, and nowhere else. Where the output goes to a log that
the agent can read, set a token of your own.

Ends on SIGINT, SIGTERM and SIGHUP; a second signal ends it at once.

Exit codes: 0 ended by a signal; 1 failed; 64 wrong usage; 78 wrong
configuration.`

type serveOptions struct {
	config, addrFile, listen, control, state string
	upstreams                                []string
	json                                     bool
}

// newServeCommand makes the serve command.
func newServeCommand(e *env) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gate between agents and their providers",
		Long:  serveLong,
		Example: `  callgate serve
  callgate serve --listen 127.0.0.1:0 --addr-file /run/user/1000/callgate.addr
  callgate serve --upstream vllm=http://127.0.0.1:8000
  callgate serve --upstream ollama=http://127.0.0.1:11434
  ANTHROPIC_BASE_URL=http://127.0.0.1:4141 claude
  HTTPS_PROXY=http://127.0.0.1:4141 CODEX_CA_CERTIFICATE=~/.local/state/callgate/ca.pem codex`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, src, err := loadConfig(e, o.config, o.flags(cmd)...)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), e, cfg, src, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "configuration `file`")
	f.StringVar(&o.listen, "listen", "", "`address` for agents, HOST:PORT (default 127.0.0.1:4141)")
	f.StringVar(&o.control, "control", "", "`address` for people's answers, HOST:PORT (default 127.0.0.1:4142)")
	f.StringVar(&o.addrFile, "addr-file", "", "write the agents' base URL to `file` once it serves")
	f.StringVar(&o.state, "state", "", "`directory` for approvals, audit log and keys")
	f.StringArrayVar(&o.upstreams, "upstream", nil, "add or replace an upstream, `NAME=URL`; may be repeated")
	f.BoolVar(&o.json, "json", false, "print questions and decisions as JSON, one a line")
	return cmd
}

// flags gives the settings that stand on the command line.
func (o *serveOptions) flags(cmd *cobra.Command) []config.Flag {
	var list []config.Flag
	for _, f := range []struct{ name, key, value string }{
		{"listen", "listen", o.listen},
		{"control", "control.listen", o.control},
		{"state", "state", o.state},
	} {
		if cmd.Flags().Changed(f.name) {
			list = append(list, config.Flag{Name: "--" + f.name, Key: f.key, Value: f.value})
		}
	}
	for _, u := range o.upstreams {
		list = append(list, config.Flag{Name: "--upstream", Key: "upstreams", Value: u})
	}
	return list
}

// listener is one of serve's two, with the server that runs on it.
type listener struct {
	net.Listener
	srv *http.Server
}

// listen opens an address; name is the flag that sets it.
func listen(name, addr string) (*listener, error) {
	network := "tcp"
	if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().Is4() {
		network = "tcp4" // 0.0.0.0 would mean the addresses of IPv6 too
	}
	ln, err := net.Listen(network, addr)
	if err == nil {
		return &listener{Listener: ln}, nil
	}
	hint := "choose an address of this machine, such as " + name + " 127.0.0.1:0 for any free port"
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "is another callgate running? choose another address, or " + name + " 127.0.0.1:0 for any free port"
	}
	return nil, &exitError{code: exitFailed, err: fmt.Errorf("%s: %w", name, err), hints: []string{hint}}
}

// run serves until the server is shut down and reports how that ended.
func (l *listener) run(ended chan<- error) {
	err := l.srv.Serve(l.Listener)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	ended <- err
}

// serve runs the gate until ctx ends.
func serve(ctx context.Context, e *env, cfg *config.Config, src config.Sources, o serveOptions) (err error) {
	if e.Getenv("GOGC") == "" {
		// Little lives long here (a few megabytes), so the collector would run
		// every few dozen requests.
		debug.SetGCPercent(gcPercent)
	}
	// A pipe whose reader is gone is an error of the write, not the end.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	stdout, stderr := newPrinter(e.Stdout), newPrinter(e.Stderr)
	defer stderr.close()
	defer stdout.close()
	log := newLogger(stderr, cfg.Log)
	trace, err := startTracing(ctx, e.Getenv)
	if err != nil {
		return failf(exitConfig, "%w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		if terr := trace.close(ctx); terr != nil {
			log.Warn("traces were lost", "reason", terr.Error())
		}
	}()
	data, err := listen("--listen", cfg.Listen)
	if err != nil {
		return err
	}
	defer data.Close()
	control, err := listen("--control", cfg.Control.Listen)
	if err != nil {
		return err
	}
	defer control.Close()
	own, err := listenAgents(cfg)
	if err != nil {
		return err
	}
	defer closeListeners(own)
	dataAddrs := addresses(data)
	for _, l := range own {
		dataAddrs = append(dataAddrs, addresses(l.listener)...)
	}

	token, hash, err := controlToken(cfg.Control)
	if err != nil {
		return err
	}
	ppl := &people{out: stdout, style: newStyle(e, e.StdoutTTY), wide: e.columns(), json: o.json,
		command: answerCommand(control.Addr().String())}
	parts, err := assemble(ctx, cfg, surroundings{
		notify: ppl.ask, decided: toldOf(cfg.Approvals, ppl.decided),
		own:       slices.Concat(dataAddrs, addresses(control)),
		tokenHash: hash, hosts: []string{cfg.Control.Listen, control.Addr().String()},
		configFile: src.File, tracer: trace.tracer, log: log,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()

	var front http.Handler = parts.data
	servers := []stopper{}
	if cfg.Forward.Enabled {
		fwd, ferr := buildForward(cfg, parts.data, dataAddrs, addresses(control), log)
		if ferr != nil {
			return ferr
		}
		defer fwd.Close()
		front, servers = fwd, append(servers, fwd)
	}
	data.srv = dataServer(front, log)
	control.srv = console.Server(parts.control)
	control.srv.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	ended := make(chan error, 2+len(own))
	go data.run(ended)
	go control.run(ended)
	servers = append(servers, data.srv, control.srv)
	for _, l := range own {
		l.srv = agentServer(front, l.agent, log)
		servers = append(servers, l.srv)
		go l.run(ended)
	}
	running := cap(ended)

	base := "http://" + reachable(data.Addr())
	if o.addrFile != "" {
		if err = writeAddrFile(o.addrFile, base); err == nil {
			defer removeAddrFile(o.addrFile, base)
		}
	}
	if err == nil {
		err = greet(ctx, ppl, cfg, parts, greeting{
			base: base, control: control.Addr().String(), token: token, traces: trace.to, file: src.File,
			own: bases(own),
		})
	}
	if err == nil {
		select {
		case <-ctx.Done():
			log.Info("ending; calls that wait are denied, their questions stay open")
		case err = <-ended:
			running--
		}
	}
	shutdown(context.WithoutCancel(ctx), parts.gate, servers...)
	for ; running > 0; running-- {
		err = errors.Join(err, <-ended)
	}
	return err
}

// stopper is a server, or what serves like one.
type stopper interface {
	Shutdown(context.Context) error
	Close() error
}

// shutdown lets answers run on for a moment, then ends every wait, then cuts
// what is left.
func shutdown(ctx context.Context, g *gate.Gate, servers ...stopper) {
	within := func(d time.Duration) bool {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		ended := make(chan bool, len(servers))
		for _, s := range servers {
			go func() { ended <- s.Shutdown(ctx) == nil }() // none of them waits for another
		}
		done := true
		for range servers {
			done = <-ended && done
		}
		return done
	}
	if within(drainTime) {
		return
	}
	g.Close()
	if within(leaveTime) {
		return
	}
	for _, s := range servers {
		_ = s.Close() // its listener was closed by Shutdown
	}
}

// dataServer serves agents. It has no write timeout: an answer lasts as long
// as a person thinks, and the proxy sets deadlines of its own.
func dataServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 20 * time.Second,
		IdleTimeout:       3 * time.Minute,
		MaxHeaderBytes:    128 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// addresses are those of the listeners, which the proxy never dials.
func addresses(list ...*listener) []netip.AddrPort {
	var out []netip.AddrPort
	for _, l := range list {
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			out = append(out, a.AddrPort())
		}
	}
	return out
}

// controlToken gives the hash of the token that the settings name. Where they
// name none it makes one and returns it too.
func controlToken(c config.Control) (made string, hash [sha256.Size]byte, err error) {
	switch {
	case c.TokenSHA256 != "":
		b, err := hex.DecodeString(c.TokenSHA256)
		if err != nil || len(b) != len(hash) {
			return "", hash, failf(exitConfig, "control.token_sha256: %d hex digits are wanted; printf %%s TOKEN | sha256sum makes them", 2*len(hash))
		}
		copy(hash[:], b)
		return "", hash, nil
	case c.Token != "":
		return "", sha256.Sum256([]byte(c.Token)), nil
	}
	made = "cg_" + rand.Text()
	return made, sha256.Sum256([]byte(made)), nil
}

// answerCommand gives the command line that shows or answers a question here.
// It holds no token: what is printed may end in a log that the agent can read.
func answerCommand(control string) func(what, id string) string {
	before, behind := programName(), ""
	if control != defaultControl {
		behind = " --control " + control
	}
	return func(what, id string) string { return before + " approvals " + what + " " + id + behind }
}

// reachable is the address by which this machine reaches a listener: one that
// listens everywhere is reached by loopback.
func reachable(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return a.String()
	}
	host := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if at.Addr().Is6() && !at.Addr().Is4In6() {
		host = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(host, at.Port()).String()
}

// programName is how a person calls this program from the same directory.
func programName() string {
	called := os.Args[0]
	exe, err := os.Executable()
	switch {
	case err == nil && strings.Contains(filepath.ToSlash(exe), "/go-build"):
		return "go run ./cmd/callgate"
	case !strings.ContainsRune(called, filepath.Separator):
		return called // found on the PATH
	case strings.ContainsAny(called, " '\"$\\"):
		return "callgate"
	}
	return called
}

// writeAddrFile puts the base URL into a file in one step, so that whoever
// waits for the file never reads half of it. What is no regular file stays as
// it is.
func writeAddrFile(path, base string) error {
	info, err := os.Lstat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return failf(exitFailed, "--addr-file: %s is no regular file; name one that may be replaced", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return failf(exitFailed, "--addr-file: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".callgate-addr-*")
	if err != nil {
		return failf(exitFailed, "--addr-file: %s cannot be written: %w; name a file in a directory that exists and may be written to", path, reasonOnly(err))
	}
	_, err = tmp.WriteString(base + "\n")
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		if rerr := os.Remove(tmp.Name()); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return failf(exitFailed, "--addr-file: %s cannot be written: %w", path, reasonOnly(err))
	}
	return nil
}

// reasonOnly leaves out the path of a file's error: it is that of a temporary
// file, which says nothing to anybody.
func reasonOnly(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// removeAddrFile takes the file away again, unless another process has written
// its own address there since.
func removeAddrFile(path, base string) {
	if got, err := os.ReadFile(path); err == nil && string(got) == base+"\n" {
		_ = os.Remove(path) // an address that is left behind does no harm
	}
}

// newLogger makes the log.
func newLogger(out io.Writer, l config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		level = slog.LevelInfo // the settings were validated
	}
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: maskAttr}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, opts))
	}
	return slog.New(slog.NewTextHandler(out, opts))
}

// maskAttr keeps secrets out of the log, whoever wrote them there.
func maskAttr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(redact.Secrets(v.String()))
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			a.Value = slog.StringValue(redact.Secrets(err.Error()))
		}
	}
	return a
}
