"""Layouts under other shapes and types, cut into pieces, and which overlap: PyTorch's views."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings, strategies as st

from skimp._engine.memory import layout, layout_bits, layout_overlap, layout_splits, layout_views
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.layout_overlap import Overlap
from skimp._engine.tensor import dtypes
from tests.engine.memory.test_layout import (
    STORAGE,
    examples,
    ints,
    layout_of,
    layouts,
    outcome,
    same,
    shapes,
    strides_for,
    tensor_of,
    with_dim,
)

# --- new shapes -------------------------------------------------------------------------------


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Layout, list[int]]:
    """A layout and a shape, mostly one of as many elements, perhaps with a -1."""
    own = draw(layouts())
    wanted = draw(st.permutations(split_into_factors(layout.numel(own.shape))))
    wanted = list(own.shape) if draw(ints(0, 4)) == 0 else regroup(draw, list(wanted))
    if wanted and draw(st.booleans()):
        wanted[draw(ints(0, len(wanted) - 1))] = -1
    if draw(ints(0, 9)) == 0:
        wanted = draw(st.lists(ints(-2, 6), max_size=4))
    return own, wanted


def split_into_factors(count: int) -> list[int]:
    factors = [factor for factor in (2, 3, 5) for _ in range(8) if count and count % factor == 0]
    found = []
    for factor in factors:
        if count % factor == 0:
            found.append(factor)
            count //= factor
    return found if count == 1 else [count]


def regroup(draw: st.DrawFn, factors: list[int]) -> list[int]:
    groups = draw(st.lists(st.sampled_from([1, 1]), max_size=2)) or [1]
    groups += [1] * draw(ints(0, 3))
    for factor in sorted(factors) if draw(st.booleans()) else factors:
        groups[draw(ints(0, len(groups) - 1))] *= factor
    return groups


@settings(max_examples=200, deadline=None)
@given(reshapes())
@example((Layout((0, 2), (7, 9), 3), [0, 2]))
@example((Layout((0, 2), (7, 9), 3), [-1, 0]))
def test_view_and_reshape(case: tuple[Layout, list[int]]) -> None:
    own, wanted = case
    tensor = tensor_of(own)
    same(lambda: layout_views.view_or_raise(own, wanted), lambda: tensor.view(wanted))
    ours = outcome(lambda: layout_views.view(own, wanted))
    theirs = outcome(lambda: tensor.reshape(wanted))
    if isinstance(ours, Layout):
        assert ours == layout_of(theirs)
    elif ours is None:
        assert theirs.untyped_storage().data_ptr() != STORAGE.data_ptr()
    else:
        assert ours == theirs


@examples
@given(st.data())
def test_a_view_that_joins_or_splits(data: st.DataObject) -> None:
    own = data.draw(layouts(max_dims=5))
    ndim = len(own.shape)
    start, end = data.draw(with_dim(own)), data.draw(with_dim(own))
    theirs = outcome(lambda: tuple(tensor_of(own).flatten(start, end).shape))
    ours = outcome(lambda: layout_views.flatten_shape(own.shape, start, end))
    assert ours == theirs
    if ndim and isinstance(ours, tuple) and isinstance(ours[0], int):
        same(lambda: layout_views.view_or_raise(own, ours), lambda: tensor_of(own).view(ours))


@examples
@given(st.data())
def test_unflatten(data: st.DataObject) -> None:
    own = data.draw(layouts())
    dim = data.draw(with_dim(own))
    parts = data.draw(st.lists(st.sampled_from([-1, -1, 1, 2, 3, 0, -2, 5]), max_size=3))
    same(
        lambda: layout_views.unflatten(own, dim, parts),
        lambda: tensor_of(own).unflatten(dim, parts),
    )


# --- the same bytes read otherwise ------------------------------------------------------------


@examples
@given(layouts(), st.sampled_from(dtypes.ALL), st.sampled_from(dtypes.ALL))
def test_view_dtype(own: Layout, old: dtypes.dtype, new: dtypes.dtype) -> None:
    tensor = tensor_of(own, getattr(torch, old.name))
    same(
        lambda: layout_bits.view_dtype(own, old, new), lambda: tensor.view(getattr(torch, new.name))
    )


@examples
@given(layouts(), st.sampled_from([1, 1, 2, 2, 4]), st.sampled_from([0, 4, 8, 3]))
def test_view_dtype_of_rows(own: Layout, ratio: int, offset: int) -> None:
    own = Layout((*own.shape, 4), (*[step * ratio for step in own.strides], 1), offset)
    for old, new in itertools.product([dtypes.float32, dtypes.uint8], [dtypes.int16, dtypes.int64]):
        tensor = tensor_of(own, getattr(torch, old.name))
        same(
            partial(layout_bits.view_dtype, own, old, new),
            partial(tensor.view, getattr(torch, new.name)),
        )


@examples
@given(layouts(), st.sampled_from(dtypes.ALL))
def test_complex_parts(own: Layout, of: dtypes.dtype) -> None:
    tensor = tensor_of(own, getattr(torch, of.name))
    same(lambda: layout_bits.view_as_real(own, of), lambda: torch.view_as_real(tensor))
    same(lambda: layout_bits.real(own, of), lambda: tensor.real)
    same(lambda: layout_bits.imag(own, of), lambda: tensor.imag)


@examples
@given(layouts(), st.sampled_from(dtypes.ALL), st.sampled_from([1, 2, 2, 2]), st.booleans())
@example(Layout((1, 1, 2), (1, 3, 1), 0), dtypes.float32, 2, False)
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_view_as_complex(own: Layout, of: dtypes.dtype, last: int, pairs: bool) -> None:
    if pairs:
        even = tuple([step * 2 for step in own.strides])
        own = Layout((*own.shape, last), (*even, 1), own.offset)
    tensor = tensor_of(own, getattr(torch, of.name))
    same(lambda: layout_bits.view_as_complex(own, of), lambda: torch.view_as_complex(tensor))


@examples
@given(
    st.lists(ints(-2, 4), max_size=3),
    st.lists(ints(-1, 5), max_size=3),
    ints(-1, 30),
    st.booleans(),
)
def test_as_strided(shape: list[int], strides: list[int], offset: int, matched: bool) -> None:
    if matched:
        strides = (strides + [1] * 3)[: len(shape)]
    base = torch.zeros(24)

    def ours() -> Layout:
        own = layout_bits.as_strided(shape, strides, offset)
        layout_bits.check_fits_storage(own, 4, 96)
        return own

    same(ours, lambda: base.as_strided(shape, strides, offset))


# --- splits -----------------------------------------------------------------------------------


def spans_of(parts: Any, dim: int, stride: int) -> list[tuple[int, int]]:
    """(start, length) of torch's parts of a tensor whose offset is 0."""
    return [(part.storage_offset() // stride, part.shape[dim]) for part in parts]


@examples
@given(st.data())
def test_splits(data: st.DataObject) -> None:
    shape = data.draw(st.lists(ints(0, 9), max_size=3).map(tuple))
    own = layout.contiguous(shape)
    tensor = torch.zeros(shape)
    dim = data.draw(with_dim(own))
    size = data.draw(ints(-1, 11))
    several = data.draw(st.lists(ints(-1, 6), max_size=4))
    if shape and data.draw(st.booleans()):
        several.append(shape[dim % len(shape)] - sum(several))
    stride = max(own.strides[dim % len(shape)] if shape else 1, 1)

    def check(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
        assert outcome(ours) == outcome(lambda: spans_of(theirs(), dim, stride))

    check(lambda: layout_splits.split(shape, size, dim), lambda: tensor.split(size, dim))
    check(
        lambda: layout_splits.split_with_sizes(shape, several, dim),
        lambda: tensor.split(several, dim),
    )
    check(lambda: layout_splits.chunk(shape, size, dim), lambda: tensor.chunk(size, dim))
    for where in (size, tuple(several)):
        check(
            lambda w=where: layout_splits.tensor_split(shape, w, dim),
            lambda w=where: tensor.tensor_split(w, dim),
        )
    theirs = outcome(lambda: len(tensor.unbind(dim)))
    ours = outcome(lambda: layout_splits.unbind(shape, dim))
    assert ours == theirs if isinstance(theirs, tuple) else ours == (dim % len(shape), theirs)


# --- overlap ----------------------------------------------------------------------------------


def refusal(function: Callable[[], Any]) -> str:
    """The message with which a write is refused, "" where it is not."""
    result = outcome(function)
    return result[1] if isinstance(result, tuple) and isinstance(result[1], str) else ""


@examples
@given(layouts())
def test_internal_overlap(own: Layout) -> None:
    tensor = tensor_of(own, torch.uint8)
    theirs = refusal(lambda: tensor.add_(1))
    assert refusal(lambda: layout_overlap.assert_no_internal_overlap(own)) == theirs
    assert (layout_overlap.has_internal_overlap(own) is Overlap.YES) == bool(theirs)
    if layout_overlap.has_internal_overlap(own) is Overlap.NO:
        assert layout.is_non_overlapping_and_dense(own)


@st.composite
def twins(draw: st.DrawFn) -> tuple[Layout, Layout]:
    """Two dense layouts of one shape, near each other on one storage."""
    shape = draw(shapes(3))
    a = Layout(shape, layout.contiguous_strides(shape), draw(ints(0, 4)))
    strides = draw(st.one_of(st.just(a.strides), strides_for(shape)))
    return a, Layout(shape, strides, draw(st.sampled_from([a.offset, draw(ints(0, 40))])))


@examples
@given(twins())
def test_overlap_of_two(case: tuple[Layout, Layout]) -> None:
    written, read = case
    out, tensor = tensor_of(written), tensor_of(read)
    theirs = refusal(lambda: torch.add(tensor, 1, out=out))
    assert refusal(lambda: layout_overlap.assert_no_partial_overlap(written, read)) == theirs
    status = layout_overlap.overlap_status(written, read)
    assert (status is Overlap.PARTIAL) == bool(theirs)
    assert status is layout_overlap.overlap_status(read, written)


@examples
@given(st.data())
def test_no_overlap_at_all(data: st.DataObject) -> None:
    size = data.draw(ints(0, 4))
    written = layout.contiguous((size, size))._replace(offset=data.draw(ints(0, 20)))
    read = layout.contiguous((size, size))
    out, tensor = tensor_of(written), tensor_of(read)
    index = torch.zeros(size, size, dtype=torch.int64)
    theirs = refusal(lambda: torch.gather(tensor, 0, index, out=out))
    assert refusal(lambda: layout_overlap.assert_no_overlap(written, read)) == theirs


def test_overlap_counts_bytes() -> None:
    bytes_, floats = Layout((8,), (1,), 8), Layout((2,), (1,), 2)
    assert layout_overlap.overlap_status(bytes_, floats, 1, 4) is Overlap.FULL
    assert layout_overlap.overlap_status(bytes_, floats._replace(offset=4), 1, 4) is Overlap.NO
    assert layout_overlap.overlap_status(bytes_, floats._replace(offset=3), 1, 4) is Overlap.PARTIAL
