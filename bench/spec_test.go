package bench

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// wantHinted fails unless err says msg and its hint contains hint.
func wantHinted(t *testing.T, err error, msg, hint string) {
	t.Helper()
	var h *Hinted
	switch {
	case err == nil:
		t.Fatalf("no error, want %q", msg)
	case !errors.As(err, &h):
		t.Fatalf("%v carries no hint", err)
	case h.Msg != msg:
		t.Errorf("error %q, want %q", h.Msg, msg)
	}
	if h.Advice == "" || !strings.Contains(h.Advice, hint) {
		t.Errorf("hint %q does not contain %q", h.Advice, hint)
	}
}

func TestParseDuration(t *testing.T) {
	for _, tc := range []struct {
		in, err, hint string
		want          time.Duration
	}{
		{in: "5ms", want: 5 * time.Millisecond},
		{in: "1.5s", want: 1500 * time.Millisecond},
		{in: "2m3s", want: 123 * time.Second},
		{in: "0s"},
		{in: "0"}, // nothing of whatever unit
		{in: "5", err: `duration "5" has no unit`, hint: "write 5ms or 5s"},
		{in: "1.5", err: `duration "1.5" has no unit`, hint: "write 1.5ms or 1.5s"},
		{in: "-5ms", err: `duration "-5ms" is negative`, hint: "0 or more"},
		{in: "soon", err: `"soon" is not a duration`, hint: "5ms, 1.5s or 2m"},
		{in: "", err: `"" is not a duration`, hint: "5ms"},
		{in: "5 ms", err: `"5 ms" is not a duration`, hint: "5ms"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			d, err := ParseDuration(tc.in)
			if tc.err != "" {
				wantHinted(t, err, tc.err, tc.hint)
				return
			}
			if err != nil || d != tc.want {
				t.Errorf("%v, %v; want %v", d, err, tc.want)
			}
		})
	}
}

func TestParseBackoff(t *testing.T) {
	const forms = "none, fixed=10ms or exp=1ms..100ms"
	for _, tc := range []struct {
		in, err, hint string
		want          Backoff
	}{
		{in: "none"},
		{in: "fixed=10ms", want: Backoff{Base: 10 * time.Millisecond, Max: 10 * time.Millisecond}},
		{in: "exp=1ms..100ms", want: Backoff{Base: time.Millisecond, Max: 100 * time.Millisecond}},
		{in: "exp=1ms..1ms", want: Backoff{Base: time.Millisecond, Max: time.Millisecond}},
		{in: "none=5ms", err: `"none=5ms" is not a backoff`, hint: forms},
		{in: "fixed=10", err: `duration "10" has no unit`, hint: "10ms"},
		{in: "exp=1ms", err: `"exp=1ms" is not a backoff`, hint: forms},
		{in: "exp=1..100ms", err: `duration "1" has no unit`, hint: "1ms"},
		{in: "exp=1ms..100", err: `duration "100" has no unit`, hint: "100ms"},
		{in: "exp=0s..1s", err: `backoff "exp=0s..1s" does not grow`, hint: forms},
		{in: "exp=2s..1s", err: `backoff "exp=2s..1s" does not grow`, hint: forms},
		{in: "linear=1ms", err: `"linear=1ms" is not a backoff`, hint: forms},
		{in: "", err: `"" is not a backoff`, hint: forms},
	} {
		t.Run(tc.in, func(t *testing.T) {
			b, err := ParseBackoff(tc.in)
			if tc.err != "" {
				wantHinted(t, err, tc.err, tc.hint)
				return
			}
			if err != nil || b != tc.want {
				t.Errorf("%v, %v; want %v", b, err, tc.want)
			}
		})
	}
}

