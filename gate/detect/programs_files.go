package detect

import (
	"path"
	"strings"
)

// filePrograms delete, write, move and change files.
func filePrograms() map[string]program {
	return map[string]program{
		"rm grm srm":               {judge: remove},
		"unlink rmdir grmdir":      {judge: removeEach},
		"trash trash-put gio":      {access: accessNone},
		"shred":                    {judge: shred},
		"truncate":                 {judge: truncate},
		"mv gmv":                   {judge: move},
		"cp gcp ditto":             {judge: copyFiles},
		"install ginstall":         {judge: copyFiles},
		"ln gln":                   {judge: link},
		"dd gdd":                   {judge: dd},
		"tee gtee sponge":          {judge: tee, out: func(s *shell, c *cmd) stream { return c.in }},
		"touch":                    {values: "drt", judge: touch},
		"mkdir mkfifo mknod":       {values: "m", judge: makeFiles},
		"sed gsed":                 {judge: sed, out: outThrough},
		"awk gawk mawk nawk goawk": {judge: awk, out: outThrough},
		"chmod":                    {judge: chmod},
		"chown chgrp":              {judge: chown},
		"setfacl":                  {judge: setfacl},
		"chattr chflags":           {rule: "perm.attributes", access: accessWrite},
		"setcap":                   {rule: "perm.setuid", quiet: "-v"},
		"sort gsort":               {judge: sortFiles, out: outThrough},
		"ed ex red":                {access: accessWrite},
		"vi vim nvim view vimdiff rvim ee joe jed nano pico micro emacs-nox": {judge: editor},
		"less more most pg":                    {access: accessRead, out: outCat},
		"tar gtar bsdtar":                      {judge: tar},
		"zip 7z 7za rar":                       {judge: archive},
		"unzip gunzip bunzip2 unxz uncompress": {access: accessRead, values: "dx", out: outCat},
		"gzip bzip2 xz zstd lz4":               {access: accessRead, out: outDecode(func(*cmd, string) (string, bool) { return "", false })},
		"mkfs newfs mke2fs mkdosfs mkntfs mkexfatfs mkswap mkreiserfs": {judge: makeFileSystem},
		"wipefs":                    {judge: wipe("a all", "n no-act")},
		"sgdisk":                    {judge: wipe("z Z zap zap-all o clear d delete", "p print P pretend i info v verify L list-types b backup D display-alignment E end-of-largest F first-in-largest f first-aligned-in-largest V version")},
		"blkdiscard blkzone":        {judge: wipe("", "")},
		"nwipe scrub badblocks":     {judge: wipe("", "n s v")},
		"sfdisk":                    {judge: sfdisk},
		"fdisk gdisk cgdisk cfdisk": {judge: partition},
		"parted":                    {judge: parted},
		"hdparm":                    {judge: hdparm},
		"nvme":                      {judge: nvme},
		"diskutil":                  {judge: diskutil},
		"cryptsetup":                {judge: cryptsetup},
		"lvremove vgremove pvremove lvreduce vgreduce lvresize": {rule: "disk.volumes", quiet: "-t --test --help"},
		"rsync": {judge: rsync},
		"split": {values: "abClnt", access: accessRead},
		"iconv": {judge: outOption("o output")},
	}
}

// remove is rm.
func remove(s *shell, c *cmd) {
	o := parseOptions(c.args, "", "", false)
	rec := o.has("r", "R", "recursive")
	for _, f := range o.operands {
		s.deleteField(f, rec)
	}
	if len(o.operands) == 0 && hasHole(c.args) {
		s.r.report("fs.recursive-delete", c.at, "")
	}
}

func hasHole(args []field) bool {
	for _, a := range args {
		if !a.known() {
			return true
		}
	}
	return false
}

