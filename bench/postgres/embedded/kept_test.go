package embedded

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// noteOf returns where the note of this user's kept server lies below a TMPDIR.
func noteOf(t *testing.T) string {
	t.Helper()
	dir, err := stateDir(true)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, noteFile)
}

func TestKeptServer(t *testing.T) {
	needLinux(t)
	dir := home(t)
	env := "TMPDIR=" + dir
	if _, found, err := FindDetached(); found || err != nil {
		t.Errorf("before: %v, %v", found, err)
	}
	if stopped, err := StopDetached(t.Context()); stopped || err != nil {
		t.Errorf("before: %v, %v", stopped, err)
	}
	wantEmpty(t, dir) // to look leaves nothing

	order := childOrder{Mode: "keep", CacheDir: testCache(), Durable: true}
	first := do(t, order, nil, env)
	if first.Error != "" || first.Yes {
		t.Fatalf("%+v", first)
	}
	t.Cleanup(func() { _, _ = StopDetached(context.Background()) })
	other := start(t, Config{}) // which ends with this process, and is none of the kept server's business
	note := noteOf(t)
	if st, err := os.Stat(note); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("note %v, %v", st, err)
	}
	if st, err := os.Stat(filepath.Dir(note)); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("folder %v, %v", st, err)
	}
	if cwd, err := os.Readlink("/proc/" + strconv.Itoa(first.Facts.Supervisor) + "/cwd"); err != nil || cwd != "/" {
		t.Errorf("the supervisor stands in %s, %v", cwd, err)
	}

	k, found, err := FindDetached()
	if err != nil || !found || k.Facts != first.Facts || !k.Durable {
		t.Errorf("found %+v, %v, %v; want %+v", k, found, err, first.Facts)
	}
	if ask(t, k.DSN, "show fsync") != "on" {
		t.Error("fsync is off")
	}
	if again := do(t, order, nil, env); !again.Yes || again.Facts != first.Facts {
		t.Errorf("started again: %+v", again)
	}
	if by := do(t, childOrder{Mode: "find"}, nil, env); !by.Yes || by.Facts != first.Facts {
		t.Errorf("found by another process: %+v", by)
	}
	if stop := do(t, childOrder{Mode: "stop"}, nil, env); !stop.Yes || stop.Error != "" {
		t.Errorf("stopped: %+v", stop)
	}
	wantEmpty(t, filepath.Dir(note), noteLock)
	wantEmpty(t, dir, filepath.Base(filepath.Dir(note)), filepath.Base(other.Facts.Dir))
	eventually(t, "no kept process", func() bool {
		all := strings.Join(survivors(first.Facts.Dir), " ")
		return all == "" && syscall.Kill(first.Facts.Supervisor, 0) != nil
	})
	if ask(t, other.DSN(), "select 'here'") != "here" {
		t.Error("the other server ended too")
	}
	if stop := do(t, childOrder{Mode: "stop"}, nil, env); stop.Yes || stop.Error != "" {
		t.Errorf("stopped again: %+v", stop)
	}
}

