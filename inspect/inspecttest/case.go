// Package inspecttest drives a dialect through recorded answers. It holds the
// form of a case file, the ways a case is run, and what must hold in every run
// whatever the dialect; it knows no wire format beyond JSON and event streams
// in general. Only tests import it.
//
// A case is a txtar file. Its comment says what it shows. Its sections:
//
//	request   "POST /path?query", header lines, a blank line, the body
//	response  the status, header lines, a blank line, the body
//	rulings   one line a call: "SEQ release", "SEQ release ARGS" or
//	          "SEQ withhold TEXT", TEXT bare or as a Go string. A call without a
//	          line is released, or withheld without a text when it has a fault.
//	response N  a further answer of the provider, from 2 on, for a turn that is
//	          suspended behind the one before
//	cut       present when the last round ends as inspect.EndCut
//	abandon   the text of an Abandon that takes the place of the last round's end
//	end       "abandon TEXT" or "fail TEXT": what ends a turn that is suspended
//	          behind the last round
//	alive     when a keep-alive is asked for, one word a line: "suspended" while
//	          the turn is, "begun" before the first byte of a further round
//	error     a part of the error that reading must end with; the turn is then
//	          abandoned with AbandonText
//	calls     what must be found: "SEQ LANE TYPE NAME ID ARGS FAULT", each word
//	          bare or as a Go string, ARGS behind "text:" when it is free text
//	hosted    the same for calls that the provider ran, when there are any
//	shown     the bytes the agent must get, all of them
//	record    the turn's record, when the case is about it
//	told      what later requests are to be told (inspect.Told), in cases that are
//	          run by RunRepair
//
// Sections end in a line feed, bodies need not, and some bytes are better seen
// than written. So in response and shown: U+240D (␍) stands for a carriage
// return, U+2403 (␃) at the very end says that the last line has no line feed,
// and U+241B (␛) with two hex digits stands for any one byte.
//
// The tests' -update flag writes calls, hosted, shown, told and record (hosted
// and record only where they stand or are needed) from what the dialect does. The
// difference is to be read as code.
//
// Words in a call's id, name or arguments that hold Mark are looked for in
// what is given out, so every call of a case needs one, unlike those of the
// other calls; texts and refusals must not hold it.
package inspecttest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/tools/txtar"

	"callgate/inspect"
	"callgate/inspect/toolcall"
)

// Mark is what a word of a call holds that must not be seen before the call is
// released.
const Mark = "zq"

// AbandonText is what a turn is abandoned with when reading it failed.
const AbandonText = "abandoned: the answer could not be read"

// Case is one parsed case file.
type Case struct {
	Name         string
	Request      inspect.Head
	RequestBody  []byte
	Response     inspect.Head
	ResponseBody []byte
	// More are the answers of the rounds behind the first.
	More    []Answer
	Rulings map[int]inspect.Ruling
	Cut     bool
	// Abandon is the text to abandon with in place of the round's end, nil
	// when the round ends.
	Abandon *string
	// End is what ends a turn that is suspended behind the last round, nil when
	// none is meant to be.
	End *End
	// Alive are the points at which a keep-alive is asked for.
	Alive map[string]bool
	// Error is a part of the error that reading must end with, "" for none.
	Error string

	path    string
	archive *txtar.Archive
	form    *Form // of a case that is run by RunRepair
}

// Answer is what the provider answers in one round.
type Answer struct {
	Head inspect.Head
	Body []byte
}

// End is an end that is not the provider's: Fail says which of the two it is.
type End struct {
	Fail bool
	Text string
}

// rounds are all answers of the case.
func (c *Case) rounds() []Answer {
	return append([]Answer{{c.Response, c.ResponseBody}}, c.More...)
}

// size is the length of all answers together.
func (c *Case) size() (n int) {
	for _, a := range c.rounds() {
		n += len(a.Body)
	}
	return n
}

// Load reads one case file.
func Load(path string) (*Case, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &Case{Name: caseName(path), path: path, archive: txtar.Parse(data), Rulings: map[int]inspect.Ruling{}}
	for _, f := range c.archive.Files {
		if err := c.section(f.Name, f.Data); err != nil {
			return nil, fmt.Errorf("%s: section %s: %w", path, f.Name, err)
		}
	}
	if c.Request.Method == "" || c.Response.Status == 0 {
		return nil, fmt.Errorf("%s: it needs a request and a response", path)
	}
	return c, nil
}

func caseName(path string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.TrimSuffix(name, ".txtar")
}

