// Package detect finds danger in what a tool call does: it reads commands and
// file changes and says which parts a person should see before they run. It
// knows no wire format, asks nobody and decides nothing; it does no I/O and
// keeps no state between calls.
//
// Shell text is parsed, never matched as text, so that words which run are told
// apart from words which are data. Programs, wrappers, places and rules are
// tables; the code only walks, expands and looks up. What cannot be resolved
// where a program or code stands is a finding of its own.
package detect

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"callgate/gate"
	"callgate/inspect/toolcall"
)

// World is what is assumed about the machine the agent works on. The gate
// cannot see it, so it comes from the configuration. The zero value is a usable
// guess and its paths are the careful ones.
type World struct {
	// Home is the agent's home directory, /home/USER when empty.
	Home string
	// Dir is the directory commands start in when a call names none, Workspace
	// when empty.
	Dir string
	// Workspace is the root of the tree the agent works on. When empty, nothing
	// absolute is inside it, and relative paths are taken as inside.
	Workspace string
	// User is the account the agent runs as, "user" when empty.
	User string
	// Own names what belongs to the gate itself: path prefixes (they hold a
	// slash or start with ~), addresses of its listeners (host:port) and names
	// of its program and units. These always do: callgate,
	// ~/.config/callgate, /etc/callgate, ~/.local/state/callgate,
	// ~/.local/share/callgate, /var/lib/callgate.
	Own []string
}

// Detector finds danger. It is safe for concurrent use.
type Detector struct {
	places   *places
	rules    map[string]Rule
	programs map[string]*program
	wrappers map[string]*wrapper
	verbs    map[string][]verb
	readers  map[string]reader
}

var _ gate.Detector = (*Detector)(nil)

// New returns a Detector for commands that run in w.
func New(w World) *Detector {
	d := &Detector{
		places:   newPlaces(w),
		rules:    map[string]Rule{},
		programs: programTable(),
		wrappers: map[string]*wrapper{},
		verbs:    verbTable(),
	}
	for name, w := range wrapperTable() {
		d.wrappers[name] = &w
	}
	d.readers = map[string]reader{
		"":                      shellReader{},
		toolcall.LangShell:      shellReader{},
		toolcall.LangSQL:        sqlReader{},
		toolcall.LangPython:     codeReader{"Python"},
		toolcall.LangCmd:        codeReader{"cmd.exe"},
		toolcall.LangPowerShell: codeReader{"PowerShell"},
		toolcall.LangJavaScript: codeReader{"JavaScript"},
	}
	for _, r := range Rules() {
		d.rules[r.ID] = r
	}
	return d
}

// reader reads text written in one language and reports to r. The text stands
// at the place t says; a reader for another language is one more type.
type reader interface {
	read(r *run, t text)
}

// text is a piece of code and where it stands in the action's text.
type text struct {
	s string
	// at is the span that findings are given. When exact is set the text is the
	// action's own, and offset o in s is offset at.start+o there.
	at    span
	exact bool
	// dir is the directory the code runs in, with a hole when unknown.
	dir string
	// in is what the code can read from its standard input.
	in stream
	// args are the script's parameters, nil when nothing is known of them.
	args []field
}

// span is a half-open range of bytes in the action's text.
type span struct{ start, end int }

// run is one Detect call.
type run struct {
	d *Detector
	budget
	depth  int
	deep   bool // the parser has gone too deep
	guard  guard
	action int
	src    string // the action's text
	found  []gate.Finding
	seen   map[seenKey]bool
	count  [2]int
	// files are the files this call has written or fetched so far, by cleaned
	// path.
	files map[string]file
}

type seenKey struct {
	rule string
	at   span
	act  int
}

// file is what is known of a file that the call itself made.
type file struct {
	text  string
	known bool
	from  origin
}

// limitFault is the limit that is reported when the reading itself fails. No
// text may lead there; if one does, the call is denied and the proxy lives on.
const limitFault = "fault"

// Detect reports the dangers of the actions of one call, in the order in which
// they stand. Files that one action writes are known to the later ones.
func (d *Detector) Detect(actions []toolcall.Action) gate.Report {
	rep, _ := d.detect(actions)
	return rep
}

func (d *Detector) detect(actions []toolcall.Action) (rep gate.Report, steps int) {
	r := &run{d: d}
	defer func() {
		if e := recover(); e != nil {
			rep.Limit = limitFault
			if s, ok := e.(stop); ok {
				rep.Limit = s.limit
			}
		}
		rep.Findings, steps = r.found, r.steps
	}()
	for i, a := range actions {
		r.action, r.depth = i, 0
		r.actionOf(a)
	}
	return rep, 0
}

func (r *run) actionOf(a toolcall.Action) {
	switch a.Kind {
	case toolcall.KindCommand:
		r.src = a.Command
		r.checkSize(len(a.Command))
		if !r.checkBytes(a.Command) {
			return
		}
		dir := r.d.places.start(a.Dir)
		r.read(a.Language, text{s: a.Command, exact: true, at: span{0, len(a.Command)}, dir: dir})
	case toolcall.KindFile:
		r.src = a.Path
		r.checkSize(len(a.Path) + len(a.Content))
		r.fileAction(a)
	case toolcall.KindPermissions:
		r.src = a.Command
		r.report("agent.permissions", span{0, len(a.Command)}, "")
	}
}

