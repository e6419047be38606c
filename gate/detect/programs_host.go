package detect

import "strings"

// hostPrograms change the machine: power, processes, services, accounts,
// networks, scheduled work.
func hostPrograms() map[string]program {
	return map[string]program{
		"shutdown":                              {rule: "host.power", quiet: "-c --help --version --show"},
		"reboot halt poweroff":                  {rule: "host.power", quiet: "--help --version -w --wtmp-only"},
		"init telinit":                          {judge: runlevel},
		"kill":                                  {judge: kill},
		"killall killall5":                      {judge: killall},
		"pkill skill":                           {judge: pkill},
		"fuser":                                 {judge: fuser},
		"systemctl":                             {judge: systemctl},
		"service rc-service":                    {judge: service},
		"launchctl":                             {judge: launchctl},
		"loginctl":                              {judge: firstOperand("host.service", "terminate-session", "kill-session", "terminate-user", "kill-user", "terminate-seat")},
		"update-rc.d chkconfig":                 {judge: firstOperand("host.service", "*")},
		"ufw":                                   {judge: firstOperand("host.firewall", "disable", "reset", "delete", "allow", "default")},
		"iptables ip6tables ebtables arptables": {judge: iptables},
		"iptables-restore ip6tables-restore":    {rule: "host.firewall"},
		"nft":                                   {judge: firstOperand("host.firewall", "flush", "delete", "-f")},
		"pfctl":                                 {judge: anyOption("host.firewall", "d", "F", "f")},
		"firewall-cmd":                          {judge: firewallCmd},
		"setenforce":                            {rule: "evade.security"},
		"csrutil spctl":                         {judge: anyWord("evade.security", "disable", "--master-disable", "--global-disable", "--remove", "clear")},
		"auditctl":                              {judge: anyOption("evade.security", "D", "e", "d")},
		"aa-disable aa-teardown aa-complain":    {rule: "evade.security"},
		"xattr":                                 {judge: anyWord("evade.security", "com.apple.quarantine")},
		"logrotate":                             {judge: outLog},
		"journalctl":                            {judge: journalctl},
		"ifconfig":                              {judge: anyWord("host.network", "down", "delete")},
		"ip":                                    {judge: ipCommand},
		"nmcli":                                 {judge: anyWord("host.network", "delete", "off", "down", "disconnect")},
		"route":                                 {judge: anyWord("host.network", "add", "del", "delete", "flush")},
		"tc":                                    {judge: anyWord("host.network", "add", "del", "replace", "change")},
		"sysctl":                                {judge: sysctl},
		"modprobe insmod rmmod kmod kextload kextunload": {judge: modules},
		"kexec":                               {rule: "host.power"},
		"date":                                {judge: date},
		"timedatectl hwclock":                 {judge: anyWord("host.settings", "set-time", "set-timezone", "set-ntp", "--set", "-w", "--systohc")},
		"hostnamectl":                         {judge: anyWord("host.settings", "set-hostname", "hostname")},
		"mount":                               {access: accessNone},
		"umount":                              {judge: anyOption("host.mount", "a", "f", "l")},
		"swapoff":                             {judge: anyOption("host.mount", "a")},
		"fdesetup bless nvram firmwarepasswd": {judge: anyWord("host.settings", "disable", "-c", "-delete", "removerecovery", "--setboot", "-setpasswd")},
		"tmutil":                              {judge: anyWord("fs.backup", "delete", "disable", "deletelocalsnapshots", "deleteinprogress")},
		"timeshift snapper borg restic duplicity": {judge: anyWord("fs.backup", "--delete", "--delete-all", "delete", "prune", "forget", "remove-older-than", "--restore", "remove-all-but-n-full", "undochange", "rollback")},

		"useradd adduser userdel deluser usermod groupadd addgroup groupdel delgroup groupmod gpasswd chpasswd newusers sysadminctl dseditgroup dsenableroot pwconv vigr vipw chsh chfn lusermod luseradd": {judge: account, access: accessNone},
		"passwd":                           {judge: passwd},
		"pw":                               {judge: anyWord("privilege.account", "useradd", "userdel", "usermod", "groupadd", "groupdel", "groupmod", "adduser", "add", "mod", "del", "lock", "unlock", "user")},
		"dscl":                             {judge: anyWord("privilege.account", "-create", "-append", "-passwd", "-delete", "create", "append", "passwd", "delete", "-merge", "-change", "-authonly", "authonly")},
		"visudo":                           {judge: visudo},
		"pam_tally2":                       {access: accessNone},
		"polkit-agent":                     {rule: "privilege.account"},
		"crontab":                          {judge: crontab},
		"at batch":                         {judge: at},
		"atrm":                             {rule: "persist.schedule"},
		"update-alternatives alternatives": {judge: anyWord("persist.system", "--install", "--set", "--remove", "--remove-all")},
		"security":                         {judge: anyWord("secret.store", "dump-keychain", "find-generic-password", "find-internet-password", "delete-keychain", "add-trusted-cert", "export", "delete-generic-password", "find-certificate", "authorizationdb", "unlock-keychain", "delete-certificate", "remove-trusted-cert")},
		"secret-tool pass gopass keyring lpass bw":                            {judge: anyWord("secret.store", "lookup", "search", "show", "get", "rm", "clear", "export", "delete", "del")},
		"tcpdump tshark dumpcap wireshark ettercap bettercap responder ngrep": {rule: "secret.capture", quiet: "-r --version -D --help -h -v"},
		"gcore":                                  {rule: "secret.memory"},
		"hashcat john hydra medusa mimipenguin":  {rule: "secret.crack", quiet: "--help --version -h"},
		"update-ca-certificates update-ca-trust": {rule: "evade.trust"},
		"gsettings":                              {judge: anyWord("host.settings", "reset-recursively")},
		"defaults":                               {judge: anyWord("persist.write", "LoginHook", "LogoutHook")},
		"ldapadd ldapmodify ldapdelete ldappasswd samba-tool": {rule: "privilege.account", quiet: "-n --dry-run"},
	}
}