func (c *Case) section(name string, data []byte) error {
	switch name {
	case "request":
		first, header, body, err := message(data)
		if err != nil {
			return err
		}
		method, target, ok := strings.Cut(first, " ")
		if !ok {
			return fmt.Errorf("the first line must be METHOD PATH, not %q", first)
		}
		path, query, _ := strings.Cut(target, "?")
		c.Request = inspect.Head{Method: method, Path: path, Query: query, Header: header}
		c.RequestBody = bytes.TrimSuffix(body, []byte("\n"))
	case "response":
		a, err := answer(data)
		c.Response, c.ResponseBody = a.Head, a.Body
		return err
	case "rulings":
		for line := range strings.Lines(string(data)) {
			if err := c.ruling(strings.TrimSpace(line)); err != nil {
				return err
			}
		}
	case "cut":
		c.Cut = true
	case "abandon":
		text := strings.TrimSpace(string(data))
		c.Abandon = &text
	case "end":
		word, text, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
		if word != "abandon" && word != "fail" || text == "" {
			return fmt.Errorf("it must be abandon TEXT or fail TEXT")
		}
		c.End = &End{Fail: word == "fail", Text: text}
	case "alive":
		c.Alive = map[string]bool{}
		for _, word := range strings.Fields(string(data)) {
			if word != aliveSuspended && word != aliveBegun {
				return fmt.Errorf("%q is neither %s nor %s", word, aliveSuspended, aliveBegun)
			}
			c.Alive[word] = true
		}
	case "error":
		if c.Error = strings.TrimSpace(string(data)); c.Error == "" {
			return fmt.Errorf("it must hold a part of the error")
		}
	case "calls", "hosted", "shown", "record", "told":
	default:
		if name != fmt.Sprintf("response %d", len(c.More)+2) {
			return fmt.Errorf("no section has this name in this place")
		}
		a, err := answer(data)
		c.More = append(c.More, a)
		return err
	}
	return nil
}

// The points of a run at which a case may ask for a keep-alive.
const (
	aliveSuspended = "suspended"
	aliveBegun     = "begun"
)

func answer(data []byte) (a Answer, err error) {
	first, header, body, err := message(data)
	if err != nil {
		return a, err
	}
	if a.Head.Status, err = strconv.Atoi(first); err != nil {
		return a, fmt.Errorf("the first line must be a status: %w", err)
	}
	a.Head.Header = header
	a.Body, err = decode(body)
	return a, err
}

func (c *Case) ruling(line string) error {
	if line == "" {
		return nil
	}
	num, rest, _ := strings.Cut(line, " ")
	seq, err := strconv.Atoi(num)
	if err != nil {
		return fmt.Errorf("%q does not start with a number", line)
	}
	word, text, more := strings.Cut(rest, " ")
	r := inspect.Ruling{}
	switch word {
	case "release":
		r.Release = true
		if more {
			r.Args = []byte(text)
		}
	case "withhold":
		if strings.HasPrefix(text, `"`) {
			if text, err = strconv.Unquote(text); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
		}
		r.Refusal = text
	default:
		return fmt.Errorf("%q is neither release nor withhold", line)
	}
	c.Rulings[seq] = r
	return nil
}

// rulingOn is the ruling that the case gives on a call.
func (c *Case) rulingOn(call toolcall.Call) inspect.Ruling {
	if r, ok := c.Rulings[call.Seq]; ok {
		return r
	}
	return inspect.Ruling{Release: call.Fault == toolcall.FaultNone}
}

// message splits a section into its first line, header and body.
func message(data []byte) (first string, header http.Header, body []byte, err error) {
	header = http.Header{}
	for n := 0; ; n++ {
		line, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok {
			return "", nil, nil, fmt.Errorf("the head must end in a blank line")
		}
		data = rest
		switch {
		case n == 0:
			first = string(line)
		case len(line) == 0:
			return first, header, data, nil
		default:
			k, v, ok := strings.Cut(string(line), ":")
			if !ok {
				return "", nil, nil, fmt.Errorf("header line %q has no colon", line)
			}
			header.Add(k, strings.TrimSpace(v))
		}
	}
}

const (
	signCR  = "\u240d"
	signEnd = "\u2403"
	signHex = "\u241b"
)

// decode turns a section into the bytes it stands for.
func decode(text []byte) ([]byte, error) {
	s := string(text)
	if t, ok := strings.CutSuffix(s, signEnd+"\n"); ok {
		s = t
	}
	s = strings.ReplaceAll(s, signCR, "\r")
	parts := strings.Split(s, signHex)
	out := []byte(parts[0])
	for _, p := range parts[1:] {
		if len(p) < 2 {
			return nil, fmt.Errorf("%s must stand before two hex digits", signHex)
		}
		b, err := hex.DecodeString(p[:2])
		if err != nil {
			return nil, fmt.Errorf("%s must stand before two hex digits: %w", signHex, err)
		}
		out = append(append(out, b...), p[2:]...)
	}
	return out, nil
}

