package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// supervisorOf finds the supervisor of a child before anybody has said who it is.
func supervisorOf(t *testing.T, parent int) int {
	t.Helper()
	pid := 0
	eventually(t, "a supervisor", func() bool {
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range stats {
			b, _ := os.ReadFile(path)
			fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
			if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
				continue
			}
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			if strings.Contains(string(cmd), supervisorArg) {
				pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
				return true
			}
		}
		return false
	})
	return pid
}

// TestNothingOutlivesItsParent kills whoever can be killed, with the server running and with initdb at work.
func TestNothingOutlivesItsParent(t *testing.T) {
	needLinux(t)
	type victims struct {
		name               string
		parent, supervisor syscall.Signal
	}
	for _, v := range []victims{
		{"parent killed", syscall.SIGKILL, 0},
		{"parent terminated", syscall.SIGTERM, 0},
		{"supervisor killed", 0, syscall.SIGKILL},
		{"supervisor terminated", 0, syscall.SIGTERM},
		{"both killed", syscall.SIGKILL, syscall.SIGKILL},
	} {
		for _, during := range []string{"run", "initdb"} {
			t.Run(v.name+" in "+during, func(t *testing.T) {
				dir := publicDir(t, os.Geteuid())
				o := childOrder{Mode: "start", CacheDir: testCache(), Durable: true}
				if during == "initdb" {
					o.CacheDir = publicDir(t, os.Geteuid())
				}
				c := startChild(t, o, nil, "TMPDIR="+dir)
				supervisor := supervisorOf(t, c.cmd.Process.Pid)
				if during == "run" {
					if r := c.hear(); r.Error != "" || r.Facts.Supervisor != supervisor {
						t.Fatalf("%+v", r)
					}
				} else {
					eventually(t, "initdb at work", func() bool { return initdbAtWork(dir) })
				}
				if len(survivors(dir)) < 3 { // parent, supervisor, and the program: the search finds what there is
					t.Fatalf("found only %v", survivors(dir))
				}
				if v.supervisor != 0 {
					if err := syscall.Kill(supervisor, v.supervisor); err != nil {
						t.Fatal(err)
					}
				}
				if v.parent != 0 {
					c.kill(v.parent)
				} else {
					if during == "initdb" {
						if r := c.hear(); r.Error == "" {
							t.Errorf("a start whose supervisor is gone says %+v", r)
						}
					}
					eventually(t, "no server", func() bool { return !strings.Contains(fmt.Sprint(survivors(dir)), "postgres") })
					c.end()
				}
				eventually(t, "no process", func() bool { return len(survivors(dir)) == 0 })
				left, _ := os.ReadDir(dir)
				if v.supervisor != syscall.SIGKILL {
					if len(left) != 0 {
						t.Errorf("left: %v", left)
					}
					return
				}
				if v.name == "supervisor killed" && during == "run" { // Stop saw it, and cleared away
					if len(left) != 0 {
						t.Errorf("Stop left %v", left)
					}
					return
				}
				if sockets, _ := filepath.Glob(dir + "/*/s/.s*"); during == "run" && len(sockets) > 0 {
					t.Errorf("sockets left: %v", sockets)
				}
				if len(left) != 1 {
					t.Fatalf("the killed supervisor left %v, want its directory", left)
				}
				// The next start takes the directory away.
				if r := do(t, childOrder{Mode: "start", CacheDir: testCache()}, nil, "TMPDIR="+dir); r.Error != "" {
					t.Fatal(r.Error)
				}
				wantEmpty(t, dir)
			})
		}
	}
}

// TestInterruptIsForTheParentAlone sends what Ctrl-C sends: a signal to the foreground group.
func TestInterruptIsForTheParentAlone(t *testing.T) {
	needLinux(t)
	dir := publicDir(t, os.Geteuid())
	c := startChild(t, childOrder{Mode: "start", CacheDir: testCache()}, nil, "TMPDIR="+dir, interruptVariable+"=1")
	r := c.hear()
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	for _, pid := range []int{r.Facts.Supervisor, r.Facts.PID} {
		if group, err := syscall.Getpgid(pid); err != nil || group == c.cmd.Process.Pid {
			t.Errorf("process %d is in group %d, which Ctrl-C reaches (%v)", pid, group, err)
		}
	}
	if err := syscall.Kill(-c.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if said, err := c.reply.ReadString('\n'); err != nil || said != "interrupted\n" {
		t.Fatalf("the parent said %q, %v", said, err)
	}
	if got := ask(t, r.Facts.DSN, "select 'still here'"); got != "still here" {
		t.Error(got)
	}
	c.end()
	wantEmpty(t, dir)
}
