package conformance

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// services lists the strategies whose lock lives in a service.
func services() (all []bench.StrategyInfo) {
	for _, st := range strategies.All() {
		if info := st.Info(); info.External {
			all = append(all, info)
		}
	}
	return all
}

// where names the services' addresses as the command line would.
func where() map[string]string {
	at := map[string]string{}
	for _, info := range services() {
		if address := os.Getenv("LOCKBENCH_" + strings.ToUpper(info.Name)); address != "" {
			at[info.Name] = address
		}
	}
	return at
}

// reached compiles a plan and makes sure that its services answer. It returns how long a lease of the first one is.
func reached(t *testing.T, s bench.Settings) (*bench.Race, time.Duration) {
	t.Helper()
	s.Services = where()
	r := compile(t, s, bench.Connecting{})
	lease, err := r.Cells[0].Discipline.(bench.Locker).Reach(t.Context())
	if err != nil {
		pgtest.Lack(t, err.Error()+": its locks are not tested; make services starts it")
	}
	return r, lease
}

// labels are a strategy and its variants.
func labels(info bench.StrategyInfo) []string { return append([]string{info.Name}, info.Variants...) }

func same(scenario string) func(race) bool {
	return func(r race) bool { return r.scenario == scenario }
}

// TestServicesAreSound: while leases hold, a lock in a service is as good as one in the database, with a fence and without.
func TestServicesAreSound(t *testing.T) {
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, info := range services() {
		for _, label := range labels(info) {
			for i, race := range races {
				if slices.IndexFunc(races[:i], same(race.scenario)) >= 0 { // once a scenario
					continue
				}
				t.Run(label+"/"+race.scenario, func(t *testing.T) {
					s := plan(i, label+race.with)
					s.Services = where()
					if _, err := bench.Compile(s, strategies.All(), scenarios.All(), bench.Connecting{}); err != nil {
						if strings.Contains(label, "fencing") {
							t.Skip(err) // a fence guards one row
						}
						t.Fatal(err)
					}
					r, _ := reached(t, s)
					if !claims(r)[r.Cells[0].Spec.Label] {
						t.Fatalf("it claims nothing there: %v", r.Cells[0].Claims)
					}
					cell := pgtest.Run(t, r, store).Cells[0]
					if cell.Verdict != bench.Sound || cell.Audit["leaked_locks"] != 0 || cell.Waits["lock"].P50 == nil {
						t.Errorf("verdict %s, findings %+v, outcomes %v, errors %v, lock wait %+v", cell.Verdict, cell.Findings, cell.Outcomes, cell.Errors, cell.Waits["lock"])
					}
					if got := cell.Outcomes["confirmed"]; got != race.confirmed && !(race.orMore && got >= race.confirmed) {
						t.Errorf("%d were told yes, not %d: %v, %v", got, race.confirmed, cell.Outcomes, cell.Errors)
					}
				})
			}
		}
	}
}

// TestLapsedLeases: a holder who stops for longer than his lease lasts comes back to a row that somebody else has changed. Without a fence
// he overwrites it; with one he is refused, and the numbers add up.
func TestLapsedLeases(t *testing.T) {
	store := pgtest.Store(t, pgtest.DSN(t))
	for _, info := range services() {
		for _, label := range labels(info) {
			t.Run(label, func(t *testing.T) {
				s := pgtest.Plan("inventory", label)
				s.Rows, s.Capacity, s.Users = 1, 1000, 80
				s.TTL = bench.Duration(200 * time.Millisecond)
				_, lease := reached(t, s) // services have a shortest lease of their own, and look for lapsed ones now and then
				s.Stall = (lease + 700*time.Millisecond).String() + "@10%"
				r, _ := reached(t, s)
				cell := pgtest.Run(t, r, store).Cells[0]
				if cell.Stalled == 0 {
					t.Fatal("nobody stalled")
				}
				if cell.Audit["leaked_locks"] != 0 {
					t.Errorf("%d locks were left", cell.Audit["leaked_locks"])
				}
				if strings.Contains(label, "fencing") {
					if cell.Verdict != bench.Sound || cell.Contention["fenced"] == 0 {
						t.Errorf("verdict %s, contention %v, findings %+v, errors %v", cell.Verdict, cell.Contention, cell.Findings, cell.Errors)
					}
					return
				}
				if cell.Verdict != bench.Violated || cell.Audit["lost_updates"] == 0 || cell.ClaimBroken || len(cell.Claim) > 0 {
					t.Errorf("verdict %s, audit %v, claims %v, broken %v, contention %v, errors %v", cell.Verdict, cell.Audit, cell.Claim, cell.ClaimBroken, cell.Contention, cell.Errors)
				}
				if cell.Contention["fenced"] != 0 {
					t.Errorf("%d were fenced off without a fence", cell.Contention["fenced"])
				}
			})
		}
	}
}

