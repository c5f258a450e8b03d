// Package fleet lets several processes, on one machine or on many, share the users of a run. One of them, the coordinator, lays the
// tables, watches the server, audits and reports; the others, the workers, each race a part of the users. They meet in the database
// under test and nowhere else: messages are its notifications, what is larger stands in its tables, and a sign of life is a session
// that goes on asking. Only durations travel, each measured by one clock: the clocks of machines are never compared.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/bench"
)

const (
	// beat is how often a process shows that it is alive, and looks whether the others are.
	beat = 500 * time.Millisecond
	// silence is how long a process may show no sign of life before it is given up: a machine that is busy with a hundred thousand users
	// is late now and then.
	silence = 10 * time.Second
)

// order is what a coordinator tells its workers to do.
type order string

const (
	take    order = "take"    // read the plan and open the connections
	start   order = "start"   // make ready for a trial and stand in line
	race    order = "race"    // begin
	recover order = "recover" // put right what crashed users left
	flush   order = "flush"   // publish statistics
	share   order = "share"   // hand over what was measured
	rest    order = "rest"    // close the connections
	soft    order = "soft"    // begin nothing new
	hard    order = "hard"    // stop at once
	end     order = "end"     // the run is over
)

// plan is what the coordinator lays out before a race.
type plan struct {
	Settings bench.Settings `json:"settings"`
	Run      string         `json:"run"` // [bench.Race.Run]
}

// message goes from the coordinator to all workers, or from one of them to the coordinator.
type message struct {
	Step int         `json:"step"` // number of the order that this is, or answers
	Do   order       `json:"do,omitempty"`
	Heat *bench.Heat `json:"heat,omitempty"`
	Only int         `json:"only,omitempty"` // the worker that is meant; 0: all

	From  int  `json:"from,omitempty"`
	Began bool `json:"began,omitempty"` // its users have begun; that they are done is another answer
	// Since is how long ago they had begun when it got round to saying so.
	Since time.Duration `json:"since,omitempty"`
	Cut   bool          `json:"cut,omitempty"`   // it had to stop at once, since operations under way did not end in time
	Error string        `json:"error,omitempty"` // why the order could not be carried out
	Hint  string        `json:"hint,omitempty"`
}

// Line carries what one process says to those at the other end: in order, and to whoever listens at that moment.
type Line interface {
	// Send says something; the text has at most 7999 bytes.
	Send(ctx context.Context, text string) error
	// Receive waits until somebody says something.
	Receive(ctx context.Context) (string, error)
}

// longest keeps an error's text within what a message can hold, escaped as JSON.
const longest = 1200

func send(ctx context.Context, l Line, m message) error {
	if len(m.Error) > longest {
		m.Error = m.Error[:longest] + "…"
	}
	if len(m.Hint) > longest {
		m.Hint = ""
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = l.Send(ctx, string(text))
	}
	return err
}

// listen passes on what is said until ctx ends; an error other than that is the last thing it says.
func listen(ctx context.Context, l Line, said chan<- message, failed chan<- error) {
	for {
		text, err := l.Receive(ctx)
		if ctx.Err() != nil {
			return
		}
		var m message
		if err == nil {
			err = json.Unmarshal([]byte(text), &m)
		}
		if err != nil {
			report(ctx, failed, fmt.Errorf("listening to the other processes: %w", err))
			return
		}
		select {
		case said <- m:
		case <-ctx.Done():
			return
		}
	}
}

// Lost is the error of a worker of which nothing more will be heard.
type Lost struct {
	Name string
	Why  string
}

func (e *Lost) Error() string { return e.Name + " is gone: " + e.Why }

// watch looks every beat whether the others are alive, and thereby shows that this process is. It goes on after a loss, since others may
// follow; any other error ends it.
func watch(ctx context.Context, look func(context.Context) error, failed chan<- error) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asking, cancel := context.WithTimeout(ctx, silence)
		err := look(asking)
		if asking.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("the server has not answered for %v", silence)
		}
		cancel()
		if err == nil || ctx.Err() != nil {
			continue
		}
		report(ctx, failed, err)
		if l := (*Lost)(nil); !errors.As(err, &l) {
			return
		}
	}
}

func report(ctx context.Context, failed chan<- error, err error) {
	select {
	case failed <- err:
	case <-ctx.Done():
	}
}
