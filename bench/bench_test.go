package bench

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"
)

// What lockbench adds to every operation it measures. Run with: go test -bench . -benchmem ./bench

// BenchmarkRecord records finished operations from all processors at once, as users do.
func BenchmarkRecord(b *testing.B) {
	for _, o := range []Outcome{Confirmed, Rejected} {
		b.Run(o.String(), func(b *testing.B) {
			r := newRecorder(shardsFor(1000), false, 0, &Live{}, nil)
			var users atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				user := int(users.Add(1))
				d := finished(o, 0, time.Millisecond)
				d.waited[waitPool] = true
				for pb.Next() {
					r.record(user, d)
				}
			})
		})
	}
}

func BenchmarkBackoff(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	backoff := Backoff{Base: time.Millisecond, Max: 100 * time.Millisecond}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n = n%10 + 1
		backoff.Wait(n, rng)
	}
}

func BenchmarkPick(b *testing.B) {
	for _, s := range []Skew{{}, {Theta: 0.99}, {Hot: 3}} {
		b.Run(s.String(), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			p := newPicker(s, 100_000)
			b.ReportAllocs()
			for b.Loop() {
				p.pick(rng)
			}
		})
	}
}

// BenchmarkMerge adds up a trial's shards, which happens once a trial, outside the measured window.
func BenchmarkMerge(b *testing.B) {
	r := newRecorder(shardsFor(1000), true, 0, &Live{}, nil)
	for i, d := range busyDay() {
		r.record(i, d)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.merged()
	}
}
