package reference

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/trace"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// MeasuredSchema names the version of the recorded file.
const MeasuredSchema = "lockbench.measured/v1"

// Measured is what every strategy did on every scenario, as recorded once: docs/measured.json.
type Measured struct {
	Schema      string            `json:"schema"`
	Started     time.Time         `json:"started"`
	Environment bench.Environment `json:"environment"`
	Users       int               `json:"users"`
	Connections int               `json:"connections"`
	Trials      int               `json:"trials"`
	Cells       []Cell            `json:"cells"`
	Stories     []Story           `json:"stories"`

	services map[string]string // while it is measured
}

// Cell is a strategy with its options on a scenario with its options.
type Cell struct {
	Scenario   string                  `json:"scenario"`
	Options    bench.Options           `json:"options,omitempty"` // of the scenario
	Strategy   string                  `json:"strategy"`          // the label
	NA         string                  `json:"na,omitempty"`      // why the combination makes no sense
	Skipped    string                  `json:"skipped,omitempty"` // what was missing to measure it
	Verdict    bench.Verdict           `json:"verdict"`
	Found      map[bench.Anomaly]int64 `json:"found,omitempty"` // in the worst trial
	Outcomes   map[string]int64        `json:"outcomes,omitempty"`
	Contention map[string]int64        `json:"contention,omitempty"` // of the same trial; absent where nobody lost a race
	Attempts   int64                   `json:"attempts,omitempty"`
	Operations int64                   `json:"operations,omitempty"`
	// Sent names the statements of a confirmed operation that nobody disturbs, in the order in which they went to the server; [Lock] is a
	// lock outside the database. Absent where users of several strategies are mixed.
	Sent []string `json:"sent,omitempty"`
}

// Lock stands in [Cell.Sent] for a lock outside the database.
const Lock = "(lock)"

// RoundTrips counts the exchanges with the database of an operation that nobody disturbs; 0: unknown.
func (c *Cell) RoundTrips() (n int) {
	for _, name := range c.Sent {
		if name != Lock {
			n++
		}
	}
	return n
}

// Story is a race of two users in slow motion, as Mermaid.
type Story struct {
	Strategy string `json:"strategy"`
	Scenario string `json:"scenario"`
	Mermaid  string `json:"mermaid"`
}

// ReadMeasured reads the recorded file.
func ReadMeasured(text []byte) (*Measured, error) {
	var m Measured
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, bench.Hintf("make measured", "this is no record of what was measured: %v", err)
	}
	if m.Schema != MeasuredSchema {
		return nil, bench.Hintf("make measured", "the record of what was measured is of schema %q, not %q", m.Schema, MeasuredSchema)
	}
	return &m, nil
}

// Find returns a recorded cell; nil if there is none.
func (m *Measured) Find(scenario string, o bench.Options, label string) *Cell {
	i := slices.IndexFunc(m.Cells, func(c Cell) bool {
		return c.Scenario == scenario && c.Strategy == label && maps.Equal(c.Options, o)
	})
	if i < 0 {
		return nil
	}
	return &m.Cells[i]
}

func (m *Measured) story(strategy string) *Story {
	for i := range m.Stories {
		if m.Stories[i].Strategy == strategy {
			return &m.Stories[i]
		}
	}
	return nil
}

// Labels lists the specs of a strategy that are worth running on a scenario: its own, its variants, and where the same request may come
// several times, each of them with idempotency as well.
func Labels(st bench.Strategy, sc bench.Scenario) (all []string) {
	info := st.Info()
	all = append(all, info.Name)
	for _, v := range info.Variants {
		all = append(all, canonical(v))
	}
	if _, ok := sc.(bench.Deliverer); ok {
		for _, label := range slices.Clone(all) {
			all = append(all, canonical(label+":idempotency=on"))
		}
	}
	return all
}

// canonical is a spec written as its label. A variant that no run would take is a mistake in its strategy's file.
func canonical(spec string) string {
	s, err := bench.ParseSpecs(spec)
	if err != nil {
		panic(err)
	}
	return s[0].Label
}

// Settings lists the options under which a scenario is worth running: none, and its variants.
func Settings(sc bench.Scenario) []bench.Options {
	return append([]bench.Options{nil}, sc.Info().Variants...)
}

