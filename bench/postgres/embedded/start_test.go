package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestStartStop(t *testing.T) {
	dir := home(t)
	s := start(t, Config{Durable: true, Connections: 37, Settings: map[string]string{
		"Work_Mem": "7MB", "cluster_name": `it's a \n "name"`, "lockbench.note": "two\nlines", "port": "1", "listen_addresses": "*",
	}})
	f := s.Facts
	for query, want := range map[string]string{
		"show fsync": "on", "show synchronous_commit": "on", "show full_page_writes": "on", "show max_connections": "57", "show jit": "off",
		"show work_mem": "7MB", "show cluster_name": `it's a \n "name"`, "show lockbench.note": "two\nlines", "show listen_addresses": "",
		"show server_encoding": "UTF8", "show timezone": "UTC", "select split_part(current_setting('server_version'), ' ', 1)": f.Version,
		"select inet_server_addr() is null": "true", "select rolsuper::text from pg_roles where rolname = user": "true",
		"select current_setting('data_directory')": f.Dir + "/data", "select current_setting('lc_messages')": "C",
	} {
		if strings.HasPrefix(query, "select inet") {
			query = "select (inet_server_addr() is null)::text"
		}
		if got := ask(t, s.DSN(), query); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if !f.Durable || f.Slots != 37 || f.PID <= 1 || f.Supervisor <= 1 || f.Started.IsZero() || filepath.Dir(f.Dir) != dir {
		t.Errorf("facts %+v", f)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	wantEmpty(t, dir)
	if err := s.Stop(); err != nil {
		t.Errorf("the second Stop: %v", err)
	}
	if _, err := pgx.Connect(t.Context(), s.DSN()); err == nil {
		t.Error("the server still answers")
	}
}

func TestNotDurable(t *testing.T) {
	home(t)
	s := start(t, Config{})
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := ask(t, s.DSN(), "show "+name); got != "off" {
			t.Errorf("%s is %s", name, got)
		}
	}
	if s.Facts.Durable {
		t.Error("it says it is durable")
	}
	if got := ask(t, s.DSN(), "show max_connections"); got != "20" {
		t.Errorf("max_connections %s without a run's connections", got)
	}
}

func TestAllConnectionsOfTheRunAndSomeMore(t *testing.T) {
	home(t)
	const run, more = 12, 10
	s := start(t, Config{Connections: run})
	if _, err := os.Stat(s.Facts.Dir); err != nil {
		t.Fatal(err)
	}
	for i := range run + more {
		conn, err := pgx.Connect(t.Context(), s.DSN())
		if err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		defer conn.Close(context.Background())
	}
}

func TestNobodyElseGetsIn(t *testing.T) {
	needRoot(t)
	home(t)
	s := start(t, Config{})
	uid, _, _ := demoted()
	for _, d := range []string{"s", "data"} {
		st, err := os.Stat(filepath.Join(s.Facts.Dir, d))
		if err != nil {
			t.Fatal(err)
		}
		if got := st.Sys().(*syscall.Stat_t).Uid; st.Mode().Perm() != 0o700 || got != uid {
			t.Errorf("%s has mode %v and owner %d, want 0700 and %d", d, st.Mode(), got, uid)
		}
	}
	sockets, _ := filepath.Glob(filepath.Join(s.Facts.Dir, "s", ".s.PGSQL.*[0-9]"))
	if len(sockets) != 1 {
		t.Fatalf("sockets %v", sockets)
	}
	if st, err := os.Stat(sockets[0]); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the socket has mode %v, %v", st.Mode(), err)
	}
	psql, err := exec.LookPath("psql")
	if err != nil {
		if os.Getenv("LOCKBENCH_REQUIRE_SERVICES") != "" {
			t.Fatal("LOCKBENCH_REQUIRE_SERVICES is set, and there is no psql to knock with")
		}
		t.Skip("no psql to knock with")
	}
	for uid, want := range map[uint32]string{uid: "1\n", 54321: "Permission denied"} {
		cmd := exec.Command(psql, s.DSN(), "-Atc", "select 1")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{}}}
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) {
			t.Errorf("user %d: %q, want %q", uid, out, want)
		}
	}
	// Nothing listens on the network either.
	tcp, _ := os.ReadFile("/proc/net/tcp")
	port := regexp.MustCompile(`port=(\d+)`).FindStringSubmatch(s.DSN())[1]
	var n int
	fmt.Sscan(port, &n)
	if strings.Contains(string(tcp), fmt.Sprintf(":%04X 00000000:0000 0A", n)) {
		t.Errorf("port %d is open", n)
	}
}

