"""Reductions: the same bits deferred or not, on any number of threads, close to the truth."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from skimp._engine.eval import reader, reduce as reductions, reducers
from skimp._engine.eval.expr import COPY, Expr, Kernel, Leaf
from skimp._engine.eval.reduce import reduce
from skimp._engine.eval.rows import map_rows
from skimp._kernels import compiled
from skimp.config import config
from tests.support.peaks import peak_of

F4 = np.dtype(np.float32)
MULTIPLY = Kernel("multiply", np.multiply)

HOWS = [
    (reducers.SUM, F4, lambda t, d: t.sum(d)),
    (reducers.MEAN, F4, lambda t, d: t.mean(d)),
    (reducers.var(1), F4, lambda t, d: t.var(d, correction=1)),
    (reducers.std(0), F4, lambda t, d: t.std(d, correction=0)),
    (reducers.AMAX, F4, lambda t, d: t.amax(d)),
    (reducers.AMIN, F4, lambda t, d: t.amin(d)),
    (reducers.PROD, F4, lambda t, d: _over_dims(torch.prod, t, d)),
    (reducers.SUM_ABS, F4, lambda t, d: t.abs().sum(d)),
    (reducers.NORM, F4, lambda t, d: torch.linalg.vector_norm(t, 2, d)),
    (reducers.power_sum(3), F4, lambda t, d: t.abs().pow(3).sum(d)),
    (reducers.COUNT_NONZERO, np.dtype(np.int64), lambda t, d: torch.count_nonzero(t, d)),
    (reducers.ALL, np.dtype(np.bool_), lambda t, d: _over_dims(torch.all, t, d)),
    (reducers.ANY, np.dtype(np.bool_), lambda t, d: _over_dims(torch.any, t, d)),
    (reducers.LOGSUMEXP, F4, lambda t, d: t.logsumexp(d)),
]


def _over_dims(fn: Any, t: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    for dim in sorted(dims, reverse=True):
        t = fn(t, dim)
    return t


def result(source: Any, axes: tuple[int, ...], how: Any, dtype: Any, **kwargs: Any) -> Any:
    out = np.empty([n for d, n in enumerate(source.shape) if d not in axes], dtype)
    reduce(source, axes, how, out, **kwargs)
    return out


@pytest.fixture(params=[64, 1000])
def small_units(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Units of a few elements, so that small shapes take the ways of large ones."""
    monkeypatch.setattr(reductions, "_UNIT", request.param)
    monkeypatch.setattr(reductions, "_COLUMNS", request.param // 4)
    monkeypatch.setattr(reductions, "_SPANS", 3)
    monkeypatch.setattr(reductions, "_SMALL", 50)
    reductions.geometry.cache_clear()
    yield
    reductions.geometry.cache_clear()


SHAPES = [
    (7,),
    (300,),
    (2000,),
    (40, 50),
    (3, 700),
    (700, 3),
    (9, 1, 13, 11),
    (5, 40, 2, 7),
    (1, 1),
]


@pytest.mark.filterwarnings("ignore:var.*degrees of freedom", "ignore:std.*degrees of freedom")
@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_bits(shape: tuple[int, ...], small_units: None) -> None:
    rng = np.random.default_rng(len(shape))
    a = rng.standard_normal(shape).astype(F4)
    b = rng.standard_normal(shape[-1]).astype(F4).reshape((1,) * (len(shape) - 1) + (-1,))
    b[..., ::3] = 0
    expr = Expr(MULTIPLY, (Leaf(None, a), Leaf(None, b)), shape, F4)
    value = a * b
    turned = Leaf(None, np.ascontiguousarray(value.T).T)
    for count in range(1, len(shape) + 1):
        for axes in itertools.combinations(range(len(shape)), count):
            for how, dtype, oracle in HOWS:
                got = result(value, axes, how, dtype)
                with config.using(defer="always", threads=3, threads_from=0, block=64):
                    assert result(expr, axes, how, dtype).tobytes() == got.tobytes()
                assert result(turned.array, axes, how, dtype).tobytes() == got.tobytes()
                with np.errstate(all="ignore"):
                    want = oracle(torch.from_numpy(value).double(), axes).numpy()
                tolerance = 2e-6 * max(1, math.sqrt(value.size / max(got.size, 1)))
                np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=how.name)


