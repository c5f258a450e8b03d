package embedded

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
)

// identity is whom the server runs as. PostgreSQL refuses to run as root, and initdb wants a user that has a name.
type identity struct {
	name       string
	credential *syscall.Credential // nil: as this process
	namespace  bool                // in a user namespace in which this user looks like nobody
}

// identities lists the ways to run the server, best first. The user namespace rescues a user without a name, and a root that may not
// become anybody else, as in a container without privileges.
func identities() []identity {
	uid := os.Geteuid()
	if uid == 0 {
		uid, gid, name := demoted()
		return append([]identity{{
			name:       fmt.Sprintf("%s, since PostgreSQL does not run as root", name),
			credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: []uint32{}},
		}}, namespaced()...)
	}
	// Even without an entry that Go finds: initdb may know more ways to look up a name, and with a template it is not needed.
	name := "user " + strconv.Itoa(uid)
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = u.Username
	}
	return append([]identity{{name: name}}, namespaced()...)
}

func namespaced() []identity {
	if runtime.GOOS != "linux" {
		return nil
	}
	return []identity{{name: "nobody in a user namespace", namespace: true}}
}

// demoted returns whom root gives the server to: who called sudo, else postgres, else nobody.
func demoted() (uid, gid uint32, name string) {
	u, uerr := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32)
	g, gerr := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 32)
	if uerr == nil && gerr == nil && u != 0 {
		if who, err := user.LookupId(os.Getenv("SUDO_UID")); err == nil {
			return uint32(u), uint32(g), who.Username
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		if who, err := user.Lookup(name); err == nil {
			u, uerr := strconv.ParseInt(who.Uid, 10, 64) // macOS writes nobody as -2
			g, gerr := strconv.ParseInt(who.Gid, 10, 64)
			if uerr == nil && gerr == nil && u != 0 {
				return uint32(u), uint32(g), name
			}
		}
	}
	return 65534, 65534, "user 65534"
}

// plainPath matches paths that need no quotes, neither in the server's configuration nor in a DSN.
var plainPath = regexp.MustCompile(`^/[\pL\pN_./+@:=~-]*$`)

// bases lists the folders in which the server's directory may be made, best first. Many systems keep /tmp in memory, where a flush
// costs nothing and a durable server is none; a TMPDIR that was set is somebody's wish.
func bases(durable bool, inMemory func(string) bool) []string {
	dirs := []string{os.TempDir(), "/tmp", "/var/tmp"}
	if durable && os.Getenv("TMPDIR") == "" && inMemory(dirs[0]) {
		dirs = []string{"/var/tmp", "/tmp"}
	}
	var list []string
	for _, d := range dirs {
		if d, err := filepath.Abs(d); err == nil && (len(list) == 0 || list[len(list)-1] != d) {
			list = append(list, d)
		}
	}
	return list
}

// unfit says why a folder will not do for the server's directory; "" if it will.
func (id *identity) unfit(dir string) string {
	limit := 107
	if runtime.GOOS == "darwin" {
		limit = 103
	}
	switch {
	case len(filepath.Join(dir, dirPrefix+"1234567890", "s", ".s.PGSQL.12345")) > limit:
		return "is too long for a socket's path"
	case !plainPath.MatchString(dir):
		return "has characters that a server's settings cannot take"
	case id.credential != nil && !open(dir):
		return "cannot be entered by the server's user"
	}
	return ""
}

// open reports whether everybody may enter a folder.
func open(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for {
		st, err := os.Stat(dir)
		if err != nil || st.Mode().Perm()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}
