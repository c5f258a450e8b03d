//go:build !linux

package embedded

import "syscall"

// attributes make a child of the identity. There is no death signal here: a server whose supervisor was killed is ended by the next
// start's janitor.
func (id *identity) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: id.credential, Setpgid: true}
}

func inMemory(string) bool { return false }
