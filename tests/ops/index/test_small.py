"""Indexing of small tensors: the fast path gives the bits, layouts, gradients and errors of the
general way, and PyTorch's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import skimp
from skimp.config import config
from tests.support.samples import same

RNG = np.random.default_rng(11)
X = RNG.standard_normal((4, 5, 3)).astype(np.float32)
X[0, 0] = np.array([0.0, -0.0, np.nan], np.float32)
M = RNG.standard_normal((6, 4)).astype(np.float32)
V = RNG.standard_normal(7).astype(np.float32)
ROWS = np.array([3, 0, 0, 2, 1])
SIGNED = np.array([-1, 0, 2, -4])
TABLE = np.array([[0, 3], [2, 1]])
ALONG = RNG.integers(0, 4, (6, 4))
SOME = RNG.integers(0, 4, (3, 2))
HOLDS = M > 0
LONG = RNG.standard_normal(2500).astype(np.float32)
_ALL = slice(None)
SHAPES = ((2, 3, 2), (4, 5, 3), (1, 1, 1), (70, 1, 3))

Case = Callable[[Any, Callable[[np.ndarray[Any, Any]], Any]], Any]

READS: dict[str, Case] = {
    "rows": lambda m, t: t(X)[t(ROWS)],
    "signed": lambda m, t: t(X)[t(SIGNED)],
    "table": lambda m, t: t(X)[t(TABLE)],
    "vector": lambda m, t: t(V)[t(ROWS)],
    "pairs": lambda m, t: t(X)[t(TABLE), t(TABLE)],
    "broadcast": lambda m, t: t(X)[t(TABLE), t(np.array([1, 2]))],
    "all dims": lambda m, t: t(X)[t(ROWS[:3]), t(ROWS[:3]), t(np.array([0, 1, 2]))],
    "mask": lambda m, t: t(M)[t(HOLDS)],
    "mask of rows": lambda m, t: t(M)[t(HOLDS[:, 0])],
    "no row": lambda m, t: t(M)[t(np.zeros(0, np.int64))],
    "int32": lambda m, t: t(M)[t(ROWS.astype(np.int32))],
    "int32 columns": lambda m, t: t(X)[:, 1:, t(TABLE.astype(np.int32) % 3)],
    "turned": lambda m, t: t(X).transpose(0, 1)[t(ROWS)],
    "overlapping": lambda m, t: t(LONG).unfold(0, 3, 1)[t(ROWS)],
    "overlapping by a table": lambda m, t: t(LONG).unfold(0, 3, 2)[t(TABLE)],
    "turned, many": lambda m, t: t(LONG).view(50, 50).t()[t(TABLE)],
    "turned blocks, many": lambda m, t: t(LONG).view(25, 4, 25).permute(2, 0, 1)[t(SIGNED)],
    "gaps, many": lambda m, t: t(LONG).view(50, 50)[:, 3:48][t(ROWS)],
    "turned index": lambda m, t: t(X)[t(TABLE).t()],
    "new dims": lambda m, t: t(M)[:, None],
    "mask of two dims": lambda m, t: t(X)[t(HOLDS[:4, :1].repeat(5, 1))],
    "index with gaps": lambda m, t: t(M)[t(TABLE)[:, 1]],
    "index of one number": lambda m, t: t(X)[t(ROWS[:1]).expand(2)],
    "columns": lambda m, t: t(M)[:, t(ROWS)],
    "columns by a table": lambda m, t: t(X)[:, t(TABLE)],
    "last of all": lambda m, t: t(X)[:, :, t(ROWS % 3)],
    "pairs after a dim": lambda m, t: t(X)[:, t(TABLE), t(TABLE % 3)],
    "no column": lambda m, t: t(M)[:, t(np.zeros(0, np.int64))],
    "mask of columns": lambda m, t: t(M)[:, t(HOLDS[0])],
    "mask and a number": lambda m, t: t(M)[t(HOLDS[:, 0]), 1],
    "mask of two dims and a slice": lambda m, t: t(X)[t(HOLDS[:4, :1].repeat(5, 1)), 1:],
    "masked_scatter": lambda m, t: t(M).masked_scatter(t(HOLDS), t(M.T.copy())),
    "array and dots": lambda m, t: t(X)[ROWS, ..., 0],
    "list and dots": lambda m, t: t(X)[[1, 2], ..., 0:2],
    "tensor and dots": lambda m, t: t(X)[t(ROWS), ..., 1],
    "mask and dots": lambda m, t: t(X)[t(HOLDS[:4, 0]), ..., None],
    "dots and tensor": lambda m, t: t(X)[..., t(ROWS % 3)],
    "dots and list": lambda m, t: t(X)[..., [2, 0]],
    "dots for nothing and list": lambda m, t: t(M)[1:, ..., [2, 0]],
    "tensor and whole dims": lambda m, t: t(X)[t(ROWS), :, :],
    "array": lambda m, t: t(X)[ROWS],
    "array after a dim": lambda m, t: t(X)[:, TABLE],
    "array of bools": lambda m, t: t(M)[HOLDS],
    "list of bools": lambda m, t: t(M)[[True, False, True, True, False, False]],
    "number and list": lambda m, t: t(X)[1, [0, 3]],
    "NumPy's number and list": lambda m, t: t(X)[ROWS[0], [0, 3]],
    "turned, dots and list": lambda m, t: t(X).permute(1, 2, 0)[..., [1, 0]],
    "turned and table": lambda m, t: t(X).permute(2, 0, 1)[:, t(TABLE)],
    "one column of three, and tensor": lambda m, t: t(X)[:, :, ::3][t(ROWS)],
    "dots last": lambda m, t: t(X)[1, ...],
    "new dim first": lambda m, t: t(M)[None],
    "new dim before a slice": lambda m, t: t(M)[None, 1:3],
    "new dim after a slice": lambda m, t: t(M)[1:3, None],
    "new dims after all": lambda m, t: t(M)[:, :, None, None],
    "new dims around": lambda m, t: t(M)[None, :, None],
    "slice of tensors": lambda m, t: t(M)[t(ROWS)[3] : t(ROWS)[3] + 2],
    "slices of tensors": lambda m, t: t(M)[t(SIGNED)[3] :, t(ROWS)[1] :],
    "slice of a tensor past the end": lambda m, t: t(M)[: t(ROWS)[0] * 5],
    "slice of a tensor of one": lambda m, t: t(M)[t(ROWS[:1]) :, None],
    "gather": lambda m, t: t(M).gather(1, t(ALONG)),
    "gather 0": lambda m, t: t(M).gather(0, t(ALONG)),
    "gather some": lambda m, t: t(M).gather(-1, t(SOME)),
    "gather vector": lambda m, t: t(V).gather(0, t(ROWS)),
    "index_select": lambda m, t: t(X).index_select(1, t(ROWS)),
    "index_select last": lambda m, t: t(M).index_select(-1, t(ROWS)),
    "index_add": lambda m, t: t(X).index_add(0, t(ROWS[:3]), t(X[1:])),
    "index_add once": lambda m, t: t(X).index_add(1, t(ROWS[2:]), t(X[:, 1:4])),
    "index_copy": lambda m, t: t(X).index_copy(1, t(ROWS[2:]), t(X[:, 1:4])),
    "index_fill": lambda m, t: t(M).index_fill(0, t(SIGNED), 2),
    "where": lambda m, t: m.where(t(HOLDS), t(M), 0.5),
    "where both": lambda m, t: m.where(t(HOLDS), t(M), t(M[:1])),
    "where number first": lambda m, t: m.where(t(HOLDS), -1, t(M)),
    "where method": lambda m, t: t(M).where(t(HOLDS[:, :1]), t(M[0])),
    "where turned": lambda m, t: m.where(t(HOLDS).t(), t(M).t(), 0.0),
    "masked_fill": lambda m, t: t(M).masked_fill(t(HOLDS), -np.inf),
    "masked_fill broadcast": lambda m, t: t(M).masked_fill(t(HOLDS[0]), 2),
    "scatter": lambda m, t: t(M).scatter(1, t(SOME), t(M[:3, :2])),
    "scatter number": lambda m, t: t(M).scatter(1, t(SOME), 1.5),
    "scatter_add": lambda m, t: t(M).scatter_add(1, t(ALONG), t(M)),
    "scatter_add 0": lambda m, t: t(M).scatter_add(0, t(SOME), t(M[:3, :2])),
    "scatter_add vector": lambda m, t: t(V).scatter_add(0, t(ROWS), t(V[:5])),
    "index_put": lambda m, t: t(M).index_put((t(SIGNED),), t(M[:4])),
    "index_put add": lambda m, t: t(M).index_put((t(ROWS),), t(M[:5]), accumulate=True),
    "index_put once": lambda m, t: t(M).index_put((t(SIGNED),), t(M[:4]), accumulate=True),
    "index_put pairs": lambda m, t: t(M).index_put((t(ROWS[:4]), t(SIGNED)), t(V[:4]), True),
}
# whose second derivatives have other strides than PyTorch's
VIEWS: dict[str, Case] = {
    "new dim of what has gaps": lambda m, t: t(X)[:, :3][:, 1:, None],
    "an integer": lambda m, t: t(X)[t(ROWS)[0]],
    "an integer from the end": lambda m, t: t(X)[:, t(SIGNED)[0]],
    "integers": lambda m, t: t(X)[t(ROWS)[0], t(SIGNED)[3]],
    "an integer and a number": lambda m, t: t(X)[1, t(ROWS)[0]],
    "an integer of 16 bits and a slice": lambda m, t: t(X)[t(ROWS.astype(np.int16))[0], 1:],
    "an integer and dots": lambda m, t: t(X)[..., t(SIGNED)[0]],
    "an integer and a new dim": lambda m, t: t(X)[t(ROWS)[0], None],
    "an integer beside positions": lambda m, t: t(X)[t(ROWS), t(ROWS)[0]],
    "NumPy's integer": lambda m, t: t(X)[ROWS[0]],
    "NumPy's integers": lambda m, t: t(X)[SIGNED[0], ..., np.int32(1)],
    "slice of NumPy's integers": lambda m, t: t(X)[ROWS[4] : ROWS[0]],
    "slices of NumPy's integers": lambda m, t: t(X)[:, ROWS[4] :, : np.int16(2)],
    "array of no dims": lambda m, t: t(X)[np.array(1)],
    "a bool": lambda m, t: t(M)[t(HOLDS)[0, 0]],
    "a byte": lambda m, t: t(M)[t(HOLDS[0].astype(np.uint16))[0].to(m.int8)],
    "dots": lambda m, t: t(X)[..., 0],
    "dots between": lambda m, t: t(X)[0, ..., 1:],
    "dots and a new dim": lambda m, t: t(X)[..., None, 1],
    "dots that stand for nothing": lambda m, t: t(M)[1:, ..., 2],
    "new dim after a number": lambda m, t: t(X)[1, None, :, 2],
    "new dim and a step": lambda m, t: t(M)[::2, None],
    "new dim of one element's rest": lambda m, t: t(M)[:1, :, None][None, :, 0],
    "new dim first of one row": lambda m, t: t(X)[1:, :1][None],
    "new dim of a column": lambda m, t: t(M)[:, 1:2][None, 0],
}
WRITES: dict[str, Case] = {
    "masked_fill_": lambda m, t: t(M).masked_fill_(t(HOLDS), 3.0),
    "scatter_": lambda m, t: t(M).scatter_(1, t(SOME), 0),
    "scatter_add_": lambda m, t: t(M).scatter_add_(1, t(ALONG), t(M)),
    "index_put_": lambda m, t: t(M).index_put_((t(ROWS),), t(M[:5]), True),
    "index_add_": lambda m, t: t(M).index_add_(-1, t(ROWS[:4]), t(M)),
    "index_add_ integers": lambda m, t: t(ALONG).index_add_(0, t(ROWS[:3]), t(ALONG[:3])),
    "index_copy_": lambda m, t: t(M).index_copy_(0, t(ROWS[2:]), t(M[3:])),
    "index_fill_": lambda m, t: t(M).index_fill_(1, t(ROWS), -0.5),
    "assign columns": lambda m, t: _set(t(M), (_ALL, t(ROWS[2:].astype("i4"))), t(M[:, 1:])),
    "assign a mask": lambda m, t: _set(t(M), t(HOLDS), 4.5),
    "assign a mask of rows": lambda m, t: _set(t(M), t(HOLDS[:, 0]), 4.5),
    "assign a mask and a column": lambda m, t: _set(t(M), (t(HOLDS[:, 0]), 1), 4.5),
    "assign a column and a mask": lambda m, t: _set(t(M), (-1, t(HOLDS[0])), 2.0),
    "assign rows and a whole dim": lambda m, t: _set(t(M), (t(ROWS), slice(None)), -1.0),
    "assign what a mask says": lambda m, t: _set(t(M), t(HOLDS), t(V.repeat(4)[: HOLDS.sum()])),
    "assign rows that a mask says": lambda m, t: _set(
        t(M), t(HOLDS[:, 0]), t(M[: HOLDS[:, 0].sum()])
    ),
    "assign rows": lambda m, t: _set(t(M), t(SIGNED), 2),
    "assign a table": lambda m, t: _set(t(M), t(TABLE), -1.5),
    "assign a row": lambda m, t: _set(t(M), 2, t(V[:4])),
    "assign a column": lambda m, t: _set(t(M), (slice(None), 1), t(M[:, 2])),
    "assign a row to many": lambda m, t: _set(t(M), slice(1, 3), t(M[0])),
    "assign another type": lambda m, t: _set(t(M), 1, t(ALONG[0])),
    "assign an integer's row": lambda m, t: _set(t(M), t(ROWS)[0], t(V[:4])),
    "assign at integers": lambda m, t: _set(t(M), (t(ROWS)[0], t(SIGNED)[0]), 1.25),
    "assign at NumPy's integers": lambda m, t: _set(t(M), (ROWS[0], slice(ROWS[4], 4)), t(V[:3])),
    "assign a number to an array": lambda m, t: _set(t(M), (..., ROWS[2:]), 1.5),
    "assign a number to a list of bools": lambda m, t: _set(t(M), ([True, False] * 3, 1), 1.5),
    "assign integers a number": lambda m, t: _set(t(ALONG), (1, 2), 1 << 62),
    "assign integers a row": lambda m, t: _set(t(ALONG), -1, 7),
    "assign integers a bool": lambda m, t: _set(t(ALONG), -1, True),
    "assign integers a float": lambda m, t: _set(t(ALONG), slice(2), -2.75),
    "assign what it is": lambda m, t: _set(x := t(M), 1, x[1]),
    "assign a column to itself": lambda m, t: _set(x := t(M), (slice(None), 2), x[:, 2]),
    "assign turned": lambda m, t: _set(t(M).t(), 1, t(V[:6])),
}
ERRORS: dict[str, Case] = {
    "beyond": lambda m, t: t(M)[t(np.array([6]))],
    "before": lambda m, t: t(M)[t(np.array([-7]))],
    "shapes": lambda m, t: t(X)[t(ROWS), t(TABLE)],
    "column beyond": lambda m, t: t(M)[:, t(ROWS + 2)],
    "too many dims": lambda m, t: t(M)[:, :, t(ROWS)],
    "too many beside dots": lambda m, t: t(M)[0, ..., 0, 0],
    "too many beside a new dim": lambda m, t: t(M)[0, None, 0, 0],
    "number beyond after dots": lambda m, t: t(M)[..., 9],
    "gather beyond": lambda m, t: t(M).gather(1, t(SOME + 3)),
    "gather before": lambda m, t: t(M).gather(1, t(SOME - 1)),
    "gather too large": lambda m, t: t(V).gather(0, t(TABLE)),
    "index_select beyond": lambda m, t: t(M).index_select(1, t(ROWS + 2)),
    "index_select before": lambda m, t: t(M).index_select(1, t(SIGNED)),
    "index_add beyond": lambda m, t: t(M).index_add(1, t(ROWS[:4] + 2), t(M)),
    "index_copy shapes": lambda m, t: t(M).index_copy(0, t(ROWS), t(M)),
    "index_fill beyond": lambda m, t: t(M).index_fill(0, t(SIGNED - 4), 1.0),
    "assign beyond": lambda m, t: _set(t(M), t(ROWS + 4), 1.0),
    "an integer beyond": lambda m, t: t(M)[t(ROWS + 3)[0]],
    "integers too many": lambda m, t: t(V)[t(ROWS)[0], t(ROWS)[0]],
    "an integer of floats": lambda m, t: t(M)[t(V)[0]],
    "assign over itself": lambda m, t: _set(x := t(M), slice(1, 3), x[0:2]),
    "assign a huge integer": lambda m, t: _set(t(ALONG), 0, 1 << 63),
    "assign integers a mask of other shape": lambda m, t: _set(t(X), t(HOLDS[:3, 0]), -3),
    "mask of too few": lambda m, t: t(M)[t(HOLDS[:3])],
    "assign shapes": lambda m, t: _set(t(M), 1, t(V)),
    "assign too large": lambda m, t: _set(t(M), t(HOLDS), 1e39),
    "scatter_add beyond": lambda m, t: t(M).scatter_add(1, t(SOME + 3), t(M)),
    "where shapes": lambda m, t: m.where(t(HOLDS), t(M), t(V)),
    "masked_fill too large": lambda m, t: t(M).masked_fill(t(HOLDS), 1e39),
    "masked_fill shapes": lambda m, t: t(M).masked_fill(t(HOLDS), t(V)),
    "index_put beyond": lambda m, t: t(M).index_put((t(np.array([9])),), t(M[:1])),
    "index_put before": lambda m, t: t(M).index_put((t(np.array([-9])),), t(M[:1]), True),
}


def _set(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


def _ours(a: np.ndarray[Any, Any]) -> Any:
    return skimp.from_numpy(a.copy()).clone()


def _theirs(a: np.ndarray[Any, Any]) -> Any:
    return torch.from_numpy(a.copy())


def _described(t: Any) -> Any:
    bits = t.detach().contiguous().numpy().tobytes()
    return tuple(t.shape), tuple(t.stride()), str(t.dtype).split(".")[-1], bits


@pytest.mark.parametrize("name", [*READS, *VIEWS, *WRITES])
def test_the_fast_path_gives_the_bits_and_strides_of_the_general_way_and_of_pytorch(
    name: str,
) -> None:
    case = (READS | VIEWS | WRITES)[name]
    fast = _described(case(skimp, _ours))
    with config.using(small_below=0):
        general = _described(case(skimp, _ours))
    assert fast == general == _described(case(torch, _theirs))


@pytest.mark.parametrize("name", READS)
def test_gradients_and_second_derivatives_of_the_fast_path_are_those_of_pytorch(name: str) -> None:
    def gradients(m: Any, tensor: Any) -> list[Any]:
        leaves: list[Any] = []

        def leaf(a: np.ndarray[Any, Any]) -> Any:
            t = tensor(a)
            if a.dtype == np.float32:
                t.requires_grad_()
                leaves.append(t)
            return t

        result = READS[name](m, leaf)
        weights = tensor(np.arange(result.numel(), dtype=np.float32)).reshape(result.shape) + 1
        grads = m.autograd.grad(result, leaves, weights.requires_grad_(), create_graph=True)
        again = m.autograd.grad(sum((g * g).nan_to_num().sum() for g in grads), weights)
        return [result.grad_fn.name().rstrip("01"), *map(_described, [*grads, *again])]

    assert gradients(skimp, _ours) == gradients(torch, _theirs)


ITEMS = st.integers(-2, 1) | st.sampled_from(
    [slice(None), slice(1, None), slice(None, 1), slice(0, 2), slice(None, None, 2), None]
)


@given(
    st.sampled_from([(2,), (2, 2), (2, 1, 3), (3, 2, 2)]),
    st.lists(st.tuples(st.lists(ITEMS, min_size=1, max_size=2), st.booleans()), max_size=4),
    st.sampled_from(["plain", "recorded", "view", "leaf"]),
    st.booleans(),
)
def test_recorded_writes_of_small_tensors_are_those_of_pytorch(
    shape: tuple[int, ...], writes: list[tuple[list[Any], bool]], kind: str, deep: bool
) -> None:
    """Values, versions, nodes, gradients of what was written and of what was written over."""

    def program(m: Any) -> list[Any]:
        count = int(np.prod(shape))
        values = m.arange(1.0, count + 1).reshape(shape)
        leaf, source = [(values * k).requires_grad_() for k in (1.0, 0.5)]
        both = m.stack([leaf, leaf * 2])
        made = {"plain": m.zeros(shape), "leaf": leaf, "recorded": leaf * 2, "view": both[1]}
        base = made[kind]
        seen = base[0]
        for items, recorded in writes:
            index = tuple(items) if len(items) > 1 else items[0]
            base[index] = source[index] if recorded else source[index].detach()
        nodes = [t.grad_fn and t.grad_fn.name() for t in (base, seen)]
        found = [base, seen, base._version, nodes]
        if not base.requires_grad:
            return found
        weights = m.arange(1.0, base.numel() + 1).reshape(base.shape).requires_grad_()
        loss = (base * weights).sum() + (seen * 3).sum()
        grads = m.autograd.grad(loss, [leaf, source, weights], create_graph=deep, allow_unused=True)
        if deep:
            squares = sum([(g * g).sum() for g in grads if g is not None and g.requires_grad])
            grads = (*grads, m.autograd.grad(squares, [weights, source], allow_unused=True))
        return [*found, grads]

    outcomes = []
    for m in (skimp, torch):
        try:
            outcomes.append(program(m))
        except (IndexError, RuntimeError) as error:
            outcomes.append([type(error).__name__, str(error).partition("\n")[0]])
    same(*outcomes, strides=False)


@pytest.mark.parametrize("name", ERRORS)
def test_what_the_fast_path_is_not_for_raises_as_pytorch_does(name: str) -> None:
    with pytest.raises((IndexError, RuntimeError, ValueError)) as theirs:
        ERRORS[name](torch, _theirs)
    with pytest.raises(theirs.type) as ours:
        ERRORS[name](skimp, _ours)
    assert str(ours.value).split("(")[0][:30] == str(theirs.value).split("(")[0][:30]


@pytest.mark.parametrize("name", WRITES)
def test_a_write_counts_one_version_and_spoils_what_was_saved(name: str) -> None:
    made = WRITES[name](skimp, _ours)
    assert made._version == 1
    x = skimp.ones(6, 4, requires_grad=True)
    held: list[Any] = []

    def first(a: np.ndarray[Any, Any]) -> Any:
        if held:
            return _ours(a)
        held.append(_ours(a))
        held.append(x * held[0])
        return held[0]

    WRITES[name](skimp, first)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        held[1].sum().backward()


@pytest.mark.parametrize(("dim", "shape"), list(itertools.product((0, 1, 2), SHAPES)))
def test_gather_and_scatter_add_along_every_dim_agree_with_pytorch(
    dim: int, shape: tuple[int, ...]
) -> None:
    whole = tuple(max(n, m) for n, m in zip(shape, X.shape, strict=True))
    x = RNG.standard_normal(whole).astype(np.float32)
    index = RNG.integers(0, whole[dim], shape)
    source = RNG.standard_normal(shape).astype(np.float32)
    for case in (
        lambda t: t(x).gather(dim, t(index)),
        lambda t: t(x).scatter_add(dim, t(index), t(source)),
    ):
        assert _described(case(_ours)) == _described(case(_theirs))


@pytest.mark.parametrize("count", [None, 0, 3])
def test_gather_from_a_tensor_without_dims_is_pytorchs(count: int | None) -> None:
    index = np.zeros(() if count is None else count, np.int64)
    found = []
    for t in (_ours, _theirs):
        x = t(np.array(2.5, np.float32)).requires_grad_()
        y = x.gather(0, t(index))
        y.sum().backward()
        found.append((_described(y.detach()), x.grad.item()))
    assert found[0] == found[1]


PLACES: tuple[Any, ...] = (
    ([0, 1, 2], [1, 2, 0]), ([0, -1], [1, 1]), ([0, 0], [1, 1]), ([[0, 1], [2, 3]], [0, 1]),
    ([1, 3],), ([], []), ([9],), ([0], [-9]),
)  # fmt: skip
VALUES: tuple[Any, ...] = (2.5, [7.0], [1.0, 2.0], [1.0, 2.0, 3.0], [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(("places", "value"), list(itertools.product(PLACES, VALUES)))
def test_a_write_to_places_of_several_tensors_is_pytorchs(places: Any, value: Any) -> None:
    def write(t: Any, add: bool) -> Any:
        x = t.arange(24.0).reshape(6, 4)
        index = tuple(t.tensor(p, dtype=t.int64) for p in places)
        what = t.tensor(value) if isinstance(value, list) else value
        try:
            if add:
                x[index] += what
            else:
                x[index if len(index) > 1 else index[0]] = what
        except (IndexError, RuntimeError) as error:
            return type(error)
        return x.tolist(), x._version

    for add in (False, True):
        there = write(torch, add)
        if there is RuntimeError and write(skimp, add) is IndexError:
            continue  # two things are wrong: which is said first is open
        assert write(skimp, add) == there


def test_a_slice_by_tensors_is_the_slice_by_their_numbers() -> None:
    for t in (torch, skimp):
        x, start = t.arange(20), t.tensor(3)
        assert x[start : start + 4].tolist() == [3, 4, 5, 6]
        assert x[: t.tensor(2)].tolist() == [0, 1]
        assert x[start:12:4].tolist() == [3, 7, 11]
        assert x[18:100].tolist() == [18, 19]
        assert x[7:3].tolist() == []
        assert x.reshape(4, 5)[t.tensor(1) : 3].shape == (2, 5)
        with pytest.raises((IndexError, TypeError)):
            t.tensor(1.0)[0:1]


SHARED: dict[str, Callable[[Any], Any]] = {
    "one": lambda lib: (x := lib.arange(4), x.__setitem__((x[:2],), 9)),
    "a value": lambda lib: (x := lib.arange(4), x.__setitem__(x[:2], x.new_tensor(9))),
    "two": lambda lib: (x := lib.zeros(4, 4, dtype=lib.int64), x.__setitem__((x[0], x[1]), 3)),
    "a mask": lambda lib: (x := lib.ones(2, 2) > 0, x.__setitem__(x[0], lib.ones(2, 2) > 2)),
    "added": lambda lib: (x := lib.arange(4), x.index_put_((x[:2],), x.new_tensor(9), True)),
    "too large": lambda lib: lib.zeros(3, 4).__setitem__((lib.tensor([0]), 1 << 63), 1),
}


@pytest.mark.parametrize("name", SHARED)
def test_an_index_that_is_refused_is_refused_as_in_pytorch(name: str) -> None:
    errors = []
    for lib in (skimp, torch):
        with pytest.raises((RuntimeError, ValueError)) as found:
            SHARED[name](lib)
        errors.append((found.type, str(found.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("values", ["all", "rows", "one", "number"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_writes_under_a_mask_are_recorded_as_pytorch_does(
    dims: int, values: str, accumulate: bool
) -> None:
    """As a mixture of experts puts each expert's rows in their place, and what is refused."""
    a = np.random.default_rng(dims).standard_normal((4, 5, 6))
    mask = np.abs(a).max(axis=tuple(range(dims, 3))) > 1.0
    shape = {"all": a[mask].shape, "rows": a.shape[dims:], "one": (1,), "number": ()}[values]
    b = np.random.default_rng(9).standard_normal(shape)
    found = []
    for lib in (skimp, torch):
        x, v = lib.tensor(a, requires_grad=True), lib.tensor(b, requires_grad=True)
        y = x * 1
        y.index_put_((lib.tensor(mask),), v, accumulate)
        if values == "all":
            y[lib.tensor(mask)] += v * 2
        version = y._version
        (y * lib.tensor(a)).sum().backward()
        found.append([y.detach().numpy(), x.grad.numpy(), v.grad.numpy(), version])
        with pytest.raises((RuntimeError, IndexError)):
            y.index_put_((lib.tensor(mask),), lib.zeros(7, 7, 7, 7, dtype=lib.float64))
        with pytest.raises(RuntimeError):
            x.index_put_((lib.tensor(mask),), v)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
