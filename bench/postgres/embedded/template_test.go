package embedded

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// templates lists what stands in a cache's folder of templates.
func templates(t *testing.T, cache string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(cache, "templates"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestTemplate(t *testing.T) {
	home(t)
	cache := filepath.Join(publicDir(t, os.Geteuid()), "cache")
	begin := func(want bool) *Server {
		t.Helper()
		s := start(t, Config{CacheDir: cache})
		if s.Facts.Template != want {
			t.Errorf("template %v, want %v", s.Facts.Template, want)
		}
		if ask(t, s.DSN(), "select 'yes'") != "yes" {
			t.Error("no answer")
		}
		return s
	}
	if err := begin(false).Stop(); err != nil {
		t.Fatal(err)
	}
	made := templates(t, cache)
	if len(made) != 1 {
		t.Fatalf("templates %v, want one", made)
	}
	dir := filepath.Join(cache, "templates", made[0])
	s := begin(true)
	if !strings.HasPrefix(made[0], s.Facts.Version+"-") {
		t.Errorf("the template of %s is called %s", s.Facts.Version, made[0])
	}
	// The files are the server's user's, and closed to all others.
	uid := uint32(os.Geteuid())
	if uid == 0 {
		uid, _, _ = demoted()
	}
	err := filepath.WalkDir(filepath.Join(s.Facts.Dir, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the server removes files of its own
		}
		if st, err := d.Info(); err == nil && (st.Mode().Perm()&0o077 != 0 || st.Sys().(*syscall.Stat_t).Uid != uid) {
			t.Errorf("%s has mode %v and owner %d", path, st.Mode(), st.Sys().(*syscall.Stat_t).Uid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{"postmaster.pid", "postmaster.opts"} {
		if _, err := os.Stat(filepath.Join(dir, entry)); err == nil {
			t.Errorf("the template holds %s", entry)
		}
	}

	// One that makes no server is thrown away.
	if err := os.WriteFile(filepath.Join(dir, "global", "pg_control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := begin(false).Stop(); err != nil {
		t.Fatal(err)
	}
	if got := templates(t, cache); len(got) != 0 {
		t.Errorf("the broken template stands: %v", got)
	}
}

func TestTemplateOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	tpl := template{dir: filepath.Join(dir, "16.4-0")}
	if tpl.usable() || (template{}).usable() {
		t.Error("one that is not there is usable")
	}
	if err := os.Mkdir(tpl.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if !tpl.usable() {
		t.Error("ours is not usable")
	}
	if err := os.Chmod(tpl.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if tpl.usable() {
		t.Error("one that the group may enter is usable")
	}
	if err := os.Chmod(tpl.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(tpl.dir, 65534, 0); err != nil {
			t.Fatal(err)
		}
		if tpl.usable() {
			t.Error("somebody else's is usable")
		}
		tpl.discard()
		if _, err := os.Stat(tpl.dir); err != nil {
			t.Error("somebody else's was removed")
		}
	}
	link := template{dir: filepath.Join(dir, "link")}
	if err := os.Symlink(t.TempDir(), link.dir); err != nil {
		t.Fatal(err)
	}
	if link.usable() {
		t.Error("a link is usable")
	}
}

// TestHalfMadeTemplate breaks the copy off, as a signal does, and looks at what killed processes left.
func TestHalfMadeTemplate(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tpl := template{dir: filepath.Join(dir, "templates", "16.4-0")}
	stop := make(chan struct{})
	close(stop)
	tpl.make(data, stop)
	if tpl.usable() || len(templates(t, dir)) != 0 {
		t.Errorf("left: %v", templates(t, dir))
	}
	old := time.Now().Add(-2 * makingAge)
	for _, name := range []string{"old", "young"} {
		path := filepath.Join(dir, "templates", makingPrefix+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "old" {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	tpl.make(data, nil)
	if got := strings.Join(templates(t, dir), " "); got != "16.4-0 "+makingPrefix+"young" || !tpl.usable() {
		t.Errorf("templates %s", got)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(data, "link")); err != nil {
		t.Fatal(err)
	}
	other := template{dir: filepath.Join(dir, "templates", "16.4-1")}
	other.make(data, nil)
	if other.usable() {
		t.Error("a directory with a link was kept")
	}
}

// TestCopyIsNotLedAstray has the owner of the target replace a directory by a link while root copies into it.
func TestCopyIsNotLedAstray(t *testing.T) {
	from, to, outside := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(from, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "base", "1"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(to, "base")); err != nil {
		t.Fatal(err)
	}
	src, err := os.OpenRoot(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenRoot(to)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	if err := copyFile(src, dst, "base/1", nil); err == nil {
		t.Error("it followed the link")
	}
	wantEmpty(t, outside)
	if err := copyTree(from, to, nil, nil); err == nil {
		t.Error("it copied over what stood there")
	}
}

func TestTwoProcessesMakeTheTemplate(t *testing.T) {
	needLinux(t)
	dir, cache := publicDir(t, os.Geteuid()), publicDir(t, os.Geteuid())
	var wg sync.WaitGroup
	for range 2 {
		c := startChild(t, childOrder{Mode: "start", CacheDir: cache}, nil, "TMPDIR="+dir)
		wg.Go(func() {
			if r := c.hear(); r.Error != "" {
				t.Error(r.Error)
			}
		})
	}
	wg.Wait()
	if got := templates(t, cache); len(got) != 1 {
		t.Errorf("templates %v, want one", got)
	}
	if r := do(t, childOrder{Mode: "start", CacheDir: cache}, nil, "TMPDIR="+dir); r.Error != "" || !r.Facts.Template {
		t.Errorf("%+v", r)
	}
}

func TestCacheDir(t *testing.T) {
	if got := cacheDir("/a/b"); got != "/a/b" {
		t.Error(got)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if got := cacheDir("rel"); got != filepath.Join(wd, "rel") {
		t.Errorf("relative: %s", got)
	}
	if os.Geteuid() == 0 {
		if got := cacheDir(""); got != "/var/cache/lockbench" {
			t.Errorf("root's: %s", got)
		}
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	old := syscall.Umask(0o077)
	err = mkdirShared(dir)
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if st, err := os.Stat(d); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v %v", d, st.Mode(), err)
		}
	}
}
