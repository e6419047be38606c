//go:build !linux

package hook

import "syscall"

// endWithParent does nothing: these systems have no such signal.
func endWithParent(*syscall.SysProcAttr) {}
