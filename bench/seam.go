package bench

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Lends says which ways of reading and writing a strategy protects, and so lends to an operation. What it cannot protect it
// does not lend: the scenario then says why the combination makes no sense.
type Lends uint16

// What a strategy may lend.
const (
	LendsRow    Lends = 1 << iota // [Tx.Get] and [Tx.Put] of the row asked for
	LendsChange                   // [Tx.Apply]: rule and change in one statement
	LendsAny                      // [Tx.Take] of any free row, and [Tx.Put] to it
	LendsBatch                    // [Tx.Claim] of the first free rows, and [Tx.Put] to them
	LendsGroup                    // [Tx.List] of rows that belong together, and [Tx.Put] to one of them
	LendsInsert                   // [Tx.Insert] of a row
	LendsGrab                     // [Tx.Grab]: finding free rows and claiming them in one statement
	LendsSteps                    // an operation in several transactions, each undone by a compensation
	LendsUndo                     // a later transaction that takes back what an earlier one wrote
)

// Has reports whether everything in want is lent.
func (l Lends) Has(want Lends) bool { return l&want == want }

// Tx is what a strategy lends to one attempt of an operation. An error from it ends the attempt: the operation returns it unchanged
// and the engine decides whether the whole transaction is tried again.
type Tx interface {
	// Get reads a row under the strategy's protection; false if there is none.
	Get(t *Table, key int64) (Row, bool, error)
	// List reads the rows of a group, in the order of their keys, under the strategy's protection.
	List(t *Table, group int64) ([]Row, error)
	// Put writes the values of row, which were computed from what Get read as old.
	Put(t *Table, old, row Row) error
	// Apply makes a guarded change in one statement; false if the guard did not hold or there is no such row.
	Apply(c *Change, key int64, operands ...int64) (bool, error)
	// Peek reads a row without protection, to tell why Apply refused.
	Peek(t *Table, key int64) (Row, bool, error)
	// Take reads any free row and keeps others away from it; false if none is to be had.
	Take(t *Table) (Row, bool, error)
	// Claim reads the first free rows, n at the most, in the order of their keys, under the strategy's protection.
	Claim(t *Table, n int64) ([]Row, error)
	// Grab claims the first free rows, n at the most, by writing by into the column of [Table.Free], and returns their keys: finding a row
	// and claiming it are one statement.
	Grab(t *Table, n, by int64) ([]int64, error)
	// Insert adds a row, unless there is one with its key already: then it reports false. It waits for whoever is adding that row.
	Insert(t *Table, row Row) (bool, error)
	// Think spends the time of --think, where the application would compute, inside the transaction.
	Think()
}

// Session is a strategy at work on one connection. Not safe for concurrent use.
type Session interface {
	Tx
	Begin(r *Request) error
	// Wrote reports whether the attempt has written: a rejection after a write is rolled back, any other is committed, since under
	// serializable a "no" may be believed only once its reads have committed.
	Wrote() bool
	Commit() error
	// Rollback ends the transaction after an error or a rejection; it reports a connection that can no longer be used.
	Rollback() error
}

// Discipline is a strategy bound to a scenario's tables and to its options: its SQL is written, nothing is connected yet.
type Discipline interface {
	Lends() Lends
	// Statements lists the exact SQL in the order in which an attempt sends it, BEGIN and COMMIT included.
	Statements() []*Stmt
	// Isolation is the level as a person writes it, for example "read committed".
	Isolation() string
	// Open starts a session on a connection on which the statements are prepared.
	Open(c Conn, think func()) Session
}

// Gate is a discipline that holds its lock outside the database: the engine passes it before it takes a connection, and the time
// spent is lock wait.
type Gate interface {
	// Enter waits until the operation may go on. It returns an error when ctx ends first. A [*Fault] is a lost race, to be tried again.
	Enter(ctx context.Context, r *Request) (*Hold, error)
}

// Uniquer is a discipline to which a unique violation (23505) is a lost race, not a failure.
type Uniquer interface{ UniqueIsContention() bool }

// Leaky is a discipline made to show a leak: it claims nothing, and that it leaves locks behind is no fault of lockbench's.
type Leaky interface{ Leaks() bool }

