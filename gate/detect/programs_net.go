package detect

import (
	"path"
	"strings"
)

// netPrograms fetch, send and connect.
func netPrograms() map[string]program {
	return map[string]program{
		"curl":       {judge: curl, out: outNet},
		"wget wget2": {judge: wget, out: outNet},
		"http https xh xhs httpie lynx w3m elinks links aria2c axel fetch ftp lftp tftp lwp-request GET finger": {judge: fetch, out: outNet},
		"nc ncat netcat nc.openbsd nc.traditional pwncat":                                                       {judge: netcat, out: outNet},
		"socat":               {judge: socat, out: outNet},
		"telnet":              {judge: telnet, out: outNet},
		"ssh-copy-id":         {rule: "persist.keys"},
		"ssh-keygen":          {judge: sshKeygen},
		"ssh-add ssh-keyscan": {access: accessNone},
		"scp sftp":            {judge: scp},
		"sshfs sshuttle":      {values: "opFCrx", access: accessRead},
		"ngrok cloudflared bore localtunnel lt chisel frpc tailscale zrok": {judge: tunnel},
		"code":                                 {judge: anyWord("remote.tunnel", "tunnel")},
		"openssl":                              {judge: openssl, out: outOpenssl},
		"gpg gpg2":                             {judge: gpg, out: outOpenssl},
		"mail mailx mutt sendmail swaks msmtp": {values: "abcsrSqeHF", access: accessRead},
		"nmap masscan zmap":                    {judge: nmap},
		"kubeseal age sops":                    {access: accessRead},
	}
}

func outNet(s *shell, c *cmd) stream { return stream{from: fromNet | c.in.from} }

// metadata says whether a word names a cloud's metadata service.
func metadata(t string) bool {
	for _, h := range [...]string{"169.254.169.254", "100.100.100.200", "metadata.google.internal", "fd00:ec2::254", "169.254.170.2"} {
		if i := strings.Index(t, h); i >= 0 {
			end := i + len(h)
			if end == len(t) || !wordByte(t[end]) || t[end] == '.' && end+1 == len(t) {
				return true
			}
		}
	}
	return false
}

// checkURLs judges the addresses among the arguments.
func (s *shell) checkURLs(c *cmd) {
	if c.in.from&fromSecret != 0 {
		s.r.report("secret.send", c.at, "")
	}
	for _, a := range c.args {
		if metadata(a.text) {
			s.r.report("secret.metadata", a.at, a.text)
		}
		if s.r.d.places.ownAddr(a.text) {
			s.r.report("self.control", a.at, a.text)
		}
		if rest, ok := strings.CutPrefix(a.text, "file://"); ok {
			f := a
			f.text = rest
			s.checkWord(f, accessRead)
		}
	}
}

// curlPayload are curl's options that send their value, or the file it names
// after "@" or "<".
var curlPayload = map[string]bool{"d": true, "data": true, "data-binary": true, "data-ascii": true, "data-urlencode": true, "F": true, "form": true, "json": true, "T": true, "upload-file": true, "H": true, "header": true, "b": true, "cookie": true, "data-raw": true, "u": true, "user": true}

func curl(s *shell, c *cmd) {
	s.checkURLs(c)
	o := parseOptions(c.args, "dFToHAbcuexXmrwDKEPQtUzCYyl", "data data-binary data-ascii data-urlencode data-raw form form-string json upload-file output header user-agent cookie cookie-jar user referer proxy request max-time range write-out dump-header config cert key cacert connect-timeout retry retry-delay resolve interface url output-dir retry-max-time unix-socket limit-rate", false)
	for _, f := range o.flags {
		if !f.has {
			continue
		}
		switch {
		case f.name == "o" || f.name == "output":
			pl := s.place(f.val)
			s.r.writePlace(pl, f.val.at)
			s.made(pl, file{from: fromNet})
		case f.name == "K" || f.name == "config" || f.name == "c" || f.name == "cookie-jar" || f.name == "D" || f.name == "dump-header":
			s.checkWord(f.val, accessAny)
		case curlPayload[f.name]:
			s.sent(f)
		case f.name == "unix-socket" && strings.Contains(f.val.text, "docker"):
			s.r.report("infra.socket", c.at, "")
		}
	}
	if o.exact("O", "remote-name", "remote-name-all", "J") {
		for _, f := range o.operands {
			s.fetched(f, field{text: ".", at: f.at})
		}
	}
	for _, f := range o.flags {
		if f.name == "x" || f.name == "request" || f.name == "X" {
			if f.has && strings.EqualFold(f.val.text, "DELETE") {
				s.r.report("remote.delete", c.at, "")
			}
		}
	}
}

