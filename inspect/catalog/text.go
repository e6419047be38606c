package catalog

import (
	"strings"

	"callgate/inspect/toolcall"
)

// textActions reads a call whose arguments are free text: the tool's name says
// what the text is.
func (c *Catalog) textActions(name, text string) []toolcall.Action {
	e, exact := c.lookup(name)
	form := ""
	if e != nil {
		form = e.text
		if form == "" && e.kind == toolcall.KindCommand {
			form = e.language
		}
	}
	if form == "" {
		form = textForm(name, text)
	}
	r := reader{c: c}
	switch form {
	case "":
		return []toolcall.Action{{Kind: toolcall.KindTool, Tool: name, Known: exact}}
	case "patch":
		r.patch(name, text, "")
		if len(r.out) == 0 {
			r.out = append(r.out, toolcall.Action{Kind: toolcall.KindFile, Tool: name, Content: []byte(text)})
		}
	default:
		r.emit(reading{tool: name}, text, form)
	}
	for i := range r.out {
		r.out[i].Known = exact
	}
	return r.out
}

// textForm tells from name and text what the text of an unknown tool is.
func textForm(name, text string) string {
	if len(patchFiles(text)) > 0 && strings.Contains(text, patchBegin) {
		return "patch"
	}
	if saysShell(name) {
		return toolcall.LangShell
	}
	for _, w := range nameWords(name) {
		if l, ok := languageWords[w]; ok {
			return l
		}
	}
	return ""
}

// patch gives out a file action for each file of a patch.
func (r *reader) patch(tool, text, dir string) {
	for _, f := range patchFiles(text) {
		r.out = append(r.out, toolcall.Action{
			Kind: toolcall.KindFile, Tool: tool, Known: true, Dir: dir, Path: f.path, Op: f.op, Content: f.content,
		})
	}
}

const patchBegin = "*** Begin Patch"

type patchFile struct {
	path    string
	op      toolcall.Op
	content []byte
}

// patchFiles reads which files a patch changes and what it adds to each. It
// knows the form of Codex' apply_patch (*** Add File: NAME) and unified diffs
// (+++ b/NAME). A line that could be either a marker or content is both.
func patchFiles(text string) []patchFile {
	var files []patchFile
	add := func(path string, op toolcall.Op) {
		files = append(files, patchFile{path: path, op: op})
	}
	oldName, header := "", false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		mark := strings.TrimSpace(line)
		behindOld := header
		header = false
		switch {
		case strings.HasPrefix(mark, "*** "):
			if path, op, ok := codexMarker(mark); ok {
				add(path, op)
				continue
			}
		case strings.HasPrefix(line, "--- "):
			oldName, header = diffName(line[4:], "a/"), true
		case strings.HasPrefix(line, "+++ "):
			if name := diffName(line[4:], "b/"); name != "" {
				add(name, toolcall.OpWrite)
			} else if oldName != "" {
				add(oldName, toolcall.OpDelete)
			}
			if behindOld {
				continue
			}
		}
		if body, ok := strings.CutPrefix(line, "+"); ok && len(files) > 0 {
			f := &files[len(files)-1]
			f.content = append(append(f.content, body...), '\n')
		}
	}
	return files
}

// codexMarker reads a line that begins a file in Codex' form.
func codexMarker(line string) (path string, op toolcall.Op, ok bool) {
	for _, m := range []struct {
		mark string
		op   toolcall.Op
	}{
		{"*** Add File:", toolcall.OpWrite}, {"*** Update File:", toolcall.OpWrite},
		{"*** Delete File:", toolcall.OpDelete}, {"*** Move to:", toolcall.OpWrite},
		{"*** Move File:", toolcall.OpWrite},
	} {
		if rest, found := strings.CutPrefix(line, m.mark); found {
			return strings.TrimSpace(rest), m.op, true
		}
	}
	return "", 0, false
}

// diffName reads the name of a unified diff's file line, "" for /dev/null.
func diffName(s, prefix string) string {
	name, _, _ := strings.Cut(s, "\t")
	name = strings.TrimSpace(name)
	if name == "/dev/null" {
		return ""
	}
	return strings.TrimPrefix(name, prefix)
}
