package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// Pages writes the reference: a page for each strategy and scenario, and an index. Keys are paths below docs.
func Pages(m *Measured) (map[string]string, error) {
	pages := map[string]string{"README.md": index(m)}
	for _, st := range strategies.All() {
		name := st.Info().Name
		text, err := strategyPage(m, st)
		if err != nil {
			return nil, fmt.Errorf("the page of %s: %w", name, err)
		}
		pages["strategies/"+name+".md"] = text
	}
	for _, sc := range scenarios.All() {
		name := sc.Info().Name
		text, err := scenarioPage(m, sc)
		if err != nil {
			return nil, fmt.Errorf("the page of %s: %w", name, err)
		}
		pages["scenarios/"+name+".md"] = text
	}
	return pages, nil
}

// page gathers Markdown.
type page struct{ strings.Builder }

// p writes a paragraph; nothing for an empty text.
func (b *page) p(format string, args ...any) {
	if text := strings.TrimSpace(fmt.Sprintf(format, args...)); text != "" {
		fmt.Fprintf(b, "%s\n\n", text)
	}
}

// section writes a heading with a paragraph below; nothing for an empty text.
func (b *page) section(title, text string) {
	if text != "" {
		b.p("## %s", title)
		b.p("%s", sentence(text))
	}
}

// table writes rows under a header.
func (b *page) table(rows [][]string) {
	for i, row := range rows {
		for j := range row {
			row[j] = strings.ReplaceAll(row[j], "|", `\|`)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat(" --- |", len(row)))
		}
	}
	b.WriteString("\n")
}

// code writes a fenced block.
func (b *page) code(language, text string) {
	fmt.Fprintf(b, "```%s\n%s\n```\n\n", language, strings.TrimSpace(text))
}