// sent judges a value that is sent to another host.
func (s *shell) sent(f flag) {
	t := f.val.text
	if f.val.from&fromSecret != 0 && f.name != "H" && f.name != "header" && f.name != "u" && f.name != "user" && f.name != "b" && f.name != "cookie" {
		s.r.report("secret.send", f.val.at, "")
	}
	if i := strings.IndexAny(t, "@<"); i >= 0 && f.name != "u" && f.name != "user" && f.name != "H" {
		v := f.val
		v.text = t[i+1:]
		if j := strings.IndexAny(v.text, "; ,"); j >= 0 {
			v.text = v.text[:j]
		}
		s.sentFile(v)
	} else if f.name == "T" || f.name == "upload-file" {
		s.sentFile(f.val)
	}
}

// sentFile judges a file that is sent to another host: secrets, and the
// system's own files.
func (s *shell) sentFile(f field) {
	pl := s.place(f)
	switch {
	case pl.secret || pl.own:
		s.r.report("secret.send", f.at, pl.path)
	case pl.kind == placeSystem || pl.kind == placeSystemTop:
		s.r.report("secret.send", f.at, pl.path)
	}
}

// fetched notes a file that is downloaded from url into dir.
func (s *shell) fetched(url, dir field) {
	name := path.Base(strings.SplitN(strings.SplitN(url.text, "?", 2)[0], "#", 2)[0])
	d := dir
	d.text = strings.TrimSuffix(dir.text, "/") + "/" + name
	pl := s.place(d)
	s.r.writePlace(pl, url.at)
	s.made(pl, file{from: fromNet})
}

func wget(s *shell, c *cmd) {
	s.checkURLs(c)
	o := parseOptions(c.args, "OoaPUtTeiBwQADRIXl", "output-document output-file append-output directory-prefix user-agent tries timeout execute input-file header post-data post-file body-file body-data method user password load-cookies save-cookies use-askpass ca-certificate wait level", false)
	out, to := o.get("O", "output-document")
	dir := field{text: ".", at: c.at}
	for _, f := range o.flags {
		if !f.has {
			continue
		}
		switch f.name {
		case "o", "output-file", "a", "append-output":
			s.checkWord(f.val, accessWrite)
		case "P", "directory-prefix":
			dir = f.val
		case "post-data", "body-data":
			s.sent(f)
		case "post-file", "body-file":
			s.sentFile(f.val)
		case "i", "input-file":
			s.checkWord(f.val, accessRead)
		case "use-askpass":
			s.runCode(f.val, stream{}, nil, false)
		}
	}
	switch {
	case to && out.has && out.val.text != "-":
		pl := s.place(out.val)
		s.r.writePlace(pl, out.val.at)
		s.made(pl, file{from: fromNet})
	case !to:
		for _, f := range o.operands {
			s.fetched(f, dir)
		}
	}
}

// fetch is any other program that downloads or sends files.
func fetch(s *shell, c *cmd) {
	s.checkURLs(c)
	o := parseOptions(c.args, "od", "output out dir", false)
	for _, f := range o.flags {
		if f.has && (f.name == "o" || f.name == "output" || f.name == "out") {
			pl := s.place(f.val)
			s.r.writePlace(pl, f.val.at)
			s.made(pl, file{from: fromNet})
		}
	}
	if c.name == "axel" || c.name == "aria2c" {
		for _, f := range o.operands {
			s.fetched(f, field{text: ".", at: f.at})
		}
	}
	for _, a := range c.args {
		s.checkWord(a, accessRead)
	}
	if c.in.known {
		s.codeWords(field{text: c.in.text, at: c.at})
	}
}

func netcat(s *shell, c *cmd) {
	s.checkURLs(c)

	for i, a := range c.args {
		t := a.text
		short := len(t) > 1 && t[0] == '-' && t[1] != '-' && strings.IndexAny(t, "ec") > 0 && strings.Trim(t[1:], "eclvnpuktz46") == ""
		if (short || t == "--exec" || t == "--sh-exec" || t == "--lua-exec") && i+1 < len(c.args) || strings.HasPrefix(t, "--exec=") || strings.HasPrefix(t, "--sh-exec=") {
			s.r.report("remote.shell", c.at, "")
			return
		}
	}
	if c.in.from&fromCode != 0 && c.in.from&fromNet != 0 {
		s.r.report("remote.shell", c.at, "")
	}
}