// anyWord finds rule when one of the words stands among the arguments.
func anyWord(rule string, words ...string) func(*shell, *cmd) {
	return func(s *shell, c *cmd) {
		for _, a := range c.args {
			for _, w := range words {
				if a.text == w {
					s.r.report(rule, c.at, "")
					s.checkArgs(c, &program{access: accessRead})
					return
				}
			}
		}
		s.checkArgs(c, &program{access: accessRead})
	}
}

// firstOperand finds rule when the first operand is one of the words, or any at
// all where the word is a star.
func firstOperand(rule string, words ...string) func(*shell, *cmd) {
	return func(s *shell, c *cmd) {
		if hasRaw(c.args, "--dry-run") {
			return
		}
		for _, a := range c.args {
			for _, w := range words {
				if a.text == w || w == "*" && !strings.HasPrefix(a.text, "-") {
					s.r.report(rule, c.at, "")
					return
				}
			}
			if !strings.HasPrefix(a.text, "-") {
				return
			}
		}
	}
}

// anyOption finds rule when one of the options is given.
func anyOption(rule string, names ...string) func(*shell, *cmd) {
	return func(s *shell, c *cmd) {
		o := parseOptions(c.args, "", "", false)
		if o.exact(names...) {
			s.r.report(rule, c.at, "")
		}
		s.checkArgs(c, &program{access: accessRead})
	}
}

func runlevel(s *shell, c *cmd) {
	for _, a := range c.args {
		if a.text == "0" || a.text == "6" {
			s.r.report("host.power", c.at, "")
		} else if a.text == "1" || strings.EqualFold(a.text, "s") {
			s.r.report("host.service", c.at, "")
		}
	}
}

// kill judges signals to everything, to process groups that are not known, and
// to processes that a search finds.
func kill(s *shell, c *cmd) {
	args := c.args
	if hasRaw(args, "-l", "-L", "--list", "--table") {
		return
	}
	hard := hasRaw(args, "-9", "-KILL", "-SIGKILL", "-kill")
	for i := 0; i < len(args); i++ {
		t := args[i].text
		switch {
		case t == "--":
		case t == "-s" || t == "-n" || t == "--signal" || t == "-q":
			i++
			hard = hard || i < len(args) && (args[i].text == "9" || strings.HasSuffix(strings.ToUpper(args[i].text), "KILL"))
		case i == 0 && strings.HasPrefix(t, "-") && len(args) > 1: // the signal
		case t == "-1":
			s.r.report("host.kill-all", c.at, "")
			return
		case t == "1":
			s.r.report("host.kill", c.at, "process 1")
		case hard && args[i].from&fromCode != 0 && !args[i].known():
			s.r.report("host.kill", c.at, "processes that a search finds")
			return
		}
	}
}