// encode is the reverse of decode.
func encode(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		line, rest, nl := bytes.Cut(b, []byte("\n"))
		valid := string(line) == strings.ToValidUTF8(string(line), "") && !bytes.ContainsAny(line, signCR+signEnd+signHex)
		if txtar.Parse(append(bytes.Clone(line), '\n')).Files != nil {
			out = append(append(out, signHex...), "2d"...)
			line = line[1:]
		}
		for _, c := range line {
			switch {
			case c == '\r':
				out = append(out, signCR...)
			case c < 0x20 && c != '\t', !valid && c >= 0x80:
				out = fmt.Appendf(append(out, signHex...), "%02x", c)
			default:
				out = append(out, c)
			}
		}
		if nl {
			out = append(out, '\n')
		} else {
			out = append(append(out, signEnd...), '\n')
		}
		b = rest
	}
	return out
}

// want gives the text of a section, and whether it is there.
func (c *Case) want(name string) (string, bool) {
	for _, f := range c.archive.Files {
		if f.Name == name {
			return string(f.Data), true
		}
	}
	return "", false
}

// put replaces a section, or adds it.
func (c *Case) put(name, text string) {
	for i := range c.archive.Files {
		if c.archive.Files[i].Name == name {
			c.archive.Files[i].Data = []byte(text)
			return
		}
	}
	c.archive.Files = append(c.archive.Files, txtar.File{Name: name, Data: []byte(text)})
}

func (c *Case) save() error { return os.WriteFile(c.path, txtar.Format(c.archive), 0o644) }

// callLines writes calls as the calls section has them.
func callLines(calls []toolcall.Call) string {
	var b strings.Builder
	for _, c := range calls {
		args := word(string(c.Args))
		if c.Text {
			args = "text:" + args
		}
		fmt.Fprintf(&b, "%d %d %s %s %s %s %s\n", c.Seq, c.Lane, word(c.Type), word(c.Name), word(c.ID), args, c.Fault)
	}
	return b.String()
}

var bare = regexp.MustCompile(`^[^\s"\pC][^\s\pC]*$`)

func word(s string) string {
	if bare.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

func recordLine(r inspect.Record) string {
	s := fmt.Sprintf("id=%s model=%s finish=%s shown=%s input=%d output=%d calls=%d withheld=%d altered=%t",
		word(r.ID), word(r.Model), word(r.Finish), word(r.Shown), r.InputTokens, r.OutputTokens, r.Calls, r.Withheld, r.Altered)
	if r.Rounds > 1 {
		s += fmt.Sprintf(" rounds=%d billed=%d", r.Rounds, r.Billed)
	}
	return s + "\n"
}

// toldLines writes what later requests are told as the told section has it. The
// digest of what was shown is held against the request's side by Form.Check.
func toldLines(t inspect.Told) string {
	var b strings.Builder
	for i, r := range t.Rounds {
		fmt.Fprintf(&b, "round %d %s\n", i+1, word(r.ID))
		if r.Message != nil {
			fmt.Fprintf(&b, "message %s\n", r.Message)
		}
		for _, id := range r.Calls {
			fmt.Fprintf(&b, "call %s\n", word(id))
		}
		for _, f := range r.Refusals {
			fmt.Fprintf(&b, "refusal %d %s\n", f.Call, strconv.Quote(f.Text))
		}
	}
	fmt.Fprintf(&b, "unit %s", word(t.Unit.Answer))
	for _, id := range t.Unit.Calls {
		b.WriteString(" " + word(id))
	}
	b.WriteString("\n")
	for _, n := range t.Notices {
		fmt.Fprintf(&b, "notice %s\n", strconv.Quote(n))
	}
	fmt.Fprintf(&b, "mend=%t bound=%t\n", t.Mend, t.Bound)
	return b.String()
}

// marks are the words of a call that must not be seen before its release.
func marks(c toolcall.Call) []string {
	var words []string
	for _, s := range []string{c.ID, c.Name, string(c.Args)} {
		for i := strings.Index(s, Mark); i >= 0; i = strings.Index(s, Mark) {
			from := strings.LastIndexFunc(s[:i], notWord) + 1
			to := len(s)
			if n := strings.IndexFunc(s[i:], notWord); n >= 0 {
				to = i + n
			}
			words = append(words, s[from:to])
			s = s[to:]
		}
	}
	return words
}

func notWord(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}
