# `make` lists the targets. Nothing here is needed to build: `cargo build` alone does that.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

TOOLS := $(or $(MCP_TASKS_TOOLS),.tools)
CARGO := cargo
# The lock file decides; a test must not change it.
LOCKED := --locked

.PHONY: help dev test check fmt fmt-check clippy docs docs-check deny advisories sbom auth typos hadolint \
	build cargo-test rust-example conformance clients upstreams install rollout chaos chaos-sabotage loadtest bench bench-hot bench-peers flood pacing helm helm-docs pages fuzz

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | \
		while IFS=$$'\t' read -r name what; do printf '  %-14s %s\n' "$$name" "$$what"; done

dev: ## run everything on this machine (ARGS="--port 3000 --gateways 2 --workers 2 --fresh …")
	@.ci/install dev
	@exec $(CARGO) run -p mcp-tasks -- dev $(ARGS)

test: ## everything that must pass; what .ci/run calls
	@.ci/test

check: ## what needs no servers: formatting, lints, docs, dependencies, spelling
	@.ci/test check

install: ## install what the tests need and this machine lacks (apt needs root)
	@.ci/install test

fmt: ## format the code
	$(CARGO) fmt --all

fmt-check: ## fail if the code is not formatted
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path $(RUST_EXAMPLE)/Cargo.toml --check

clippy: ## lint everything, warnings denied
	$(CARGO) clippy $(LOCKED) --workspace --all-targets -- -D warnings

docs: ## write the generated pages under docs/ and the crates' documentation
	$(CARGO) run -q -p mcp-tasks -- config reference > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md
	@[ ! -x $(TOOLS)/chart/bin/python ] || .ci/helm docs
	$(CARGO) doc --workspace --no-deps

docs-check: ## fail if a crate's documentation has a warning
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --workspace --no-deps

deny: ## check licences, bans, duplicates and sources of the dependencies (offline)
	$(TOOLS)/lint/bin/cargo-deny --offline check licenses bans sources

advisories: ## check the dependencies against the advisory database, by two checkers (needs github.com)
	$(TOOLS)/lint/bin/cargo-deny check advisories
	$(TOOLS)/lint/bin/cargo-audit audit

sbom: ## what the binary is made of (CycloneDX), checked against its schema; target/sbom/mcp-tasks.cdx.json
	@.ci/sbom

typos: ## check the spelling
	$(TOOLS)/lint/bin/typos

hadolint: ## lint the Dockerfile
	$(TOOLS)/lint/bin/hadolint deploy/Dockerfile

# The same selection as the tests, so that nothing is compiled twice with other features.
build: ## build the binary and all tests
	$(CARGO) test $(LOCKED) --workspace --no-run

cargo-test: ## unit and integration tests, on real Postgres and Redis
	$(CARGO) test $(LOCKED) --workspace --no-fail-fast

# A workspace of its own, with the lock and the target folder of this one.
RUST_EXAMPLE := docs/examples/rust-worker
rust-example: ## build and test the example of a worker of one's own
	cp Cargo.lock $(RUST_EXAMPLE)/Cargo.lock
	CARGO_TARGET_DIR=$(abspath $(or $(CARGO_TARGET_DIR),target)) \
		$(CARGO) test --offline --manifest-path $(RUST_EXAMPLE)/Cargo.toml

# A run of ten minutes is expected to get through ten thousand tasks on two cores.
DURATION := 10m
SEED := 1
chaos: install ## many clients against a system that breaks all the time (DURATION=10m SEED=1 ARGS="--keep DIR …")
	$(CARGO) build $(LOCKED) -p mcp-tasks -p mcp-tasks-loadtest
	@exec $${CARGO_TARGET_DIR:-target}/debug/mcp-tasks-loadtest chaos \
		--binary $${CARGO_TARGET_DIR:-target}/debug/mcp-tasks --duration $(DURATION) --seed $(SEED) $(ARGS)

