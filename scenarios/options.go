package scenarios

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench"
)

// on reports whether a switch is on.
func on(p bench.Params, name string) bool { return p.Options[name] == "on" }

// share reads an option such as 20%, as a fraction of 1.
func share(p bench.Params, name string, def float64) (float64, error) {
	text, given := p.Options[name]
	if !given {
		return def, nil
	}
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !percent || !(n >= 0 && n <= 100) {
		return 0, bench.Hintf("write --"+name+" 20%", "--%s: %q is no share from 0%% to 100%%", name, text)
	}
	return n / 100, nil
}

// count reads an option that is a whole number.
func count(p bench.Params, name string, def, least, most int64) (int64, error) {
	text, given := p.Options[name]
	if !given {
		return def, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, bench.Hintf("give a number from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10), "--%s cannot be %q", name, text)
	}
	return n, nil
}

// span reads an option that is a duration.
func span(p bench.Params, name string, def time.Duration) (time.Duration, error) {
	text, given := p.Options[name]
	if !given {
		return def, nil
	}
	return bench.ParseDuration(text)
}

// call is how long another system takes to answer: a log-normal distribution, as response times of services roughly are, given by its
// median and its 99th percentile.
type call struct{ p50, p99 time.Duration }

// callOption is the flag of scenarios that call another system.
const callOption = "call"

func callDoc(def call) bench.OptionDoc {
	return bench.OptionDoc{Name: callOption, Values: []string{"p50=DURATION,p99=DURATION"}, Doc: "how long another system takes to answer (default " + def.String() + ")"}
}

func (c call) String() string { return "p50=" + c.p50.String() + ",p99=" + c.p99.String() }

func readCall(p bench.Params, def call) (call, error) {
	text, given := p.Options[callOption]
	if !given {
		return def, nil
	}
	const hint = "write --" + callOption + " p50=200ms,p99=2s, or none"
	if text == "none" {
		return call{}, nil
	}
	var c call
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		d, err := bench.ParseDuration(value)
		if err != nil {
			return c, bench.Hintf(hint, "--%s: %v", callOption, err)
		}
		switch name {
		case "p50":
			c.p50 = d
		case "p99":
			c.p99 = d
		default:
			return c, bench.Hintf(hint, "--%s knows p50 and p99, not %q", callOption, name)
		}
	}
	if c.p99 == 0 {
		c.p99 = c.p50
	}
	if c.p50 <= 0 || c.p99 < c.p50 {
		return c, bench.Hintf(hint, "--%s %q needs a p50 above 0 and a p99 that is not below it", callOption, text)
	}
	return c, nil
}

// normalAt99 is the 99th percentile of the standard normal distribution.
const normalAt99 = 2.3263478740408408

// draw takes one sample.
func (c call) draw(rng *rand.Rand) time.Duration {
	if c.p50 == 0 {
		return 0
	}
	sigma := math.Log(float64(c.p99)/float64(c.p50)) / normalAt99
	return time.Duration(float64(c.p50) * math.Exp(sigma*rng.NormFloat64()))
}
