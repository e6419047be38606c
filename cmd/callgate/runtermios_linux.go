package main

import "golang.org/x/sys/unix"

// The requests that read and set a terminal.
const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
)

// flushInput forgets what was typed and not read.
func flushInput(fd int) { _ = unix.IoctlSetInt(fd, unix.TCFLSH, unix.TCIFLUSH) }
