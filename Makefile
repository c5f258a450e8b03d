# lockbench: what people and CI run. `make` alone lists the targets.

GO ?= go
BIN := bin

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

.PHONY: build
build: ## build bin/lockbench
	$(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/lockbench ./cmd/lockbench

.PHONY: test
test: ## every test, with the race detector, on a PostgreSQL that the tests start themselves
	GORACE=atexit_sleep_ms=0 $(GO) test -race -timeout 10m ./...

.PHONY: lint
lint: $(BIN)/staticcheck ## gofmt, go vet (Linux and macOS), staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	GOOS=darwin $(GO) vet ./...
	$(BIN)/staticcheck ./...

# The linter's own dependencies stand in tools.mod, so that they never reach a user's build.
$(BIN)/staticcheck: tools.mod tools.sum
	$(GO) build -modfile=tools.mod -o $@ honnef.co/go/tools/cmd/staticcheck

.PHONY: services
services: ## start ZooKeeper, Hazelcast, etcd and Redis on loopback, for tests and runs with lock services
	@deploy/services start

.PHONY: services-stop
services-stop: ## end what `make services` started, and nothing else
	@deploy/services stop

.PHONY: measured
measured: ## race what docs/measured.json lacks (ANEW=1: everything), record it there, and write the pages of docs anew
	$(GO) run ./cmd/lockdocs measure $(if $(ANEW),-anew) docs/measured.json
	$(GO) test ./internal/reference -update

.PHONY: claims
claims: build ## run every claim, record them in docs/claims.json, and write docs/claims.md anew (needs make services)
	LOCKBENCH_REQUIRE_SERVICES=1 $(BIN)/lockbench claims --own-server --output docs/claims.json
	$(GO) test ./claims -update

.PHONY: article
article: build ## run what docs/article.md tells of, and write it anew
	$(BIN)/lockbench run --suite article --output docs/article/races.json
	$(BIN)/lockbench sweep --scenario inventory --strategy atomic,optimistic,pessimistic --users 2,4,8,16,32,100,300 --output docs/article/sweep.json
	$(BIN)/lockbench trace --strategy none --format mermaid > docs/article/none.mmd
	$(BIN)/lockbench trace --strategy optimistic --format mermaid > docs/article/optimistic.mmd
	$(BIN)/lockbench trace --strategy pessimistic --scenario transfer --format mermaid > docs/article/pessimistic.mmd
	$(BIN)/lockbench trace --strategy repeatable-read --scenario on-call --format mermaid > docs/article/repeatable-read.mmd
	$(GO) test ./internal/article -update

.PHONY: bench
bench: ## attempts a second and client CPU beside pgbench's, same statements, in one run
	$(GO) run ./cmd/vspgbench

.PHONY: fuzz
fuzz: ## fuzz the parsers for half a minute each
	@for p in ./bench ./bench/gate ./bench/suite; do for f in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz); do $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 30s -fuzzminimizetime 1x $$p || exit 1; done; done
