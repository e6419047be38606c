package detect

import "strings"

// verb is a subcommand that changes what cannot be brought back, or what
// others use.
type verb struct {
	// pattern are the leading operands: words, alternatives joined with "|", a
	// trailing "*" for a prefix, "_" for any one word and "**" for any number.
	pattern string
	// need lists options one of which must be given, not those none of which may.
	need, not string
	rule      string
}

// verbOptions are the options of those programs that take a value, short and
// long, before or between the operands.
var verbOptions = map[string][2]string{
	"kubectl":   {"nfolcL", "namespace context kubeconfig cluster user filename selector output server token as field-selector cascade grace-period timeout"},
	"helm":      {"nf", "namespace kube-context kubeconfig values set"},
	"aws":       {"", "profile region output endpoint-url query bucket key stack-name cluster function-name table-name instance-ids"},
	"gcloud":    {"", "project zone region account format filter configuration"},
	"az":        {"gno", "resource-group name subscription output query"},
	"docker":    {"Hclf", "host context config log-level filter"},
	"terraform": {"", "chdir var var-file target state"},
	"gsutil":    {"oh", ""},
	"gh":        {"RXFfHt", "repo method field raw-field header jq template"},
	"heroku":    {"ar", "app remote"},
	"wrangler":  {"e", "env config"},
}