// Explained is a discipline whose result rests on how the server plans a statement. That plan goes into the report.
type Explained interface {
	// Explain returns the statement, and its arguments in a request like r.
	Explain(r *Request) (s *Stmt, args []int64)
}

// Binding is what a strategy needs to write its SQL.
type Binding struct {
	Tables      []*Table
	Changes     []*Change // the guarded changes the scenario may apply
	SingleWrite bool      // the scenario's transaction writes one row, in its last statement
	Options     Options
	Pipeline    bool              // --pipeline-begin
	Pooled      bool              // a transaction pooler stands in front: no session state survives a transaction
	Services    map[string]string // addresses of lock services, by strategy; absent: its usual one
	TTL         time.Duration     // of a lease, where a lock is one
	Stall       Stall
}

// Anomaly is something that must not happen, as an audit finds it.
type Anomaly string

// The anomalies.
const (
	Overbooking  Anomaly = "overbooking"
	LostUpdate   Anomaly = "lost update"
	FalseSoldOut Anomaly = "false sold-out"
	Negative     Anomaly = "negative quantity"
	WriteSkew    Anomaly = "write skew"
	Phantom      Anomaly = "phantom"
	DoubleCharge Anomaly = "double charge"
	Stuck        Anomaly = "stuck reservation"
	DoubleUndo   Anomaly = "double compensation"
	OverLimit    Anomaly = "batch over its limit"
	Leak         Anomaly = "leaked lock"
)

// InOneProcess is the scope of a claim that holds only as long as one process has all users.
const InOneProcess = "in one process"

// StrategyInfo describes a strategy; list, show, completion and docs are loops over it.
type StrategyInfo struct {
	Name     string      `json:"name"`
	Summary  string      `json:"summary"`           // one line
	How      string      `json:"how"`               // what it does, for a design review
	Prevents []Anomaly   `json:"prevents"`          // its claim; empty: it claims nothing
	Scope    string      `json:"scope"`             // where the claim holds, as [InOneProcess]; "" everywhere
	LoserIs  string      `json:"loser"`             // what the loser of a race sees
	Use      string      `json:"use"`               // when to use it
	Mistakes string      `json:"mistakes"`          // what people get wrong
	Options  []OptionDoc `json:"options"`           // its own, beside the shared ones
	Variants []string    `json:"variants"`          // specs worth running side by side, for the conformance tests and docs
	External bool        `json:"external"`          // needs a service beside the database; left out of "all"
	Address  string      `json:"address,omitempty"` // where that service usually is
}

// Strategy is a concurrency-control discipline. One file of package strategies each.
type Strategy interface {
	Info() StrategyInfo
	// Bind writes the SQL. It returns a [*NotApplicable] for a combination that makes no sense, and an ordinary error for a bad option.
	Bind(b Binding) (Discipline, error)
}

// NotApplicable is why a strategy and a scenario make no sense together; such a cell is refused or stands as n/a.
type NotApplicable struct {
	Reason string
	Remedy string // a command or value that does make sense
}

func (e *NotApplicable) Error() string { return e.Reason }

// Hint returns what to do instead.
func (e *NotApplicable) Hint() string { return e.Remedy }

// OptionDoc documents one inline option.
type OptionDoc struct {
	Name   string   `json:"name"`
	Values []string `json:"values"` // words it takes; "DURATION" and "N" stand for themselves; empty: a flag without value
	Doc    string   `json:"doc"`
}

// Options are a strategy's inline options.
type Options map[string]string

// Claims reports whether the strategy claims to prevent a.
func (i *StrategyInfo) Claims(a Anomaly) bool {
	for _, p := range i.Prevents {
		if p == a {
			return true
		}
	}
	return false
}

// Params are the parameters of a run as a scenario sees them.
type Params struct {
	Options  Options // the scenario's own flags that were given
	Rows     int64
	Capacity int64
	Users    int
	Endless  bool // users loop (closed, open): capacity should outlast the run
	// Idempotent is option idempotency=on of the cell's strategy: a request that comes again is answered, not done again.
	Idempotent bool
}

