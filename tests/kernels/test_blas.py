"""BLAS's threads: they sleep between products, and `set_num_threads` counts for them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import skimp
from skimp._kernels import blas, patience
from skimp.config import config

_ASK = """
import os
import skimp
from skimp._kernels import blas, patience
lent = getattr(blas.library(), "openblas_thread_timeout", None)
said = os.environ[patience.VARIABLE]
assert lent is None or lent() == int(said)
a = skimp.randn(300, 300, dtype=skimp.float64)
assert skimp.allclose(a @ skimp.linalg.inv(a), skimp.eye(300, dtype=skimp.float64))
print(said, patience.LATE)
"""


@pytest.fixture(autouse=True)
def _openblas() -> None:
    if blas.library() is None:
        pytest.skip("NumPy has another BLAS here")


def _printed(first: str = "", **env: str) -> str:
    without = {name: value for name, value in os.environ.items() if name != patience.VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", first + _ASK],
        env={**without, **env},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_its_threads_sleep_soon() -> None:
    """NumPy's library is loaded after it was told."""
    assert _printed() == "16 False"


def test_who_sets_the_variable_has_chosen() -> None:
    assert _printed(OPENBLAS_THREAD_TIMEOUT="22") == "22 False"


def test_told_after_numpy_has_multiplied() -> None:
    """A program that imports NumPy first, and uses its threads."""
    if not hasattr(blas.library(), "openblas_read_env"):
        pytest.skip("NumPy's library can't be told any more")
    assert _printed("import numpy; a = numpy.ones((500, 500)); a @ a") == "16 True"


def test_set_num_threads_counts_for_products() -> None:
    functions = blas._functions()
    assert functions is not None
    threads = functions[0]
    before = skimp.get_num_threads()
    try:
        skimp.set_num_threads(1)
        assert threads() == 1
        skimp.set_num_threads(2)
        assert threads() == 2
        with blas.one_thread():
            assert threads() == 1
        assert threads() == 2
    finally:
        skimp.set_num_threads(before)


def test_numbers_of_threads_that_are_none() -> None:
    for bad in (0, -1, 1.5, None):
        with pytest.raises(RuntimeError) as want:
            torch.set_num_threads(bad)
        with pytest.raises(RuntimeError) as got:
            skimp.set_num_threads(bad)
        assert str(got.value) == str(want.value)


def _threads_of(run: Callable[[Callable[[], object]], object]) -> set[int]:
    """The threads on which `run` has work of several items done, each item by who comes."""
    found: set[int] = set()
    items = iter(range(200))

    def work() -> None:
        for _ in items:
            found.add(threading.get_ident())
            time.sleep(0.001)

    run(work)
    assert not list(items)
    return found


def test_what_is_quickly_done_wakes_no_helper() -> None:
    with config.using(threads=2, threads_from=1000):
        few = blas._QUICK * 1000 - 1
        assert _threads_of(lambda work: blas.spread(work, 200, few)) == {threading.get_ident()}
        assert len(_threads_of(lambda work: blas.spread(work, 200, few + 1))) == 2


@pytest.mark.parametrize("multiplications", [0, 1 << 20, 1 << 40])
def test_pieces_side_by_side_are_all_done(multiplications: int) -> None:
    done: list[int] = []
    with config.using(threads=2, threads_from=1):
        blas.side_by_side([partial(done.append, i) for i in range(3)], multiplications)
    assert sorted(done) == [0, 1, 2]


def test_an_error_of_one_piece_is_raised() -> None:
    def fails() -> None:
        raise ValueError("one")

    with config.using(threads=2, threads_from=1), pytest.raises(ValueError, match="one"):
        blas.side_by_side([fails, lambda: time.sleep(0.01)], 1 << 20)


def test_a_region_of_one_thread_that_is_interrupted_before_it_begins_puts_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = [3]
    functions = (lambda: count[0]), (lambda n: count.__setitem__(0, n))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(blas, "_functions", lambda: functions)
    with blas.one_thread():
        assert count == [1]
    assert count == [3]
    count[0] = 2  # the program's own
    monkeypatch.setattr(blas, "_enter", interrupted)
    with pytest.raises(KeyboardInterrupt), blas.one_thread():
        pass
    assert count == [2]
