package bench

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hinted is an error that knows what was probably meant.
type Hinted struct {
	Msg    string
	Advice string
	Err    error // what it explains; nil if nothing
}

func (e *Hinted) Error() string { return e.Msg }

// Unwrap returns what the message explains.
func (e *Hinted) Unwrap() error { return e.Err }

// Hint returns the command or value that was probably meant.
func (e *Hinted) Hint() string { return e.Advice }

// Hintf returns an error with a hint.
func Hintf(hint, format string, args ...any) error {
	return &Hinted{Msg: fmt.Sprintf(format, args...), Advice: hint}
}

// SettingError is a problem of one setting, so that whoever wrote it can be shown the place.
type SettingError struct {
	Setting string // the name of its flag
	Value   string // the item that is wrong, where the setting is a list
	Err     error
}

func (e *SettingError) Error() string { return e.Err.Error() }

func (e *SettingError) Unwrap() error { return e.Err }

// About says which setting an error is about; each of several joined errors is told apart. It returns nil for nil.
func About(setting, value string, err error) error {
	if err == nil {
		return nil
	}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, About(setting, value, e))
		}
		return errors.Join(all...)
	}
	var known *SettingError
	if errors.As(err, &known) {
		return err
	}
	return &SettingError{setting, value, err}
}

// ParseDuration reads a duration, which must carry its unit and not be negative.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		if _, nerr := strconv.ParseFloat(s, 64); nerr == nil {
			return 0, Hintf(fmt.Sprintf("write %sms or %ss", s, s), "duration %q has no unit", s)
		}
		return 0, Hintf("durations look like 5ms, 1.5s or 2m", "%q is not a duration", s)
	}
	if d < 0 {
		return 0, Hintf("durations are 0 or more", "duration %q is negative", s)
	}
	return d, nil
}

// Backoff is how long a user waits before the next attempt. It sleeps without holding a connection.
type Backoff struct {
	Base time.Duration // 0: no wait
	Max  time.Duration // equal to Base: fixed
}

// ParseBackoff reads none, fixed=10ms or exp=1ms..100ms.
func ParseBackoff(s string) (Backoff, error) {
	kind, rest, _ := strings.Cut(s, "=")
	const forms = "backoff is none, fixed=10ms or exp=1ms..100ms"
	switch kind {
	case "none":
		if rest == "" {
			return Backoff{}, nil
		}
	case "fixed":
		d, err := ParseDuration(rest)
		if err != nil {
			return Backoff{}, fmt.Errorf("backoff %q: %w", s, err)
		}
		return Backoff{Base: d, Max: d}, nil
	case "exp":
		from, to, ok := strings.Cut(rest, "..")
		if !ok {
			break
		}
		lo, err := ParseDuration(from)
		if err != nil {
			return Backoff{}, fmt.Errorf("backoff %q: %w", s, err)
		}
		hi, err := ParseDuration(to)
		if err != nil {
			return Backoff{}, fmt.Errorf("backoff %q: %w", s, err)
		}
		if lo == 0 || hi < lo {
			return Backoff{}, Hintf(forms, "backoff %q does not grow", s)
		}
		return Backoff{Base: lo, Max: hi}, nil
	}
	return Backoff{}, Hintf(forms, "%q is not a backoff", s)
}

func (b Backoff) String() string {
	switch {
	case b.Base == 0:
		return "none"
	case b.Base == b.Max:
		return "fixed=" + b.Base.String()
	}
	return "exp=" + b.Base.String() + ".." + b.Max.String()
}

// Wait draws the time to sleep after the n-th failed attempt, from 1. Exponential backoff has full jitter: uniform between 0 and the
// current ceiling, so that losers of one race do not meet again in the next.
// Source: M. Brooker, "Exponential Backoff And Jitter", 2015.
func (b Backoff) Wait(n int, rng *rand.Rand) time.Duration {
	if b.Base == b.Max {
		return b.Base
	}
	ceiling := b.Max
	if shift := n - 1; b.Base <= b.Max>>shift { // the maximum is shifted, since the base could leave the 63 bits
		ceiling = b.Base << shift
	}
	return time.Duration(rng.Uint64N(uint64(ceiling) + 1))
}

// Retry is the one retry policy that every strategy pays.
type Retry struct {
	Max      int // attempts after the first
	Backoff  Backoff
	Deadline time.Duration // of an operation; 0: none
}

// Spec is a strategy with its inline options as a user wrote it.
type Spec struct {
	Name    string
	Options Options
	Label   string // names the cell: the same text however the options were ordered and their values written
}

// ParseSpecs reads a --strategy list: strategies are separated by commas, options by colons, a name from its value by the
// first "=". Every problem is reported.
func ParseSpecs(list string) ([]Spec, error) {
	var specs []Spec
	var errs []error
	for _, text := range strings.Split(list, ",") {
		s, err := parseSpec(strings.TrimSpace(text))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		specs = append(specs, s)
	}
	return specs, errors.Join(errs...)
}

