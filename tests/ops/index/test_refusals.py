"""Writers of slices and products of batches by all small shapes: taken or refused as in PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch as oracle

import skimp
from tests.support.schemas import Refused

SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (2,), (0, 3), (2, 3), (2, 2, 2)]
INDICES: list[list[int]] = [[], [0], [1, 1], [5]]


def _end(f: Callable[[Any], Any], library: Any) -> Any:
    try:
        return tuple(f(library).shape)
    except Exception as error:
        return Refused(error).kind


def _unlike(f: Callable[[Any], Any]) -> tuple[Any, Any] | None:
    ends = _end(f, skimp), _end(f, oracle)
    return None if ends[0] == ends[1] else ends


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_reduce"])
def test_writers_of_slices(name: str) -> None:
    told = []
    rest = ("amax",) if name == "index_reduce" else ()
    for shape, of, index, dim in itertools.product(SHAPES, SHAPES, INDICES, (0, -1, 1)):
        if name == "index_copy" and shape and not shape[min(dim, len(shape) - 1)]:
            continue  # PyTorch says what its storage lacks
        for dtype in ("float32", "int64"):

            def call(lib: Any, dtype: str = dtype, case: Any = (shape, of, index, dim)) -> Any:
                own, theirs, places, d = case
                source = lib.ones(theirs, dtype=getattr(lib, dtype))
                where = lib.tensor(places, dtype=lib.int64)
                return getattr(lib.ones(own), name)(d, where, source, *rest)

            if ends := _unlike(call):
                told.append((shape, of, index, dim, dtype, ends))
    assert told == []


@pytest.mark.parametrize("name", ["baddbmm", "addbmm"])
def test_products_of_batches(name: str) -> None:
    told = []
    sizes = [(), (1,), (2,), (2, 3), (2, 3, 3), (2, 2, 2, 2)]
    for case in itertools.product(sizes, sizes, sizes):

        def call(lib: Any, case: Any = case) -> Any:
            a, b, c = (lib.ones(shape) for shape in case)
            return getattr(a, name)(b, c)

        if ends := _unlike(call):
            told.append((case, ends))
    assert told == []


def test_counting_and_choosing() -> None:
    vector, told = [1.0, 2.0, 0.5], []
    for dtype, bins, low, high in itertools.product(
        ("int32", "float32"), (-1, 0, 3), (0, 1), (0, 1)
    ):
        if ends := _unlike(
            lambda lib, d=dtype, c=(bins, low, high): lib.ones(3, dtype=getattr(lib, d)).histc(*c)
        ):
            told.append((dtype, bins, low, high, ends))
    for r, repeats in itertools.product((-1, 0, 2, 4, 70, 2**62, 2**70), (False, True)):
        if ends := _unlike(lambda lib, c=(r, repeats): lib.combinations(lib.tensor(vector), *c)):
            told.append((r, repeats, ends))
    wrongs: list[Any] = [[1], "a", 7, ()]
    for wrong in wrongs:
        ends = _unlike(lambda lib, w=wrong: lib.nn.functional.embedding(w, lib.ones(2, 3)))
        told += [(wrong, ends)] if ends else []
    assert told == []
