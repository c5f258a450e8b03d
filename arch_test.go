package lockbench_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The rules of ARCHITECTURE.md that a compiler does not keep. They hold for all files of the module, whatever their build tags.

const module = "github.com/lockbench/lockbench"

// source is one Go file of the module.
type source struct {
	*ast.File
	path string // from the module's root, with slashes
	fset *token.FileSet
}

// isTest reports whether the file is test code, by its name or because it is made of helpers for tests.
func (s *source) isTest() bool {
	return strings.HasSuffix(s.path, "_test.go") || slices.Contains(s.imports(), "testing")
}

// dir is the file's package as a path from the module's root.
func (s *source) dir() string { return path.Dir(s.path) }

// imports returns the paths that the file imports.
func (s *source) imports() []string {
	var all []string
	for _, i := range s.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		all = append(all, p)
	}
	return all
}

// at says where a node is, for a failure.
func (s *source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// sources parses every Go file of the module.
func sources(t *testing.T) []*source {
	t.Helper()
	var all []*source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(p) != ".go":
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, &source{File: f, path: filepath.ToSlash(p), fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// in reports whether a package or file lies in a folder or below it.
func in(p string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return p == f || strings.HasPrefix(p, f+"/") })
}

// standard reports whether an import is of the standard library.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}

// arrow says who may import what. The first that fits an import decides.
type arrow struct {
	what string   // the imported package, or a folder above it
	who  []string // the folders that may import it; empty: nobody
	why  string
}

var arrows = []arrow{
	{module + "/cmd", nil, "cmd is the top"},
	{module + "/claims", []string{"cmd"}, "claims are what the command runs"},
	{"github.com/jackc/pgx", []string{"strategies", "bench/postgres", "cmd"}, "the engine and the scenarios know no driver"},
	{"github.com/olekukonko/tablewriter", []string{"bench/report"}, "tables are the renderers' business"},
	{"github.com/spf13/cobra", []string{"cmd"}, "only the command line knows flags"},
	{"github.com/goccy/go-yaml", []string{"bench/suite"}, "only suites are written in YAML"},
	{"golang.org/x/perf/benchmath", []string{"bench/compare"}, "samples are judged in one place"},
	{"gonum.org/v1/gonum", []string{"bench/sweep"}, "curves are fitted in one place"},
	{"github.com/go-zookeeper/zk", []string{"strategies"}, "a lock service is a strategy's business"},
	{"github.com/redis/go-redis", []string{"strategies"}, "a lock service is a strategy's business"},
	{"github.com/HdrHistogram/hdrhistogram-go", []string{"bench"}, "figures are made in the engine"},
}

// closed lists the packages that may import nothing but the standard library and these, tests of the same package included.
var closed = map[string][]string{
	"bench":     {"github.com/HdrHistogram/hdrhistogram-go"},
	"scenarios": {module + "/bench"},
	"claims":    {module + "/bench", module + "/bench/trace"},
}

func TestArrows(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sources(t) {
		for _, p := range s.imports() {
			for _, a := range arrows {
				if !in(p, a.what) {
					continue
				}
				used[a.what] = true
				if !in(s.dir(), a.who...) && (a.who != nil || !in(s.dir(), "cmd")) {
					t.Errorf("%s imports %s: %s", s.path, p, a.why)
				}
			}
			if may, ok := closed[s.dir()]; ok && !s.isTest() && !standard(p) && !slices.Contains(may, p) {
				t.Errorf("%s imports %s: beside the standard library, %s may import only %s", s.path, p, s.dir(), strings.Join(may, ", "))
			}
			if in(s.dir(), "strategies") && !s.isTest() && in(p, module) && p != module+"/bench" {
				t.Errorf("%s imports %s: strategies know the engine only", s.path, p)
			}
		}
	}
	for _, a := range arrows[1:] {
		if !used[a.what] {
			t.Errorf("nothing imports %s any more: drop its arrow", a.what)
		}
	}
}

// call returns the package and the function that a node calls; nothing for calls of methods and of the file's own package.
func (s *source) call(n ast.Node) (pkg, name string) {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	for i, p := range s.imports() {
		known := path.Base(p)
		if as := s.Imports[i].Name; as != nil {
			known = as.Name
		}
		if known == id.Name {
			return p, sel.Sel.Name
		}
	}
	return "", ""
}

// isMain reports whether a declaration is the main function of a command.
func (s *source) isMain(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv == nil && s.Name.Name == "main" && f.Name.Name == "main"
}

// belowMain calls f for every node outside tests and main functions. cmd/vspgbench is left out: it is a tool that measures lockbench
// from outside, ends with an exit code of its own, and starts itself again as a child that no context reaches.
func belowMain(t *testing.T, f func(s *source, n ast.Node)) {
	t.Helper()
	for _, s := range sources(t) {
		if s.isTest() || in(s.dir(), "cmd/vspgbench") {
			continue
		}
		for _, d := range s.Decls {
			if s.isMain(d) {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				f(s, n)
				return true
			})
		}
	}
}

// TestExitIsLeftToMain: a function that exits skips what others deferred, as stopping a server or saving a report.
func TestExitIsLeftToMain(t *testing.T) {
	belowMain(t, func(s *source, n ast.Node) {
		switch pkg, name := s.call(n); {
		case pkg == "os" && name == "Exit", pkg == "syscall" && name == "Exit", pkg == "log" && strings.HasPrefix(name, "Fatal"):
			t.Errorf("%s: %s.%s below main", s.at(n), pkg, name)
		}
	})
}

// TestContextsComeFromMain: a context made elsewhere cannot be ended by the user's Ctrl-C.
func TestContextsComeFromMain(t *testing.T) {
	belowMain(t, func(s *source, n ast.Node) {
		if pkg, name := s.call(n); pkg == "context" && (name == "Background" || name == "TODO") {
			t.Errorf("%s: context.%s below main", s.at(n), name)
		}
	})
}

// TestNobodyPrintsBelowCmd: results go where the command line says, and a library that prints spoils them.
func TestNobodyPrintsBelowCmd(t *testing.T) {
	belowMain(t, func(s *source, n ast.Node) {
		if in(s.dir(), "cmd") {
			return
		}
		pkg, name := s.call(n)
		if pkg == "fmt" && strings.HasPrefix(name, "Print") || pkg == "log" && name != "New" {
			t.Errorf("%s: %s.%s below cmd", s.at(n), pkg, name)
		}
		if c, ok := n.(*ast.CallExpr); ok {
			if id, ok := c.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
				t.Errorf("%s: %s below cmd", s.at(n), id.Name)
			}
		}
	})
}
