"""Small integers in order: the largest, sorted, added up and multiplied as PyTorch does, the same
in the general way; and what lies otherwise than a new array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import skimp
from skimp.config import using

LEAST, MOST = -(1 << 63), (1 << 63) - 1
ROWS = [[3, LEAST, MOST, 3, -1], [MOST, MOST, 0, LEAST, LEAST], [7, 7, 7, -7, 1]]
CALLS: dict[str, Callable[[Any, int], Any]] = {
    "sort": lambda x, d: x.sort(dim=d, stable=True),
    "sort down": lambda x, d: x.sort(dim=d, descending=True, stable=True),
    "argsort": lambda x, d: x.argsort(dim=d, stable=True),
    "argsort down": lambda x, d: x.argsort(dim=d, descending=True, stable=True),
    "topk": lambda x, d: x.topk(2, d).values,
    "bottomk": lambda x, d: x.topk(2, d, False).values,
    "max": lambda x, d: x.max(d).values,
    "min kept": lambda x, d: x.min(d, True).values,
    "max of one dim": lambda x, d: x[0].max(0),
    "largest": lambda x, d: x.max(),
    "amax": lambda x, d: x.amax((d,)),
    "amin kept": lambda x, d: x.amin(d, True),
    "product": lambda x, d: (x % 5).prod(d),
    "product of all": lambda x, d: (x % 5).prod(),
    "sums so far": lambda x, d: (x % 9).cumsum(d),
    "products so far": lambda x, d: (x % 3).cumprod(d),
}


def _described(found: Any) -> Any:
    parts = found if isinstance(found, tuple) else (found,)
    return [(t.tolist(), str(t.dtype)[6:], tuple(t.shape), t.stride()) for t in parts]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_agree_with_pytorch(name: str, dtype: str) -> None:
    values = ROWS if dtype == "int64" else [[v % 11 for v in row] for row in ROWS]
    for d, turned in itertools.product((0, 1, -1), (False, True)):
        found = []
        for t in (torch, skimp):
            x = t.tensor(values, dtype=getattr(t, dtype))
            found.append(_described(CALLS[name](x.t() if turned else x, d)))
        assert found[0] == found[1]
        with using(small_below=0):
            x = skimp.tensor(values, dtype=getattr(skimp, dtype))
            assert _described(CALLS[name](x.t() if turned else x, d)) == found[1]


@pytest.mark.parametrize("name", ["sort", "sort down", "argsort", "argsort down"])
def test_what_is_sorted_lies_as_it_lay(name: str) -> None:
    for shape, turned in itertools.product([(1, 5), (5, 1), (3, 1, 2)], (False, True)):
        found = []
        for t in (torch, skimp):
            x = t.arange(20)[5 : 5 + math.prod(shape)].reshape(shape)
            found.append(_described(CALLS[name](x.mT if turned else x[..., :1], -1)))
        assert found[0] == found[1]


def test_a_slice_of_few_rows_is_summed_with_the_bits_of_the_general_way() -> None:
    skimp.manual_seed(0)
    x = skimp.randn(3, 600)
    for part in (x[:, 7:300], x[:, :2], x[1:, 5:]):
        with using(small_below=0):
            same = [v.tolist() for v in (part.sum(), part.sum(1), part.mean(0), part.amax(1))]
        assert [v.tolist() for v in (part.sum(), part.sum(1), part.mean(0), part.amax(1))] == same


@pytest.mark.parametrize("name", ["max", "min"])
def test_an_extreme_of_all_is_one_node(name: str) -> None:
    found = []
    for t in (torch, skimp):
        x = t.tensor([[1.0, 3.0], [3.0, 1.0]], requires_grad=True)
        best = getattr(x, name)()
        best.backward()
        each = t.func.vmap(lambda row: getattr(row, name)())(x.detach())
        (g,) = t.autograd.grad(getattr(x * x, name)(), x, create_graph=True)
        g.sum().backward()
        shown = best.grad_fn.name(), best.grad_fn.next_functions[0][0].name()
        found.append((shown, x.grad.tolist(), each.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("n", [600, 1100])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
def test_few_of_long_rows_are_those_of_sorted_rows(dtype: str, n: int) -> None:
    limits = torch.iinfo if dtype.startswith("int") else torch.finfo
    least, most = (f(limits(getattr(torch, dtype))) for f in (lambda i: i.min, lambda i: i.max))
    spread = torch.arange(3 * n).reshape(3, n) * 7919 % 601
    ends = [[], [least] * 3, [most, least], [least] * n, [most] * (n - 1)]
    if dtype.startswith("float"):
        ends += [[math.inf], [-math.inf] * 2, [-math.inf] * n, [math.nan, 5], [-0.0, 0.0] * 300]
    for some, down in itertools.product(ends, (True, False)):
        x = spread.to(getattr(torch, dtype))
        x[1, : len(some)] = torch.tensor(some, dtype=x.dtype)
        mine = skimp.tensor(x.tolist(), dtype=getattr(skimp, dtype))
        for k in (1, 4, 30):
            found = mine.topk(k, largest=down)
            sure = torch.nan_to_num(x.topk(k, largest=down).values, nan=-1.0)
            assert skimp.nan_to_num(found.values, nan=-1.0).tolist() == sure.tolist()
            order = x.sort(descending=down, stable=True)
            if not some or not math.isnan(some[0]):
                assert found.indices.tolist() == order.indices[:, :k].tolist()
            with using(small_below=0):
                assert mine.topk(k, largest=down).indices.tolist() == found.indices.tolist()


def test_places_of_many_rows_lie_row_by_row() -> None:
    found = skimp.arange(30_000.0).reshape(300, 100).topk(3)
    assert found.indices.stride() == found.values.stride() == (3, 1)
    assert found.indices.tolist() == [[99, 98, 97]] * 300


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "int8"])
def test_a_tensor_without_dims_has_its_number_on_top(dtype: str, k: int) -> None:
    found, want = [
        lib.tensor(5, dtype=getattr(lib, dtype)).topk(k, -1, False) for lib in (skimp, torch)
    ]
    assert [t.tolist() for t in found] == [t.tolist() for t in want]
    assert [tuple(t.shape) for t in found] == [(), ()]
