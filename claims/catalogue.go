package claims

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/trace"
)

// All returns the claims, in order.
func All() []Claim { return slices.Concat(seat(), waiting(), stock(), payments()) }

// seat is one row and many buyers.
func seat() []Claim {
	const last = "run --rows 1 --users 200 --think 5ms --trials 2 --warmup 0s --strategy "
	return []Claim{
		{
			ID: "A1", Text: "Without control two users pass the check together, and both are told yes, though the row holds only one of them.",
			Commands: []string{last + "none,atomic"},
			Checks:   []Check{broken(0, "none", "overbooked"), broken(0, "none", "lost_updates"), sound(0, "atomic"), told(0, "atomic", "confirmed", 1)},
		},
		{
			ID: "A2", Text: "A mutex removes it, at the price of a queue in the process, and protects one process only.",
			Commands: []string{last + "mutex,atomic", last + "mutex --instances 2 --trials 4"},
			Checks: []Check{
				sound(0, "mutex"), told(0, "mutex", "confirmed", 1),
				of(0, "mutex", "users wait in line for it", func(c *bench.Cell) (string, Verdict) {
					w := c.Waits["lock"].Total
					if w == nil || *w <= 0 {
						return "nobody waited", Refuted
					}
					return fmt.Sprintf("%.1f s of waiting, summed over the users", *w), Confirmed
				}),
				broken(1, "mutex", "overbooked"),
			},
		},
		{
			ID: "A3", Text: "A lock service removes it across instances too, at the price of one more system; and only while the lease holds.",
			But:      "A lease that ends while its holder stands still is given to the next: then there are two. Only a fencing token that the UPDATE checks makes it safe.",
			Needs:    []string{"redis"},
			Commands: []string{last + "redis,atomic --instances 2", lease + "redis,redis:fencing"},
			Checks: []Check{
				sound(0, "redis"), broken(1, "redis", "lost_updates"), none(1, "redis:fencing", "lost_updates"), lost(1, "redis:fencing", "fenced"),
			},
		},
		{
			ID: "A4", Text: "Pessimistic: the read takes the row's lock; losers wait, read the fresh row and are properly refused. FOR NO KEY UPDATE is enough.",
			But:      "Only other locks and writes wait. A plain SELECT reads the locked row at once, as it was before: see C4 for what a writer makes of that.",
			Commands: []string{last + "pessimistic,pessimistic:mode=no-key-update"},
			Checks: []Check{
				sound(0, "pessimistic"), told(0, "pessimistic", "confirmed", 1), told(0, "pessimistic", "rejected", 199),
				sound(0, "pessimistic:mode=no-key-update"), told(0, "pessimistic:mode=no-key-update", "confirmed", 1), lockWait(0, "pessimistic"),
			},
		},
		{
			ID: "A5", Text: "Optimistic: a version in the UPDATE's WHERE clause; no row is a conflict, and the application must handle it.",
			But:      "It is not free of locks: the UPDATE waits for the row's lock, then finds that the version has gone. And the version must stand in the UPDATE: compared in the application it protects nothing.",
			Commands: []string{hot + "optimistic,optimistic-broken"},
			Checks: []Check{
				sound(0, "optimistic"), lost(0, "optimistic", "version"), lockWait(0, "optimistic"), broken(0, "optimistic-broken", "lost_updates"),
			},
		},
		{
			ID: "A6", Text: "REPEATABLE READ refuses the second writer with 40001. SERIALIZABLE does too, and stops write skew, which REPEATABLE READ lets through.",
			Commands: []string{hot + "repeatable-read,serializable", "run --scenario on-call --users 200 --think 5ms --trials 2 --warmup 0s --strategy repeatable-read,serializable,pessimistic"},
			Checks: []Check{
				sound(0, "repeatable-read"), lost(0, "repeatable-read", "serialization"), sound(0, "serializable"), lost(0, "serializable", "serialization"),
				broken(1, "repeatable-read", "write_skew"), sound(1, "serializable"), lost(1, "serializable", "serialization"), sound(1, "pessimistic"),
			},
		},
	}
}

