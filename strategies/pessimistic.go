package strategies

import (
	"fmt"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Pessimistic locks the row as it reads it.
type Pessimistic struct{}

// Info describes the strategy.
func (Pessimistic) Info() bench.StrategyInfo {
	return bench.StrategyInfo{
		Name:     "pessimistic",
		Summary:  "SELECT … FOR UPDATE, then write",
		How:      "The read takes the row's lock and keeps it until COMMIT. Whoever comes next waits, then reads the fresh row and decides on it.",
		Prevents: append(noLostUpdate(), bench.WriteSkew), // it locks every row that it read
		LoserIs:  "made to wait and then shown the winner's row; with wait=nowait or a duration told \"busy\" (SQLSTATE 55P03)",
		Use:      "where conflicts are frequent and the work under the lock is short; wait=nowait or a short limit where a caller has a deadline",
		Mistakes: "a call to another system under the lock; locking several rows in differing order (deadlocks); a lock timeout longer than the caller's deadline; writing in another transaction than the one that locked; wait=skip for a certain row",
		Options: []bench.OptionDoc{
			{Name: "wait", Values: []string{"forever", "nowait", "skip", "DURATION"}, Doc: "for a locked row: wait without end (default), fail at once, skip it, or wait that long (lock_timeout)"},
			{Name: "mode", Values: []string{"update", "no-key-update"}, Doc: "FOR UPDATE (default) or FOR NO KEY UPDATE, which lets child rows be inserted meanwhile"},
			{Name: "split", Doc: "read and lock in one transaction, write in the next: the lock is gone by then"},
			{Name: "force", Doc: "run wait=skip on a certain row although a busy row then looks like one that is gone"},
		},
		Variants: []string{"pessimistic:wait=nowait", "pessimistic:wait=50ms", "pessimistic:mode=no-key-update", "pessimistic:split"},
	}
}

// Bind writes the SQL.
func (Pessimistic) Bind(b bench.Binding) (bench.Discipline, error) {
	d := rowwise{lock: " FOR UPDATE"}
	if b.Options["mode"] == "no-key-update" {
		d.lock = " FOR NO KEY UPDATE"
	}
	_, force := b.Options["force"]
	switch wait := b.Options["wait"]; wait {
	case "", "forever":
	case "nowait":
		d.lock += " NOWAIT"
	case "skip":
		if !force && !b.Tables[0].Batched {
			return nil, &bench.NotApplicable{
				Reason: "SKIP LOCKED makes a busy row look like one that is gone, and a user who wants this row would be told that it does not exist",
				Remedy: "use wait=nowait to be told at once, or add :force to see the false sold-outs counted",
			}
		}
		d.lock += " SKIP LOCKED"
	default:
		limit, err := bench.ParseDuration(wait)
		if err != nil {
			return nil, err
		}
		if limit < time.Millisecond {
			return nil, bench.Hintf("use wait=nowait to wait not at all", "wait=%s is below lock_timeout's resolution of 1ms", wait)
		}
		d.settings = fmt.Sprintf("; SET LOCAL lock_timeout = %d", limit.Milliseconds())
	}
	bound, err := bindRows(b, d)
	if _, split := b.Options["split"]; split && err == nil {
		return newLostLock(bound.(*rowwise)), nil
	}
	if err == nil && b.Options["wait"] == "skip" {
		return skipping{bound, b.Tables[0].Batched}, nil
	}
	return bound, err
}

// skipping is wait=skip: where any free row will do it claims what skip-locked claims, on a certain row nothing.
type skipping struct {
	bench.Discipline
	anyRow bool
}

// Prevents narrows the strategy's claim.
func (d skipping) Prevents() []bench.Anomaly {
	if d.anyRow {
		return SkipLocked{}.Info().Prevents
	}
	return nil
}
