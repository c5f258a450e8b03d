package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PgBouncer puts a pooler in transaction mode in front of a database and returns how to reach the database through it. Where there is
// none the test is skipped; see [Lack].
func PgBouncer(t testing.TB, dsn string) string {
	t.Helper()
	program, err := findPgBouncer()
	if err != nil {
		Lack(t, "pgbouncer is not installed: nothing is tested through a pooler")
	}
	behind, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "lb-bouncer-") // a test's own directory may have too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const port = 6432 // names the socket; nothing listens on it
	login := "user=" + behind.User
	if behind.Password != "" {
		login += " password=" + behind.Password
	}
	config := fmt.Sprintf(`[databases]
* = host=%s port=%d %s
[pgbouncer]
listen_addr =
listen_port = %d
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 200
`, behind.Host, behind.Port, login, port, dir)
	ini, log := filepath.Join(dir, "ini"), filepath.Join(dir, "log")
	if err := os.WriteFile(ini, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(program, ini)
	cmd.Stdout, cmd.Stderr = out, out
	if err := demote(cmd, behind.Host, dir); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting pgbouncer: %v", err)
	}
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-gone
	})
	awaitSocket(t, filepath.Join(dir, fmt.Sprintf(".s.PGSQL.%d", port)), gone, log)
	return fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", dir, port, behind.User, behind.Database)
}

// findPgBouncer looks where Debian installs it as well, which is not on everybody's PATH.
func findPgBouncer() (string, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	return path, err
}

// demote makes root's pgbouncer, which refuses to run as root, run as the owner of the server's socket, who alone may enter there.
func demote(cmd *exec.Cmd, socketDir, own string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid := uint32(65534), uint32(65534)
	if st, err := os.Stat(socketDir); err == nil {
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && sys.Uid != 0 {
			uid, gid = sys.Uid, sys.Gid
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: []uint32{}}}
	return os.Chown(own, int(uid), int(gid))
}

func awaitSocket(t testing.TB, path string, gone <-chan struct{}, log string) {
	t.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-gone:
			err = errors.New("it ended")
		case <-limit.C:
		case <-tick.C:
			continue
		}
		text, _ := os.ReadFile(log)
		t.Fatalf("pgbouncer takes no connections: %v\n%s", err, strings.TrimSpace(string(text)))
	}
}
