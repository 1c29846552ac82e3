"""One number of another dtype written where one mask holds: converted, as `masked_fill_` does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.samples import same

INDICES: dict[str, Any] = {
    "whole": lambda t, x: x > 1,
    "rows": lambda t, x: (x > 1)[:, 0],
    "columns": lambda t, x: (slice(None), (x > 1)[0]),
    "of a row": lambda t, x: (1, (x > 1)[1]),
    "with a new dim": lambda t, x: (x > 1, None),
    "nothing": lambda t, x: x > 99,
}
NUMBERS: list[Any] = [
    ("float32", 7, "int64"),
    ("float32", 0.1, "float64"),
    ("int64", 7.5, "float32"),
    ("bool", 0, "int64"),
    ("uint8", -1, "int64"),
    ("bfloat16", 1.1, "float32"),
]


def _put(library: Any, index: Any, to: str, number: Any, dtype: str, shape: Any) -> Any:
    x = library.arange(6).reshape(2, 3)
    of = x.to(getattr(library, to))
    of[index(library, x)] = library.full(shape, number, dtype=getattr(library, dtype))
    return of


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize(("to", "number", "dtype"), NUMBERS)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_number_is_converted(name: str, to: str, number: Any, dtype: str, shape: Any) -> None:
    theirs, ours = [_put(t, INDICES[name], to, number, dtype, shape) for t in (torch, skimp)]
    same(ours, theirs)


@pytest.mark.parametrize(
    ("to", "number", "dtype", "shape", "index"),
    [
        ("uint8", 300, "int64", (), lambda t, x: x > 1),
        ("float32", 1j, "complex64", (), lambda t, x: x > 1),
        ("float32", 7, "int64", (4,), lambda t, x: x > 1),
        ("float32", 7, "int64", (), lambda t, x: t.tensor([0])),
        ("float32", 7, "int64", (), lambda t, x: ((x > 1)[:, 0], [0])),
        ("float32", 7, "int64", (), lambda t, x: (x > 1).t()),
    ],
)
def test_what_is_no_fill_is_refused(
    to: str, number: Any, dtype: str, shape: Any, index: Any
) -> None:
    words = []
    for library in (torch, skimp):
        with pytest.raises((RuntimeError, IndexError)) as refused:
            _put(library, index, to, number, dtype, shape)
        words.append((refused.type, str(refused.value).splitlines()[0]))
    assert words[0] == words[1]


def test_accumulated_numbers_keep_their_type() -> None:
    for library in (torch, skimp):
        x = library.ones(3)
        with pytest.raises(RuntimeError, match="source and destination dtypes match"):
            x.index_put_((x > 0,), library.tensor(7), accumulate=True)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32"]
)
def test_small_fills_of_any_type(dtype: str) -> None:
    """With numbers and 0-d tensors, where masks of fewer dims say."""

    def run(t: Any) -> list[Any]:
        x = t.tensor([[1, 0, 2], [3, 0, 1]], dtype=getattr(t, dtype))
        found = []
        for mask in (x > 1, x[0] > 0, t.tensor(True)):
            for value in (True, 0, 2, -0.0, 0.5, 300, float("inf"), 1e6, x[1, 0].clone(), x[0, 0]):
                for call in (t.masked_fill, t.Tensor.masked_fill_):
                    try:
                        made = call(x.clone() if value is not x[0, 0] else x, mask, value)
                        found.append([made.dtype.itemsize, made.double().tolist()])
                    except RuntimeError as error:
                        found.append(str(error))
        return found

    assert run(skimp) == run(torch)


def test_values_that_the_type_does_not_hold_are_refused() -> None:
    for t in (skimp, torch):
        x, mask = t.ones(2, dtype=t.uint8), t.tensor([True, False])
        assert x.masked_fill(mask, t.tensor(7 + 0j)).tolist() == [7, 1]
        for value in (t.tensor(300), t.tensor(1e6), t.tensor(300 + 0j), t.tensor(1 + 1j)):
            with pytest.raises(RuntimeError, match="uint8_t without overflow"):
                x.masked_fill_(mask, value)
        with pytest.raises(RuntimeError, match="without overflow"):
            t.where(mask, x.to(t.complex64), 1e39)


@pytest.mark.parametrize("shape", [(3,), (3, 4)])
@pytest.mark.parametrize("count", [3, 4])
def test_a_mask_behind_the_last_dim_is_refused_in_pytorchs_words(
    shape: tuple[int, ...], count: int
) -> None:
    def answer(library: Any) -> str:
        index = (*[slice(None)] * count, library.ones(3, dtype=library.bool))
        with pytest.raises(IndexError) as found:
            library.ones(shape)[index]
        return str(found.value)

    assert answer(skimp) == answer(torch)


def test_a_number_too_large_for_floats_is_refused_by_halves() -> None:
    def answer(library: Any) -> str:
        x = library.ones(3, dtype=library.float16)
        with pytest.raises(OverflowError) as found:
            x.masked_fill(x > 0, 10**400)
        return str(found.value)

    assert answer(skimp) == answer(torch)
