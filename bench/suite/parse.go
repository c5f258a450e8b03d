package suite

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/lockbench/lockbench/bench"
)

// The keys that are no parameters.
const (
	keyDefaults = "defaults"
	keyRaces    = "races"
	keyName     = "name"
	keyFailOn   = "fail-on"
	keyExpect   = "expect"
)

// mostBytes bounds a file: nobody writes a larger one by hand, and brackets nested a hundred thousand deep would keep the parser busy
// for minutes.
const mostBytes = 64 << 10

// raceName is what names may look like: they name files and test cases, too.
var raceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Parse reads a suite whose races may have these settings. It reports every problem with its place; the suite is good if there are
// none. It walks the syntax tree itself, since the library's decoder stops at the first mistake.
func Parse(file string, text []byte, settings []string) (*Suite, []*Problem) {
	r := &reader{suite: &Suite{File: file}, settings: settings}
	r.read(text)
	return r.suite, r.problems
}

// reader gathers the suite and its problems.
type reader struct {
	suite    *Suite
	settings []string
	problems []*Problem
}

func (r *reader) problem(at Place, hint, format string, args ...any) {
	r.problems = append(r.problems, &Problem{r.suite.File, at, bench.Hintf(hint, format, args...)})
}

const writeOne = "lockbench suite init writes one to begin with"

func (r *reader) read(text []byte) {
	start := Place{1, 1}
	if len(text) > mostBytes {
		r.problem(start, writeOne, "this is no suite: it is larger than 64 kB")
		return
	}
	doc, err := parse(bytes.TrimPrefix(text, []byte("\ufeff")))
	if err != nil {
		var e yaml.Error
		if errors.As(err, &e) && e.GetToken() != nil && e.GetToken().Position != nil {
			at := e.GetToken().Position
			r.problem(Place{max(1, at.Line), max(1, at.Column)}, "mend this first: what follows cannot be read", "this is no YAML: %s", e.GetMessage())
			return
		}
		r.problem(start, writeOne, "this is no YAML: %v", err)
		return
	}
	var bodies []ast.Node
	for _, d := range doc.Docs {
		if d != nil && present(d.Body) {
			bodies = append(bodies, d.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		r.problem(start, writeOne, "the suite is empty")
		return
	case len(bodies) > 1:
		r.problem(place(bodies[1], start), "keep one suite a file", "a second document begins here")
	}
	r.top(bodies[0])
}

// parse is the library's, which has been seen to panic on what is no YAML.
func parse(text []byte) (f *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, fmt.Errorf("the parser gave up (%v)", p)
		}
	}()
	return parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
}

// top reads the file's outermost keys.
func (r *reader) top(body ast.Node) {
	var defaults Race
	var races ast.Node
	at := place(body, Place{1, 1})
	for _, e := range r.mapping(body, at, "a suite") {
		switch e.key.Text {
		case keyDefaults:
			defaults = r.race(e.value, e.key.Place, keyDefaults)
		case keyRaces:
			races, at = e.value, e.key.Place
		default:
			r.unknown(e.key, []string{keyDefaults, keyRaces}, "a suite")
		}
	}
	list, isList := races.(*ast.SequenceNode)
	if !isList || len(list.Values) == 0 {
		r.problem(place(races, at), "begin each with - name: …", "a suite needs a list of races")
		return
	}
	names := map[string]int{}
	for _, n := range list.Values {
		race := r.race(n, place(n, at), "a race")
		if name := race.Name; name.Text != "" {
			if first, twice := names[name.Text]; twice {
				r.problem(name.Place, "name each race once", "race %q is named twice, first in line %d", name.Text, first)
			} else {
				names[name.Text] = name.Line
			}
		}
		r.suite.Races = append(r.suite.Races, race.over(defaults))
	}
}

// over fills in what the race does not say itself.
func (r Race) over(defaults Race) Race {
	for _, d := range defaults.Settings {
		if !slices.ContainsFunc(r.Settings, func(s Setting) bool { return s.Name.Text == d.Name.Text }) {
			r.Settings = append(r.Settings, d)
		}
	}
	if r.FailOn == nil {
		r.FailOn = defaults.FailOn
	}
	if r.Expect == nil {
		r.Expect = defaults.Expect
	}
	return r
}

// race reads a race, or the defaults of all.
func (r *reader) race(n ast.Node, at Place, what string) Race {
	race := Race{Name: Text{Place: at}}
	named := what == keyDefaults
	for _, e := range r.mapping(n, at, what) {
		switch e.key.Text {
		case keyName:
			if what == keyDefaults {
				r.problem(e.key.Place, "leave it out", "each race has a name of its own")
				continue
			}
			named = true
			if t, ok := r.scalar(e.value, e.key); ok {
				race.Name = t
				if !raceName.MatchString(t.Text) {
					r.problem(t.Place, "letters, digits, dots, dashes and underscores, as last-seat", "%q cannot name a race", t.Text)
				}
			}
		case keyFailOn:
			race.FailOn, _ = r.values(e)
		case keyExpect:
			race.Expect = r.expect(e)
		default:
			if !slices.Contains(r.settings, e.key.Text) {
				r.unknown(e.key, append([]string{keyName, keyFailOn, keyExpect}, r.settings...), what)
				continue
			}
			if vs, isList := r.values(e); len(vs) > 0 {
				race.Settings = append(race.Settings, Setting{e.key, vs, isList})
			}
		}
	}
	if !named && present(n) {
		r.problem(at, "begin it with - name: …", "this race has no name")
	}
	if what == keyDefaults {
		race.mark()
	}
	return race
}