func killall(s *shell, c *cmd) {
	o := parseOptions(c.args, "sunoyZ", "signal user older-than younger-than", false)
	if o.exact("l", "list", "V", "version") {
		return
	}
	hard := hasRaw(c.args, "-9", "-KILL", "-SIGKILL")
	if f, ok := o.get("s", "signal"); ok && f.has {
		hard = hard || f.val.text == "9" || strings.HasSuffix(f.val.text, "KILL")
	}
	switch {
	case c.name == "killall5":
		s.r.report("host.kill-all", c.at, "")
	case hard || o.exact("r", "regexp", "u", "user"):
		s.r.report("host.kill", c.at, "")
	}
}

func pkill(s *shell, c *cmd) {
	o := parseOptions(c.args, "uUGgPtsFj", "signal euid uid group pgroup parent terminal session", false)
	hard := hasRaw(c.args, "-9", "-KILL", "-SIGKILL")
	if f, ok := o.get("signal"); ok && f.has {
		hard = hard || f.val.text == "9" || strings.HasSuffix(f.val.text, "KILL")
	}
	if hard || o.exact("u", "U", "euid", "uid") {
		s.r.report("host.kill", c.at, "")
	}
	for _, f := range o.operands {
		if f.text == "." || f.text == ".*" || f.text == "" {
			s.r.report("host.kill-all", c.at, "")
		}
	}
}

func fuser(s *shell, c *cmd) {
	o := parseOptions(c.args, "Nn", "", false)
	if o.exact("m", "M") && o.exact("k", "kill") {
		s.r.report("host.kill", c.at, "")
	}
}

func systemctl(s *shell, c *cmd) {
	o := parseOptions(c.args, "HMptsno", "host machine type state property signal lines output root when job-mode kill-whom when", false)
	if len(o.operands) == 0 || o.exact("help") {
		return
	}
	switch v := o.operands[0].text; v {
	case "poweroff", "reboot", "halt", "kexec", "soft-reboot":
		if f, ok := o.get("when"); ok && (f.val.text == "cancel" || f.val.text == "show") {
			return
		}
		s.r.report("host.power", c.at, v)
	case "stop", "disable", "mask", "kill", "isolate", "emergency", "rescue", "suspend", "hibernate", "hybrid-sleep", "default", "exit", "set-default", "revert":
		s.r.report("host.service", c.at, v)
	case "enable", "link", "edit", "reenable", "preset", "import-environment", "set-environment", "unmask":
		s.r.report("persist.service", c.at, v)
	}
}

func service(s *shell, c *cmd) {
	if len(c.args) >= 2 && (c.args[1].text == "stop" || c.args[1].text == "disable") {
		s.r.report("host.service", c.at, "")
	}
}

func launchctl(s *shell, c *cmd) {
	if len(c.args) == 0 {
		return
	}
	switch v := c.args[0].text; v {
	case "load", "bootstrap", "enable", "submit", "setenv", "config":
		s.r.report("persist.service", c.at, v)
	case "unload", "bootout", "disable", "remove", "kill":
		s.r.report("host.service", c.at, v)
	case "reboot":
		s.r.report("host.power", c.at, v)
	}
}

func iptables(s *shell, c *cmd) {
	o := parseOptions(c.args, "tjpsdiom", "table jump protocol source destination in-interface out-interface match dport sport", false)
	if o.exact("F", "X", "P", "D", "I", "A", "R", "Z", "flush", "delete", "insert", "append", "policy", "replace", "delete-chain") {
		s.r.report("host.firewall", c.at, "")
	}
}

func firewallCmd(s *shell, c *cmd) {
	for _, a := range c.args {
		if strings.HasPrefix(a.text, "--add-") || strings.HasPrefix(a.text, "--remove-") || a.text == "--panic-on" || strings.HasPrefix(a.text, "--set-") {
			s.r.report("host.firewall", c.at, a.text)
			return
		}
	}
}

