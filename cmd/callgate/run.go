package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"callgate/config"
	"callgate/gate"
	"callgate/gate/console"
	"callgate/gate/redact"
)

// forwardProxy says that the data listener can be a forward proxy too.
const forwardProxy = true

const runLong = `Starts callgate on free ports of this machine with private state, and the agent
with everything set that sends it there. When the agent ends, callgate does,
with the agent's exit code (128 and the signal's number if a signal ended it).

Every agent gets the base URL variables of the known SDKs. Agents that need a
flag or a file have a recipe, chosen by the program's name; the user's own
files are never changed. --list shows the recipes, --print-env what would be
set. A provider that the environment or the agent's settings name stays the
one that is spoken to. Variables of callgate are kept from the agent, provider
keys are passed on.

Questions (--ask):
  other  are answered from another terminal; the start says how (default)
  tty    are put at this terminal while the agent is stopped; only for agents
         that do not use the terminal themselves
  none   are not put: dangerous calls are denied at once

callgate's log, audit log and approvals are in a private directory that is
removed at the end, unless --state names one.

Exit codes: the agent's; 1 callgate failed; 64 wrong usage, or an agent that
cannot be gated; 78 wrong configuration; 126 the agent cannot be run; 127 not
found.`

type runOptions struct {
	config, listen, control, state string
	upstreams                      []string
	ask, recipe                    string
	force, list, printEnv, json    bool
}

