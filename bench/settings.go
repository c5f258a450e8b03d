package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strings"
	"time"
)

// Mode is how users arrive.
type Mode string

// The modes.
const (
	Burst  Mode = "burst"  // all users released once by a barrier
	Closed Mode = "closed" // users loop
	Open   Mode = "open"   // arrivals on a schedule, whatever the system does
)

// Settings are the parameters of a run, as its flags give them and as its report carries them.
type Settings struct {
	Strategies  []string `json:"strategy"`
	Scenario    string   `json:"scenario"`
	Mode        Mode     `json:"mode"`
	Users       int      `json:"users"`
	Connections int      `json:"connections"`
	Duration    Duration `json:"duration,omitempty"` // measured window of closed and open
	Operations  int64    `json:"operations,omitempty"`
	Rate        float64  `json:"rate,omitempty"` // arrivals a second in open mode
	Trials      int      `json:"trials"`
	Warmup      Duration `json:"warmup"`
	Seed        uint64   `json:"seed"`
	Rows        int64    `json:"rows"`
	Capacity    int64    `json:"capacity"`
	Skew        string   `json:"skew"`
	Options     Options  `json:"scenario_options,omitempty"` // the scenario's own flags
	Think       Duration `json:"think"`
	Pause       Duration `json:"pause"`
	Retries     int      `json:"retries"`
	Backoff     string   `json:"backoff"`
	Deadline    Duration `json:"deadline"`
	LockTimeout Duration `json:"lock_timeout"`
	Pipeline    bool     `json:"pipeline_begin"`
	Drain       Duration `json:"drain"` // how long a stopped run waits for operations under way
	// CallerDeadline is after how long a caller gives up, though the work for him goes on; 0: he waits.
	CallerDeadline Duration `json:"caller_deadline,omitempty"`
	// Instances is how many processes of this machine share the users, Workers how many that are awaited from elsewhere; 0: this one has
	// them all.
	Instances int `json:"instances,omitempty"`
	Workers   int `json:"workers,omitempty"`
	// TTL is how long a lease of a lock service lasts when nothing renews it; 0: [DefaultTTL].
	TTL Duration `json:"ttl,omitempty"`
	// Stall is how long holders stop between read and write, and how many of all operations do, as 800ms@2%.
	Stall    string            `json:"stall,omitempty"`
	Services map[string]string `json:"services,omitempty"` // addresses of lock services that were given, by strategy
}

// shared reports whether several processes share the users.
func (s *Settings) shared() bool { return s.Processes() > 1 || s.Workers > 0 }

// Processes is how many share the users.
func (s *Settings) Processes() int { return max(s.Instances, s.Workers, 1) }

// Duration is a time.Duration that is written with its unit in JSON.
type Duration time.Duration

// MarshalText writes the duration with its unit.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration with its unit.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	*d = Duration(v)
	return err
}

func (d Duration) String() string { return time.Duration(d).String() }

// Race is a compiled run: every cell bound and checked, nothing connected yet.
type Race struct {
	Name     string // among several that are run together, for progress and errors
	Settings Settings
	Scenario Scenario
	Params   Params
	Cells    []*Entrant
	Warnings []Warning
	// Run names what the race keeps in lock services: the same in all processes that share it, and no other's. Whoever starts a race
	// without one is given one.
	Run   string
	skew  Skew
	stall Stall
}

// Entrant is one strategy bound to the scenario.
type Entrant struct {
	Spec       Spec
	Info       StrategyInfo
	Discipline Discipline
	Operation  Operation
	Retry      Retry
	Claims     []Anomaly
	Params     Params        // the scenario's, with what is the cell's own
	Rogue      Discipline    // what rogue users follow; nil if there are none
	leaky      bool          // it is there to show a leak
	lease      time.Duration // that its lock service grants; 0: not known, or it has none
	pivot      Anomaly       // what the scenario is about
	NA         string        // why it is not run; the rest is empty then
}

// Scoper is a discipline whose options change where its strategy's claims hold.
type Scoper interface{ Scope() string }