// outLog is for programs that write a log where an option says.
func outLog(s *shell, c *cmd) {
	o := parseOptions(c.args, "ls", "state log", false)
	for _, f := range o.flags {
		if f.has {
			s.checkWord(f.val, accessWrite)
		}
	}
	for _, f := range o.operands {
		s.checkWord(f, accessRead)
	}
}

func journalctl(s *shell, c *cmd) {
	for _, a := range c.args {
		if strings.HasPrefix(a.text, "--vacuum") || a.text == "--rotate" {
			s.r.report("evade.logs", c.at, "")
		}
	}
}

func ipCommand(s *shell, c *cmd) {
	for i, a := range c.args {
		switch a.text {
		case "add", "del", "delete", "flush", "replace", "change":
			if i > 0 {
				s.r.report("host.network", c.at, a.text)
				return
			}
		case "set":
			if hasRaw(c.args, "down", "promisc", "address") {
				s.r.report("host.network", c.at, a.text)
				return
			}
		}
	}
}

func sysctl(s *shell, c *cmd) {
	for _, a := range c.args {
		if a.text == "-w" || a.text == "--write" || a.text == "-p" || strings.HasPrefix(a.text, "--load") || strings.Contains(a.text, "=") && !strings.HasPrefix(a.text, "-") {
			s.r.report("host.settings", c.at, "")
			return
		}
	}
}

func modules(s *shell, c *cmd) {
	o := parseOptions(c.args, "CdS", "config dirname", false)
	if o.exact("n", "dry-run", "show", "D", "c", "showconfig", "V", "version", "help", "h") || c.name == "kmod" && (hasRaw(c.args, "list", "static-nodes")) || len(c.args) == 0 {
		return
	}
	s.r.report("host.module", c.at, "")
}

func date(s *shell, c *cmd) {
	o := parseOptions(c.args, "drIfv", "date reference file rfc-3339 iso-8601", false)
	if o.exact("s", "set") {
		s.r.report("host.settings", c.at, "")
		return
	}
	for _, f := range o.operands {
		if !strings.HasPrefix(f.text, "+") && len(f.text) >= 8 && strings.Trim(f.text, "0123456789.") == "" && !o.exact("j") {
			s.r.report("host.settings", c.at, "")
		}
	}
}

func account(s *shell, c *cmd) {
	if len(c.args) == 0 && c.name != "chpasswd" || hasRaw(c.args, "--help", "-D", "--version") && len(c.args) == 1 {
		return
	}
	s.r.report("privilege.account", c.at, "")
}

func passwd(s *shell, c *cmd) {
	o := parseOptions(c.args, "nxwir", "", false)
	if o.exact("S", "status", "a", "help") {
		return
	}
	s.r.report("privilege.account", c.at, "")
}

func visudo(s *shell, c *cmd) {
	if o := parseOptions(c.args, "f", "file", false); !o.exact("c", "check", "V", "version", "help", "h") {
		s.r.report("persist.write", c.at, "")
	}
}

func crontab(s *shell, c *cmd) {
	o := parseOptions(c.args, "u", "", false)
	if o.exact("l", "V") {
		return
	}
	s.r.report("persist.schedule", c.at, "")
	for _, f := range o.operands {
		if st := s.fileStream(f); st.known {
			s.cronLines(st.text, f.at)
		}
	}
	if c.in.known {
		s.cronLines(c.in.text, c.at)
	}
}

// cronLines reads the commands in a crontab.
func (s *shell) cronLines(t string, at span) {
	for _, l := range strings.Split(t, "\n") {
		f := strings.Fields(l)
		n := 5
		if len(f) > 0 && strings.HasPrefix(f[0], "@") {
			n = 1
		}
		if len(f) > n && !strings.HasPrefix(l, "#") && !strings.Contains(l, hole) {
			s.nested(strings.Join(f[n:], " "), at, stream{}, nil)
		}
	}
}

// at runs what it reads later.
func at(s *shell, c *cmd) {
	o := parseOptions(c.args, "qft", "", false)
	if o.exact("l", "V", "c") {
		return
	}
	s.r.report("persist.schedule", c.at, "")
	switch f, ok := o.get("f"); {
	case ok && f.has:
		s.checkWord(f.val, accessRead)
	case c.in.known && c.in.text != "":
		s.nested(c.in.text, c.at, stream{}, nil)
	}
}
