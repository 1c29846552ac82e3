# Each target is enough by itself on a machine with Python 3.11 or newer, pip and make.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= auto
BIN    := $(VENV)/bin

# Python keeps what it compiles: pip leaves that to the first import (below), and a run has hundreds.
unexport PYTHONDONTWRITEBYTECODE

# The suite's modes, and the parts of each, which may run beside each other: each in one process if
# JOBS is 0, as in .ci/run, else by xdist, whose processes find all tests each, and which takes another
# millisecond for each test.
auto   := SKIMP_DEFER=auto SKIMP_ONEDNN=auto SKIMP_COMPILED=never
always := SKIMP_DEFER=always SKIMP_ONEDNN=never SKIMP_COMPILED=never
never  := SKIMP_DEFER=never SKIMP_ONEDNN=auto SKIMP_COMPILED=auto
budget := SKIMP_BUDGET=always SKIMP_DEFER=always SKIMP_COMPILED=never
AUTO   := $(addprefix test-auto-,starts surface engine ops)
ALWAYS := $(addprefix test-always-,surface engine)
SUITE  := $(AUTO) $(ALWAYS) test-never test-budget
# what starts processes, what lies below the surface, and the rest, whatever there is
test-auto-starts    := $(addprefix tests/,cli compat house lens programs surface/distributed)
test-auto-engine    := tests/engine tests/kernels
test-auto-ops       := tests/ops
test-auto-surface   := tests $(addprefix --ignore=,$(test-auto-starts) $(test-auto-engine) tests/ops)
test-always-engine  := tests/engine tests/kernels
test-always-surface := tests $(addprefix --ignore=,$(test-always-engine))
test-never          := tests
# programs whose values are compared, and that count no bytes: whatever may go, goes at every allocation
test-budget         := $(addprefix tests/engine/,test_twins.py autograd/test_autograd_twins.py \
	autograd/test_hook_twins.py autograd/test_programs.py autograd/test_inplace.py)

.PHONY: demo test test-auto test-always $(SUITE) check wheel explore explored leaks fuzz hostile stubs schemas guide bench bench-quick clean

demo: $(VENV)/.skimp
	$(BIN)/skimp run examples/demo.py

test: test-auto test-always test-never test-budget
test-auto: $(AUTO)
test-always: $(ALWAYS)

$(SUITE): $(VENV)/.skimp-test
	@echo "$@: $($(word 2,$(subst -, ,$@)))"
	@$($(word 2,$(subst -, ,$@))) $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $($@)

test-never: $(VENV)/.skimp-loops

# Hostile files for `load`, a minute each way; SKIMP_FUZZ=600 for ten, SKIMP_FUZZ_SEED=7 for others.
hostile: $(VENV)/.skimp-test
	SKIMP_FUZZ=$${SKIMP_FUZZ:-60} $(BIN)/python -m pytest -q tests/surface/serialization/test_hostile.py

check: $(VENV)/.skimp-check $(VENV)/.skimp-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/stubs.py --check
	$(BIN)/python tools/api.py --check
	$(BIN)/python tools/schemas.py --check
	$(BIN)/mypy
	$(BIN)/mypy --follow-imports=silent src/skimp/_engine/tensor/tensor.py  # its stub stands in for it above
	$(BIN)/python -m pytest -q --noconftest tests/house/test_imports.py

# The demo from the wheel, in an environment and a folder that hold nothing else.
wheel:
	rm -rf build/wheel
	@set -e; away=$$(mktemp -d); trap 'rm -rf "$$away"' EXIT; \
	$(PYTHON) -m venv $$away/env; \
	$$away/env/bin/python -m pip wheel -q --no-deps -w build/wheel .; \
	$$away/env/bin/python -m pip install -q --no-compile build/wheel/skimp-*.whl; \
	cp examples/demo.py $$away; cd $$away; \
	env/bin/python -c "import skimp, sys; assert skimp.__file__.startswith(sys.prefix), skimp"; \
	env/bin/skimp run demo.py

# Hypothesis looks for examples that nobody has tried; SEED=... tries the same ones again. (Finding
# the tests of the other files takes as long as half of the examples.) Time may not suffice for all
# files: it is others' turn to be last each time.
explore: $(VENV)/.skimp-test
	@seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "SEED=$$seed"; \
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -n $(JOBS) -m hypothesis --hypothesis-seed=$$seed \
	    $$(grep -rl hypothesis tests --include='test_*.py' | sort | \
	       awk -v seed=$$seed 'BEGIN { srand(seed) } { print rand(), $$0 }' | sort | cut -d' ' -f2)

# A find becomes a test; it does not fail a change that has nothing to do with it.
explored:
	@$(MAKE) explore || echo "make explore: found something, with its SEED above"

# Whether steps leave anything behind, in rounds of 10,000 steps of each family.
leaks: $(VENV)/.skimp-test
	SKIMP_LEAKS=$${SKIMP_LEAKS:-10000} $(BIN)/python -m pytest -q --timeout 0 tests/surface/test_leaks.py

# Random programs for as long as you like: make fuzz COUNT=1000000 SEED=...
fuzz: $(VENV)/.skimp-test
	$(BIN)/python -m tests.fuzz $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

# What editors and type checkers know of the names that op rows declare.
stubs: $(VENV)/.skimp
	$(BIN)/python tools/stubs.py

# The types of ops' arguments, as PyTorch's schemas have them.
schemas: $(VENV)/.skimp-test
	$(BIN)/python tools/schemas.py

# The pictures and the notebook of docs/guide/tensors.md, and the pictures of a report.
guide: $(VENV)/.skimp
	$(BIN)/python tools/guide.py
	$(BIN)/python tools/report.py

# Measures everything, and writes docs/performance.md and the README's table; with C's loops, where
# there is a compiler.
bench: $(VENV)/.skimp-bench
	-$(BIN)/skimp compile
	$(BIN)/python -m bench
	$(BIN)/python -m bench.budget

# Prints only. For other parts: $(BIN)/python -m bench --help
bench-quick: $(VENV)/.skimp-bench
	$(BIN)/python -m bench --quick

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f $(VENV)/.skimp*

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# C's loops, of the source at hand, where there is a compiler.
$(VENV)/.skimp-loops: $(addprefix src/skimp/_kernels/,loops.py loops.pxd passes.h) | $(VENV)/.skimp-test
	-$(BIN)/skimp compile
	@touch $@

# Editable, so that a change in src/ needs no second installation; pyproject.toml does. Of the 12,400
# files that pip would compile, one after another, the suite imports a quarter.
INSTALL := $(BIN)/python -m pip install -q --no-compile

$(VENV)/.skimp: pyproject.toml | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/.skimp-%: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[$*]'
	@touch $@

# What the other targets ask for, but `bench`, in one go.
$(VENV)/.skimp-dev: pyproject.toml | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@touch $(VENV)/.skimp $(VENV)/.skimp-test $(VENV)/.skimp-check $@
