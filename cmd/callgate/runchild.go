package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is the agent's process. Where callgate has the terminal and no other
// program of its job shares it, the agent gets a process group of its own and
// the terminal with it, as from a shell: what is typed reaches it alone, and
// callgate can take the terminal over to ask. Else it stays in callgate's
// group, so that the rest of a pipeline keeps the terminal too.
type child struct {
	pid      int
	tty      *terminal // nil where there is none
	ownGroup bool

	ended chan int      // its exit code, once
	stops chan struct{} // it was stopped, as by Ctrl-Z

	mu     sync.Mutex // guards what is below
	paused bool       // callgate stopped it itself
	gone   bool
}

// terminal is the controlling terminal of this process.
type terminal struct {
	f *os.File
	// group is the process group of callgate.
	group int
	// was is how the terminal was set when callgate started.
	was *unix.Termios
}

// openTerminal gives the controlling terminal, nil where there is none.
func openTerminal() *terminal {
	// Opened so, reads block, which the runtime's own opening would not let
	// them.
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), "/dev/tty")
	was, err := unix.IoctlGetTermios(int(f.Fd()), getTermios)
	if err != nil {
		_ = f.Close()
		return nil
	}
	return &terminal{f: f, group: unix.Getpgrp(), was: was}
}

// foreground gives the process group that has the terminal.
func (t *terminal) foreground() int {
	g, err := unix.IoctlGetInt(int(t.f.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return g
}

// giveTo makes a process group the one that has the terminal. The signal by
// which the system stops whoever does that from the background is ignored for
// the moment.
func (t *terminal) giveTo(group int) error {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(int(t.f.Fd()), unix.TIOCSPGRP, group)
}

// restore sets the terminal as it was found.
func (t *terminal) restore() {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetTermios(int(t.f.Fd()), setTermios, t.was) // nobody could be told
}

// findProgram looks a program up as a shell does.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return filepath.Abs(path)
	case errors.Is(err, exec.ErrDot):
		return filepath.Abs(path)
	case errors.Is(err, os.ErrPermission):
		return "", failf(126, "%s cannot be run: %w", name, os.ErrPermission)
	case errors.Is(err, syscall.EISDIR):
		return "", failf(126, "%s cannot be run: it is a directory", name)
	}
	if words := strings.Fields(name); len(words) > 1 {
		if _, err := exec.LookPath(words[0]); err == nil {
			return "", failf(127, "%q was not found; leave the quotes out: %s run -- %s", name, programName(), name)
		}
	}
	return "", failf(127, "%s was not found; give its path, or install it", name)
}

// startChild starts the agent with the three streams of this process. wantGroup
// asks for a group of its own where that is possible.
func startChild(path string, argv, environ []string, files []*os.File, tty *terminal, wantGroup bool) (*child, error) {
	c := &child{ended: make(chan int, 1), stops: make(chan struct{}, 1), tty: tty}
	attr := &os.ProcAttr{Env: environ, Files: files, Sys: &syscall.SysProcAttr{}}
	if wantGroup && tty != nil && tty.foreground() == tty.group {
		c.ownGroup = true
		attr.Sys.Setpgid = true
		attr.Sys.Foreground = true
		attr.Sys.Ctty = int(tty.f.Fd())
	}
	p, err := os.StartProcess(path, argv, attr)
	if err != nil {
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			err = pe.Err
		}
		return nil, failf(126, "%s cannot be run: %w", path, err)
	}
	c.pid = p.Pid
	_ = p.Release() // it is waited for by its number, to hear of stops too
	go c.wait()
	return c, nil
}

// wait hears of every stop and of the end.
func (c *child) wait() {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(c.pid, &ws, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			c.end(exitFailed)
			return
		case ws.Exited():
			c.end(ws.ExitStatus())
			return
		case ws.Signaled():
			c.end(128 + int(ws.Signal()))
			return
		case ws.Stopped():
			select {
			case c.stops <- struct{}{}:
			default: // one is waiting to be looked at
			}
		}
	}
}

func (c *child) end(code int) {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.ended <- code
}

// kill sends a signal to the agent, or to its whole group.
func (c *child) kill(sig syscall.Signal, group bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return // the number may be somebody else's by now
	}
	pid := c.pid
	if group && c.ownGroup {
		pid = -pid
	}
	_ = unix.Kill(pid, sig) // it may have ended just now
}

// pass hands on a signal that this process got. What the terminal sends to
// the whole foreground job has reached an agent of the same group already.
func (c *child) pass(sig syscall.Signal) {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH:
		if !c.ownGroup && c.tty != nil && c.tty.foreground() == c.tty.group {
			return
		}
		c.kill(sig, true)
	default:
		c.kill(sig, sig == syscall.SIGHUP)
	}
}

