"""`x[...]`, read and write, against torch: views, copies, places of the result's dims, errors,
gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp._engine.memory.ledger import host
from skimp.config import config
from tests.support.samples import (
    DTYPES,
    OF_TYPES,
    agree,
    alike,
    array,
    numbers,
    refusals,
    same,
    same_gradients,
    twin,
)

MASK = torch.tensor([[True, False, True], [False, True, True]])
LAST = torch.tensor([True, False, True, True])
INDICES: list[Any] = [
    0, -1, (0, 1), (slice(None), 1), (..., 2), (None, 1), (slice(0, 2), None, slice(None, None, 2)),
    (None, slice(1)), (slice(1), None), (1, None, slice(None), 2), (..., None, 1),
    (0, ..., slice(1)),
    (), ..., None, [0, 1], [1, 1, 0], [-1, 0], [], (0, [0, 2]), ([0, 1], [0, 2]),
    ([0, 1], slice(None), [1, 3]), (slice(None), [0, 2]), (slice(None), [0, 2], [1, 1]),
    (slice(None), slice(None), [0, 0, 3]), ([[0], [1]], [0, 2]), (..., [0, 3]), (None, [0, 1]),
    ([0, 1], None, [2, 2]), (slice(None, None, 2), [0, -1], slice(1, 3)), True, False, (True, [1]),
    (True, True), (0, True), MASK, (MASK, 1), (MASK, slice(0, 2)), (MASK, None),
    (MASK, [0, 1, 2, 3]), (None, MASK), (slice(None), slice(None), LAST), (0, slice(None), LAST),
    [True, False], torch.tensor(1), torch.tensor(True), torch.tensor([[0, 1], [1, 0]]),
    (torch.tensor(1), [0, 1]), torch.tensor([1, 0], dtype=torch.int32),
    torch.empty(0, dtype=torch.int64), np.array([0, 1]), np.int64(1), np.array([True, False]),
    (slice(torch.tensor(1), None),), range(2), [1, True], ([0, 1], [0, 1], [2, 3]),
]  # fmt: skip
WRONG: dict[type[Exception], list[Any]] = {
    IndexError: [
        5,
        (0, 5),
        (None, 0, 5),
        (0, 0, 0, 0),
        1.0,
        {},
        np.bool_(True),
        torch.tensor([0, 5]),
        (torch.tensor([0, 1]), torch.tensor([0, 1, 2])),
        MASK.t(),
        (slice(None), MASK),
        (..., MASK),
        torch.tensor([0.5]),
        torch.tensor([1, 0], dtype=torch.int16),
        torch.tensor(7),
        ([0, 5],),
        torch.zeros(2, 3, 4, 5, dtype=torch.bool),
        (torch.tensor(7), [0, 1]),
        torch.tensor([1j]),
    ],
    TypeError: [slice(1.5, None), "a"],
    ValueError: [slice(None, None, -1), slice(None, None, 0)],
}
VALUES: list[Any] = [
    3, 2.5, True, np.float64(2), torch.ones(()), torch.ones(4), torch.ones(1, 4),
    torch.ones(1, 1, 3, 4), torch.ones(2, 1, 1), torch.arange(12.0).reshape(3, 4),
    torch.tensor([5.0]), torch.ones(4, dtype=torch.int64), 1j, "a", None, [1, 2, 3, 4], np.ones(4),
    torch.ones(5),
]  # fmt: skip


def cube(order: tuple[int, ...] = (0, 1, 2), dtype: str = "float32") -> torch.Tensor:
    """2 x 3 x 4 with the dims in this order in memory."""
    shape = [(2, 3, 4)[d] for d in order]
    return (
        torch.arange(24)
        .reshape(shape)
        .to(getattr(torch, dtype))
        .permute([order.index(d) for d in range(3)])
    )


def read(library: Any, x: Any, index: Any) -> Any:
    return x[index]


def write(library: Any, x: Any, index: Any, value: Any) -> Any:
    y = x.clone()
    y[index] = value
    return y, y._version


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_read(index: Any, order: tuple[int, ...]) -> None:
    agree(read, cube(order), index)


@pytest.mark.parametrize(("error", "index"), refusals(WRONG))
def test_errors(error: Any, index: Any) -> None:
    agree(read, cube(), index, refused=error)
    if not isinstance(index, str):
        agree(write, cube(), index, 1, refused=error)


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_write(index: Any) -> None:
    """No shape but the index's and those that broadcast to it, and nothing but numbers."""
    wrong = "broadcast|can't assign|overflow|source and destination|expanded size|number of sizes"
    for value in VALUES:
        agree(write, cube((2, 1, 0)), index, value, message=30, refused=wrong)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str) -> None:
    x = cube((1, 2, 0), dtype)
    for index in (
        [1, 0, 1],
        (slice(None), [0, 2]),
        MASK,
        x.real > 5 if x.is_complex() else x > 5,
        ([0, 1], [0, 2]),
    ):
        agree(read, x, index)
        agree(write, x, index, 1)
        agree(write, x, index, True)