func (r *run) checkSize(n int) {
	if n > MaxText {
		panic(stop{"bytes"})
	}
	r.step(1 + n/256)
}

// read hands t to the reader of its language; a language without one is a
// finding.
func (r *run) read(lang string, t text) {
	r.enter()
	defer r.leave()
	r.bytes(len(t.s))
	rd, ok := r.d.readers[lang]
	if !ok {
		rd = codeReader{lang}
	}
	rd.read(r, t)
}

// checkBytes reports bytes that a person would not see or that programs read
// differently. It says whether the text can be parsed at all.
func (r *run) checkBytes(s string) bool {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == 0:
				r.report("shell.unreadable", span{i, i + 1}, "a NUL byte at offset "+itoa(i))
				return false
			case c < ' ' && c != '\n' && c != '\t' && c != '\r', c == 0x7f:
				r.report("shell.hidden", span{i, i + 1}, "a control character at offset "+itoa(i))
			}
			i++
			continue
		}
		ru, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case ru == utf8.RuneError && n == 1:
			r.report("shell.unreadable", span{i, i + 1}, "bytes that are not UTF-8 at offset "+itoa(i))
			return false
		case invisible(ru) && !inEmoji(s[:i], ru):
			r.report("shell.hidden", span{i, i + n}, "an invisible or direction-changing character at offset "+itoa(i))
		}
		i += n
	}
	return true
}

// invisible says whether ru changes a text without being seen: format
// characters, such as zero-width and bidirectional ones, and blank letters.
func invisible(ru rune) bool {
	return unicode.Is(unicode.Cf, ru) || ru == 0x3164 || ru == 0x115f || ru == 0x1160 || ru == 0x2028 || ru == 0x2029 ||
		ru >= 0x80 && ru < 0xa0
}

// inEmoji says whether ru is a joiner inside an emoji, where it belongs, or a
// byte order mark at the start.
func inEmoji(before string, ru rune) bool {
	if ru == 0xfeff {
		return before == ""
	}
	last, _ := utf8.DecodeLastRuneInString(before)
	return ru == 0x200d && (last >= 0x1f000 || last == 0xfe0f || last >= 0x2600 && last < 0x27c0)
}

// fileAction judges the reading, writing or deleting of one file.
func (r *run) fileAction(a toolcall.Action) {
	pl := r.d.places.locate(a.Path, r.d.places.start(a.Dir))
	at := span{0, len(a.Path)}
	switch a.Op {
	case toolcall.OpRead:
		r.readPlace(pl, at)
	case toolcall.OpDelete:
		r.deletePlace(pl, at, false)
	default:
		r.writePlace(pl, at)
		if a.Content != nil {
			r.content(pl, at, string(a.Content))
		}
	}
}

// content notes what a file holds, so that running it later in the call reads
// it, and reads it now where it runs by itself one day.
func (r *run) content(pl place, at span, s string) {
	r.note(pl.path, file{text: s, known: true})
	if pl.persist && isShellFile(pl.path, s) && utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		r.read(toolcall.LangShell, text{s: s, at: at, dir: path.Dir(pl.path)})
	}
}

func (r *run) note(p string, f file) {
	if p == "" {
		return
	}
	if r.files == nil {
		r.files = map[string]file{}
	}
	r.files[p] = f
}

// isShellFile says whether a file is a shell script, by its name or first line.
func isShellFile(p, s string) bool {
	if line, _, _ := strings.Cut(s, "\n"); strings.HasPrefix(line, "#!") {
		f := strings.Fields(line[2:])
		for _, w := range f {
			if shellNames[path.Base(w)] {
				return true
			}
		}
		return false
	}
	base := path.Base(p)
	return strings.HasSuffix(base, ".sh") || strings.HasSuffix(base, ".bash") || shellFiles[base]
}

// report adds one finding. detail is joined to the rule's own sentence.
func (r *run) report(rule string, at span, detail string) {
	k := seenKey{rule, at, r.action}
	if r.seen[k] {
		return
	}
	ru, ok := r.d.rules[rule]
	if !ok {
		panic("detect: no rule " + rule)
	}
	if r.count[ru.Severity] >= MaxFindings {
		return
	}
	r.count[ru.Severity]++
	if r.seen == nil {
		r.seen = map[seenKey]bool{}
	}
	r.seen[k] = true
	reason := ru.Title
	if detail != "" {
		reason += ": " + clip(detail)
	}
	at.start = min(max(at.start, 0), len(r.src))
	at.end = min(max(at.end, at.start), len(r.src))
	r.found = append(r.found, gate.Finding{
		Rule: rule, Category: ru.Category, Severity: ru.Severity, Reason: reason, Instead: ru.Instead,
		Action: r.action, Start: at.start, End: at.end, Words: r.src[at.start:at.end],
	})
}

// clip shortens a detail for a person; holes are shown as an ellipsis.
func clip(s string) string {
	const most = 160
	s = strings.ToValidUTF8(strings.ReplaceAll(s, hole, "…"), "?")
	s = strings.Map(func(ru rune) rune {
		if ru == '\n' || ru == '\t' {
			return ' '
		}
		if invisible(ru) || unicode.IsControl(ru) {
			return '?'
		}
		return ru
	}, s)
	if len(s) <= most {
		return s
	}
	for most := most; ; most-- {
		if utf8.RuneStart(s[most]) {
			return s[:most] + "…"
		}
	}
}