// The size of the recorded races: enough users to meet, few enough to get through them all in some minutes.
const (
	measuredUsers       = 200
	measuredConnections = 16
	measuredTrials      = 2
)

// Measure races every strategy on every scenario. What known, which may be nil, holds already and what is still true of today's strategies
// is taken over, so that a new one costs no more than its own races. services are the addresses of lock services that are not at their
// usual one, by strategy.
func Measure(ctx context.Context, store trace.Store, services map[string]string, known *Measured, say func(format string, args ...any)) (*Measured, error) {
	m := &Measured{services: services, Schema: MeasuredSchema, Users: measuredUsers, Connections: measuredConnections, Trials: measuredTrials}
	if known != nil {
		*m = *known
		m.services, m.Cells, m.Stories = services, nil, nil
	} else {
		known = &Measured{}
	}
	for _, sc := range scenarios.All() {
		for _, o := range Settings(sc) {
			began := time.Now()
			raced, err := m.scenario(ctx, store, known, sc, o)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", Flags(sc.Info().Name, o), err)
			}
			if raced > 0 {
				say("%s: %d in %s", Flags(sc.Info().Name, o), raced, time.Since(began).Round(time.Second))
			}
		}
	}
	for _, st := range strategies.All() {
		if s := known.story(st.Info().Name); s != nil {
			m.Stories = append(m.Stories, *s)
		} else if err := m.tell(ctx, store, st.Info()); err != nil {
			return nil, fmt.Errorf("tracing %s: %w", st.Info().Name, err)
		}
	}
	return m, nil
}

// Flags writes a scenario with its options as a command line would; what is on is a switch.
func Flags(scenario string, o bench.Options) string {
	text := scenario
	for _, name := range slices.Sorted(maps.Keys(o)) {
		text += " --" + name
		if o[name] != "on" {
			text += " " + o[name]
		}
	}
	return text
}

// Stale says why a recorded cell is no longer true of the registry, "" if it is; b is what the registry says of it today.
func (c *Cell) Stale(b *Binding) string {
	switch {
	case c.NA != b.NA:
		return fmt.Sprintf("it is n/a for %q, and was for %q", b.NA, c.NA)
	case c.NA == "" && c.Skipped == "" && len(c.Outcomes) == 0:
		return "nobody raced"
	}
	for _, name := range c.Sent {
		if name != Lock && !slices.ContainsFunc(b.Statements, func(s Statement) bool { return s.Name == name }) {
			return fmt.Sprintf("it sent %q, and has no such statement any more", name)
		}
	}
	return ""
}

// scenario measures strategies on a scenario under some of its options, those that are not known, and returns how many there were.
func (m *Measured) scenario(ctx context.Context, store trace.Store, known *Measured, sc bench.Scenario, o bench.Options) (raced int, err error) {
	name := sc.Info().Name
	plan := func(labels ...string) (*bench.Race, error) {
		return bench.Compile(bench.Settings{
			Strategies: labels, Scenario: name, Options: o, Services: m.services, Mode: bench.Burst,
			Users: m.Users, Connections: m.Connections, Trials: m.Trials, Seed: 1, Skew: "uniform",
			Think: bench.Duration(2 * time.Millisecond), Retries: 100, Backoff: "exp=1ms..50ms",
			Deadline: bench.Duration(30 * time.Second), Drain: bench.Duration(5 * time.Second),
		}, strategies.All(), scenarios.All(), bench.Connecting{})
	}
	var fit []string
	for _, st := range strategies.All() {
		for _, label := range Labels(st, sc) {
			b, err := Bind(label, sc, o)
			if err != nil {
				return 0, err
			}
			if c := known.Find(name, o, label); c != nil && c.Skipped == "" && c.Stale(&b) == "" {
				m.Cells = append(m.Cells, *c)
				continue
			}
			c := Cell{Scenario: name, Options: o, Strategy: label, NA: b.NA}
			if b.NA == "" {
				race, err := plan(label)
				if err != nil {
					return 0, err
				}
				if missing := race.Reach(ctx); missing != nil {
					c.Skipped = missing.Error()
				} else {
					fit = append(fit, label)
				}
			}
			m.Cells = append(m.Cells, c)
		}
	}
	if len(fit) == 0 {
		return 0, nil
	}
	race, err := plan(fit...)
	if err == nil {
		err = race.Reach(ctx)
	}
	if err != nil {
		return 0, err
	}
	rep, err := race.Execute(ctx, store, bench.NewStop(), unwatched{})
	if err != nil {
		return 0, err
	}
	if m.Started.IsZero() {
		m.Started, m.Environment = rep.Started, rep.Environment
		m.Environment.Server.Address = "" // of the recorded server there is no more to say
	}
	for i := range rep.Cells {
		seen := &rep.Cells[i]
		c := m.Find(name, o, seen.Strategy)
		c.Verdict, c.Outcomes, c.Attempts, c.Operations = seen.Verdict, present(seen.Outcomes), seen.Attempts, seen.Operations
		c.Contention = present(seen.Contention)
		for _, f := range seen.Findings {
			if c.Found == nil {
				c.Found = map[bench.Anomaly]int64{}
			}
			c.Found[f.Anomaly] = max(c.Found[f.Anomaly], f.Count)
		}
		if _, mixed := sc.(bench.Mixer); !mixed {
			if c.Sent, err = m.sent(ctx, store, sc, o, c.Strategy); err != nil {
				return 0, fmt.Errorf("%s: %w", c.Strategy, err)
			}
		}
	}
	return len(fit), nil
}

