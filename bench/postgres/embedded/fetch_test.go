package embedded

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// waysOut is the hint of a machine without PostgreSQL.
const waysOut = "install it (apt-get install postgresql, dnf install postgresql-server, brew install postgresql), " +
	"or name its programs with --pg-bin DIR, or a running server with --dsn URL"

// xzStored wraps data as xz does, without compressing it: Go can read the format, not write it.
func xzStored(data []byte) []byte {
	var out bytes.Buffer
	sum := func(b []byte) []byte { return binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(b)) }
	pad := func(b *bytes.Buffer) {
		for b.Len()%4 != 0 {
			b.WriteByte(0)
		}
	}
	flags := []byte{0, 1} // check: CRC32
	out.WriteString("\xfd7zXZ\x00")
	out.Write(flags)
	out.Write(sum(flags))
	header := []byte{2, 0, 0x21, 1, 0x16, 0, 0, 0} // 12 bytes with its sum: one filter, LZMA2 with a dictionary of 8 MB
	out.Write(header)
	out.Write(sum(header))
	unpadded := len(header) + 4 + 4
	var block bytes.Buffer
	for rest, control := data, byte(1); len(rest) > 0; control = 2 {
		chunk := rest[:min(len(rest), 1<<16)]
		rest = rest[len(chunk):]
		block.WriteByte(control)
		block.Write(binary.BigEndian.AppendUint16(nil, uint16(len(chunk)-1)))
		block.Write(chunk)
	}
	block.WriteByte(0)
	unpadded += block.Len()
	pad(&block)
	out.Write(block.Bytes())
	out.Write(sum(data))
	var index bytes.Buffer
	index.Write([]byte{0, 1})
	index.Write(binary.AppendUvarint(nil, uint64(unpadded)))
	index.Write(binary.AppendUvarint(nil, uint64(len(data))))
	pad(&index)
	out.Write(index.Bytes())
	out.Write(sum(index.Bytes()))
	footer := binary.LittleEndian.AppendUint32(nil, uint32(index.Len()/4)) // its size with the sum, in words, less one
	footer = append(footer, flags...)
	out.Write(sum(footer))
	out.Write(footer)
	out.WriteString("YZ")
	return out.Bytes()
}

// tarOf packs files; names that end in a slash are directories.
func tarOf(t *testing.T, files [][2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1])), Typeflag: tar.TypeReg}
		if strings.HasPrefix(f[1], "-> ") {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, f[1][3:], 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(f[1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func jarOf(t *testing.T, name string, txz []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.Create(name)
	if err == nil {
		_, err = f.Write(txz)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// archive is a PostgreSQL whose programs write to a file if they are run for more than their version.
func archive(t *testing.T, marker string) []byte {
	t.Helper()
	tell := "echo \"$0 $*\" >>" + marker + "\n"
	return tarOf(t, [][2]string{
		{"bin/initdb", "#!/bin/sh\n" + tell},
		{"bin/pg_ctl", "#!/bin/sh\n" + tell},
		{"bin/postgres", "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'postgres (PostgreSQL) 16.99'; exit 0; fi\n" + tell},
		{"lib/libpq.so.5", "-> libpq.so.5.16"},
		{"lib/libpq.so.5.16", strings.Repeat("library ", 20_000)}, // more than one chunk
	})
}

// repository serves one archive for every version asked for, and counts.
type repository struct {
	*httptest.Server
	jars atomic.Int32
}

func serve(t *testing.T, jar func(w http.ResponseWriter, r *http.Request), sum string) *repository {
	t.Helper()
	repo := &repository{}
	repo.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, "/io/zonky/test/postgres/embedded-postgres-binaries-"):
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".jar"):
			repo.jars.Add(1)
			jar(w, r)
		case strings.HasSuffix(r.URL.Path, ".jar.sha256") && sum != "":
			fmt.Fprint(w, sum)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(repo.Close)
	return repo
}

func bytesOf(b []byte) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) }
}

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// without is a configuration for a machine that has no PostgreSQL.
func without(cache, repo string) *Config {
	return &Config{Version: "16", CacheDir: cache, Repository: repo, places: []string{}}
}

