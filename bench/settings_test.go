package bench

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// valid returns settings without a problem.
func valid() Settings {
	return Settings{
		Strategies: []string{"plain"}, Scenario: "stock", Mode: Burst, Users: 2, Connections: 1, Trials: 1,
		Skew: "uniform", Backoff: "none", Drain: Duration(time.Second),
	}
}

func TestSettingsCheck(t *testing.T) {
	for _, tc := range []struct {
		name      string
		change    func(*Settings)
		err, hint string
	}{
		{name: "burst", change: func(*Settings) {}},
		{name: "closed by duration", change: func(s *Settings) { s.Mode, s.Duration = Closed, Duration(time.Second) }},
		{name: "closed by operations", change: func(s *Settings) { s.Mode, s.Operations = Closed, 5 }},
		{name: "open", change: func(s *Settings) { s.Mode, s.Rate, s.Duration = Open, 10, Duration(time.Second) }},
		{"users", func(s *Settings) { s.Users = 0 }, "users must be at least 1, got 0", "one user"},
		{"connections", func(s *Settings) { s.Connections = -1 }, "connections must be at least 1, got -1", "min(users, 32)"},
		{"trials", func(s *Settings) { s.Trials = 0 }, "trials must be at least 1, got 0", "one trial"},
		{"retries", func(s *Settings) { s.Retries = -1 }, "retries must be 0 or more, got -1", "--retries 0"},
		{"rows", func(s *Settings) { s.Rows = -1 }, "rows must be at least 1, got -1", "--rows"},
		{"capacity", func(s *Settings) { s.Capacity = -1 }, "capacity must be at least 1, got -1", "--capacity"},
		{"too many users", func(s *Settings) { s.Users = 1e9 }, "users must be at most 1000000, got 1000000000", "memory"},
		{"too many connections", func(s *Settings) { s.Connections = 10_001 }, "connections must be at most 10000, got 10001", "pooler"},
		{"too many rows", func(s *Settings) { s.Rows = 1e12 }, "rows must be at most 10000000, got 1000000000000", "memory"},
		{"too much capacity", func(s *Settings) { s.Capacity = math.MaxInt64 }, "capacity must be at most 1000000000, got 9223372036854775807", "endless"},
		{"too many operations", func(s *Settings) { s.Mode, s.Operations = Closed, 1e9 }, "operations must be at most 100000000, got 1000000000", "memory"},
		{"too many arrivals", func(s *Settings) { s.Mode, s.Rate, s.Duration = Open, 1e9, Duration(10*time.Second) },
			"open mode takes at most 100000000 operations, and the rate of 1e+09 makes 1e+10 due", "--operations"},
		{"duration in burst", func(s *Settings) { s.Duration = 1 }, "duration has no meaning in burst mode, where each user acts once", "--mode closed"},
		{"operations in burst", func(s *Settings) { s.Operations = 1 }, "operations has no meaning in burst mode, where each user acts once", "--mode closed"},
		{"pause in burst", func(s *Settings) { s.Pause = 1 }, "pause has no meaning in burst mode, where each user acts once", "--mode closed"},
		{"operations", func(s *Settings) { s.Mode, s.Duration, s.Operations = Closed, 1, -1 }, "operations must be 0 or more, got -1", "--operations"},
		{"rate in burst", func(s *Settings) { s.Rate = 5 }, "rate has no meaning in burst mode", "--mode open"},
		{"rate in closed", func(s *Settings) { s.Mode, s.Operations, s.Rate = Closed, 5, 5 }, "rate has no meaning in closed mode", "--mode open"},
		{"endless closed", func(s *Settings) { s.Mode = Closed }, "closed mode needs an end", "--duration 10s"},
		{"endless open", func(s *Settings) { s.Mode, s.Rate = Open, 5 }, "open mode needs an end", "--duration 10s"},
		{"open without rate", func(s *Settings) { s.Mode, s.Operations = Open, 5 }, "open mode needs a rate above 0, got 0", "--rate 200"},
		{"open at no rate", func(s *Settings) { s.Mode, s.Operations, s.Rate = Open, 5, math.NaN() }, "open mode needs a rate above 0, got NaN", "--rate 200"},
		{"open at any rate", func(s *Settings) { s.Mode, s.Operations, s.Rate = Open, 5, math.Inf(1) }, "open mode needs a rate above 0, got +Inf", "--rate 200"},
		{"pause in open", func(s *Settings) { s.Mode, s.Operations, s.Rate, s.Pause = Open, 5, 5, 1 }, "pause has no meaning in open mode", "--pause"},
		{"mode", func(s *Settings) { s.Mode = "brust" }, `unknown mode "brust"`, "did you mean burst? (there are burst, closed, open)"},
		{"foreign mode", func(s *Settings) { s.Mode = "sequential" }, `unknown mode "sequential"`, "there are burst, closed, open"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := valid()
			tc.change(&s)
			errs := s.check()
			if tc.err == "" {
				if len(errs) > 0 {
					t.Error(errs)
				}
				return
			}
			if len(errs) != 1 {
				t.Fatalf("%d problems, want 1: %v", len(errs), errs)
			}
			wantHinted(t, errs[0], tc.err, tc.hint)
		})
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, tc := range []struct {
		name      string
		change    func(*Settings)
		err, hint string
	}{
		{"strategy", func(s *Settings) { s.Strategies = []string{"plian"} }, `unknown strategy "plian"`, "did you mean plain? (there are plain, other, picky, remote)"},
		{"foreign strategy", func(s *Settings) { s.Strategies = []string{"blockchain"} }, `unknown strategy "blockchain"`, "there are plain, other, picky, remote"},
		{"no strategy", func(s *Settings) { s.Strategies = nil }, "no strategy given", "lockbench list strategies"},
		{"scenario", func(s *Settings) { s.Scenario = "stocks" }, `unknown scenario "stocks"`, "did you mean stock? (there are stock)"},
		{"skew", func(s *Settings) { s.Skew = "zipf:2" }, `"zipf:2" is not a skew`, "below 1"},
		{"hot beyond the rows", func(s *Settings) { s.Skew, s.Rows = "hot:9", 4 }, `skew "hot:9" needs 9 rows, there are 4`, "--rows"},
		{"backoff", func(s *Settings) { s.Backoff = "slow" }, `"slow" is not a backoff`, "fixed=10ms"},
		{"what does not fit", func(s *Settings) { s.Capacity = 1000 }, "capacity cannot be 1000", "at most 999"},
		{"option of the scenario", func(s *Settings) { s.Options = Options{"batch": "3"} }, `scenario "stock" has no --batch`, "another --scenario"},
		{"value of the scenario", func(s *Settings) { s.Options = Options{"order": "sort"} }, `option "order" of "stock" cannot be "sort"`, "did you mean order=sorted?"},
		{"option", func(s *Settings) { s.Strategies = []string{"plain:retires=2"} }, `strategy "plain" has no option "retires"`, "did you mean retries?"},
		{"value", func(s *Settings) { s.Strategies = []string{"plain:deadline=5"} }, `duration "5" has no unit`, "5ms"},
		{"retries", func(s *Settings) { s.Strategies = []string{"plain:retries=few"} }, `"few" is not a number of retries`, "retries=3"},
		{"senseless by name", func(s *Settings) { s.Strategies = []string{"picky"} }, "picky makes no sense on stock: it wants another table", "try plain"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := valid()
			tc.change(&s)
			_, err := Compile(s, fakeStrategies(), []Scenario{&fakeScenario{}}, Connecting{})
			wantHinted(t, err, tc.err, tc.hint)
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one problem: %v", err)
			}
		})
	}
}

