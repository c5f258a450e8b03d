package scenarios_test

import (
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
)

// refused is a rejection for a reason of the scenario.
func refused(r bench.Reason) bench.Answer { return bench.No(r) }

// move answers a user's transfer of ten.
func move(user, from, to int64, a bench.Answer) bench.Told {
	t := told(user, user, from, 10, a)
	t.To = to
	return t
}

// bank is the accounts with these balances; each began with 100.
func bank(balances ...int64) bench.Snapshot {
	var rows []bench.Row
	for i, b := range balances {
		rows = append(rows, bench.Row{Key: int64(i) + 1, Values: [bench.MaxColumns]int64{b}})
	}
	return bench.Snapshot{"accounts": rows}
}

func TestTransferAudit(t *testing.T) {
	for _, c := range []struct {
		name  string
		told  *bench.Ledger
		holds bench.Snapshot
		want  counts
	}{
		{"nothing happened", ledger(), bank(100, 100), counts{}},
		{"one transfer", ledger(move(1, 1, 2, yes)), bank(90, 110), counts{}},
		{"there and back", ledger(move(1, 1, 2, yes), move(2, 2, 1, yes)), bank(100, 100), counts{}},
		{"down to nothing", ledger(ten(1, 2)...), bank(0, 200), counts{}},
		{"both told yes, one in the balances", ledger(move(1, 1, 2, yes), move(2, 1, 2, yes)), bank(90, 110), counts{"lost_updates": 2}},
		{"a debit lost", ledger(move(1, 1, 2, yes)), bank(100, 110), counts{"lost_updates": 1, "sum_drift": 1}},
		{"a credit lost", ledger(move(1, 1, 2, yes)), bank(90, 100), counts{"lost_updates": 1, "sum_drift": 1}},
		{"a credit twice", ledger(move(1, 1, 2, yes)), bank(90, 120), counts{"lost_updates": 1, "sum_drift": 1}},
		{"less than a transfer off is one", ledger(), bank(101, 100), counts{"lost_updates": 1, "sum_drift": 1}},
		{"a debit and a credit of one account lost: at least none", ledger(move(1, 1, 2, yes), move(2, 2, 1, yes)), bank(100, 100), counts{}},
		{"moved and nobody was told", ledger(), bank(90, 110), counts{"lost_updates": 2}},
		{"below zero", ledger(append(ten(1, 2), move(11, 1, 2, yes))...), bank(-10, 210), counts{"negative": 1}},
		{"at zero", ledger(append(ten(1, 2), move(11, 1, 2, refused(scenarios.InsufficientFunds)))...), bank(0, 200), counts{}},
		{"an account gone", ledger(), bank(100), counts{"sum_drift": 10}},
		{"an account not found that is there", ledger(move(1, 1, 2, missing)), bank(100, 100), counts{"undersold": 1}},
		{"an account not found that is not there", ledger(move(1, 1, 9, missing)), bank(100, 100), counts{}},
		{"a lost answer, and it was committed", ledger(move(1, 1, 2, unknown)), bank(90, 110), counts{}},
		{"a lost answer, and it was not", ledger(move(1, 1, 2, unknown)), bank(100, 100), counts{}},
		{"a lost answer of which only the debit is there", ledger(move(1, 1, 2, unknown)), bank(90, 100), counts{"sum_drift": 1}},
		{"more than a lost answer explains", ledger(move(1, 1, 2, unknown)), bank(80, 120), counts{"lost_updates": 2}},
		{"a lost answer does not bring to whom it takes from", ledger(move(1, 1, 2, unknown)), bank(110, 90), counts{"lost_updates": 2}},
		{"lost answers widen both ways", ledger(move(1, 1, 2, unknown), move(2, 2, 1, unknown)), bank(110, 90), counts{}},
		{"beside a lost answer a loss shows", ledger(move(1, 1, 2, yes), move(2, 1, 2, unknown)), bank(100, 100), counts{"lost_updates": 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := scenarios.Transfer{}.Audit(bench.Params{Rows: 2, Capacity: 100}, c.told, c.holds)
			check(t, a, []string{"lost_updates", "negative", "sum_drift", "undersold"}, c.want)
		})
	}
}

