# Every target sets up what it needs: ci/bootstrap.py makes .venv from requirements.lock, for `make test` from
# requirements-test.lock, and for all other work on the project from requirements-dev.lock.
# make verify ARGS="nats://127.0.0.1:4222"   make test ARGS="-k headers"   make test PYTHON=python3.13

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
BENCHES := $(basename $(notdir $(filter-out tests/bench/test_% tests/bench/__%,$(wildcard tests/bench/*.py))))

# Tests start hundreds of processes: each would compile what it imports where this variable is set.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help verify test test-all lint format mutation adequacy zoo kill bugs cluster cluster-bugs hostile fuzz fuzz-live simulate large-history bench site picture docs \
	servers lock zipapp ready quick bootstrap clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

verify: ready ## verify the embedded reference broker, or ARGS=nats://host:port
	@mkdir -p .plumbline
	@$(BIN)/plumbline verify --html .plumbline/report.html --json .plumbline/result.json $(ARGS)

test: quick ## run the quick tests: units, cores on virtual clocks, the suite against the reference brokers
	@$(BIN)/python -m pytest -n auto --dist loadgroup --durations=10 --durations-min=5 -m "not external and not slow" $(ARGS)

test-all: bootstrap ## run all tests: also real servers, Spark, browsers, what takes long
	@$(BIN)/python -m pytest -n auto --dist loadgroup --durations=10 --durations-min=5 $(ARGS)

lint: bootstrap ## ruff, mypy --strict, import arrows, requirement coverage, commit messages; all, then fail
	@status=0; run() { echo "lint: $$*"; "$$@" || status=1; }; \
	run $(BIN)/ruff check --output-format=concise .; \
	run $(BIN)/ruff format --check .; \
	run $(BIN)/mypy; \
	run $(BIN)/lint-imports; \
	run $(BIN)/python -m plumbline.conformance.requirements.coverage; \
	run $(BIN)/python -m plumbline.ci.commits; \
	exit $$status

format: bootstrap ## write what lint would ask for
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

mutation: bootstrap ## switch on each defect of the reference broker, print what the suite saw
	@$(BIN)/python -m tests.mutation $(ARGS)

adequacy: bootstrap ## mutate the reference cores by rule, print which mutants the suite kills; ARGS="--sample 200"
	@$(BIN)/python -m tests.adequacy $(ARGS)

zoo: bootstrap ## the whole suite on real servers in many configurations, and on each with a planted defect
	@$(BIN)/python -m tests.zoo $(ARGS)

kill: bootstrap ## kill -9 both reference brokers and a recorder 200 times under load and judge what is left
	@$(BIN)/python -m tests.durability $(ARGS)

bugs: bootstrap ## known bugs of client libraries: installs the old release, which must be red, and the fixed one
	@PLUMBLINE_REGISTRIES=1 $(BIN)/python -m pytest -n 2 tests/conformance/clients/test_known_bugs.py $(ARGS)

hostile: bootstrap ## verify on each hostile server: time, memory and exit code; half an hour; ARGS="--max-time 60s nats"
	@$(BIN)/python -m tests.hostile $(ARGS)

fuzz: bootstrap ## random input for all that reads strange input; ARGS="--seconds 60 --only nats-codec --seed 1"
	@$(BIN)/python -m tests.fuzz $(ARGS)

fuzz-live: bootstrap ## random clients for running brokers and proxies; ARGS="--seconds 1800 --only proxy-nats --seed 1"
	@$(BIN)/python -m tests.fuzz.live $(ARGS)

cluster: bootstrap ## real nats-servers under each fault, minutes each; ARGS="--for 60s --runs 5 --server NAME"
	@$(BIN)/python -m tests.cluster $(ARGS)

cluster-bugs: bootstrap ## known bugs of nats-server: the affected release is convicted, the fixed one is not; ARGS="--tries 10 --only NAME"
	@$(BIN)/python -m tests.cluster.bugs $(ARGS)

simulate: bootstrap ## simulated clusters without a defect, 10000 seeds: none is convicted; ARGS="--seeds 1000"
	@$(BIN)/python -m tests.cluster.seeds $(ARGS)

large-history: bootstrap ## a history of ten million publishes, judged with Spark; ARGS="--publishes 1000000"
	@$(BIN)/python -m tests.cluster.large_history $(ARGS)

bench: bootstrap ## measure; nothing here passes or fails
	@for name in $(BENCHES); do $(BIN)/python -m tests.bench.$$name $(ARGS) || exit 1; done

site: bootstrap ## verify all servers and gate all libraries that are here, and write the published table
	@$(BIN)/python -m tests.site $(ARGS)

picture: bootstrap ## take the picture of the report in README.md, from a real run
	@$(BIN)/python -m plumbline.ci.picture

docs: bootstrap ## build the documentation site into .plumbline/docs/
	@rm -rf .plumbline/docs
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs .plumbline/docs
	@echo "The documentation is in .plumbline/docs/index.html"

zipapp: ready ## build plumbline.pyz: everything in one file, for the Python of .venv
	@$(BIN)/python -m plumbline.ci.zipapp $(ARGS)

servers: ready ## get the real servers that the tests use (apt-get, go install or a wheel)
	@$(BIN)/python -m plumbline.ci.install

lock: ## renew the three lock files; needs uv
	@$(PYTHON) -m plumbline.ci.lock

ready: # creates or renews .venv if a lock file or pyproject.toml changed
	@$(PYTHON) ci/bootstrap.py

quick: # the same, with what the quick tests need
	@$(PYTHON) ci/bootstrap.py --test

bootstrap: # the same, with all that work on the project needs
	@$(PYTHON) ci/bootstrap.py --dev

clean: ## remove .venv, caches and reports
	rm -rf .venv .plumbline .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
