package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/scenarios"
	"github.com/lockbench/lockbench/strategies"
)

// cell is what one row of the table compares.
type cell struct {
	Strategy string
	Rows     int64
	Durable  bool
	Pipeline bool // lockbench's side runs with --pipeline-begin; pgbench's pays every round trip
}

// cells lists those of one server.
func cells(durable bool) []cell {
	var all []cell
	for _, rows := range []int64{plenty, 1} {
		for _, s := range []string{"atomic", "pessimistic", "optimistic", "serializable"} {
			all = append(all, cell{Strategy: s, Rows: rows, Durable: durable})
		}
	}
	for _, s := range []string{"pessimistic", "optimistic", "serializable"} { // atomic opens no transaction
		all = append(all, cell{Strategy: s, Rows: plenty, Durable: durable, Pipeline: true})
	}
	return all
}

// chosen reports whether the cell's name holds what is asked for. "durable" alone would be part of "not durable", so words are compared.
func (c cell) chosen(only string) bool {
	return only == "" || strings.Contains(", "+c.String()+",", ", "+only+",")
}

func (c cell) String() string {
	return fmt.Sprintf("%s, %s, %s", c.name(), c.rows(), c.durability())
}

func (c cell) name() string {
	if c.Pipeline {
		return c.Strategy + " --pipeline-begin"
	}
	return c.Strategy
}

func (c cell) rows() string {
	if c.Rows == 1 {
		return "hot row"
	}
	return fmt.Sprintf("%d rows", c.Rows)
}

func (c cell) durability() string {
	if c.Durable {
		return "durable"
	}
	return "not durable"
}

// race compiles lockbench's side. There is no pause, no backoff and no deadline, because pgbench has none.
func (c cell) race(window time.Duration) (*bench.Race, error) {
	return bench.Compile(bench.Settings{
		Strategies: []string{c.Strategy}, Scenario: "inventory", Mode: bench.Closed,
		Users: clients, Connections: clients, Rows: c.Rows, Skew: "uniform",
		Duration: bench.Duration(window), Drain: bench.Duration(10 * time.Second), Trials: 1, Seed: 1,
		Retries: 1_000_000, Backoff: "none", Pipeline: c.Pipeline,
	}, strategies.All(), scenarios.All(), bench.Connecting{})
}