@pytest.mark.parametrize(
    "shape",
    [
        (700_000,),
        (3, 300_000),
        (300_000, 3),
        (9, 40_000),
        (70, 50, 100),
        (5_000_123,),
        (90, 40_001),
    ],
)
def test_units_of_real_size(shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(0).standard_normal(shape).astype(F4) + 5
    expr = Expr(COPY, (Leaf(None, value),), shape, F4)
    for axes in [(0,), (len(shape) - 1,), tuple(range(len(shape)))]:
        for how, dtype, oracle in HOWS[:3]:
            got = result(value, axes, how, dtype)
            with config.using(threads=2, threads_from=0, block=5000):
                assert result(expr, axes, how, dtype).tobytes() == got.tobytes()
            want = oracle(torch.from_numpy(value).double(), axes).numpy()
            np.testing.assert_allclose(got, want, 1e-6, 1e-6, err_msg=how.name)


@pytest.mark.parametrize("shape", [(700_000,), (3, 300_000), (60_000, 12)])
def test_what_is_added_up_is_written_nowhere(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled.loops() is None:
        pytest.skip("nothing is compiled")
    value = np.random.default_rng(0).standard_normal(shape).astype(F4)
    apart = np.square(value - np.float32(0.5))

    def square(x: Any, y: Any, *, out: Any) -> None:
        np.square(np.subtract(x, y, out=out), out=out)

    steps = (np.subtract, 0, 1), (np.square, -1)
    made = [
        (value * value, MULTIPLY, Leaf(None, value)),
        (apart, Kernel("squares", square, steps=steps), F4.type(0.5)),
    ]
    for (written, kernel, other), how in itertools.product(
        made, (reducers.SUM, reducers.MEAN, reducers.NORM)
    ):
        expr = Expr(kernel, (Leaf(None, value), other), shape, F4)
        want = result(written, (len(shape) - 1,), how, F4)
        with monkeypatch.context() as patch:
            patch.setattr(reductions, "Reader", None)
            assert result(expr, (len(shape) - 1,), how, F4).tobytes() == want.tobytes()


@pytest.mark.parametrize("length", [2, 31, 256, 257, 512, 1000, 4096, 1 << 14, 20_003, 100_000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_adds_up_alone_as_among_others(length: int, dtype: Any) -> None:
    value = (np.random.default_rng(length).standard_normal((9, length)) + 1).astype(dtype)
    want = [math.fsum(row) for row in value.astype(float)]
    apart = value[:, :-1].copy()  # its rows start anywhere in a cache line
    for rows, sums in ((value, want), (apart, [math.fsum(row) for row in apart.astype(float)])):
        got = reducers.add_up(rows[:, :, None])
        for number, row in enumerate(rows):
            assert reducers.add_up(row.copy()[None, :, None]).tobytes() == got[number].tobytes()
        # As good as NumPy's pairwise sum, within a few roundings.
        worst = np.abs(np.add.reduce(rows, axis=1).astype(float) - sums).max()
        few = 4 * np.finfo(dtype).eps * length
        assert np.abs(got[:, 0].astype(float) - sums).max() <= worst + few


def test_sums_of_large_numbers_keep_their_digits() -> None:
    value = np.full((1000, 1000), 0.1, F4)
    for axes in [(0,), (1,), (0, 1)]:
        got = result(value, axes, reducers.SUM, F4)
        np.testing.assert_allclose(got, value.astype(float).sum(axes), 1e-6)
        np.testing.assert_allclose(result(value, axes, reducers.var(), F4), 0, atol=1e-12)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, math.nan, math.inf]), min_size=1, max_size=200))
@settings(max_examples=50, deadline=None)
def test_positions_are_the_first_and_nan_wins(values: list[float]) -> None:
    value = np.array(values, F4)
    for how, oracle in ((reducers.ARGMAX, torch.argmax), (reducers.ARGMIN, torch.argmin)):
        assert int(result(value, (0,), how, np.int64)) == int(oracle(torch.from_numpy(value)))


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_positions_over_units(axes: tuple[int, ...], small_units: None) -> None:
    value = np.random.default_rng(0).integers(0, 50, (20, 30, 7)).astype(F4)
    value[3, 2, 1] = np.nan
    flat = value.copy()
    for how, find in ((reducers.ARGMAX, np.argmax), (reducers.ARGMIN, np.argmin)):
        kept = [n for d, n in enumerate(value.shape) if d not in axes]
        ordered = flat.transpose([d for d in range(3) if d not in axes] + list(axes))
        want = find(ordered.reshape(*kept, -1), axis=-1)
        np.testing.assert_array_equal(result(value, axes, how, np.int64), want)


def test_positions_over_dims_that_are_apart() -> None:
    with pytest.raises(ValueError, match="argmax: the reduced dims must be neighbours"):
        result(np.zeros((2, 3, 4), F4), (0, 2), reducers.ARGMAX, np.int64)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_added_in_float32(dtype: Any) -> None:
    value = np.full(3000, 1.5, dtype)
    assert float(result(value, (0,), reducers.SUM, F4)) == 4500
    assert float(result(value, (0,), reducers.MEAN, dtype)) == 1.5


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32])
def test_integers_in_the_type_that_is_asked_for(dtype: Any) -> None:
    value = np.ones((300, 300), dtype) * dtype(1)
    assert int(result(value, (0, 1), reducers.SUM, np.int64, acc=np.dtype(np.int64))) == 90_000


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    value = (rng.standard_normal((90, 80)) + 1j * rng.standard_normal((90, 80))).astype(dtype)
    for axes in [(0,), (1,), (0, 1)]:
        np.testing.assert_allclose(
            result(value, axes, reducers.MEAN, dtype), value.mean(axes), 1e-4
        )
        got = result(value, axes, reducers.var(1), value.real.dtype)
        np.testing.assert_allclose(got, value.var(axes, ddof=1), 1e-4)