// ten are as many transfers as an account has money for.
func ten(from, to int64) (all []bench.Told) {
	for user := range int64(10) {
		all = append(all, move(user+1, from, to, yes))
	}
	return all
}

// leave answers the doctor at a place, 0 or 1, of a shift.
func leave(user, shift, place int64, a bench.Answer) bench.Told {
	return told(user, user, shift, place, a)
}

// ward is the shifts' doctors, two each: 1 is on duty, 0 off.
func ward(onDuty ...int64) bench.Snapshot {
	var rows []bench.Row
	for i, on := range onDuty {
		rows = append(rows, bench.Row{Key: int64(i) + 1, Values: [bench.MaxColumns]int64{int64(i/2) + 1, on}})
	}
	return bench.Snapshot{"doctors": rows}
}

func TestOnCallAudit(t *testing.T) {
	last, off := refused(scenarios.LastOnDuty), refused(scenarios.AlreadyOff)
	for _, c := range []struct {
		name  string
		told  *bench.Ledger
		holds bench.Snapshot
		want  counts
	}{
		{"nothing happened", ledger(), ward(1, 1), counts{}},
		{"one left, the other must stay", ledger(leave(1, 1, 0, yes), leave(2, 1, 1, last)), ward(0, 1), counts{}},
		{"asked again", ledger(leave(1, 1, 0, yes), leave(2, 1, 0, off)), ward(0, 1), counts{}},
		{"both left", ledger(leave(1, 1, 0, yes), leave(2, 1, 1, yes)), ward(0, 0), counts{"write_skew": 1}},
		{"one of each of two shifts", ledger(leave(1, 1, 0, yes), leave(2, 2, 1, yes)), ward(0, 1, 1, 0), counts{}},
		{"two shifts empty", ledger(leave(1, 1, 0, yes), leave(2, 1, 1, yes), leave(3, 2, 0, yes), leave(4, 2, 1, yes)), ward(0, 0, 0, 0), counts{"write_skew": 2}},
		{"let go and still on duty", ledger(leave(1, 1, 0, yes)), ward(1, 1), counts{"lost_updates": 1}},
		{"let go and gone from the table", ledger(leave(1, 2, 0, yes)), ward(1, 1), counts{"lost_updates": 1}},
		{"off duty and nobody let go", ledger(), ward(0, 1), counts{"unexplained": 1}},
		{"the other one is off", ledger(leave(1, 1, 0, yes)), ward(1, 0), counts{"lost_updates": 1, "unexplained": 1}},
		{"refused though both are on duty", ledger(leave(1, 1, 0, last), leave(2, 1, 1, last)), ward(1, 1), counts{"undersold": 1}}, // shifts, not doctors
		{"not found, and there", ledger(leave(1, 1, 0, yes), leave(2, 1, 1, missing)), ward(0, 1), counts{"undersold": 1}},
		{"not found, and not there", ledger(leave(1, 9, 0, missing)), ward(1, 1), counts{}},
		{"a lost answer, and it was committed", ledger(leave(1, 1, 0, unknown)), ward(0, 1), counts{}},
		{"a lost answer, and it was not", ledger(leave(1, 1, 0, unknown)), ward(1, 1), counts{}},
		{"a lost answer excuses its doctor only", ledger(leave(1, 1, 0, unknown)), ward(1, 0), counts{"unexplained": 1}},
		{"a lost answer does not excuse an empty shift", ledger(leave(1, 1, 0, yes), leave(2, 1, 1, unknown)), ward(0, 0), counts{"write_skew": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := scenarios.OnCall{}.Audit(bench.Params{Rows: int64(len(c.holds["doctors"]) / 2), Capacity: 1}, c.told, c.holds)
			check(t, a, []string{"write_skew", "lost_updates", "unexplained", "undersold"}, c.want)
		})
	}
}

// claim answers a worker's request for two jobs with these.
func claim(user int64, jobs ...int64) bench.Told {
	return told(user, user, 0, 2, bench.Answer{Outcome: bench.Confirmed, Key: jobs[0], Batch: jobs})
}