// newRunCommand makes the run command.
func newRunCommand(e *env) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- AGENT [ARGUMENT]...",
		Short: "Start an agent with callgate around it",
		Long:  runLong,
		Example: `  callgate run -- claude
  callgate run --ask tty -- pi -p 'tidy up the build folder'
  callgate run --ask none -- opencode run 'fix the tests'
  callgate run --upstream openai=http://127.0.0.1:8000 -- python agent.py
  callgate run --print-env -- pi
  callgate run --list`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case o.list && len(args) > 0:
				return fmt.Errorf("--list takes no agent, and %q is one", args[0])
			case !o.list && len(args) == 0:
				return errors.New("the agent is missing; name its program behind --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := refuseEmpty(cmd); err != nil {
				return err
			}
			switch {
			case o.list:
				return listRecipes(e, o.json)
			case o.printEnv:
				return printLaunch(e, o, args)
			case o.json:
				return usagef("--json goes with --list or --print-env; what is printed else is the agent's")
			}
			return runAgent(cmd.Context(), e, o, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what stands behind the agent's name is the agent's
	f.StringVar(&o.config, "config", "", "configuration `file`")
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` for the agent, HOST:PORT")
	f.StringVar(&o.control, "control", "127.0.0.1:0", "`address` for people's answers, HOST:PORT")
	f.StringVar(&o.state, "state", "", "`directory` for log, audit log and approvals, which is kept")
	f.StringArrayVar(&o.upstreams, "upstream", nil, "add or replace an upstream, `NAME=URL`; may be repeated")
	f.StringVar(&o.ask, "ask", "", "where questions are answered: `other`, tty or none (default other)")
	f.StringVar(&o.recipe, "recipe", "", "`name` of the recipe for the agent, or none (default: by the program's name)")
	f.BoolVar(&o.force, "force", false, "start an agent that cannot be gated")
	f.BoolVar(&o.list, "list", false, "show the recipes and what they set")
	f.BoolVar(&o.printEnv, "print-env", false, "show what would be set, and start nothing")
	f.BoolVar(&o.json, "json", false, "print JSON (with --list or --print-env)")
	return cmd
}

// load gives the settings of a run: those of callgate, but with addresses and
// state of its own, as a serve may have taken the usual ones.
func (o *runOptions) load(e *env, state string) (*config.Config, config.Sources, error) {
	flags := []config.Flag{
		{Name: "--listen", Key: "listen", Value: o.listen},
		{Name: "--control", Key: "control.listen", Value: o.control},
		{Name: "--state", Key: "state", Value: state},
	}
	for _, u := range o.upstreams {
		flags = append(flags, config.Flag{Name: "--upstream", Key: "upstreams", Value: u})
	}
	cfg, src, err := loadConfig(e, o.config, flags...)
	if err != nil {
		return nil, src, err
	}
	if err := alone(cfg); err != nil {
		return nil, src, err
	}
	if cfg.World.Cwd == "" {
		if dir, err := os.Getwd(); err == nil {
			cfg.World.Cwd = dir
		}
	}
	return cfg, src, nil
}

// prepared chooses the recipe and prepares the launch.
func (o *runOptions) prepared(e *env, cfg *config.Config, src config.Sources, base, dir string, args []string) (*launch, *recipe, error) {
	r, at, err := chooseRecipe(o.recipe, args[0], args[1:])
	if err != nil {
		return nil, nil, err
	}
	l := &launch{
		cfg: cfg, src: src, base: base, dir: dir, getenv: e.Getenv,
		program: args[0], args: slices.Clone(args[1:]), at: at, known: r != nil,
	}
	for _, err := range []error{r.unread(), l.prepare(r)} {
		bad, ok := errors.AsType[ungated](err)
		switch {
		case ok && !o.force:
			return nil, nil, &exitError{code: exitUsage, err: bad, hints: []string{"so it was not started; --force starts it all the same"}}
		case ok:
			l.note("%s; started all the same (--force)", bad.reason)
		case err != nil:
			if _, ok := errors.AsType[*exitError](err); ok {
				return nil, nil, err
			}
			return nil, nil, failf(exitConfig, "%w", err)
		}
	}
	return l, r, nil
}

// streams are the standard streams as the agent gets them.
func (e *env) streams() ([]*os.File, error) {
	var files []*os.File
	for _, s := range []any{e.Stdin, e.Stdout, e.Stderr} {
		if o, ok := s.(*output); ok {
			s = o.w
		}
		f, ok := s.(*os.File)
		if !ok {
			return nil, errors.New("the agent needs the standard streams of a process")
		}
		files = append(files, f)
	}
	return files, nil
}

// privateDir makes the directory of one run, and takes away those of runs that
// were killed before they could.
func privateDir(e *env) (dir string, remove func() error, err error) {
	parent := ""
	switch home := e.Getenv("HOME"); {
	case filepath.IsAbs(e.Getenv("XDG_STATE_HOME")):
		parent = filepath.Join(e.Getenv("XDG_STATE_HOME"), "callgate-run")
	case filepath.IsAbs(home):
		parent = filepath.Join(home, ".local", "state", "callgate-run")
	default:
		parent = filepath.Join(os.TempDir(), "callgate-run-"+strconv.Itoa(os.Getuid()))
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", nil, failf(exitFailed, "the private directory: %w; set XDG_STATE_HOME to one that may be written to", err)
	}
	if err := ownedAlone(parent); err != nil {
		return "", nil, err
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return "", nil, failf(exitFailed, "the private directory: %w", err)
	}
	for _, entry := range entries {
		word, _, _ := strings.Cut(entry.Name(), "-")
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = os.RemoveAll(filepath.Join(parent, entry.Name())) // else the next run does it
		}
	}
	dir, err = os.MkdirTemp(parent, strconv.Itoa(os.Getpid())+"-*")
	if err != nil {
		return "", nil, failf(exitFailed, "the private directory: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// ownedAlone refuses a directory that somebody else could have prepared.
func ownedAlone(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return failf(exitFailed, "the private directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return failf(exitFailed, "the private directory: %s is not a directory of this user; remove it, or set XDG_STATE_HOME", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return failf(exitFailed, "the private directory: %w", err)
		}
	}
	return nil
}

// place decides where questions are answered.
func (o *runOptions) place(c config.Control, tty *terminal) (where string, why string, err error) {
	token := c.Token != "" || c.TokenSHA256 != ""
	switch o.ask {
	case "":
		if tty == nil && !token {
			return askNone, "there is neither a terminal nor a control token, so dangerous calls are denied at once", nil
		}
		return askOther, "", nil
	case askOther:
		if tty == nil && !token {
			return "", "", usagef("--ask other: there is no terminal to show the control token on; set CALLGATE_CONTROL_TOKEN for callgate run")
		}
	case askTTY:
		if tty == nil {
			return "", "", usagef("--ask tty: there is no terminal; use other or none")
		}
	case askNone:
	default:
		return "", "", usagef("--ask is %q; use other, tty or none", o.ask)
	}
	return o.ask, "", nil
}

// runAgent starts callgate and the agent and waits for the agent's end.
func runAgent(ctx context.Context, e *env, o runOptions, args []string) (err error) {
	files, err := e.streams()
	if err != nil {
		return err
	}
	path, err := findProgram(args[0])
	if err != nil {
		return err
	}
	signals, resumed := make(chan os.Signal, 16), make(chan os.Signal, 1)
	signal.Notify(signals, runSignals()...)
	defer signal.Stop(signals)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	// A signal is the agent's, and callgate ends when the agent does.
	ctx = context.WithoutCancel(ctx)

	dir, remove, err := privateDir(e)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	cfg, src, err := o.load(e, firstOf(o.state, filepath.Join(dir, "state")))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.State, 0o700); err != nil {
		return failf(exitFailed, "the state directory: %w; name one that may be written to with --state", err)
	}
	logFile, err := os.OpenFile(filepath.Join(cfg.State, "callgate.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return failf(exitFailed, "the log: %w; name a state directory that may be written to with --state", err)
	}
	defer logFile.Close()
	tty := openTerminal()
	if tty != nil {
		defer tty.f.Close()
	}
	code, err := gated(ctx, e, o, args, &running{
		cfg: cfg, src: src, dir: dir, path: path, files: files, logFile: logFile, tty: tty,
		signals: signals, resumed: resumed,
	})
	if err != nil {
		return err
	}
	if code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// runSignals are those that a run hands on.
func runSignals() []os.Signal {
	list := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGWINCH}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

// running is what one run has to work with.
type running struct {
	cfg              *config.Config
	src              config.Sources
	dir, path        string
	files            []*os.File
	logFile          *os.File
	tty              *terminal
	signals, resumed chan os.Signal
}

// gated serves while the agent runs and gives the agent's exit code.
func gated(ctx context.Context, e *env, o runOptions, args []string, run *running) (code int, err error) {
	if e.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	cfg := run.cfg
	out := newPrinter(run.logFile)
	defer out.close()
	log := newLogger(out, cfg.Log)
	trace, err := startTracing(ctx, e.Getenv)
	if err != nil {
		return 0, failf(exitConfig, "%w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(ctx, leaveTime)
		defer cancel()
		if terr := trace.close(ctx); terr != nil {
			log.Warn("traces were lost", "reason", terr.Error())
		}
	}()
	data, err := listen("--listen", cfg.Listen)
	if err != nil {
		return 0, err
	}
	defer data.Close()
	control, err := listen("--control", cfg.Control.Listen)
	if err != nil {
		return 0, err
	}
	defer control.Close()

	l, r, err := o.prepared(e, cfg, run.src, "http://"+reachable(data.Addr()), run.dir, args)
	if err != nil {
		return 0, err
	}
	own := newOwnAgent(cfg, r, args[0])
	l.held(e.Environ, own)
	agents, err := own.agents()
	if err != nil {
		return 0, err
	}
	token, hash, err := controlToken(cfg.Control)
	if err != nil {
		return 0, err
	}
	if run.src.InFile("control.token") {
		l.note("control.token stands in %s, which the agent can read; control.token_sha256 would do", run.src.File)
	}
	where, why, err := o.place(cfg.Control, run.tty)
	if err != nil {
		return 0, err
	}
	if why != "" {
		l.note("%s", why)
	}
	a := &asker{
		place: where, tty: run.tty, log: log, style: newStyle(e, run.tty != nil),
		by:     firstOf(redact.Visible(e.Getenv("USER")), "the terminal"),
		queue:  make(chan gate.Approval, questionQueue),
		people: &people{out: out, wide: questionWidth, command: answerCommand(control.Addr().String())},
	}
	var count tally
	told := toldOf(cfg.Approvals, a.people.decided)
	parts, err := assemble(ctx, cfg, surroundings{
		notify: a.notify,
		decided: func(r *gate.Request, d gate.Decision) {
			if d.Verdict != gate.Allow {
				count.denied.Add(1)
			}
			told(r, d)
		},
		agents:    agents,
		own:       addresses(data, control),
		tokenHash: hash, hosts: []string{control.Addr().String()},
		configFile: run.src.File, tracer: trace.tracer, log: log,
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, parts.Close()) }()
	a.answer, a.look = parts.desk.Answer, parts.desk.Approval
	parts.data.Dialects = count.reading(parts.data.Dialects)

	var front http.Handler = parts.data
	servers := []stopper{}
	if forwardProxy && cfg.Forward.Enabled {
		if run.src.Of("forward.others").Kind == "default" {
			cfg.Forward.Others = "tunnel" // what the agent installs and looks up must go on working
		}
		fwd, err := buildForward(cfg, parts.data, addresses(data), addresses(control), log)
		if err != nil {
			return 0, err
		}
		defer fwd.Close()
		front, servers = fwd, append(servers, fwd)
	}
	if err := l.forward(); err != nil {
		return 0, err
	}
	data.srv = agentServer(count.counted(front, cfg), own.name, log)
	control.srv = console.Server(parts.control)
	control.srv.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	ended := make(chan error, 2)
	go data.run(ended)
	go control.run(ended)
	defer func() {
		shutdown(ctx, parts.gate, append(servers, data.srv, control.srv)...)
		err = errors.Join(err, <-ended, <-ended)
	}()

	kept := ""
	if o.state != "" {
		kept = cfg.State
	}
	greetRun(e, run.tty, runGreeting{
		launch: l, recipe: r, place: where, token: token,
		control: control.Addr().String(), kept: kept, open: openDefaults(cfg),
	})
	argv := append([]string{args[0]}, l.args...)
	environ := childEnviron(e.Environ, l.sets, l.gone, firstOf(token, cfg.Control.Token))
	wantGroup := where == askTTY || allTerminals(run.files[:2])
	a.child, err = startChild(run.path, argv, environ, run.files, run.tty, wantGroup)
	if err != nil {
		return 0, err
	}
	stop := a.start(ctx)
	code = watch(a, run)
	stop()
	// In the background the terminal is somebody else's.
	if a.child.ownGroup && run.tty.foreground() == a.child.pid {
		_ = run.tty.giveTo(run.tty.group)
		if code > 128 {
			run.tty.restore() // a program that was killed may have left it anyhow
		}
	}
	farewell(e, &count, kept, leftBehind("/proc", l.base, l.mine))
	return code, nil
}

// watch hands signals on until the agent has ended.
func watch(a *asker, run *running) int {
	c := a.child
	for {
		select {
		case code := <-c.ended:
			return code
		case sig := <-run.signals:
			s, ok := sig.(syscall.Signal)
			if !ok {
				continue
			}
			if s == syscall.SIGTERM || s == syscall.SIGHUP {
				a.closed.Store(true) // a question at the terminal would keep the agent stopped
			}
			c.pass(s)
		case <-c.stops:
			c.stopped(run.resumed)
		case <-run.resumed:
			c.resume()
		}
	}
}

func allTerminals(files []*os.File) bool {
	return !slices.ContainsFunc(files, func(f *os.File) bool { return !term.IsTerminal(int(f.Fd())) })
}

// portless is the address that stands for one that a run would choose.
func (o *runOptions) portless() string {
	host, port, err := net.SplitHostPort(o.listen)
	if err != nil || port != "0" {
		return "http://" + o.listen
	}
	return "http://" + net.JoinHostPort(host, "PORT")
}
