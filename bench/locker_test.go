package bench

import (
	"strings"
	"testing"
	"time"
)

func TestParseStall(t *testing.T) {
	for text, want := range map[string]Stall{
		"":            {},
		"800ms@2%":    {For: 800 * time.Millisecond, Share: 0.02},
		"1s@100%":     {For: time.Second, Share: 1},
		"250ms@12.5%": {For: 250 * time.Millisecond, Share: 0.125},
	} {
		if got, err := ParseStall(text); err != nil || got != want {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"800ms", "800ms@2", "800@2%", "0s@2%", "800ms@0%", "800ms@101%", "800ms@x%", "@2%", "800ms@NaN%"} {
		if got, err := ParseStall(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		} else if text != "800@2%" && !strings.Contains(err.Error(), `"`) {
			t.Errorf("%q: the value is not quoted: %v", text, err)
		}
	}
}

// TestStallsAreDrawnFromTheSeed: the same operations stall under every strategy, about as many as were asked for.
func TestStallsAreDrawnFromTheSeed(t *testing.T) {
	s := Stall{For: time.Second, Share: 0.02}
	const of = 100_000
	n, same := 0, 0
	for op := range int64(of) {
		one := s.draws(1, op)
		if one != s.draws(1, op) {
			t.Fatalf("operation %d stalls now and then", op)
		}
		if one {
			n++
			if s.draws(2, op) {
				same++
			}
		}
	}
	if n < of/60 || n > of/42 {
		t.Errorf("%d of %d stall, not about 2 %%", n, of)
	}
	if same > n/10 {
		t.Errorf("with another seed %d of %d are the same", same, n)
	}
	if (Stall{}).draws(1, 1) {
		t.Error("an operation stalls though nobody asked")
	}
}