const (
	// hot is a stock item that everybody wants.
	hot = "run --scenario inventory --users 200 --trials 2 --warmup 0s --strategy "
	// lease is one in which a holder stands still for longer than his lease.
	lease = "run --scenario inventory --users 200 --capacity 1000 --trials 2 --warmup 0s --ttl 100ms --stall 250ms@5% --strategy "
)

// waiting is what to do about a locked row.
func waiting() []Claim {
	const crowd = "run --scenario bystanders --users 200 --trials 2 --warmup 0s --strategy "
	const beside = "p99 of bystanders"
	return []Claim{
		{
			ID: "B1", Text: "Whoever waits for a lock holds a connection. One hot row drains the pool, and users of other rows suffer.",
			Commands: []string{crowd + "pessimistic,pessimistic:wait=nowait,pessimistic:wait=20ms"},
			Checks: []Check{
				times(beside, bystanders, place{0, "pessimistic", ""}, place{0, "pessimistic:wait=nowait", ""}, 2),
				times(beside, bystanders, place{0, "pessimistic", ""}, place{0, "pessimistic:wait=20ms", ""}, 2),
			},
		},
		{
			ID: "B2", Text: "NOWAIT answers busy at once: an expected outcome, not an error.",
			Commands: []string{hot + "pessimistic:wait=nowait:retries=0"},
			Checks: []Check{
				lost(0, "pessimistic:retries=0:wait=nowait", "nowait"), some(0, "pessimistic:retries=0:wait=nowait", "busy"),
				told(0, "pessimistic:retries=0:wait=nowait", "failed", 0), none(0, "pessimistic:retries=0:wait=nowait", "lost_updates"),
			},
		},
		{
			ID: "B3", Text: "A lock timeout bounds the wait. It must be shorter than the caller's own deadline, or the server works on for a caller who has gone.",
			Commands: []string{crowd + "pessimistic:wait=2s,pessimistic:wait=20ms --hot 100% --caller-deadline 100ms --retries 0"},
			Checks: []Check{
				lost(0, "pessimistic:wait=20ms", "lock_timeout"),
				of(0, "pessimistic:wait=2s", "operations go on after their callers have gone", func(c *bench.Cell) (string, Verdict) {
					if a := c.Abandoned; a != nil && a.Operations > 0 {
						return fmt.Sprintf("%d, for %.1f s in all", a.Operations, a.HeldS), Confirmed
					}
					return "none", Refuted
				}),
				times("work for callers who had gone", held, place{0, "pessimistic:wait=2s", ""}, place{0, "pessimistic:wait=20ms", ""}, 1.5),
			},
		},
		{
			ID: "B4", Text: "SKIP LOCKED is no better NOWAIT: rows are missing from the answer. Right for queues; where a user wants this row, busy looks like gone.",
			Commands: []string{
				"run --scenario queue --users 60 --rows 300 --trials 2 --warmup 0s --strategy skip-locked,none",
				"run --rows 20 --users 400 --cancel 20% --trials 4 --warmup 0s --strategy pessimistic:wait=skip:force,pessimistic",
			},
			Checks: []Check{
				sound(0, "skip-locked"), broken(0, "none", "overbooked"),
				broken(1, "pessimistic:force:wait=skip", "undersold"), none(1, "pessimistic", "undersold"),
			},
		},
		{
			ID: "B5", Text: "Not enough stock and row busy are different outcomes, and never mixed.",
			Commands: []string{"run --scenario inventory --users 200 --capacity 10 --trials 4 --warmup 0s --strategy pessimistic:wait=nowait:retries=8"},
			Checks: []Check{
				of(0, "pessimistic:retries=8:wait=nowait", "rejected and busy both above 0, each counted apart", func(c *bench.Cell) (string, Verdict) {
					no, busy := total(c, func(t *bench.Trial) int64 { return t.Outcomes["rejected"] }), total(c, func(t *bench.Trial) int64 { return t.Outcomes["busy"] })
					text := fmt.Sprintf("%d rejected, %d busy", no, busy)
					if no > 0 && busy > 0 {
						return text, Confirmed
					}
					return text, Inconclusive
				}),
				none(0, "pessimistic:retries=8:wait=nowait", "undersold"),
			},
		},
		{
			ID: "B6", Text: "Two transactions that lock A, B and B, A deadlock, and the server ends one. Timeouts do not cure it; one order of locking does.",
			Commands: []string{
				"run --scenario transfer --rows 4 --users 16 --retries 1 --trials 2 --warmup 0s --strategy pessimistic,pessimistic:wait=50ms",
				"run --scenario transfer --rows 4 --users 60 --trials 2 --warmup 0s --lock-order sorted --strategy pessimistic",
			},
			Checks: []Check{
				lost(0, "pessimistic", "deadlock"), lost(0, "pessimistic:wait=50ms", "lock_timeout"), sound(1, "pessimistic"),
				of(1, "pessimistic", "no conflict at all", func(c *bench.Cell) (string, Verdict) {
					var n int64
					for _, k := range c.Trials {
						for _, of := range k.Contention {
							n += of
						}
					}
					if n > 0 {
						return fmt.Sprintf("%d attempts lost a race", n), Refuted
					}
					return "0", Confirmed
				}),
			},
		},
		{
			ID: "B7", Text: "What is really sent must be visible: the lock clause in the SQL that the server sees.",
			Commands: []string{"trace --strategy pessimistic,pessimistic:wait=nowait,optimistic"},
			Checks: []Check{
				shown("pessimistic", "FOR UPDATE"), shown("pessimistic:wait=nowait", "FOR UPDATE NOWAIT"), shown("optimistic", "version = "),
				{Expect: "pessimistic: the server says who waits for whom", measure: func(o *Observed) (string, Verdict) {
					for _, e := range events(o, "pessimistic") {
						if len(e.Waits) > 0 {
							return fmt.Sprintf("user %d waits, by pg_blocking_pids", e.User), Confirmed
						}
					}
					return "nobody waits", Refuted
				}},
			},
		},
	}
}

