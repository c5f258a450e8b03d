package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A directory belongs to a supervisor as long as that holds the lock on it. It is made under one name and gets the other once it is
// locked, so that a directory with the final name and without a lock is known to be left behind. The lock is on the directory itself:
// cleaners of old temporary files then leave alone what is in it.
const (
	dirPrefix = "lockbench-pg-"
	newPrefix = "lockbench-new-"
)

// newAge is how long a directory may stand under its first name; it is there for microseconds.
const newAge = time.Minute

// claim makes a directory and takes its lock, which goes with this process.
func claim(base string) (dir string, lock *os.File, err error) {
	made, err := os.MkdirTemp(base, newPrefix)
	if err != nil {
		return "", nil, err
	}
	if lock, err = lockDir(made, syscall.LOCK_EX); err == nil {
		dir = filepath.Join(base, dirPrefix+strings.TrimPrefix(filepath.Base(made), newPrefix))
		err = os.Rename(made, dir)
	}
	if err != nil {
		_ = os.Remove(made)
		if lock != nil {
			_ = lock.Close()
		}
		return "", nil, err
	}
	return dir, lock, nil
}

// errForeign says that a directory is somebody else's.
var errForeign = errors.New("belongs to another user")

// lockDir locks a directory of this user's, if nobody has it: no link and nobody else's.
func lockDir(dir string, how int) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !mine(st) {
		err = fmt.Errorf("%s %w", dir, errForeign)
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func mine(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// ours reports whether a directory may be trusted: nobody else's, and no link.
func ours(dir string) bool {
	st, err := os.Lstat(dir)
	return err == nil && st.IsDir() && mine(st)
}

// sweep removes the directories of servers whose supervisor was killed, and ends what still runs in them.
func sweep(base string) {
	entries, _ := os.ReadDir(base)
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), dirPrefix):
			sweepOne(dir)
		case strings.HasPrefix(e.Name(), newPrefix) && ours(dir):
			if st, err := e.Info(); err == nil && time.Since(st.ModTime()) > newAge {
				_ = os.Remove(dir) // nothing was put into it yet
			}
		}
	}
}

func sweepOne(dir string) {
	lock, err := lockDir(dir, syscall.LOCK_EX)
	if err != nil {
		return // somebody is at work in it, or it is not ours
	}
	defer lock.Close()
	data := filepath.Join(dir, "data")
	if lines := pidFile(data); len(lines) > 0 {
		if pid, err := strconv.Atoi(strings.TrimSpace(lines[0])); err == nil && pid > 1 {
			endLeftover(pid, data)
		}
	}
	remove(dir)
}

// endLeftover ends a server that outlived its supervisor, and waits for its end: it must not write into what is being removed.
func endLeftover(pid int, data string) {
	for _, sig := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		for until := time.Now().Add(patience); runsIn(pid, data); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(until) {
				break
			}
			_ = syscall.Kill(pid, sig)
		}
	}
}

// patience is how long something is given to end before it is asked more firmly.
const patience = 5 * time.Second

// remove removes a directory. The last words of a process that was just killed may fall into it, so it takes more than one attempt.
func remove(dir string) {
	for until := time.Now().Add(patience); os.RemoveAll(dir) != nil && time.Now().Before(until); {
		time.Sleep(5 * time.Millisecond)
	}
}

// runsIn reports whether a process is a postgres at work on a data directory: process numbers are used again.
func runsIn(pid int, data string) bool {
	var line string
	if runtime.GOOS == "linux" {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		line = strings.ReplaceAll(string(b), "\x00", " ")
	} else {
		b, _ := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
		line = string(b)
	}
	return strings.Contains(line, "postgres -D "+data+" ")
}

// pidFile returns the lines of postmaster.pid. It belongs to the server's user, who is less trusted than this one: no link is
// followed, no pipe waited for.
func pidFile(data string) []string {
	f, err := os.OpenFile(filepath.Join(data, "postmaster.pid"), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}
