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
	"syscall"

	"golang.org/x/sync/errgroup"
)

// cacheDir returns where templates and fetched binaries are kept; "" if there is no such place. Root's must be reachable by whom the
// server is given to, and root's home is not.
func cacheDir(asked string) string {
	if asked != "" {
		return asked
	}
	if os.Geteuid() == 0 {
		return "/var/cache/lockbench"
	}
	if dir, err := os.UserCacheDir(); err == nil {
		return filepath.Join(dir, "lockbench")
	}
	return ""
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
	if t.dir == "" {
		return false
	}
	st, err := os.Lstat(t.dir)
	if err != nil || !st.IsDir() || st.Mode().Perm()&0o077 != 0 {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// make keeps a copy of a new data directory. It is a convenience: where it cannot be made the next start is slower, nothing else.
// The copy gets its name when it is whole, so that a half-made one is never found.
func (t template) make(data string, stop <-chan struct{}) {
	if t.dir == "" || os.MkdirAll(filepath.Dir(t.dir), 0o755) != nil {
		return
	}
	tmp, err := os.MkdirTemp(filepath.Dir(t.dir), "making-")
	if err != nil {
		return
	}
	keep := func(path string) error { return os.Lchown(path, os.Geteuid(), os.Getegid()) }
	if os.Geteuid() != 0 {
		keep = func(string) error { return nil }
	}
	if copyTree(data, tmp, keep, stop) != nil || os.Rename(tmp, t.dir) != nil {
		_ = os.RemoveAll(tmp)
	}
}

// copyTo fills an empty directory.
func (t template) copyTo(data string, give func(string) error, stop <-chan struct{}) error {
	return copyTree(t.dir, data, give, stop)
}

// copyTree copies what is in one directory into another that exists, and hands each file to its owner.
func copyTree(from, to string, give func(string) error, stop <-chan struct{}) error {
	var g errgroup.Group
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		select {
		case <-stop:
			return context.Canceled
		default:
		}
		rel, err := filepath.Rel(from, path)
		if err != nil || rel == "." {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			return give(target)
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is no regular file", path)
		}
		g.Go(func() error {
			if err := copyFile(path, target); err != nil {
				return err
			}
			return give(target)
		})
		return nil
	})
	if werr := g.Wait(); err == nil {
		err = werr
	}
	return err
}

func copyFile(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dst.Close(); err == nil {
			err = cerr
		}
	}()
	_, err = io.Copy(dst, src)
	return err
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