@pytest.mark.parametrize(
    ("how", "want"),
    [
        (reducers.SUM, 0),
        (reducers.PROD, 1),
        (reducers.MEAN, math.nan),
        (reducers.ALL, True),
        (reducers.ANY, False),
        (reducers.LOGSUMEXP, -math.inf),
    ],
)
def test_no_elements(how: Any, want: Any) -> None:
    got = result(np.empty((3, 0), F4), (1,), how, F4)
    np.testing.assert_array_equal(got, np.full(3, want, F4))
    assert result(np.empty((0, 3), F4), (1,), how, F4).shape == (0,)


def test_no_elements_and_no_value() -> None:
    with pytest.raises(ValueError, match="amax: there are no elements"):
        result(np.empty((3, 0), F4), (1,), reducers.AMAX, F4)


def test_no_axes() -> None:
    value = np.random.default_rng(0).standard_normal((300, 300)).astype(F4)
    np.testing.assert_array_equal(result(value, (), reducers.SUM, F4), value)


@pytest.mark.parametrize(
    "values", [[math.inf, 1], [-math.inf, -math.inf], [math.nan, 1], [1e30, 1]]
)
def test_logsumexp_at_the_ends(values: list[float]) -> None:
    value = np.array(values, F4)
    want = torch.from_numpy(value).logsumexp(0).numpy()
    np.testing.assert_allclose(result(value, (0,), reducers.LOGSUMEXP, F4), want)


def test_out_of_any_layout() -> None:
    value = np.random.default_rng(0).standard_normal((30, 20)).astype(F4)
    out = np.zeros(40, F4)[::2]
    reduce(value, (0,), reducers.SUM, out)
    np.testing.assert_array_equal(out, result(value, (0,), reducers.SUM, F4))


# -- rows ------------------------------------------------------------------------------------------


def _softmax(block: Any, out: Any) -> None:
    np.subtract(block, block.max(-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(-1, keepdims=True)


@pytest.mark.parametrize("shape", [(5, 7), (1, 200_000), (3000, 100), (40, 3, 1000), (9,)])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows(shape: tuple[int, ...], threads: int) -> None:
    value = np.random.default_rng(0).standard_normal(shape).astype(F4)
    doubled = Expr(MULTIPLY, (Leaf(None, value), np.float32(2)), shape, F4)
    want = torch.softmax(torch.from_numpy(value) * 2, -1).numpy()
    with config.using(threads=threads, threads_from=0):
        eager, deferred = np.empty(shape, F4), np.empty(shape, F4)
        map_rows(value * 2, _softmax, (eager,), 1)
        map_rows(doubled, _softmax, (deferred,), 1)
        map_rows(doubled, _softmax, (value,), 1)  # into the memory of the leaf
    np.testing.assert_allclose(eager, want, 1e-5, 1e-8)
    assert eager.tobytes() == deferred.tobytes() == value.tobytes()


def test_rows_with_arrays_that_have_one_entry_a_row() -> None:
    value = np.random.default_rng(0).standard_normal((6, 5000, 4, 5)).astype(F4)
    index = np.random.default_rng(0).integers(0, 20, (6, 5000))
    out = np.empty((6, 5000), F4)

    def pick(block: Any, index: Any, out: Any) -> None:
        out[...] = block.reshape(len(block), -1)[np.arange(len(block)), index]

    map_rows(value, pick, (index, out), 2)
    want = np.take_along_axis(value.reshape(6, 5000, 20), index[..., None], -1)[..., 0]
    np.testing.assert_array_equal(out, want)


def test_rows_of_no_elements() -> None:
    out = np.zeros((3, 2), F4)
    expr = Expr(COPY, (Leaf(None, np.empty((3, 2, 0), F4)),), (3, 2, 0), F4)
    map_rows(expr, lambda block, out: np.copyto(out, block.sum(-1) + 1), (out,), 1)
    assert (out == 1).all()


def test_rows_that_are_not_evenly_apart() -> None:
    out = np.empty((4, 3, 5), F4)[:, :2]
    with pytest.raises(ValueError, match="evenly apart"):
        map_rows(np.zeros((4, 2, 5), F4), _softmax, (out,), 1)


@pytest.mark.parametrize("how", [reducers.SUM, reducers.NORM, reducers.var(0)])
def test_many_results_are_not_held_twice(how: Any) -> None:
    x = np.arange(1 << 22, dtype="f").reshape(-1, 4)
    out = np.empty(len(x), "f")
    reduce(x, (1,), how, out)
    assert peak_of(lambda: reduce(x, (1,), how, out)) < 0.4 * x.nbytes


def test_no_thread_is_woken_for_rows_that_are_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        reader, "share", lambda work, threads, helping: asked.append(threads) or work()
    )
    for shape in ((1, 100), (2, 50)):
        with config.using(threads=3, threads_from=0):
            map_rows(np.zeros(shape, F4), _softmax, (np.empty(shape, F4),), 1)
    assert asked == [1, 2]
