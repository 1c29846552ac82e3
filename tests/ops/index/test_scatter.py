"""Writers and readers by index, masks, and views that copy, against torch: values, out=, in place,
errors, gradients.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from tests.support.samples import (
    DTYPES,
    OF_TYPES,
    REAL,
    agree,
    numbers,
    refusals,
    same,
    same_gradients,
    twin,
)


def index(shape: tuple[int, ...], below: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(seed))


LAYOUTS = (lambda x: x, lambda x: x.transpose(0, -1).contiguous().transpose(0, -1), lambda x: x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_along_a_dim(dtype: str, dim: int) -> None:
    for way in LAYOUTS:
        x, src = way(numbers((4, 5, 3), dtype)), numbers((4, 5, 3), dtype, 1)
        i = index((3, 4, 2), 3, 2)
        agree(lambda lib, x, i: lib.gather(x, dim, i), x, i)
        agree(lambda lib, x, i: x.scatter(dim, i, 2), x, i)
        agree(lambda lib, x, i, s: x.scatter(dim, i, s), x, i.sort(dim).values, src)
        agree(lambda lib, x, i, s: x.clone().scatter_add_(dim, i, s), x, i, src)
        agree(lambda lib, x, i, s: lib.scatter_add(x, dim, i, s, out=x.new_empty(0)), x, i, src)
        agree(lambda lib, x, i: lib.take_along_dim(x, i, dim), x, index((4, 5, 3), 3))
        agree(lambda lib, x, i: lib.take(x, i), x, index((2, 3), 60) - 60)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", REAL)
def test_scatter_reduce(dtype: str, reduce: str) -> None:
    x, src, i = numbers((4, 3), dtype), numbers((6, 3), dtype, 1), index((6, 3), 4)
    for include in (True, False):
        agree(
            lambda lib, x, i, s, include=include: x.scatter_reduce(
                0, i, s, reduce, include_self=include
            ),
            x,
            i,
            src,
            tolerance=1e-2 if dtype.endswith("16") and "i" not in dtype else 1e-6,
            refused=OF_TYPES,
        )
    for how in ("add", "multiply"):
        agree(lambda lib, x, i, s, how=how: x.scatter(0, i, s, reduce=how), x, i, src)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slices(dtype: str) -> None:
    x, i = numbers((4, 5, 3), dtype), torch.tensor([2, 0, 2])
    for dim in (0, 1, 2):
        src = numbers(tuple([3 if d == dim else n for d, n in enumerate(x.shape)]), dtype, 1)
        agree(lambda lib, x, i, dim=dim: lib.index_select(x, dim, i), x, i)
        agree(lambda lib, x, i, s, dim=dim: x.index_add(dim, i, s), x, i, src)
        agree(lambda lib, x, i, dim=dim: x.index_fill(dim, i, 1), x, i)
        agree(
            lambda lib, x, i, s, dim=dim: x.index_copy(dim, i, s), x, torch.tensor([2, 0, 1]), src
        )
    agree(lambda lib, x, i: lib.index_select(x.transpose(0, 2), 0, i), x, i)
    flat = index((4,), 60)
    for accumulate in (True, False):
        agree(
            lambda lib, x, i, s, a=accumulate: x.put(i, s, a),
            x,
            flat.unique(),
            numbers((len(flat.unique()),), dtype),
        )


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_index_reduce(reduce: str, include: bool) -> None:
    for dtype in ("int64", "float32", "float64"):
        x, src, i = numbers((4, 3), dtype), numbers((5, 3), dtype, 1), index((5,), 4)
        agree(
            lambda lib, x, i, s: x.index_reduce(0, i, s, reduce, include_self=include),
            x,
            i,
            src,
            tolerance=1e-6,
        )


@pytest.mark.parametrize("value", [0, -0.0, 2.5, float("-inf")])
def test_a_mask_that_broadcasts_to_what_is_large(value: float) -> None:
    x, m = numbers((3, 2, 160, 160), "float32"), numbers((160, 160), "bool")
    x[0, 0, 0, :3] = torch.tensor([float("nan"), float("inf"), -0.0])
    agree(lambda lib, x, m: lib.masked_fill(x, m, value), x, m)
    agree(lambda lib, x, m: 1 / lib.masked_fill(x * 1, m, value), x, m)  # the sign of 0
    agree(lambda lib, x, m: lib.masked_fill(x.double(), m, value), x, m)


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks(dtype: str) -> None:
    x, y, m = numbers((3, 4), dtype), numbers((4,), dtype, 1), numbers((3, 4), "bool")
    agree(lambda lib, x, m: lib.masked_select(x, m), x, m)
    agree(lambda lib, x, m: lib.masked_select(x, m), y, m)
    agree(lambda lib, x, m: lib.masked_fill(x, m, 1), x, m)
    agree(lambda lib, x, m: lib.masked_fill(x, m, lib.tensor(1)), y, m)
    agree(lambda lib, x, m: x.clone().masked_fill_(m, True), x, m[0])
    agree(lambda lib, x, m, s: x.masked_scatter(m, s), x, m, numbers((12,), dtype, 2))
    agree(lambda lib, x, m, y: lib.where(m, x, y), x, m, y)
    agree(lambda lib, x, m: lib.where(m, x, 2), x, m)
    agree(lambda lib, x, m: lib.where(m, 1.5, x), x, m)
    agree(lambda lib, x: lib.nonzero(x), x)
    agree(lambda lib, x: lib.nonzero(x, as_tuple=True), x)
    agree(lambda lib, x: lib.argwhere(x), x)
    agree(lambda lib, x: lib.nonzero_static(x, size=20, fill_value=7), x)
    for kind, rows in [("float32", False), ("int64", True)]:
        agree(
            lambda lib, x, kind, rows: lib.nonzero(
                x, out=lib.zeros(0, dtype=getattr(lib, kind)), as_tuple=rows
            ),
            *(x, kind, rows),
            refused=RuntimeError,
            message=70,
        )


REFUSED: dict[type[Exception], list[Any]] = {
    IndexError: [
        lambda lib, x, i: lib.index_select(x, 0, i + 9),
        lambda lib, x, i: lib.index_select(x, 0, i - 3),
        lambda lib, x, i: lib.index_select(x, 3, i),
        lambda lib, x, i: lib.index_select(x, 0, i.reshape(2, 1)),
        lambda lib, x, i: x.index_copy(0, i, x[:1]),
        lambda lib, x, i: x.index_copy(0, i + 9, x[:2]),
        lambda lib, x, i: x.index_fill(0, i + 9, 1),
        lambda lib, x, i: x.index_fill(0, i.int(), 1),
        lambda lib, x, i: x.take(i + 99),
        lambda lib, x, i: x.put(i, x),
        lambda lib, x, i: x.index_put((i + 9,), lib.ones(())),
    ],
    RuntimeError: [
        lambda lib, x, i: lib.index_select(x, 0, x[0]),
        lambda lib, x, i: lib.gather(x, 0, i),
        lambda lib, x, i: lib.gather(x, 0, i[None] + 9),
        lambda lib, x, i: lib.gather(x, 0, x),
        lambda lib, x, i: lib.gather(x, 1, lib.zeros((5, 1), dtype=lib.int64)),
        lambda lib, x, i: x.scatter(0, i[None], x.long()),
        lambda lib, x, i: x.scatter(0, i[None], x[:, :1]),
        lambda lib, x, i: x.scatter(0, i[None], 1.0, reduce="foo"),
        lambda lib, x, i: x.scatter(0, i[None] - 5, 1.0),
        lambda lib, x, i: x.scatter_reduce(0, i[None], x, "foo"),
        lambda lib, x, i: x.index_add(0, i, x[:1]),
        lambda lib, x, i: x.index_add(0, i, x[:2].double()),
        lambda lib, x, i: x.index_add(0, i + 9, x[:2]),
        lambda lib, x, i: x.index_copy(0, i, x[:2].double()),
        lambda lib, x, i: x.index_fill(0, i, lib.ones(2)),
        lambda lib, x, i: x.masked_select(x),
        lambda lib, x, i: x.masked_fill(x, 1),
        lambda lib, x, i: x.masked_fill(x > 1, 1j),
        lambda lib, x, i: x.masked_fill(x > 1, lib.ones(2)),
        lambda lib, x, i: x[0].clone().masked_fill_(x > 1, 1),
        lambda lib, x, i: x.masked_scatter(x == x, lib.ones(1)),
        lambda lib, x, i: x.masked_scatter(x > 1, x.double()),
        lambda lib, x, i: x.take(x),
        lambda lib, x, i: x.put(i, x.long()[0, :2]),
        lambda lib, x, i: lib.take_along_dim(x, i, 0),
        lambda lib, x, i: lib.take_along_dim(x, i[None].int(), 0),
        lambda lib, x, i: lib.where(x, x, x),
        lambda lib, x, i: lib.gather(x, 0, i[None], out=lib.empty(1, 2).double()),
        lambda lib, x, i: lib.index_select(x, 0, i, out=x),
        lambda lib, x, i: lib.index_reduce(x, 0, i, x[:2], "foo"),
        lambda lib, x, i: x.index_put((i,), lib.ones(()).double()),
    ],
    TypeError: [lambda lib, x, i: lib.where(x > 1, x), lambda lib, x, i: lib.unravel_index(i, i)],
    ValueError: [lambda lib, x, i: lib.unravel_index(i, (-1,))],
}


@pytest.mark.parametrize(("error", "case"), refusals(REFUSED))
def test_errors(error: Any, case: Any) -> None:
    x, i = numbers((3, 3), "float32"), torch.tensor([0, 1])
    agree(case, x, i, refused=error, message=15)


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5), st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_any_shape(rows: int, columns: int, count: int, seed: int) -> None:
    x = numbers((rows, columns), "float32", seed)
    i = index((count,), max(rows, 1), seed)
    of_nothing = "self indexing axis dim should be positive|out of bounds"
    agree(lambda lib, x, i: x.index_select(0, i), x, i, message=5, refused=of_nothing)
    agree(
        lambda lib, x, i, s: x.index_add(0, i, s),
        x,
        i,
        numbers((count, columns), "float32", seed),
        message=5,
    )
    j = index((count, columns), max(rows, 1), seed)
    agree(lambda lib, x, j: x.gather(0, j), x, j, message=5, refused=of_nothing)
    agree(
        lambda lib, x, j, s: x.scatter_add(0, j, s),
        x,
        j,
        numbers((count, columns), "float32", seed),
        message=5,
        refused=of_nothing,
    )


def test_zero_dims() -> None:
    x, zero = torch.tensor(3.0), torch.tensor(0)
    agree(lambda lib, x, i: lib.gather(x, 0, i), x, zero)
    agree(lambda lib, x, i: x.scatter(0, i, 2.0), x, zero)
    agree(lambda lib, x, i: lib.index_select(x, 0, i), x, zero)
    agree(lambda lib, x, i: x.index_add(0, i, x), x, zero)
    agree(lambda lib, x, i: x.index_fill(0, i, 1), x, zero)
    agree(lambda lib, x: lib.nonzero(x), x)
    agree(lambda lib, x: lib.masked_select(x, x > 1), x)
    agree(lambda lib, x: lib.take(x, lib.tensor([0, 0])), x)


def test_large() -> None:
    """Above the sizes of blocks and of threads."""
    x, i = numbers((900, 800), "float32"), index((900, 800), 800)
    y, j = twin(x), twin(i)
    same(y.gather(1, j), x.gather(1, i))
    same(y.t().gather(0, j.t()), x.t().gather(0, i.t()))
    same(y.scatter_add(1, j, y), x.scatter_add(1, i, x))
    rows = i[0] % 900
    same(y.index_select(1, j[0]), x.index_select(1, i[0]))
    same(y.index_add(0, twin(rows), y[:800]), x.index_add(0, rows, x[:800]))
    same(skimp.where(y > 1, y, 0), torch.where(x > 1, x, 0))
    same(y.masked_fill(y > 1, 9), x.masked_fill(x > 1, 9))
    same(y.clone().masked_fill_(y > 1, 9), x.clone().masked_fill_(x > 1, 9))


@pytest.mark.parametrize("count", [40, 3000])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
@pytest.mark.parametrize("shape", [(50, 40), (50, 8, 5), (3, 40)])
def test_expanded_indices_tell_rows(shape: tuple[int, ...], dtype: str, count: int) -> None:
    x, src = numbers(shape, dtype), numbers((count, *shape[1:]), dtype, 1)
    vector = index((count,), shape[0])
    expanded = vector.reshape(-1, *[1] * (len(shape) - 1)).expand(src.shape)
    y, t, v = twin(x), twin(src), twin(vector)
    same(y.index_add(0, v, t), x.index_add(0, vector, src))
    same(y.index_put((v,), t, accumulate=True), x.index_put((vector,), src, accumulate=True))
    for which in (expanded, expanded.contiguous()):
        i = twin(vector).reshape(-1, *[1] * (len(shape) - 1)).expand(src.shape)
        i = i if which is expanded else i.contiguous()
        same(y.gather(0, i), x.gather(0, which))
        same(y.scatter_add(0, i, t), x.scatter_add(0, which, src))
        for how in ("sum", "mean", "amax") if dtype != "bfloat16" else ("amax",):
            for own in (True, False):
                got = y.scatter_reduce(0, i, t, how, include_self=own)
                same(got, x.scatter_reduce(0, which, src, how, include_self=own))


def test_expanded_indices_are_checked() -> None:
    def far(lib: Any, x: Any) -> Any:
        return x.gather(0, lib.tensor([[0], [9]]).expand(2, x.shape[1]))

    agree(far, numbers((3, 4), "float32"), refused=RuntimeError)


X, M = numbers((4, 3), "float64", 5) / 3 + 0.1, numbers((4, 3), "bool", 6)
INDEX, S = index((3, 3), 4, 7), numbers((3, 3), "float64", 8) / 7
DIFFERENTIABLE: list[Any] = [
    lambda lib, x, s, i, m: x.gather(0, i),
    lambda lib, x, s, i, m: x.scatter(0, s.argsort(0), s),
    lambda lib, x, s, i, m: x.scatter_add(0, i, s),
    lambda lib, x, s, i, m: x.index_select(0, i[0]),
    lambda lib, x, s, i, m: x.index_add(0, i[0], s, alpha=2),
    lambda lib, x, s, i, m: x.index_copy(0, lib.tensor([2, 0, 1]), s),
    lambda lib, x, s, i, m: x.index_fill(0, i[0], 2.0) + s.sum(),
    lambda lib, x, s, i, m: x.masked_fill(m, 2.0) * s.sum(),
    lambda lib, x, s, i, m: x.masked_select(m) * s[0, 0],
    lambda lib, x, s, i, m: x.masked_scatter(m, lib.cat([s, s])),
    lambda lib, x, s, i, m: lib.where(m[:3], x[:3], s),
    lambda lib, x, s, i, m: x.take(i) * s,
    lambda lib, x, s, i, m: x.put(lib.arange(9).reshape(3, 3), s, accumulate=True),
    lambda lib, x, s, i, m: lib.take_along_dim(x, i[:1], 0) * s,
    lambda lib, x, s, i, m: x.select_scatter(s[0], 0, 1),
    lambda lib, x, s, i, m: x.slice_scatter(s[:2], 0, 0, None, 2),
    lambda lib, x, s, i, m: x.diagonal_scatter(s[0]),
    lambda lib, x, s, i, m: lib.narrow_copy(x, 0, 1, 2) * s[:2],
    lambda lib, x, s, i, m: lib.permute_copy(x, (1, 0))[:, :3] * s,
    lambda lib, x, s, i, m: x.index_put((i[0],), s, accumulate=True),
]
DIFFERENTIABLE += [
    lambda lib, x, s, i, m, how=how, own=own: x.scatter_reduce(0, i, s, how, include_self=own)
    for how in ("sum", "prod", "mean", "amax", "amin")
    for own in (True, False)
]
DIFFERENTIABLE += [
    lambda lib, x, s, i, m, how=how, own=own: x.index_reduce(0, i[0], s, how, include_self=own)
    for how in ("prod", "mean", "amax", "amin")
    for own in (True, False)
]


@pytest.mark.parametrize("f", DIFFERENTIABLE)
def test_gradients(f: Any) -> None:
    same_gradients(f, X, S, INDEX, M)


@pytest.mark.filterwarnings("error")
def test_gradients_in_place() -> None:
    def f(lib: Any, x: Any, s: Any, i: Any, m: Any) -> Any:
        y = x * 1
        y.scatter_add_(0, i, s)
        y[1:].masked_fill_(m[1:], 0.5)
        y[:3].index_add_(0, i[0] % 3, s)
        return y * s.sum()

    same_gradients(f, X, S, INDEX, M)


@pytest.mark.parametrize(
    "view",
    [
        lambda lib, x: lib.expand_copy(x, (2, 3, 4)),
        lambda lib, x: lib.permute_copy(x, (1, 0)),
        lambda lib, x: lib.t_copy(x),
        lambda lib, x: lib.select_copy(x, 0, 1),
        lambda lib, x: lib.slice_copy(x, 1, 0, 4, 2),
        lambda lib, x: lib.unbind_copy(x),
        lambda lib, x: lib.split_copy(x, 2),
        lambda lib, x: lib.squeeze_copy(x[:1]),
        lambda lib, x: lib.view_copy(x, (12,)),
        lambda lib, x: lib.diagonal_copy(x),
        lambda lib, x: lib.as_strided_copy(x, (2, 2), (1, 3)),
        lambda lib, x: lib.unfold_copy(x, 1, 2, 1),
        lambda lib, x: lib.as_strided_scatter(x, x[0, :2], (2,), (5,), 1),
        lambda lib, x: lib.select_scatter(x, x[0], 0, 2),
        lambda lib, x: lib.tril_indices(3, 4, 1),
        lambda lib, x: lib.triu_indices(3, 4, -1, dtype=lib.int32),
    ],
)
def test_copies_of_views(view: Any) -> None:
    agree(view, numbers((3, 4), "float32"))


def test_unravel_index() -> None:
    agree(
        lambda lib, i: lib.unravel_index(i, (2, 4)), torch.tensor([[5, 7], [99, 0]]), strides=False
    )
    agree(  # a size that the indices' type does not hold
        lambda lib, i: lib.unravel_index(i, (4, 300)), torch.tensor([9, 255]).byte(), strides=False
    )


@pytest.mark.parametrize("width", [1, 16, 5000])
@pytest.mark.parametrize("dtype", [skimp.bfloat16, skimp.float16])
def test_many_terms_of_half_precision_at_one_place_are_rounded_once(dtype: Any, width: int) -> None:
    terms = skimp.rand(2048 if width < 5000 else 600, width).to(dtype)
    exact = terms.double().sum(0)
    at = skimp.zeros(len(terms), dtype=skimp.int64)
    everywhere = at[:, None].expand(terms.shape).contiguous()
    zeros = skimp.zeros(2, width, dtype=dtype)
    x = skimp.zeros(2, width, dtype=dtype, requires_grad=True)
    sums = [
        zeros.index_add(0, at, terms)[0],
        zeros.t().index_add(1, at, terms.t())[:, 0],
        zeros.scatter_add(0, everywhere, terms)[0],
        zeros.scatter_add(0, at[:, None].expand(terms.shape), terms)[0],
        zeros.scatter_reduce(0, everywhere, terms, "sum")[0],
        skimp.autograd.grad(x.index_select(0, at), x, terms)[0][0],
        skimp.autograd.grad(x.gather(0, everywhere), x, terms)[0][0],
    ]
    step = skimp.finfo(dtype).eps
    for found in sums:
        assert ((found.double() - exact).abs() <= exact * step).all()
