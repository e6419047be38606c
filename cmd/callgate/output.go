package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"github.com/spf13/cobra"
)

// output is standard output that remembers the first write that failed: a
// command whose result nobody got has not worked, whatever it says itself.
type output struct {
	w io.Writer

	mu  sync.Mutex // guards what is below
	err error
}

// watched is the same env with its output watched. A terminal is left as it
// is: who asks it for its width needs the file.
func (e *env) watched() (*env, *output) {
	o := &output{w: e.Stdout}
	if e.StdoutTTY {
		return e, o
	}
	with := *e
	with.Stdout = o
	return &with, o
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// outcome is the error of a command with what is known of its output. serve
// goes on without a reader and judges for itself what that means.
func (o *output) outcome(cmd *cobra.Command, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || cmd.Name() == "serve" || err != nil && !errors.Is(err, o.err) {
		return err
	}
	reason := o.err
	if pe, ok := errors.AsType[*fs.PathError](reason); ok {
		reason = pe.Err
	}
	return fmt.Errorf("standard output: cannot be written: %w", reason)
}
