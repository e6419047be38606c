package hook

import "syscall"

// endWithParent has the process killed when the thread that started it ends,
// as it does when callgate is killed. What the hook itself started does not
// inherit this.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
