package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/bench/sweep"
)

// maxScatter is by which factor points may typically lie off a power law that is still called one.
const maxScatter = 1.5

// sweepSentences are what a person repeats in a meeting: a line a strategy, then what became of retries and of the limit.
func sweepSentences(s *sweep.Sweep) []string {
	p, err := sweep.Lookup(s.Parameter)
	if err != nil {
		return nil
	}
	var all []string
	for i := range s.Curves {
		all = append(all, curveText(s, p, &s.Curves[i]))
	}
	for i := range s.Curves {
		if c := &s.Curves[i]; c.Usable != nil {
			all = append(all, usableText(p, c))
		}
	}
	for i := range s.Curves {
		if text := retryingText(p, &s.Curves[i]); text != "" {
			all = append(all, text)
		}
	}
	for i := range s.Curves {
		if f := s.Curves[i].Scaling; f != nil {
			all = append(all, fmt.Sprintf("%s fits the Universal Scalability Law with λ %s/s, σ %s, κ %s; points typically lie %s %% off it.",
				s.Curves[i].Strategy, number(f.Lambda), number(f.Sigma), tiny(f.Kappa), number(100*f.Off)))
		}
	}
	return all
}

// tiny writes a coefficient that is multiplied with the square of hundreds.
func tiny(v float64) string {
	if v == 0 || v >= 0.001 {
		return number(v)
	}
	return fmt.Sprintf("%.2g", v)
}

// at names a value of the parameter, as "100 users" or "think 5 ms".
func at(p sweep.Parameter, v float64) string {
	switch p.Name {
	case "users", "connections", "rows":
		if v == 1 {
			return "1 " + p.Name[:len(p.Name)-1]
		}
		return p.Text(v) + " " + p.Name
	case "rate":
		return p.Text(v) + " arrivals/s"
	}
	return p.Name + " " + p.Text(v) + " " + p.Unit
}

func curveText(s *sweep.Sweep, p sweep.Parameter, c *sweep.Curve) string {
	points := s.Points(c.Strategy)
	last := points[len(points)-1]
	text := c.Strategy + ": "
	if c.Verdict == bench.Violated {
		text += "NOT sound; "
	}
	text += scaled(last.Cell.Amplification, 1, "") + " attempts per confirmed at " + at(p, last.Value)
	switch g := c.Amplification; {
	case g == nil:
		text += ", too few points for a law of growth"
	case g.Scatter > maxScatter:
		text += ", following no power law"
	case g.Low <= 0 && g.High >= 0 && g.High < 0.05:
		text += fmt.Sprintf(", not growing with %s", p.Name)
	case g.Low <= 0:
		text += fmt.Sprintf(", whether they grow with %s is not settled: %s", p.Name, power(p, g))
	default:
		text += ", growing like " + power(p, g)
	}
	return text + "; " + goodputText(p, c) + "."
}

// power writes a law with its interval, as "users^0.9 (0.8 to 1.0)".
func power(p sweep.Parameter, g *sweep.Growth) string {
	digits := 1
	if g.High-g.Low < 0.2 { // no more digits than the interval supports
		digits = 2
	}
	text := func(v float64) string {
		s := strconv.FormatFloat(v, 'f', digits, 64)
		if strings.Trim(s, "-0.") == "" {
			return strings.TrimPrefix(s, "-") // nothing is negative zero
		}
		return s
	}
	return fmt.Sprintf("%s^%s (%s to %s)", p.Name, text(g.Exponent), text(g.Low), text(g.High))
}

func goodputText(p sweep.Parameter, c *sweep.Curve) string {
	switch {
	case c.Verdict == bench.Violated:
		return "its goodput does not count"
	case c.Best == nil:
		return "nobody was confirmed"
	}
	if c.Scaling == nil {
		text := fmt.Sprintf("most goodput measured at %s", at(p, c.Best.Value))
		if c.NoScaling != "" {
			text += " (" + c.NoScaling + ")"
		}
		return text
	}
	switch c.Scaling.Shape {
	case sweep.Level:
		return fmt.Sprintf("goodput is the same from %s to %s", p.Text(c.Scaling.From), at(p, c.Scaling.To))
	case sweep.Rises:
		if c.Best.Value > c.Scaling.To { // the law is for those who need not wait for a connection
			return fmt.Sprintf("goodput still rises at %s, the most with a connection each, and is best at %s", p.Text(c.Scaling.To), at(p, c.Best.Value))
		}
		return fmt.Sprintf("goodput still rises at %s, the most measured", at(p, c.Scaling.To))
	case sweep.Falls:
		return fmt.Sprintf("goodput is best with %s, the fewest measured", at(p, c.Scaling.From))
	case sweep.Peaks:
	}
	k := c.Scaling.Peak
	text := "best goodput near " + at(p, round(k.At))
	switch {
	case k.Low != nil && k.High != nil:
		text += fmt.Sprintf(" (%s to %s)", p.Text(round(*k.Low)), p.Text(round(*k.High)))
	case k.Low != nil:
		text += fmt.Sprintf(" (%s or more)", p.Text(round(*k.Low)))
	case k.High != nil:
		text += fmt.Sprintf(" (%s or fewer)", p.Text(round(*k.High)))
	default:
		text += " (where exactly these points do not say)"
	}
	return text
}

// round takes what a fit says to whole users.
func round(v float64) float64 { return float64(int64(v + 0.5)) }

func retryingText(p sweep.Parameter, c *sweep.Curve) string {
	r := c.Retrying
	if r == nil || r.Growth == nil || r.To.Retries <= r.From.Retries {
		return ""
	}
	text := fmt.Sprintf("%s: from %s to %s, conflicts went from %s %% to %s %%, operations grew %s ×, retries %s ×: retries per operation like %s",
		c.Strategy, p.Text(r.From.Value), at(p, r.To.Value), number(100*r.From.ConflictRate), number(100*r.To.ConflictRate),
		number(r.To.Operations/r.From.Operations), number(r.To.Retries/r.From.Retries), power(p, r.Growth))
	switch {
	case r.Superlinear:
		text += ", so retries outgrow the volume"
	case p.Name == "users" || p.Name == "rate":
		text += ", so whether retries outgrow the volume is not settled"
	}
	return text + "."
}

func usableText(p sweep.Parameter, c *sweep.Curve) string {
	kept, failed := c.Usable.Kept, c.Usable.Failed
	switch {
	case c.Verdict == bench.Violated:
		return c.Strategy + " is not usable: it is not sound."
	case kept == nil:
		return fmt.Sprintf("%s is not usable even at %s (%s).", c.Strategy, at(p, failed.Value), failed.Figures)
	case failed == nil:
		return fmt.Sprintf("%s is usable at least up to %s, the most tried (%s).", c.Strategy, at(p, kept.Value), kept.Figures)
	}
	return fmt.Sprintf("%s is usable up to about %s (%s; at %s: %s).", c.Strategy, at(p, kept.Value), kept.Figures, p.Text(failed.Value), failed.Figures)
}
