package embedded

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"github.com/lockbench/lockbench/bench"
)

// identity is whom the server runs as. PostgreSQL refuses to run as root, and initdb wants a user that has a name.
type identity struct {
	name       string
	credential *syscall.Credential // nil: as this process
	namespace  bool                // in a user namespace in which this user looks like nobody
}

// identities lists the ways to run the server, best first.
func identities() ([]identity, error) {
	uid := os.Geteuid()
	if uid == 0 {
		uid, gid, name := demoted()
		ids := []identity{{
			name:       fmt.Sprintf("%s, since PostgreSQL does not run as root", name),
			credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: []uint32{}},
		}}
		return append(ids, namespaced()...), nil
	}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return []identity{{name: u.Username}}, nil
	}
	ids := namespaced()
	if len(ids) == 0 {
		return nil, bench.Hintf("add the user to /etc/passwd, or name a running server with --dsn", "user %d has no name, which initdb needs", uid)
	}
	return ids, nil
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
			u, uerr := strconv.ParseUint(who.Uid, 10, 32)
			g, gerr := strconv.ParseUint(who.Gid, 10, 32)
			if uerr == nil && gerr == nil {
				return uint32(u), uint32(g), name
			}
		}
	}
	return 65534, 65534, "user 65534"
}

// base returns a directory for the server's: one that its user can reach and whose path is short enough for a socket.
func (id *identity) base() (string, error) {
	var tried []string
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		dir, err := filepath.Abs(dir)
		if err != nil {
			continue
		}
		why := id.unfit(dir)
		if why == "" {
			return dir, nil
		}
		tried = append(tried, dir+" "+why)
	}
	return "", bench.Hintf("set TMPDIR to a short path that everybody may enter", "no place for the server's directory: %v", tried)
}

// unfit says why a directory will not do; "" if it will.
func (id *identity) unfit(dir string) string {
	socket := filepath.Join(dir, dirPrefix+"1234567890", "s", ".s.PGSQL.12345")
	limit := 107
	if runtime.GOOS == "darwin" {
		limit = 103
	}
	if len(socket) > limit {
		return "is too long for a socket's path"
	}
	probe, err := os.MkdirTemp(dir, dirPrefix+"probe-")
	if err != nil {
		return "cannot be written"
	}
	_ = os.Remove(probe)
	if id.credential != nil {
		for d := dir; ; d = filepath.Dir(d) {
			if st, err := os.Stat(d); err != nil || st.Mode().Perm()&0o001 == 0 {
				return "cannot be entered by " + id.name
			}
			if d == filepath.Dir(d) {
				break
			}
		}
	}
	return ""
}
