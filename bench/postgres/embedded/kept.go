package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Kept is a server that outlives the command that started it.
type Kept struct{ Facts }

// stateDir returns a folder that only this user can write, for the note that says where the kept server is.
func stateDir() (string, error) {
	dir := filepath.Join(os.TempDir(), "lockbench-"+strconv.Itoa(os.Geteuid()))
	if run := os.Getenv("XDG_RUNTIME_DIR"); run != "" {
		dir = filepath.Join(run, "lockbench")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !ours(dir) || st.Mode().Perm()&0o077 != 0 {
		return "", bench.Hintf("remove it, or set XDG_RUNTIME_DIR", "the folder %s belongs to somebody else or is open to others", dir)
	}
	return dir, nil
}

// StartDetached starts a server that stays until [StopDetached]. It returns the one that is running, if there is one.
func StartDetached(ctx context.Context, cfg Config) (k Kept, already bool, err error) {
	dir, err := stateDir()
	if err != nil {
		return k, false, err
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return k, false, err
	}
	defer unlock()
	if k, found, err := find(dir); found || err != nil {
		return k, found, err
	}
	bin, err := resolve(ctx, &cfg)
	if err != nil {
		return k, false, err
	}
	s, err := launch(ctx, &cfg, bin, true)
	if err != nil {
		return k, false, err
	}
	k = Kept{Facts: s.Facts}
	note, err := json.Marshal(k)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "server.json"), note, 0o600)
	}
	if err != nil {
		return k, false, errors.Join(err, k.stop(ctx))
	}
	return k, false, nil
}

// FindDetached returns the kept server, if one is running.
func FindDetached() (Kept, bool, error) {
	dir, err := stateDir()
	if err != nil {
		return Kept{}, false, err
	}
	return find(dir)
}

func find(dir string) (k Kept, found bool, err error) {
	path := filepath.Join(dir, "server.json")
	note, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return k, false, nil
	}
	if err == nil {
		err = json.Unmarshal(note, &k)
	}
	if err != nil {
		return k, false, fmt.Errorf("reading %s: %w", path, err)
	}
	if k.alive() {
		return k, true, nil
	}
	// It died by itself: the machine restarted, or somebody killed it.
	if k.Dir != "" && ours(k.Dir) {
		sweepOne(k.Dir)
	}
	return Kept{}, false, os.Remove(path)
}

// alive reports whether the supervisor still holds the lock on its directory.
func (k *Kept) alive() bool {
	if !ours(k.Dir) || !hasOwner(k.Dir) {
		return false
	}
	lock, err := lockOwner(k.Dir)
	if err != nil {
		return true
	}
	_ = lock.Close()
	return false
}

// StopDetached ends the kept server and waits until it is gone; false if there was none.
func StopDetached(ctx context.Context) (bool, error) {
	dir, err := stateDir()
	if err != nil {
		return false, err
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return false, err
	}
	defer unlock()
	k, found, err := find(dir)
	if err != nil || !found {
		return false, err
	}
	if err := k.stop(ctx); err != nil {
		return true, err
	}
	return true, os.Remove(filepath.Join(dir, "server.json"))
}

func (k *Kept) stop(ctx context.Context) error {
	if err := syscall.Kill(k.Supervisor, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping the kept server: %w", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for k.alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
