package main

import (
	"fmt"
	"strings"
)

// lockServices adds the flags that say where the lock services are, and returns where their values go, by strategy.
func (s flagSet) lockServices() map[string]*string {
	all := map[string]*string{}
	for _, st := range allStrategies() {
		if st.External {
			all[st.Name] = new(string)
			env := "LOCKBENCH_" + strings.ToUpper(st.Name)
			s.text(all[st.Name], st.Name, "host:port", s.a.env(env), fmt.Sprintf("where it is (or %s; default %s)", env, st.Address))
		}
	}
	return all
}

// givenServices are the addresses that are known, from flags or the environment.
func givenServices(all map[string]*string) map[string]string {
	var known map[string]string
	for name, address := range all {
		if *address != "" {
			if known == nil {
				known = map[string]string{}
			}
			known[name] = *address
		}
	}
	return known
}