// present leaves out what was counted 0 times.
func present(counts map[string]int64) map[string]int64 {
	out := maps.Clone(counts)
	maps.DeleteFunc(out, func(_ string, n int64) bool { return n == 0 })
	if len(out) == 0 {
		return nil
	}
	return out
}

// draws is how many operations are looked at for the longest that is confirmed: users may be of several kinds, and calls may fail.
const draws = 4

// sent names the statements of an operation that nobody disturbs.
func (m *Measured) sent(ctx context.Context, store trace.Store, sc bench.Scenario, o bench.Options, label string) (longest []string, err error) {
	for seed := range uint64(draws) {
		t, err := m.slow(ctx, store, sc, o, label, 1, seed+1)
		if err != nil {
			return nil, err
		}
		var names []string
		confirmed := false
		for _, e := range t.Races[0].Events {
			switch {
			case e.Kind == trace.Statement:
				names = append(names, e.Name)
			case e.Kind == trace.Gate:
				names = append(names, Lock)
			case e.Kind == trace.Told:
				confirmed = e.Outcome == bench.Confirmed.String()
			}
		}
		if confirmed && len(names) > len(longest) {
			longest = names
		}
	}
	if longest == nil {
		return nil, fmt.Errorf("no user who is alone was confirmed")
	}
	return longest, nil
}

// slow races in slow motion.
func (m *Measured) slow(ctx context.Context, store trace.Store, sc bench.Scenario, o bench.Options, label string, users int, seed uint64) (*trace.Trace, error) {
	s := bench.Settings{
		Strategies: []string{label}, Scenario: sc.Info().Name, Options: o, Services: m.services, Users: users, Retries: 10, Seed: seed,
	}
	s.Rows = trace.LeastRows(sc, s)
	race, err := bench.Compile(trace.Plan(s), strategies.All(), scenarios.All(), bench.Connecting{})
	if err == nil {
		err = race.Reach(ctx)
	}
	if err != nil {
		return nil, err
	}
	return trace.Run(ctx, race, store, bench.NewStop())
}

// tell traces a strategy on the first scenario that it suits.
func (m *Measured) tell(ctx context.Context, store trace.Store, info bench.StrategyInfo) error {
	for _, sc := range scenarios.All() {
		c := m.Find(sc.Info().Name, nil, info.Name)
		if c.NA != "" || c.Skipped != "" {
			continue
		}
		t, err := m.slow(ctx, store, sc, nil, info.Name, trace.LeastUsers, 1)
		if err != nil {
			return err
		}
		var text strings.Builder
		if err := trace.WriteMermaid(&text, t); err != nil {
			return err
		}
		m.Stories = append(m.Stories, Story{Strategy: info.Name, Scenario: sc.Info().Name, Mermaid: text.String()})
		return nil
	}
	return nil
}

// unwatched is a race of which nobody is told while it lasts.
type unwatched struct{}

func (unwatched) TrialStarts(string, int, int, int, *bench.Live) {}
func (unwatched) TrialEnds(string, *bench.Trial)                 {}