// Claimer is a discipline whose options change what its strategy claims.
type Claimer interface{ Prevents() []Anomaly }

// Connecting says what is known of the way to the database when a race is compiled.
type Connecting struct {
	Pooled bool // through a transaction pooler
}

// All is the --strategy value that stands for every strategy which needs nothing but the database.
const All = "all"

// Compile checks all of the settings and binds every strategy to the scenario. It reports every problem at once, before anything is
// started. With --strategy all, combinations that make no sense are kept as n/a; asked for by name, they are problems.
func Compile(s Settings, strategies []Strategy, scenarios []Scenario, via Connecting) (*Race, error) {
	var errs []error
	fail := func(setting, value string, err error) { errs = append(errs, About(setting, value, err)) }

	r := &Race{}
	names := make([]string, 0, len(scenarios))
	for _, sc := range scenarios {
		names = append(names, sc.Info().Name)
		if sc.Info().Name == s.Scenario {
			r.Scenario = sc
		}
	}
	if r.Scenario == nil {
		fail("scenario", "", Hintf(didYouMean(s.Scenario, names), "unknown scenario %q", s.Scenario))
	}
	skew, err := ParseSkew(s.Skew)
	fail("skew", "", err)
	backoff, err := ParseBackoff(s.Backoff)
	fail("backoff", "", err)
	r.stall, err = ParseStall(s.Stall)
	fail("stall", "", err)
	errs = append(errs, s.check()...)
	if r.Scenario != nil {
		errs = append(errs, checkScenarioOptions(s.Options, r.Scenario.Info())...)
		if v, ok := r.Scenario.(Varied); ok {
			r.Scenario = v.Variant(Params{Options: s.Options})
		}
		p, err := r.Scenario.Fit(Params{Rows: s.Rows, Capacity: s.Capacity, Users: s.Users, Endless: s.Mode != Burst, Options: s.Options})
		fail("rows", "", err)
		r.Params, s.Rows, s.Capacity = p, p.Rows, p.Capacity
		if skew.Hot > p.Rows && err == nil && p.Rows > 0 {
			fail("skew", "", Hintf("lower --skew or raise --rows", "skew %q needs %d rows, there are %d", s.Skew, skew.Hot, p.Rows))
		}
	}
	base := Retry{Max: s.Retries, Backoff: backoff, Deadline: time.Duration(s.Deadline)}
	specs, tolerant, err := expand(s.Strategies, strategies)
	fail("strategy", "", err)
	for _, sp := range specs {
		e, err := bind(sp, strategies, r.Scenario, r.Params, base, s, via, tolerant)
		if err != nil {
			fail("strategy", sp.Label, err)
			continue
		}
		r.Cells = append(r.Cells, e)
	}
	r.Settings, r.skew = s, skew
	return r, errors.Join(errs...)
}

// didYouMean is the hint for an unknown name.
func didYouMean(word string, names []string) string {
	all := strings.Join(names, ", ")
	if n := Nearest(word, names); n != "" {
		return fmt.Sprintf("did you mean %s? (there are %s)", n, all)
	}
	return "there are " + all
}