func TestRunsAs(t *testing.T) {
	needLinux(t)
	home(t)
	s := start(t, Config{})
	st, err := os.Stat(fmt.Sprintf("/proc/%d", s.Facts.PID))
	if err != nil {
		t.Fatal(err)
	}
	uid, name := uint32(os.Geteuid()), "" // an ordinary user keeps his name
	if os.Geteuid() == 0 {
		var who string
		uid, _, who = demoted()
		name = who + ", since PostgreSQL does not run as root"
	}
	if got := st.Sys().(*syscall.Stat_t).Uid; got != uid || name != "" && s.Facts.RunsAs != name {
		t.Errorf("user %d, %q; want %d, %q", got, s.Facts.RunsAs, uid, name)
	}
}

func TestSudo(t *testing.T) {
	needRoot(t)
	home(t)
	t.Setenv("SUDO_UID", "1") // daemon, on every Unix
	t.Setenv("SUDO_GID", "1")
	s := start(t, Config{})
	if s.Facts.RunsAs != "daemon, since PostgreSQL does not run as root" {
		t.Errorf("runs as %q", s.Facts.RunsAs)
	}
	if st, err := os.Stat(filepath.Join(s.Facts.Dir, "data")); err != nil || st.Sys().(*syscall.Stat_t).Uid != 1 {
		t.Errorf("data %v, %v", st, err)
	}
	_, _, usual := func() (uint32, uint32, string) { t.Setenv("SUDO_UID", ""); return demoted() }()
	for _, set := range [][2]string{{"0", "0"}, {"54321", "1"}, {"1", "x"}, {"-1", "1"}} {
		t.Setenv("SUDO_UID", set[0])
		t.Setenv("SUDO_GID", set[1])
		if _, _, name := demoted(); name != usual {
			t.Errorf("SUDO_UID=%s SUDO_GID=%s: %s, want %s", set[0], set[1], name, usual)
		}
	}
}

func TestOrdinaryUserWithoutAHome(t *testing.T) {
	needRoot(t)
	dir := publicDir(t, 65534)
	cred := &syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{}}
	env := []string{"HOME=/nonexistent", "TMPDIR=" + dir}
	for _, template := range []bool{false, true} { // made at the first start, in a folder among the temporary ones
		r := do(t, childOrder{Mode: "start"}, cred, env...)
		if r.Error != "" {
			t.Fatal(r.Error, r.Hint)
		}
		if r.Facts.RunsAs != "nobody" || r.Facts.Template != template {
			t.Errorf("facts %+v, want template %v", r.Facts, template)
		}
		wantEmpty(t, dir, "lockbench-65534")
	}
}

func TestUserWithoutAName(t *testing.T) {
	needRoot(t)
	needLinux(t)
	cred := &syscall.Credential{Uid: 54321, Gid: 54321, Groups: []uint32{}}
	dir := publicDir(t, 54321)
	r := do(t, childOrder{Mode: "start", CacheDir: dir + "/cache"}, cred, "HOME=/", "TMPDIR="+dir)
	if strings.Contains(r.Error, "there is no user that PostgreSQL would run as") {
		if r.Hint != "run lockbench as a user with an entry in /etc/passwd, or name a running server with --dsn" {
			t.Errorf("hint %q", r.Hint)
		}
		wantEmpty(t, dir, "cache")
		if max, _ := os.ReadFile("/proc/sys/user/max_user_namespaces"); strings.TrimSpace(string(max)) == "0" || strings.Contains(r.Error, "operation not permitted") {
			t.Skip("user namespaces are not permitted here")
		}
	}
	if r.Error != "" {
		t.Fatal(r.Error, r.Hint)
	}
	if r.Facts.RunsAs != "nobody in a user namespace" {
		t.Errorf("runs as %q", r.Facts.RunsAs)
	}
	wantEmpty(t, dir, "cache")
	// With a template initdb is not needed, and so no name.
	r = do(t, childOrder{Mode: "start", CacheDir: dir + "/cache"}, cred, "HOME=/", "TMPDIR="+dir)
	if r.Error != "" || r.Facts.RunsAs != "user 54321" || !r.Facts.Template {
		t.Errorf("with a template: %+v", r)
	}
	wantEmpty(t, dir, "cache")
}