// deleteField judges deleting what a word names.
func (s *shell) deleteField(f field, recursive bool) {
	s.r.step(1)
	pl := s.place(f)
	base := path.Base(pl.path)
	if !recursive && !pl.all && strings.ContainsAny(base, "*?[") && pl.kind == placeWork && !isRegenName(base) {
		// A pattern that takes most of a directory with it.
		if strings.HasPrefix(base, "*") && strings.Count(base, ".") == 0 {
			s.r.report("fs.delete-many", f.at, pl.path)
			return
		}
	}
	if f.from&(fromCode|fromFile) != 0 && !pl.regen && pl.kind != placeTemp && pl.kind != placeSystem && pl.kind != placeSystemTop && !recursive {
		s.r.report("fs.delete-many", f.at, "its names come from another command: "+f.text)
		return
	}
	if f.text == hole {
		if recursive {
			s.r.report("fs.recursive-delete", f.at, "what it deletes is not known")
		}
		return
	}
	s.r.deletePlace(pl, f.at, recursive)
	delete(s.r.files, pl.path)
}

func removeEach(s *shell, c *cmd) {
	o := parseOptions(c.args, "", "", false)
	for _, f := range o.operands {
		if c.name != "rmdir" && c.name != "grmdir" { // rmdir takes empty directories only
			s.deleteField(f, false)
		}
	}
}

func shred(s *shell, c *cmd) {
	o := parseOptions(c.args, "ns", "iterations size random-source", false)
	for _, f := range o.operands {
		pl := s.place(f)
		switch {
		case pl.own:
			s.r.report("self.change", f.at, pl.path)
		case pl.kind == placeDevice:
			s.r.report("disk.wipe", f.at, pl.path)
		default:
			s.r.report("fs.wipe", f.at, pl.path)
			s.r.writePlace(pl, f.at)
		}
	}
}

func truncate(s *shell, c *cmd) {
	o := parseOptions(c.args, "srod", "size reference", false)
	grows := false
	if f, ok := o.get("s", "size"); ok && strings.HasPrefix(f.val.text, "+") {
		grows = true
	}
	for _, f := range o.operands {
		pl := s.place(f)
		if pl.kind == placeTemp || grows {
			continue
		}
		s.r.writePlace(pl, f.at)
		if f, ok := o.get("s", "size"); ok && strings.Trim(f.val.text, "0123456789") == "" {
			s.r.emptied(pl, c.at)
		}
	}
}

// target gives the destination of mv, cp, install and ln, and the sources.
func target(o options) (dst field, src []field, ok bool) {
	if t, has := o.get("t", "target-directory"); has && t.has {
		return t.val, o.operands, true
	}
	if len(o.operands) < 2 {
		return field{}, o.operands, false
	}
	n := len(o.operands) - 1
	return o.operands[n], o.operands[:n], true
}

// into gives where src lands: under dst when that is a directory.
func (s *shell) into(dst, src field) place {
	pl := s.place(dst)
	if strings.HasSuffix(dst.text, "/") || pl.kind == placeHomeTop || pl.kind == placeSystemTop || pl.kind == placeTempTop || pl.kind == placeWorkTop || path.Base(pl.path) == ".ssh" || strings.HasSuffix(pl.path, ".d") || strings.HasSuffix(pl.path, "/systemd/system") {
		d := dst
		d.text = strings.TrimSuffix(dst.text, "/") + "/" + path.Base(src.text)
		return s.place(d)
	}
	return pl
}

func move(s *shell, c *cmd) {
	o := parseOptions(c.args, "St", "suffix target-directory", false)
	dst, src, ok := target(o)
	for _, f := range src {
		pl := s.place(f)
		switch {
		case pl.own:
			s.r.report("self.change", f.at, pl.path)
		case pl.kind == placeRoot || pl.kind == placeSystemTop || pl.kind == placeHomeTop:
			s.r.report("fs.move-root", f.at, pl.path)
		case pl.kind == placeSystem || pl.persist:
			s.r.writePlace(pl, f.at)
		case pl.secret:
			s.r.readPlace(pl, f.at)
		case ok && s.place(dst).path == "/dev/null":
			s.r.report("fs.recursive-delete", c.at, f.text)
		}
	}
	if ok {
		s.land(c, dst, src)
	}
}

