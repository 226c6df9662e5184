# Everything happens in .venv, with the versions of constraints.txt. A second run installs only what has changed.
PYTHON ?= python3
PORT ?= 7860
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# so that the first piece does not wait for it; without it the first piece does it
COMPILE := echo "Compiling for this processor; half a minute." && $(BIN)/python -m relpe.decoding.compiled || echo "It did not work: torch writes the tokens."

.PHONY: help app test test-slow lint format clean

help:
	@echo "make app        install what making music needs and open the page"
	@echo "make test       install everything and run the tests"
	@echo "make test-slow  run the long tests as well"
	@echo "make lint       ruff and basedpyright"
	@echo "make format     let ruff format and mend what it can"
	@echo "make clean      remove .venv and caches"

app: $(VENV)/.app
	$(BIN)/relpe ui --port $(PORT)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "" --hypothesis-profile thorough -o faulthandler_timeout=1800

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(VENV)/.dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis

# pip is made last: where it is there, the environment is whole.
$(BIN)/pip:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and \
	    'Python ' + sys.version.split()[0] + ' found, 3.11 or later needed: make PYTHON=python3.11 ...')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.app: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing packages into $(VENV); this takes a minute or a few."
	$(INSTALL) -e ".[app]"
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/pip
	@echo "Installing packages into $(VENV); this takes a minute or a few."
	$(INSTALL) -e ".[dev]"
	@$(COMPILE)
	@touch $(VENV)/.app $@