// ScenarioInfo describes a scenario.
type ScenarioInfo struct {
	Name      string `json:"name"`
	Summary   string `json:"summary"`
	Story     string `json:"story"`     // what happens, for a reader
	Invariant string `json:"invariant"` // what the audit checks
	Unit      string `json:"unit"`      // what --rows counts, in the plural
	// Anomalies are what can go wrong here, first what the scenario is about: a strategy that does not claim to prevent that is never
	// called sound.
	Anomalies []Anomaly   `json:"anomalies"`
	Options   []OptionDoc `json:"options,omitempty"` // each is a flag of run
	// Variants are options worth running beside the defaults, for docs.
	Variants []Options `json:"variants,omitempty"`
}

// Drawer is a scenario whose requests have more to them than the row asked for.
type Drawer interface {
	// Draw completes a request; all its randomness is rng's.
	Draw(p Params, rng *rand.Rand, r *Request)
}

// Classer is a scenario whose users are of several kinds, which are reported apart: a request's Class is a place in Classes.
type Classer interface{ Classes() []string }

// Staker is a scenario whose options decide what can go wrong.
type Staker interface {
	// AtStake takes the place of [ScenarioInfo.Anomalies].
	AtStake(p Params) []Anomaly
}

// Varied is a scenario that is another one under some of its options, with other tables or other operations.
type Varied interface{ Variant(p Params) Scenario }

// Mixer is a scenario in which some users do not follow the strategy, those whose request is Rogue. A strategy claims nothing then: its
// rule protects only if every writer follows it.
type Mixer interface {
	// Rogue is what they follow instead, as in --strategy; "" if nobody is rogue.
	Rogue(p Params) string
}

// Recoverer is a scenario that has something to put right after a race, as a service would when it comes up again after a crash.
type Recoverer interface {
	// Recover is called once, after the last user, with what the database holds. It uses [User.Transact].
	Recover(u *User, p Params, db Snapshot)
}

// Resender is a scenario whose clients lose patience: one that has no answer after a while sends the same request once more, while
// the first is still being worked on.
type Resender interface {
	// Resend returns after how long, and how often at the most; 0 for never.
	Resend(p Params) (after time.Duration, most int)
}

// Deliverer is a scenario to which the same request comes several times.
type Deliverer interface {
	// Deliveries is how many operations in a row are one request: they are drawn alike.
	Deliveries(p Params) int64
}

// Historian is a scenario whose audit looks at every refusal, not only at the first of a row.
type Historian interface{ NeedsRefusals(p Params) bool }

// Scenario is the data, the operations and the invariant. One file of package scenarios each.
type Scenario interface {
	Info() ScenarioInfo
	// Fit fills in what the user left open (0) and refuses what makes no sense.
	Fit(p Params) (Params, error)
	Tables() []*Table
	Changes() []*Change
	// SingleWrite reports whether a transaction of this scenario writes one row, in its last statement.
	SingleWrite() bool
	// Fill says what the tables hold before a trial.
	Fill(p Params) []Fill
	// Operation returns the operation in the form that suits what the strategy lends, or a [*NotApplicable].
	Operation(l Lends, p Params) (Operation, error)
	// Audit compares what users were told with what the database holds.
	Audit(p Params, told *Ledger, db Snapshot) Audit
}

// Operation is one business request. It calls [User.Transact] once for each transaction it needs.
type Operation func(u *User, r *Request) Answer

// Body is one transaction of an operation, in plain Go: read, decide, write.
type Body func(tx Tx, r *Request) (Answer, error)

// Single makes an operation of a single transaction.
func Single(body Body) Operation {
	return func(u *User, r *Request) Answer { return u.Transact(body, r) }
}

// ThinkFirst makes an operation of a single transaction that has no gap between read and write: the user thinks before it takes a
// connection, so that every strategy's user does the same work, and no lock or connection is held meanwhile.
func ThinkFirst(body Body) Operation {
	return func(u *User, r *Request) Answer {
		u.Think()
		return u.Transact(body, r)
	}
}

// Request is one operation as drawn from the seed.
type Request struct {
	Op       int64 // number of the operation in its trial, from 0
	User     int64 // from 1
	Key      int64 // the row, or the group of rows, asked for
	To       int64 // the second row, where an operation has two; else 0
	Quantity int64
	Sorted   bool          // two rows are taken in the order of their keys, not as they were drawn
	Rogue    bool          // follows what [Mixer] says instead of the strategy
	Class    uint8         // a place in [Classer.Classes]
	Call     time.Duration // how long another system will take to answer
	Mark     int64         // the scenario's own
}

