"""Sorting, order statistics, distinct values, searching, counting and running results, against
torch.
"""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from tests.support.frames import frames_of
from tests.support.running import default_mode
from tests.support.samples import (
    DTYPES,
    FLOATS,
    OF_TYPES,
    REAL,
    agree,
    array,
    numbers,
    refusals,
    same,
    same_gradients,
    twin,
)

NAN = float("nan")
HALVES = {"float16": 1e-2, "bfloat16": 5e-2}


def special(dtype: str) -> torch.Tensor:
    return torch.tensor(
        [1.0, NAN, -0.0, float("inf"), 0.0, -float("inf"), NAN, -1.0], dtype=getattr(torch, dtype)
    )


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("descending", [False, True])
def test_sort(dtype: str, descending: bool) -> None:
    x = numbers((4, 5, 6), dtype)
    for dim in (0, 1, -1):
        agree(lambda lib, x, d=dim: lib.sort(x, dim=d, descending=descending, stable=True), x)
        agree(
            lambda lib, x, d=dim: x.transpose(0, 2).argsort(
                dim=d, descending=descending, stable=True
            ),
            x,
        )
    agree(lambda lib, x: lib.msort(x), x)
    if x.is_floating_point():
        agree(lambda lib, x: x.sort(descending=descending), special(dtype))


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian"])
def test_numpys_words_for_dims(name: str) -> None:
    x = numbers((3, 4), "float32")
    for words in ({"axis": 1}, {"axis": 0, "keepdims": True}, {"dim": 1, "keepdims": True}):
        agree(lambda lib, x, words=words: getattr(lib, name)(x, **words), x)
        agree(lambda lib, x, words=words: getattr(x, name)(**words), x)