func verbTable() map[string][]verb {
	del := func(patterns ...string) []verb {
		var out []verb
		for _, p := range patterns {
			out = append(out, verb{pattern: p, rule: "infra.cloud"})
		}
		return out
	}
	k8s := []verb{
		{pattern: "delete", not: "dry-run", rule: "infra.cluster"}, {pattern: "drain", not: "dry-run", rule: "infra.cluster"}, {pattern: "cordon|taint|evict", rule: "infra.cluster"}, {pattern: "replace", need: "force", rule: "infra.cluster"},
		{pattern: "scale", not: "dry-run", rule: "infra.cluster"}, {pattern: "rollout undo|restart", rule: "infra.cluster"}, {pattern: "create clusterrolebinding|rolebinding|clusterrole|token", not: "dry-run", rule: "infra.cluster"}, {pattern: "patch|edit", not: "dry-run", rule: "infra.cluster"},
		{pattern: "apply", need: "prune", rule: "infra.cluster"}, {pattern: "get|describe secret*", rule: "secret.store"}, {pattern: "config delete-*|unset", rule: "infra.cluster"}, {pattern: "adm drain|policy", rule: "infra.cluster"},
	}
	t := map[string][]verb{
		"kubectl": k8s, "oc": k8s, "microk8s.kubectl": k8s,
		"helm":      {{pattern: "uninstall|delete|del|un|rollback", not: "dry-run", rule: "infra.cluster"}},
		"kind":      {{pattern: "delete", rule: "infra.cluster"}},
		"minikube":  {{pattern: "delete", rule: "infra.cluster"}},
		"k3d":       {{pattern: "** delete", rule: "infra.cluster"}},
		"eksctl":    {{pattern: "delete|drain", rule: "infra.cluster"}},
		"kops":      {{pattern: "delete", rule: "infra.cluster"}},
		"kubeadm":   {{pattern: "reset", rule: "infra.cluster"}},
		"argocd":    {{pattern: "** delete|terminate-op|rm", rule: "infra.cluster"}},
		"flux":      {{pattern: "delete|uninstall", rule: "infra.cluster"}},
		"terraform": {{pattern: "destroy", rule: "infra.destroy"}, {pattern: "apply", need: "destroy auto-approve", rule: "infra.destroy"}, {pattern: "state rm|mv|push|replace-provider", rule: "infra.destroy"}, {pattern: "force-unlock", rule: "infra.destroy"}, {pattern: "workspace delete", rule: "infra.destroy"}},
		"pulumi":    {{pattern: "destroy|down|refresh|cancel", rule: "infra.destroy"}, {pattern: "stack rm", rule: "infra.destroy"}, {pattern: "state delete", rule: "infra.destroy"}, {pattern: "up|update", need: "yes y", rule: "infra.destroy"}},
		"cdk":       {{pattern: "destroy", rule: "infra.destroy"}}, "cdktf": {{pattern: "destroy", rule: "infra.destroy"}}, "sam": {{pattern: "delete", rule: "infra.destroy"}}, "copilot": {{pattern: "** delete", rule: "infra.destroy"}}, "amplify": {{pattern: "delete|remove", rule: "infra.destroy"}},
		"serverless": {{pattern: "remove", rule: "infra.destroy"}}, "sls": {{pattern: "remove", rule: "infra.destroy"}}, "terragrunt": {{pattern: "destroy|run-all|destroy-all", rule: "infra.destroy"}},
		"vagrant":   {{pattern: "destroy", rule: "infra.destroy"}, {pattern: "snapshot delete", rule: "infra.destroy"}, {pattern: "box remove|prune", rule: "infra.destroy"}},
		"multipass": {{pattern: "delete|purge|stop", rule: "infra.destroy"}}, "virsh": {{pattern: "destroy|undefine|vol-delete|pool-delete|pool-destroy|net-destroy|net-undefine|pool-undefine|shutdown|snapshot-delete|reboot", rule: "infra.destroy"}}, "VBoxManage": {{pattern: "unregistervm|closemedium", rule: "infra.destroy"}, {pattern: "controlvm _ poweroff", rule: "infra.destroy"}}, "qm": {{pattern: "destroy|stop", rule: "infra.destroy"}}, "lxc": {{pattern: "delete|stop", rule: "infra.destroy"}}, "incus": {{pattern: "delete|stop", rule: "infra.destroy"}}, "limactl": {{pattern: "delete", rule: "infra.destroy"}}, "colima": {{pattern: "delete", rule: "infra.destroy"}}, "qemu-img": {{pattern: "snapshot", need: "d a", rule: "infra.destroy"}},
		"aws":    append(del("** delete-*|terminate-*|remove-*|deregister-*|purge-*|reset-*|stop-*|reboot-*|admin-delete-*|admin-disable-*|schedule-key-deletion|disable-*|detach-*|release-*|revoke-*|cancel-*|batch-delete-*|deactivate-*|destroy-*|abort-*|leave-*|put-bucket-policy|put-bucket-acl|put-user-policy|attach-*-policy|attach-user-policy|attach-role-policy|create-access-key|update-assume-role-policy|modify-db-instance|disassociate-*", "s3 rm|rb"), verb{pattern: "s3 sync", need: "delete", rule: "infra.cloud"}, verb{pattern: "** get-secret-value|get-session-token|get-password-data|get-authorization-token|export-credentials", rule: "secret.store"}, verb{pattern: "configure set|export-credentials", rule: "secret.store"}),
		"gcloud": append(del("** delete|destroy|remove-*|disable|reset|stop|purge|rm|cancel|abandon-instances|reset-windows-password|add-iam-policy-binding|set-iam-policy|detach-disk"), verb{pattern: "** versions access", rule: "secret.store"}, verb{pattern: "auth print-*", rule: "secret.store"}),
		"az":     append(del("** delete|purge|delete-batch|deallocate|stop|remove|delete-*|reset|revoke|restart|disable"), verb{pattern: "** secret show|download", rule: "secret.store"}, verb{pattern: "** keys list|renew", rule: "secret.store"}, verb{pattern: "account get-access-token", rule: "secret.store"}),
		"gsutil": append(del("rm|rb|mv"), verb{pattern: "rsync", need: "d", rule: "infra.cloud"}), "bq": del("rm"), "azcopy": del("remove|rm"), "s3cmd": del("del|rm|rb"), "mc": del("rm|rb"), "rclone": del("delete|purge|deletefile|rmdir|rmdirs|cleanup|sync|move"), "doctl": del("** delete|rm|destroy|d|delete-*"), "linode-cli": del("** delete|*-delete"), "hcloud": del("** delete"), "scw": del("** delete|terminate"), "oci": del("** delete|terminate|bulk-delete"), "ibmcloud": del("** *-delete|delete|rm"), "openstack": del("** delete"), "exo": del("** delete"), "vultr-cli": del("** delete"),
		"heroku": del("apps:destroy|pg:reset|addons:destroy|domains:remove|config:unset|ps:stop|pg:credentials:destroy|destroy|access:remove|pipelines:destroy|members:remove|keys:remove|keys:clear|repo:reset|container:rm|labs:disable|certs:remove|spaces:destroy|drains:remove"), "fly": del("** destroy|delete|revoke", "destroy"), "flyctl": del("** destroy|delete|revoke", "destroy"), "netlify": del("** delete|sites:delete|env:unset", "sites:delete"), "vercel": del("rm|remove", "** rm|remove"), "railway": del("delete|down"), "wrangler": del("** delete|rollback|purge", "delete"), "firebase": del("** *:delete|*:disable|*:remove", "*:delete|*:disable|*:remove"), "supabase": del("db reset", "** delete"), "pscale": del("** delete"), "turso": del("** destroy"), "neonctl": del("** delete"), "shopify": del("** delete"), "cf": del("delete*"), "eb": del("terminate"), "render": del("** delete"), "nomad": del("** stop|purge|delete", "stop"), "consul": del("** delete|force-leave", "force-leave|leave"), "vault": append(del("delete|destroy|revoke|operator", "** delete|destroy|disable|revoke|metadata", "lease|token revoke", "kv delete|destroy"), verb{pattern: "read|kv get", rule: "secret.store"}), "etcdctl": del("del|rm|rmdir", "** remove|del"), "zkCli.sh": del("deleteall|rmr"), "kafka-topics": {{pattern: "**", need: "delete", rule: "infra.cloud"}}, "kafka-topics.sh": {{pattern: "**", need: "delete", rule: "infra.cloud"}}, "rabbitmqctl": del("delete_*|stop|stop_app|reset|force_reset|purge_queue|shutdown"), "rabbitmqadmin": del("delete|purge"), "ceph": del("osd purge|rm|destroy|pool", "** delete|rm|purge"), "rbd": del("rm|remove", "snap purge|rm"), "gluster": del("volume delete|stop|reset"),
		"gh":   append(del("repo delete|archive|rename|edit|sync", "release delete|delete-asset", "issue delete|lock|transfer", "secret delete|remove", "variable delete", "cache delete", "run delete|cancel", "workflow disable", "gist delete", "label delete", "ssh-key delete|add", "gpg-key delete", "codespace delete", "project delete|item-delete|field-delete", "alias delete", "auth logout|token", "extension remove", "deploy-key delete|add", "ruleset delete", "pr merge|close"), verb{pattern: "api **", need: "method=DELETE X=DELETE X=PUT method=PUT", rule: "infra.cloud"}),
		"glab": del("** delete|archive|purge", "mr merge|close"), "hub": del("delete", "release delete"), "tea": del("** delete"),
		"npm": append(del("unpublish", "owner|org|team|hook rm|remove|destroy", "token revoke", "profile disable-2fa", "dist-tag rm", "access revoke|set"), verb{pattern: "publish", not: "dry-run", rule: "pkg.publish"}), "pnpm": {{pattern: "publish", not: "dry-run", rule: "pkg.publish"}}, "yarn": {{pattern: "publish", rule: "pkg.publish"}, {pattern: "npm publish", rule: "pkg.publish"}}, "cargo": {{pattern: "publish", not: "dry-run n", rule: "pkg.publish"}, {pattern: "yank|owner", rule: "pkg.publish"}}, "twine": {{pattern: "upload", rule: "pkg.publish"}}, "gem": {{pattern: "push|yank|owner", rule: "pkg.publish"}}, "poetry": {{pattern: "publish", rule: "pkg.publish"}}, "uv": {{pattern: "publish", rule: "pkg.publish"}}, "dotnet": {{pattern: "nuget push|delete", rule: "pkg.publish"}},
		"zfs": {{pattern: "destroy|rollback", not: "n", rule: "disk.volumes"}}, "zpool": {{pattern: "destroy|labelclear|remove|offline|detach|create|clear", not: "n", rule: "disk.volumes"}}, "btrfs": {{pattern: "subvolume|sub delete", rule: "disk.volumes"}, {pattern: "device|dev delete|remove", rule: "disk.volumes"}, {pattern: "balance start", rule: "disk.volumes"}}, "mdadm": {{pattern: "**", need: "zero-superblock stop S create C remove r fail f", rule: "disk.volumes"}}, "dmsetup": {{pattern: "remove|remove_all|wipe_table|clear", rule: "disk.volumes"}}, "xfs_admin": {{pattern: "**", need: "U L", rule: "disk.volumes"}}, "bcachefs": {{pattern: "format", rule: "disk.format"}}, "pvresize": {{pattern: "**", rule: "disk.volumes"}}, "resize2fs": {{pattern: "**", need: "M", rule: "disk.volumes"}}, "hdiutil": {{pattern: "erasekeys|burn", rule: "disk.volumes"}},
		"dropdb": {{pattern: "**", rule: "db.drop"}}, "dropuser": {{pattern: "**", rule: "db.drop"}}, "mysqladmin": {{pattern: "** drop|flush-privileges|password|shutdown|kill", rule: "db.drop"}}, "pg_dropcluster": {{pattern: "**", rule: "db.drop"}}, "pg_resetwal": {{pattern: "**", rule: "db.drop"}}, "pg_restore": {{pattern: "**", need: "c clean", rule: "db.drop"}}, "mongorestore": {{pattern: "**", need: "drop", rule: "db.drop"}}, "prisma": {{pattern: "migrate reset", rule: "db.drop"}, {pattern: "db push", need: "force-reset accept-data-loss", rule: "db.drop"}}, "alembic": {{pattern: "downgrade", rule: "db.drop"}}, "sequelize": {{pattern: "db:drop|db:migrate:undo:all", rule: "db.drop"}}, "knex": {{pattern: "migrate:rollback", rule: "db.drop"}}, "artisan": {{pattern: "migrate:fresh|migrate:reset|migrate:refresh|db:wipe", rule: "db.drop"}}, "django-admin": {{pattern: "flush", rule: "db.drop"}}, "influx": {{pattern: "delete|bucket", rule: "db.drop"}}, "dolt": {{pattern: "reset", need: "hard", rule: "db.drop"}},
		"docker-machine": {{pattern: "rm|kill|stop", rule: "infra.destroy"}},
		"brew":           {{pattern: "services stop|kill", rule: "host.service"}}, "pm2": {{pattern: "delete|kill|flush", rule: "host.service"}}, "supervisorctl": {{pattern: "stop|shutdown|remove", rule: "host.service"}}, "nginx": {{pattern: "**", need: "s", rule: "host.service"}}, "apachectl": {{pattern: "stop", rule: "host.service"}}, "rcctl": {{pattern: "stop|disable", rule: "host.service"}}, "sv": {{pattern: "stop|down|kill|exit", rule: "host.service"}}, "initctl": {{pattern: "stop", rule: "host.service"}}, "monit": {{pattern: "stop|unmonitor", rule: "host.service"}},
		"svn": {{pattern: "revert|cleanup", need: "R recursive remove-unversioned", rule: "git.discard"}, {pattern: "delete|rm|remove", rule: "git.discard"}}, "hg": {{pattern: "update|up|revert", need: "C clean all a", rule: "git.discard"}, {pattern: "purge|strip", rule: "git.discard"}}, "jj": {{pattern: "abandon", rule: "git.discard"}, {pattern: "op restore|undo", rule: "git.discard"}}, "bfg": {{pattern: "**", rule: "git.rewrite"}}, "p4": {{pattern: "obliterate", rule: "git.rewrite"}, {pattern: "revert", rule: "git.discard"}},
		"conda": {{pattern: "env remove", rule: "pkg.remove"}}, "nix-collect-garbage": {{pattern: "**", need: "d delete-old", rule: "pkg.remove"}}, "winget": {{pattern: "uninstall", rule: "pkg.remove"}}, "choco": {{pattern: "uninstall", rule: "pkg.remove"}}, "rustup": {{pattern: "self uninstall", rule: "pkg.remove"}},
		"tccutil": {{pattern: "reset", rule: "evade.security"}}, "dmesg": {{pattern: "**", need: "c C clear", rule: "evade.logs"}}, "wevtutil": {{pattern: "cl|clear-log", rule: "evade.logs"}},
	}
	t["tofu"] = t["terraform"]
	return t
}

