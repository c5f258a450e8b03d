package scenarios

import (
	"math/rand/v2"

	"github.com/lockbench/lockbench/bench"
)

// Mixed is the inventory with some writers who do not follow the rule that the others follow.
type Mixed struct{ Inventory }

// The flags of mixed.
const (
	rogueShare = "rogue"
	rogueAs    = "rogue-as"
)

const usualRogues = 0.1

// Info describes the scenario.
func (Mixed) Info() bench.ScenarioInfo {
	info := Inventory{}.Info()
	info.Name = "mixed"
	info.Summary = "inventory, and a share of writers ignores the rule"
	info.Story = "Most users follow the strategy. The others, --rogue of them, do what --rogue-as says: by default they read without a lock and write an absolute value. A lock keeps out only those who ask for it: a rogue waits for the holder's COMMIT and then overwrites what he wrote. " +
		"A version column shows a follower that a rogue wrote meanwhile only if the rogue counts it up (none:bump, atomic:bump), and nothing shows a rogue what he overwrites."
	info.Options = []bench.OptionDoc{
		{Name: rogueShare, Values: []string{"N%"}, Doc: "writers who ignore the rule (default 10%)"},
		{Name: rogueAs, Values: []string{"SPEC"}, Doc: "what they do instead, as in --strategy (default none)"},
	}
	info.Variants = []bench.Options{{rogueAs: "none:bump"}}
	return info
}

// Fit sets an item with stock for every user, so that nobody is refused before he could do harm.
func (Mixed) Fit(p bench.Params) (bench.Params, error) {
	if p.Capacity == 0 && !p.Endless {
		p.Capacity = int64(p.Users)
	}
	p, err := Inventory{}.Fit(p)
	if err == nil {
		_, err = share(p, rogueShare, usualRogues)
	}
	return p, err
}

// Rogue is --rogue-as.
func (Mixed) Rogue(p bench.Params) string {
	if n, _ := share(p, rogueShare, usualRogues); n == 0 {
		return ""
	}
	if as := p.Options[rogueAs]; as != "" {
		return as
	}
	return "none"
}

// Draw decides who is rogue.
func (Mixed) Draw(p bench.Params, rng *rand.Rand, r *bench.Request) {
	n, _ := share(p, rogueShare, usualRogues) // Fit has read it
	r.Rogue = rng.Float64() < n
}
