package embedded

import (
	"os"
	"syscall"
)

// attributes make a child of the identity that dies with the supervisor. The signal is the one with which postgres shuts down at
// once; Go sets it after changing the user, so that it survives the change.
func (id *identity) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Credential: id.credential, Pdeathsig: syscall.SIGQUIT}
	if id.namespace {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}