// judgeVerbs applies the table of subcommands.
func (s *shell) judgeVerbs(c *cmd) {
	vs, ok := s.r.d.verbs[c.name]
	if !ok || hasRaw(c.args, "--help", "help", "--dryrun", "--dry-run") && !strings.Contains(c.name, "drop") {
		return
	}
	vo := verbOptions[c.name]
	o := parseOptions(c.args, vo[0], vo[1], false)
	if o.exact("version", "V") && len(o.operands) == 0 {
		return
	}
	for _, v := range vs {
		s.r.step(1)
		if v.need != "" && !hasOption(o, v.need, c.args) || v.not != "" && hasOption(o, v.not, c.args) || len(c.args) == 0 {
			continue
		}
		if matchVerb(strings.Fields(v.pattern), o.operands) {
			s.r.report(v.rule, c.at, "")
			return
		}
	}
}

// hasOption says whether one of the blank-separated options is given, with one
// dash or two, or with the value after "=".
func hasOption(o options, names string, args []field) bool {
	for _, n := range strings.Fields(names) {
		name, val, hasVal := strings.Cut(n, "=")
		if !hasVal && (o.exact(name) || hasRaw(args, "-"+name)) {
			return true
		}
		for _, f := range o.flags {
			if hasVal && f.name == name && f.has && strings.EqualFold(f.val.text, val) {
				return true
			}
		}
	}
	return false
}