func parseSpec(text string) (Spec, error) {
	parts := strings.Split(text, ":")
	s := Spec{Name: parts[0], Options: Options{}}
	if s.Name == "" {
		return s, Hintf("strategies look like optimistic or pessimistic:wait=nowait", "empty strategy name in %q", text)
	}
	for _, o := range parts[1:] {
		name, value, _ := strings.Cut(o, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if name == "" {
			return s, Hintf("options look like pessimistic:wait=nowait", "empty option in strategy %q", text)
		}
		if _, twice := s.Options[name]; twice {
			return s, Hintf("give it once", "option %q stands twice in strategy %q", name, text)
		}
		s.Options[name] = canonical(value)
	}
	s.Label = s.Name
	for _, name := range slices.Sorted(maps.Keys(s.Options)) {
		s.Label += ":" + name
		if v := s.Options[name]; v != "" {
			s.Label += "=" + v
		}
	}
	return s, nil
}

// canonical writes a value that is a number, a duration or a backoff in the one way that such values are written. What is none of these is
// left as it is, also where it is wrong: the error quotes it.
func canonical(value string) string {
	if n, err := strconv.ParseUint(value, 10, 63); err == nil {
		return strconv.FormatUint(n, 10)
	}
	if d, err := ParseDuration(value); err == nil {
		return d.String()
	}
	if b, err := ParseBackoff(value); err == nil {
		return b.String()
	}
	return value
}

// sharedOptions are those that every strategy takes.
func sharedOptions() []OptionDoc {
	return []OptionDoc{
		{Name: "retries", Values: []string{"N"}, Doc: "attempts after the first, instead of --retries"},
		{Name: "backoff", Values: []string{"none", "fixed=DURATION", "exp=DURATION..DURATION"}, Doc: "wait between attempts, instead of --backoff"},
		{Name: "deadline", Values: []string{"DURATION"}, Doc: "time limit of an operation, instead of --deadline"},
		{Name: idempotency, Values: []string{"on", "off"}, Doc: "whether a request that comes again is recognised by its key (default off)"},
	}
}

// SharedOptions lists the inline options that every strategy takes.
func SharedOptions() []OptionDoc { return sharedOptions() }

// retryFor applies a spec's shared options to the policy of the run.
func retryFor(base Retry, o Options) (Retry, error) {
	var errs []error
	if v, ok := o["retries"]; ok {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			errs = append(errs, Hintf("retries=3 allows four attempts", "%q is not a number of retries", v))
		}
		base.Max = n
	}
	if v, ok := o["backoff"]; ok {
		b, err := ParseBackoff(v)
		errs = append(errs, err)
		base.Backoff = b
	}
	if v, ok := o["deadline"]; ok {
		d, err := ParseDuration(v)
		errs = append(errs, err)
		base.Deadline = d
	}
	if v, ok := o[idempotency]; ok && v != "on" && v != "off" {
		errs = append(errs, Hintf("idempotency=on or idempotency=off", "idempotency cannot be %q", v))
	}
	return base, errors.Join(errs...)
}

// checkOptions refuses options that neither the strategy nor lockbench knows, and values an option does not take.
func checkOptions(s Spec, info StrategyInfo) error {
	shared := sharedOptions()
	docs := append(shared, info.Options...)
	names := make([]string, 0, len(docs))
	for _, d := range docs {
		names = append(names, d.Name)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Options)) {
		i := slices.Index(names, name)
		if i < 0 {
			hint := fmt.Sprintf("%s takes %s", s.Name, strings.Join(names, ", "))
			if n := Nearest(name, names); n != "" {
				hint = fmt.Sprintf("did you mean %s? (%s)", n, hint)
			}
			errs = append(errs, Hintf(hint, "strategy %q has no option %q", s.Name, name))
			continue
		}
		if i < len(shared) {
			continue // retryFor reads its value, and refuses it
		}
		if err := checkValue(s, docs[i], s.Options[name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func checkValue(s Spec, d OptionDoc, value string) error {
	if len(d.Values) == 0 {
		if value != "" {
			return Hintf(fmt.Sprintf("write %s:%s", s.Name, d.Name), "option %q of %q takes no value, got %q", d.Name, s.Name, value)
		}
		return nil
	}
	if value == "" {
		return Hintf(fmt.Sprintf("write %s:%s=%s", s.Name, d.Name, strings.Join(d.Values, "|")), "option %q of %q needs a value", d.Name, s.Name)
	}
	var words []string
	duration := false
	for _, v := range d.Values {
		switch {
		case v == value, v == "N", v == "N%", v == "SPEC", strings.Contains(v, "=DURATION"):
			return nil // numbers, strategies and distributions are read, and refused, where they are used
		case v == "DURATION":
			duration = true
		default:
			words = append(words, v)
		}
	}
	if duration {
		_, err := ParseDuration(value)
		if err == nil || len(words) == 0 {
			return err
		}
		if h := (*Hinted)(nil); errors.As(err, &h) && strings.Contains(h.Msg, "no unit") {
			return err
		}
	}
	hint := fmt.Sprintf("%s is one of %s", d.Name, strings.Join(d.Values, ", "))
	if n := Nearest(value, words); n != "" {
		hint = fmt.Sprintf("did you mean %s=%s? (%s)", d.Name, n, hint)
	}
	return Hintf(hint, "option %q of %q cannot be %q", d.Name, s.Name, value)
}