func TestTMPDIRThatWillNotDo(t *testing.T) {
	dir := home(t)
	long := filepath.Join(dir, strings.Repeat("long", 20))
	odd := filepath.Join(dir, "it's, odd")
	closed := filepath.Join(dir, "closed", "inner")
	for _, d := range []string{long, odd, closed} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(closed), 0o700); err != nil {
		t.Fatal(err)
	}
	id := identity{}
	root := identity{credential: &syscall.Credential{}}
	if got := root.unfit(closed); got != "cannot be entered by the server's user" {
		t.Errorf("closed: %q", got)
	}
	if got := id.unfit(closed); got != "" {
		t.Errorf("closed, for its own user: %q", got)
	}
	if got := id.unfit(long); got != "is too long for a socket's path" {
		t.Errorf("long: %q", got)
	}
	if got := id.unfit(odd); got != "has characters that a server's settings cannot take" {
		t.Errorf("odd: %q", got)
	}
	if got := root.unfit("/no/such/folder"); got != "cannot be entered by the server's user" {
		t.Errorf("nonexistent: %q", got)
	}
	for _, d := range []string{long, "/no/such/folder", closed} {
		if d == closed && os.Geteuid() != 0 {
			continue
		}
		t.Setenv("TMPDIR", d)
		s := start(t, Config{})
		if got := filepath.Dir(s.Facts.Dir); got != "/tmp" && got != "/var/tmp" {
			t.Errorf("TMPDIR=%s: the directory is in %s", d, got)
		}
		if ask(t, s.DSN(), "select 'yes'") != "yes" {
			t.Error("no answer")
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.Facts.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("left: %v", err)
		}
		if d != "/no/such/folder" {
			wantEmpty(t, d)
		}
	}
}

func TestDurableAvoidsMemory(t *testing.T) {
	volatile := func(dir string) bool { return dir == "/tmp" || dir == "/fast" }
	never := func(string) bool { return false }
	for _, c := range []struct {
		tmpdir   string
		durable  bool
		inMemory func(string) bool
		want     string
	}{
		{"", true, volatile, "/var/tmp /tmp"},
		{"", false, volatile, "/tmp /var/tmp"},
		{"", true, never, "/tmp /var/tmp"},
		{"/fast", true, volatile, "/fast /tmp /var/tmp"}, // somebody wished it
	} {
		t.Setenv("TMPDIR", c.tmpdir)
		if got := strings.Join(bases(c.durable, c.inMemory), " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if runtime.GOOS == "linux" && (inMemory("/proc") || inMemory("/no/such/folder")) {
		t.Error("what is no memory is taken for it")
	}
}

func TestTwoAtOnceDoNotMeet(t *testing.T) {
	dir := home(t)
	a, b := start(t, Config{}), start(t, Config{})
	if a.Facts.Dir == b.Facts.Dir || a.DSN() == b.DSN() || a.Facts.PID == b.Facts.PID {
		t.Fatalf("they share: %+v %+v", a.Facts, b.Facts)
	}
	const mark = "select count(*)::text from pg_database where datname = 'mark'"
	conn, err := pgx.Connect(t.Context(), a.DSN())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "create database mark"); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	if ask(t, a.DSN(), mark) != "1" || ask(t, b.DSN(), mark) != "0" {
		t.Error("b has what a made")
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if ask(t, b.DSN(), "select 'here'") != "here" {
		t.Error("b ended with a")
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
	wantEmpty(t, dir)
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	needLinux(t)
	dir := home(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Config{CacheDir: testCache()}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
	wantEmpty(t, dir)

	cache := publicDir(t, os.Geteuid()) // without a template, so that there is an initdb to interrupt
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Config{CacheDir: cache})
		done <- err
	}()
	eventually(t, "initdb at work", func() bool { return initdbAtWork(dir) })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in initdb: %v", err)
	}
	wantEmpty(t, dir)
	eventually(t, "no process", func() bool { return len(survivors(dir)) == 0 })
	wantEmpty(t, cache)

	// initdb's own children go with it.
	bin := fakeInstallation(t, "postgres (PostgreSQL) 16.4", "", `mkdir -p "$2/base/1"; sleep 1000 & wait`)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := Start(ctx, Config{BinDir: bin, CacheDir: cache})
		done <- err
	}()
	eventually(t, "initdb at work", func() bool { return initdbAtWork(dir) && strings.Contains(fmt.Sprint(survivors(dir)), "sleep 1000") })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in initdb: %v", err)
	}
	eventually(t, "no process", func() bool { return len(survivors(dir)) == 0 })
	wantEmpty(t, dir)
}