func TestCompileReportsEveryProblemAtOnce(t *testing.T) {
	s := valid()
	s.Strategies = []string{"plian,plain:colour=red:retries=x,picky", ":"}
	s.Scenario, s.Skew, s.Backoff, s.Users, s.Trials = "stocks", "hot", "slow", 0, 0
	_, err := Compile(s, fakeStrategies(), []Scenario{&fakeScenario{}}, Connecting{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`unknown strategy "plian"`, `has no option "colour"`, `"x" is not a number of retries`, `empty strategy name`,
		`unknown scenario "stocks"`, `"hot" is not a skew`, `"slow" is not a backoff`, "users must be", "trials must be",
	} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("%q is not said once in:\n%v", want, err)
		}
	}
}

func TestCompile(t *testing.T) {
	s := valid()
	s.Retries, s.Deadline = 4, Duration(time.Second)
	s.Strategies = []string{"plain:retries=1,other", "plain:retries=1"}
	r, err := Compile(s, fakeStrategies(), []Scenario{&fakeScenario{}}, Connecting{Pooled: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 2 { // the same cell twice is one
		t.Fatalf("%d cells, want 2", len(r.Cells))
	}
	plain, other := r.Cells[0], r.Cells[1]
	if plain.Retry != (Retry{Max: 1, Deadline: time.Second}) || other.Retry != (Retry{Max: 4, Deadline: time.Second}) {
		t.Errorf("retry policies %+v and %+v", plain.Retry, other.Retry)
	}
	if plain.Operation == nil || plain.Discipline == nil || len(plain.Claims) == 0 {
		t.Errorf("plain is not bound: %+v", plain)
	}
	if !plain.Discipline.(*fakeDiscipline).binding.Pooled {
		t.Error("the strategy was not told of the pooler")
	}
	if r.Settings.Rows != 1 || r.Params.Rows != 1 || r.Settings.Capacity != 100 {
		t.Errorf("defaults of the scenario are not in the settings: rows %d, capacity %d", r.Settings.Rows, r.Settings.Capacity)
	}
}

// TestClaimsAreThoseAtStake: what a scenario cannot put to the test, its cells neither claim nor break.
func TestClaimsAreThoseAtStake(t *testing.T) {
	st := plain()
	st.info.Prevents = []Anomaly{WriteSkew, LostUpdate}
	r, err := Compile(valid(), []Strategy{st}, []Scenario{&fakeScenario{}}, Connecting{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Cells[0].Claims; !slices.Equal(got, []Anomaly{LostUpdate}) {
		t.Errorf("claims %v", got)
	}
	if len(st.info.Prevents) != 2 || st.info.Prevents[0] != WriteSkew {
		t.Errorf("the strategy's own claims were changed: %v", st.info.Prevents)
	}
}

// TestCellsAreNamedByMeaning: however its options are ordered and written, a cell has one name and stands in the report once.
func TestCellsAreNamedByMeaning(t *testing.T) {
	s := valid()
	s.Strategies = []string{"plain:retries=1:deadline=50ms,plain:deadline=0.05s:retries=01", "plain:backoff=fixed=1000us,plain:backoff=exp=1ms..1ms"}
	r, err := Compile(s, fakeStrategies(), []Scenario{&fakeScenario{}}, Connecting{})
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, c := range r.Cells {
		labels = append(labels, c.Spec.Label)
	}
	if want := []string{"plain:deadline=50ms:retries=1", "plain:backoff=fixed=1ms"}; !slices.Equal(labels, want) {
		t.Errorf("cells %q, want %q", labels, want)
	}
}

// TestCompileTellsWhatMakesNoSense: whoever shows a strategy on a scenario asks for the reason, not for a text.
func TestCompileTellsWhatMakesNoSense(t *testing.T) {
	s := valid()
	s.Strategies = []string{"picky"}
	_, err := Compile(s, fakeStrategies(), []Scenario{&fakeScenario{}}, Connecting{})
	var na *NotApplicable
	if !errors.As(err, &na) || na.Reason != "it wants another table" || na.Remedy != "try plain" {
		t.Errorf("%v holds %+v", err, na)
	}
}

// TestAllToleratesWhatMakesNoSense: by name the same combination is refused (TestCompileRefuses).
func TestAllToleratesWhatMakesNoSense(t *testing.T) {
	s := valid()
	s.Strategies = []string{All}
	r, err := Compile(s, fakeStrategies(), []Scenario{&fakeScenario{}}, Connecting{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range r.Cells {
		names = append(names, c.Spec.Label)
		if want := map[bool]string{true: "it wants another table"}[c.Spec.Name == "picky"]; c.NA != want {
			t.Errorf("%s is n/a for %q, want %q", c.Spec.Label, c.NA, want)
		}
	}
	if got := strings.Join(names, " "); got != "plain other picky" { // without remote, which needs a service
		t.Errorf("all stands for %s", got)
	}
}

func TestSettingsKeepTheirUnitsInJSON(t *testing.T) {
	s := valid()
	s.Think = Duration(1500 * time.Microsecond)
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"think":"1.5ms"`) {
		t.Errorf("no unit in %s", b)
	}
	var back Settings
	if err := json.Unmarshal(b, &back); err != nil || back.Think != s.Think || back.Drain != s.Drain {
		t.Errorf("%+v, %v", back, err)
	}
	err = json.Unmarshal([]byte(`{"think":"5"}`), &back)
	var h *Hinted
	if !errors.As(err, &h) || h.Msg != `duration "5" has no unit` {
		t.Errorf("a bare number gives %v", err)
	}
}

func TestLostNamesItsKind(t *testing.T) {
	for _, k := range Contentions() {
		f := faultOf(Lost(k))
		if f.Class != ClassContention || f.Kind != k || f.Error() != "contention: "+k.String() {
			t.Errorf("%v is lost as %+v (%v)", k, f, f)
		}
	}
	cause := errors.New("disk full")
	if f := faultOf(cause); f.Class != ClassFailed || !errors.Is(f, cause) {
		t.Errorf("an unclassified error is %+v", f)
	}
}
