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


class Ends:
    """What differs, and of how many calls PyTorch takes how many: a wrong case is taken by none."""

    def __init__(self) -> None:
        self.calls = self.taken = 0
        self.unlike: list[Any] = []

    def of(self, f: Callable[[Any], Any], *case: Any) -> None:
        ours, theirs = _end(f, skimp), _end(f, oracle)
        self.calls += 1
        self.taken += isinstance(theirs, tuple)
        if ours != theirs:
            self.unlike.append((*case, ours, theirs))

    def are(self, taken: int, calls: int) -> None:
        assert self.unlike == []
        assert (self.taken, self.calls) == (taken, calls)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", ["index_add", "index_copy", "index_reduce"])
def test_writers_of_slices(name: str) -> None:
    ends = Ends()
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

            ends.of(call, shape, of, index, dim, dtype)
    ends.are(*{"index_add": (21, 1176), "index_copy": (25, 952), "index_reduce": (20, 1176)}[name])


@pytest.mark.parametrize("name", ["baddbmm", "addbmm"])
def test_products_of_batches(name: str) -> None:
    ends = Ends()
    sizes = [(), (1,), (2,), (2, 3), (2, 3, 3), (2, 2, 2, 2)]
    for case in itertools.product(sizes, sizes, sizes):

        def call(lib: Any, case: Any = case) -> Any:
            a, b, c = (lib.ones(shape) for shape in case)
            return getattr(a, name)(b, c)

        ends.of(call, case)
    ends.are(*{"baddbmm": (3, 216), "addbmm": (2, 216)}[name])


def test_counting_and_choosing() -> None:
    vector, ends = [1.0, 2.0, 0.5], Ends()
    for dtype, bins, low, high in itertools.product(
        ("int32", "float32"), (-1, 0, 3), (0, 1), (0, 1)
    ):
        ends.of(
            lambda lib, d=dtype, c=(bins, low, high): lib.ones(3, dtype=getattr(lib, d)).histc(*c),
            *(dtype, bins, low, high),
        )
    for r, repeats in itertools.product((-1, 0, 2, 4, 70, 2**62, 2**70), (False, True)):
        ends.of(lambda lib, c=(r, repeats): lib.combinations(lib.tensor(vector), *c), r, repeats)
    wrongs: list[Any] = [[1], "a", 7, ()]
    for wrong in wrongs:
        ends.of(lambda lib, w=wrong: lib.nn.functional.embedding(w, lib.ones(2, 3)), wrong)
    ends.are(9, 42)


def test_values_put_at_positions() -> None:
    """By all small shapes of values, with positions and masks, as a call and as an assignment."""
    shapes: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (1, 3), (1, 1, 1), (1, 2, 3), (2,)]
    ends = Ends()
    for shape, by, way in itertools.product(shapes, ("place", "mask"), range(4)):

        def call(lib: Any, shape: Any = shape, by: str = by, way: int = way) -> Any:
            x, values = lib.zeros(2, 3), lib.ones(shape)
            at = lib.tensor([0, 1]) if by == "place" else lib.ones(2, 3) > 0
            if way == 3:
                x[at] = values
                return x
            return (x.index_put if way else x.index_put_)((at,), values, way == 2)

        ends.of(call, shape, by, way)
    ends.are(33, 64)


def test_bounds_of_random_numbers() -> None:
    """By place and by name: the same numbers, or refused alike."""
    calls: list[tuple[tuple[int, ...], dict[str, int]]] = [
        ((5,), {}), ((5, 7), {}), ((), {"to": 5}), ((5,), {"to": 7}), ((5,), {"to": 6}),
        ((5,), {"to": 3}), ((5,), {"to": 5}), ((1,), {"to": -(2**62)}),
        ((), {"from": 5, "to": 7}), ((7,), {"from": 5}), ((5, 6, 7), {}), ((5, 6), {"to": 7}),
    ]  # fmt: skip
    refused = 0
    for args, words in calls:
        found = []
        for lib in (skimp, oracle):
            lib.manual_seed(0)
            try:
                found.append(lib.zeros(9).random_(*args, **words).tolist())
            except (TypeError, RuntimeError) as error:
                found.append(type(error))
        assert found[0] == found[1], (args, words)
        refused += isinstance(found[1], type)
    assert refused == 6


@pytest.mark.filterwarnings("ignore:An output with one or more:UserWarning")
def test_ranks_of_empty_matrices_have_the_batchs_shape() -> None:
    ends = Ends()
    for shape, bound in itertools.product([(2, 0), (4, 0, 2), (0, 3), (0, 2, 2)], [(), (2, 3)]):
        for name in ("tol", "atol", "rtol"):

            def call(lib: Any, shape: Any = shape, bound: Any = bound, name: str = name) -> Any:
                return lib.linalg.matrix_rank(lib.ones(shape), **{name: lib.ones(bound)})

            ends.of(call, shape, bound, name)
    ends.are(24, 24)
