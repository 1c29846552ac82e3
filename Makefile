# Each target is enough by itself on a machine with Python 3.11 or newer, pip and make.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= auto
BIN    := $(VENV)/bin

.PHONY: demo test check stubs bench bench-quick clean

demo: $(VENV)/.skimp
	$(BIN)/skimp run examples/demo.py

test: $(VENV)/.skimp-test
	@for mode in never always auto; do \
	    echo "SKIMP_DEFER=$$mode"; \
	    SKIMP_DEFER=$$mode $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal || exit 1; \
	done

check: $(VENV)/.skimp-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/stubs.py --check
	$(BIN)/mypy
	$(BIN)/mypy --follow-imports=silent src/skimp/_engine/tensor/tensor.py  # its stub stands in for it above
	$(BIN)/python -m pytest -q --noconftest tests/test_imports.py

# What editors and type checkers know of the names that op rows declare.
stubs: $(VENV)/.skimp
	$(BIN)/python tools/stubs.py

# Measures everything, and writes docs/performance.md and the README's table.
bench: $(VENV)/.skimp-bench
	$(BIN)/python -m bench

# Prints only. For other parts: $(BIN)/python -m bench --help
bench-quick: $(VENV)/.skimp-bench
	$(BIN)/python -m bench --quick

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