func socat(s *shell, c *cmd) {
	net, prog := false, false
	for _, a := range c.args {
		t := strings.ToLower(a.text)
		for _, p := range [...]string{"tcp", "udp", "openssl", "ssl", "sctp", "socks", "vsock", "unix"} {
			net = net || strings.HasPrefix(t, p)
		}
		for _, p := range [...]string{"exec:", "system:", "shell:", "exec,"} {
			if strings.HasPrefix(t, p) {
				prog = true
			}
		}
		s.checkWord(a, accessAny)
	}
	switch {
	case net && prog:
		s.r.report("remote.shell", c.at, "")
	case prog:
		s.r.report("escape.shell", c.at, "")
	}
}

func telnet(s *shell, c *cmd) {
	if c.in.piped {
		s.r.report("remote.shell", c.at, "")
	}
}

func sshKeygen(s *shell, c *cmd) {
	o := parseOptions(c.args, "bCfNPtaDImMnOrRsSVwzZE", "", false)
	if f, ok := o.get("D"); ok && f.has {
		s.r.report("privilege.preload", c.at, f.val.text)
	}
	if f, ok := o.get("f"); ok && f.has && !o.exact("l", "y", "e", "B", "R", "F") {
		if pl := s.place(f.val); pl.persist {
			s.r.writePlace(pl, f.val.at)
		}
	}
}

// scp sends or fetches files.
func scp(s *shell, c *cmd) {
	o := parseOptions(c.args, "cDFiJlOPSXob", "", false)
	for _, f := range o.flags {
		switch {
		case f.name == "S" && f.has:
			s.runCode(f.val, stream{}, nil, false)
		case f.name == "o" && f.has:
			s.sshOption(f.val)
		}
	}
	if len(o.operands) < 2 {
		return
	}
	n := len(o.operands) - 1
	dst := o.operands[n]
	for _, f := range o.operands[:n] {
		if strings.Contains(f.text, ":") {
			if !strings.Contains(dst.text, ":") {
				pl := s.into(dst, f)
				s.r.writePlace(pl, dst.at)
				s.made(pl, file{from: fromNet})
			}
			continue
		}
		s.sentFile(f)
	}
	if _, p, ok := strings.Cut(dst.text, ":"); ok {
		d := dst
		d.text = p
		s.checkWord(d, accessAny)
	}
}

func tunnel(s *shell, c *cmd) {
	if len(c.args) == 0 || hasRaw(c.args, "version", "--version", "help", "--help", "status", "ip", "ping") {
		return
	}
	if c.name == "tailscale" && !hasRaw(c.args, "serve", "funnel", "up", "ssh", "set") {
		return
	}
	s.r.report("remote.tunnel", c.at, "")
	s.checkArgs(c, &program{access: accessRead})
}

// openssl reads and writes keys, decrypts, and can be a shell's connection.
func openssl(s *shell, c *cmd) {
	o := parseOptions(c.args, "", "in out key pass passin passout inkey CAfile connect config engine", false)
	sub := ""
	if len(o.operands) > 0 {
		sub = o.operands[0].text
	}
	for _, f := range o.flags {
		switch {
		case f.name == "in" && f.has && (sub == "enc" || sub == "base64" || sub == "s_client" || sub == "smime" || sub == "cms"):
			s.checkWord(f.val, accessRead)
		case f.name == "out" && f.has:
			pl := s.place(f.val)
			if pl.persist || pl.own || pl.kind == placeDevice || pl.kind == placeSystem && !strings.HasPrefix(pl.path, "/etc/ssl") {
				s.r.writePlace(pl, f.val.at)
			}
		case f.name == "engine" && f.has:
			s.r.report("privilege.preload", c.at, f.val.text)
		}
	}
	if sub == "s_client" && c.in.from&fromCode != 0 && c.in.from&fromNet != 0 {
		s.r.report("remote.shell", c.at, "")
	}
}

func outOpenssl(s *shell, c *cmd) stream {
	st := stream{from: c.in.from | fromCode}
	for _, a := range c.args {
		switch a.text {
		case "-d", "--decrypt", "-D", "base64":
			st.from |= fromDecode
		case "s_client":
			st.from |= fromNet
		}
	}
	return st
}

func gpg(s *shell, c *cmd) {
	for _, a := range c.args {
		if strings.HasPrefix(a.text, "--export-secret") || strings.HasPrefix(a.text, "--delete-secret") {
			s.r.report("secret.store", c.at, a.text)
		}
	}
	s.checkArgs(c, &program{access: accessRead})
}

func nmap(s *shell, c *cmd) {
	for _, a := range c.args {
		if strings.HasPrefix(a.text, "--script") || a.text == "--interactive" {
			s.r.report("escape.shell", c.at, a.text)
		}
	}
	s.checkArgs(c, &program{})
}
