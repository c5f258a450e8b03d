package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/lockbench/lockbench/bench"
)

// free are the parameters that may differ: which cells there are is said one by one, how many trials is part of the test, the seed is a
// throw of dice, and the rest does not touch the measured window.
var free = []string{"strategy", "trials", "seed", "drain", "services"}

// Differences lists what makes two reports incomparable, each as "users: 100 and 200".
func Differences(older, newer *bench.Report) ([]string, error) {
	var all []string
	differ := func(name string, a, b any) {
		if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
			all = append(all, fmt.Sprintf("%s: %s and %s", name, x, y))
		}
	}
	a, b := older.Environment, newer.Environment
	differ("server major version", a.Server.Major, b.Server.Major)
	differ("durable", a.Server.Durable, b.Server.Durable)
	differ("pooler", a.Server.Pooler, b.Server.Pooler)
	differ("exec_mode", a.Server.ExecMode, b.Server.ExecMode)
	differ("processors", a.Host.CPUs, b.Host.CPUs)

	plans := map[string]*bench.Settings{}
	for _, p := range older.Parts() {
		plans[p.Name] = &p.Plan
	}
	for _, p := range newer.Parts() {
		old := plans[p.Name]
		if old == nil {
			continue // its cells are said to be on one side only
		}
		x, err := fields(old)
		if err != nil {
			return nil, err
		}
		y, err := fields(&p.Plan)
		if err != nil {
			return nil, err
		}
		names := maps.Clone(x)
		maps.Copy(names, y)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if slices.Contains(free, name) {
				continue
			}
			said := name
			if p.Name != "" {
				said = p.Name + ": " + name
			}
			differ(said, value(x, name), value(y, name))
		}
	}
	return all, nil
}

// fields are parameters by their names in the JSON form.
func fields(s *bench.Settings) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	return all, json.Unmarshal(data, &all)
}

func value(all map[string]json.RawMessage, name string) string {
	if v, ok := all[name]; ok {
		return string(v)
	}
	return "none"
}
