package config

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

// Flag is a setting that stands on the command line.
type Flag struct {
	Name  string // as the user wrote it: --listen
	Key   string // the setting's path: listen
	Value string
}

// LoadOptions say what is laid over the defaults.
type LoadOptions struct {
	// Path is the configuration file; it must exist. "" looks at the variable
	// CALLGATE_CONFIG, then for callgate/callgate.yaml in XDG_CONFIG_HOME (or
	// ~/.config) and in /etc; finding none of these two is fine.
	Path string
	// Environ is the environment as KEY=VALUE. Nothing else is asked for a
	// variable.
	Environ []string
	// Secrets is the environment as KEY=VALUE in which ${NAME} of a secret in
	// the file is looked for; nil stands for Environ.
	Secrets []string
	// Secretless leaves secrets where the file says that they are: for
	// commands that need none, run by whoever may have none.
	Secretless bool
	// Flags win over everything, later ones over earlier ones. An empty value
	// is a fault: a flag that is there for nothing was meant to be something.
	Flags []Flag
	// Check says what else is wrong with the settings for whoever loads them,
	// such as a hook that cannot be run; nil when nothing can be. It may be
	// called with settings that are at fault elsewhere. Its faults need no
	// place: they get that of their key.
	Check func(*Config) Faults
}

// Source says where a setting comes from.
type Source struct {
	// Kind is "default", "file", "environment" or "flag".
	Kind string `json:"kind"`
	// Place is FILE:LINE:COLUMN, the variable's name or the flag's; for a
	// default what it was derived from, or "".
	Place string `json:"place,omitempty"`
}

// String gives kind and place as people read them.
func (s Source) String() string {
	if s.Place == "" {
		return s.Kind
	}
	return s.Kind + " " + s.Place
}

// Sources tells where the settings come from.
type Sources struct {
	// File is the configuration file that was read, "" when none was.
	File  string
	byKey map[string]Source
	vars  map[string]bool
	plain map[string]bool // the secrets that stand in the file themselves
}

// SecretVars lists the variables of the environment that hold secrets of
// callgate's because the file names them.
func (s Sources) SecretVars() []string { return slices.Sorted(maps.Keys(s.vars)) }

// InFile says that a secret stands in the configuration file itself, where
// whoever reads the file has it.
func (s Sources) InFile(key string) bool { return s.plain[key] && s.Of(key).Kind == "file" }

// Of gives the source of a setting by its path; what nobody set comes from the
// thing it is part of, or from the defaults.
func (s Sources) Of(key string) Source {
	for {
		if src, ok := s.byKey[key]; ok {
			return src
		}
		i := strings.LastIndexByte(key, '.')
		if i < 0 {
			return Source{Kind: "default"}
		}
		key = key[:i]
	}
}

// sets says that the setting was set, or that a section of that name stands in
// the file.
func (s Sources) sets(key string) bool {
	for k, src := range s.byKey {
		if k == key && src.Kind != "default" || strings.HasPrefix(k, key+".") && src.Kind == "file" {
			return true
		}
	}
	return false
}

// set records a source and forgets those of the parts of what was replaced.
func (s Sources) set(key string, src Source) {
	for k := range s.byKey {
		if strings.HasPrefix(k, key+".") {
			delete(s.byKey, k)
		}
	}
	s.byKey[key] = src
}

const systemFile = "/etc/callgate/callgate.yaml"

// Load gives the settings in force: flags over environment over file over
// defaults. What it returns without an error is valid; only State may be empty,
// where neither a setting nor the environment names a directory. Faults come
// all at once, as Faults, each with its place; what only follows from another
// fault is left out.
func Load(o LoadOptions) (*Config, Sources, error) {
	c := Default()
	l := loader{c: &c, env: environ(o.Environ), src: Sources{byKey: map[string]Source{}, vars: map[string]bool{}, plain: map[string]bool{}}, broken: &broken{}}
	l.file(o.Path)
	secrets := l.env
	if o.Secrets != nil {
		secrets = environ(o.Secrets)
	}
	if o.Secretless {
		secrets = nil
	}
	l.secrets(secrets)
	l.environment()
	for _, f := range o.Flags {
		l.flag(f)
	}
	l.broken.settle(l.src)
	l.derive()
	l.faults = append(l.faults, l.placed(l.judge(o.Check))...)
	if err := l.faults.orNil(); err != nil {
		return nil, l.src, err
	}
	return &c, l.src, nil
}