// Snapshot is what the database holds after a trial, by table name.
type Snapshot map[string][]Row

// Find returns a table's row with the key; rows are in the order of their keys.
func (s Snapshot) Find(table string, key int64) (Row, bool) {
	rows := s[table]
	if i := key - 1; i >= 0 && i < int64(len(rows)) && rows[i].Key == key {
		return rows[i], true
	}
	i, found := slices.BinarySearchFunc(rows, key, func(r Row, key int64) int { return cmp.Compare(r.Key, key) })
	if !found {
		return Row{}, false
	}
	return rows[i], true
}

// Conn is a database connection as the strategies use it. Its methods take no context: a watched context costs a goroutine a statement
// and kills the connection when it ends. A run that is stopped hard closes its connections instead, and the deadline of an
// operation is the session's statement_timeout.
//
// Errors are [*Fault].
type Conn interface {
	// Begin opens a transaction with b.SQL, in one round trip, or in none when the run pipelines BEGIN with the next statement.
	Begin(b *Stmt) error
	// Query runs a prepared statement and stores its result in into.
	Query(s *Stmt, args []int64, into *Rows) error
	// Exec runs a prepared statement and returns the number of rows it affected. Outside a transaction it commits by itself.
	Exec(s *Stmt, args []int64) (int64, error)
	// Last is Exec of a transaction's only write and COMMIT in one round trip. It commits whatever the number of affected rows, so it
	// suits a transaction that wrote nothing else.
	Last(s *Stmt, args []int64) (affected int64, err error)
	Commit() error
	Rollback() error
}

// Pool is a set of open, warm connections.
type Pool interface {
	// Prepare makes the statements and the time limits ready on every connection.
	Prepare(ctx context.Context, cfg SessionConfig) error
	Conns() []Conn
	// Replace closes a broken connection and opens another in its place, with the same statements.
	Replace(ctx context.Context, broken Conn) (Conn, error)
	// Flush makes the server publish the statistics that its sessions still hold back.
	Flush(ctx context.Context) error
	// Abort closes every connection at once, running statements included, and returns when the server has let go of them. It may be
	// called at any time.
	Abort() error
	Close()
}

// PoolConfig sizes a pool.
type PoolConfig struct {
	Connections int
	Pipeline    bool // BEGIN rides with the first statement, COMMIT with the last
}

// SessionConfig is what a cell needs on each of its connections.
type SessionConfig struct {
	Statements  []*Stmt
	Deadline    time.Duration // statement_timeout; 0: none
	LockTimeout time.Duration // lock_timeout; 0: none
}

// Store is the database under test.
type Store interface {
	// Describe returns the facts that a report carries.
	Describe(ctx context.Context) (Server, error)
	// Prepare creates the marked schema, or refuses what is not lockbench's.
	Prepare(ctx context.Context) error
	Open(ctx context.Context, cfg PoolConfig) (Pool, error)
	// Restore lays the tables anew for a trial: filled, vacuumed, analysed, and a checkpoint behind it where that is allowed.
	Restore(ctx context.Context, fills []Fill) error
	Snapshot(ctx context.Context, tables []*Table) (Snapshot, error)
	// Leaks counts what a trial left behind: advisory locks, open and prepared transactions.
	Leaks(ctx context.Context) (int64, error)
	// Plan returns, line by line, how the server would carry out s in a transaction that begin opens. Nothing is carried out.
	Plan(ctx context.Context, begin, s *Stmt, args []int64) ([]string, error)
	// Observe starts watching the server's side of a trial.
	Observe(ctx context.Context) (Observation, error)
}

// Observation watches the server while a trial runs.
type Observation interface {
	// End stops watching and returns what was seen.
	End(ctx context.Context) (ServerSide, error)
}

// Nearest returns the candidate most like word, for hints; "" if none is near.
func Nearest(word string, candidates []string) string {
	best, score := "", len(word)/2+2
	for _, c := range candidates {
		if strings.HasPrefix(c, word) && word != "" {
			return c
		}
		if d := editDistance(word, c); d < score {
			best, score = c, d
		}
	}
	return best
}

func editDistance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, prev[j+1]+1, prev[j]+cost)
		}
		prev = row
	}
	return prev[len(b)]
}
