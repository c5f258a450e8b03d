package trace

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// moment is a place in a race at which something is to be said. A statement that waits has several, between which others act.
type moment struct {
	seq  int
	ms   float64
	e    *Event
	what what
	wait *Wait // of a wait
}

type what int

const (
	whole what = iota // an event that nothing interrupts
	start
	wait // whom an event under way waits for
	end
)

// moments puts a race in order.
func moments(events []*Event) []moment {
	var all []moment
	for _, e := range events {
		if len(e.Waits) == 0 {
			all = append(all, moment{e.Seq, e.StartMS, e, whole, nil})
			continue
		}
		all = append(all, moment{e.Seq, e.StartMS, e, start, nil})
		for i := range e.Waits {
			w := &e.Waits[i]
			all = append(all, moment{w.Seq, w.AtMS, e, wait, w})
		}
		if e.TookMS != nil {
			all = append(all, moment{e.End, e.StartMS + *e.TookMS, e, end, nil})
		}
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.seq - b.seq })
	return all
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// Filled returns the statement with its parameters' values in their places, for reading.
func (e *Event) Filled() string {
	return parameter.ReplaceAllStringFunc(e.SQL, func(p string) string {
		n, err := strconv.Atoi(p[1:])
		if err != nil || n < 1 || n > len(e.Args) {
			return p
		}
		return literal(e.Args[n-1])
	})
}

func literal(v *int64) string {
	if v == nil {
		return "NULL"
	}
	return strconv.FormatInt(*v, 10)
}

// asked is what the user did.
func (e *Event) asked() string {
	switch e.Kind {
	case Gate:
		return "enters the gate"
	case Think:
		return "thinks"
	case Told:
		return "told: " + e.verdict()
	case Note:
		return e.Text
	case Statement:
	}
	return e.Filled()
}

// verdict is an answer in words.
func (e *Event) verdict() string {
	text := strings.ReplaceAll(e.Outcome, "_", " ")
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	if len(e.Got) > 0 {
		text += ", row" + plural(len(e.Got)) + " " + numbers(e.Got)
	}
	return text
}

// came is what came back: the rows, what was read, and how the race was lost.
func (e *Event) came() string {
	switch {
	case e.TookMS == nil:
		return "no answer"
	case e.Kind == Gate && e.Error == "":
		return "is in"
	case e.SQLState != "":
		return "ERROR " + e.SQLState + e.loss()
	case e.Error != "":
		return "ERROR " + e.Error
	case e.Rows == nil:
		return ""
	}
	text := count(*e.Rows, "row")
	if len(e.Result) > 0 {
		var rows []string
		for _, r := range e.Result {
			var values []string
			for _, v := range r {
				values = append(values, literal(v))
			}
			rows = append(rows, "("+strings.Join(values, ", ")+")")
		}
		text += " " + strings.Join(rows, " ")
		if int64(len(rows)) < *e.Rows {
			text += " …"
		}
	}
	return text + e.loss()
}

// loss is how a race was lost, else the server's own words for what is no lost race.
func (e *Event) loss() string {
	switch {
	case e.Lost != "":
		return ": lost the race (" + e.Lost + ")"
	case e.Error != "":
		return ": " + e.Error
	}
	return ""
}

// whom is whom an event waits for.
func (w *Wait) whom() string {
	var names []string
	for _, u := range w.Users {
		names = append(names, fmt.Sprintf("U%d", u))
	}
	for _, p := range w.Others {
		names = append(names, fmt.Sprintf("process %d", p))
	}
	text := "waits for " + strings.Join(names, ", ")
	if w.On != "" {
		text += " (" + w.On + ")"
	}
	return text
}

func count(n int64, what string) string {
	return strconv.FormatInt(n, 10) + " " + what + plural(int(n))
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func numbers(all []int64) string {
	var out []string
	for _, n := range all {
		out = append(out, strconv.FormatInt(n, 10))
	}
	return strings.Join(out, ", ")
}

// took is a duration; no space before the unit, so that no line is broken there.
func took(ms float64) string { return strconv.FormatFloat(ms, 'f', 1, 64) + "ms" }

// answers returns what each user was told, in the order of users.
func (r *Race) answers() []*Event {
	var all []*Event
	for _, e := range r.Events {
		if e.Kind == Told {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b *Event) int { return int(a.User - b.User) })
	return all
}

// holds is what the database holds at the end, a row a line.
func (r *Race) holds() []string {
	const most = 8
	var out []string
	for i, row := range r.Final {
		if i == most {
			return append(out, fmt.Sprintf("and %d rows more", len(r.Final)-most))
		}
		var values []string
		for _, v := range row.Values {
			values = append(values, v.Column+" = "+literal(v.Value))
		}
		out = append(out, fmt.Sprintf("%s %d: %s", row.Table, row.Key, strings.Join(values, ", ")))
	}
	return out
}

// judged is the audit's verdict in a sentence, and what it rests on.
func (r *Race) judged() []string {
	out := []string{r.Verdict.String()}
	for _, f := range r.Findings {
		out = append(out, string(f.Anomaly)+": "+f.Message)
	}
	switch {
	case len(r.Findings) > 0:
	case len(r.Claim) == 0:
		out[0] += ": nothing went wrong, and nothing is claimed here"
	default:
		out[0] += ": what users were told is what the database holds"
	}
	return out
}
