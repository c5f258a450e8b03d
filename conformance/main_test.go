package conformance

import (
	"testing"

	"github.com/lockbench/lockbench/bench/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
