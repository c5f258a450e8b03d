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
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Binary is an installation of PostgreSQL's programs.
type Binary struct {
	Dir     string `json:"dir"`
	Version string `json:"version"` // as "15.18"
	Major   int    `json:"major"`
	From    string `json:"from"` // how it was found
}

// usualPlaces are where packages put PostgreSQL: Debian, Red Hat, SUSE, Alpine, source, Homebrew on both kinds of Mac, Postgres.app.
func usualPlaces() []string {
	return []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/lib/postgresql*/bin", "/usr/libexec/postgresql*",
		"/usr/local/pgsql/bin", "/usr/bin", "/usr/local/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin", "/Applications/Postgres.app/Contents/Versions/*/bin",
	}
}

// Binaries lists every installation found on this machine, newest first.
func Binaries(ctx context.Context) []Binary { return binaries(ctx, usualPlaces()) }

func binaries(ctx context.Context, places []string) []Binary {
	var found []Binary
	seen := map[string]bool{}
	add := func(dir, from string) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		// The same program may be reached through links from several folders.
		program, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil || seen[program] {
			return
		}
		if b, err := inspect(ctx, dir, from); err == nil {
			seen[program] = true
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
	if out, err := output(ctx, "pg_config", "--bindir"); err == nil {
		add(out, "pg_config")
	}
	for _, pattern := range places {
		dirs, _ := filepath.Glob(pattern)
		for _, d := range dirs {
			add(d, "the usual folders")
		}
	}
	slices.SortStableFunc(found, func(a, b Binary) int { return compareVersions(b.Version, a.Version) })
	return found
}

// inspect looks at a folder: it must hold both programs, and they must run.
func inspect(ctx context.Context, dir, from string) (Binary, error) {
	for _, name := range []string{"postgres", "initdb"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			return Binary{}, fmt.Errorf("%s holds no program %s", dir, name)
		}
	}
	v, err := binaryVersion(ctx, dir)
	if err != nil {
		return Binary{}, err
	}
	return Binary{Dir: dir, Version: v, Major: versionKey(v)[0], From: from}, nil
}

var (
	versionNumber = regexp.MustCompile(`\b\d+(\.\d+)*(devel|alpha\d+|beta\d+|rc\d+)?\b`)
	versionPart   = regexp.MustCompile(`\d+|[a-z]+`)
)

func binaryVersion(ctx context.Context, dir string) (string, error) {
	out, err := output(ctx, filepath.Join(dir, "postgres"), "--version")
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", filepath.Join(dir, "postgres"), err)
	}
	v := versionNumber.FindString(out)
	if v == "" {
		return "", fmt.Errorf("%s --version says %q", filepath.Join(dir, "postgres"), out)
	}
	return v, nil
}

// answerWithin bounds how long a program may take to say what it is.
const answerWithin = 10 * time.Second

// output runs a program for what it prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	cmd := exec.CommandContext(limited, name, args...)
	cmd.WaitDelay = time.Second // for its children, which may hold the pipe
	out, err := cmd.Output()
	if limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %s", answerWithin)
	}
	return strings.TrimSpace(string(out)), err
}

// versionKey makes a version comparable number by number. What comes before a release is less than its first, "0".
func versionKey(v string) []int {
	var key []int
	for _, part := range versionPart.FindAllString(v, -1) {
		n, err := strconv.Atoi(part)
		if err != nil {
			n = slices.Index([]string{"devel", "alpha", "beta", "rc"}, part) - 4
		}
		key = append(key, n)
	}
	return key
}

// compareVersions orders versions by their numbers.
func compareVersions(a, b string) int {
	as, bs := versionKey(a), versionKey(b)
	for i := range max(len(as), len(bs)) {
		var x, y int
		if i < len(as) {
			x = as[i]
		}
		if i < len(bs) {
			y = bs[i]
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
		b, err := inspect(ctx, dir, "--pg-bin")
		if err != nil {
			return b, bench.Hintf("name the folder that holds postgres and initdb, as pg_config --bindir prints it", "--pg-bin %q will not do: %v", cfg.BinDir, err)
		}
		if want != 0 && b.Major != want {
			return b, bench.Hintf("leave one of the two out", "--pg-bin %q is PostgreSQL %s, not %s", cfg.BinDir, b.Version, cfg.Version)
		}
		return b, nil
	}
	places := cfg.places
	if places == nil {
		places = usualPlaces()
	}
	found := binaries(ctx, places)
	if err := ctx.Err(); err != nil {
		return Binary{}, err
	}
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