// asked answers a worker's request for two jobs with anything but jobs.
func asked(user int64, a bench.Answer) bench.Told { return told(user, user, 0, 2, a) }

// jobs names each job's worker, 0 for one that waits.
func jobs(workers ...int64) bench.Snapshot { return bench.Snapshot{"jobs": hall(workers...)["seats"]} }

func TestQueueAudit(t *testing.T) {
	empty := refused(scenarios.QueueEmpty)
	for _, c := range []struct {
		name  string
		told  *bench.Ledger
		holds bench.Snapshot
		want  counts
	}{
		{"nothing happened", ledger(), jobs(0, 0), counts{}},
		{"two batches", ledger(claim(1, 1, 2), claim(2, 3, 4)), jobs(1, 1, 2, 2), counts{}},
		{"the last batch is short", ledger(claim(1, 1, 2), claim(2, 3), asked(3, empty)), jobs(1, 1, 2), counts{}},
		{"one job given twice", ledger(claim(1, 1, 2), claim(2, 2, 3)), jobs(1, 2, 2), counts{"overbooked": 1, "lost_updates": 1}},
		{"a batch given twice", ledger(claim(1, 1, 2), claim(2, 1, 2)), jobs(2, 2), counts{"overbooked": 2, "lost_updates": 2}},
		{"more than a batch", ledger(claim(1, 1, 2, 3), claim(2, 4, 5)), jobs(1, 1, 1, 2, 2), counts{"over_limit": 1}},
		{"given three times", ledger(claim(1, 1), claim(2, 1), claim(3, 1)), jobs(3), counts{"overbooked": 2, "lost_updates": 2}},
		{"a claim is missing", ledger(claim(1, 1, 2)), jobs(1, 0), counts{"lost_updates": 1}},
		{"another holds it", ledger(claim(1, 1, 2)), jobs(1, 9), counts{"lost_updates": 1}},
		{"a job gone", ledger(claim(1, 1, 2)), jobs(1), counts{"lost_updates": 1}},
		{"claimed for whom nobody told", ledger(claim(1, 1, 2)), jobs(1, 1, 9), counts{"unexplained": 1}},
		{"told empty while a job waits", ledger(claim(1, 1, 2), asked(2, empty), asked(3, empty)), jobs(1, 1, 0), counts{"undersold": 2}},
		{"told empty, and it is", ledger(claim(1, 1, 2), asked(2, empty)), jobs(1, 1), counts{}},
		{"a lost answer, and it was committed", ledger(asked(1, unknown)), jobs(1, 1), counts{}},
		{"a lost answer, and it was not", ledger(asked(1, unknown)), jobs(0, 0), counts{}},
		{"a lost answer excuses one batch", ledger(asked(1, unknown)), jobs(1, 1, 1), counts{"unexplained": 1}},
		{"two lost answers excuse two", ledger(asked(1, unknown), asked(1, unknown)), jobs(1, 1, 1), counts{}},
		{"a lost answer excuses its worker only", ledger(asked(1, unknown)), jobs(2), counts{"unexplained": 1}},
		{"told empty while a lost answer held the rest", ledger(asked(1, unknown), asked(2, empty)), jobs(0, 0), counts{}},
		{"told empty while more waited than a lost answer held", ledger(asked(1, unknown), asked(2, empty)), jobs(0, 0, 0), counts{"undersold": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := scenarios.Queue{}.Audit(bench.Params{Rows: int64(len(c.holds["jobs"])), Capacity: 1}, c.told, c.holds)
			check(t, a, []string{"overbooked", "over_limit", "lost_updates", "unexplained", "undersold"}, c.want)
		})
	}
}

