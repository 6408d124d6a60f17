# Everything a developer and CI run. `make help` lists the targets.

GO ?= go
GOLANGCI_VERSION := v2.15.0
SQLC_VERSION     := v1.31.1
# Packages tested at the same time, and the bound on each one's tests.
TEST_PACKAGES ?= 2
TEST_TIMEOUT  ?= 12m
FUZZ_TIME     ?= 30s
# Where the random tests begin: the same run every time. `make fuzz` looks further, from a new place each time.
SEED          ?= 1
CHAOS         ?= 10m
DRILLS        ?= Outage|Storm|ToldToWait|Revoked|DeadSubscribers
RELOADS       ?= 1000

BIN := $(CURDIR)/bin
# The binary names its revision where git can tell it; git refuses a clone that another user made.
STAMP := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
# Runs a command beside a throw-away Postgres and tells it the address.
PGRUN := $(BIN)/pgrun

.DEFAULT_GOAL := help
.PHONY: help run test build vet lint unit generate fuzz test-peers bench-intake bench-latency bench-worker chaos drill reloads clean need-go need-gcc pgrun

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

run: build ## Start tocsin with a private Postgres, simulated chats and two replicas; Ctrl-C ends all of it
	@exec $(BIN)/tocsin dev

test: need-go need-gcc build vet lint unit ## Do what CI does: build, vet, lint, all tests with the race detector

build: need-go ## Build bin/tocsin
	@mkdir -p $(BIN)
	$(GO) build -buildvcs=$(STAMP) -o $(BIN)/tocsin ./cmd/tocsin

vet: need-go
	$(GO) vet ./...

# The linter is taken from ./bin or where `go install` puts programs, when it has the pinned version; else it is built.
lint: need-go ## Run the linter (the first time it is built, about 90 s)
	@mkdir -p $(BIN); \
	for l in $(BIN)/golangci-lint "$$($(GO) env GOPATH)/bin/golangci-lint"; do \
		if [ -x "$$l" ] && "$$l" version --short 2>/dev/null | grep -qx '$(GOLANGCI_VERSION:v%=%)'; then lint=$$l; break; fi; \
	done; \
	if [ -z "$$lint" ]; then \
		lint=$(BIN)/golangci-lint; \
		echo 'building golangci-lint $(GOLANGCI_VERSION)'; \
		GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) || exit 1; \
	fi; \
	echo "$$lint run"; "$$lint" run

# vet has run by then.
unit: need-go need-gcc pgrun
	@properties="$$(grep -rl --include='*_test.go' pgregory.net/rapid pkg | xargs -n 1 dirname | sort -u | sed 's|^|./|')"; \
	others="$$($(GO) list -f '{{.Dir}}' ./... | sed "s|^$(CURDIR)|.|" | grep -vxF "$$properties")"; \
	run='$(GO) test -race -vet=off -p $(TEST_PACKAGES) -timeout $(TEST_TIMEOUT)'; \
	export CGO_ENABLED=1; failed=0; \
	echo "$$run (properties) -rapid.seed=$(SEED)"; $(PGRUN) -- $$run $$properties -rapid.seed=$(SEED) || failed=1; \
	echo "$$run (the other packages)"; $(PGRUN) -- $$run $$others || failed=1; \
	exit $$failed

