package scenarios

import (
	"time"

	"github.com/lockbench/lockbench/bench"
)

func plural[N int | int64](n N) string {
	if n == 1 {
		return ""
	}
	return "s"
}

func are(n int64) string {
	if n == 1 {
		return " is"
	}
	return "s are"
}

func were(n int64) string {
	if n == 1 {
		return " was"
	}
	return "s were"
}

// refusal is what a refused user was told.
func refusal(t *bench.Told) string {
	if t.Outcome == bench.NotFound {
		return "not found"
	}
	return string(t.Reason)
}

// ms is a time as witnesses carry it.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