func TestFetch(t *testing.T) {
	alone(t)
	dir := publicDir(t, os.Geteuid())
	cache, marker := filepath.Join(dir, "cache"), filepath.Join(dir, "marker")
	jar := jarOf(t, "postgres-linux-x86_64.txz", xzStored(archive(t, marker)))
	repo := serve(t, bytesOf(jar), sumOf(jar))
	var said []string
	cfg := without(cache, repo.URL)
	cfg.Log = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }

	old := syscall.Umask(0o077) // as some give root
	b, err := resolve(t.Context(), cfg)
	syscall.Umask(old)
	version := string(releases()[16])
	want := Binary{Dir: filepath.Join(cache, "postgresql-"+version, "bin"), Version: "16.99", Major: 16, From: "downloaded"}
	if err != nil || b != want {
		t.Fatalf("got %+v, %v (%s); want %+v", b, err, hint(err), want)
	}
	if line := "downloading PostgreSQL " + version + " (about 25 MB, kept in " + cache + ")"; len(said) != 1 || said[0] != line {
		t.Errorf("said %q, want %q", said, line)
	}
	wantEmpty(t, cache, "postgresql-"+version, "download.lock")
	for path, mode := range map[string]os.FileMode{".": 0o755, "bin": 0o755, "bin/initdb": 0o755, "lib/libpq.so.5": 0o755} {
		st, err := os.Stat(filepath.Join(cache, "postgresql-"+version, path))
		if err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, st, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(cache, "postgresql-"+version, "lib/libpq.so.5.16")); err != nil || len(b) != 160_000 {
		t.Errorf("library: %d bytes, %v", len(b), err)
	}
	if _, err := os.Stat(marker); err == nil {
		text, _ := os.ReadFile(marker)
		t.Errorf("the library ran %s", text)
	}

	repo.Close() // no network any more
	if b, err := resolve(t.Context(), without(cache, repo.URL)); err != nil || b != want {
		t.Errorf("from the cache: %+v, %v", b, err)
	}
	if n := repo.jars.Load(); n != 1 {
		t.Errorf("%d downloads", n)
	}
}

func TestFetchAsAnOrdinaryUser(t *testing.T) {
	needRoot(t)
	dir := publicDir(t, 65534)
	marker := filepath.Join(dir, "marker")
	jar := jarOf(t, "p.txz", xzStored(archive(t, marker)))
	repo := serve(t, bytesOf(jar), sumOf(jar))
	r := do(t, childOrder{Mode: "resolve", Version: "16", Repo: repo.URL, NoInstallations: true},
		&syscall.Credential{Uid: 65534, Gid: 65534, Groups: []uint32{}}, "PATH=/nowhere", "HOME=/nonexistent", "TMPDIR="+dir)
	if r.Error != "" || r.Binary.Version != "16.99" || !strings.HasPrefix(r.Binary.Dir, dir+"/lockbench-65534/postgresql-") {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(marker); err == nil {
		text, _ := os.ReadFile(marker)
		t.Errorf("the library ran %s", text)
	}
}

func TestConcurrentFirstDownloads(t *testing.T) {
	dir := publicDir(t, os.Geteuid())
	jar := jarOf(t, "p.txz", xzStored(archive(t, filepath.Join(dir, "marker"))))
	both := make(chan struct{}, 2)
	repo := serve(t, func(w http.ResponseWriter, r *http.Request) {
		<-both // the first download lasts until the second process is there
		bytesOf(jar)(w, r)
	}, sumOf(jar))
	o := childOrder{Mode: "resolve", Version: "16", CacheDir: filepath.Join(dir, "cache"), Repo: repo.URL, NoInstallations: true}
	a := startChild(t, o, nil, "PATH=/nowhere", "TMPDIR="+dir)
	eventually(t, "a download", func() bool { return repo.jars.Load() == 1 })
	b := startChild(t, o, nil, "PATH=/nowhere", "TMPDIR="+dir)
	eventually(t, "another that waits", func() bool {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.cmd.Process.Pid))
		for _, fd := range fds {
			if l, _ := os.Readlink(fd); strings.HasSuffix(l, "download.lock") {
				return true
			}
		}
		_, err := os.Stat("/proc/self/fd")
		return err != nil
	})
	both <- struct{}{}
	both <- struct{}{}
	for _, c := range []*child{a, b} {
		if r := c.hear(); r.Error != "" || r.Binary.Version != "16.99" {
			t.Errorf("%+v", r)
		}
	}
	if n := repo.jars.Load(); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
}