// TestCancelledBoot breaks off a start whose server never becomes ready.
func TestCancelledBoot(t *testing.T) {
	needLinux(t)
	dir := home(t)
	bin := fakeInstallation(t, "postgres (PostgreSQL) 16.4", `: >"$2/up"; exec sleep 1000`, `: >"$2/postgresql.conf"`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Config{BinDir: bin, CacheDir: publicDir(t, os.Geteuid())})
		done <- err
	}()
	eventually(t, "the server at work", func() bool {
		up, _ := filepath.Glob(filepath.Join(dir, dirPrefix+"*/data/up"))
		return len(up) > 0
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	wantEmpty(t, dir)
	eventually(t, "no process", func() bool { return len(survivors(dir)) == 0 })
}

// initdbAtWork reports whether initdb has come as far as to fill the first database.
func initdbAtWork(dir string) bool {
	m, _ := filepath.Glob(filepath.Join(dir, dirPrefix+"*/data/base/1"))
	return len(m) > 0
}

const otherPrograms = "name another installation with --pg-bin, or a running server with --dsn"

// TestFullDisk: the reason is what is said, not what comes of it, and the hint is no other installation.
func TestFullDisk(t *testing.T) {
	needLinux(t)
	home(t)
	const said = `echo 'FATAL:  could not extend file "base/1/1": wrote only 4096 of 8192 bytes' >&2; `
	full := fakeInstallation(t, "postgres (PostgreSQL) 16.4", "exit 1", said+"for i in 1 2 3 4 5 6 7; do echo line $i; done >&2; exit 3")
	_, err := Start(t.Context(), Config{BinDir: full})
	wantError(t, err, "initdb failed (exit status 3) when starting PostgreSQL from "+full+
		`: FATAL:  could not extend file "base/1/1": wrote only 4096 of 8192 bytes | line 1 | line 2 | line 3 | line 4`, needsSpace)
}

func TestBrokenPrograms(t *testing.T) {
	needLinux(t)
	dir := home(t)
	const version = "postgres (PostgreSQL) 16.4"
	for name, c := range map[string]struct{ postgres, initdb, want string }{
		"initdb fails": {
			"exit 1", "for i in 1 2 3 4 5 6 7; do echo line $i; done >&2; exit 3",
			"initdb failed (exit status 3) when starting PostgreSQL from DIR: line 3 | line 4 | line 5 | line 6 | line 7",
		},
		"initdb fails without a word": {"exit 1", "exit 1", "initdb failed (exit status 1) when starting PostgreSQL from DIR: "},
		"postgres fails": {
			"echo FATAL: no luck; exit 4", `: > "$2/postgresql.conf"`,
			"postgres ended (exit status 4) when starting PostgreSQL from DIR: FATAL: no luck",
		},
		"postgres is killed": {
			"kill -9 $$", "",
			"postgres ended (signal: killed) when starting PostgreSQL from DIR: ",
		},
	} {
		bin := fakeInstallation(t, version, c.postgres, c.initdb)
		_, err := Start(t.Context(), Config{BinDir: bin, CacheDir: publicDir(t, os.Geteuid())})
		t.Run(name, func(t *testing.T) { wantError(t, err, strings.ReplaceAll(c.want, "DIR", bin), otherPrograms) })
		wantEmpty(t, dir)
	}
	eventually(t, "no process", func() bool { return len(survivors(dir)) == 0 })
}

func TestUnknownSettingIsNamed(t *testing.T) {
	dir := home(t)
	_, err := Start(t.Context(), Config{CacheDir: testCache(), Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
		t.Errorf("error %v", err)
	}
	wantEmpty(t, dir)
}

func TestProgramsThatTheServersUserCannotRun(t *testing.T) {
	needRoot(t)
	dir := home(t)
	bin := fakeInstallation(t, "postgres (PostgreSQL) 16.4", "", "")
	if err := os.Chmod(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	_, _, who := demoted()
	_, err := Start(t.Context(), Config{BinDir: bin, CacheDir: publicDir(t, os.Geteuid())})
	wantError(t, err, "the server runs as "+who+", since PostgreSQL does not run as root, which may not run "+bin+"/initdb",
		"put the programs where everybody may enter, or name others with --pg-bin")
	wantEmpty(t, dir)
}

func TestTheSupervisorNeedsItsCall(t *testing.T) {
	home(t)
	t.Setenv(guard, "1")
	_, err := Start(t.Context(), Config{CacheDir: testCache()})
	wantError(t, err, "the supervisor started itself: embedded.Supervised must be called first in main", "")
}
