package bench

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// several races with crews that share the users, as processes would, and packs what each measured.
type several struct {
	*fakeStore
	crews []*Crew
	begun sync.WaitGroup // at the barrier
	lost  int            // number of the crew of which nothing is heard, from 1; 0: none
}

func (f *several) Muster(context.Context) (Fleet, error) { return f, nil }

func (f *several) Take(ctx context.Context, r *Race) error {
	return f.each(func(c *Crew) error { return c.Take(ctx, r) })
}

// each lets every crew do the same at the same time.
func (f *several) each(do func(*Crew) error) error {
	errs := make([]error, len(f.crews))
	var wg sync.WaitGroup
	for i, c := range f.crews {
		wg.Go(func() { errs[i] = do(c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (f *several) Start(ctx context.Context, h Heat, live *Live) error {
	return f.each(func(c *Crew) error { return c.Start(ctx, h, live) })
}

func (f *several) Race(context.Context, *Stop) error {
	f.begun.Add(len(f.crews))
	err := f.each(func(c *Crew) error {
		return c.Run(func() error { f.begun.Done(); f.begun.Wait(); return nil })
	})
	if f.lost > 0 {
		err = errors.New("a crew is gone")
	}
	return err
}

func (f *several) Recover(ctx context.Context) error { return f.crews[0].Recover(ctx) }
func (f *several) Flush(ctx context.Context) error {
	return f.each(func(c *Crew) error { return c.Flush(ctx) })
}

func (f *several) Shares(context.Context) ([]*Share, error) {
	var all []*Share
	for i, c := range f.crews {
		if i+1 == f.lost {
			all = append(all, &Share{Instance: Instance{Name: "the lost one", Lost: "gone"}})
			continue
		}
		b, err := c.Share().MarshalBinary()
		if err != nil {
			return nil, err
		}
		s := &Share{}
		if err := s.UnmarshalBinary(b); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (f *several) Close() {
	for _, c := range f.crews {
		c.Close()
	}
}

// executeShared is execute with the users shared by n crews.
func (g *rig) executeShared(f *several, n int) (*Report, error) {
	g.t.Helper()
	g.settings.Instances = n
	race, err := Compile(g.settings, []Strategy{g.strategy}, []Scenario{g.scenario}, Connecting{})
	if err != nil {
		g.t.Fatal(err)
	}
	f.fakeStore = g.store
	for i := range n {
		f.crews = append(f.crews, NewCrew(g.store, g.stop, i, n))
	}
	return race.Execute(g.t.Context(), f, g.stop, g)
}

// TestSharedUsersSendTheSameRequests: the n-th request is the same however many processes there are, and so are the users.
func TestSharedUsersSendTheSameRequests(t *testing.T) {
	for name, change := range map[string]func(*Settings){
		"burst":  func(s *Settings) { s.Users = 23 },
		"closed": func(s *Settings) { s.Mode, s.Users, s.Operations = Closed, 6, 100 },
		"open":   func(s *Settings) { s.Mode, s.Users, s.Rate, s.Duration = Open, 50, 100, Duration(2*time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			run := func(crews int) (requests []string, users map[int64]bool, rep *Report) {
				synctest.Test(t, func(t *testing.T) {
					g := newRig(t)
					g.settings.Rows, g.settings.Capacity, g.settings.Connections = 7, 999, 5
					change(&g.settings)
					var err error
					if rep, err = g.executeShared(&several{}, crews); err != nil {
						t.Fatal(err)
					}
					users = map[int64]bool{}
					for _, told := range g.scenario.told.Confirmed {
						users[told.User] = true
						told.User = 0 // who sends the n-th request is chance: whoever is free
						requests = append(requests, fmt.Sprintf("%08d %+v", told.Op, told.Request))
					}
					slices.Sort(requests)
				})
				return requests, users, rep
			}
			want, wantUsers, alone := run(1)
			if len(want) == 0 || alone.Cells[0].Instances != nil {
				t.Fatalf("one crew: %d requests, instances %v", len(want), alone.Cells[0].Instances)
			}
			got, users, rep := run(3)
			if !slices.Equal(got, want) {
				t.Errorf("three crews sent\n%v\none sent\n%v", got, want)
			}
			if name == "burst" && !reflect.DeepEqual(users, wantUsers) {
				t.Errorf("users %v, want %v", users, wantUsers)
			}
			c, sum := &rep.Cells[0], Instance{}
			for _, in := range c.Instances {
				sum.Operations += in.Operations
				sum.Attempts += in.Attempts
				sum.Confirmed += in.Confirmed
				sum.Users += in.Users
				sum.Connections += in.Connections
				if in.Operations == 0 {
					t.Errorf("an instance did nothing: %+v", in)
				}
			}
			if want := (Instance{Operations: c.Operations, Attempts: c.Attempts, Confirmed: c.Outcomes["confirmed"], Users: rep.Plan.Users, Connections: 5}); sum != want {
				t.Errorf("instances add up to %+v, want %+v", sum, want)
			}
		})
	}
}

// TestLostCrewIsNotAudited: with it went what its users were told, and what they wrote would look like anomalies.
func TestLostCrewIsNotAudited(t *testing.T) {
	g := newRig(t)
	g.settings.Users, g.settings.Connections, g.settings.Trials = 20, 4, 1
	rep, err := g.executeShared(&several{lost: 2}, 2)
	if err == nil || !rep.Partial {
		t.Fatalf("error %v, partial %v", err, rep.Partial)
	}
	c := &rep.Cells[0]
	if c.Verdict != Undetermined || len(c.Findings) > 0 || c.Operations != 10 || len(c.Instances) != 2 || c.Instances[1].Lost != "gone" {
		t.Errorf("verdict %v, findings %v, operations %d, instances %+v", c.Verdict, c.Findings, c.Operations, c.Instances)
	}
}
