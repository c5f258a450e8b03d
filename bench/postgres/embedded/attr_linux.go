package embedded

import (
	"os"
	"syscall"
)

// attributes make a child of the identity that dies with the supervisor. The signal is the one with which postgres shuts down at
// once; Go sets it after changing the user, so that it survives the change. The child leads a group, so that its children can be
// ended with it.
func (id *identity) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Credential: id.credential, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	if id.namespace {
		attr.Cloneflags = syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 65534, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// inMemory reports whether a folder is kept in memory.
func inMemory(dir string) bool {
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var st syscall.Statfs_t
	if syscall.Statfs(dir, &st) != nil {
		return false
	}
	return uint32(st.Type) == tmpfs || uint32(st.Type) == ramfs
}