@pytest.mark.parametrize("value", [300, -1, 1.5, 2**40, 1j, True])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "bool"])
def test_numbers_that_may_not_fit(dtype: str, value: Any) -> None:
    for index in (0, [0, 1]):
        agree(write, cube(dtype=dtype), index, value, message=30, refused=OF_TYPES)


def test_zero_dims() -> None:
    for index in (..., None, True, False, (), torch.tensor(True)):
        agree(read, torch.tensor(3.0), index)
    for index in (0, slice(None), [0], torch.tensor([True])):
        agree(read, torch.tensor(3.0), index, refused=IndexError)
    x = skimp.tensor(3.0)
    x[...] = 4
    x[x > 3] = 5
    assert x.item() == 5


def test_old_sequences_warn() -> None:
    x = skimp.arange(6).reshape(2, 3)
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert x[[[0, 1], [1, 2]]].tolist() == [1, 5]
    with pytest.warns(UserWarning, match="torch.uint8 is now deprecated"):
        assert x[skimp.tensor([1, 0], dtype=skimp.uint8)].tolist() == [[0, 1, 2]]


def test_views_share_and_copies_do_not() -> None:
    x = skimp.zeros(4, 5)
    x[1:3][0, ::2] = 7
    x[[0, 1]][0] = 9
    assert x[0].tolist() == [0.0] * 5
    assert x[1].tolist() == [7.0, 0.0, 7.0, 0.0, 7.0]


def test_augmented_assignment() -> None:
    x, y = torch.zeros(4, 3), skimp.zeros(4, 3)
    for t, lib in ((x, torch), (y, skimp)):
        t[[0, 0, 2]] += 1
        t[t > 0] *= 3
        t[1] -= lib.ones(3)
        t[:, 1:] += lib.tensor([5.0, 6.0])
    same(y, x)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_index_put(dtype: str, accumulate: bool) -> None:
    x = cube((1, 0, 2), dtype)
    cases: list[Any] = [
        ((torch.tensor([0, 1, 0]),), numbers((3, 1, 4), dtype)),
        (
            (torch.tensor([[0], [1]]), torch.tensor([0, 2]), torch.tensor([3, 3])),
            numbers((2, 2), dtype),
        ),
        ((MASK,), numbers((4,), dtype)),
        ((x.real > 3 if x.is_complex() else x > 3,), numbers((1,), dtype)),
    ]
    for indices, values in cases:
        agree(lambda lib, x, i, v: x.index_put(i, v, accumulate), x, indices, values)
        agree(
            lambda lib, x, i, v: x.clone().index_put_(i, v, accumulate=accumulate),
            x,
            indices,
            values,
        )


INTS = st.integers(-9, 9)
ITEMS = st.one_of(
    INTS,
    st.none(),
    st.just(...),
    st.slices(6),
    st.lists(st.integers(-3, 2), max_size=3),
    st.booleans(),
    st.builds(lambda seed: numbers((3,), "bool", seed), st.integers(0, 9)),
    st.builds(
        lambda seed: torch.randint(0, 3, (2, 1), generator=torch.Generator().manual_seed(seed)),
        st.integers(0, 9),
    ),
)