func TestParseSpecs(t *testing.T) {
	specs, err := ParseSpecs("none, pessimistic:wait=nowait ,optimistic:retries=3:backoff=exp=1ms..50ms,advisory:session")
	if err != nil {
		t.Fatal(err)
	}
	want := []Spec{
		{Name: "none", Label: "none"},
		{Name: "pessimistic", Label: "pessimistic:wait=nowait", Options: Options{"wait": "nowait"}},
		{Name: "optimistic", Label: "optimistic:backoff=exp=1ms..50ms:retries=3", Options: Options{"retries": "3", "backoff": "exp=1ms..50ms"}},
		{Name: "advisory", Label: "advisory:session", Options: Options{"session": ""}},
	}
	if len(specs) != len(want) {
		t.Fatalf("%d specs, want %d: %v", len(specs), len(want), specs)
	}
	for i, w := range want {
		if s := specs[i]; s.Name != w.Name || s.Label != w.Label || !sameOptions(s.Options, w.Options) {
			t.Errorf("spec %d is %+v, want %+v", i, s, w)
		}
	}
}

func sameOptions(a, b Options) bool {
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return len(a) == len(b)
}

func TestParseSpecsRefuses(t *testing.T) {
	for _, tc := range []struct{ in, err, hint string }{
		{"", `empty strategy name in ""`, "optimistic or pessimistic:wait=nowait"},
		{":wait=nowait", `empty strategy name in ":wait=nowait"`, "optimistic"},
		{"pessimistic:", `empty option in strategy "pessimistic:"`, "pessimistic:wait=nowait"},
		{"pessimistic:=nowait", `empty option in strategy "pessimistic:=nowait"`, "pessimistic:wait=nowait"},
		{"a:b=1:b=2", `option "b" stands twice in strategy "a:b=1:b=2"`, "once"},
	} {
		t.Run(tc.in, func(t *testing.T) {
			_, err := ParseSpecs(tc.in)
			wantHinted(t, err, tc.err, tc.hint)
		})
	}
}

func TestParseSpecsReportsEveryProblemAndKeepsTheRest(t *testing.T) {
	specs, err := ParseSpecs(":x,none,a:,cas")
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("want two problems, got %v", err)
	}
	if len(specs) != 2 || specs[0].Name != "none" || specs[1].Name != "cas" {
		t.Errorf("got %v", specs)
	}
}