// stock is about quantities.
func stock() []Claim {
	const two = "run --scenario inventory --users 100 --capacity 1000 --trials 2 --warmup 0s --strategy "
	const writers = "run --scenario mixed --users 200 --capacity 1000 --rogue 30% --trials 2 --warmup 0s --strategy "
	return []Claim{
		{
			ID: "C1", Text: "Lost update: both read ten, both take four, both write six. Eight were sold, and the row says four.",
			Commands: []string{two + "none,cas"},
			Checks:   []Check{broken(0, "none", "lost_updates"), sound(0, "cas")},
		},
		{
			ID: "C2", Text: "Optimistic is fine where conflicts are rare. Pessimistic turns conflicts into waiting, and the longer the work under the lock, the worse for all.",
			Commands: []string{two + "optimistic,pessimistic", two + "optimistic --rows 1000", two + "pessimistic --think 20ms"},
			Checks: []Check{
				times("conflict rate", conflicts, place{0, "optimistic", "one row"}, place{1, "optimistic", "1000 rows"}, 5),
				lockWait(0, "pessimistic"),
				times("median latency", median, place{2, "pessimistic", "20 ms of work under the lock"}, place{0, "pessimistic", "2 ms"}, 2),
			},
		},
		{
			ID: "C3", Text: "A lock lives as long as its transaction. Locked in one and written in the next, it protects nothing.",
			Commands: []string{two + "pessimistic:split,pessimistic"},
			Checks:   []Check{broken(0, "pessimistic:split", "lost_updates"), sound(0, "pessimistic")},
		},
		{
			ID: "C4", Text: "One locks, another reads without a lock and writes: his write waits, then overwrites. A version column still catches it.",
			But:      "It catches it only if the other raises the version too. A writer who does not is invisible to it, even one whose own statement is sound; and one who raises it but reads without protection still overwrites.",
			Commands: []string{writers + "pessimistic", writers + "optimistic --rogue-as atomic", writers + "optimistic --rogue-as atomic:bump", writers + "optimistic --rogue-as none:bump"},
			Checks: []Check{
				broken(0, "pessimistic", "lost_updates"), named(broken(1, "optimistic", "lost_updates"), "beside atomic"),
				named(none(2, "optimistic", "lost_updates"), "beside atomic:bump"), named(broken(3, "optimistic", "lost_updates"), "beside none:bump"),
			},
		},
		{
			ID: "C5", Text: "A lock does not replace the rule: quantities go below zero if it is not checked under the lock.",
			Commands: []string{hot + "pessimistic --check before", hot + "pessimistic --check inside"},
			Checks:   []Check{broken(0, "pessimistic", "negative"), named(sound(1, "pessimistic"), "checked inside")},
		},
	}
}