// matchVerb matches operands against a verb's pattern.
func matchVerb(pat []string, ops []field) bool {
	if len(pat) == 0 {
		return true
	}
	if pat[0] == "**" {
		if len(pat) == 1 {
			return true
		}
		for i := range ops {
			if i < 8 && matchVerb(pat[1:], ops[i:]) {
				return true
			}
		}
		return false
	}
	return len(ops) > 0 && matchWord(pat[0], ops[0].text) && matchVerb(pat[1:], ops[1:])
}

func matchWord(pat, w string) bool {
	if pat == "_" {
		return true
	}
	for _, p := range strings.Split(pat, "|") {
		pre, star := strings.CutSuffix(p, "*")
		post, lead := strings.CutPrefix(p, "*")
		switch {
		case p == w, star && strings.HasPrefix(w, pre), lead && strings.HasSuffix(w, post):
			return true
		}
	}
	return false
}

// docker runs commands in containers, reaches other daemons, and removes what
// they hold.
func docker(s *shell, c *cmd) {
	o := parseOptions(c.args, "Hcl", "host context config log-level url connection identity tlscacert tlscert tlskey", true)
	for _, f := range o.flags {
		if (f.name == "H" || f.name == "host" || f.name == "c" || f.name == "context" || f.name == "url" || f.name == "connection" || f.name == "r" || f.name == "remote") && !(f.has && strings.HasPrefix(f.val.text, "unix:")) {
			s.r.report("infra.remote-daemon", c.at, "")
		}
	}
	if len(o.operands) == 0 {
		return
	}
	sub, args := o.operands[0].text, o.operands[1:]
	if sub == "container" || sub == "image" || sub == "volume" || sub == "network" || sub == "system" || sub == "builder" || sub == "context" || sub == "buildx" || sub == "stack" || sub == "swarm" || sub == "node" || sub == "service" || sub == "secret" || sub == "config" || sub == "plugin" || sub == "pod" || sub == "machine" {
		if len(args) > 0 {
			sub, args = sub+" "+args[0].text, args[1:]
		}
	}
	if hasRaw(args[:min(1, len(args))], "--help") {
		return
	}
	force := parseOptions(args, "", "", false)
	switch sub {
	case "compose":
		s.compose(c, args)
	case "exec", "container exec":
		s.inContainer(args, "ewu", "env workdir user env-file detach-keys", c)
	case "run", "create", "container run", "container create":
		s.containerRun(c, args)
	case "rm", "container rm", "rmi", "image rm", "pod rm":
		if force.exact("f", "v", "force", "volumes") || hasHole(args) {
			s.r.report("infra.containers", c.at, sub)
		}
	case "system prune", "volume prune", "volume rm", "volume remove", "image prune", "container prune", "network prune", "network rm", "builder prune", "buildx prune", "stack rm", "stack down", "swarm leave", "node rm", "service rm", "secret rm", "config rm", "plugin rm", "pod prune", "machine rm", "system reset", "context rm", "buildx rm":
		if !force.exact("dry-run") {
			s.r.report("infra.containers", c.at, sub)
		}
	case "stop", "kill", "restart", "pause", "container stop", "container kill", "container restart", "update", "machine stop":
		s.r.report("infra.containers", c.at, sub)
	case "context use":
		s.r.report("infra.remote-daemon", c.at, "")
	case "cp", "container cp":
		for i, f := range parseOptions(args, "", "", false).operands {
			if i == 0 {
				s.checkWord(f, accessRead)
			} else if !strings.Contains(f.text, ":") {
				s.r.writePlace(s.place(f), f.at)
			}
		}
	case "build", "load", "import", "push", "buildx build":
		s.checkArgs(&cmd{name: c.name, args: args, at: c.at}, &program{access: accessRead, values: "ftio"})
	}
}