// TestQueueCountsEmptyClaims: an empty claim is behind a backlog if jobs are free, or if somebody was told of his only afterwards.
func TestQueueCountsEmptyClaims(t *testing.T) {
	at := func(ms int, a bench.Told) bench.Told {
		a.End = time.Duration(ms) * time.Millisecond
		return a
	}
	off := func(l *bench.Ledger) *bench.Ledger {
		l.Apart = time.Millisecond
		return l
	}
	empty := refused(scenarios.QueueEmpty)
	for _, c := range []struct {
		name          string
		told          *bench.Ledger
		holds         bench.Snapshot
		empty, behind int64
	}{
		{"no empty claim", ledger(at(1, claim(1, 1, 2))), jobs(1, 1), 0, 0},
		{"after the last claim", ledger(at(1, claim(1, 1, 2)), at(2, asked(2, empty))), jobs(1, 1), 1, 0},
		{"before the last claim was told of", ledger(at(3, claim(1, 1, 2)), at(2, asked(2, empty)), at(4, asked(3, empty))), jobs(1, 1), 2, 1},
		{"of two claims", ledger(at(1, claim(1, 1)), at(3, claim(2, 2)), at(2, asked(3, empty))), jobs(1, 2), 1, 1},
		{"told of afterwards, by a clock that may be off", off(ledger(at(3, claim(1, 1, 2)), at(2, asked(2, empty)))), jobs(1, 1), 1, 0},
		{"jobs are left", ledger(at(1, claim(1, 1)), at(2, asked(3, empty))), jobs(1, 0), 1, 1},
		{"a lost answer may have held them", ledger(asked(1, unknown), at(2, asked(2, empty))), jobs(0, 0), 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := scenarios.Queue{}.Audit(bench.Params{Capacity: 1}, c.told, c.holds)
			if got := a.Noted; got[bench.NotedEmpty] != c.empty || got[bench.NotedBehindBacklog] != c.behind {
				t.Errorf("noted %v, not %d empty, %d of them behind a backlog", got, c.empty, c.behind)
			}
		})
	}
}

// TestWitnessesOfSeveralRows: each finding names a case that a person can look up.
func TestWitnessesOfSeveralRows(t *testing.T) {
	for _, c := range []struct {
		name  string
		audit bench.Audit
		row   int64
		user  int64
		told  string
		holds string
	}{
		{
			"lost_updates", scenarios.Transfer{}.Audit(bench.Params{Rows: 2, Capacity: 100}, ledger(move(1, 1, 2, yes), move(2, 1, 2, yes)), bank(90, 110)),
			1, 0, "confirmed transfers leave account 1 with 80", "it holds 90",
		},
		{
			"sum_drift", scenarios.Transfer{}.Audit(bench.Params{Rows: 2, Capacity: 100}, ledger(), bank(100, 110)),
			0, 0, "2 accounts began with 100 each", "the sum of all balances is 210, not 200",
		},
		{
			"write_skew", scenarios.OnCall{}.Audit(bench.Params{Rows: 1}, ledger(leave(1, 1, 0, yes), leave(2, 1, 1, yes)), ward(0, 0)),
			1, 2, "you are off duty, another stays", "nobody is on duty in shift 1", // the last to leave
		},
		{
			"undersold", scenarios.OnCall{}.Audit(bench.Params{Rows: 1}, ledger(leave(1, 1, 0, refused(scenarios.LastOnDuty))), ward(1, 1)),
			1, 1, "last on duty", "2 doctors are on duty in shift 1",
		},
		{
			"overbooked", scenarios.Queue{}.Audit(bench.Params{Rows: 2}, ledger(claim(1, 1, 2), claim(2, 2)), jobs(1, 2)),
			2, 2, "job 2 is yours", "job 2 names worker 2",
		},
		{
			"undersold", scenarios.Queue{}.Audit(bench.Params{Rows: 1}, ledger(asked(1, refused(scenarios.QueueEmpty))), jobs(0)),
			0, 1, "queue empty", "1 job is waiting",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range c.audit.Findings {
				if f.Check != c.name {
					continue
				}
				if w := f.First; w == nil || w.Row != c.row || w.User != c.user || w.Told != c.told || w.Holds != c.holds {
					t.Errorf("the witness is %+v", w)
				}
				return
			}
			t.Errorf("no finding of %s among %+v", c.name, c.audit.Findings)
		})
	}
}
