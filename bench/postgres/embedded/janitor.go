package embedded

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const ownerFile = "owner"

// lockOwner makes and locks the file that says that a directory is in use. The lock goes with the process that holds it.
func lockOwner(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the directories of servers whose supervisor was killed, and ends what still runs in them.
func sweep(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*"))
	for _, d := range dirs {
		if ours(d) {
			sweepOne(d)
		}
	}
}

// ours reports whether a directory may be touched: nobody else's, and no link.
func ours(dir string) bool {
	st, err := os.Lstat(dir)
	if err != nil || !st.IsDir() {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// unlockedAge is how long a directory may stand without its owner's file before it counts as left behind.
const unlockedAge = time.Minute

func sweepOne(dir string) {
	if st, err := os.Stat(dir); err != nil || !hasOwner(dir) && time.Since(st.ModTime()) < unlockedAge {
		return
	}
	lock, err := lockOwner(dir)
	if err != nil {
		return // somebody is at work in it
	}
	defer lock.Close()
	data := filepath.Join(dir, "data")
	if lines := pidFile(data); len(lines) > 0 {
		if pid, err := strconv.Atoi(strings.TrimSpace(lines[0])); err == nil && runsIn(pid, data) {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
	}
	_ = os.RemoveAll(dir)
}

func hasOwner(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, ownerFile))
	return err == nil
}

// runsIn reports whether a process is a postgres at work on a data directory: process numbers are used again.
func runsIn(pid int, data string) bool {
	var line string
	if runtime.GOOS == "linux" {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		line = strings.ReplaceAll(string(b), "\x00", " ")
	} else {
		b, _ := exec.Command("ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
		line = string(b)
	}
	return strings.Contains(line, "postgres") && strings.Contains(line, data)
}