// inContainer runs the command of docker exec.
func (s *shell) inContainer(args []field, values, long string, c *cmd) {
	o := parseOptions(args, values, long, true)
	if o.exact("privileged") {
		s.r.report("infra.privileged", c.at, "")
	}
	if len(o.operands) > 1 {
		if rest := o.operands[1:]; len(rest) > 1 || !shellNames[baseName(rest[0].text)] {
			s.exec(rest, c.in)
		}
	}
}

func baseName(t string) string { return t[strings.LastIndexByte(t, '/')+1:] }

// containerRun judges what a new container may reach on the host.
func (s *shell) containerRun(c *cmd, args []field) {
	o := parseOptions(args, "evpuwhmlca", "env env-file volume publish user workdir hostname name network mount memory cpus entrypoint label restart platform pull gpus add-host cap-add cap-drop device security-opt pid ipc uts userns shm-size log-driver log-opt ulimit tmpfs link expose dns cidfile volumes-from net ip mac-address group-add runtime annotation stop-signal health-cmd", true)
	for _, f := range o.flags {
		v := f.val.text
		switch {
		case f.name == "privileged" && v != "false":
			s.r.report("infra.privileged", c.at, "")
		case (f.name == "pid" || f.name == "ipc" || f.name == "userns" || f.name == "cgroupns" || f.name == "uts") && v == "host", f.name == "cap-add" && (strings.EqualFold(v, "ALL") || strings.Contains(strings.ToUpper(v), "SYS_ADMIN") || strings.Contains(strings.ToUpper(v), "SYS_PTRACE")), f.name == "security-opt" && strings.Contains(v, "unconfined"):
			s.r.report("infra.privileged", c.at, f.name)
		case f.name == "device":
			if s.place(f.val).kind == placeDevice {
				s.r.report("infra.privileged", c.at, v)
			}
		case f.name == "v" || f.name == "volume" || f.name == "mount":
			s.mounted(f.val, c)
		case f.name == "env-file":
			s.checkWord(f.val, accessRead)
		}
	}
	if len(o.operands) > 1 {
		rest := o.operands[1:]
		if e, ok := o.get("entrypoint"); ok && e.has && e.val.text != "" {
			rest = append([]field{e.val}, rest...)
		}
		if len(rest) == 1 && shellNames[baseName(rest[0].text)] || strings.HasPrefix(rest[0].text, "-") {
			return
		}
		if p := s.r.d.programs[rest[0].text]; shellNames[baseName(rest[0].text)] || p != nil && p.judge != nil {
			s.inside(rest, c)
		}
	}
}

