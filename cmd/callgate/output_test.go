package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// fullDisk takes so many bytes and then no more.
type fullDisk struct{ room int }

func (f *fullDisk) Write(p []byte) (int, error) {
	if len(p) > f.room {
		n := f.room
		f.room = 0
		return n, &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	}
	f.room -= len(p)
	return len(p), nil
}

func TestAResultThatNobodyGotIsAFailure(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--help"}, {"help", "check"}, {"check", "--help"}, {"version"}, {"version", "--json"},
		{"check", "ls"}, {"check", "rm -rf /"}, {"check", "--json", "ls"}, {"check", "--jsonl"},
		{"config", "show"}, {"config", "show", "--json"}, {"config", "validate"}, {"config", "validate", "--json"}, {"config", "init"},
		{"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"}, {"completion", "powershell"},
		{"demo", "--answer", "no"}, {"demo", "--answer", "yes", "--json"},
	} {
		for _, room := range []int{0, 20} {
			e, _, stderr := testEnv("HOME=" + t.TempDir())
			e.Stdin = strings.NewReader(`{"id":"a long enough id","tool":"bash","input":{"command":"ls"}}`)
			e.Stdout = &fullDisk{room: room}
			if got := run(context.Background(), e, args); got != exitFailed || stderr.String() != "callgate: standard output: cannot be written: no space left on device\n" {
				t.Errorf("%q with room for %d bytes: exit code %d, error %q", args, room, got, stderr)
			}
		}
	}
}

func TestAnotherErrorThanThatOfTheOutputStays(t *testing.T) {
	boom, full := errors.New("boom"), &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	e, _, _ := testEnv()
	root := newRootCommand(e)
	serve, _, err := root.Find([]string{"serve"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		out, err error
		serve    bool
		want     string
	}{
		{"nothing happened", nil, nil, false, ""},
		{"the command failed", nil, boom, false, "boom"},
		{"the command failed for another reason", full, boom, false, "boom"},
		{"the command did not say it", full, nil, false, "standard output: cannot be written: no space left on device"},
		{"the command did say it", full, full, false, "standard output: cannot be written: no space left on device"},
		{"serve goes on without a reader", full, nil, true, ""},
	} {
		cmd := root
		if tc.serve {
			cmd = serve
		}
		got := ""
		if err := (&output{w: io.Discard, err: tc.out}).outcome(cmd, tc.err); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: error is %q, want %q", tc.name, got, tc.want)
		}
	}
}
