# Each target is enough by itself on a machine with Python 3.11 or newer, pip and make.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= auto
BIN    := $(VENV)/bin

# What `make bench` measures: a regular expression over the names of the workloads.
WORK ?= us_|relu|exp|add|clone|transpose|mask|total|gelu_fwd|^mm

.PHONY: demo test check stubs bench clean

demo: $(VENV)/.skimp
	$(BIN)/skimp run examples/demo.py

test: $(VENV)/.skimp-test
	@for mode in never always auto; do \
	    echo "SKIMP_DEFER=$$mode"; \
	    SKIMP_DEFER=$$mode $(BIN)/python -m pytest -q -n $(JOBS) --reruns 2 || exit 1; \
	done

check: $(VENV)/.skimp-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/stubs.py --check
	$(BIN)/mypy
	$(BIN)/mypy --follow-imports=silent src/skimp/_tensor.py  # its stub stands in for it above
	$(BIN)/python -m pytest -q --noconftest tests/test_imports.py

# What editors and type checkers know of the names that op rows declare.
stubs: $(VENV)/.skimp
	$(BIN)/python tools/stubs.py

bench: $(VENV)/.skimp-bench
	$(BIN)/python bench/workloads.py skimp,torch,torch+thp '$(WORK)'

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f $(VENV)/.skimp*

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Editable, so that a change in src/ needs no second installation; pyproject.toml does.
$(VENV)/.skimp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(VENV)/.skimp-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q -e '.[$*]'
	@touch $@
