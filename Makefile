# Everything here begins with `setup`, which needs Python 3.11 to 3.13 and make, and nothing of ours: no uv, no Docker,
# no PostgreSQL server, root or not. PYTHON=... names the interpreter to use. `make` alone lists the targets.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check format test-containers test-machine test-mutants torture coverage mutmut bench bench-full bench-peers bench-setup lock wheel clean FORCE

VENV := .venv
BIN := $(VENV)/bin
# Says which checkout the environment was made for: in a folder that was moved or copied it is made anew,
# since the scripts of a virtual environment hold its path.
STAMP := $(VENV)/.ready
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): FORCE
endif

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

RIGHT_VERSION := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## make .venv with all extras and tools; does nothing until pyproject.toml or the lock changes

# An environment that still runs is kept and brought up to the lock. Debian without python3-venv has the venv module but
# not the pip to put into it: then the system's own pip installs one from outside, else uv does.
$(STAMP): pyproject.toml requirements.lock
	@[ ! -f $@ ] || [ "$$(cat $@)" = '$(CURDIR)' ] || rm -rf $(VENV)
	@rm -f $@
	@$(BIN)/python -c '$(RIGHT_VERSION)' 2>/dev/null || { \
	  for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	    "$$python" -c '$(RIGHT_VERSION)' 2>/dev/null && break; \
	    python=; \
	  done; \
	  [ -n "$$python" ] || { \
	    echo "recovery needs Python 3.11, 3.12 or 3.13, and $(or $(PYTHON),python3) is none of these:" \
	      "install one, or say where it is (make setup PYTHON=/path/to/python3.12)." >&2; exit 1; }; \
	  echo "Making $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV) >/dev/null 2>&1 || "$$python" -m venv --clear --without-pip $(VENV); \
	  $(BIN)/python -m pip --version >/dev/null 2>&1 \
	    || "$$python" -m pip --python $(BIN)/python install --quiet pip 2>/dev/null \
	    || uv pip install --quiet --python $(BIN)/python pip 2>/dev/null \
	    || { echo "$$python can make no environment with pip in it:" \
	      "install its venv module (on Debian: apt-get install python3-venv), then try again." >&2; exit 1; }; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@echo "Installing requirements.lock into $(VENV)"
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@printf %s '$(CURDIR)' >$@

demo: setup ## tell the whole story: a killed worker, a stale commit, a lost ACK, one effect
	@$(BIN)/recovery demo

# Most of a run is waiting: for leases, for processes, for disks. A module stays in one process, for its own server.
# TESTS holds further arguments for pytest.
PROCESSES := 3
TESTS :=

test: setup ## run all tests but those that need containers, in PROCESSES (3) processes
	$(BIN)/pytest -n $(PROCESSES) --dist loadscope $(TESTS)

test-containers: setup ## run the conformance suite against RECOVERY_POSTGRES_IMAGE (default postgres:17) in Docker
	$(BIN)/pytest -m container tests/containers

test-machine: setup ## run the tests that need root, PgBouncer or two servers: full disks, a pooler, a failover
	$(BIN)/pytest -m machine tests/machine tests/testing tests/failover

test-mutants: setup ## break the library in one place after the other, and look whether its tests notice
	$(BIN)/pytest -n 2 -m mutants tests/mutation

ROOMS := recovery/repositories/*,recovery/transactions.py,recovery/async_transactions.py

coverage: setup ## run all tests and see which lines and branches they reach: all of the rooms, 95 % of the rest
	@$(BIN)/python -c 'import coverage' 2>/dev/null || $(BIN)/python -m pip install --quiet 'coverage>=7.10'
	$(BIN)/coverage erase
	@failed=0; \
	$(BIN)/coverage run -m pytest -n $(PROCESSES) --dist loadscope $(TESTS) || failed=$$?; \
	$(BIN)/coverage combine --quiet || exit 1; \
	$(BIN)/coverage report --include='$(ROOMS)' --fail-under=100 || failed=1; \
	$(BIN)/coverage report --omit='$(ROOMS)' --fail-under=95 || failed=1; \
	exit $$failed

mutmut: setup ## mutate repositories/ in thousands of places, for hours; docs/mutants.md names what survives, and why
	@$(BIN)/python -c 'import mutmut' 2>/dev/null || $(BIN)/python -m pip install --quiet 'mutmut>=3.8'
	$(BIN)/mutmut run --max-children $(or $(CHILDREN),2)
	$(BIN)/mutmut results

torture: setup ## a minute of kills, stops, cuts and lost answers on each backend, and the checker's verdict
	$(BIN)/recovery torture --minutes 1 --seed $(or $(SEED),1)
	$(BIN)/recovery torture --embedded --minutes 1 --seed $(or $(SEED),1)

check: setup ## lint, formatting, types, floors
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## format, and mend what can be mended
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# BENCH_OUT is where the reports go; BENCH holds further options, such as BENCH="--url postgresql://… --rounds 9".
BENCH_OUT := bench-report
BENCH :=

bench: bench-setup ## measure SQLite and an embedded PostgreSQL in about five minutes; report in bench-report/
	$(BIN)/python -m benchmarks short --out $(BENCH_OUT) $(BENCH)

bench-full: bench-setup ## measure everything, for hours; the closing table says which bars are met
	$(BIN)/python -m benchmarks full --out $(BENCH_OUT) $(if $(wildcard $(BENCH_OUT)/peers.json),--peers $(BENCH_OUT)/peers.json) $(BENCH)

bench-peers: setup ## compare with other queues, each in an environment of its own
	$(BIN)/python -m benchmarks peers --out $(BENCH_OUT) $(BENCH)

# The pictures need matplotlib, which the lock leaves out: it is in a group of its own.
bench-setup: setup
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install --quiet 'matplotlib>=3.10'

# Names, versions and hashes for every platform and Python, and no address: whoever installs it uses their own index.
# The old lock is read first, so that only what must change does; UPGRADE=1 takes the newest of everything.
lock: ## remake requirements.lock from pyproject.toml (UPGRADE=1: take the newest of everything)
	$(or $(wildcard $(BIN)/uv),uv) pip compile pyproject.toml --all-extras --group dev --no-emit-package recovery \
	  --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
	  --no-emit-find-links --quiet $(if $(UPGRADE),--upgrade) --output-file requirements.lock

wheel: setup ## build the wheel and the source archive into dist/
	rm -rf dist
	$(BIN)/uv build --quiet --no-cache --no-build-isolation --python $(BIN)/python

clean: ## remove .venv, dist and all caches
	rm -rf $(VENV) dist build .*_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