// inside runs a new container's command: what it does to the container's own
// files is lost with it, so only what comes from outside counts.
func (s *shell) inside(words []field, c *cmd) {
	n := len(s.r.found)
	s.exec(words, c.in)
	kept := s.r.found[:n]
	for _, f := range s.r.found[n:] {
		switch f.Category {
		case "remote", "secret", "code", "shell", "self":
			kept = append(kept, f)
		}
	}
	s.r.found = kept
}

// mounted judges a host directory that a container gets.
func (s *shell) mounted(f field, c *cmd) {
	src := f
	src.text, _, _ = strings.Cut(f.text, ":")
	for _, kv := range strings.Split(f.text, ",") {
		for _, k := range [...]string{"src=", "source="} {
			if v, ok := strings.CutPrefix(kv, k); ok {
				src.text = v
			}
		}
	}
	if !strings.ContainsAny(src.text[:min(1, len(src.text))], "/~."+hole) {
		return
	}
	pl := s.place(src)
	switch {
	case pl.kind == placeRoot || pl.kind == placeSystemTop:
		s.r.report("infra.privileged", c.at, "mounts "+src.text)
	case strings.HasSuffix(pl.path, "docker.sock"), strings.HasSuffix(pl.path, "podman.sock"), strings.HasSuffix(pl.path, "containerd.sock"):
		s.r.report("infra.privileged", c.at, "mounts "+src.text)
	default:
		s.checkWord(src, accessRead)
	}
}

