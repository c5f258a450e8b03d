package main

import "testing"

// A report may be published: the command in it can be repeated, but a password stays out.
func TestCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{nil, "lockbench"},
		{[]string{"run", "--fail-on", "p99>50ms"}, "lockbench run --fail-on 'p99>50ms'"},
		{[]string{"run", "--fail-on", "it's"}, `lockbench run --fail-on 'it'\''s'`},
		{[]string{"run", "--output", "a.json", "--users", "5", "--format=json", "--quiet", "--output=b.md", "--no-color", "--format", "csv"}, "lockbench run --users 5"},
		{[]string{"run", "--dsn", "postgres://u:secret@h:5/d?sslmode=disable"}, "lockbench run --dsn 'postgres://u@h:5/d?sslmode=disable'"},
		{[]string{"run", "--dsn=postgres://u@h/d?password=secret"}, "lockbench run --dsn=postgres://u@h/d"},
		{[]string{"run", "--dsn", "host=h password=secret user=u"}, "lockbench run --dsn 'host=h  user=u'"},
		{[]string{"run", "--dsn", "host=h password='se cr\\'et'"}, "lockbench run --dsn host=h"},
		{[]string{"run", "--dsn", "postgres://u:se cret%zz@h"}, "lockbench run --dsn '…'"},
	} {
		if got := commandLine(tc.args); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}