@given(st.lists(ITEMS, max_size=4), st.permutations(range(3)))
@settings(max_examples=150, deadline=None)
def test_any_mix(items: list[Any], order: list[int]) -> None:
    if sum(i is ... for i in items) > 1:
        items = [i for i in items if i is not ...]
    x = torch.arange(27.0).reshape(3, 3, 3).permute(order)
    wrong = "too many indices|out of bounds|greater than zero|could not be broadcast"
    agree(read, x, tuple(items), message=10, refused=wrong)
    agree(write, x, tuple(items), 5, message=10, refused=wrong)


@pytest.mark.parametrize("index", [i for i in INDICES if not isinstance(i, np.ndarray)], ids=repr)
def test_gradients(index: Any) -> None:
    x = cube(dtype="float64") / 7
    same_gradients(lambda lib, x: x[index if lib is torch else twin(index)] * 1, x)


def _assigned(library: Any, x: Any, v: Any, index: Any) -> Any:
    y = x * 1
    y[index] = v
    return y


@pytest.mark.parametrize(
    "index", [0, [0, 1], (slice(None), [0, 2]), ([0, 1], slice(None), [1, 1])], ids=repr
)
def test_gradients_of_writes(index: Any) -> None:
    x = cube(dtype="float64") / 7
    v = x[index] * 0 + 0.3
    same_gradients(lambda lib, x, v: _assigned(lib, x, v, index), x, v)


def test_gradients_of_index_put() -> None:
    x, v = cube(dtype="float64") / 7, numbers((3, 1, 4), "float64", 3) / 5
    i = (torch.tensor([0, 1, 0]),)
    same_gradients(lambda lib, x, v: x.index_put(i if lib is torch else twin(i), v, True), x, v)


def test_large_masks_and_indices() -> None:
    """Above the sizes where work is cut into blocks and shared by threads."""
    x = numbers((1100, 700), "float32", ties=False)
    y = twin(x)
    same(y[y > 1], x[x > 1])
    same(y.t()[y.t() > 1], x.t()[x.t() > 1])
    same(y[y == y], x[x == x])
    rows = torch.randint(-1100, 1100, (2000,), generator=torch.Generator().manual_seed(1))
    same(y[twin(rows)], x[rows])
    columns = rows % 700
    same(y[:, twin(columns)], x[:, columns])
    same(y.t()[twin(columns)], x.t()[columns])
    same(y[twin(rows), twin(columns)], x[rows, columns])
    x[x > 1], y[y > 1] = 0, 0
    x[rows], y[twin(rows)] = 2.0, 2.0
    same(y, x)
    x[x == 0] = torch.arange(float((x == 0).sum()))
    y[y == 0] = skimp.arange(float((y == 0).sum().item()))
    same(y, x)


def test_a_mask_that_is_used_once_is_never_written() -> None:
    with config.using(defer="auto"):
        x = skimp.full((1024, 1024), 2.0)
        skimp.memory.reset_peak_memory_stats()
        before = host.allocated
        assert x[x > 5].numel() == 0
        assert skimp.memory.max_memory_allocated() < before + 1000


def test_exported_masks() -> None:
    mask = skimp.from_numpy(np.array([True, False, True]))
    assert array(skimp.arange(3)[mask]).tolist() == [0, 2]


@pytest.mark.parametrize(
    "kind", [np.float16, np.float32, np.float64, np.int8, np.uint64, np.bool_, np.complex64]
)
@pytest.mark.parametrize("index", [0, slice(1), (..., -1)])
def test_numbers_of_numpy_are_assigned_as_in_pytorch(kind: Any, index: Any) -> None:
    def assigned(library: Any) -> Any:
        t = library.zeros(3)
        t[index] = kind(1)
        return t.tolist()

    taken = kind in (np.float64, np.int8, np.uint64)
    alike(assigned, None if taken else TypeError)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_of_one_place(accumulate: bool, gaps: bool) -> None:
    """By a 0-d index, of 0-d values: a result without any dims."""
    for shape in ((3,), (3, 2)):
        found = []
        for lib in (torch, skimp):
            x = lib.ones(shape)
            x = lib.stack([x, x], -1)[..., 0] if gaps else x
            x.index_put_((lib.tensor(1),), lib.tensor(3.0), accumulate=accumulate)
            found.append(x.tolist())
        assert found[0] == found[1]
