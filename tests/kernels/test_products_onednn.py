"""Products by oneDNN: values, layouts, what it is not asked for, threads and forks."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import skimp
from skimp._kernels import blas, compiled, loops, onednn, products_onednn, teams
from skimp.config import config

pytestmark = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not installed here")
LAYOUTS = ("rows", "columns", "padded", "turned and padded")


def _matrix(shape: tuple[int, int], layout: str, seed: int) -> Any:
    m, n = shape
    rng = np.random.default_rng(seed)
    if "turned" in layout or layout == "columns":
        made = rng.standard_normal((n, m + 3 * ("padded" in layout)), dtype="f4")
        return made[:, : m or None].T
    return rng.standard_normal((m, n + 5 * ("padded" in layout)), dtype="f4")[:, :n]


@given(
    sizes=st.tuples(*[st.integers(2, 700)] * 3),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 2),
    padded=st.booleans(),
    add=st.booleans(),
)
def test_values_are_the_same_on_any_number_of_threads(
    sizes: tuple[int, int, int], layouts: tuple[str, str], padded: bool, add: bool
) -> None:
    m, k, n = sizes
    assume(m * k * n > products_onednn.SMALL)
    a, b = _matrix((m, k), layouts[0], 0), _matrix((k, n), layouts[1], 1)
    found = []
    for threads in (1, 2, 3):
        out = _matrix((m, n), "padded" if padded else "rows", 2)
        beside = out.base.copy() if padded else None
        assert products_onednn.multiply(a, b, out, threads, add)
        found.append(out.copy())
        if beside is not None:
            np.testing.assert_array_equal(out.base[:, n:], beside[:, n:])
    before = _matrix((m, n), "padded" if padded else "rows", 2) if add else np.zeros((m, n))
    exact = before + a.astype("f8") @ b.astype("f8")
    size = np.abs(before) + np.abs(a).astype("f8") @ np.abs(b).astype("f8")
    assert np.all(np.abs(found[0] - exact) <= np.sqrt(k) * np.finfo("f4").eps * size)
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])


@pytest.mark.parametrize(
    "shape",
    [(32, 784, 400), (172, 927, 189), (512, 600, 512), (64, 4000, 9), (2048, 1024, 256),
     (64, 1024, 1536), (309, 2048, 1536), (879, 1025, 1024)],
)  # fmt: skip
def test_long_sums_have_the_same_bits_on_any_number_of_threads(shape: tuple[int, int, int]) -> None:
    """Of which oneDNN would give each thread a part."""
    m, k, n = shape
    x, w = skimp.randn(m, k), skimp.randn(n, k)
    found = []
    for threads in (1, 2, 4):
        with config.using(threads=threads):
            found.append(skimp.nn.functional.linear(x, w, x[0, :1].expand(n)).numpy())
    for one in found[1:]:
        np.testing.assert_array_equal(one, found[0])


@pytest.mark.parametrize(
    "shape",
    [(100, 4096, 128), (128, 768, 512), (71, 482, 350), (122, 420, 174), (76, 4001, 61),
     (101, 3972, 36), (40, 474, 259), (1025, 300, 90), (1600, 700, 40),
     (4096, 300, 257)],
)  # fmt: skip
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_sums_of_few_results_too(
    shape: tuple[int, int, int], turned: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many threads would cut them."""
    monkeypatch.setattr(teams.account, "awake", math.inf)
    m, k, n = shape
    a, b = [np.random.default_rng(0).standard_normal(s).astype("f4") for s in ((m, k), (k, n))]
    one, other = [np.asfortranarray(x) if t else x for x, t in zip((a, b), turned, strict=True)]
    found = []
    for threads in (1, 2, 8):
        found.append(np.empty((m, n), "f4"))
        assert products_onednn.multiply(one, other, found[-1], threads)
    for out in found[1:]:
        np.testing.assert_array_equal(out, found[0])


@pytest.mark.parametrize(
    ("shape", "rows"), [((4096, 256, 1024), 4096), ((1024, 512, 784), 512), ((3000,) * 3, 500)]
)
def test_rows_are_cut_where_laid_out_factors_would_be_much(
    shape: tuple[int, int, int], rows: int
) -> None:
    m, k, n = shape
    cut = products_onednn._cut("f", "f", (m, k), n, (4 * k, 4), (4 * n, 4), (4 * n, 4))
    assert cut is not None
    assert {part[0] for part in cut[-2]} == {rows}


