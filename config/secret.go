package config

import (
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// A secret may stand in the file itself, which its owner alone may then be
// able to read, or the file says where it is: ${NAME} is a variable of the
// environment, file:PATH a file of its own.
const secretFile = "file:"

var secretVar = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)

// secretKey says that the value of a setting is never shown.
func secretKey(path string) bool {
	last := path[strings.LastIndexByte(path, '.')+1:]
	switch {
	case strings.HasPrefix(path, "control."), strings.HasPrefix(path, "agents."):
		return last == "token" || last == "token_sha256"
	case strings.HasPrefix(path, "upstreams."):
		return last == "value" || last == "bearer" || last == "x_api_key"
	}
	return false
}

// secrets puts secrets into the place of what the file says of where they are;
// without an environment it leaves that there, and such settings unchecked.
func (l *loader) secrets(environ map[string]string) {
	for _, lf := range leaves(l.c) {
		switch x := lf.v.Interface().(type) {
		case Upstreams:
			for _, name := range x.Names() {
				up := x[name]
				l.secretsIn("upstreams."+name+".", reflect.ValueOf(&up).Elem(), environ)
				x[name] = up
			}
		case Agents:
			for _, name := range x.Names() {
				a := x[name]
				l.secretsIn("agents."+name+".", reflect.ValueOf(&a).Elem(), environ)
				x[name] = a
			}
		default:
			l.secret(lf, environ)
		}
	}
}

func (l *loader) secretsIn(prefix string, v reflect.Value, environ map[string]string) {
	for _, lf := range appendLeaves(nil, prefix, v) {
		l.secret(lf, environ)
	}
}

func (l *loader) secret(lf leaf, environ map[string]string) {
	src, set := l.src.byKey[lf.path]
	if !lf.secret || !set {
		return
	}
	fault := func(reason, remedy string) {
		l.broken.add(lf.path)
		l.faults = append(l.faults, Fault{Place: src.Place, Key: lf.path, Reason: reason, Remedy: remedy})
	}
	text := lf.v.String()
	if environ == nil && (secretVar.MatchString(text) || strings.HasPrefix(text, secretFile)) {
		l.broken.add(lf.path)
		return
	}
	if m := secretVar.FindStringSubmatch(text); m != nil {
		value, ok := environ[m[1]]
		if !ok {
			fault("names the variable "+m[1]+", which is not set", "set it, or write another")
			return
		}
		l.src.vars[m[1]] = true
		lf.v.SetString(value)
		return
	}
	path, inFile := strings.CutPrefix(text, secretFile)
	switch {
	case inFile:
		value, reason, remedy := readSecret(l.expandHome(path))
		if reason != "" {
			fault(reason, remedy)
			return
		}
		lf.v.SetString(value)
	case strings.Contains(text, "${"):
		fault("has ${ in it and is not the name of one variable alone", "write the whole value as ${NAME}")
	case text == "" && lf.path != "control.token":
		fault("is empty", "give it a value or remove the key")
	case text != "":
		l.src.plain[lf.path] = true
	}
}

// maxSecret is the largest file that a secret is read from.
const maxSecret = 64 << 10

// readSecret reads a secret from a file of its own. White space at its end is
// none of it: editors and shells put it there.
func readSecret(path string) (value, reason, remedy string) {
	info, err := os.Stat(path)
	var text []byte
	if err == nil && info.Mode().IsRegular() && info.Size() <= maxSecret {
		text, err = os.ReadFile(path)
	}
	switch {
	case err != nil:
		return "", "names the file " + path + ", which cannot be read: " + pathReason(err), "name an existing, readable file"
	case !info.Mode().IsRegular() || info.Size() > maxSecret:
		return "", "names " + path + ", which is no file with a secret in it", "name a file that holds the secret alone"
	case info.Mode().Perm()&othersMay != 0:
		return "", "names the file " + path + ", which everybody can read or change", "run chmod o= on it"
	}
	value = strings.TrimRight(string(text), " \t\r\n")
	if value == "" {
		return "", "names the file " + path + ", which is empty", "put the secret into it"
	}
	return value, "", ""
}

// othersMay are the rights that nobody may have on a secret's own file but
// owner and group: what hands out secrets to containers gives them to a group.
const othersMay fs.FileMode = 0o007

// exposed reports the secrets that stand in a file that others can read.
func (l *loader) exposed() (fs Faults) {
	if !l.readable {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(l.src.plain)) {
		if !l.src.InFile(key) {
			continue
		}
		remedy := "run chmod 600 on it, or write ${NAME} of a variable or file:PATH"
		switch {
		case key == "control.token":
			remedy = "run chmod 600 on it, or use control.token_sha256 or CALLGATE_CONTROL_TOKEN"
		case strings.HasPrefix(key, "agents."):
			remedy = "run chmod 600 on it, or use " + key + "_sha256, ${NAME} of a variable or file:PATH"
		}
		fs = append(fs, Fault{Key: key, Reason: "stands in a file that others than its owner can read", Remedy: remedy})
	}
	return fs
}