func TestFailedDownloads(t *testing.T) {
	alone(t)
	good := jarOf(t, "p.txz", xzStored(archive(t, "/dev/null")))
	whole := archive(t, "/dev/null")
	broken := jarOf(t, "p.txz", xzStored(whole[:len(whole)-100_000])) // programs first, then it breaks off
	garbage := []byte("<html>log in to the hotel's network</html>")
	useless := jarOf(t, "p.txz", xzStored(tarOf(t, [][2]string{
		{"bin/postgres", "#!/bin/sh\nexit 1\n"}, {"bin/initdb", "#!/bin/sh\n"}, {"bin/pg_ctl", "#!/bin/sh\n"},
	})))
	version := string(releases()[16])
	cases := map[string]struct {
		jar  func(http.ResponseWriter, *http.Request)
		sum  string
		want string // after the common beginning
	}{
		"no such version":  {http.NotFound, "", "no version found matching " + version},
		"server error":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "", "no version found matching " + version},
		"wrong sum":        {bytesOf(good), strings.Repeat("0", 64), "downloaded checksums do not match"},
		"garbage":          {bytesOf(garbage), "", "error fetching postgres: zip: not a valid zip file"},
		"nothing":          {bytesOf(nil), "", "error fetching postgres: zip: not a valid zip file"},
		"archive in jar":   {bytesOf(jarOf(t, "p.txz", garbage)), "", "unable to extract postgres archive"},
		"no archive":       {bytesOf(jarOf(t, "readme", garbage)), "", "error fetching postgres: cannot find binary in archive retrieved from URL"},
		"breaks off":       {bytesOf(broken), "", "unable to extract postgres archive: unexpected EOF"},
		"jar is cut short": {bytesOf(good[:len(good)/2]), "", "error fetching postgres: zip: not a valid zip file"},
		"line breaks": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(good)))
			_, _ = w.Write(good[:len(good)/2])
		}, sumOf(good), "error fetching postgres: unexpected EOF"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			repo := serve(t, c.jar, c.sum)
			_, err := resolve(t.Context(), without(cache, repo.URL))
			common := "no PostgreSQL 16 on this machine, and it cannot be fetched: downloading PostgreSQL " + version + ": "
			if err == nil {
				t.Fatal("no error")
			}
			if got, want := err.Error(), common+strings.ReplaceAll(c.want, "URL", repo.URL); !strings.HasPrefix(got, want) || hint(err) != waysOut {
				t.Errorf("error %q\n want %q\n hint %q", got, want, hint(err))
			}
			wantEmpty(t, cache, "download.lock")
			// Nothing of it stands in the way of the next attempt.
			again := serve(t, bytesOf(good), sumOf(good))
			if b, err := resolve(t.Context(), without(cache, again.URL)); err != nil || b.Version != "16.99" {
				t.Errorf("the next attempt: %+v, %v", b, err)
			}
		})
	}
	t.Run("useless", func(t *testing.T) {
		cache := t.TempDir()
		repo := serve(t, bytesOf(useless), sumOf(useless))
		_, err := resolve(t.Context(), without(cache, repo.URL))
		bin := filepath.Join(cache, "postgresql-"+version, "bin")
		wantError(t, err, "no PostgreSQL 16 on this machine, and it cannot be fetched: the download is of no use: "+bin+"/postgres --version: exit status 1", waysOut)
		wantEmpty(t, cache, "download.lock")
	})
}

// TestNoWay is a machine with neither programs nor network.
func TestNoWay(t *testing.T) {
	alone(t)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	version := string(releases()[0])
	cfg := without(t.TempDir(), dead.URL)
	cfg.Version = ""
	_, err := resolve(t.Context(), cfg)
	wantError(t, err, "no PostgreSQL on this machine, and it cannot be fetched: downloading PostgreSQL "+version+": unable to connect to "+dead.URL, waysOut)

	cfg.Version = "42"
	_, err = resolve(t.Context(), cfg)
	wantError(t, err, "no PostgreSQL 42 on this machine, and it cannot be fetched: PostgreSQL 42 is not among those that can be downloaded", waysOut)

	cfg.places = []string{fakeInstallation(t, "postgres (PostgreSQL) 15.3", "", ""), fakeInstallation(t, "postgres (PostgreSQL) 14.2", "", "")}
	_, err = resolve(t.Context(), cfg)
	wantError(t, err, "no PostgreSQL 42 on this machine (there is 15.3, 14.2), and it cannot be fetched: PostgreSQL 42 is not among those that can be downloaded", waysOut)

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = resolve(t.Context(), without(file, dead.URL))
	wantError(t, err, "no PostgreSQL 16 on this machine, and it cannot be fetched: open "+file+"/download.lock: not a directory", waysOut)
}

func TestCancelledDownload(t *testing.T) {
	alone(t)
	cache := t.TempDir()
	asked, release := make(chan struct{}), make(chan struct{})
	good := jarOf(t, "p.txz", xzStored(archive(t, "/dev/null")))
	repo := serve(t, func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-release
		bytesOf(good)(w, r)
	}, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-asked; cancel() }()
	_, err := resolve(ctx, without(cache, repo.URL))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	close(release)
	eventually(t, "the library's files gone", func() bool {
		left, _ := filepath.Glob(filepath.Join(cache, downloadPrefix+"*"))
		return len(left) == 0
	})
	wantEmpty(t, cache, "download.lock")
	// What a killed process left goes with the next download, when it is old enough to be nobody's.
	old := time.Now().Add(-2 * makingAge)
	for _, name := range []string{"old", "young"} {
		path := filepath.Join(cache, downloadPrefix+name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "old" {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	again := serve(t, bytesOf(good), sumOf(good))
	if _, err := resolve(t.Context(), without(cache, again.URL)); err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, cache, "download.lock", downloadPrefix+"young", "postgresql-"+string(releases()[16]))
}