func TestNearest(t *testing.T) {
	names := []string{"none", "pessimistic", "optimistic", "optimistic-broken", "serializable", "skip-locked"}
	for word, want := range map[string]string{
		"optimstic":    "optimistic",
		"pesimistic":   "pessimistic",
		"serialisable": "serializable",
		"skip":         "skip-locked", // the beginning of a name is enough
		"skiplocked":   "skip-locked",
		"non":          "none",
		"kubernetes":   "",
		"":             "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}} {
		if got := editDistance(tc.a, tc.b); got != tc.want {
			t.Errorf("from %q to %q: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestRetryFor(t *testing.T) {
	base := Retry{Max: 5, Backoff: Backoff{Base: time.Millisecond, Max: time.Second}, Deadline: time.Minute}
	for _, tc := range []struct {
		name string
		o    Options
		want Retry
	}{
		{"nothing said", Options{"wait": "nowait"}, base},
		{"retries", Options{"retries": "0"}, Retry{Max: 0, Backoff: base.Backoff, Deadline: base.Deadline}},
		{"backoff", Options{"backoff": "none"}, Retry{Max: 5, Deadline: base.Deadline}},
		{"deadline", Options{"deadline": "2s"}, Retry{Max: 5, Backoff: base.Backoff, Deadline: 2 * time.Second}},
		{"no deadline", Options{"deadline": "0s"}, Retry{Max: 5, Backoff: base.Backoff}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := retryFor(base, tc.o); err != nil || got != tc.want {
				t.Errorf("%+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestRetryForReportsEveryProblem(t *testing.T) {
	_, err := retryFor(Retry{}, Options{"retries": "-1", "backoff": "slow", "deadline": "5"})
	want := `"-1" is not a number of retries` + "\n" + `"slow" is not a backoff` + "\n" + `duration "5" has no unit`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %v", err, want)
	}
}

func TestCheckOptions(t *testing.T) {
	info := StrategyInfo{Name: "pessimistic", Options: []OptionDoc{
		{Name: "wait", Values: []string{"forever", "nowait", "DURATION"}},
		{Name: "mode", Values: []string{"update", "no-key-update"}},
		{Name: "session"},
	}}
	for _, tc := range []struct{ spec, err, hint string }{
		{spec: "pessimistic"},
		{spec: "pessimistic:wait=nowait:mode=update:session"},
		{spec: "pessimistic:wait=50ms"},
		{spec: "pessimistic:retries=3:backoff=fixed=1ms:deadline=1s"},
		{"pessimistic:wate=nowait", `strategy "pessimistic" has no option "wate"`, "did you mean wait?"},
		{"pessimistic:zzzzzzz=1", `strategy "pessimistic" has no option "zzzzzzz"`, "pessimistic takes retries, backoff, deadline, idempotency, wait, mode, session"},
		{"pessimistic:wait=nowiat", `option "wait" of "pessimistic" cannot be "nowiat"`, "did you mean wait=nowait?"},
		{"pessimistic:wait=50", `duration "50" has no unit`, "50ms"},
		{"pessimistic:mode=share", `option "mode" of "pessimistic" cannot be "share"`, "mode is one of update, no-key-update"},
		{"pessimistic:session=yes", `option "session" of "pessimistic" takes no value, got "yes"`, "write pessimistic:session"},
		{"pessimistic:wait", `option "wait" of "pessimistic" needs a value`, "pessimistic:wait=forever|nowait|DURATION"},
		{spec: "pessimistic:deadline=soon"}, // refused by retryFor
	} {
		t.Run(tc.spec, func(t *testing.T) {
			s, err := parseSpec(tc.spec)
			if err != nil {
				t.Fatal(err)
			}
			err = checkOptions(s, info)
			if tc.err != "" {
				wantHinted(t, err, tc.err, tc.hint)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCheckOptionsIsOrdered runs often enough that an order left to a map would show.
func TestCheckOptionsIsOrdered(t *testing.T) {
	want := "strategy \"a\" has no option \"w\"\nstrategy \"a\" has no option \"x\"\nstrategy \"a\" has no option \"y\"\nstrategy \"a\" has no option \"z\""
	for range 50 {
		err := checkOptions(Spec{Name: "a", Options: Options{"z": "1", "x": "1", "w": "1", "y": "1"}}, StrategyInfo{Name: "a"})
		if err == nil || err.Error() != want {
			t.Fatalf("got  %v\nwant %v", err, want)
		}
	}
}

// TestBackoffWait holds the draws against their ceiling, which doubles from base to maximum and stays there.
func TestBackoffWait(t *testing.T) {
	const base, most = 3 * time.Millisecond, 40 * time.Millisecond
	b := Backoff{Base: base, Max: most}
	for n, ceiling := range map[int]time.Duration{1: base, 2: 2 * base, 3: 4 * base, 4: 8 * base, 5: most, 6: most, 64: most, 1 << 40: most} {
		rng := rand.New(rand.NewPCG(1, 2))
		low, high := most, time.Duration(0)
		for range 2000 {
			w := b.Wait(n, rng)
			low, high = min(low, w), max(high, w)
		}
		if low < 0 || high > ceiling {
			t.Errorf("after attempt %d: between %v and %v, beyond 0 to %v", n, low, high, ceiling)
		}
		// Full jitter reaches both ends; 2000 uniform draws miss a hundredth of the range once in a billion times.
		if low > ceiling/100 || high < ceiling-ceiling/100 {
			t.Errorf("after attempt %d: between %v and %v, want all of 0 to %v", n, low, high, ceiling)
		}
	}
}

// TestBackoffWaitNeverOverflows takes ceilings whose doubling would leave the 63 bits of a duration.
func TestBackoffWaitNeverOverflows(t *testing.T) {
	const longest = time.Duration(1<<63 - 1)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, b := range []Backoff{
		{Base: time.Nanosecond, Max: longest}, {Base: time.Hour, Max: longest}, {Base: time.Hour, Max: 100 * time.Hour}, {Base: longest - 1, Max: longest},
	} {
		for n := 1; n < 200; n++ {
			if w := b.Wait(n, rng); w < 0 || w > b.Max {
				t.Fatalf("%v after attempt %d: %v", b, n, w)
			}
		}
		var far time.Duration
		for range 100 {
			far = max(far, b.Wait(100, rng))
		}
		if far < b.Max/2 {
			t.Errorf("%v: the ceiling fell back to %v", b, far)
		}
	}
}

// TestBackoffKeepsDoublingLong starts so low that the maximum is more than thirty doublings away.
func TestBackoffKeepsDoublingLong(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b := Backoff{Base: 1, Max: time.Hour}
	for n := 1; n <= 41; n++ {
		for range 50 {
			if w := b.Wait(n, rng); w > 1<<(n-1) {
				t.Fatalf("after attempt %d: %v, ceiling %v", n, w, time.Duration(1<<(n-1)))
			}
		}
	}
}

// TestBackoffStopsDoublingAtTheMaximum: one more doubling would pass it, and nothing between is skipped.
func TestBackoffStopsDoublingAtTheMaximum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n, ceiling := range map[int]time.Duration{1: 1, 2: 2, 3: 3} {
		var most time.Duration
		for range 200 {
			most = max(most, Backoff{Base: 1, Max: 3}.Wait(n, rng))
		}
		if most != ceiling {
			t.Errorf("after attempt %d: up to %v, want %v", n, most, ceiling)
		}
	}
}

func TestBackoffFixedAndNone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 100} {
		if w := (Backoff{Base: time.Second, Max: time.Second}).Wait(n, rng); w != time.Second {
			t.Errorf("fixed: %v after attempt %d", w, n)
		}
		if w := (Backoff{}).Wait(n, rng); w != 0 {
			t.Errorf("none: %v after attempt %d", w, n)
		}
	}
}

// FuzzParseDuration: what is accepted is not negative and reads back from its own text.
func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"5ms", "5", "-1s", "0", "1h2m3.000000004s", "2562047h47m16.854775807s", "NaN", "1e9s", "µ", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration(s)
		if err != nil {
			mustHint(t, err)
			return
		}
		if d < 0 {
			t.Errorf("%q reads as %v", s, d)
		}
		if again, err := ParseDuration(d.String()); err != nil || again != d {
			t.Errorf("%q reads as %v, which reads as %v, %v", s, d, again, err)
		}
	})
}

// FuzzParseBackoff: what is accepted reads back from its own text and draws waits between 0 and its maximum.
func FuzzParseBackoff(f *testing.F) {
	for _, s := range []string{"none", "none=", "fixed=10ms", "fixed=0s", "exp=1ms..100ms", "exp=1ns..2562047h47m16.854775807s", "exp=..", "exp=2s..1s", "exp"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBackoff(s)
		if err != nil {
			mustHint(t, err)
			return
		}
		if again, err := ParseBackoff(b.String()); err != nil || again != b {
			t.Errorf("%q reads as %v, which reads as %v, %v", s, b, again, err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for _, n := range []int{1, 2, 30, 31, 63, 64, 1 << 30} {
			if w := b.Wait(n, rng); w < 0 || w > b.Max {
				t.Errorf("%v after attempt %d: %v", b, n, w)
			}
		}
	})
}

// FuzzParseSpecs: a spec that is accepted has a name, and its label, which names the cell, reads back as the same spec.
func FuzzParseSpecs(f *testing.F) {
	for _, s := range []string{"none", "a,b", "a:b=c=d:e", "a:", ":b", "a:b:b", " a ,, b", "optimistic:backoff=exp=1ms..50ms"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		specs, err := ParseSpecs(list)
		if err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
		if err == nil && len(specs) != 1+strings.Count(list, ",") {
			t.Errorf("%q gives %d specs", list, len(specs))
		}
		for _, s := range specs {
			again, err := ParseSpecs(s.Label)
			if err != nil || len(again) != 1 || again[0].Name != s.Name || again[0].Label != s.Label || !sameOptions(again[0].Options, s.Options) {
				t.Errorf("%+v reads back as %+v, %v", s, again, err)
			}
			if s.Name == "" || len(s.Options) != strings.Count(s.Label, ":") {
				t.Errorf("%q was read as %+v", list, s)
			}
		}
	})
}

func mustHint(t *testing.T, err error) {
	t.Helper()
	var h interface{ Hint() string }
	if !errors.As(err, &h) || h.Hint() == "" || err.Error() == "" {
		t.Errorf("%v has no hint", err)
	}
}