// loader lays one source after the other over a Config.
type loader struct {
	c      *Config
	env    map[string]string
	src    Sources
	broken *broken
	faults Faults
	// readable says that others than its owner can read the file.
	readable bool
}

// environ makes a map of KEY=VALUE. Of the same key twice the last counts, as
// for programs that are started with it; an empty value counts as not set.
func environ(list []string) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
	return m
}

// judge says what is wrong with the settings as they are read. What check
// finds counts only where nothing is wrong with the same setting already.
func (l *loader) judge(check func(*Config) Faults) Faults {
	out := l.c.faults(l.broken)
	if check == nil {
		return out
	}
	for _, f := range check(l.c) {
		known := slices.ContainsFunc(out, func(o Fault) bool { return o.Key == f.Key })
		if !known && !l.broken.touches(f.Key) {
			out = append(out, f)
		}
	}
	return out
}

// file finds and reads the configuration file.
func (l *loader) file(path string) {
	given := path
	if given == "" {
		given = l.env["CALLGATE_CONFIG"]
	}
	candidates := []string{given}
	if given == "" {
		candidates = l.searchPath()
	}
	for _, name := range candidates {
		text, info, err := readFile(name)
		if given == "" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			l.broken.add("")
			l.faults = append(l.faults, Fault{Place: name, Reason: "cannot be read: " + pathReason(err), Remedy: "name an existing, readable file"})
			return
		}
		l.src.File = name
		l.readable = info.Mode().Perm()&0o077 != 0
		d := decoder{file: name, src: l.src, c: l.c, broken: l.broken}
		d.document(text)
		l.faults = append(l.faults, d.faults...)
		return
	}
}

// searchPath lists where a file is looked for when none is named.
func (l *loader) searchPath() []string {
	var paths []string
	switch {
	case filepath.IsAbs(l.env["XDG_CONFIG_HOME"]):
		paths = append(paths, filepath.Join(l.env["XDG_CONFIG_HOME"], "callgate", "callgate.yaml"))
	case l.env["HOME"] != "":
		paths = append(paths, filepath.Join(l.env["HOME"], ".config", "callgate", "callgate.yaml"))
	}
	return append(paths, systemFile)
}

const maxFile = 1 << 20

func readFile(name string) ([]byte, fs.FileInfo, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		return nil, nil, errors.New("it is a directory")
	}
	if info.Size() > maxFile {
		return nil, nil, errors.New("it is larger than 1 MiB")
	}
	text, err := os.ReadFile(name)
	return text, info, err
}

// pathReason gives the reason of a file error without the path, which the
// message has already.
func pathReason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// environment reads the variables of the settings, one at a time so that an
// error can name its variable.
func (l *loader) environment() {
	for _, lf := range leaves(l.c) {
		text, ok := l.env[lf.env]
		if lf.env == "" || !ok {
			continue
		}
		err := env.ParseWithOptions(l.c, env.Options{Environment: map[string]string{lf.env: text}})
		if err != nil {
			l.fault(lf, lf.env, text, err)
			continue
		}
		l.record(lf, text, Source{Kind: "environment", Place: lf.env})
	}
	l.misspelt()
}

// misspelt reports variables that must have been meant for a setting.
func (l *loader) misspelt() {
	byKey := EnvVars()
	for _, name := range slices.Sorted(maps.Keys(l.env)) {
		meant := meantVars(name, slices.Collect(maps.Values(byKey)))
		if len(meant) == 0 || l.src.vars[name] {
			continue
		}
		for key, v := range byKey {
			if slices.Contains(meant, v) {
				l.broken.mean(key)
			}
		}
		l.faults = append(l.faults, Fault{
			Place: name, Reason: "is not a variable of callgate", Remedy: "did you mean " + strings.Join(meant, " or ") + "?",
		})
	}
}

// reasonOf finds what is wrong with a value in the error of the env package,
// whose own words name Go types.
func reasonOf(err error, lf leaf) string {
	if pe, ok := errors.AsType[env.ParseError](err); ok {
		switch lf.v.Interface().(type) {
		case bool:
			return errNotBool.Error()
		case int:
			return errNotNumber.Error()
		}
		return pe.Err.Error()
	}
	return err.Error()
}

