package main

import (
	"context"

	"github.com/lockbench/lockbench/bench/postgres/embedded"
)

// startShared starts the server that the tests race on. It is not durable: the tests look at answers, not at figures.
func startShared(ctx context.Context) (dsn string, stop func() error, err error) {
	s, err := embedded.Start(ctx, embedded.Config{Connections: 200})
	if err != nil {
		return "", nil, err
	}
	return s.DSN(), s.Stop, nil
}