// land judges the destination of copied or moved files, and passes on what is
// known of their content.
func (s *shell) land(c *cmd, dst field, src []field) {
	for _, f := range src {
		pl := s.into(dst, f)
		s.r.writePlace(pl, dst.at)
		st := s.fileStream(f)
		if f.text == "/dev/stdin" {
			st = c.in
		}
		if st.known || st.from&(fromNet|fromDecode) != 0 {
			s.made(pl, file{text: st.text, known: st.known, from: st.from})
		}
	}
}

func copyFiles(s *shell, c *cmd) {
	values, long := "St", "suffix target-directory"
	if strings.HasSuffix(c.name, "install") {
		values, long = "Stgmob", "suffix target-directory group mode owner"
	}
	o := parseOptions(c.args, values, long, false)
	if o.exact("d", "directory") && strings.HasSuffix(c.name, "install") {
		for _, f := range o.operands {
			s.checkWord(f, accessWrite)
		}
		return
	}
	if m, ok := o.get("m", "mode"); ok && m.has && setsID(m.val.text) {
		s.r.report("perm.setuid", c.at, "")
	}
	dst, src, ok := target(o)
	for _, f := range src {
		s.checkWord(f, accessRead)
	}
	if ok {
		s.land(c, dst, src)
	}
}

func link(s *shell, c *cmd) {
	o := parseOptions(c.args, "St", "suffix target-directory", false)
	dst, src, ok := target(o)
	if !ok {
		return
	}
	for _, f := range src {
		if pl := s.place(f); pl.secret || pl.own {
			s.r.readPlace(pl, f.at)
		}
		s.r.writePlace(s.into(dst, f), dst.at)
	}
}

func dd(s *shell, c *cmd) {
	var in stream
	for _, a := range c.args {
		k, v, _ := strings.Cut(a.text, "=")
		f := a
		f.text = v
		switch k {
		case "if":
			s.checkWord(f, accessRead)
			in = s.fileStream(f)
		case "of":
			pl := s.place(f)
			s.r.writePlace(pl, a.at)
			if strings.HasPrefix(v, hole) {
				s.r.report("disk.change", a.at, "the target is not known")
			}
			s.made(pl, file{from: in.from | c.in.from})
		}
	}
}

func tee(s *shell, c *cmd) {
	o := parseOptions(c.args, "", "", false)
	for _, f := range o.operands {
		s.writeTo(redirect{to: f, append: o.has("a", "append") || c.name == "sponge"}, c.in)
	}
}

func touch(s *shell, c *cmd) {
	o := parseOptions(c.args, "drt", "date reference time", false)
	for _, f := range o.operands {
		s.checkWord(f, accessWrite)
	}
	if o.exact("r", "reference", "t", "d", "date") {
		if f, ok := o.get("t", "d", "date", "r", "reference"); ok && f.has && len(o.operands) > 0 {
			s.r.report("evade.time", c.at, "")
		}
	}
}

func makeFiles(s *shell, c *cmd) {
	o := parseOptions(c.args, "m", "mode", false)
	if m, ok := o.get("m", "mode"); ok && m.has && setsID(m.val.text) {
		s.r.report("perm.setuid", c.at, "")
	}
	for _, f := range o.operands {
		if pl := s.place(f); pl.own {
			s.r.report("self.change", f.at, pl.path)
		}
	}
	if c.name == "mkfifo" {
		for _, f := range o.operands {
			s.made(s.place(f), file{from: fromCode})
		}
	}
}

// sed edits in place with -i, runs commands with e and writes files with w.
func sed(s *shell, c *cmd) {
	o := parseOptions(c.args, "efl", "expression file line-length", false)
	ops := o.operands
	var scripts []field
	for _, f := range o.flags {
		if (f.name == "e" || f.name == "expression") && f.has {
			scripts = append(scripts, f.val)
		}
	}
	if len(scripts) == 0 && !o.exact("f", "file") && len(ops) > 0 {
		scripts, ops = ops[:1], ops[1:]
	}
	for _, sc := range scripts {
		s.sedScript(sc)
	}
	a := accessRead
	if f, ok := o.get("i", "I", "in-place"); ok && (f.name != "I" || len(f.name) > 0) {
		a = accessWrite
	}
	for _, f := range ops {
		s.checkWord(f, a)
	}
}

