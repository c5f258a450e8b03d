package trace_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres/pgtest"
	"github.com/lockbench/lockbench/bench/trace"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// ask is what a trace is asked for.
type ask struct {
	scenario string
	specs    []string
	users    int
	rows     int64
	options  bench.Options
}

func (q ask) compile(t testing.TB) *bench.Race {
	t.Helper()
	s := bench.Settings{Strategies: q.specs, Scenario: q.scenario, Users: q.users, Rows: q.rows, Retries: 10, Seed: 1, Options: q.options}
	if s.Rows == 0 {
		for _, sc := range scenarios.All() {
			if sc.Info().Name == q.scenario {
				s.Rows = trace.LeastRows(sc, s)
			}
		}
	}
	return pgtest.Compile(t, trace.Plan(s), strategies.All(), scenarios.All(), bench.Connecting{})
}

// run traces on a store, and expects that the order was kept to the end.
func (q ask) run(t testing.TB, store trace.Store) *trace.Trace {
	t.Helper()
	tr, err := trace.Run(t.Context(), q.compile(t), store, bench.NewStop())
	if err != nil {
		t.Fatalf("tracing %v on %s: %v", q.specs, q.scenario, err)
	}
	if tr.Partial {
		t.Errorf("the trace of %v on %s is partial", q.specs, q.scenario)
	}
	for _, r := range tr.Races {
		if len(r.Notes) > 0 {
			t.Errorf("%s on %s: %v", r.Strategy, q.scenario, r.Notes)
		}
	}
	return tr
}

// one traces a single strategy with two users.
func one(t testing.TB, scenario, spec string) *trace.Race {
	t.Helper()
	return ask{scenario: scenario, specs: []string{spec}, users: 2}.run(t, pgtest.Store(t, pgtest.DSN(t))).Races[0]
}

// specs lists every strategy and every variant of it.
func specs() (all []string) {
	for _, st := range strategies.All() {
		if info := st.Info(); !info.External {
			all = append(append(all, info.Name), info.Variants...)
		}
	}
	return all
}

// suited returns those that a scenario does not refuse.
func suited(scenario string, options bench.Options) (fit []string) {
	for _, spec := range specs() {
		s := trace.Plan(bench.Settings{Strategies: []string{spec}, Scenario: scenario, Users: 2, Rows: 2, Options: options})
		if _, err := bench.Compile(s, strategies.All(), scenarios.All(), bench.Connecting{}); err == nil {
			fit = append(fit, spec)
		}
	}
	return fit
}

// still gives everything that differs from run to run one value, which also has one length: lines are then broken alike.
func still(tr *trace.Trace) *trace.Trace {
	zero := 0.0
	for _, r := range tr.Races {
		for _, e := range r.Events {
			e.StartMS = zero
			if e.PID != 0 {
				e.PID = 4711
			}
			if e.TookMS != nil {
				e.TookMS = &zero
			}
			for i := range e.Waits {
				e.Waits[i].AtMS = zero
			}
		}
	}
	return tr
}

func text(t testing.TB, tr *trace.Trace, width int) string {
	t.Helper()
	var b bytes.Buffer
	if err := trace.WriteText(&b, tr, width); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func mermaid(t testing.TB, tr *trace.Trace) string {
	t.Helper()
	var b bytes.Buffer
	if err := trace.WriteMermaid(&b, tr); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// sights is a store that lets a test look over the server's answers.
type sights struct {
	trace.Store
	see func(map[int64]trace.Backend) (map[int64]trace.Backend, error)
}

func (s sights) Sight(ctx context.Context) (trace.Sight, error) {
	inner, err := s.Store.Sight(ctx)
	return sight{inner, s.see}, err
}

type sight struct {
	trace.Sight
	see func(map[int64]trace.Backend) (map[int64]trace.Backend, error)
}

func (s sight) Look(ctx context.Context, pids []int64) (map[int64]trace.Backend, error) {
	all, err := s.Sight.Look(ctx, pids)
	if err != nil {
		return nil, err
	}
	return s.see(all)
}