@pytest.mark.parametrize("dtype", REAL[1:])
def test_topk(dtype: str) -> None:
    x = (
        torch.randperm(60, generator=torch.Generator().manual_seed(0))
        .reshape(3, 4, 5)
        .to(getattr(torch, dtype))
    )
    for dim in (0, 1, 2):
        for largest in (True, False):
            agree(lambda lib, x, d=dim, w=largest: lib.topk(x, 2, d, w), x)
        agree(lambda lib, x, d=dim: lib.kthvalue(x, 2, d), x)
        agree(lambda lib, x, d=dim: x.kthvalue(2, d, keepdim=True), x)
        agree(lambda lib, x, d=dim: lib.median(x, d), x)
        agree(lambda lib, x, d=dim: x.nanmedian(d, True), x)
    agree(lambda lib, x: (lib.median(x), x.nanmedian()), x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_order_statistics_of_nan(dtype: str) -> None:
    x = special(dtype)
    agree(lambda lib, x: (x.median(), x.nanmedian(), x.median(0), x.nanmedian(0)[0]), x)
    agree(lambda lib, x: (x[1:2].median(), x[1:2].nanmedian(), x[:0].median()), x)
    agree(lambda lib, x: x.topk(3)[0], x)


@pytest.mark.parametrize("dtype", REAL)
def test_mode(dtype: str) -> None:
    for seed in range(3):
        x = numbers((7, 6), dtype, seed)
        for dim in (0, 1):
            agree(lambda lib, x, d=dim: lib.mode(x, d), x)


@pytest.mark.parametrize("dtype", REAL)
def test_unique(dtype: str) -> None:
    x = numbers((5, 4), dtype)
    both = {"return_inverse": True, "return_counts": True}
    agree(lambda lib, x: lib.unique(x), x)
    agree(lambda lib, x: lib.unique(x, **both), x)
    agree(lambda lib, x: lib.unique_consecutive(x.flatten().sort()[0], **both), x)
    if dtype in ("float16", "bfloat16"):
        return
    for dim in (0, 1):
        agree(
            lambda lib, x, d=dim: lib.unique(lib.cat([x, x], d), dim=d, **both),
            x // 3 if x.dtype != torch.bool else x,
        )
        agree(lambda lib, x, d=dim: x.unique_consecutive(dim=d, **both), x)


def test_unique_of_nan_and_nothing() -> None:
    agree(lambda lib, x: lib.unique(x, return_inverse=True, return_counts=True), special("float32"))
    agree(lambda lib, x: (lib.unique(x[:0]), lib.unique_consecutive(x[:0])), special("float32"))
    agree(lambda lib, x: lib.unique(x, return_inverse=True), torch.tensor(2.0))


@pytest.mark.parametrize("dtype", REAL[1:])
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(dtype: str, right: bool) -> None:
    rows, values = numbers((3, 6), dtype).sort(1).values, numbers((3, 4), dtype, 1)
    agree(lambda lib, r, v: lib.searchsorted(r, v, right=right), rows, values)
    agree(lambda lib, r, v: lib.searchsorted(r[0], v, right=right, out_int32=True), rows, values)
    agree(lambda lib, r, v: lib.bucketize(v, r[0], right=right), rows, values)
    loose, order = numbers((3, 6), dtype), numbers((3, 6), dtype).sort(1).indices
    agree(lambda lib, r, v, o: lib.searchsorted(r, v, right=right, sorter=o), loose, values, order)


def test_searchsorted_of_nan() -> None:
    x = torch.tensor([1.0, 2.0, NAN])
    agree(lambda lib, x: (lib.searchsorted(x, x), lib.searchsorted(x, x, side="right")), x)
    agree(lambda lib, x: lib.searchsorted(x, 2), x)
    agree(lambda lib, x: lib.bucketize(2, x), x)


def test_counting() -> None:
    x, i = numbers((40,), "float32", ties=False), numbers((40,), "uint8").long()
    agree(lambda lib, x: (lib.histc(x, 7), lib.histc(x, 5, -1, 1), lib.histc(x.double(), 3)), x)
    agree(lambda lib, x: lib.histc(lib.ones(3), 4), x)
    agree(lambda lib, x: lib.histogram(x, 6), x)
    agree(
        lambda lib, x: lib.histogram(x, 4, range=(-1.0, 1.0), density=True, weight=x.abs()),
        x,
        tolerance=1e-5,
    )
    agree(lambda lib, x: lib.histogram(x, lib.tensor([-1.0, 0.0, 2.0])), x)
    agree(
        lambda lib, i, x: (lib.bincount(i), lib.bincount(i, minlength=9), lib.bincount(i, i)), i, x
    )
    agree(lambda lib, i, x: lib.bincount(i, x), i, x, tolerance=1e-5)
    agree(
        lambda lib, i, x: (
            lib.isin(i, lib.tensor([1, 3])),
            lib.isin(i, 2, invert=True),
            lib.isin(2, i),
            lib.isin(2, i, out=lib.empty(0, dtype=lib.bool)),
        ),
        i,
        x,
    )
    agree(lambda lib, x: lib.isin(x, x), special("float32"))
    agree(lambda lib, i: lib.nn.functional.one_hot(i.reshape(8, 5)), i)
    agree(lambda lib, i: lib.nn.functional.one_hot(i, 9), i)


@pytest.mark.parametrize("dtype", DTYPES)
def test_running(dtype: str) -> None:
    tolerance = HALVES.get(dtype, 0.0)
    for way in (lambda x: x, lambda x: x.transpose(0, 1)):
        x = way(numbers((5, 4), dtype))
        for dim in (0, -1):
            agree(lambda lib, x, d=dim: (x.cumsum(d), x.cumprod(d)), x, tolerance=tolerance)
            agree(lambda lib, x, d=dim: lib.cumsum(x, d, dtype=lib.float64), x)
            agree(lambda lib, x, d=dim: (lib.cummax(x, d), lib.cummin(x, d)), x, refused=OF_TYPES)
            agree(
                lambda lib, x, d=dim: x.clone().cumsum_(d), x, tolerance=tolerance, refused=OF_TYPES
            )
            agree(
                lambda lib, x, d=dim: lib.logcumsumexp(x, d),
                x,
                tolerance=max(tolerance, 1e-5),
                refused=OF_TYPES,
            )
            agree(lambda lib, x, d=dim: (lib.diff(x, dim=d), x.diff(2, d)), x)


def test_running_over_nan_and_many() -> None:
    for dtype in FLOATS:
        agree(lambda lib, x: (x.cummax(0), x.cummin(0), x.cumsum(0)), special(dtype))
    agree(lambda lib, x: x.logcumsumexp(0), special("float32")[2:6], tolerance=1e-6)
    x = numbers((70000,), "float32", ties=False)
    agree(lambda lib, x: x.cumsum(0), x, tolerance=1e-5)
    agree(lambda lib, x: (x.cummax(0), lib.sort(x, stable=True)), x)
    agree(lambda lib, x: x.view(7, 10000).cumsum(0), x, tolerance=1e-5)


def test_out() -> None:
    x = numbers((3, 4), "float32", ties=False)
    for name in ("sort", "cummax", "topk"):
        args = (2,) if name == "topk" else (1,) if name == "cummax" else ()
        y = twin(x)
        values, indices = skimp.empty(0), skimp.empty(0, dtype=skimp.int64)
        found = getattr(skimp, name)(y, *args, out=(values, indices))
        assert found.values is values
        same(found, getattr(torch, name)(x, *args))
    into = skimp.empty(3, 4, dtype=skimp.float64)
    skimp.cumsum(twin(x), 0, out=into)
    same(into, torch.cumsum(x, 0, out=torch.empty(3, 4, dtype=torch.float64)), tolerance=1e-12)


def test_repr_of_named_results() -> None:
    x = torch.tensor([[3.0, 1.0], [2.0, 5.0]])
    for f in (
        lambda x: x.sort(),
        lambda x: x.topk(1),
        lambda x: x.median(0),
        lambda x: x.cummin(1),
        lambda x: x.mode(),
    ):
        assert repr(f(twin(x))) == repr(f(x))


def test_closeness() -> None:
    x = special("float32")
    agree(
        lambda lib, x: (lib.equal(x, x), lib.equal(x[2:6], x[2:6].double()), lib.equal(x, x[:1])), x
    )
    agree(
        lambda lib, x: (x.isclose(x), x.isclose(x, equal_nan=True), lib.allclose(x[2:6], x[2:6])), x
    )
    i = numbers((3, 4), "int64")
    agree(
        lambda lib, i: (i.isclose(i + 1, rtol=0.5), lib.allclose(i, i), i.isclose(i[0], atol=1)), i
    )
    big = numbers((900, 800), "float32", ties=False)
    agree(lambda lib, b: (lib.allclose(b, b + 1e-9), lib.equal(b, b), lib.equal(b, b + 1)), big)


REFUSED: dict[type[Exception], list[Any]] = {
    IndexError: [
        lambda lib, x: x[:0].median(0),
        lambda lib, x: x.sort(5),
        lambda lib, x: x.cumsum(5),
    ],
    NotImplementedError: [
        lambda lib, x: (x > 1).median(),
        lambda lib, x: x.long().logcumsumexp(0),
        lambda lib, x: x.cfloat().cummax(0),
        lambda lib, x: lib.histc(x.long()),
        lambda lib, x: lib.bincount(x),
        lambda lib, x: lib.unique(x.cfloat()),
    ],
    RuntimeError: [
        lambda lib, x: x.topk(9),
        lambda lib, x: x.kthvalue(0),
        lambda lib, x: x.cfloat().sort(),
        lambda lib, x: lib.searchsorted(x, 1),
        lambda lib, x: lib.searchsorted(x, x[0]),
        lambda lib, x: lib.searchsorted(x[0], 1, side="up"),
        lambda lib, x: lib.searchsorted(x[0], 1, side="left", right=True),
        lambda lib, x: lib.bucketize(x, x),
        lambda lib, x: lib.histc(x, 0),
        lambda lib, x: lib.histc(x, 4, 3, 1),
        lambda lib, x: lib.bincount(x.long()),
        lambda lib, x: lib.bincount(-x[0].long() - 9),
        lambda lib, x: lib.diff(x[0, 0]),
        lambda lib, x: lib.diff(x, -1),
        lambda lib, x: lib.nn.functional.one_hot(x),
        lambda lib, x: lib.nn.functional.one_hot(-x.long().abs() - 1),
        lambda lib, x: lib.isclose(x, x.double()),
        lambda lib, x: lib.isclose(x, x, rtol=-1),
        lambda lib, x: x.cumsum_(0, dtype=lib.float64),
        lambda lib, x: lib.unique(lib.empty(0, 2), dim=1),
    ],
    TypeError: [lambda lib, x: lib.isin(1, 2)],
}


@pytest.mark.parametrize(("error", "case"), refusals(REFUSED))
def test_errors(error: Any, case: Any) -> None:
    agree(case, numbers((3, 4), "float32"), refused=error, message=15)


X = numbers((4, 5), "float64", ties=False)
DIFFERENTIABLE: list[Any] = [
    lambda lib, x: x.sort(0)[0],
    lambda lib, x: x.topk(2)[0],
    lambda lib, x: x.kthvalue(2, 0)[0],
    lambda lib, x: x.median(),
    lambda lib, x: x.median(1)[0],
    lambda lib, x: x.nanmedian(0, True)[0],
    lambda lib, x: x.mode()[0],
    lambda lib, x: x.cumsum(1),
    lambda lib, x: x.cumprod(0),
    lambda lib, x: (x * (x > 0)).cumprod(1),
    lambda lib, x: x.cummax(0)[0],
    lambda lib, x: x.cummin(1)[0],
    lambda lib, x: x.logcumsumexp(1),
    lambda lib, x: x.diff(),
    lambda lib, x: x.msort(),
    lambda lib, x: (x * 1).cumsum_(0),
]


@pytest.mark.parametrize("f", DIFFERENTIABLE)
def test_gradients(f: Any) -> None:
    same_gradients(f, X)


@given(st.lists(st.floats(allow_nan=True, width=32), max_size=30), st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_floats(values: list[float], descending: bool) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    ours = twin(x).sort(descending=descending)
    theirs = torch.sort(x, stable=True, descending=descending)
    same(ours, theirs)
    assert array(ours.values).tobytes() == array(theirs.values).tobytes()


@pytest.mark.parametrize("name", ["sort", "topk", "cummax", "cummin"])
def test_values_may_go_where_the_input_lies(name: str) -> None:
    found = []
    for lib in (skimp, torch):
        x = lib.tensor([3.0, 1.0, 2.0, 5.0])
        out = (x, lib.zeros(4, dtype=lib.int64))
        getattr(lib, name)(x, *({"sort": (), "topk": (4,)}.get(name, (0,))), out=out)
        found.append([t.tolist() for t in out])
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_gradients_of_products_with_zeros(dtype: str) -> None:
    """Rows without one, with one anywhere, with two and with infinities behind one; in one pass."""
    rows = [
        [1, 2, 3, 4, 5], [0, 2, 3, 4, 5], [1, 2, 0, 4, 5], [1, 2, 3, 4, 0],
        [1, 0, 3, 0, 5], [0, 0, 3, 0, 5], [2, 0, 0, inf, 5], [1, 0, nan, 2, 3],
    ]  # fmt: skip
    for dim in (0, 1):
        found = []
        for lib in (skimp, torch):
            x = lib.tensor(rows if dim else list(zip(*rows, strict=True)), dtype=lib.float64)
            x = (x * (1 - 2j) if dtype[0] == "c" else x.to(getattr(lib, dtype))).requires_grad_()
            weights = lib.arange(1.0, 41.0).reshape(x.shape).to(x.dtype)
            x.cumprod(dim).backward(weights)
            found.append(x.grad)
        same(*found, tolerance=1e-6)


@default_mode
def test_the_gradient_of_products_with_a_zero_is_no_loop() -> None:
    x = skimp.ones(64)
    x[3] = 0
    x.requires_grad_(True)
    assert len(frames_of(lambda: x.cumprod(0).sum().backward(), warm=2)) < 500


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("types", [("int32", "int64"), ("float32", "int32"), ("float64", "int64")])
def test_extremes_along_a_dim_go_into_results_of_their_types(
    name: str, types: tuple[str, str]
) -> None:
    def into(t: Any, x: Any) -> Any:
        return getattr(t, name)(x, 0, out=[t.zeros(3, dtype=getattr(t, one)) for one in types])

    agree(into, numbers((2, 3), "float32"), refused=RuntimeError, message=70)


@pytest.mark.parametrize("name", ["all", "any"])
def test_truth_goes_into_bools_and_bytes(name: str) -> None:
    def into(t: Any, x: Any, dtype: str) -> Any:
        return getattr(t, name)(x, 0, out=t.zeros(3, dtype=getattr(t, dtype)))

    agree(into, numbers((2, 3), "float32"), "bool")
    agree(into, numbers((2, 3), "float32"), "int64", refused=RuntimeError)
