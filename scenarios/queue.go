package scenarios

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/lockbench/lockbench/bench"
)

// Queue is a table of jobs from which workers claim batches.
type Queue struct{}

// The job's column.
const worker = 0

var jobsTable = bench.Table{
	Name: "jobs", Key: "id", Columns: []string{"worker"}, Version: "version", Fence: "fence",
	Free: &bench.Cond{Column: "worker", Relation: bench.IsNull}, Batched: true,
}

// QueueEmpty rejects a worker for whom nothing was left.
const QueueEmpty bench.Reason = "queue empty"

// batch is the flag for the number of jobs of a claim.
const batch, defaultBatch = "batch", 5

// Info describes the scenario.
func (Queue) Info() bench.ScenarioInfo {
	return bench.ScenarioInfo{
		Name: "queue", Unit: "jobs",
		Summary:   "workers claim batches of jobs from a table",
		Story:     "A worker reads the first --batch jobs that nobody has claimed and writes its name into them. Read without a lock, two workers claim the same jobs; with a lock that waits, every worker stands in line for the first job; SKIP LOCKED hands each the next ones.",
		Invariant: "a job was given to one worker at the most, that worker is the one its row names, and nobody got more than a batch",
		Anomalies: []bench.Anomaly{bench.Overbooking, bench.LostUpdate, bench.FalseSoldOut, bench.OverLimit},
		Options:   []bench.OptionDoc{{Name: batch, Values: []string{"N"}, Doc: "jobs of a claim (default 5)"}},
	}
}

// Fit sets a thousand jobs.
func (Queue) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 1000
		if p.Endless {
			p.Rows = 100_000
		}
	}
	if p.Capacity > 1 {
		return p, bench.About("capacity", "", bench.Hintf("leave --capacity out", "a job is done once: capacity cannot be %d", p.Capacity))
	}
	p.Capacity = 1
	if _, err := batchSize(p); err != nil {
		return p, err
	}
	return p, nil
}