// check returns the problems of single settings.
func (s *Settings) check() []error {
	var errs []error
	bad := func(setting, hint, format string, args ...any) {
		errs = append(errs, About(setting, "", Hintf(hint, format, args...)))
	}
	if s.Users < 1 {
		bad("users", "one user is the least", "users must be at least 1, got %d", s.Users)
	}
	if s.Connections < 0 {
		bad("connections", "leave --connections out for min(users, 32)", "connections must be at least 1, got %d", s.Connections)
	}
	for _, l := range s.limits() {
		if l.got > l.most {
			bad(l.name, l.why, "%s must be at most %d, got %d", l.name, l.most, l.got)
		}
	}
	switch n := s.Processes(); {
	case s.Instances < 0:
		bad("instances", "leave --instances out for one process", "instances must be at least 1, got %d", s.Instances)
	case s.Workers < 0:
		bad("workers", "leave --workers out to race here", "workers must be at least 1, got %d", s.Workers)
	case s.Instances > 0 && s.Workers > 0:
		bad("instances", "--instances starts processes here, --workers waits for those of other machines: give one of them", "instances and workers exclude each other")
	case n > 1 && s.Users >= 1 && s.Users < n:
		bad("users", "raise --users, or start fewer processes", "%d processes cannot share %d users", n, s.Users)
	case n > 1 && s.Connections >= 1 && s.Connections < n:
		bad("connections", "raise --connections, or start fewer processes", "%d processes cannot share %d connections", n, s.Connections)
	}
	if s.Trials < 1 {
		bad("trials", "one trial is the least", "trials must be at least 1, got %d", s.Trials)
	}
	if s.Retries < 0 {
		bad("retries", "--retries 0 means one attempt", "retries must be 0 or more, got %d", s.Retries)
	}
	if s.Rows < 0 {
		bad("rows", "leave --rows out for the scenario's default", "rows must be at least 1, got %d", s.Rows)
	}
	if s.Capacity < 0 {
		bad("capacity", "leave --capacity out for the scenario's default", "capacity must be at least 1, got %d", s.Capacity)
	}
	if s.Operations < 0 {
		bad("operations", "leave --operations out to bound the run by --duration", "operations must be 0 or more, got %d", s.Operations)
	}
	if s.TTL != 0 && time.Duration(s.TTL) < shortestTTL {
		bad("ttl", "give --ttl 500ms or more", "ttl must be at least %v, got %v", shortestTTL, s.TTL)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Services)) {
		if host, port, err := net.SplitHostPort(s.Services[name]); err != nil || host == "" || port == "" {
			bad(name, "write --"+name+" host:port", "%q is not the address of a service", s.Services[name])
		}
	}
	switch s.Mode {
	case Burst:
		if s.Rate != 0 {
			bad("rate", "add --mode open", "rate has no meaning in burst mode")
		}
		for _, unused := range []struct {
			name  string
			given bool
		}{{"duration", s.Duration != 0}, {"operations", s.Operations > 0}, {"pause", s.Pause != 0}} {
			if unused.given {
				bad(unused.name, "add --mode closed", "%s has no meaning in burst mode, where each user acts once", unused.name)
			}
		}
	case Closed:
		if s.Rate != 0 {
			bad("rate", "use --mode open, or --pause to slow users down", "rate has no meaning in closed mode")
		}
		if s.Duration <= 0 && s.Operations == 0 {
			bad("mode", "give --duration 10s or --operations 10000", "closed mode needs an end")
		}
	case Open:
		if !(s.Rate > 0) || math.IsInf(s.Rate, 1) { // NaN is not above 0 either
			bad("rate", "give --rate 200, in arrivals a second", "open mode needs a rate above 0, got %g", s.Rate)
		}
		if s.Duration <= 0 && s.Operations == 0 {
			bad("mode", "give --duration 10s or --operations 10000", "open mode needs an end")
		}
		if n := s.Rate * time.Duration(s.Warmup+s.Duration).Seconds(); s.Operations == 0 && n > MostOperations {
			bad("rate", "lower --rate or --duration, or give --operations", "open mode takes at most %d operations, and the rate of %g makes %.3g due", int64(MostOperations), s.Rate, n)
		}
		if s.Pause != 0 {
			bad("pause", "the schedule decides when a user acts: leave --pause out", "pause has no meaning in open mode")
		}
	default:
		bad("mode", didYouMean(string(s.Mode), []string{string(Burst), string(Closed), string(Open)}), "unknown mode %q", s.Mode)
	}
	return errs
}

// The most that a run takes. They keep a slip of the finger from filling the machine's memory, and are beyond what PostgreSQL does well.
const (
	MostUsers       = 1_000_000 // a waiting user weighs some 6 kB
	MostConnections = 10_000    // PostgreSQL forks a process of several MB for each; a pooler's clients are lighter
	MostProcesses   = 256
	MostRows        = 10_000_000    // the audit holds every row in memory
	MostCapacity    = 1_000_000_000 // times rows, still far from where a bigint ends
	MostOperations  = 100_000_000   // the audit holds what every user was told
)

