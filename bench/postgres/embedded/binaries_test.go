package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const noBinaries = "name the folder that holds postgres and initdb, as pg_config --bindir prints it"

// alone hides the machine's own installations.
func alone(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
}

func TestBinDir(t *testing.T) {
	alone(t)
	good := fakeInstallation(t, "postgres (PostgreSQL) 16.4 (Debian 16.4-1.pgdg120+1)", "exit 1", "exit 1")
	b, err := resolve(t.Context(), &Config{BinDir: good, Version: "16"})
	if want := (Binary{Dir: good, Version: "16.4", Major: 16, From: "--pg-bin"}); err != nil || b != want {
		t.Errorf("got %+v, %v; want %+v", b, err, want)
	}

	_, err = resolve(t.Context(), &Config{BinDir: good, Version: "15"})
	wantError(t, err, `--pg-bin "`+good+`" is PostgreSQL 16.4, not 15`, "leave one of the two out")

	empty := t.TempDir()
	_, err = resolve(t.Context(), &Config{BinDir: empty})
	wantError(t, err, `--pg-bin "`+empty+`" will not do: `+empty+` holds no program postgres`, noBinaries)

	half := t.TempDir()
	writeProgram(t, half, "postgres", "echo postgres 16.4")
	_, err = resolve(t.Context(), &Config{BinDir: half})
	wantError(t, err, `--pg-bin "`+half+`" will not do: `+half+` holds no program initdb`, noBinaries)

	if err := os.WriteFile(filepath.Join(half, "initdb"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = resolve(t.Context(), &Config{BinDir: half})
	wantError(t, err, `--pg-bin "`+half+`" will not do: `+half+` holds no program initdb`, noBinaries)

	mute := fakeInstallation(t, "hello", "", "")
	_, err = resolve(t.Context(), &Config{BinDir: mute})
	wantError(t, err, `--pg-bin "`+mute+`" will not do: `+mute+`/postgres --version says "hello"`, noBinaries)

	broken := t.TempDir()
	writeProgram(t, broken, "postgres", "exit 3")
	writeProgram(t, broken, "initdb", "")
	_, err = resolve(t.Context(), &Config{BinDir: broken})
	wantError(t, err, `--pg-bin "`+broken+`" will not do: `+broken+`/postgres --version: exit status 3`, noBinaries)
}

func TestNewestWinsUnlessAVersionIsAsked(t *testing.T) {
	alone(t)
	older := fakeInstallation(t, "postgres (PostgreSQL) 9.6.24", "", "")
	nine := fakeInstallation(t, "postgres (PostgreSQL) 15.9", "", "")
	ten := fakeInstallation(t, "postgres (PostgreSQL) 15.10", "", "")
	beta := fakeInstallation(t, "postgres (PostgreSQL) 17beta2", "", "")
	places := []string{older, nine, ten, beta, "/nonexistent/*/bin"}
	for version, want := range map[string]string{"": beta, "15": ten, "9": older, "17": beta} {
		b, err := resolve(t.Context(), &Config{Version: version, places: places})
		if err != nil || b.Dir != want || b.From != "the usual folders" {
			t.Errorf("version %q: got %+v, %v; want %s", version, b, err, want)
		}
	}
	if list := binaries(t.Context(), places); len(list) != 4 || list[3].Dir != older || list[0].Major != 17 {
		t.Errorf("list %+v", list)
	}
}

// TestLinksAreNoSecondInstallation: packages put links to one installation into several folders.
func TestLinksAreNoSecondInstallation(t *testing.T) {
	alone(t)
	real, links := fakeInstallation(t, "postgres (PostgreSQL) 15.9", "", ""), t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.Symlink(filepath.Join(real, name), filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	if list := binaries(t.Context(), []string{real, links}); len(list) != 1 || list[0].Dir != real {
		t.Errorf("list %+v", list)
	}
}

func TestPATHAndPgConfig(t *testing.T) {
	path, config := t.TempDir(), fakeInstallation(t, "postgres (PostgreSQL) 14.2", "", "")
	onPath := fakeInstallation(t, "postgres (PostgreSQL) 13.1", "", "")
	for _, name := range []string{"postgres", "initdb"} { // links, as a package makes them
		if err := os.Symlink(filepath.Join(onPath, name), filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	writeProgram(t, path, "pg_config", "echo "+config)
	t.Setenv("PATH", path)
	got := binaries(t.Context(), []string{onPath, config}) // each counts once
	want := []Binary{{Dir: config, Version: "14.2", Major: 14, From: "pg_config"}, {Dir: onPath, Version: "13.1", Major: 13, From: "PATH"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestMalformedVersions(t *testing.T) {
	for _, v := range []string{"fifteen", "15.3", "8", "-16", " 16", "99999999999999999999"} {
		_, err := resolve(t.Context(), &Config{Version: v})
		wantError(t, err, `"`+v+`" is not a version of PostgreSQL`, "give the major version alone, as --pg-version 16")
	}
}

func TestCompareVersions(t *testing.T) {
	rising := []string{"9.6.24", "10.1", "15.9", "15.10", "16devel", "16beta1", "16beta2", "16rc1", "16.0", "16.1", "17alpha1", "17"}
	for i, a := range rising {
		for j, b := range rising {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := compareVersions(a, b); got != want {
				t.Errorf("%s against %s: %d, want %d", a, b, got, want)
			}
		}
	}
	if compareVersions("16", "16.0") != 0 {
		t.Error("16 is not 16.0")
	}
}

func TestAProgramThatNeverAnswersIsLeft(t *testing.T) {
	dir := fakeInstallation(t, "", "", "")
	writeProgram(t, dir, "postgres", "while :; do :; done")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := resolve(ctx, &Config{BinDir: dir})
	if err == nil {
		t.Fatal("no error")
	}
	alone(t)
	if _, err = resolve(ctx, &Config{places: []string{dir}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a search that was broken off says %v", err)
	}
}