// mark notes of everything that it is a default.
func (r *Race) mark() {
	for i := range r.FailOn {
		r.FailOn[i].Default = true
	}
	for i := range r.Expect {
		r.Expect[i].Strategy.Default = true
	}
}

// expect reads one verdict for all strategies, or one for each.
func (r *reader) expect(e entry) []Expectation {
	all := []Expectation{} // never nil: an empty one says that nothing is expected
	if _, simple := e.value.(ast.ScalarNode); simple || !present(e.value) {
		if v, ok := r.verdict(e.value, e.key); ok {
			all = append(all, Expectation{Text{Text: bench.All, Place: e.key.Place}, v})
		}
		return all
	}
	for _, s := range r.mapping(e.value, e.key.Place, keyExpect) {
		if v, ok := r.verdict(s.value, s.key); ok {
			all = append(all, Expectation{s.key, v})
		}
	}
	return all
}

func (r *reader) verdict(n ast.Node, key Text) (v bench.Verdict, ok bool) {
	t, ok := r.scalar(n, key)
	if !ok {
		return v, false
	}
	if err := v.UnmarshalText([]byte(t.Text)); err != nil {
		words := []string{bench.Sound.String(), bench.Violated.String(), bench.Undetermined.String()}
		hint := "verdicts are " + strings.Join(words, ", ")
		if n := bench.Nearest(t.Text, words); n != "" {
			hint = "did you mean " + n + "? (" + hint + ")"
		}
		r.problem(t.Place, hint, "%q is not a verdict", t.Text)
		return v, false
	}
	return v, true
}

// entry is a key with its value.
type entry struct {
	key   Text
	value ast.Node
}

// mapping returns the entries of a mapping, each key once.
func (r *reader) mapping(n ast.Node, at Place, what string) []entry {
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{m}
	default:
		if !r.shared(n, at) {
			r.problem(place(n, at), "write a key a line, as users: 100", "%s is made of keys and values", what)
		}
		return nil
	}
	var all []entry
	for _, p := range pairs {
		key, ok := r.scalar(p.Key, Text{Text: what, Place: at})
		if !ok {
			continue
		}
		if i := slices.IndexFunc(all, func(e entry) bool { return e.key.Text == key.Text }); i >= 0 {
			r.problem(key.Place, "give it once", "%q stands twice, first in line %d", key.Text, all[i].key.Line)
			continue
		}
		all = append(all, entry{key, p.Value})
	}
	return all
}

// values reads one value, or a list of them.
func (r *reader) values(e entry) (all []Text, isList bool) {
	seq, isList := e.value.(*ast.SequenceNode)
	if !isList {
		if t, ok := r.scalar(e.value, e.key); ok {
			all = append(all, t)
		}
		return all, false
	}
	all = []Text{}
	for _, n := range seq.Values {
		if t, ok := r.scalar(n, e.key); ok {
			all = append(all, t)
		}
	}
	return all, true
}

// scalar reads a single value as it is written; of is what it belongs to.
func (r *reader) scalar(n ast.Node, of Text) (Text, bool) {
	at := place(n, of.Place)
	switch v := n.(type) {
	case *ast.StringNode:
		return Text{Text: v.Value, Place: at}, true
	case *ast.LiteralNode:
		if v.Value != nil {
			return Text{Text: strings.TrimSpace(v.Value.Value), Place: at}, true
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return Text{Text: n.GetToken().Value, Place: at}, true
	}
	switch {
	case r.shared(n, of.Place):
	case !present(n):
		r.problem(at, "give it one, or leave it out", "%s has no value", of.Text)
	default:
		r.problem(at, "write it on one line", "%s takes a plain value here", of.Text)
	}
	return Text{}, false
}

// shared refuses what stands for something written elsewhere: a reader of a suite finds its values where they are used.
func (r *reader) shared(n ast.Node, at Place) bool {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		r.problem(place(n, at), "put what races share under defaults", "anchors, aliases and merge keys are not read")
	case *ast.TagNode:
		r.problem(place(n, at), "write the value alone", "tags are not read")
	default:
		return false
	}
	return true
}

func (r *reader) unknown(key Text, known []string, what string) {
	hint := what + " has " + strings.Join(known, ", ")
	if n := bench.Nearest(key.Text, known); n != "" {
		hint = "did you mean " + n + "?"
	}
	r.problem(key.Place, hint, "unknown key %q", key.Text)
}

// present reports whether there is anything: what stands behind a colon may be missing.
func present(n ast.Node) bool {
	_, null := n.(*ast.NullNode)
	return n != nil && !null
}

// place is where a node begins. A mapping's own token is the colon of its first key.
func place(n ast.Node, otherwise Place) Place {
	switch m := n.(type) {
	case nil:
		return otherwise
	case *ast.MappingNode:
		if len(m.Values) > 0 && !m.IsFlowStyle {
			return place(m.Values[0], otherwise)
		}
	case *ast.MappingValueNode:
		if m.Key != nil {
			return place(m.Key, otherwise)
		}
	}
	if t := n.GetToken(); t != nil && t.Position != nil && t.Position.Line > 0 && t.Position.Column > 0 {
		return Place{t.Position.Line, t.Position.Column}
	}
	return otherwise
}
