package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestSweep(t *testing.T) {
	base := publicDir(t, os.Geteuid())
	mkdir := func(name string) string {
		t.Helper()
		dir := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	old := time.Now().Add(-2 * newAge)
	mkdir(dirPrefix + "dead")
	mkdir("lockbench-other")
	live, lock, err := claim(base)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	keep := []string{"lockbench-other", filepath.Base(live), dirPrefix + "link", "target", dirPrefix + "file", newPrefix + "young"}
	target := mkdir("target")
	if err := os.Symlink(target, filepath.Join(base, dirPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, dirPrefix+"file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"young", "old"} {
		if err := os.Mkdir(filepath.Join(base, newPrefix+name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(base, newPrefix+"old"), old, old); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		for _, name := range []string{dirPrefix + "foreign", newPrefix + "foreign"} {
			dir := filepath.Join(base, name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, 65534, 65534); err != nil {
				t.Fatal(err)
			}
			keep = append(keep, name)
		}
		_, err := lockDir(filepath.Join(base, dirPrefix+"foreign"), syscall.LOCK_EX)
		if !errors.Is(err, errForeign) {
			t.Errorf("locking somebody else's directory: %v", err)
		}
	}
	sweep(base)
	wantEmpty(t, base, keep...)
	for _, name := range append(keep, "target/data") {
		if _, err := os.Lstat(filepath.Join(base, name)); err != nil {
			t.Errorf("taken away: %v", err)
		}
	}
}

// TestSweepsAndClaimsDoNotMeet makes directories while others sweep.
func TestSweepsAndClaimsDoNotMeet(t *testing.T) {
	base := publicDir(t, os.Geteuid())
	stop := make(chan struct{})
	var sweepers, makers sync.WaitGroup
	for range 3 {
		sweepers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					sweep(base)
				}
			}
		})
	}
	for range 4 {
		makers.Go(func() {
			for range 50 {
				dir, lock, err := claim(base)
				if err != nil {
					t.Error(err)
					return
				}
				if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
					t.Errorf("taken away while in use: %v", err)
				}
				_ = os.RemoveAll(dir)
				_ = lock.Close()
			}
		})
	}
	makers.Wait()
	close(stop)
	sweepers.Wait()
	wantEmpty(t, base)
}

// TestSweepEndsALeftoverServer is the janitor's work where the kernel does not end a server with its supervisor.
func TestSweepEndsALeftoverServer(t *testing.T) {
	needLinux(t)
	dir := home(t)
	c := startChild(t, childOrder{Mode: "start", CacheDir: testCache()}, nil, "TMPDIR="+dir)
	f := c.hear().Facts
	data := filepath.Join(f.Dir, "data")
	if !runsIn(f.PID, data) || runsIn(f.PID, data+"2") || runsIn(f.PID, filepath.Dir(data)) || runsIn(os.Getpid(), data) {
		t.Error("runsIn does not know the server")
	}
	endLeftover(os.Getpid(), data) // another process that has the number by now: not touched
	endLeftover(f.PID, data)
	if runsIn(f.PID, data) {
		t.Error("it runs on")
	}
	eventually(t, "the supervisor clears away", func() bool { _, err := os.Stat(f.Dir); return err != nil })
	c.end()
	wantEmpty(t, dir)
}

// TestPidFileOfSomebodyLessTrusted shows that what stands for the file cannot hold or mislead its reader.
func TestPidFileOfSomebodyLessTrusted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "postmaster.pid")
	if got := pidFile(dir); got != nil {
		t.Errorf("no file: %q", got)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := pidFile(dir); got != nil {
		t.Errorf("pipe: %q", got)
	}
	_ = os.Remove(path)
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if got := pidFile(dir); got != nil {
		t.Errorf("link: %q", got)
	}
	_ = os.Remove(path)
	if err := os.WriteFile(path, []byte(strconv.Itoa(7)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := pidFile(dir); len(got) != 2 || got[0] != "7" {
		t.Errorf("file: %q", got)
	}
}
