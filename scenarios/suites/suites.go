// Package suites holds the suites that lockbench brings along.
package suites

import (
	"embed"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// Names lists the suites in alphabetical order.
func Names() []string {
	all, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the compiler has put it there
	}
	var names []string
	for _, f := range all {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// Read returns a suite by its name and the name of its file; ok reports whether there is one.
func Read(name string) (file string, text []byte, ok bool) {
	file = name + ".yaml"
	text, err := files.ReadFile(file)
	return file, text, err == nil
}
