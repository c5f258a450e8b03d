package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/postgres"
)

// childWord makes the program run lockbench's side once. It is a process of its own for each run, as pgbench's is: no heap and no
// connection is carried from one run to the next.
const childWord = "lockbench-side"

// job is what a child is told.
type job struct {
	DSN     string
	Cell    cell
	Window  bench.Duration
	Profile string
}

// sample is what one run of either side gave.
type sample struct {
	Attempts int64
	Seconds  float64
	Cost     float64 // seconds of the client's processor time for each attempt
}

func (s sample) rate() float64 { return float64(s.Attempts) / s.Seconds }

// ownSide runs lockbench's side in a child process.
func ownSide(ctx context.Context, j job) (s sample, err error) {
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return s, err
	}
	cmd := exec.CommandContext(ctx, self, childWord, string(arg))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return s, fmt.Errorf("lockbench's side: %w", err)
	}
	return s, json.Unmarshal(out, &s)
}

func child(arg string, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(arg), &j); err != nil {
		return err
	}
	race, err := j.Cell.race(time.Duration(j.Window))
	if err != nil {
		return err
	}
	ctx := context.Background()
	store, err := postgres.Connect(ctx, j.DSN, postgres.Options{Embedded: true})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := alone(ctx, store); err != nil {
		return err
	}
	w := &watcher{profile: j.Profile}
	rep, err := race.Execute(ctx, store, bench.NewStop(), w)
	if err != nil {
		return err
	}
	if w.err != nil {
		return w.err
	}
	t := &rep.Cells[0].Trials[0]
	if len(t.Findings) > 0 || len(t.Errors) > 0 {
		return fmt.Errorf("the run is not to be trusted: findings %v, errors %v", t.Findings, t.Errors)
	}
	// What ended after the window belongs to it in the report, but the time it took does not; pgbench counts both. Here neither is.
	inside := t.Timeline[:min(len(t.Timeline), int(j.Window)/int(time.Second))]
	s := sample{Seconds: time.Duration(j.Window).Seconds(), Cost: t.Client.CPUSeconds / float64(t.Attempts)}
	for _, sec := range inside {
		s.Attempts += sec.Finished + sec.Contention
	}
	return json.NewEncoder(out).Encode(s)
}

// alone takes the lock that keeps two runs apart. The server may take a moment to notice that the run before is over.
func alone(ctx context.Context, store *postgres.Store) error {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := store.Prepare(ctx); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// watcher takes the CPU profile of a trial, if one is wanted.
type watcher struct {
	profile string
	file    *os.File
	err     error
}

func (w *watcher) TrialStarts(string, int, int, int, *bench.Live) {
	if w.profile == "" {
		return
	}
	if w.file, w.err = os.Create(w.profile); w.err == nil {
		w.err = pprof.StartCPUProfile(w.file)
	}
}

func (w *watcher) TrialEnds(string, *bench.Trial) {
	if w.file != nil {
		pprof.StopCPUProfile()
		w.err = w.file.Close()
	}
}
