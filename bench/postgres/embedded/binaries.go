package embedded

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// Binary is an installation of PostgreSQL's programs.
type Binary struct {
	Dir     string `json:"dir"`
	Version string `json:"version"` // as "15.18"
	Major   int    `json:"major"`
	From    string `json:"from"` // how it was found
}

// usualPlaces are where packages put PostgreSQL: Debian, Red Hat, source, Homebrew on both kinds of Mac, Postgres.app.
func usualPlaces() []string {
	return []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/usr/bin", "/usr/local/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin",
	}
}

// Binaries lists every installation found on this machine, newest first.
func Binaries(ctx context.Context) []Binary {
	var found []Binary
	add := func(dir, from string) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if slices.ContainsFunc(found, func(b Binary) bool { return b.Dir == dir }) {
			return
		}
		if b, err := inspect(dir, from); err == nil {
			found = append(found, b)
		}
	}
	for _, name := range []string{"postgres", "initdb"} {
		if p, err := exec.LookPath(name); err == nil {
			if real, err := filepath.EvalSymlinks(p); err == nil {
				p = real
			}
			add(filepath.Dir(p), "PATH")
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		add(strings.TrimSpace(string(out)), "pg_config")
	}
	for _, pattern := range usualPlaces() {
		dirs, _ := filepath.Glob(pattern)
		for _, d := range dirs {
			add(d, "the usual folders")
		}
	}
	slices.SortStableFunc(found, func(a, b Binary) int { return compareVersions(b.Version, a.Version) })
	return found
}

// inspect looks at a folder: it must hold both programs, and they must run.
func inspect(dir, from string) (Binary, error) {
	for _, name := range []string{"postgres", "initdb"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			return Binary{}, fmt.Errorf("%s holds no program %s", dir, name)
		}
	}
	v, err := binaryVersion(dir)
	if err != nil {
		return Binary{}, err
	}
	major, _ := strconv.Atoi(strings.SplitN(v, ".", 2)[0])
	return Binary{Dir: dir, Version: v, Major: major, From: from}, nil
}

var versionNumber = regexp.MustCompile(`\b\d+(\.\d+)*(devel|beta\d+|rc\d+)?\b`)

func binaryVersion(dir string) (string, error) {
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return "", err
	}
	v := versionNumber.FindString(string(out))
	if v == "" {
		return "", fmt.Errorf("postgres --version says %q", out)
	}
	return v, nil
}

// compareVersions orders versions by their numbers.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var x, y int
		if i < len(as) {
			x, _ = strconv.Atoi(as[i])
		}
		if i < len(bs) {
			y, _ = strconv.Atoi(bs[i])
		}
		if c := cmp.Compare(x, y); c != 0 {
			return c
		}
	}
	return 0
}

// resolve finds the programs to run: those named, else the newest installed, else fetched ones.
func resolve(ctx context.Context, cfg *Config) (Binary, error) {
	want, err := majorOf(cfg.Version)
	if err != nil {
		return Binary{}, err
	}
	if cfg.BinDir != "" {
		dir, err := filepath.Abs(cfg.BinDir)
		if err != nil {
			return Binary{}, err
		}
		b, err := inspect(dir, "--pg-bin")
		if err != nil {
			return b, bench.Hintf("name the folder that holds postgres and initdb, as pg_config --bindir prints it", "--pg-bin %q will not do: %v", cfg.BinDir, err)
		}
		if want != 0 && b.Major != want {
			return b, bench.Hintf("leave one of the two out", "--pg-bin %q is PostgreSQL %s, not %s", cfg.BinDir, b.Version, cfg.Version)
		}
		return b, nil
	}
	found := Binaries(ctx)
	for _, b := range found {
		if want == 0 || b.Major == want {
			return b, nil
		}
	}
	return fetch(ctx, cfg, want, found)
}

// majorOf reads --pg-version.
func majorOf(version string) (int, error) {
	if version == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(version)
	if err != nil || n < 9 {
		return 0, bench.Hintf("give the major version alone, as --pg-version 16", "%q is not a version of PostgreSQL", version)
	}
	return n, nil
}
