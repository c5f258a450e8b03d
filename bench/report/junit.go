package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/lockbench/lockbench/bench"
)

// The JUnit form as Jenkins, GitLab and others read it; the order of the fields is the schema's.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr,omitempty"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
		seconds    float64
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name      string        `xml:"name,attr"`
		Class     string        `xml:"classname,attr"`
		Time      string        `xml:"time,attr"`
		Skipped   *junitMessage `xml:"skipped,omitempty"`
		Failure   *junitMessage `xml:"failure,omitempty"`
		SystemOut string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// writeJUnit writes every verdict as a test case: a broken claim has failed, and what was not put to the test was skipped. A strategy
// that claims nothing cannot fail.
func writeJUnit(w io.Writer, r *bench.Report, _ Options) error {
	all := junitSuites{Name: "lockbench"}
	var seconds float64
	for _, s := range junitBySuite(r) {
		all.Tests += s.Tests
		all.Failures += s.Failures
		seconds += s.seconds
		all.Suites = append(all.Suites, s)
	}
	all.Time = junitTime(seconds)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// junitBySuite makes a suite a race, named by its scenario where it is the only one. Limits and expectations follow the verdicts.
func junitBySuite(r *bench.Report) []junitSuite {
	var suites []junitSuite
	for _, part := range r.Parts() {
		name := part.Name
		if name == "" {
			name = part.Plan.Scenario
		}
		s := junitSuite{Name: "lockbench." + printable(name), Properties: junitProperties(part)}
		if !r.Started.IsZero() {
			s.Timestamp = r.Started.UTC().Format("2006-01-02T15:04:05")
		}
		for i := range part.Cells {
			s.add(junitCaseOf(part.Report, &part.Cells[i]), measuredSeconds(&part.Cells[i]))
		}
		for i := range part.Gate {
			s.add(junitCaseOfGate(&part.Gate[i]), 0)
		}
		s.Time = junitTime(s.seconds)
		suites = append(suites, s)
	}
	return suites
}

// junitCaseOfGate makes a limit or an expectation of a cell a test case of its own.
func junitCaseOfGate(a *bench.Assertion) junitCase {
	jc := junitCase{Name: printable(a.Text)}
	if a.Strategy != "" && !strings.HasPrefix(a.Text, a.Strategy+":") {
		jc.Name = printable(a.Strategy + ": " + a.Text)
	}
	if a.Failed {
		jc.Failure = &junitMessage{Message: printable(a.Message), Type: "limit or expectation"}
	}
	return jc
}

func (s *junitSuite) add(c junitCase, seconds float64) {
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
	if c.Skipped != nil {
		s.Skipped++
	}
	s.seconds += seconds
	c.Class, c.Time = s.Name, junitTime(seconds)
	s.Cases = append(s.Cases, c)
}

func junitProperties(r bench.Part) []junitProperty {
	var ps []junitProperty
	for _, kv := range benchConfig(r) {
		if kv[1] != "" {
			ps = append(ps, junitProperty{kv[0], printable(kv[1])})
		}
	}
	return append(ps, junitProperty{"command", printable(r.Command)})
}

func junitCaseOf(r *bench.Report, c *bench.Cell) junitCase {
	jc := junitCase{Name: printable(c.Strategy)}
	skip := func(format string, args ...any) { jc.Skipped = &junitMessage{Message: fmt.Sprintf(format, args...)} }
	switch {
	case c.NA != "":
		skip("n/a: %s", printable(c.NA))
	case len(c.Trials) == 0:
		skip("not run")
	case c.ClaimBroken && !r.Expected(c):
		jc.Failure = &junitMessage{Message: printable(c.Findings[0].Message), Type: "broken claim", Text: strings.Join(evidence(c), "\n")}
	case c.Verdict == bench.Violated:
		why := "violated, as it does not claim otherwise:"
		if c.ClaimBroken {
			why = "violated, as was expected:"
		}
		jc.SystemOut = strings.Join(append([]string{why}, evidence(c)...), "\n")
	case c.Verdict == bench.Undetermined && !r.Expected(c):
		skip("undetermined: the claim was not put to the test")
	}
	return jc
}

// evidence is a line a finding, with a case that a person can check.
func evidence(c *bench.Cell) []string {
	var all []string
	for i := range c.Findings {
		all = append(all, printable(findingText(&c.Findings[i])))
	}
	return all
}

func measuredSeconds(c *bench.Cell) float64 {
	var s float64
	for i := range c.Trials {
		s += c.Trials[i].DurationS
	}
	return s
}

func junitTime(seconds float64) string { return fmt.Sprintf("%.3f", seconds) }