// payments are about money, calls and retries.
func payments() []Claim {
	const pay = "run --scenario payment --users 200 --trials 2 --warmup 0s --call p50=2ms,p99=10ms --strategy "
	const busy = "run --scenario inventory --rows 40 --mode closed --duration 3s --trials 2 --warmup 500ms --strategy optimistic --users "
	const order = "run --scenario checkout --users 100 --trials 2 --warmup 0s --call p50=2ms,p99=10ms --crash 10% --fail-call 20% --duplicate-compensation --strategy "
	return []Claim{
		{
			ID: "D1", Text: "Check-then-act on a balance loses money in the same way.",
			Commands: []string{"run --scenario transfer --lock-order sorted --users 200 --trials 2 --warmup 0s --strategy none,pessimistic"},
			Checks:   []Check{broken(0, "none", "lost_updates"), sound(0, "pessimistic")},
		},
		{
			ID: "D2", Text: "Races grow faster than volume: a conflict makes a retry, and retries compete with new work.",
			But:      "Clean is a matter of luck at any volume. Retries per operation grow about with the number of users at work at once, so with volume only where more volume means more users at once.",
			Commands: []string{busy + "2", busy + "32"},
			Checks: []Check{
				times("retries per operation", retries, place{1, "optimistic", "32 users"}, place{0, "optimistic", "2 users"}, 2),
				{Expect: "retries grow at least twice as much as goodput", measure: func(o *Observed) (string, Verdict) {
					a, b := o.cell(0, "optimistic"), o.cell(1, "optimistic")
					if a == nil || b == nil || a.Goodput == nil || b.Goodput == nil || *a.Goodput == 0 {
						return "it was not measured", Inconclusive
					}
					few, many := float64(max(1, a.Retries))/a.DurationS, float64(b.Retries)/b.DurationS
					r, g := many/few, *b.Goodput / *a.Goodput
					text := fmt.Sprintf("retries × %.1f, goodput × %.1f", r, g)
					if r >= 2*g {
						return text, Confirmed
					}
					return text, Refuted
				}},
			},
		},
		{
			ID: "D3", Text: "A transaction kept open over an external call multiplies the exposure to conflict.",
			Commands: []string{
				"run --scenario payment --rows 50 --duplicates 1 --users 100 --think 0s --trials 2 --warmup 0s --call p50=50ms,p99=100ms --call-in-tx --strategy optimistic",
				"run --scenario payment --rows 50 --duplicates 1 --users 100 --think 0s --trials 2 --warmup 0s --call p50=50ms,p99=100ms --strategy optimistic",
			},
			Checks: []Check{
				times("attempts per confirmed", attempts, place{0, "optimistic", "call inside"}, place{1, "optimistic", "call outside"}, 1.2),
				times("conflict rate", conflicts, place{0, "optimistic", "call inside"}, place{1, "optimistic", "call outside"}, 1.5),
			},
		},
		{
			ID: "D4", Text: "A retry that is not idempotent charges twice. With a key, unique in the database, the loser of the race returns the winner's stored result.",
			Commands: []string{pay + "pessimistic,pessimistic:idempotency=on,atomic:idempotency=on"},
			Checks: []Check{
				broken(0, "pessimistic", "double_charged"), sound(0, "pessimistic:idempotency=on"), sound(0, "atomic:idempotency=on"),
				told(0, "pessimistic:idempotency=on", "confirmed", 200),
			},
		},
		{
			ID: "D5", Text: "Saga: each step has a compensation, which must be idempotent and right when its step was only half done.",
			Commands: []string{order + "saga,saga:compensation=naive"},
			Checks: []Check{
				sound(0, "saga"),
				of(0, "saga:compensation=naive", "stock from nowhere, or money gone", func(c *bench.Cell) (string, Verdict) {
					if len(c.Findings) == 0 {
						return "nothing", Refuted
					}
					return faults(c), Confirmed
				}),
			},
		},
		{
			ID: "D6", Text: "Compare and swap in the domain: the balance that was read stands in the UPDATE. The retry reads and decides again, and gives up when the money is gone.",
			Commands: []string{"run --scenario inventory --capacity 30 --users 100 --trials 2 --warmup 0s --strategy cas"},
			Checks:   []Check{sound(0, "cas"), lost(0, "cas", "version"), told(0, "cas", "confirmed", 30), told(0, "cas", "rejected", 70)},
		},
		{
			ID: "D8", Text: "The first step of any cure: measure the conflict rate and the transactions in the database.",
			Commands: []string{hot + "repeatable-read"},
			Checks: []Check{of(0, "repeatable-read", "the server's rollbacks are the client's conflicts", func(c *bench.Cell) (string, Verdict) {
				if c.Server == nil || c.Server.Rollbacks == nil {
					return "the server does not count", Inconclusive
				}
				var mine, theirs int64
				for _, t := range c.Trials {
					mine += t.Contention["serialization"]
					if t.Server != nil && t.Server.Rollbacks != nil {
						theirs += *t.Server.Rollbacks
					}
				}
				text := fmt.Sprintf("%d rolled back, %d conflicts", theirs, mine)
				if mine > 0 && theirs == mine {
					return text, Confirmed
				}
				return text, Refuted
			})},
		},
	}
}