generate: need-go need-gcc ## Generate pkg/store/internal/query from sql/ with sqlc
	@mkdir -p $(BIN)
	@[ -x $(BIN)/sqlc ] && [ "$$($(BIN)/sqlc version)" = $(SQLC_VERSION) ] || { \
		echo 'building sqlc $(SQLC_VERSION)'; CGO_ENABLED=1 GOBIN=$(BIN) $(GO) install github.com/sqlc-dev/sqlc/cmd/sqlc@$(SQLC_VERSION); }
	rm -f pkg/store/internal/query/*.go
	cd sql && $(BIN)/sqlc generate

# What is new is made smaller for a second at most: by itself Go takes a minute for each, in which nothing is tried.
fuzz: need-go pgrun ## Run every fuzz test for FUZZ_TIME (30s), and the random ones from a new place
	@$(PGRUN) -- $(GO) test -rapid.checks=1000 -timeout 30m $$(grep -rl --include='*_test.go' pgregory.net/rapid pkg | xargs -n 1 dirname | sort -u | sed 's|^|./|')
	@set -e; grep -rl --include='*_test.go' '^func Fuzz' pkg | while read -r f; do \
		grep -oE '^func Fuzz[A-Za-z0-9_]+' "$$f" | while read -r _ name; do \
			echo "$$(dirname "$$f") $$name"; \
			$(PGRUN) -- $(GO) test "./$$(dirname "$$f")" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZ_TIME) -fuzzminimizetime 1s </dev/null; \
		done; \
	done

test-peers: need-go pgrun ## Have the real Alertmanager, Prometheus and vmalert send to a real tocsin (what is not installed is built, minutes)
	TOCSIN_PEERS=1 $(PGRUN) -- $(GO) test ./pkg/app -run TestPeer -count 1 -timeout 60m -v

bench-intake: need-go pgrun ## Measure 1,000 alerts a second from 16 connections, and 10,000 alerts in one incident
	$(PGRUN) -durable -- $(GO) test ./pkg/app -run '^$$' -bench 'BenchmarkIntake|BenchmarkStorm' -benchtime 1x -timeout 15m

bench-latency: need-go pgrun ## Measure accepted alert -> provider call begun, two replicas, 200 alerts
	$(PGRUN) -durable -- $(GO) test ./pkg/app -run '^$$' -bench BenchmarkLatency -benchtime 1x

bench-worker: need-go pgrun ## Measure deliveries a second through claim, begin, call and finish
	$(PGRUN) -durable -- $(GO) test ./pkg/worker -run '^$$' -bench BenchmarkWorker -benchtime 1x -timeout 30m

chaos: need-go pgrun ## Kill, freeze and restart replicas under load for CHAOS (10m)
	TOCSIN_CHAOS=$(CHAOS) $(PGRUN) -- $(GO) test ./pkg/app -run TestChaos -count 1 -timeout 30m -v

drill: need-go pgrun ## Storms, outages, revoked tokens and dead subscribers, with far more messages than `make test` has
	TOCSIN_DRILL=1 $(PGRUN) -- $(GO) test ./pkg/app -run '$(DRILLS)' -count 1 -timeout 30m -v

reloads: need-go pgrun ## Change the file RELOADS (1000) times under load
	TOCSIN_RELOADS=$(RELOADS) $(PGRUN) -- $(GO) test ./pkg/app -run TestReloadsUnderLoad -count 1 -timeout 30m -v

clean: ## Remove what was built (the development data stays: `tocsin dev` names its folder)
	rm -rf $(BIN)

pgrun: need-go
	@mkdir -p $(BIN)
	@$(GO) build -buildvcs=false -o $(PGRUN) ./pkg/store/pglocal/pgrun

need-go:
	@command -v $(GO) >/dev/null || { \
		echo 'Go is missing: install Go 1.26 or later (https://go.dev/dl) and have its bin folder in PATH.' >&2; exit 1; }
	@$(GO) env GOCACHE >/dev/null 2>&1 && [ -n "$$($(GO) env GOCACHE)" ] && [ "$$($(GO) env GOCACHE)" != off ] || { \
		echo 'Go has no folder for its build cache: set HOME, or GOCACHE and GOPATH, to folders you can write.' >&2; exit 1; }

# The race detector and sqlc are built with a C compiler.
need-gcc:
	@command -v gcc >/dev/null && echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1 && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo 'installing a C compiler: apt-get install gcc libc6-dev'; \
		apt-get -q update >/dev/null; \
		DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install gcc libc6-dev >/dev/null && exit 0; \
	fi; \
	echo 'A C compiler is missing, which the race detector needs: as root, `apt-get install gcc libc6-dev`.' >&2; exit 1
