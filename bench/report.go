package bench

import "time"

// Schema names the version of the report's JSON form.
const Schema = "lockbench.report/v1"

// Report is everything a run measured. Figures that were not measured are absent (nil), never 0.
type Report struct {
	Schema      string      `json:"schema"`
	Lockbench   Build       `json:"lockbench"`
	Command     string      `json:"command"`
	Started     time.Time   `json:"started"`
	Partial     bool        `json:"partial,omitempty"` // the run was stopped or broke off: cells or trials are missing
	Environment Environment `json:"environment"`
	Plan        Settings    `json:"plan,omitzero"`   // absent where there are several races, which have one each
	Races       []Planned   `json:"races,omitempty"` // of a suite; see [Report.Parts]
	Cells       []Cell      `json:"cells"`
	Warnings    []Warning   `json:"warnings"`
	Gate        []Assertion `json:"gate,omitempty"` // limits and expectations, those that were kept included
}

// FigureVerdict stands in an [Assertion] that is about a verdict rather than a figure.
const FigureVerdict = "verdict"

// Assertion is a limit or an expectation, held against one cell.
type Assertion struct {
	Race     string   `json:"race,omitempty"`
	Scenario string   `json:"scenario,omitempty"`
	Strategy string   `json:"strategy,omitempty"` // the cell's label; what the author named if there was no such cell
	Text     string   `json:"text"`               // as its author wrote it: p99>50ms, or expect: sound
	Figure   string   `json:"figure"`             // the limited figure; verdict for an expectation
	Value    *float64 `json:"value,omitempty"`    // in the figure's own unit; absent where it was not measured, and for verdicts
	Limit    *float64 `json:"limit,omitempty"`
	Failed   bool     `json:"failed"`
	Message  string   `json:"message"` // what is the case
}

// Build identifies the program.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// Environment is where the run took place.
type Environment struct {
	Server Server `json:"server"`
	Host   Host   `json:"host"`
}

// Server holds the facts of the database under test that decide how figures may be compared.
type Server struct {
	Version     string            `json:"version"`                           // as "15.18"
	Major       int               `json:"major"`                             // as 15
	Embedded    bool              `json:"embedded"`                          // started by lockbench
	Durable     bool              `json:"durable"`                           // fsync and synchronous_commit are on
	Address     string            `json:"address"`                           // without user or password
	Pooler      bool              `json:"pooler"`                            // a transaction pooler stands in front
	ExecMode    string            `json:"exec_mode"`                         // prepared or unprepared
	PoolerCost  *float64          `json:"pooler_us_per_statement,omitempty"` // µs that unprepared execution adds to a statement, measured on this link
	Settings    map[string]string `json:"settings"`                          // those that change the figures
	DeadlockMS  *float64          `json:"deadlock_timeout_ms,omitempty"`
	Description string            `json:"description,omitempty"` // how an embedded server was had
}

// Host is the machine lockbench ran on.
type Host struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
}

// Cell is one strategy on one scenario over all its trials. Its counts and rates are those of one trial (see Trial), so that they belong
// together: of the median one by goodput, or of the worst one where anomalies were found. The audit holds, of each count, the worst
// trial's; latencies and waits are merged over all trials.
type Cell struct {
	Race        string            `json:"race,omitempty"` // its name, where the report holds several
	Scenario    string            `json:"scenario"`
	Strategy    string            `json:"strategy"` // the label: name and inline options
	Name        string            `json:"name"`     // the strategy's name alone
	Options     map[string]string `json:"options"`
	Isolation   string            `json:"isolation,omitempty"`
	Claim       []Anomaly         `json:"claim"` // what it says it prevents
	Scope       string            `json:"scope,omitempty"`
	Verdict     Verdict           `json:"verdict"`
	ClaimBroken bool              `json:"claim_broken,omitempty"` // something it claims to prevent happened
	NA          string            `json:"na,omitempty"`           // why the combination makes no sense; nothing was run
	Findings    []Finding         `json:"findings"`
	Trial       int               `json:"trial,omitempty"` // number of the trial whose counts stand here, from 1
	Figures
	Intervals map[string]Interval `json:"intervals,omitempty"` // over trials
	Trials    []Trial             `json:"trials"`
}

// Trial is one repetition of a cell.
type Trial struct {
	Number   int       `json:"number"` // from 1
	Order    int       `json:"order"`  // place among all trials of the run, from 1
	Verdict  Verdict   `json:"verdict"`
	Findings []Finding `json:"findings"`
	Figures
	Histograms map[string]string `json:"histograms,omitempty"` // µs, HdrHistogram V2 compressed, base64; one an outcome
	Timeline   []Second          `json:"timeline,omitempty"`
}

// Second counts what finished in one second of the measured window.
type Second struct {
	Finished   int64 `json:"finished"`
	Confirmed  int64 `json:"confirmed"`
	Contention int64 `json:"contention"`
}

// Interval is a 95 % confidence interval of a median over trials, from order statistics; there is none below six trials.
type Interval struct {
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Trials int     `json:"trials"`
}