chaos-sabotage: install ## break every promise on purpose, by triggers in a database, and see each found (SEED=1)
	$(CARGO) build $(LOCKED) -p mcp-tasks -p mcp-tasks-loadtest
	@exec $${CARGO_TARGET_DIR:-target}/debug/mcp-tasks-loadtest sabotage \
		--binary $${CARGO_TARGET_DIR:-target}/debug/mcp-tasks --seed $(SEED) $(ARGS)

# Figures are of an optimised build; the first one takes some minutes.
LOADTEST_DIR := target/loadtest
loadtest: install ## steady load while a gateway, a worker and Redis die (SCENARIO=FILE ARGS="--rate 100 …"); report in target/loadtest
	$(CARGO) build $(LOCKED) --release -p mcp-tasks -p mcp-tasks-loadtest
	@exec $${CARGO_TARGET_DIR:-target}/release/mcp-tasks-load --binary $${CARGO_TARGET_DIR:-target}/release/mcp-tasks \
		--scenario $(or $(SCENARIO),loadtest/scenarios/failover.toml) --keep $(LOADTEST_DIR) $(ARGS)

bench: install ## what the system does a second, against pgbench on the same table (ARGS="--rows 10M --soak 1h --record …", "capacity")
	$(CARGO) build $(LOCKED) --release -p mcp-tasks -p mcp-tasks-loadtest
	@exec $${CARGO_TARGET_DIR:-target}/release/mcp-tasks-bench --binary $${CARGO_TARGET_DIR:-target}/release/mcp-tasks $(ARGS)

bench-hot: install ## functions that every request passes through, by themselves (ARGS="parse", criterion's own options)
	$(CARGO) bench $(LOCKED) -p mcp-tasks-loadtest --bench hot -- $(ARGS)

fuzz: ## fuzz what reads bytes of strangers, guided by coverage (DURATION=10m each, TARGETS="jsonrpc sse …"); needs g++
	@.ci/fuzz $(DURATION) $(TARGETS)

PEERS := loadtest/peers/Cargo.toml
flood: install ## what a flood of one principal leaves to another, and what floods take of a gateway's memory (ARGS="--time 30s --latency-only")
	$(CARGO) build $(LOCKED) --release -p mcp-tasks -p mcp-tasks-loadtest
	@exec $${CARGO_TARGET_DIR:-target}/release/mcp-tasks-flood --binary $${CARGO_TARGET_DIR:-target}/release/mcp-tasks $(ARGS)

bench-peers: install ## the same clients against FastMCP, rmcp and tower-mcp: ours divided by theirs (ARGS="--time 10s")
	$(CARGO) build $(LOCKED) --release -p mcp-tasks -p mcp-tasks-loadtest
	CARGO_TARGET_DIR=$(abspath $(or $(CARGO_TARGET_DIR),target)) $(CARGO) build $(LOCKED) --release --manifest-path $(PEERS)
	@exec $${CARGO_TARGET_DIR:-target}/release/mcp-tasks-bench peers --all --binary $${CARGO_TARGET_DIR:-target}/release/mcp-tasks \
		--programs $${CARGO_TARGET_DIR:-target}/release --python $(TOOLS)/python-fastmcp/bin/python $(ARGS)

rollout: install ## upgrade from an older release and back, under load (OLD=commit; default: the last release)
	@.ci/rollout $(OLD)

conformance: install build ## the official conformance runner against three gateways
	@.ci/conformance

helm: install build ## the Helm chart: rendered, validated, checked against the binary; a rolling update
	@.ci/helm

pages: install build ## the commands of README and docs, and the drills for disasters, against a stack of their own
	@.ci/docs

helm-docs: install ## write the chart's README.md and values.schema.json
	@.ci/helm docs

# An argument for more gateways: GATEWAYS=3.
GATEWAYS := 1
pacing: install build ## reads that over-eager clients cost, by `gateway.pacing` (GATEWAYS=1)
	@.ci/pacing $(GATEWAYS)

clients: install build ## published MCP clients (TypeScript, Python, curl) against a fresh stack
	@.ci/clients/run

auth: install build ## a real authorization server, a published client, and a table of good and forged tokens
	@.ci/auth/run

upstreams: install build ## mcp-tasks in front of published MCP servers, and what a killed worker means
	@.ci/upstreams/run
