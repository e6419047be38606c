//go:build !linux

package main

import "golang.org/x/sys/unix"

// The requests that read and set a terminal.
const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)

// flushInput forgets what was typed and not read.
func flushInput(fd int) { _ = unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, 1) } // 1 is FREAD
