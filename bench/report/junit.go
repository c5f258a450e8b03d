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

// junitBySuite makes a suite a scenario.
func junitBySuite(r *bench.Report) []junitSuite {
	var suites []junitSuite
	at := map[string]int{}
	for i := range r.Cells {
		c := &r.Cells[i]
		k, seen := at[c.Scenario]
		if !seen {
			k = len(suites)
			at[c.Scenario] = k
			suites = append(suites, junitSuite{Name: "lockbench." + printable(c.Scenario), Properties: junitProperties(r)})
			if !r.Started.IsZero() {
				suites[k].Timestamp = r.Started.UTC().Format("2006-01-02T15:04:05")
			}
		}
		suites[k].add(junitCaseOf(c), measuredSeconds(c))
	}
	for i := range suites {
		suites[i].Time = junitTime(suites[i].seconds)
	}
	return suites
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

func junitProperties(r *bench.Report) []junitProperty {
	var ps []junitProperty
	for _, kv := range benchConfig(r) {
		if kv[1] != "" {
			ps = append(ps, junitProperty{kv[0], printable(kv[1])})
		}
	}
	return append(ps, junitProperty{"command", printable(r.Command)})
}

func junitCaseOf(c *bench.Cell) junitCase {
	jc := junitCase{Name: printable(c.Strategy)}
	skip := func(format string, args ...any) { jc.Skipped = &junitMessage{Message: fmt.Sprintf(format, args...)} }
	switch {
	case c.NA != "":
		skip("n/a: %s", printable(c.NA))
	case len(c.Trials) == 0:
		skip("not run")
	case c.ClaimBroken:
		jc.Failure = &junitMessage{Message: printable(c.Findings[0].Message), Type: "broken claim", Text: strings.Join(evidence(c), "\n")}
	case c.Verdict == bench.Violated:
		jc.SystemOut = strings.Join(append([]string{"violated, as it does not claim otherwise:"}, evidence(c)...), "\n")
	case c.Verdict == bench.Undetermined:
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