func batchSize(p bench.Params) (int64, error) {
	text, given := p.Options[batch]
	if !given {
		return defaultBatch, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > 1000 {
		return 0, bench.About(batch, "", bench.Hintf("give a number from 1 to 1000", "--%s cannot be %q", batch, text))
	}
	return n, nil
}

// Tables returns the jobs.
func (Queue) Tables() []*bench.Table { return []*bench.Table{&jobsTable} }

// Changes is empty: which jobs are claimed is not known before they are read.
func (Queue) Changes() []*bench.Change { return nil }

// SingleWrite is false: a batch has several rows.
func (Queue) SingleWrite() bool { return false }

// Fill lays out jobs that nobody has claimed.
func (Queue) Fill(p bench.Params) []bench.Fill {
	return []bench.Fill{{Table: &jobsTable, Rows: p.Rows, Row: func(key int64) bench.Row {
		return bench.Row{Key: key, Values: [bench.MaxColumns]int64{worker: bench.Null}}
	}}}
}

// Draw asks for a batch instead of a row.
func (Queue) Draw(p bench.Params, _ *rand.Rand, r *bench.Request) {
	r.Quantity, _ = batchSize(p) // Fit has read it
	r.Key = 0
}

// Operation claims a batch.
func (Queue) Operation(l bench.Lends, _ bench.Params) (bench.Operation, error) {
	switch {
	case l.Has(bench.LendsBatch):
		return bench.Single(claim), nil
	case l.Has(bench.LendsGrab):
		return bench.Single(grab), nil
	}
	return nil, &bench.NotApplicable{
		Reason: "a worker takes whatever is free, and this strategy protects a row that is known beforehand",
		Remedy: "use skip-locked",
	}
}

// NeedsRefusals is true: whether a queue was really empty depends on when a worker was told so.
func (Queue) NeedsRefusals(bench.Params) bool { return true }

// grab claims a batch where finding and claiming are one statement. The work is done afterwards, in the same transaction.
func grab(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	got, err := tx.Grab(&jobsTable, r.Quantity, r.User)
	if err != nil {
		return bench.Answer{}, err
	}
	if len(got) == 0 {
		return bench.No(QueueEmpty), nil
	}
	mine := slices.Clone(got)
	tx.Think()
	return bench.Answer{Outcome: bench.Confirmed, Key: mine[0], Batch: mine}, nil
}

// claim reads free jobs and writes the worker's name into them.
func claim(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
	jobs, err := tx.Claim(&jobsTable, r.Quantity)
	if err != nil {
		return bench.Answer{}, err
	}
	if len(jobs) == 0 {
		return bench.No(QueueEmpty), nil
	}
	tx.Think()
	mine := make([]int64, len(jobs))
	for i, job := range jobs {
		claimed := job
		claimed.Values[worker] = r.User
		if err := tx.Put(&jobsTable, job, claimed); err != nil {
			return bench.Answer{}, err
		}
		mine[i] = job.Key
	}
	return bench.Answer{Outcome: bench.Confirmed, Key: mine[0], Batch: mine}, nil
}

// Audit holds every job given out against its row. A worker that lost the answer to its COMMIT may hold jobs without knowing.
func (Queue) Audit(p bench.Params, told *bench.Ledger, db bench.Snapshot) bench.Audit {
	limit, _ := batchSize(p) // Fit has read it
	twice := bench.Finding{Anomaly: bench.Overbooking}
	lost := bench.Finding{Anomaly: bench.LostUpdate}
	over, worst := bench.Finding{Anomaly: bench.OverLimit}, int64(0)
	given := map[int64]int{}
	for i := range told.Confirmed {
		t := &told.Confirmed[i]
		if n := int64(len(t.Batch)); n > t.Quantity {
			over.Count++
			w := t.Witness(fmt.Sprintf("%d jobs are yours", n), fmt.Sprintf("the claim was for %d", t.Quantity))
			if over.First == nil {
				over.First, over.Worst = w, w
				worst = n
			} else if n > worst {
				over.Worst, worst = w, n
			}
		}
		for _, job := range t.Batch {
			row, found := db.Find(jobsTable.Name, job)
			w := t.Witness(fmt.Sprintf("job %d is yours", job), claimedBy(row, found, job))
			if given[job]++; given[job] > 1 {
				twice.Count++
				if twice.First == nil {
					twice.First = w
				}
			}
			if !found || row.Values[worker] != t.User {
				lost.Count++
				if lost.First == nil {
					lost.First = w
				}
			}
		}
	}
	excused := map[int64]int64{} // jobs that a worker may hold without knowing
	held := int64(0)             // all of them: until their transaction ended, others could not have them
	for i := range told.Indeterminate {
		t := &told.Indeterminate[i]
		excused[t.User] += t.Quantity
		held += t.Quantity
	}
	unasked := bench.Finding{Anomaly: bench.LostUpdate}
	left := int64(0)
	for _, row := range db[jobsTable.Name] {
		by := row.Values[worker]
		switch {
		case by == bench.Null:
			left++
		case given[row.Key] > 0:
		case excused[by] > 0:
			excused[by]--
		default:
			unasked.Count++
			if unasked.First == nil {
				unasked.First = &bench.Witness{User: by, Row: row.Key, Told: "nothing", Holds: claimedBy(row, true, row.Key)}
			}
		}
	}
	idle := bench.Finding{Anomaly: bench.FalseSoldOut}
	for _, r := range told.Refused {
		if left > held {
			idle.Count += r.Count
			idle.First = r.First.Witness(refusal(&r.First), fmt.Sprintf("%d job%s waiting", left, are(left)))
		}
	}
	over.Message = fmt.Sprintf("%d claim%s given more than the %d jobs asked for", over.Count, were(over.Count), limit)
	twice.Message = fmt.Sprintf("%d job%s given to a second worker", twice.Count, were(twice.Count))
	lost.Message = fmt.Sprintf("%d job%s in another worker's name than told", lost.Count, are(lost.Count))
	unasked.Message = fmt.Sprintf("%d job%s claimed for a worker who was never told", unasked.Count, are(unasked.Count))
	idle.Message = fmt.Sprintf("%d worker%s told that the queue was empty while jobs waited", idle.Count, were(idle.Count))
	var a bench.Audit
	a.Check("overbooked", twice)
	a.Check(bench.CheckOverLimit, over)
	a.Check("lost_updates", lost)
	a.Check("unexplained", unasked)
	a.Check("undersold", idle)
	a.Note(bench.NotedEmpty, int64(len(told.Refusals)))
	a.Note(bench.NotedBehindBacklog, behindBacklog(told, left > held))
	return a
}

// behindBacklog counts claims that came back empty while jobs were free, or in a claim whose worker had not been told of it yet: such a
// claim may still be rolled back, and its jobs are free again.
func behindBacklog(told *bench.Ledger, left bool) (n int64) {
	if left {
		return int64(len(told.Refusals))
	}
	last := len(told.Confirmed) - 1 // confirmations are in the order of their end
	for i := range told.Refusals {
		if last >= 0 && told.Confirmed[last].End > told.Refusals[i].End+told.Apart {
			n++
		}
	}
	return n
}

func claimedBy(row bench.Row, found bool, job int64) string {
	switch {
	case !found:
		return fmt.Sprintf("there is no job %d", job)
	case row.Values[worker] == bench.Null:
		return fmt.Sprintf("job %d is unclaimed", job)
	}
	return fmt.Sprintf("job %d names worker %d", job, row.Values[worker])
}
