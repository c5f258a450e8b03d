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

// private checks that only this user can write a folder, and makes it if asked to.
func private(dir string, create bool) (string, error) {
	if create {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
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

// stateDir returns a folder that only this user can write, for the note that says where the kept server is.
func stateDir(create bool) (string, error) {
	// The runtime folder of another user stays set after su and sudo.
	if run := os.Getenv("XDG_RUNTIME_DIR"); run != "" && ours(run) {
		return private(filepath.Join(run, "lockbench"), create)
	}
	return private(filepath.Join(os.TempDir(), "lockbench-"+strconv.Itoa(os.Geteuid())), create)
}

const (
	noteFile = "server.json"
	noteLock = "lock"
)

// StartDetached starts a server that stays until [StopDetached]. It returns the one that is running, if there is one.
func StartDetached(ctx context.Context, cfg Config) (k Kept, already bool, err error) {
	dir, err := stateDir(true)
	if err != nil {
		return k, false, err
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, noteLock))
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
	// The server is let go of only when it can be found again.
	k = Kept{Facts: s.Facts}
	if err = k.write(dir); err == nil {
		err = s.keep()
	}
	if err != nil {
		s.abandon()
		_ = os.Remove(filepath.Join(dir, noteFile))
		return Kept{}, false, err
	}
	return k, false, nil
}

// write leaves the note, in one piece for those who read it without the lock.
func (k *Kept) write(dir string) error {
	note, err := json.Marshal(k)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, noteFile)
	if err := os.WriteFile(path+".new", note, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// FindDetached returns the kept server, if one is running.
func FindDetached() (Kept, bool, error) {
	dir, err := stateDir(false)
	if errors.Is(err, os.ErrNotExist) {
		return Kept{}, false, nil
	}
	if err != nil {
		return Kept{}, false, err
	}
	k, noted, err := read(dir)
	if err != nil || !noted {
		return Kept{}, false, err
	}
	if k.alive() {
		return k, true, nil
	}
	lock, err := os.OpenFile(filepath.Join(dir, noteLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Kept{}, false, err
	}
	defer lock.Close()
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return Kept{}, false, nil // somebody is about to start or to stop one
	}
	return find(dir)
}

// read returns what the note says.
func read(dir string) (k Kept, noted bool, err error) {
	path := filepath.Join(dir, noteFile)
	note, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return k, false, nil
	}
	if err == nil {
		err = json.Unmarshal(note, &k)
	}
	if err != nil {
		return Kept{}, false, bench.Hintf("remove the file if no kept server runs", "reading the note of the kept server %s: %v", path, err)
	}
	return k, true, nil
}

// find returns the kept server and clears away what is left of one that died: the machine restarted, or somebody killed it. The
// caller has the lock.
func find(dir string) (Kept, bool, error) {
	k, noted, err := read(dir)
	if err != nil || !noted {
		return Kept{}, false, err
	}
	if k.alive() {
		return k, true, nil
	}
	if k.Dir != "" {
		sweepOne(k.Dir)
	}
	return Kept{}, false, os.Remove(filepath.Join(dir, noteFile))
}

// alive reports whether the supervisor still holds the lock on its directory. Those who ask do not keep each other from asking.
func (k *Kept) alive() bool {
	lock, err := lockDir(k.Dir, syscall.LOCK_SH)
	if err != nil {
		return errors.Is(err, syscall.EWOULDBLOCK)
	}
	_ = lock.Close()
	return false
}

// Died returns an error if the kept server has ended, waiting for that as long as ctx lasts; nil if it is still there then.
func (k *Kept) Died(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for k.alive() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return bench.Hintf("lockbench server start", "the kept server has ended")
}

// StopDetached ends the kept server and waits until it is gone; false if there was none.
func StopDetached(ctx context.Context) (bool, error) {
	dir, err := stateDir(false)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, noteLock))
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
	return true, os.Remove(filepath.Join(dir, noteFile))
}

func (k *Kept) stop(ctx context.Context) error {
	if err := syscall.Kill(k.Supervisor, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping the kept server: %w", err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for k.alive() { // the directory goes first, then the lock
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the kept server to end: %w", ctx.Err())
		case <-tick.C:
		}
	}
	sweepOne(k.Dir) // if it was killed meanwhile
	return nil
}
