package config

import (
	"strconv"
	"strings"
)

// Fault is one thing that is wrong with the settings.
type Fault struct {
	// Place is where it stands: FILE:LINE:COLUMN, an environment variable or
	// a flag; "" where it stands nowhere.
	Place string
	// Key is the setting's path: approvals.mode.
	Key string
	// Value is what it was set to, "" where that is not to be shown.
	Value string
	// Reason says what is wrong, and Remedy what to do.
	Reason, Remedy string
}

// Error gives the fault in one line.
func (f Fault) Error() string {
	var b strings.Builder
	key := f.Key
	if f.ofFlag() {
		key = "" // --listen says it
	}
	for _, part := range []string{f.Place, key} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	if f.Value != "" {
		b.WriteString(strconv.Quote(f.Value) + " ")
	}
	b.WriteString(f.Reason)
	if f.Remedy != "" {
		b.WriteString("; " + f.Remedy)
	}
	return b.String()
}

// ofFlag says that the setting was set by the flag of its own name.
func (f Fault) ofFlag() bool {
	flag, ok := strings.CutPrefix(f.Place, "--")
	last := f.Key[strings.LastIndexByte(f.Key, '.')+1:]
	return ok && (last == flag || f.Key == flag+"s")
}

// Faults is everything that is wrong, in the order in which it was found.
type Faults []Fault

// Error gives all faults, one a line.
func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.Error()
	}
	return strings.Join(lines, "\n")
}

// orNil gives the faults as an error, nil when there are none.
func (fs Faults) orNil() error {
	if len(fs) == 0 {
		return nil
	}
	return fs
}
