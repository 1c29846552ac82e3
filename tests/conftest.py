"""A test leaves no bytes behind; and what the suite as a whole needs to be quick and sure.

`make test` runs the suite three times, by what is deferred (SKIMP_DEFER=auto, always, never), with
the same examples. What computes with tensors runs with `always` too: `ONCE` names the rest. Small
tensors are not deferred by default, so `never` has little new to say: it runs `NEVER` alone.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The same examples every time: a change is judged by its own failures. `make explore` looks for new
# ones, from a seed that it prints, until the time is over. How long an example takes to draw is the
# machine's matter, which may be busy.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("fixed", patient, derandomize=True)
settings.register_profile("explore", patient, max_examples=300, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

EXPLORING = settings.get_current_profile_name() == "explore"
TIME_TO_EXPLORE = 60.0  # seconds from the first test; what has not begun by then is skipped

# Processes that tests start keep the bytecode that they make: compiling takes half of the time that
# `import skimp` takes without.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest.register_assert_rewrite("tests.support")  # what fails there says so as a test does

TESTS = Path(__file__).parent


# What these test does not depend on the mode: commands, pages, names, signatures, docstrings, stubs
# and other libraries; processes that talk to each other; functions of arrays and of integers that
# know no tensors. They run in the default mode only (SKIMP_DEFER=auto, or not set).
ONCE = (
    *("programs", "surface/distributed", "surface/test_aten.py", "surface/test_processes.py"),
    *("cli/test_check.py", "cli/test_cli.py", "house", "lens"),
    *("compat/test_compat.py", "compat/test_libraries.py"),
    *("surface/test_beside.py", "surface/utils/test_tensorboard.py", "surface/test_leaks.py"),
    *("surface/test_signatures.py", "surface/test_wrong_calls.py", "surface/nn/test_surface.py"),
    *("surface/test_function_names.py", "engine/dispatch/test_unbound.py"),
    *("compat/test_modules.py", "compat/test_own_names.py", "compat/test_symbolic.py"),
    "compat/test_arrivals.py",
    *("surface/serialization/test_rules.py", "surface/serialization/test_what_files_ask.py"),
    *("engine/test_generated.py", "engine/memory/test_interpreter.py"),
    "engine/tensor/test_size.py",
    *("engine/autograd/test_graphs.py", "surface/serialization/test_hostile.py"),
    *("engine/memory/test_allocator.py", "engine/memory/test_layout.py"),
    *("engine/memory/test_layout_views.py", "engine/memory/test_ledger.py"),
    *("engine/memory/test_pool.py", "engine/memory/test_pool_histories.py"),
    *("engine/memory/test_segments.py", "engine/eval/test_copy.py"),
    *("engine/tensor/test_printing.py", "engine/tensor/test_promotion.py"),
    *("kernels/test_arithmetic.py", "kernels/test_draws.py", "kernels/test_few_draws.py"),
    *("kernels/test_foreign.py", "kernels/test_lapack.py", "kernels/test_locks.py"),
    *("kernels/test_order.py", "kernels/test_shaping.py"),
    *(
        "kernels/test_pointwise.py",
        "kernels/test_pointwise_gradients.py",
        "kernels/test_special.py",
    ),
)

# Where what is computed at once could differ from what waits: memory, errors' lines, gradients of
# large tensors, twins.
NEVER = ("engine", "kernels", "surface/memory", "surface/nn", "surface/optim")

# Functions of arrays, which know nothing that waits: `always` runs them without oneDNN, and `never`
# would run again what the default mode has run.
ARRAYS = (
    *("kernels/test_conv_depthwise.py", "kernels/test_conv_products.py"),
    *("kernels/test_conv_rows.py", "kernels/test_pool_onednn.py"),
    *("kernels/test_recurrence_onednn.py", "kernels/test_signals.py", "kernels/test_teams.py"),
)

# Whose tensors all have fewer than 2^17 elements, so nothing waits by default either: what these
# tests hear of `defer_from` and `rematerialize_from` is what `never` says. (Larger ones belong
# elsewhere.)
SMALL = (
    *("engine/autograd/test_errors.py", "engine/autograd/test_forward_ad.py"),
    *("engine/autograd/test_freed.py", "engine/autograd/test_function.py"),
    *("engine/autograd/test_gradcheck.py", "engine/autograd/test_rules.py"),
    *("engine/dispatch/test_describing.py", "engine/dispatch/test_given_stays.py"),
    *("engine/dispatch/test_layouts.py", "engine/dispatch/test_made_up_ops.py"),
    *("engine/dispatch/test_numbers_and_types.py", "engine/dispatch/test_other_operands.py"),
    *("engine/dispatch/test_outs.py", "engine/dispatch/test_overrides.py"),
    "engine/dispatch/test_parameters.py",
    *("engine/tensor/test_fields.py", "surface/memory/test_picture.py"),
    *("surface/nn/test_compiled.py", "surface/nn/test_dtype_kinds.py", "surface/nn/test_grad.py"),
    *("surface/nn/test_modules_forward.py", "surface/nn/test_modules_protocol.py"),
    *("surface/nn/test_modules_state.py", "surface/nn/test_modules_utils.py"),
    *("surface/nn/test_native.py", "surface/nn/test_own_weights.py"),
    *("surface/nn/test_parameters.py", "surface/nn/test_prune.py"),
    "surface/optim/test_matrices.py",
)

# What starts, interrupts and kills processes meets the scheduler's moods, and is tried three times.
# Nothing else is: a failure elsewhere is a failure. (Besides, pytest-rerunfailures asks another
# process about each test that it may repeat, in a way that takes 40 ms of waiting.)
STARTS_PROCESSES = (
    *(
        "cli/test_cli.py",
        "cli/test_run.py",
        "engine/budget/test_budget.py",
        "engine/budget/test_telling.py",
        "compat/test_compat.py",
        "compat/test_libraries.py",
    ),
    *("engine/memory/test_pool.py", "house/test_docs.py", "kernels/test_blas.py", "programs"),
    *("surface/serialization/test_whole_writes.py", "surface/test_processes.py"),
    *("surface/distributed", "lens/test_pytorch.py"),
    *("surface/utils/test_data.py", "surface/utils/test_workers.py"),
)


def pytest_configure(config: pytest.Config) -> None:
    """A folder for what one of this run's processes makes for all (tests/support/shared.py)."""
    from tests.support.shared import FOLDER

    if FOLDER not in os.environ:  # else a worker, which has it from the process that started it
        folder = TemporaryDirectory(prefix="skimp-tests-")
        os.environ[FOLDER] = folder.name
        config.add_cleanup(folder.cleanup)


