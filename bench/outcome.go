package bench

import (
	"errors"
	"fmt"
)

// Outcome is the final answer a user was given.
type Outcome uint8

// The outcomes. Pending is the zero value: an operation that has no answer yet.
const (
	Pending       Outcome = iota
	Confirmed             // the user was told yes
	Rejected              // the business rule said no: correct, final, never retried
	NotFound              // there is no such row, as far as the operation could see
	Busy                  // contention was not resolved within the retry budget: try later
	Indeterminate         // COMMIT was sent and its answer was lost
	Failed                // a fault of the server, the network or lockbench
	outcomes
)

// Outcomes lists every final outcome in the order of reports.
func Outcomes() []Outcome {
	return []Outcome{Confirmed, Rejected, NotFound, Busy, Indeterminate, Failed}
}

func (o Outcome) String() string {
	return [...]string{"pending", "confirmed", "rejected", "not_found", "busy", "indeterminate", "failed"}[o]
}

// Contention is how an attempt lost a race.
type Contention uint8

// The kinds of contention; the zero value is none.
const (
	NoContention  Contention = iota
	Version                  // a guarded write matched 0 rows
	Serialization            // SQLSTATE 40001, at a statement or at COMMIT
	Deadlock                 // SQLSTATE 40P01
	Nowait                   // SQLSTATE 55P03, at once
	LockTimeout              // SQLSTATE 55P03, after waiting
	Unique                   // SQLSTATE 23505 where the strategy uses it
	Lease                    // a distributed lock was lost
	Fenced                   // a write was refused for a stale fencing token
	contentions
)

// Contentions lists every kind in the order of reports.
func Contentions() []Contention {
	return []Contention{Version, Serialization, Deadlock, Nowait, LockTimeout, Unique, Lease, Fenced}
}

func (c Contention) String() string {
	return [...]string{"none", "version", "serialization", "deadlock", "nowait", "lock_timeout", "unique", "lease", "fenced"}[c]
}

// Class sorts the errors of an attempt. A [Store] classifies in one function; the engine never looks at an error otherwise.
type Class uint8

// The classes. ClassFailed is the zero value: what nobody recognised is a failure, never contention.
const (
	ClassFailed        Class = iota
	ClassContention          // lost a race: may be tried again as a whole
	ClassTimeout             // the statement ran into the operation's deadline
	ClassIndeterminate       // COMMIT was sent, its answer lost
	ClassAborted             // lockbench itself ended the connection (hard stop)
)

// Fault is the error of an attempt with its class.
type Fault struct {
	Class    Class
	Kind     Contention // with ClassContention
	SQLState string     // "" when the error did not come from the server
	Broken   bool       // the connection cannot be used again
	Aborted  bool       // lockbench itself ended the connection
	Err      error
}

func (f *Fault) Error() string {
	if f.Err != nil {
		return f.Err.Error()
	}
	return fmt.Sprintf("contention: %s", f.Kind)
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// errLost are the faults a strategy raises itself, made once since they are the hot path of a contended run.
var errLost = func() (all [contentions]*Fault) {
	for k := range all {
		all[k] = &Fault{Class: ClassContention, Kind: Contention(k)}
	}
	return all
}()

// Lost returns the error of an attempt that lost a race without an error from the server, as a guarded write that matched 0 rows.
func Lost(kind Contention) error { return errLost[kind] }

// Crash returns the error of an attempt whose process is killed between two statements: its connection closes without a word, and its
// user never hears.
func Crash() error { return errCrash }

var errCrash = &Fault{Class: ClassIndeterminate, Broken: true, Err: errors.New("the process was killed between two steps")}

// faultOf returns err's fault; an error without one is a failure.
func faultOf(err error) *Fault {
	var f *Fault
	if errors.As(err, &f) {
		return f
	}
	return &Fault{Class: ClassFailed, Err: err}
}

// Answer is what an operation tells its user.
type Answer struct {
	Outcome Outcome
	Reason  Reason  // of a rejection
	Key     int64   // the row the answer is about; 0: the one asked for
	Batch   []int64 // the rows the answer is about, where it is about several
	// Returned says that what was confirmed was given back before the operation ended.
	Returned bool
}

// Reason says which rule rejected an operation.
type Reason string

// The reasons of the seat and stock scenarios.
const (
	AlreadyAssigned Reason = "already assigned"
	SoldOut         Reason = "sold out"
)

// Yes confirms the request.
func Yes() Answer { return Answer{Outcome: Confirmed} }

// No rejects the request for a reason of business.
func No(r Reason) Answer { return Answer{Outcome: Rejected, Reason: r} }

// Unknown says that the row asked for does not exist.
func Unknown() Answer { return Answer{Outcome: NotFound} }