// stopped is called when the agent was stopped: callgate stops too, so that
// the shell gets the terminal back and fg or bg act on both.
func (c *child) stopped(resumed <-chan os.Signal) {
	c.mu.Lock()
	paused := c.paused
	c.mu.Unlock()
	if paused || !c.ownGroup {
		// Callgate itself stopped it, or the terminal stopped both.
		return
	}
	if c.tty.foreground() == c.pid {
		_ = c.tty.giveTo(c.tty.group) // the shell does it itself otherwise
	}
	drain(resumed)
	if err := unix.Kill(0, syscall.SIGTSTP); err != nil {
		c.resume()
		return
	}
	// A group that no shell looks after is not stopped by that; then nobody
	// would ever continue it.
	select {
	case <-resumed:
	case <-time.After(time.Second):
	}
	c.resume()
}

func drain(ch <-chan os.Signal) {
	for {
		select {
		case <-ch:
		default:
			return
		}
	}
}

// resume lets a stopped agent go on, with the terminal if callgate has it.
func (c *child) resume() {
	if !c.ownGroup {
		return
	}
	c.mu.Lock()
	gone, paused := c.gone, c.paused
	c.mu.Unlock()
	if gone || paused {
		return
	}
	if c.tty.foreground() == c.tty.group {
		_ = c.tty.giveTo(c.pid)
	}
	c.kill(syscall.SIGCONT, true)
}

// pause stops the agent and takes the terminal; the function that it returns
// undoes that. It refuses where the agent has set the terminal up for itself,
// as a full-screen program does: that screen could not be put back.
func (c *child) pause() (undo func(), err error) {
	if c.tty == nil {
		return nil, errors.New("there is no terminal")
	}
	now, err := unix.IoctlGetTermios(int(c.tty.f.Fd()), getTermios)
	if err != nil {
		return nil, fmt.Errorf("the terminal: %w", err)
	}
	if now.Lflag&unix.ICANON == 0 {
		return nil, errors.New("the agent uses the terminal interactively")
	}
	if !c.ownGroup {
		if c.tty.foreground() != c.tty.group {
			return nil, errors.New("callgate runs in the background")
		}
		c.mu.Lock()
		c.paused = true
		c.mu.Unlock()
		c.kill(syscall.SIGSTOP, false)
		return c.unpause(0), nil
	}
	holder := c.tty.foreground()
	if holder != c.pid {
		return nil, errors.New("another program has the terminal")
	}
	c.mu.Lock()
	c.paused = true
	c.mu.Unlock()
	c.kill(syscall.SIGSTOP, true)
	undo = c.unpause(holder)
	if err := c.tty.giveTo(c.tty.group); err != nil {
		undo()
		return nil, fmt.Errorf("the terminal: %w", err)
	}
	return undo, nil
}

// unpause gives the terminal back to that group, 0 for none, and lets the
// agent go on.
func (c *child) unpause(group int) func() {
	return func() {
		if group != 0 {
			_ = c.tty.giveTo(group)
		}
		c.mu.Lock()
		c.paused = false
		c.mu.Unlock()
		c.kill(syscall.SIGCONT, true)
	}
}

// leftBehind gives the processes that still have callgate's address when the
// agent has ended, where the process table can be read. Those that are just
// ending, of the same signal as the agent, do not count, nor do those with one
// of the variables of mine, NAME=VALUE: they serve this run alone and are ended.
func leftBehind(proc, base string, mine []string) []int {
	var left []int
	for i := range 10 {
		left = left[:0]
		entries, err := os.ReadDir(proc)
		if err != nil {
			return nil
		}
		for _, entry := range entries {
			pid, err := strconv.Atoi(entry.Name())
			if err != nil {
				continue
			}
			environ, err := environOf(proc, pid)
			if err != nil || !slices.ContainsFunc(environ, func(kv string) bool {
				_, value, _ := strings.Cut(kv, "=")
				rest, ours := strings.CutPrefix(value, base)
				return ours && (rest == "" || rest[0] == '/')
			}) {
				continue
			}
			if slices.ContainsFunc(mine, func(kv string) bool { return slices.Contains(environ, kv) }) {
				if i == 0 {
					_ = unix.Kill(pid, syscall.SIGTERM) // it may have ended just now
				}
				continue
			}
			left = append(left, pid)
		}
		if len(left) == 0 {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	slices.Sort(left)
	return left
}
