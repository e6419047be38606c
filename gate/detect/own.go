package detect

import "strings"

// ownSafe are the subcommands of the gate that only tell something.
var ownSafe = map[string]bool{"version": true, "help": true, "check": true, "--help": true, "--version": true, "-h": true, "-v": true, "demo": true}

// checkOwnProgram judges commands that are, or act on, the gate's own program.
func (r *run) checkOwnProgram(c *cmd) {
	names := r.d.places.ownNames
	if names[c.name] {
		sub := ""
		for _, a := range c.args {
			if !strings.HasPrefix(a.text, "-") || ownSafe[a.text] {
				sub = a.text
				break
			}
		}
		switch {
		case ownSafe[sub]:
		case sub == "audit" || sub == "config" || sub == "":
			r.report("self.read", c.at, "")
		default:
			r.report("self.control", c.at, sub)
		}
		return
	}
	switch c.name {
	case "kill", "killall", "pkill", "xkill", "skill", "systemctl", "service", "initctl", "sv", "rc-service", "rc-update", "supervisorctl", "launchctl", "docker", "podman", "pm2", "update-rc.d", "chkconfig", "brew", "apt", "apt-get", "dnf", "yum", "apk", "pacman", "snap", "helm", "kubectl", "nerdctl", "s6-svc", "monit", "loginctl", "gdb", "strace", "fuser":
	default:
		return
	}
	acts := false
	for _, a := range c.args {
		acts = acts || ownVerbs[a.text]
	}
	for _, a := range c.args {
		t := a.text
		base := t[strings.LastIndexByte(t, '/')+1:]
		base = strings.TrimSuffix(strings.TrimSuffix(base, ".service"), ".socket")
		base = strings.Trim(base, "^$[]")
		if names[base] && (acts || ownAlways[c.name]) {
			r.report("self.stop", c.at, "")
			return
		}
	}
}

// ownAlways are programs that do harm to what they are given; the others do it
// with one of the ownVerbs.
var ownAlways = map[string]bool{"kill": true, "killall": true, "pkill": true, "xkill": true, "skill": true, "gdb": true, "fuser": true}

var ownVerbs = map[string]bool{
	"stop": true, "disable": true, "mask": true, "kill": true, "restart": true, "try-restart": true, "reload": true, "reload-or-restart": true, "edit": true, "revert": true, "set-property": true,
	"isolate": true, "freeze": true, "rm": true, "remove": true, "purge": true, "uninstall": true, "delete": true, "bootout": true, "unload": true, "pause": true, "down": true, "del": true, "exec": true, "scale": true, "off": true, "-d": true, "-R": true, "cp": true, "update": true, "clean": true, "force-stop": true, "scaledown": true, "autoremove": true,
}

// routeVars are the variables that lead an agent through the gate.
var routeVars = map[string]bool{
	"ANTHROPIC_BASE_URL": true, "OPENAI_BASE_URL": true, "OPENAI_API_BASE": true, "OPENAI_API_BASE_URL": true, "ANTHROPIC_API_URL": true, "ANTHROPIC_API_BASE": true,
}

// ownVariable judges setting a variable.
func (s *shell) ownVariable(name string, vals []string, at span) {
	switch {
	case routeVars[name] && len(vals) == 1 && vals[0] == "":
		s.r.report("self.route", at, name)
	case routeVars[name] || strings.HasPrefix(name, "CALLGATE_"):
		s.r.report("self.reroute", at, name)
	case name == "HISTFILE" && len(vals) > 0 && (vals[0] == "/dev/null" || vals[0] == ""), (name == "HISTSIZE" || name == "HISTFILESIZE") && len(vals) > 0 && vals[0] == "0":
		s.r.report("evade.history", at, name)
	case name == "LD_PRELOAD" || name == "DYLD_INSERT_LIBRARIES" || name == "LD_AUDIT":
		if len(vals) > 0 && vals[0] != "" {
			s.r.report("privilege.preload", at, vals[0])
		}
	case name == "PROMPT_COMMAND" || name == "BASH_ENV" || name == "ENV" && len(vals) > 0 && strings.Contains(vals[0], "/"):
		for _, v := range vals {
			s.runCode(field{text: v, at: at}, stream{}, nil, true)
		}
	}
}

// prefixed judges a variable that is set for one command.
func (s *shell) prefixed(name string, f field, at span) {
	s.ownVariable(name, []string{f.text}, at)
	switch name {
	case "DOCKER_HOST":
		if !strings.HasPrefix(f.text, "unix:") && f.text != "" {
			s.r.report("infra.remote-daemon", at, f.text)
		}
	case "PAGER", "GIT_PAGER", "GIT_EDITOR", "EDITOR", "VISUAL", "GIT_SSH_COMMAND", "GIT_SSH", "MANPAGER", "LESSOPEN", "GIT_SEQUENCE_EDITOR", "GIT_EXTERNAL_DIFF", "SSH_ASKPASS", "GIT_ASKPASS", "SUDO_ASKPASS", "BROWSER", "GIT_PROXY_COMMAND":
		if f.text != "" {
			s.runCode(f, stream{}, nil, false)
		}
	}
}

// unset judges removing a variable.
func (s *shell) unset(name string, at span) {
	switch {
	case routeVars[name] || strings.HasPrefix(name, "CALLGATE_"):
		s.r.report("self.route", at, name)
	case name == "HISTFILE":
		s.r.report("evade.history", at, name)
	}
	s.vars.set(name, value{alts: []string{""}})
}