def among(path: Path, places: tuple[str, ...]) -> bool:
    """Whether a file is one of the places, or in one of them that is a folder."""
    here = path.relative_to(TESTS)
    return any([here.is_relative_to(place) for place in places])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    starting = {path: among(path, STARTS_PROCESSES) for path in {item.path for item in items}}
    for item in items:
        if starting[item.path]:
            item.add_marker(pytest.mark.flaky(reruns=2))


def pytest_collectstart() -> None:
    """What is found stays: to look for garbage in it meanwhile took a fifth of the time."""
    gc.disable()  # until all is found


def collect() -> None:
    """Free what is garbage, and keep what is not out of collections from now on.

    Between two tests that is modules and what pytest knows, half a million objects: to go through
    them again for each test that leaves a cycle took a quarter of the suite's time.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    """PyTorch, where tests import it, has one thread, and so has BLAS, as tests run side by side:
    idle threads spin while others wait for their cores. (PyTorch's sums then have one order on all
    machines.)
    """
    from skimp._engine.memory.ledger import host
    from skimp._kernels.blas import use_threads

    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
        # for each device that there is not, manual_seed keeps the text of its callers' stack: 3 ms
        torch.random._manual_seed_impl = lambda seed: torch.default_generator.manual_seed(int(seed))
    use_threads(1)
    gc.enable()
    collect()
    _found.append(time.monotonic())
    assert host.allocated == 0, "a test file keeps a tensor: tests that count bytes would count it"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a file (None: pytest decides)."""
    mode = os.environ.get("SKIMP_DEFER", "auto")
    if collection_path.is_dir() or mode == "auto":
        return None
    left_out = among(collection_path, ONCE)
    if mode == "never":
        left_out = left_out or not among(collection_path, NEVER)
        left_out = left_out or among(collection_path, (*ARRAYS, *SMALL))
    return left_out or None


_found: list[float] = []  # when all tests were
_collected: list[Path] = []  # the file before whose tests garbage was last looked for


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin the global streams anew: what a test draws does not depend on the tests before. And
    with each file, let collections look no more at what those left: some tests ask for hundreds.
    """
    if _collected != [item.path]:
        _collected[:] = [item.path]
        collect()
    if EXPLORING:
        if time.monotonic() - _found[0] > TIME_TO_EXPLORE:
            pytest.skip("the time to explore is over")
        return
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
    if skimp := sys.modules.get("skimp"):
        skimp.manual_seed(0)


@pytest.fixture(autouse=True)
def no_bytes_left() -> Iterator[None]:
    """What is allocated after a test is what was allocated before it."""
    from skimp._engine.memory.ledger import host

    before = host.allocated
    yield
    if host.allocated != before:
        collect()
    assert host.allocated == before, f"the test left {host.allocated - before} bytes allocated"