// sedScript looks for the commands of sed that reach beyond its input.
func (s *shell) sedScript(f field) {
	t := f.text
	s.r.bytes(len(t))
	t = strings.TrimLeft(t, "0123456789,$ ")
	if len(t) > 1 && t[0] == 's' {
		if p := strings.LastIndexByte(t, t[1]); p > 1 {
			flags := t[p+1:]
			if i := strings.IndexAny(flags, " ;}\n"); i > 0 {
				flags = flags[:i]
			}
			if flags != "" && strings.Trim(flags, "gIipemMw0123456789") == "" && strings.Contains(flags, "e") {
				s.r.report("code.unread", f.at, "sed runs the lines it edits")
			}
		}
		if i := strings.LastIndex(t, "w "); i > 0 && strings.LastIndexByte(t, t[1]) < i {
			p := f
			p.text = strings.TrimSpace(t[i+2:])
			s.checkWord(p, accessWrite)
		}
		return
	}
	rest := strings.TrimLeft(t, "0123456789,$ ")
	switch {
	case strings.HasPrefix(rest, "e ") || rest == "e":
		code := f
		code.text = strings.TrimSpace(rest[1:])
		if code.text == "" {
			s.r.report("code.unread", f.at, "sed runs the lines it reads")
			return
		}
		s.runCode(code, stream{}, nil, false)
	case strings.HasPrefix(rest, "w ") || strings.HasPrefix(rest, "W "):
		p := f
		p.text = strings.TrimSpace(rest[1:])
		s.checkWord(p, accessWrite)
	}
}

// setsID says whether a mode sets the user or group id on execution.
func setsID(m string) bool {
	if d := strings.TrimLeft(m, "0"); len(d) == 4 && strings.Trim(d, "01234567") == "" {
		return (d[0]-'0')&6 != 0
	}
	for _, part := range strings.Split(m, ",") {
		who, what, ok := strings.Cut(part, "+")
		if !ok {
			who, what, ok = strings.Cut(part, "=")
		}
		if ok && strings.Contains(what, "s") && strings.Trim(who, "ugoa") == "" {
			return true
		}
	}
	return false
}

// opensToAll says whether a mode lets everybody write.
func opensToAll(m string) bool {
	if d := strings.TrimLeft(m, "0"); d != "" && strings.Trim(d, "01234567") == "" && len(d) >= 3 {
		return (d[len(d)-1]-'0')&2 != 0
	}
	for _, part := range strings.Split(m, ",") {
		who, what, ok := strings.Cut(part, "+")
		if !ok {
			who, what, ok = strings.Cut(part, "=")
		}
		if ok && strings.Contains(what, "w") && (strings.ContainsAny(who, "oa")) {
			return true
		}
	}
	return false
}

func chmod(s *shell, c *cmd) {
	o := parseOptions(c.args, "", "reference", false)
	ops := o.operands
	mode := ""
	if f, ok := o.get("reference"); !ok || !f.has {
		// A mode such as -x or -rwx looks like an option.
		if len(ops) > 0 {
			mode, ops = ops[0].text, ops[1:]
		}
		for _, a := range c.args {
			if len(a.text) > 1 && a.text[0] == '-' && strings.Trim(a.text[1:], "rwxXst") == "" && a.text != "-R" {
				mode, ops = a.text, o.operands
			}
		}
	}
	rec := o.has("R", "recursive")
	if setsID(mode) {
		s.r.report("perm.setuid", c.at, mode)
	}
	if opensToAll(mode) {
		s.r.report("perm.world-writable", c.at, mode)
	}
	s.changeOwners(c, ops, rec)
}

