package trace

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The measures of the text form, in columns.
const (
	timeWidth   = 9  // of the time on the left
	between     = 2  // two columns
	leastColumn = 40 // of a user; narrower than that, SQL is no longer read with ease
	bestColumn  = 52
	sideBySide  = 100 // below that width there are no columns
	indent      = "  "
)

// WriteText writes a trace for a terminal of the width, 0 for one without limit: a column a user where there is room for that, else a
// line an event with its user in front.
func WriteText(w io.Writer, t *Trace, width int) error {
	p := &page{users: t.Users, total: width}
	p.column = bestColumn
	if width > 0 {
		p.column = min(bestColumn, (width-timeWidth)/t.Users-between)
	}
	p.columns = (width == 0 || width >= sideBySide) && p.column >= leastColumn
	if !p.columns {
		p.column = 100 - timeWidth - 6
		if width > 0 {
			p.column = max(20, min(p.column, width-timeWidth-6))
		}
	}
	if t.Partial {
		p.line("PARTIAL: the trace was stopped, or broke off")
		p.line("")
	}
	for i, r := range t.Races {
		if i > 0 {
			p.line("")
		}
		p.race(t, r)
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// page is the text as it grows.
type page struct {
	strings.Builder
	users   int
	total   int
	column  int  // width of a user's column, or of an event's text
	columns bool // one a user
}

func (p *page) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.WriteString(strings.TrimRight(text, " ") + "\n")
}

func (p *page) race(t *Trace, r *Race) {
	title := fmt.Sprintf("%s on %s: %d users, %s", r.Strategy, t.Scenario, t.Users, count(t.Rows, "row"))
	if r.NA != "" {
		p.paragraph("", title)
		p.paragraph("n/a: ", r.NA)
		return
	}
	p.paragraph("", title+" ("+r.Isolation+")")
	p.paragraph("", r.Summary)
	p.line("")
	if p.columns {
		p.header(r.sessions())
	}
	seen := map[int64]int{}
	for _, m := range moments(r.Events) {
		p.moment(m, seen)
	}
	p.line("")
	for _, e := range r.answers() {
		p.paragraph(fmt.Sprintf("U%d told  ", e.User), e.verdict()+", "+count(int64(e.Attempt), "attempt"))
	}
	p.list("row      ", r.holds())
	p.list("audit    ", r.judged())
	p.list("note     ", r.Notes)
}

// paragraph writes text after a label, with the lines below set in.
func (p *page) paragraph(label, text string) {
	width := 110
	if p.total > 0 {
		width = min(width, p.total)
	}
	for i, l := range wrap(text, width-len(label)) {
		if i > 0 {
			label = strings.Repeat(" ", len(label))
		}
		p.line("%s%s", label, l)
	}
}

func (p *page) list(label string, items []string) {
	for i, item := range items {
		if i > 0 {
			label = strings.Repeat(" ", len(label))
		}
		p.paragraph(label, item)
	}
}

// header names the columns.
func (p *page) header(sessions map[int64]*Event) {
	var cells []string
	for u := range int64(p.users) {
		name := fmt.Sprintf("U%d", u+1)
		if e := sessions[u+1]; e != nil {
			name += fmt.Sprintf(", session %d (process %d)", e.Session, e.PID)
		}
		cells = append(cells, name)
	}
	p.row("ms", cells)
	for i := range cells {
		cells[i] = strings.Repeat("-", p.column)
	}
	p.row(strings.Repeat("-", timeWidth-between), cells)
}

// row writes one line of columns.
func (p *page) row(left string, cells []string) {
	line := fmt.Sprintf("%*s", timeWidth-between, left)
	for _, c := range cells {
		line += strings.Repeat(" ", between) + pad(c, p.column)
	}
	p.line("%s", line)
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// sessions are the first statements of users, which tell their connection.
func (r *Race) sessions() map[int64]*Event {
	first := map[int64]*Event{}
	for _, e := range r.Events {
		if e.Kind == Statement && first[e.User] == nil {
			first[e.User] = e
		}
	}
	return first
}

// moment writes one moment; seen holds the session on which each user was last.
func (p *page) moment(m moment, seen map[int64]int) {
	if m.e.Kind == Note {
		left := fmt.Sprintf("%*.1f%s", timeWidth-between, m.ms, strings.Repeat(" ", between))
		p.paragraph(left, "-- "+m.e.Text+" --")
		return
	}
	var lines []string
	for _, text := range m.lines(seen, p.columns) {
		lines = append(lines, hang(text, p.column)...)
	}
	for i, l := range lines {
		left := ""
		if i == 0 {
			left = fmt.Sprintf("%.1f", m.ms)
		}
		if !p.columns {
			user := ""
			if i == 0 {
				user = fmt.Sprintf("U%d", m.e.User)
			}
			p.line("%*s  %-4s%s", timeWidth-between, left, user, l)
			continue
		}
		cells := make([]string, p.users)
		cells[m.e.User-1] = l
		p.row(left, cells)
	}
}

// lines is what a moment says, a line each; those that go with the first are set in.
func (m moment) lines(seen map[int64]int, columns bool) []string {
	e := m.e
	switch m.what {
	case wait:
		return []string{indent + "... " + m.wait.whom()}
	case end:
		return []string{"<- " + join(e.came(), "after "+took(*e.TookMS))}
	case start:
		return []string{e.asked() + e.elsewhere(seen, columns)}
	case whole:
	}
	out := []string{e.asked() + e.elsewhere(seen, columns)}
	if e.Kind == Told {
		return out
	}
	if came := e.came(); came != "" {
		return append(out, indent+"<- "+join(came, e.duration()))
	}
	out[0] += "  <- " + e.duration()
	return out
}

func (e *Event) duration() string {
	if e.TookMS == nil {
		return ""
	}
	return took(*e.TookMS)
}

func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, ", ")
}

// elsewhere names the session where it is another than the reader last saw the user on.
func (e *Event) elsewhere(seen map[int64]int, named bool) string {
	if e.Kind != Statement {
		return ""
	}
	was := seen[e.User]
	seen[e.User] = e.Session
	if was == e.Session || was == 0 && named {
		return ""
	}
	return fmt.Sprintf("  [session %d, process %d]", e.Session, e.PID)
}

// hang breaks text into lines of the width; those after the first are set in further than the first, and so have less room.
func hang(text string, width int) []string {
	lead := text[:len(text)-len(strings.TrimLeft(text, " "))]
	first := wrap(text, width-len(lead))
	if len(first) < 2 {
		return []string{lead + strings.Join(first, "")}
	}
	out := []string{lead + first[0]}
	for _, l := range wrap(strings.Join(first[1:], " "), width-len(lead)-2*len(indent)) {
		out = append(out, lead+indent+indent+l)
	}
	return out
}

// wrap breaks text between words into lines of at most width columns.
func wrap(text string, width int) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			out = append(out, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}