func dockerCompose(s *shell, c *cmd) { s.compose(c, c.args) }

// compose judges docker compose.
func (s *shell) compose(c *cmd, args []field) {
	o := parseOptions(args, "fp", "file project-name profile env-file project-directory", true)
	if len(o.operands) == 0 {
		return
	}
	sub, rest := o.operands[0].text, o.operands[1:]
	so := parseOptions(rest, "", "", false)
	switch sub {
	case "down", "rm", "kill", "stop", "restart":
		if hasRaw(args, "--dry-run") {
			return
		}
		s.r.report("infra.containers", c.at, "compose "+sub)
	case "exec", "run":
		s.inContainer(rest, "euwTpv", "env user workdir index name entrypoint volume", c)
	case "up":
		if so.exact("renew-anon-volumes", "V", "force-recreate") {
			s.r.report("infra.containers", c.at, "compose up")
		}
	}
}

// kubectl runs commands in pods.
func kubectl(s *shell, c *cmd) {
	vo := verbOptions["kubectl"]
	o := parseOptions(c.args, vo[0], vo[1], true)
	if len(o.operands) == 0 {
		return
	}
	rest := o.operands[1:]
	switch o.operands[0].text {
	case "kubectl":
		s.exec(o.operands, c.in)
	case "exec":
		i := indexRaw(rest, "--")
		if i >= 0 && i+1 < len(rest) {
			if rest = rest[i+1:]; len(rest) > 1 || !shellNames[baseName(rest[0].text)] {
				s.exec(rest, c.in)
			}
		} else if eo := parseOptions(rest, "nc", "namespace container", true); len(eo.operands) > 1 {
			s.exec(eo.operands[1:], c.in)
		}
	case "run", "debug":
		for _, a := range rest {
			if strings.Contains(a.text, `"privileged":true`) || strings.Contains(a.text, `"privileged": true`) || strings.Contains(a.text, "hostPath") {
				s.r.report("infra.privileged", c.at, "")
			}
		}
	case "apply", "create":
		for i, a := range rest {
			if (a.text == "-f" || a.text == "--filename") && i+1 < len(rest) && strings.HasPrefix(rest[i+1].text, "http") {
				s.r.report("remote.run", c.at, rest[i+1].text)
			}
		}
	case "cp":
		for _, a := range rest {
			s.checkWord(a, accessRead)
		}
	}
}

