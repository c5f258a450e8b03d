package trace

import (
	"fmt"
	"io"
	"strings"
)

// mermaidWidth is where long messages are broken: an arrow is as long as its longest line.
const mermaidWidth = 48

// WriteMermaid writes a trace as one sequence diagram; strategies follow each other in it. Times are left out, but for waits.
// Source of the syntax: https://mermaid.js.org/syntax/sequenceDiagram.html
func WriteMermaid(w io.Writer, t *Trace) error {
	var b strings.Builder
	b.WriteString("sequenceDiagram\n")
	for u := range t.Users {
		fmt.Fprintf(&b, "    participant U%d\n", u+1)
	}
	b.WriteString("    participant PG as PostgreSQL\n")
	for _, r := range t.Races {
		mermaidRace(&b, t, r)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func mermaidRace(b *strings.Builder, t *Trace, r *Race) {
	all := "    Note over U1,PG: "
	if r.NA != "" {
		b.WriteString(all + escape(r.Strategy+" on "+t.Scenario+": n/a: "+r.NA) + "\n")
		return
	}
	b.WriteString(all + escape(fmt.Sprintf("%s on %s (%s)", r.Strategy, t.Scenario, r.Isolation)) + "\n")
	for _, m := range moments(r.Events) {
		for _, l := range mermaidMoment(m) {
			b.WriteString("    " + l + "\n")
		}
	}
	for _, l := range append(r.holds(), "audit: "+strings.Join(r.judged(), "; ")) {
		b.WriteString(all + escape(l) + "\n")
	}
	for _, n := range r.Notes {
		b.WriteString(all + escape(n) + "\n")
	}
}

// mermaidMoment writes a moment as messages and notes.
func mermaidMoment(m moment) []string {
	e := m.e
	user := fmt.Sprintf("U%d", e.User)
	ask, came := user+"->>PG: "+escape(e.asked()), ""
	if e.TookMS != nil {
		came = mermaidAnswer(e, user)
	}
	switch {
	case e.Kind == Note:
		return []string{"Note over U1,PG: " + escape(e.Text)}
	case e.Kind == Gate && m.what == wait:
		return []string{"Note over " + user + ": " + escape(m.wait.whom()+" in the gate")}
	case m.what == wait:
		return []string{"Note over " + user + ",PG: " + escape(user+" "+m.wait.whom())}
	case e.Kind == Gate && m.what == end:
		return []string{"Note over " + user + ": " + escape(e.came()+", after "+took(*e.TookMS))}
	case e.Kind != Statement:
		return []string{"Note over " + user + ": " + escape(e.asked())}
	case m.what == start, came == "" && m.what != end:
		return []string{ask}
	case m.what == end:
		return []string{came}
	}
	return []string{ask, came}
}

// mermaidAnswer is the message back; BEGIN and COMMIT that went well need none.
func mermaidAnswer(e *Event, user string) string {
	text := e.came()
	if len(e.Waits) > 0 {
		text = join(text, "after "+took(*e.TookMS))
	}
	if text == "" {
		return ""
	}
	arrow := "-->>"
	if e.Lost != "" || e.Error != "" {
		arrow = "--x"
	}
	return "PG" + arrow + user + ": " + escape(text)
}

// escapes are the characters that mean something to Mermaid, or to the HTML it becomes; they are written as its entities.
var escapes = strings.NewReplacer("#", "#35;", ";", "#59;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "%%", "#37;#37;", "\n", " ")

// escape makes text safe in a message or note, broken into lines.
func escape(text string) string {
	lines := wrap(text, mermaidWidth)
	for i := range lines {
		lines[i] = escapes.Replace(lines[i])
	}
	return strings.Join(lines, "<br/>")
}