// limit is the most of one setting, with what to say to whoever asks for more.
type limit struct {
	name      string
	got, most int64
	why       string
}

func (s *Settings) limits() []limit {
	return []limit{
		{"users", int64(s.Users), MostUsers, "a waiting user takes some 6 kB of memory"},
		{"connections", int64(s.Connections), MostConnections, "PostgreSQL forks a process for each; a pooler with fewer is faster"},
		{"instances", int64(s.Instances), MostProcesses, "each is a process of some 20 MB; --workers waits for other machines"},
		{"workers", int64(s.Workers), MostProcesses, "what one server serves, a few machines can ask for"},
		{"rows", s.Rows, MostRows, "the audit holds every row in memory"},
		{"capacity", s.Capacity, MostCapacity, "less is as good as endless: no run sells so much"},
		{"operations", s.Operations, MostOperations, "the audit holds in memory what every user was told"},
	}
}

// expand turns the --strategy list into specs; all stands for every strategy and tolerates n/a.
func expand(list []string, strategies []Strategy) (specs []Spec, tolerant bool, err error) {
	var errs []error
	var items []string
	if len(list) > 0 {
		items = strings.Split(strings.Join(list, ","), ",")
	}
	for _, item := range items {
		if strings.TrimSpace(item) == All {
			tolerant = true
			for _, st := range strategies {
				if info := st.Info(); !info.External {
					specs = append(specs, Spec{Name: info.Name, Options: Options{}, Label: info.Name})
				}
			}
			continue
		}
		more, err := ParseSpecs(item)
		specs = append(specs, more...)
		errs = append(errs, About("strategy", strings.TrimSpace(item), err))
	}
	seen := map[string]bool{}
	unique := specs[:0]
	for _, sp := range specs {
		if !seen[sp.Label] {
			unique = append(unique, sp)
		}
		seen[sp.Label] = true
	}
	if len(unique) == 0 && len(errs) == 0 {
		errs = append(errs, Hintf("lockbench list strategies", "no strategy given"))
	}
	return unique, tolerant, errors.Join(errs...)
}

// Lookup finds a strategy by name.
func Lookup(name string, strategies []Strategy) (Strategy, error) {
	names := make([]string, 0, len(strategies))
	for _, st := range strategies {
		if st.Info().Name == name {
			return st, nil
		}
		names = append(names, st.Info().Name)
	}
	return nil, Hintf(didYouMean(name, names), "unknown strategy %q", name)
}

func bind(sp Spec, strategies []Strategy, sc Scenario, p Params, base Retry, s Settings, via Connecting, tolerant bool) (*Entrant, error) {
	st, err := Lookup(sp.Name, strategies)
	if err != nil {
		return nil, err
	}
	e := &Entrant{Spec: sp, Info: st.Info(), Params: p}
	e.Params.Idempotent = sp.Options[idempotency] == "on"
	e.Claims = e.Info.Prevents
	e.Retry, err = retryFor(base, sp.Options)
	if err = errors.Join(checkOptions(sp, e.Info), err); err != nil || sc == nil {
		return nil, err
	}
	stall, _ := ParseStall(s.Stall) // Compile has refused a bad one
	b := Binding{
		Tables: sc.Tables(), Changes: sc.Changes(), SingleWrite: sc.SingleWrite(),
		Options: sp.Options, Pipeline: s.Pipeline, Pooled: via.Pooled,
		Services: s.Services, TTL: cmp.Or(time.Duration(s.TTL), DefaultTTL), Stall: stall,
	}
	e.Discipline, err = st.Bind(b)
	if err == nil {
		e.Operation, err = sc.Operation(e.Discipline.Lends(), e.Params)
	}
	if err == nil {
		err = e.admitRogues(strategies, sc, b)
	}
	var na *NotApplicable
	switch {
	case errors.As(err, &na) && tolerant:
		return &Entrant{Spec: sp, Info: e.Info, NA: na.Reason}, nil
	case errors.As(err, &na):
		return nil, &Hinted{Msg: fmt.Sprintf("%s makes no sense on %s: %s", sp.Label, sc.Info().Name, na.Reason), Advice: na.Remedy, Err: na}
	case err != nil:
		return nil, err
	}
	if c, ok := e.Discipline.(Claimer); ok {
		e.Claims = c.Prevents()
	}
	if s, ok := e.Discipline.(Scoper); ok {
		e.Info.Scope = s.Scope()
	}
	if l, ok := e.Discipline.(Leaky); ok && l.Leaks() {
		e.leaky, e.Claims = true, nil
	}
	at := stakes(sc, e.Params)
	if e.Params.Idempotent {
		if !slices.Contains(at, DoubleCharge) {
			return nil, Hintf("leave it out, or add --scenario payment", "idempotency has no meaning on %s, where no request comes twice", sc.Info().Name)
		}
		e.Claims = append(slices.Clone(e.Claims), DoubleCharge)
	}
	e.Claims = slices.DeleteFunc(slices.Clone(e.Claims), func(a Anomaly) bool { return !slices.Contains(at, a) })
	if e.Rogue != nil || e.Info.Scope == InOneProcess && s.Processes() > 1 {
		e.Claims = nil
	}
	if len(at) > 0 {
		e.pivot = at[0]
	}
	return e, nil
}