// named says of a check what sets its cell apart.
func named(c Check, as string) Check {
	c.Expect += " (" + as + ")"
	return c
}

// lockWait expects that sessions were seen waiting for a lock.
func lockWait(command int, strategy string) Check {
	return of(command, strategy, "sessions wait for the row's lock", func(c *bench.Cell) (string, Verdict) {
		most, samples := 0.0, int64(0)
		for _, t := range c.Trials {
			if t.Server != nil && t.Server.LockWaitShare != nil {
				most, samples = max(most, *t.Server.LockWaitShare), samples+t.Server.Samples
			}
		}
		switch {
		case most > 0:
			return fmt.Sprintf("%.0f %% of busy sessions", 100*most), Confirmed
		case samples < 10:
			return "too few samples", Inconclusive
		}
		return "none", Refuted
	})
}

// shown expects that the server was sent a text.
func shown(strategy, text string) Check {
	return Check{Expect: fmt.Sprintf("%s: the server was sent %q", strategy, text), measure: func(o *Observed) (string, Verdict) {
		all := events(o, strategy)
		for _, e := range all {
			if strings.Contains(e.SQL, text) {
				return e.SQL, Confirmed
			}
		}
		if len(all) == 0 {
			return "it was not traced", Inconclusive
		}
		return fmt.Sprintf("none of %d statements has it", len(all)), Refuted
	}}
}

// events are the statements of a strategy in the first trace.
func events(o *Observed, strategy string) (all []*trace.Event) {
	for _, t := range o.Traces {
		if t == nil {
			continue
		}
		for _, r := range t.Races {
			if r.Strategy != strategy {
				continue
			}
			for _, e := range r.Events {
				if e.Kind == trace.Statement {
					all = append(all, e)
				}
			}
		}
	}
	return all
}

func number(p *float64) (float64, bool) {
	if p == nil {
		return 0, false
	}
	return *p, true
}

func conflicts(c *bench.Cell) (float64, bool) { return number(c.ConflictRate) }
func attempts(c *bench.Cell) (float64, bool)  { return number(c.Amplification) }
func median(c *bench.Cell) (float64, bool)    { return number(c.Latency["confirmed"].P50) }
func bystanders(c *bench.Cell) (float64, bool) {
	return number(c.Classes["bystanders"].Latency["confirmed"].P99)
}

func retries(c *bench.Cell) (float64, bool) {
	return float64(c.Retries) / float64(max(1, c.Operations)), c.Operations > 0
}

func held(c *bench.Cell) (float64, bool) {
	if c.Abandoned == nil {
		return 0, false
	}
	return c.Abandoned.HeldS, true
}