// Figures are what one trial, or a cell, measured.
type Figures struct {
	Operations int64            `json:"operations"`
	Attempts   int64            `json:"attempts"`
	Retries    int64            `json:"retries"`
	Contended  int64            `json:"contended"`         // operations that began while another wanted the same row
	Stalled    int64            `json:"stalled,omitempty"` // operations that --stall stopped between read and write
	Outcomes   map[string]int64 `json:"outcomes"`
	Reasons    map[string]int64 `json:"reasons,omitempty"` // of rejections
	Contention map[string]int64 `json:"contention"`
	Errors     map[string]int64 `json:"errors,omitempty"` // texts of failures with their counts

	ConflictRate  *float64 `json:"conflict_rate,omitempty"` // contention ÷ attempts
	Amplification *float64 `json:"amplification,omitempty"` // attempts per confirmed operation
	Throughput    *float64 `json:"throughput,omitempty"`    // finished operations a second
	Goodput       *float64 `json:"goodput,omitempty"`       // confirmed operations a second
	DurationS     float64  `json:"duration_s"`              // of the measured window

	// Classes are the figures of users of several kinds, where a scenario has such, by kind.
	Classes map[string]ClassFigures `json:"classes,omitempty"`
	// Abandoned is work for callers who had gone; with --caller-deadline only.
	Abandoned *Abandoned `json:"abandoned,omitempty"`

	Audit map[string]int64 `json:"audit"`
	// Noted are counts of the scenario's own that are no anomaly, such as claims of a queue that came back empty.
	Noted   map[string]int64       `json:"noted,omitempty"`
	Latency map[string]Percentiles `json:"latency"` // by outcome, and all
	// Uncorrected is the service time in open mode, where Latency counts from the due time.
	Uncorrected map[string]Percentiles `json:"latency_uncorrected,omitempty"`
	Waits       map[string]Wait        `json:"waits"`
	Server      *ServerSide            `json:"server,omitempty"`
	Client      ClientSide             `json:"client"`
	// QueryPlan is how the server planned the statement on whose plan the strategy's result rests, line by line; absent where none does.
	QueryPlan []string `json:"query_plan,omitempty"`
	// Instances are the shares of several processes; absent where there was one.
	Instances []Instance `json:"instances,omitempty"`
}

// Instance is one process's share of a trial.
type Instance struct {
	Name        string  `json:"name"`
	Host        string  `json:"host"`
	CPUs        int     `json:"cpus"`
	Users       int     `json:"users"`
	Connections int     `json:"connections"`
	Operations  int64   `json:"operations"`
	Attempts    int64   `json:"attempts"`
	Confirmed   int64   `json:"confirmed"`
	CPUSeconds  float64 `json:"cpu_s"`
	// Began is at most how long after the release its users began, in milliseconds, by the clock of the process that released them.
	Began *float64 `json:"began_within_ms,omitempty"`
	// Lost is why nothing is known of it.
	Lost string `json:"lost,omitempty"`
}

// ClassFigures are the figures of one kind of users.
type ClassFigures struct {
	Operations int64                  `json:"operations"`
	Outcomes   map[string]int64       `json:"outcomes"`
	Latency    map[string]Percentiles `json:"latency"` // by outcome, and all
}

// Abandoned is what was still done for callers whose patience had ended.
type Abandoned struct {
	Operations int64   `json:"operations"`
	HeldS      float64 `json:"held_s"` // seconds, summed over them, from when they left to when their work ended
}

// Percentiles of a latency, in milliseconds.
type Percentiles struct {
	Count int64    `json:"count"`
	Mean  *float64 `json:"mean_ms,omitempty"`
	P50   *float64 `json:"p50_ms,omitempty"`
	P90   *float64 `json:"p90_ms,omitempty"`
	P95   *float64 `json:"p95_ms,omitempty"`
	P99   *float64 `json:"p99_ms,omitempty"`
	P999  *float64 `json:"p999_ms,omitempty"`
	Max   *float64 `json:"max_ms,omitempty"`
}

// Wait is time spent waiting for one kind of thing. Of row locks only the total is known, from samples of the server's sessions.
type Wait struct {
	P50   *float64 `json:"p50_ms,omitempty"`
	P99   *float64 `json:"p99_ms,omitempty"`
	Total *float64 `json:"total_s,omitempty"` // seconds, summed over users
}

// ServerSide is what the server counted during a trial.
type ServerSide struct {
	Commits       *int64             `json:"commits,omitempty"`
	Rollbacks     *int64             `json:"rollbacks,omitempty"`
	Deadlocks     *int64             `json:"deadlocks,omitempty"`
	WALBytes      *int64             `json:"wal_bytes,omitempty"`
	LockWaitShare *float64           `json:"lock_wait_share,omitempty"` // sampled sessions that waited for a lock ÷ sampled busy sessions
	LockWaitTotal *float64           `json:"lock_wait_total_s,omitempty"`
	WaitEvents    map[string]float64 `json:"wait_events,omitempty"` // share of sampled busy sessions, by wait event
	SeqScans      map[string]int64   `json:"seq_scans,omitempty"`   // by table
	Samples       int64              `json:"samples,omitempty"`
}

// ClientSide is what lockbench itself cost.
type ClientSide struct {
	CPUSeconds float64 `json:"cpu_s"`
	CPUShare   float64 `json:"cpu_share"` // of the machine's processors over the measured window
}

// Warning is something a reader must know before believing the figures.
type Warning struct {
	Code     string `json:"code"`
	Race     string `json:"race,omitempty"`
	Strategy string `json:"strategy,omitempty"`
	Message  string `json:"message"`
	Fix      string `json:"fix,omitempty"`
}

// Verdict is what the audit says of a claim. The zero value is undetermined.
type Verdict uint8

// The verdicts.
const (
	Undetermined Verdict = iota // too little contention to know
	Sound
	Violated
)

func (v Verdict) String() string { return [...]string{"undetermined", "sound", "violated"}[v] }

// MarshalText writes the verdict's name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads a verdict's name.
func (v *Verdict) UnmarshalText(b []byte) error {
	for _, c := range []Verdict{Undetermined, Sound, Violated} {
		if c.String() == string(b) {
			*v = c
			return nil
		}
	}
	return Hintf("verdicts are sound, violated and undetermined", "%q is not a verdict", b)
}