// sentence begins with a capital and ends with a full stop, as the texts of the registry, which stand behind a colon elsewhere, do not.
func sentence(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if first == strings.ToLower(first) && !strings.ContainsAny(first, "_=-0123456789`") {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// bullets makes a list of what is separated by semicolons.
func bullets(text string) string {
	var all []string
	for _, part := range strings.Split(text, "; ") {
		all = append(all, "- "+sentence(part))
	}
	return strings.Join(all, "\n")
}

func words(all []bench.Anomaly) string {
	var out []string
	for _, a := range all {
		out = append(out, string(a))
	}
	return strings.Join(out, ", ")
}

const generated = "<!-- Generated from the registry and docs/measured.json by go test ./internal/reference -update; do not edit. -->"

// recorded says what the measurements rest on.
func recorded(m *Measured) string {
	s, h := &m.Environment.Server, &m.Environment.Host
	return fmt.Sprintf("Recorded on PostgreSQL %s, %s/%s, %d CPUs, from %s on: %d users released at once on %d connections, %d trials; of anomalies the worst trial counts. "+
		"A violation is a fact; `sound` means that users did meet and nothing was found, not that nothing can be. `make measured ANEW=1` records it anew.",
		s.Version, h.OS, h.Arch, h.CPUs, m.Started.UTC().Format("2 January 2006"), m.Users, m.Connections, m.Trials)
}

// verdict writes a cell of a matrix.
func verdict(c *Cell) string {
	switch {
	case c == nil:
		return "–"
	case c.NA != "":
		return "n/a"
	case c.Skipped != "":
		return "not measured"
	case len(c.Found) == 0:
		return c.Verdict.String()
	}
	var found []string
	for _, a := range slices.Sorted(maps.Keys(c.Found)) {
		found = append(found, fmt.Sprintf("%s ×\u00a0%d", a, c.Found[a]))
	}
	return "**" + c.Verdict.String() + "**: " + strings.Join(found, ", ")
}

func strategyPage(m *Measured, st bench.Strategy) (string, error) {
	info := st.Info()
	spec, err := bench.ParseSpecs(info.Name)
	if err != nil {
		return "", err
	}
	e, err := OfStrategy(st, spec[0], scenarios.All())
	if err != nil {
		return "", err
	}
	b := &page{}
	b.p("%s", generated)
	b.p("# %s", info.Name)
	b.p("%s", sentence(info.Summary))
	b.section("What it does", info.How)
	if isolation := isolations(e.Bindings); isolation != "" {
		b.p("Isolation level: %s.", isolation)
	}
	if info.External {
		b.p("It needs a service beside the database, usually at `%s`; `--%s HOST:PORT` names another.", info.Address, info.Name)
	}
	b.p("## What it prevents, and what it allows")
	if claim := words(info.Prevents); claim == "" {
		b.p("It claims to prevent nothing.")
	} else {
		scope := ""
		if info.Scope != "" {
			scope = ", " + info.Scope
		}
		b.p("It claims to prevent %s%s. Options may give claims up, and a scenario may ask for more.", claim, scope)
	}
	b.p("%s", allowed(m, info.Name))
	measuredOf(b, m, st)
	b.p("%s", recorded(m))
	b.section("What the loser of a race sees", "The loser is "+info.LoserIs)
	b.p("%s", lost(m, info.Name))
	if s := m.story(info.Name); s != nil {
		b.p("Two users in slow motion, on `%s` (`lockbench trace --strategy %s%s`):", s.Scenario, info.Name, scenarioFlag(s.Scenario))
		b.code("mermaid", s.Mermaid)
	}
	costs(b, m, &e)
	b.section("When to use it", info.Use)
	if info.Mistakes != "" {
		b.p("## Common mistakes")
		b.p("%s", bullets(info.Mistakes))
	}
	optionsOf(b, &info)
	b.p("## The SQL")
	b.p("Exactly as it is sent, `$1` and so on being bound parameters. An attempt sends what it needs of it; the table above says in which order.")
	for _, bind := range e.Bindings {
		b.p("### On [%s](../scenarios/%s.md)", bind.Scenario, bind.Scenario)
		sqlOf(b, &bind)
	}
	if err := variantsOf(b, st, &e); err != nil {
		return "", err
	}
	b.p("## See it")
	if e.Try != "" {
		b.code("sh", e.Try+"\nlockbench show "+info.Name)
	}
	return b.String(), nil
}

// scenarioFlag selects a scenario that is not the default.
func scenarioFlag(name string) string {
	if name == DefaultScenario {
		return ""
	}
	return " --scenario " + name
}

// isolations says at which level a strategy works.
func isolations(all []Binding) string {
	var levels []string
	for _, b := range all {
		if b.Isolation != "" && !slices.Contains(levels, b.Isolation) {
			levels = append(levels, b.Isolation)
		}
	}
	return strings.Join(levels, ", ")
}

// allowed gathers what a strategy was seen to let through without options.
func allowed(m *Measured, name string) string {
	seen := map[bench.Anomaly][]string{}
	for _, c := range m.Cells {
		if c.Strategy == name {
			for a := range c.Found {
				seen[a] = append(seen[a], "`"+Flags(c.Scenario, c.Options)+"`")
			}
		}
	}
	if len(seen) == 0 {
		return ""
	}
	var all []string
	for _, a := range slices.Sorted(maps.Keys(seen)) {
		all = append(all, fmt.Sprintf("- %s on %s", a, strings.Join(seen[a], ", ")))
	}
	return "Seen to let through, without options:\n\n" + strings.Join(all, "\n")
}

// measuredOf is the matrix scenario × variants of one strategy.
func measuredOf(b *page, m *Measured, st bench.Strategy) {
	info := st.Info()
	labels := append([]string{info.Name}, info.Variants...)
	rows := [][]string{{"measured on"}}
	for _, l := range labels {
		rows[0] = append(rows[0], "`"+canonical(l)+"`")
	}
	add := func(sc bench.Scenario, o bench.Options, with string) {
		text := "`" + Flags(sc.Info().Name, o) + "`"
		if with != "" {
			text += ", `" + with + "`"
			with = ":" + with
		}
		row := []string{text}
		for _, l := range labels {
			row = append(row, verdict(m.Find(sc.Info().Name, o, canonical(l+with))))
		}
		if slices.ContainsFunc(row[1:], func(text string) bool { return text != "n/a" }) {
			rows = append(rows, row)
		}
	}
	reasons := ""
	for _, sc := range scenarios.All() {
		if c := m.Find(sc.Info().Name, nil, info.Name); c != nil && c.NA != "" {
			reasons += fmt.Sprintf("- `%s`: %s\n", c.Scenario, c.NA)
		}
		for _, o := range Settings(sc) {
			add(sc, o, "")
			if _, ok := sc.(bench.Deliverer); ok {
				add(sc, o, "idempotency=on")
			}
		}
	}
	b.table(rows)
	if reasons != "" {
		b.p("It makes no sense, and is refused, on\n\n%s", reasons)
	}
}

// lost says how losers lost, as measured.
func lost(m *Measured, name string) string {
	seen := map[string][]string{}
	for _, c := range m.Cells {
		if c.Strategy == name && c.Options == nil {
			for kind := range c.Contention {
				seen[kind] = append(seen[kind], "`"+c.Scenario+"`")
			}
		}
	}
	if len(seen) == 0 {
		return ""
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(seen)) {
		all = append(all, fmt.Sprintf("`%s` (on %s)", kind, strings.Join(seen[kind], ", ")))
	}
	return "Attempts were seen to lose a race as " + strings.Join(all, ", ") + ". The engine then tries the whole transaction again, reads included."
}

// costs says what an operation costs that meets nobody.
func costs(b *page, m *Measured, e *Entry) {
	name := e.Strategy.Name
	rows := [][]string{{"scenario", "round trips", "statements, in order"}}
	for _, bind := range e.Bindings {
		if c := m.Find(bind.Scenario, nil, name); c != nil && len(c.Sent) > 0 {
			rows = append(rows, []string{"`" + c.Scenario + "`", fmt.Sprint(c.RoundTrips()), strings.Join(c.Sent, ", ")})
		}
	}
	if len(rows) == 1 {
		return
	}
	b.p("## What it costs in round trips")
	b.p("A confirmed operation that meets nobody sends this, on the fewest rows that make sense, one statement a round trip; whoever loses a race sends his attempts again.")
	b.table(rows)
	for _, row := range rows {
		if strings.Contains(row[2], Lock) {
			b.p("%s is taken outside the database, before a connection is asked for.", Lock)
			break
		}
	}
	b.p("With `--pipeline-begin` BEGIN travels with the first statement and COMMIT with the last write, where nothing else was written.")
}

func optionsOf(b *page, info *bench.StrategyInfo) {
	b.p("## Options")
	rows := [][]string{{"option", "what it does"}}
	for _, o := range slices.Concat(info.Options, bench.SharedOptions()) {
		text := o.Name
		if len(o.Values) > 0 {
			text += "=" + strings.Join(o.Values, " | ")
		}
		rows = append(rows, []string{"`" + text + "`", o.Doc})
	}
	b.table(rows)
}

func sqlOf(b *page, bind *Binding) {
	if bind.NA != "" {
		b.p("n/a: %s", sentence(bind.NA+"; "+bind.Instead))
		return
	}
	b.code("sql", sqlText(bind.Statements))
}

// sqlText writes statements with their names.
func sqlText(all []Statement) string {
	var lines []string
	for _, s := range all {
		lines = append(lines, "-- "+s.Name+"\n"+strings.TrimSpace(s.SQL)+";")
	}
	return strings.Join(lines, "\n")
}

// variantsOf shows what the variants send otherwise, on the first scenario that takes them.
func variantsOf(b *page, st bench.Strategy, e *Entry) error {
	for _, v := range st.Info().Variants {
		for i, sc := range scenarios.All() {
			bind, err := Bind(v, sc, nil)
			if err != nil {
				return err
			}
			if bind.NA != "" || e.Bindings[i].NA != "" {
				continue
			}
			b.p("### %s", canonical(v))
			base := e.Bindings[i].Statements
			if slices.Equal(bind.Statements, base) {
				b.p("The same SQL.")
				break
			}
			b.p("On `%s`:", bind.Scenario)
			sqlOf(b, &bind)
			break
		}
	}
	return nil
}

func scenarioPage(m *Measured, sc bench.Scenario) (string, error) {
	info := sc.Info()
	e, err := OfScenario(sc)
	if err != nil {
		return "", err
	}
	b := &page{}
	b.p("%s", generated)
	b.p("# %s", info.Name)
	b.p("%s", sentence(info.Summary))
	b.section("What happens", info.Story)
	b.section("What the audit checks", info.Invariant)
	b.p("Can go wrong: %s. A strategy that does not claim to prevent the first of these is never called sound here. `--rows` counts %s.", words(info.Anomalies), info.Unit)
	if len(info.Options) > 0 {
		b.p("## Options")
		rows := [][]string{{"flag", "what it does"}}
		for _, o := range info.Options {
			rows = append(rows, []string{"`--" + o.Name + " " + strings.Join(o.Values, " | ") + "`", o.Doc})
		}
		b.table(rows)
	}
	b.p("## What was measured")
	settings := Settings(sc)
	head := []string{"strategy"}
	for _, o := range settings {
		head = append(head, "`"+Flags(info.Name, o)+"`")
	}
	rows := [][]string{append(head, "lost races", "attempts an operation", "round trips")}
	for _, st := range strategies.All() {
		for _, label := range Labels(st, sc) {
			c := m.Find(info.Name, nil, label)
			if c == nil {
				return "", bench.Hintf("make measured", "%s on %s is not in docs/measured.json", label, info.Name)
			}
			if c.NA != "" {
				continue
			}
			row := []string{fmt.Sprintf("[`%s`](../strategies/%s.md)", label, st.Info().Name)}
			for _, o := range settings {
				row = append(row, verdict(m.Find(info.Name, o, label)))
			}
			rows = append(rows, append(row, kinds(c), perOperation(c), trips(c)))
		}
	}
	b.table(rows)
	b.p("Lost races, attempts and round trips are those of `%s`; round trips are of a confirmed operation that meets nobody.", info.Name)
	b.p("%s", recorded(m))
	b.p("## The SQL")
	for _, bind := range e.Bindings {
		b.p("### [%s](../strategies/%s.md)", bind.Strategy, bind.Strategy)
		sqlOf(b, &bind)
	}
	b.p("## See it")
	lines := []string{e.Try}
	for _, o := range info.Variants {
		lines = append(lines, "lockbench run --scenario "+Flags(info.Name, o))
	}
	b.code("sh", strings.Join(append(lines, "lockbench show "+info.Name), "\n"))
	return b.String(), nil
}

// kinds names how attempts lost their races.
func kinds(c *Cell) string {
	if len(c.Contention) == 0 {
		return "–"
	}
	return strings.Join(slices.Sorted(maps.Keys(c.Contention)), ", ")
}

func perOperation(c *Cell) string {
	if c.Operations == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", float64(c.Attempts)/float64(c.Operations))
}

func trips(c *Cell) string {
	if n := c.RoundTrips(); n > 0 {
		return fmt.Sprint(n)
	}
	return "–"
}

func index(m *Measured) string {
	b := &page{}
	b.p("%s", generated)
	b.p("# Strategies and scenarios")
	b.p("A page for each strategy: what it does, its exact SQL, what it prevents and what it was seen to let through, what the loser of a race sees, what it costs, and what people get wrong. Written to be pasted into a design review.")
	rows := [][]string{{"strategy", "what it does", "claims to prevent"}}
	for _, st := range strategies.All() {
		i := st.Info()
		claim := words(i.Prevents)
		if claim == "" {
			claim = "nothing"
		}
		if i.Scope != "" {
			claim += " (" + i.Scope + ")"
		}
		rows = append(rows, []string{fmt.Sprintf("[%s](strategies/%s.md)", i.Name, i.Name), i.Summary, claim})
	}
	b.table(rows)
	rows = [][]string{{"scenario", "what users race for"}}
	for _, sc := range scenarios.All() {
		i := sc.Info()
		rows = append(rows, []string{fmt.Sprintf("[%s](scenarios/%s.md)", i.Name, i.Name), i.Summary})
	}
	b.table(rows)
	b.p("## Strategy by scenario, as measured")
	rows = [][]string{{""}}
	for _, sc := range scenarios.All() {
		rows[0] = append(rows[0], fmt.Sprintf("[%s](scenarios/%s.md)", sc.Info().Name, sc.Info().Name))
	}
	for _, st := range strategies.All() {
		name := st.Info().Name
		row := []string{fmt.Sprintf("[%s](strategies/%s.md)", name, name)}
		for _, sc := range scenarios.All() {
			label := name
			if _, ok := sc.(bench.Deliverer); ok {
				label = canonical(name + ":idempotency=on") // without it everything charges twice
			}
			text, _, _ := strings.Cut(verdict(m.Find(sc.Info().Name, nil, label)), ":")
			row = append(row, text)
		}
		rows = append(rows, row)
	}
	b.table(rows)
	b.p("Where the same request may come several times, the strategies stand with `idempotency=on`: without it every one of them does the work twice. A strategy that claims nothing of what a scenario is about is `undetermined` there as long as nothing is found.")
	b.p("%s", recorded(m))
	return b.String()
}