func TestKilledKeptServer(t *testing.T) {
	needLinux(t)
	dir := home(t)
	env := "TMPDIR=" + dir
	r := do(t, childOrder{Mode: "keep", CacheDir: testCache()}, nil, env)
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	if err := syscall.Kill(r.Facts.Supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lock goes with the supervisor", func() bool { return !(&Kept{r.Facts}).alive() })
	if _, err := os.Stat(r.Facts.Dir); err != nil {
		t.Fatalf("the directory should be left: %v", err)
	}
	note := noteOf(t)

	// While somebody else has the lock nothing is cleared away, and nobody waits.
	unlock, err := lockFile(t.Context(), filepath.Join(filepath.Dir(note), noteLock))
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := FindDetached(); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := os.Stat(note); err != nil {
		t.Errorf("the note of another process was taken: %v", err)
	}
	unlock()

	if _, found, err := FindDetached(); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
	wantEmpty(t, filepath.Dir(note), noteLock)
	wantEmpty(t, dir, filepath.Base(filepath.Dir(note)))
	eventually(t, "no process", func() bool { return len(survivors(dir)) == 0 })
}

// TestStaleAndBrokenNotes looks at notes that a restart of the machine, or a person, left.
func TestStaleAndBrokenNotes(t *testing.T) {
	dir := home(t)
	note := noteOf(t)
	innocent := filepath.Join(dir, "innocent")
	if err := os.Mkdir(innocent, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"dir":"` + dir + `/lockbench-pg-gone","supervisor":1}`, `{}`} {
		if err := os.WriteFile(note, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, found, err := FindDetached(); found || err != nil {
			t.Errorf("%s: %v, %v", text, found, err)
		}
		if _, err := os.Stat(note); err == nil {
			t.Errorf("%s: the note stands", text)
		}
	}
	if err := os.WriteFile(note, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := FindDetached()
	wantError(t, err, "reading the note of the kept server "+note+": unexpected end of JSON input", "remove the file if no kept server runs")
}

// TestKilledWhileKeeping kills the command that starts a kept server before it has told anybody where it is.
func TestKilledWhileKeeping(t *testing.T) {
	needLinux(t)
	dir := home(t)
	c := startChild(t, childOrder{Mode: "keep", CacheDir: publicDir(t, os.Geteuid())}, nil, "TMPDIR="+dir)
	eventually(t, "initdb at work", func() bool { return initdbAtWork(dir) })
	c.kill(syscall.SIGKILL)
	eventually(t, "no process", func() bool { return len(survivors(dir)) == 0 })
	wantEmpty(t, dir, "lockbench-"+strconv.Itoa(os.Geteuid()))
	if _, found, err := FindDetached(); found || err != nil {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestStateDir(t *testing.T) {
	dir := home(t)
	name := filepath.Join(dir, "lockbench-"+strconv.Itoa(os.Geteuid()))
	refused := func(what string) {
		t.Helper()
		_, err := stateDir(true)
		wantError(t, err, "the folder "+name+" belongs to somebody else or is open to others", "remove it, or set XDG_RUNTIME_DIR")
		if _, _, err := FindDetached(); err == nil {
			t.Errorf("%s: found in it", what)
		}
		if _, err := StopDetached(t.Context()); err == nil {
			t.Errorf("%s: stopped in it", what)
		}
		if _, _, err := StartDetached(t.Context(), Config{}); err == nil {
			t.Errorf("%s: started in it", what)
		}
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := stateDir(true); err != nil || got != name {
		t.Errorf("got %s, %v", got, err)
	}
	if err := os.Chmod(name, 0o750); err != nil {
		t.Fatal(err)
	}
	refused("open to the group")
	if err := os.Symlink(t.TempDir(), name); err != nil {
		t.Fatal(err)
	}
	refused("a link")
	if os.Geteuid() == 0 {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(name, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		refused("somebody else's")
		foreign := publicDir(t, 65534)
		t.Setenv("XDG_RUNTIME_DIR", foreign) // as su leaves it
		if got, err := stateDir(true); err != nil || got != name {
			t.Errorf("with another user's XDG_RUNTIME_DIR: %s, %v", got, err)
		}
		wantEmpty(t, foreign)
	}
	run := publicDir(t, os.Geteuid())
	t.Setenv("XDG_RUNTIME_DIR", run)
	if got, err := stateDir(true); err != nil || got != filepath.Join(run, "lockbench") {
		t.Errorf("with XDG_RUNTIME_DIR: %s, %v", got, err)
	}
}

func TestLockFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := lockFile(ctx, path); err != context.DeadlineExceeded {
		t.Errorf("a lock that is held: %v", err)
	}
	unlock()
	if unlock, err = lockFile(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	unlock()
	if _, err := lockFile(t.Context(), filepath.Join(path, "x")); err == nil {
		t.Error("a lock that cannot be")
	}
}