@pytest.mark.parametrize("shape", [(101, 100, 101), (1100, 700, 90), (40, 474, 259)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_calls_it_as_ctypes_does(
    shape: tuple[int, int, int], turned: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As C and as it stands, of slices, in parts, and added."""
    monkeypatch.setattr(teams.account, "awake", math.inf)
    m, k, n = shape
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k + 3), "f4")[:, 3:]
    b = rng.standard_normal((n, k) if turned else (k, n), "f4")
    found = []
    for made in {None, loops, compiled.loops()}:
        monkeypatch.setattr(compiled, "loops", lambda made=made: made)
        products_onednn.prepared.cache_clear()
        for add in (False, True):
            out = np.ones((m, n + 5), "f4")
            assert products_onednn.multiply(a, b.T if turned else b, out[:, :n], threads, add)
            found.append(out)
    products_onednn.prepared.cache_clear()
    for i, out in enumerate(found):
        np.testing.assert_array_equal(out, found[i % 2])
    np.testing.assert_allclose(found[0][:, :n], a @ (b.T if turned else b), atol=1e-3)
    assert np.all(found[1][:, n:] == 1)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
def test_a_signal_that_raises_ends_a_long_one_between_parts() -> None:
    a, out = np.ones((3000, 2000), "f4"), np.full((3000, 2000), np.nan, "f4")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def multiply() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        products_onednn.multiply(a, a[:2000], out, 1)

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            multiply()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert np.isnan(out[-1]).all()
    assert products_onednn.multiply(a, a[:2000], out, 1)
    assert np.all(out == 2000)


def test_what_it_is_not_asked_for() -> None:
    a = np.ones((128, 128), "f4")
    out = np.zeros((128, 128), "f4")
    for one, other, into in (
        (a[:, ::2], a[:64], out),  # gaps
        (a[::-1], a, out),
        (a[:1], a, out[:1]),  # vectors
        (a, a[:, :1], out[:, :1]),
        (a[:, :1], a[:1], out),
        (a.astype("f8"), a.astype("f8"), out.astype("f8")),
        (a, a, out.T),
        (np.broadcast_to(a[0], (128, 128)), a, out),
    ):
        assert not products_onednn.multiply(one, other, into, 1)
    assert not out.any()
    a[:2] = 2  # and asked all the same, who multiplies gets the product
    np.testing.assert_array_equal(blas.multiply(a[::-1], a), a[::-1].copy() @ a)


@pytest.mark.parametrize(
    ("rows", "turned", "asked"),
    [(100, False, False), (101, False, True), (100, True, False), (63, True, True)],
)
def test_small_products_are_left_to_numpy(rows: int, turned: bool, asked: bool) -> None:
    """But few rows times a turned matrix."""
    a, b = np.ones((rows, 100), "f4"), np.ones((100, 100), "f4")
    out = np.zeros((rows, 100), "f4")
    assert products_onednn.multiply(a, b.T if turned else b, out, 1) is asked
    assert bool(out.any()) is asked


@pytest.mark.parametrize(
    ("shape", "turned"),
    [((16, 128, 512), False), ((16, 512, 128), True), ((2, 3, 4), False), ((1, 900, 800), False),
     ((300, 200, 100), True)],
)  # fmt: skip
def test_a_product_that_is_repeated_has_the_bits_of_one(
    shape: tuple[int, int, int], turned: bool
) -> None:
    """Also where it is NumPy's, or of threads."""
    m, k, n = shape
    rng = np.random.default_rng(0)
    steps = rng.standard_normal((3, m, k), dtype="f4")
    b = rng.standard_normal((n, k), dtype="f4").T if turned else _matrix((k, n), "padded", 1)
    out = np.empty((m, n), "f4")
    times_b = blas.multiplier(steps[0], b, out)
    for a in steps:
        times_b(a)
        np.testing.assert_array_equal(out, blas.multiply(a, b))


_IN_A_CHILD = """
import os, skimp
skimp.set_num_threads(2)
a = skimp.randn(600, 600)
x, w = skimp.randn(16, 32, 32, 32), skimp.randn(32, 32, 3, 3)
def both():
    return a @ a, skimp.nn.functional.conv2d(x, w)
b = both()
child = os.fork()
if not child:
    os._exit(0 if all(map(skimp.equal, both(), b)) else 1)
print(os.waitpid(child, 0)[1], os.environ.get("GOMP_SPINCOUNT"))
"""


def test_a_forked_child_multiplies_and_convolves_too() -> None:
    """OpenMP's threads are missing there: it would wait for them for ever."""
    env = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_CHILD],
        env=env, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "0 None"


def test_batches_of_two_types_have_the_larger_one() -> None:
    a, b = np.ones((4, 64, 64), np.float32), np.full((4, 64, 64), 1 / 3)
    made = blas.multiply(a, b)
    assert made.dtype == np.float64
    np.testing.assert_array_equal(made, np.matmul(a, b))