// idempotency is an option that every strategy has: whether a request that comes again is recognised.
const idempotency = "idempotency"

// stakes are the anomalies that a scenario can put to the test, first what it is about.
func stakes(sc Scenario, p Params) []Anomaly {
	if s, ok := sc.(Staker); ok {
		return s.AtStake(p)
	}
	return sc.Info().Anomalies
}

// admitRogues binds what users follow who do not follow the strategy. It must lend what the strategy lends, since they do the same work.
func (e *Entrant) admitRogues(strategies []Strategy, sc Scenario, b Binding) error {
	mixer, ok := sc.(Mixer)
	if !ok || mixer.Rogue(e.Params) == "" {
		return nil
	}
	specs, err := ParseSpecs(mixer.Rogue(e.Params))
	if err != nil {
		return err
	}
	sp := specs[0]
	st, err := Lookup(sp.Name, strategies)
	if err != nil {
		return err
	}
	if err := checkOptions(sp, st.Info()); err != nil {
		return err
	}
	b.Options = sp.Options
	if e.Rogue, err = st.Bind(b); err != nil {
		return err
	}
	honest := e.Operation
	rogue, err := sc.Operation(e.Rogue.Lends(), e.Params)
	if err != nil {
		return err
	}
	e.Operation = func(u *User, r *Request) Answer {
		if r.Rogue {
			return rogue(u, r)
		}
		return honest(u, r)
	}
	return nil
}

// statements are all that the cell's connections send.
func (e *Entrant) statements() []*Stmt {
	if e.Rogue == nil {
		return e.Discipline.Statements()
	}
	return append(slices.Clone(e.Discipline.Statements()), e.Rogue.Statements()...)
}

// checkScenarioOptions refuses flags of another scenario, and values a flag does not take.
func checkScenarioOptions(given Options, sc ScenarioInfo) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(sc.Options, func(d OptionDoc) bool { return d.Name == name })
		if i < 0 {
			errs = append(errs, About(name, "", Hintf("leave it out, or name another --scenario", "scenario %q has no --%s", sc.Name, name)))
			continue
		}
		if given[name] == "" {
			errs = append(errs, About(name, "", Hintf(fmt.Sprintf("write --%s %s", name, strings.Join(sc.Options[i].Values, "|")), "--%s needs a value", name)))
		} else if err := checkValue(Spec{Name: sc.Name}, sc.Options[i], given[name]); err != nil {
			errs = append(errs, About(name, "", err))
		}
	}
	return errs
}

// pivotal returns the claims on which a verdict of sound may rest: none, unless what the scenario is about is among them.
func (e *Entrant) pivotal() []Anomaly {
	if !slices.Contains(e.Claims, e.pivot) {
		return nil
	}
	return e.Claims
}
