package embedded

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// cacheDir returns where templates and fetched binaries are kept; "" if there is no such place. Root's must be reachable by whom the
// server is given to, and root's home is not. A user without a home has a folder among the temporary ones.
func cacheDir(asked string) string {
	if asked != "" {
		if dir, err := filepath.Abs(asked); err == nil {
			return dir
		}
		return asked
	}
	if os.Geteuid() == 0 {
		return "/var/cache/lockbench"
	}
	if dir, err := os.UserCacheDir(); err == nil {
		if dir = filepath.Join(dir, "lockbench"); os.MkdirAll(dir, 0o755) == nil && syscall.Access(dir, 0x2) == nil {
			return dir
		}
	}
	dir := filepath.Join(os.TempDir(), "lockbench-"+strconv.Itoa(os.Geteuid()))
	if _, err := private(dir, true); err != nil {
		return ""
	}
	return dir
}

// mkdirShared makes a folder that others may enter, whatever the umask.
func mkdirShared(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir {
		if err := mkdirShared(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if os.IsExist(err) {
			return nil
		}
		return err
	}
	return os.Chmod(dir, 0o755)
}

// template is a data directory as initdb left it. Copying it takes a fifth of the time of making one.
type template struct{ dir string }

// templateFor names the template of a program: its version, its file, and who made it.
func templateFor(cache, binDir, version string) template {
	st, err := os.Stat(filepath.Join(binDir, "postgres"))
	if cache == "" || err != nil {
		return template{}
	}
	h := sha256.Sum256(fmt.Appendf(nil, "v1 %s %s %d %d %d", binDir, version, st.Size(), st.ModTime().UnixNano(), os.Geteuid()))
	return template{dir: filepath.Join(cache, "templates", version+"-"+hex.EncodeToString(h[:6]))}
}

// usable reports whether the template is there and nobody else could have put it there.
func (t template) usable() bool {
	if t.dir == "" || !ours(t.dir) {
		return false
	}
	st, err := os.Lstat(t.dir)
	return err == nil && st.Mode().Perm()&0o077 == 0
}

const (
	makingPrefix = "making-"
	makingAge    = time.Hour // after which a copy that has not got its name was left behind
)

// make keeps a copy of a new data directory. It is a convenience: where it cannot be made the next start is slower, nothing else.
// The copy gets its name when it is whole, so that a half-made one is never found.
func (t template) make(data string, stop <-chan struct{}) {
	if t.dir == "" || mkdirShared(filepath.Dir(t.dir)) != nil {
		return
	}
	parent := filepath.Dir(t.dir)
	sweepOld(parent, makingPrefix)
	tmp, err := os.MkdirTemp(parent, makingPrefix)
	if err != nil {
		return
	}
	if copyTree(data, tmp, nil, stop) != nil || os.Rename(tmp, t.dir) != nil {
		_ = os.RemoveAll(tmp)
	}
}

// sweepOld removes what killed processes left in a folder of the cache.
func sweepOld(dir, prefix string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); strings.HasPrefix(e.Name(), prefix) && ours(path) {
			if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > makingAge {
				_ = os.RemoveAll(path)
			}
		}
	}
}

// copyTo fills an empty directory.
func (t template) copyTo(data string, own *syscall.Credential, stop <-chan struct{}) error {
	return copyTree(t.dir, data, own, stop)
}

// discard removes a template that makes no server.
func (t template) discard() {
	if t.usable() {
		_ = os.RemoveAll(t.dir)
	}
}

// copyTree copies what is in one directory into another that exists, and gives it to an owner. One of the two belongs to the server's
// user, who must not lead root astray with a link: neither side is left.
func copyTree(from, to string, own *syscall.Credential, stop <-chan struct{}) error {
	src, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	var g errgroup.Group
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	err = fs.WalkDir(src.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		select {
		case <-stop:
			return context.Canceled
		default:
		}
		switch {
		case path == ".":
			return nil
		case d.IsDir():
			if err := dst.Mkdir(path, 0o700); err != nil || own == nil {
				return err
			}
			return dst.Lchown(path, int(own.Uid), int(own.Gid))
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is no regular file", path)
		}
		g.Go(func() error { return copyFile(src, dst, path, own) })
		return nil
	})
	if werr := g.Wait(); err == nil {
		err = werr
	}
	return err
}

func copyFile(src, dst *os.Root, path string, own *syscall.Credential) (err error) {
	in, err := src.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := dst.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err = io.Copy(out, in); err != nil || own == nil {
		return err
	}
	return out.Chown(int(own.Uid), int(own.Gid))
}

// emptyDir removes what is in a directory.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if rerr := os.RemoveAll(filepath.Join(dir, e.Name())); err == nil {
			err = rerr
		}
	}
	return err
}