func chown(s *shell, c *cmd) {
	o := parseOptions(c.args, "", "reference from", false)
	ops := o.operands
	if !o.exact("reference") && len(ops) > 0 {
		ops = ops[1:]
	}
	s.changeOwners(c, ops, o.has("R", "recursive"))
}

// changeOwners judges a change of mode or owner.
func (s *shell) changeOwners(c *cmd, ops []field, rec bool) {
	for _, f := range ops {
		pl := s.place(f)
		switch {
		case pl.own:
			s.r.report("self.change", f.at, pl.path)
		case rec && (pl.kind == placeRoot || pl.kind == placeSystemTop || pl.kind == placeHomeTop && pl.path != s.r.d.places.home):
			s.r.report("perm.system", f.at, pl.path)
		case pl.kind == placeRoot || pl.kind == placeSystemTop || pl.kind == placeSystem || pl.kind == placeDevice:
			s.r.report("perm.change-system", f.at, pl.path)
		case rec && (pl.kind == placeHomeTop || pl.kind == placeOutside):
			s.r.report("perm.change-system", f.at, pl.path)
		}
	}
}

func setfacl(s *shell, c *cmd) {
	o := parseOptions(c.args, "mxMXn", "modify remove set", false)
	s.changeOwners(c, o.operands, o.has("R", "recursive"))
}

func sortFiles(s *shell, c *cmd) {
	o := parseOptions(c.args, "kotSTN", "key output field-separator buffer-size temporary-directory parallel compress-program", false)
	for _, f := range o.flags {
		switch {
		case (f.name == "o" || f.name == "output") && f.has:
			s.checkWord(f.val, accessWrite)
		case f.long && strings.HasPrefix("compress-program", f.name) && f.has:
			s.runCode(f.val, stream{}, nil, false)
		}
	}
	for _, f := range o.operands {
		s.checkWord(f, accessRead)
	}
}

// outOption is for programs that read their operands and write to the value of
// one option.
func outOption(names string) func(*shell, *cmd) {
	return func(s *shell, c *cmd) {
		o := parseOptions(c.args, "oft", "output", false)
		for _, f := range o.flags {
			if f.has && hasWord(names, f.name) {
				s.checkWord(f.val, accessWrite)
			}
		}
		for _, f := range o.operands {
			s.checkWord(f, accessRead)
		}
	}
}

// editor opens files to change them and can be told to run commands.
func editor(s *shell, c *cmd) {
	o := parseOptions(c.args, "cSuTiWws", "cmd", false)
	for _, a := range c.args {
		t := strings.TrimPrefix(strings.TrimPrefix(a.text, "-c"), "+")
		if a.text != t || strings.HasPrefix(t, ":") {
			s.editorCommand(a, t)
		}
	}
	for _, f := range o.flags {
		if (f.name == "c" || f.name == "cmd") && f.has {
			s.editorCommand(f.val, f.val.text)
		}
	}
	for _, f := range o.operands {
		if !strings.HasPrefix(f.text, "+") {
			pl := s.place(f)
			if pl.secret && !pl.persist {
				s.r.readPlace(pl, f.at)
				continue
			}
			s.checkWord(f, accessWrite)
		}
	}
}

// editorCommand judges an editor's own command line: what follows a "!" runs,
// and code in another language is not read.
func (s *shell) editorCommand(f field, t string) {
	t = strings.TrimLeft(t, ": ")
	if i := strings.IndexByte(t, '!'); i >= 0 && (i == 0 || !wordByte(t[i-1]) || strings.HasPrefix(t, "r")) {
		code := f
		code.text = t[i+1:]
		s.runCode(code, stream{}, nil, false)
		return
	}
	for _, p := range [...]string{"py", "lua", "perl", "ruby", "call ", "shell", "term", "set shell"} {
		if strings.HasPrefix(t, p) {
			s.r.report("code.unread", f.at, "an editor command")
			return
		}
	}
	s.checkWord(f, accessAny)
}

