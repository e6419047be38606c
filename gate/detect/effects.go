package detect

import "strings"

// access is what a program does with a path in its arguments.
type access uint8

const (
	accessAny   access = iota // not known
	accessRead                // reads it
	accessWrite               // writes it
	accessNone                // only looks at its name or state
)

// readPlace judges reading what lies at pl.
func (r *run) readPlace(pl place, at span) {
	switch {
	case pl.own:
		r.report("self.read", at, pl.path)
	case pl.history:
		r.report("secret.history", at, pl.path)
	case pl.secret:
		r.report("secret.read", at, pl.path)
	}
}

// writePlace judges creating or changing what lies at pl.
func (r *run) writePlace(pl place, at span) {
	switch {
	case pl.own:
		r.report("self.change", at, pl.path)
	case pl.kind == placeDevice:
		r.report("disk.write", at, pl.path)
	case pl.kind == placeNull || pl.kind == placeTemp || pl.kind == placeTempTop:
	case pl.path == "/proc/sysrq-trigger":
		r.report("host.power", at, pl.path)
	case pl.history:
		r.report("evade.history", at, pl.path)
	case pl.persist:
		r.report("persist.write", at, pl.path)
	case pl.secret:
		r.report("secret.write", at, pl.path)
	case strings.HasPrefix(pl.path, "/var/log/"):
		r.report("evade.logs", at, pl.path)
	case pl.kind == placeRoot || pl.kind == placeSystemTop || pl.kind == placeSystem:
		r.report("fs.write-system", at, pl.path)
	}
}

// emptied judges the loss of a file's content.
func (r *run) emptied(pl place, at span) {
	switch pl.kind {
	case placeTemp, placeTempTop, placeNull:
	default:
		if !pl.regen {
			r.report("fs.empty", at, pl.path)
		}
	}
}

// deletePlace judges deleting what lies at pl, with everything in it when
// recursive is set.
func (r *run) deletePlace(pl place, at span, recursive bool) {
	switch {
	case pl.own:
		r.report("self.change", at, pl.path)
		return
	case pl.history:
		r.report("evade.history", at, pl.path)
		return
	case strings.HasPrefix(pl.path, "/var/log"):
		r.report("evade.logs", at, pl.path)
		return
	case pl.persist:
		r.report("persist.write", at, pl.path)
		return
	}
	switch pl.kind {
	case placeRoot, placeSystemTop, placeHomeTop:
		if recursive {
			r.report("fs.delete-root", at, pl.path)
		} else {
			r.report("fs.delete-outside", at, pl.path)
		}
	case placeTempTop:
		if recursive || pl.all {
			r.report("fs.delete-many", at, pl.path)
		}
	case placeTemp, placeNull:
	case placeUnknown:
		r.deleteUnknown(pl, at, recursive)
	case placeWorkTop, placeWork:
		r.deleteWork(pl, at, recursive)
	default:
		switch {
		case pl.regen:
		case recursive:
			r.report("fs.recursive-delete", at, pl.path)
		default:
			r.report("fs.delete-outside", at, pl.path)
		}
	}
}

func (r *run) deleteUnknown(pl place, at span, recursive bool) {
	switch {
	case pl.regen:
	case recursive:
		r.report("fs.recursive-delete", at, pl.path)
	case pl.all:
		r.report("fs.delete-many", at, pl.path)
	case pl.secret:
		r.report("secret.write", at, pl.path)
	}
}

func (r *run) deleteWork(pl place, at span, recursive bool) {
	switch {
	case pl.regen:
	case recursive:
		r.report("fs.recursive-delete", at, pl.path)
	case pl.all || pl.kind == placeWorkTop:
		r.report("fs.delete-many", at, pl.path)
	case pl.secret:
		r.report("secret.write", at, pl.path)
	case strings.Contains(pl.path, "/.git/") || strings.HasPrefix(pl.path, ".git/"):
		r.report("git.internals", at, pl.path)
	}
}

// checkWord judges a word of a command that may be or hold a path.
func (s *shell) checkWord(f field, a access) {
	if f.body != nil || a == accessNone {
		return
	}
	s.r.bytes(len(f.text))
	s.checkPath(f.text, f.at, a)
	for _, t := range pathsIn(f.text) {
		s.checkPath(t, f.at, a)
	}
	if s.r.d.places.ownAddr(f.text) {
		s.r.report("self.control", f.at, f.text)
	}
}

func (s *shell) checkPath(t string, at span, a access) {
	if t == "" || t == "-" || len(t) > 4096 {
		return
	}
	s.r.step(1)
	pl := s.r.d.places.locate(t, s.dir)
	switch {
	case a == accessWrite:
		s.r.writePlace(pl, at)
	case pl.own, pl.secret:
		if pl.own && a == accessAny {
			s.r.report("self.change", at, pl.path)
		} else {
			s.r.readPlace(pl, at)
		}
	case a == accessAny && pl.persist && strings.ContainsAny(t, "/."):
		s.r.report("persist.write", at, pl.path)
	}
}

// pathsIn gives the pieces of a word that look like paths: the value of
// --opt=PATH, key=@PATH, host:PATH, and paths inside a text argument.
func pathsIn(t string) []string {
	if !strings.ContainsAny(t, "=@:,;'\"()<>|& \t\n`{}[]") {
		if len(t) > 2 && t[0] == '-' && t[1] != '-' && strings.IndexAny(t, "/~") == 2 {
			return []string{t[2:]} // -oPATH
		}
		return nil
	}
	var out []string
	for _, p := range strings.FieldsFunc(t, func(r rune) bool {
		return strings.ContainsRune("=@:,;'\"()<>|& \t\n`{}[]", r)
	}) {
		if p != t && strings.ContainsAny(p, "/~.") && len(out) < 256 {
			out = append(out, p)
		}
	}
	return out
}