// flag lays one flag over the rest.
func (l *loader) flag(f Flag) {
	all := leaves(l.c)
	i := slices.IndexFunc(all, func(lf leaf) bool { return lf.path == f.Key })
	if i < 0 {
		l.faults = append(l.faults, Fault{Place: f.Name, Key: f.Key, Reason: "is not a setting"})
		return
	}
	if f.Value == "" {
		l.broken.add(f.Key)
		l.faults = append(l.faults, Fault{Place: f.Name, Key: f.Key, Reason: "is empty", Remedy: "give it a value or leave it out"})
		return
	}
	if err := setText(all[i].v, f.Value); err != nil {
		l.fault(all[i], f.Name, f.Value, err)
		return
	}
	l.record(all[i], f.Value, Source{Kind: "flag", Place: f.Name})
}

// fault reports that the text of a variable or a flag could not be read.
func (l *loader) fault(lf leaf, place, value string, err error) {
	l.broken.add(lf.path)
	cause := err
	if pe, ok := errors.AsType[env.ParseError](err); ok {
		cause = pe.Err // which it does not unwrap
	}
	if bad, ok := errors.AsType[notPairs](cause); ok {
		for _, item := range bad {
			l.faults = append(l.faults, Fault{Place: place, Key: lf.path, Value: item, Reason: notPair})
		}
		return
	}
	if lf.secret {
		value = ""
	}
	l.faults = append(l.faults, Fault{Place: place, Key: lf.path, Value: value, Reason: reasonOf(err, lf)})
}

// record notes the source of a setting; of the upstreams only those named in
// the text were set.
func (l *loader) record(lf leaf, text string, src Source) {
	if _, ok := lf.v.Interface().(Upstreams); !ok {
		l.src.set(lf.path, src)
		return
	}
	var only Upstreams
	if err := only.UnmarshalText([]byte(text)); err != nil {
		return // it was read without an error just before
	}
	for name := range only {
		l.src.set(lf.path+"."+name, src)
	}
}

// derive fills in what follows from other settings and from the environment.
func (l *loader) derive() {
	c := l.c
	a := &c.Approvals
	set := func(key string) bool { return l.src.Of(key).Kind != "default" }
	if a.Mode == ModeManual && a.Timeout > 0 && set("approvals.timeout") && !set("approvals.human_timeout") {
		a.HumanTimeout = a.Timeout
		l.derived("approvals.human_timeout", "approvals.timeout")
	}
	if c.State == "" {
		switch {
		case filepath.IsAbs(l.env["XDG_STATE_HOME"]):
			c.State = filepath.Join(l.env["XDG_STATE_HOME"], "callgate")
			l.derived("state", "XDG_STATE_HOME")
		case l.env["HOME"] != "":
			c.State = filepath.Join(l.env["HOME"], ".local", "state", "callgate")
			l.derived("state", "HOME")
		}
	}
	if c.World.Home == "" && l.env["HOME"] != "" {
		c.World.Home = l.env["HOME"]
		l.derived("world.home", "HOME")
	}
	if c.World.User == "" {
		for _, name := range []string{"USER", "LOGNAME"} {
			if l.env[name] != "" {
				c.World.User = l.env[name]
				l.derived("world.user", name)
				break
			}
		}
	}
	for _, p := range []*string{&c.State, &c.CA.Dir, &c.World.Home, &c.World.Cwd, &c.World.Workspace} {
		*p = l.expandHome(*p)
	}
	for _, p := range []*string{&c.State, &c.CA.Dir} {
		if *p != "" && !filepath.IsAbs(*p) {
			if abs, err := filepath.Abs(*p); err == nil {
				*p = abs
			}
		}
	}
}

func (l *loader) derived(key, from string) {
	l.src.set(key, Source{Kind: "default", Place: "from " + from})
}

// expandHome replaces a leading ~ of a path.
func (l *loader) expandHome(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		if home := l.env["HOME"]; home != "" {
			return filepath.Join(home, path[1:])
		}
	}
	return path
}

// placed gives each fault the place where its setting was set, and adds those
// that only a file can have.
func (l *loader) placed(fs Faults) Faults {
	fs = append(fs, l.exposed()...)
	for i := range fs {
		if src := l.src.Of(fs[i].Key); src.Kind != "default" {
			fs[i].Place = src.Place
		}
	}
	return fs
}
