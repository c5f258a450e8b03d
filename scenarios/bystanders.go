package scenarios

import (
	"math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// Bystanders is the inventory with one item that everybody wants and users who want something else, out of the same pool of connections.
type Bystanders struct{ Inventory }

// The flags of bystanders.
const (
	hotShare = "hot"
	hold     = "hold"
	nested   = "nested"
)

const (
	usualHot  = 0.2
	usualHold = 20 * time.Millisecond
)

// The kinds of users, as places in Classes.
const (
	hotUser   = 0
	bystander = 1
)

// Info describes the scenario.
func (Bystanders) Info() bench.ScenarioInfo {
	info := Inventory{}.Info()
	info.Name = "bystanders"
	info.Summary = "users of other rows, while some hammer row 1 and hold it for --hold"
	info.Story = "A share of the users, --hot, wants item 1 and works on it for --hold inside the transaction; the others, the bystanders, want any other item. All share the connections. Hot users who wait for the row's lock wait with a connection in their hands, and soon there is none left for the bystanders, whose rows are free. " +
		"Told at once that the row is busy, or after a short lock timeout, hot users give the connection back and wait without it. With --nested everybody takes a second connection from the same pool inside the transaction, and once every connection is held by somebody who waits for another, nobody gets on."
	info.Options = []bench.OptionDoc{
		{Name: hotShare, Values: []string{"N%"}, Doc: "users who want row 1 (default 20%)"},
		{Name: hold, Values: []string{"DURATION"}, Doc: "how long a hot user works on the row (default 20ms)"},
		{Name: nested, Values: []string{"on", "off"}, Doc: "every transaction takes a second connection from the same pool (default off)"},
	}
	return info
}

// Fit sets a hundred items with stock for everybody.
func (Bystanders) Fit(p bench.Params) (bench.Params, error) {
	if p.Rows == 0 {
		p.Rows = 100
	}
	if p.Rows < 2 {
		return p, bench.Hintf("use --rows 2 or more", "bystanders need another row than the hot one, there is %d", p.Rows)
	}
	if p.Capacity == 0 && !p.Endless {
		p.Capacity = int64(p.Users)
	}
	p, err := Inventory{}.Fit(p)
	if err != nil {
		return p, err
	}
	if _, err = share(p, hotShare, usualHot); err != nil {
		return p, err
	}
	_, err = span(p, hold, usualHold)
	return p, err
}

// Classes tells hot users from bystanders.
func (Bystanders) Classes() []string { return []string{"hot", "bystanders"} }

// Draw sends a user to the hot row or to another.
func (Bystanders) Draw(p bench.Params, rng *rand.Rand, r *bench.Request) {
	n, _ := share(p, hotShare, usualHot) // Fit has read both
	if rng.Float64() < n {
		r.Class, r.Key = hotUser, 1
		r.Call, _ = span(p, hold, usualHold)
		return
	}
	r.Class, r.Key = bystander, 2+rng.Int64N(p.Rows-1)
}

// Operation reserves a unit, and hot users take their time over it.
func (Bystanders) Operation(l bench.Lends, p bench.Params) (bench.Operation, error) {
	if l.Has(bench.LendsChange) {
		return func(u *bench.User, r *bench.Request) bench.Answer {
			u.Think()
			return u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
				return reserveAtOnce(tx, r)
			}, r)
		}, nil
	}
	return func(u *bench.User, r *bench.Request) bench.Answer {
		return u.Transact(func(tx bench.Tx, r *bench.Request) (bench.Answer, error) {
			if on(p, nested) { // as for a record that must be written even if this transaction is rolled back
				if _, err := u.Nested(func(bench.Tx, *bench.Request) (bench.Answer, error) { return bench.Yes(), nil }, r); err != nil {
					return bench.Answer{}, err
				}
			}
			return reserveWith(tx, r, func() error { u.Spend(r.Call); return nil })
		}, r)
	}, nil
}