// tar can run programs and unpack over anything.
func tar(s *shell, c *cmd) {
	o := parseOptions(c.args, "fCbgHKLNTVXI", "file directory exclude files-from to-command use-compress-program checkpoint-action transform xform", false)
	for _, f := range o.flags {
		if !f.has {
			continue
		}
		n := f.name
		switch {
		case n == "to-command" || n == "I" || n == "use-compress-program" || n == "rsh-command" || n == "rmt-command":
			s.runCode(f.val, stream{}, nil, false)
		case n == "checkpoint-action":
			if code, ok := strings.CutPrefix(f.val.text, "exec="); ok {
				v := f.val
				v.text = code
				s.runCode(v, stream{}, nil, false)
			}
		default:
			s.checkWord(f.val, accessAny)
		}
	}
	extract := false
	if len(c.args) > 0 {
		a := strings.TrimPrefix(c.args[0].text, "-")
		extract = !strings.HasPrefix(c.args[0].text, "--") && strings.Contains(a, "x") || o.exact("extract", "x")
	}
	if extract {
		if d, ok := o.get("C", "directory"); ok && d.has {
			s.checkWord(d.val, accessWrite)
		}
		if o.exact("P", "absolute-names") || strings.Contains(c.args[0].text, "P") {
			s.r.report("fs.unpack-absolute", c.at, "")
		}
	}
	for _, f := range o.operands {
		s.checkWord(f, accessRead)
	}
	if o.exact("remove-files") {
		for _, f := range o.operands {
			s.deleteField(f, true)
		}
	}
}

// archive is zip and its like; zip can run a test command.
func archive(s *shell, c *cmd) {
	for i, a := range c.args {
		if strings.HasPrefix(a.text, "-TT") || a.text == "--unzip-command" {
			code := a
			if code.text = strings.TrimPrefix(a.text, "-TT"); (code.text == "" || a.text == "--unzip-command") && i+1 < len(c.args) {
				code = c.args[i+1]
			}
			s.runCode(code, stream{}, nil, false)
		}
		s.checkWord(a, accessRead)
	}
}

// makeFileSystem is mkfs and its family.
func makeFileSystem(s *shell, c *cmd) {
	if strings.HasPrefix(c.name, "fsck") {
		return
	}
	if hasRaw(c.args, "-n", "--dry-run", "--help", "-V", "--version", "-h") && !hasDevice(s, c.args) || hasRaw(c.args, "-n") && (strings.HasSuffix(c.name, "ext4") || strings.HasSuffix(c.name, "ext3") || strings.HasSuffix(c.name, "ext2") || c.name == "mke2fs") {
		return
	}
	if len(c.args) == 0 {
		return
	}
	switch {
	case hasDevice(s, c.args):
		s.r.report("disk.format", c.at, "")
	case hasHole(c.args):
		s.r.report("disk.change", c.at, "the target is not known")
	case c.name != "mkswap":
		s.r.report("disk.change", c.at, "")
	}
}

func hasDevice(s *shell, args []field) bool {
	for _, a := range args {
		if s.place(a).kind == placeDevice {
			return true
		}
	}
	return false
}

// wipe is for programs that wipe a device when one of the options is given, or
// always when options is empty.
func wipe(options, quiet string) func(*shell, *cmd) {
	return func(s *shell, c *cmd) {
		o := parseOptions(c.args, "otbBgd", "offset types backup", false)
		if quiet != "" && o.exact(strings.Fields(quiet)...) || hasRaw(c.args, "--help", "--version") {
			return
		}
		if options != "" && !o.has(strings.Fields(options)...) && !(c.name == "sgdisk" && len(o.flags) > 0) {
			return
		}
		switch {
		case hasDevice(s, c.args):
			s.r.report("disk.wipe", c.at, "")
		case len(c.args) > 0:
			s.r.report("disk.change", c.at, "")
		}
	}
}

func sfdisk(s *shell, c *cmd) {
	o := parseOptions(c.args, "oNX", "output", false)
	if o.has("list", "l", "dump", "d", "json", "J", "verify", "V", "n", "no-act", "F", "s", "show-size", "T", "help", "v", "version", "h") {
		return
	}
	if hasDevice(s, c.args) {
		s.r.report("disk.wipe", c.at, "")
	}
}

