package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/lockbench/lockbench/bench"
)

// releases are the versions that can be fetched, by major version; 0 is the one taken when any will do.
func releases() map[int]embeddedpostgres.PostgresVersion {
	return map[int]embeddedpostgres.PostgresVersion{
		0: embeddedpostgres.V17, 18: embeddedpostgres.V18, 17: embeddedpostgres.V17, 16: embeddedpostgres.V16,
		15: embeddedpostgres.V15, 14: embeddedpostgres.V14, 13: embeddedpostgres.V13,
	}
}

// fetch downloads PostgreSQL's programs once and keeps them.
func fetch(ctx context.Context, cfg *Config, major int, found []Binary) (Binary, error) {
	version, known := releases()[major]
	if !known {
		return Binary{}, noServer(cfg, found, fmt.Errorf("PostgreSQL %d is not among those that can be downloaded", major))
	}
	cache := cacheDir(cfg.CacheDir)
	if cache == "" {
		return Binary{}, noServer(cfg, found, fmt.Errorf("there is no folder to keep a download in"))
	}
	dir := filepath.Join(cache, "postgresql-"+string(version))
	if b, err := inspect(ctx, filepath.Join(dir, "bin"), "downloaded"); err == nil {
		return b, nil
	}
	if err := mkdirShared(cache); err != nil {
		return Binary{}, noServer(cfg, found, err)
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "download.lock"))
	if ctx.Err() != nil {
		return Binary{}, ctx.Err()
	}
	if err != nil {
		return Binary{}, noServer(cfg, found, err)
	}
	defer unlock()
	if b, err := inspect(ctx, filepath.Join(dir, "bin"), "downloaded"); err == nil {
		return b, nil // another lockbench was faster
	}
	if err := download(ctx, cfg, version, cache, dir); err != nil {
		if ctx.Err() != nil {
			return Binary{}, ctx.Err()
		}
		return Binary{}, noServer(cfg, found, err)
	}
	b, err := inspect(ctx, filepath.Join(dir, "bin"), "downloaded")
	if err != nil {
		_ = os.RemoveAll(dir)
		return b, noServer(cfg, found, fmt.Errorf("the download is of no use: %w", err))
	}
	return b, nil
}

// download lets the library fetch and unpack. The library offers that only as the first half of starting a server, so its start is
// given a data directory that cannot exist: it unpacks and then fails, as root or not, and no server ever runs.
func download(ctx context.Context, cfg *Config, version embeddedpostgres.PostgresVersion, cache, dir string) error {
	sweepOld(cache, downloadPrefix)
	work, err := os.MkdirTemp(cache, downloadPrefix)
	if err != nil {
		return err
	}
	blocker, files := filepath.Join(work, "no-directory"), filepath.Join(work, "files")
	if err := os.WriteFile(blocker, nil, 0o600); err != nil {
		return err
	}
	// Port 0 is always free: the library looks before it does anything else.
	c := embeddedpostgres.DefaultConfig().Version(version).Port(0).Logger(io.Discard).
		CachePath(filepath.Join(work, "archive")).RuntimePath(filepath.Join(work, "run")).
		BinariesPath(files).DataPath(filepath.Join(blocker, "data"))
	if cfg.Repository != "" {
		c = c.BinaryRepositoryURL(cfg.Repository)
	}
	cfg.log("downloading PostgreSQL %s (about 25 MB, kept in %s)", version, cache)
	done := make(chan error, 1)
	go func() { done <- unpack(embeddedpostgres.NewDatabase(c)) }()
	began := time.Now()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err = <-done:
			if err == nil {
				err = share(files)
			}
			if err == nil {
				_ = os.RemoveAll(dir)
				err = os.Rename(files, dir)
			}
			_ = os.RemoveAll(work)
			if err != nil {
				return fmt.Errorf("downloading PostgreSQL %s: %w", version, err)
			}
			return nil
		case <-ctx.Done():
			// The library cannot be interrupted, and panics where its files vanish under it.
			go func() { <-done; _ = os.RemoveAll(work) }()
			return ctx.Err()
		case <-tick.C:
			cfg.log("still downloading PostgreSQL %s after %.0f s", version, time.Since(began).Seconds())
		}
	}
}

const downloadPrefix = "download-"

// unpacked begins the library's error when it has unpacked everything and meets the data directory that cannot exist.
const unpacked = "unable to clean up data directory"

// unpack runs the first half of the library's start. Every other end than the expected one is a failure, even if programs lie there:
// an archive that breaks off leaves some.
func unpack(db *embeddedpostgres.EmbeddedPostgres) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("unpacking: %v", r)
		}
	}()
	err = db.Start()
	if err == nil {
		return errors.Join(errors.New("the fetching library started a server"), db.Stop())
	}
	if strings.HasPrefix(err.Error(), unpacked) {
		return nil
	}
	return err
}

// share lets everybody read what was unpacked, whatever the umask: root gives the server to another user.
func share(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		mode := fs.FileMode(0o755)
		if !d.IsDir() {
			st, err := d.Info()
			if err != nil {
				return err
			}
			if st.Mode()&0o111 == 0 {
				mode = 0o644
			}
		}
		return os.Chmod(path, mode)
	})
}

// lockFile waits for a lock between processes.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) { // such as a file system without locks
			_ = f.Close()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// noServer is the one error of a machine without PostgreSQL, with the three ways out.
func noServer(cfg *Config, found []Binary, cause error) error {
	what := "no PostgreSQL on this machine"
	if cfg.Version != "" {
		what = "no PostgreSQL " + cfg.Version + " on this machine"
		var have []string
		for _, b := range found {
			have = append(have, b.Version)
		}
		if len(have) > 0 {
			what += " (there is " + strings.Join(have, ", ") + ")"
		}
	}
	return bench.Hintf("install it (apt-get install postgresql, dnf install postgresql-server, brew install postgresql), "+
		"or name its programs with --pg-bin DIR, or a running server with --dsn URL",
		"%s, and it cannot be fetched: %v", what, cause)
}