// npm removes packages and runs those it fetches.
func npm(s *shell, c *cmd) {
	o := parseOptions(c.args, "Cw", "prefix workspace filter cwd call registry tag", true)
	if len(o.operands) == 0 {
		return
	}
	rest := o.operands[1:]
	switch sub := o.operands[0].text; sub {
	case "uninstall", "remove", "rm", "un", "r", "unlink":
		if ro := parseOptions(rest, "", "", false); ro.exact("g", "global") || o.exact("g", "global") {
			s.r.report("pkg.remove", c.at, "")
		}
	case "global":
		if len(rest) > 0 && rest[0].text == "remove" {
			s.r.report("pkg.remove", c.at, "")
		}
	case "exec", "dlx", "x":
		for i, a := range rest {
			if (a.text == "-c" || a.text == "--call") && i+1 < len(rest) {
				s.runCode(rest[i+1], c.in, nil, false)
			}
		}
		if eo := parseOptions(rest, "cp", "call package", true); len(eo.operands) > 0 && eo.operands[0].text != "" {
			s.npxCommand(eo.operands, c)
		}
	case "cache":
	default:
		s.shellArgument(c)
	}
}

func npx(s *shell, c *cmd) {
	o := parseOptions(c.args, "cp", "call package", true)
	if f, ok := o.get("c", "call"); ok && f.has {
		s.runCode(f.val, c.in, nil, false)
	}
	if len(o.operands) > 0 {
		s.npxCommand(o.operands, c)
	}
}

// npxCommand runs a package's program. Names that the tables do not know are
// packages like any other.
func (s *shell) npxCommand(words []field, c *cmd) {
	name, _, _ := strings.Cut(words[0].text, "@")
	if name == "" || !words[0].known() {
		for _, w := range words[1:] {
			s.checkWord(w, accessRead)
		}
		return
	}
	w := words[0]
	w.text = name
	s.exec(append([]field{w}, words[1:]...), c.in)
}

// anyFirst finds rule when the first operand is one of the words.
func anyFirst(rule string, words ...string) func(*shell, *cmd) {
	return func(s *shell, c *cmd) {
		o := parseOptions(c.args, "r", "requirement", false)
		for _, w := range words {
			if len(o.operands) > 0 && o.operands[0].text == w {
				s.r.report(rule, c.at, "")
			}
		}
		s.checkURLs(c)
		s.checkArgs(c, &program{access: accessRead})
	}
}

// packages judges package managers with subcommands: removal, and hooks in
// their options.
func packages(s *shell, c *cmd) {
	o := parseOptions(c.args, "otcn", "option target-release config-file", false)
	for _, f := range o.flags {
		if f.has && (f.name == "o" || f.name == "option") {
			if k, v, ok := strings.Cut(f.val.text, "="); ok && (strings.Contains(k, "Invoke") || strings.Contains(k, "Pager") || strings.Contains(k, "Hooks")) {
				code := f.val
				code.text = strings.TrimPrefix(v, ":")
				s.runCode(code, stream{}, nil, false)
			}
		}
	}
	if len(o.operands) == 0 || o.has("s", "simulate", "dry-run") && c.name != "snap" {
		return
	}
	switch o.operands[0].text {
	case "remove", "purge", "autoremove", "autopurge", "uninstall", "erase", "rm":
		s.r.report("pkg.remove", c.at, "")
	case "untap":
		s.r.report("pkg.remove", c.at, "")
	}
	s.shellArgument(c)
}

// oldPackages judges package managers with options for subcommands.
func oldPackages(s *shell, c *cmd) {
	remove := false
	for _, a := range c.args {
		t := a.text
		switch c.name {
		case "pacman":
			remove = remove || strings.HasPrefix(t, "-R") || t == "--remove"
		case "apk":
			remove = remove || t == "del"
		case "dpkg":
			remove = remove || t == "-r" || t == "-P" || t == "--remove" || t == "--purge" || strings.HasPrefix(t, "--force-")
		case "rpm":
			remove = remove || t == "-e" || t == "--erase" || strings.HasPrefix(t, "-e") && len(t) < 5 || strings.HasPrefix(t, "--eval")
		}
	}
	if remove {
		s.r.report("pkg.remove", c.at, "")
	}
	s.shellArgument(c)
}