func partition(s *shell, c *cmd) {
	o := parseOptions(c.args, "buCHSty", "", false)
	if o.has("l", "list", "h", "help", "v", "version", "s") || len(o.operands) == 0 {
		return
	}
	s.r.report("disk.change", c.at, "")
}

func parted(s *shell, c *cmd) {
	o := parseOptions(c.args, "a", "align", false)
	for i, f := range o.operands {
		switch f.text {
		case "mklabel", "mktable", "rm", "mkpart", "resizepart", "rescue", "mkpartfs":
			if i > 0 && s.place(o.operands[0]).kind == placeDevice {
				s.r.report("disk.wipe", c.at, f.text)
				return
			}
		}
	}
	if !o.has("l", "list") && !hasRaw(c.args, "print", "help", "unit") && len(o.operands) > 0 {
		s.r.report("disk.change", c.at, "")
	}
}

func hdparm(s *shell, c *cmd) {
	for _, a := range c.args {
		if strings.HasPrefix(a.text, "--security-erase") || strings.HasPrefix(a.text, "--trim-sector") || a.text == "--write-sector" || a.text == "--make-bad-sector" || a.text == "--security-set-pass" || a.text == "--sanitize-block-erase" || a.text == "--sanitize-crypto-scramble" {
			s.r.report("disk.wipe", c.at, a.text)
		}
	}
}

func nvme(s *shell, c *cmd) {
	if len(c.args) > 0 && (c.args[0].text == "format" || c.args[0].text == "sanitize" || c.args[0].text == "write-zeroes" || c.args[0].text == "delete-ns" || c.args[0].text == "dsm" || c.args[0].text == "write") {
		s.r.report("disk.wipe", c.at, "")
	}
}

func diskutil(s *shell, c *cmd) {
	if len(c.args) == 0 {
		return
	}
	switch v := strings.ToLower(c.args[0].text); v {
	case "erasedisk", "erasevolume", "zerodisk", "randomdisk", "secureerase", "reformat", "partitiondisk":
		s.r.report("disk.wipe", c.at, v)
	case "apfs", "appleraid", "corestorage", "splitpartition", "mergepartitions", "resizevolume", "unmountdisk":
		if hasRaw(c.args, "list") {
			return
		}
		s.r.report("disk.change", c.at, v)
	}
}

func cryptsetup(s *shell, c *cmd) {
	o := parseOptions(c.args, "chsdlopbSi", "key-file type cipher hash key-size", false)
	if len(o.operands) == 0 {
		return
	}
	switch v := o.operands[0].text; v {
	case "luksFormat", "erase", "luksErase", "reencrypt":
		s.r.report("disk.wipe", c.at, v)
	case "luksKillSlot", "luksRemoveKey", "luksAddKey", "luksChangeKey", "luksHeaderRestore":
		s.r.report("disk.change", c.at, v)
	}
}

// rsync deletes with --delete, runs a remote shell and may overwrite anything.
func rsync(s *shell, c *cmd) {
	o := parseOptions(c.args, "efBT", "rsh exclude include filter exclude-from include-from files-from log-file password-file rsync-path backup-dir temp-dir compare-dest link-dest port bwlimit max-size min-size timeout info chmod out-format", false)
	if f, ok := o.get("e", "rsh"); ok && f.has {
		s.runCode(f.val, stream{}, nil, false)
	}
	dry := o.has("n", "dry-run")
	for _, f := range o.flags {
		if f.long && (strings.HasPrefix(f.name, "delete") || f.name == "remove-source-files" || f.name == "del") && !dry {
			s.r.report("fs.sync-delete", c.at, "--"+f.name)
			break
		}
	}
	for i, f := range o.operands {
		if i == len(o.operands)-1 && i > 0 {
			if !dry && !strings.Contains(f.text, ":") {
				s.checkWord(f, accessWrite)
			}
			continue
		}
		s.checkWord(f, accessRead)
	}
}