// TestLeftLocksAreFound: a lock that nobody gave back is counted and removed, and so is everything else that a trial keeps in its service.
func TestLeftLocksAreFound(t *testing.T) {
	for _, info := range services() {
		for _, label := range labels(info) {
			t.Run(label, func(t *testing.T) {
				s := pgtest.Plan("transfer", label)
				s.Rows = 3
				r, _ := reached(t, s)
				l := r.Cells[0].Discipline.(bench.Locker)
				n := bench.Leasing{Name: "left-" + r.Run, Rows: 3, Sessions: 2}
				if err := l.Connect(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				defer l.Disconnect()
				left := func(want int64) {
					t.Helper()
					if got, err := l.Sweep(t.Context(), n); err != nil || got != want {
						t.Errorf("%d locks are left, not %d: %v", got, want, err)
					}
				}
				hold, err := l.Enter(t.Context(), &bench.Request{User: 1, Key: 3, To: 1})
				if err != nil {
					t.Fatal(err)
				}
				left(2)
				left(0) // there is nothing any more
				hold.Leave()
				left(0)
			})
		}
	}
}

// TestGivingUpLeavesNothing: a user whose deadline passes in line leaves no claim behind that would get the lock after him.
func TestGivingUpLeavesNothing(t *testing.T) {
	for _, info := range services() {
		for _, label := range labels(info) {
			t.Run(label, func(t *testing.T) {
				r, _ := reached(t, pgtest.Plan("seats", label))
				l := r.Cells[0].Discipline.(bench.Locker)
				n := bench.Leasing{Name: "gone-" + r.Run, Rows: 1, Sessions: 2}
				if err := l.Connect(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				defer l.Disconnect()
				q := &bench.Request{User: 1, Key: 1}
				hold, err := l.Enter(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if _, err := l.Enter(ctx, q); err != ctx.Err() || err == nil {
					t.Errorf("in line until the deadline: %v", err)
				}
				hold.Leave()
				if left, err := l.Sweep(t.Context(), n); err != nil || left != 0 {
					t.Errorf("%d locks are left: %v", left, err)
				}
				again, err := l.Enter(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				again.Leave()
			})
		}
	}
}

// TestUnreachableServices: a service that does not answer is named with its address and with ways to start one, all of them at once.
func TestUnreachableServices(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port where nobody listens once it is closed
	if err != nil {
		t.Fatal(err)
	}
	nowhere := l.Addr().String()
	_ = l.Close()
	s := pgtest.Plan("seats")
	s.Services = map[string]string{}
	for _, info := range services() {
		s.Strategies = append(s.Strategies, labels(info)...)
		s.Services[info.Name] = nowhere
	}
	err = compile(t, s, bench.Connecting{}).Reach(t.Context())
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != len(services()) {
		t.Fatalf("not one error a service: %v", err)
	}
	for i, err := range joined.Unwrap() {
		info := services()[i]
		hinted, ok := err.(*bench.Hinted)
		if !ok || !strings.HasPrefix(err.Error(), info.Name+" does not answer at \""+nowhere+"\": ") {
			t.Errorf("%s: %v", info.Name, err)
			continue
		}
		for _, way := range []string{"make services", "docker run", "--" + info.Name + " host:port"} {
			if !strings.Contains(hinted.Hint(), way) {
				t.Errorf("%s: the hint does not say %q: %s", info.Name, way, hinted.Hint())
			}
		}
	}
}
