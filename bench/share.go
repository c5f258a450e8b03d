package bench

import (
	"bytes"
	"compress/flate"
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Share is what one process measured of a trial.
type Share struct {
	Instance
	tally *tally
	wall  time.Duration
}

// gather adds up what the processes measured; lost reports that one of them took with it what its users were told. Each began at some
// moment between the release and what it says in Began, so that no two of them lie further apart than the latest.
func gather(shares []*Share) (all *tally, lost bool) {
	if len(shares) == 1 && shares[0].tally != nil {
		return shares[0].tally, false
	}
	all = newTally()
	for _, s := range shares {
		if s.tally == nil {
			lost = true
			continue
		}
		all.add(s.tally)
		all.told.merge(s.tally.told)
		all.told.Apart = max(all.told.Apart, time.Duration(value(s.Began)*float64(time.Millisecond)))
	}
	all.told.sort()
	return all, lost
}

// instances are the shares for the report; nil where there was only one process.
func instances(shares []*Share) []Instance {
	if len(shares) < 2 {
		return nil
	}
	var all []Instance
	for _, s := range shares {
		in := s.Instance
		if t := s.tally; t != nil {
			in.Attempts, in.Confirmed = t.attempts, t.count[Confirmed]
			for _, n := range t.count {
				in.Operations += n
			}
		}
		all = append(all, in)
	}
	return all
}

// clientSide is what lockbench itself cost: the processor time of all processes, and the share of the busiest machine.
func clientSide(shares []*Share) ClientSide {
	var c ClientSide
	machines := map[string]float64{}
	for _, s := range shares {
		c.CPUSeconds += s.CPUSeconds
		if s.wall > 0 && s.CPUs > 0 {
			machines[s.Host] += s.CPUSeconds / s.wall.Seconds() / float64(s.CPUs)
		}
	}
	for _, share := range machines {
		c.CPUShare = max(c.CPUShare, share)
	}
	return c
}

// The form in which a share travels between processes of the same lockbench.
type (
	parcel struct {
		Instance             Instance
		Wall                 time.Duration
		Latency, Uncorrected [outcomes]packed
		Waits                [waitKinds]packed
		Count                [outcomes]int64
		Contention           [contentions]int64
		Attempts, Retries    int64
		Contended, Stalled   int64
		Reasons              map[Reason]int64
		Errors               map[string]int64
		Seconds              []Second
		Told                 *Ledger
		Last                 time.Duration
		FinishedIn           int64
		ConfirmedIn          int64
		Classes              []packedClass
		Abandoned            int64
		Held                 time.Duration
	}
	packed struct {
		Buckets []byte // HdrHistogram V2, compressed; nil if nothing was recorded
		Max     time.Duration
		Sum     time.Duration
		Over    int64
	}
	packedClass struct {
		Count   [outcomes]int64
		Latency [outcomes]packed
	}
)

func (h *histogram) pack() packed {
	return packed{Buckets: []byte(h.encode()), Max: h.max, Sum: h.sum, Over: h.over}
}

func (p *packed) unpack() (h histogram, err error) {
	if len(p.Buckets) == 0 {
		return h, nil
	}
	h = histogram{max: p.Max, sum: p.Sum, over: p.Over}
	h.h, err = hdrhistogram.Decode(p.Buckets)
	return h, err
}

// MarshalBinary packs the share for another process of the same lockbench.
func (s *Share) MarshalBinary() ([]byte, error) {
	t := s.tally
	p := parcel{
		Instance: s.Instance, Wall: s.wall, Count: t.count, Contention: t.contention, Attempts: t.attempts, Retries: t.retries,
		Contended: t.contended, Stalled: t.stalled, Reasons: t.reasons, Errors: t.errors, Seconds: t.seconds, Told: t.told, Last: t.last,
		FinishedIn: t.finishedIn, ConfirmedIn: t.confirmedIn, Abandoned: t.abandoned, Held: t.held,
	}
	for o := range t.latency {
		p.Latency[o], p.Uncorrected[o] = t.latency[o].pack(), t.uncorrected[o].pack()
	}
	for k := range t.waits {
		p.Waits[k] = t.waits[k].pack()
	}
	for i := range t.classes {
		c := packedClass{Count: t.classes[i].count}
		for o := range t.classes[i].latency {
			c.Latency[o] = t.classes[i].latency[o].pack()
		}
		p.Classes = append(p.Classes, c)
	}
	var buf bytes.Buffer
	w, err := flate.NewWriter(&buf, flate.BestSpeed)
	if err == nil {
		err = errors.Join(gob.NewEncoder(w).Encode(&p), w.Close())
	}
	return buf.Bytes(), err
}

// UnmarshalBinary unpacks a share.
func (s *Share) UnmarshalBinary(b []byte) error {
	var p parcel
	if err := gob.NewDecoder(flate.NewReader(bytes.NewReader(b))).Decode(&p); err != nil {
		return fmt.Errorf("a share cannot be read: %w", err)
	}
	t := newTally()
	var errs []error
	unpack := func(p *packed) histogram {
		h, err := p.unpack()
		errs = append(errs, err)
		return h
	}
	t.count, t.contention, t.attempts, t.retries = p.Count, p.Contention, p.Attempts, p.Retries
	t.contended, t.stalled, t.seconds, t.last = p.Contended, p.Stalled, p.Seconds, p.Last
	t.finishedIn, t.confirmedIn, t.abandoned, t.held = p.FinishedIn, p.ConfirmedIn, p.Abandoned, p.Held
	t.told.merge(p.Told)
	maps.Copy(t.reasons, p.Reasons)
	maps.Copy(t.errors, p.Errors)
	for o := range t.latency {
		t.latency[o], t.uncorrected[o] = unpack(&p.Latency[o]), unpack(&p.Uncorrected[o])
	}
	for k := range t.waits {
		t.waits[k] = unpack(&p.Waits[k])
	}
	for i := range p.Classes {
		c := classTally{count: p.Classes[i].Count}
		for o := range c.latency {
			c.latency[o] = unpack(&p.Classes[i].Latency[o])
		}
		t.classes = append(t.classes, c)
	}
	s.Instance, s.wall, s.tally = p.Instance, p.Wall, t
	return errors.Join(errs...)
}
