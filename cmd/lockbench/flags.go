package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
)

// value is a flag that notes a bad value as a problem and goes on, so that all problems of a line are reported together.
type value[T any] struct {
	a     *app
	name  string
	kind  string // shown in --help
	to    *T
	parse func(string) (T, error)
	show  func(T) string
	text  string // as it was given
}

// Set reads the flag's text.
func (v *value[T]) Set(s string) error {
	v.text = s
	x, err := v.parse(s)
	if err != nil {
		v.a.problem(fmt.Errorf("--%s: %w", v.name, err))
		return nil
	}
	*v.to = x
	return nil
}

func (v *value[T]) String() string {
	if v.to == nil { // pflag compares with the zero value to know what is a default
		return ""
	}
	return v.show(*v.to)
}

func (v *value[T]) given() []string { return []string{v.text} }

// Type names the kind of value in --help.
func (v *value[T]) Type() string { return v.kind }

// giver is a flag that knows the values it was given, as they were written.
type giver interface{ given() []string }

// flagSet adds the flags of one heading of --help to a command.
type flagSet struct {
	a     *app
	fs    *pflag.FlagSet
	group string
}

const groupKey = "lockbench_group"

// in returns the same flags under another heading.
func (s flagSet) in(group string) flagSet {
	s.group = group
	return s
}

func (s flagSet) add(v pflag.Value, name, usage string) *pflag.Flag {
	f := s.fs.VarPF(v, name, "", usage)
	if s.group != "" {
		f.Annotations = map[string][]string{groupKey: {s.group}}
	}
	return f
}

func (s flagSet) duration(to *bench.Duration, name string, def time.Duration, usage string) {
	*to = bench.Duration(def)
	s.add(&value[bench.Duration]{
		a: s.a, name: name, kind: "duration", to: to,
		parse: func(t string) (bench.Duration, error) {
			d, err := bench.ParseDuration(t)
			return bench.Duration(d), err
		},
		show: func(d bench.Duration) string {
			if d == 0 {
				return "" // an empty default is not printed
			}
			return d.String()
		},
	}, name, usage)
}

// number is a type of whole number that a flag may have.
type number interface{ ~int | ~int64 | ~uint64 }

// whole adds a flag that takes a whole number. Its range is checked where all settings are.
func whole[T number](s flagSet, to *T, name string, def T, usage string) {
	wholeFrom(s, to, name, math.MinInt64, def, usage)
}

// count adds a flag that takes a whole number of at least 1, so that a default of 0 can stand for one that is found elsewhere.
func count[T number](s flagSet, to *T, name string, def T, usage string) {
	wholeFrom(s, to, name, 1, def, usage)
}

func wholeFrom[T number](s flagSet, to *T, name string, least int64, def T, usage string) {
	*to = def
	s.add(&value[T]{
		a: s.a, name: name, kind: "n", to: to,
		parse: func(t string) (T, error) {
			n, err := strconv.ParseInt(t, 10, 64)
			switch {
			case err == nil && n < 0 && T(n) > 0:
				return 0, bench.Hintf(fmt.Sprintf("--%s takes a number of 0 or more", name), "%q is negative", t)
			case err != nil || int64(T(n)) != n:
				return 0, bench.Hintf(fmt.Sprintf("--%s takes a number such as 100", name), "%q is not a whole number", t)
			case n < least && def == 0:
				return 0, bench.Hintf(fmt.Sprintf("leave --%s out for its default", name), "must be at least %d, got %s", least, t)
			case n < least:
				return 0, bench.Hintf(fmt.Sprintf("leave --%s out for %d", name, def), "must be at least %d, got %s", least, t)
			}
			return T(n), nil
		},
		show: func(n T) string {
			if n == 0 && name != "retries" {
				return ""
			}
			return fmt.Sprint(n)
		},
	}, name, usage)
}

func (s flagSet) real(to *float64, name string, usage string) {
	s.add(&value[float64]{
		a: s.a, name: name, kind: "n", to: to,
		parse: func(t string) (float64, error) {
			n, err := strconv.ParseFloat(t, 64)
			if err != nil {
				return 0, bench.Hintf(fmt.Sprintf("--%s takes a number such as 200", name), "%q is not a number", t)
			}
			return n, nil
		},
		show: func(n float64) string {
			if n == 0 {
				return ""
			}
			return strconv.FormatFloat(n, 'g', -1, 64)
		},
	}, name, usage)
}

func (s flagSet) text(to *string, name, kind, def, usage string) {
	*to = def
	s.add(&value[string]{
		a: s.a, name: name, kind: kind, to: to,
		parse: func(t string) (string, error) { return t, nil },
		show:  func(t string) string { return t },
	}, name, usage)
}

// oneOf adds a flag that takes one of some words.
func (s flagSet) oneOf(to *string, name, def string, words []string, usage string) {
	*to = def
	s.add(&value[string]{
		a: s.a, name: name, kind: strings.Join(words, "|"), to: to,
		parse: func(t string) (string, error) {
			if slices.Contains(words, t) {
				return t, nil
			}
			hint := "one of " + strings.Join(words, ", ")
			if n := bench.Nearest(t, words); n != "" {
				hint = fmt.Sprintf("did you mean --%s %s? (%s)", name, n, hint)
			}
			return "", bench.Hintf(hint, "%q is not one of %s", t, strings.Join(words, ", "))
		},
		show: func(t string) string { return t },
	}, name, usage)
}

// onOff adds a flag without a value that sets to to on.
func (s flagSet) onOff(to *bool, name string, on bool, usage string) {
	f := s.add(&value[bool]{
		a: s.a, name: name, kind: "bool", to: to,
		parse: func(t string) (bool, error) {
			b, err := strconv.ParseBool(t)
			if err != nil {
				return false, bench.Hintf("write --"+name+" alone", "%q is not true or false", t)
			}
			return b == on, nil
		},
		show: func(bool) string { return "" },
	}, name, usage)
	f.NoOptDefVal = "true"
}

// list is a flag that may be repeated; the first one replaces the default.
type list struct {
	kind  string
	to    *[]string
	comma bool     // one flag may hold several, separated by commas
	texts []string // as they were given
}

// Set adds to the list.
func (l *list) Set(s string) error {
	if l.texts == nil {
		*l.to = nil
	}
	l.texts = append(l.texts, s)
	if !l.comma {
		*l.to = append(*l.to, s)
		return nil
	}
	for _, part := range strings.Split(s, ",") {
		*l.to = append(*l.to, strings.TrimSpace(part))
	}
	return nil
}

func (l *list) String() string {
	if l.to == nil {
		return ""
	}
	return strings.Join(*l.to, ",")
}

func (l *list) given() []string { return l.texts }

// Type names the kind of value in --help.
func (l *list) Type() string { return l.kind }

func (s flagSet) list(to *[]string, name, kind string, def []string, comma bool, usage string) {
	*to = def
	s.add(&list{kind: kind, to: to, comma: comma}, name, usage)
}
