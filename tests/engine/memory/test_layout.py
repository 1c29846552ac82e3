"""Layout arithmetic against torch: the same shape, strides and offset, or the same error."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given, settings, strategies as st

from skimp._engine.memory import layout, layout_views
from skimp._engine.memory.layout import Ints, Layout
from skimp._engine.tensor import dtypes

STORAGE = torch.zeros(200_000, dtype=torch.uint8).untyped_storage()
examples = settings(max_examples=80, deadline=None)


def tensor_of(own: Layout, of: torch.dtype = torch.float32) -> torch.Tensor:
    """A torch tensor of this layout; all of them share one storage."""
    return torch.empty(0, dtype=of).set_(STORAGE, own.offset, own.shape, own.strides)


def layout_of(tensor: torch.Tensor) -> Layout:
    return Layout(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())


def outcome(function: Callable[[], Any]) -> Any:
    """The value, or the error's type and first line."""
    try:
        return function()
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return type(error), str(error).split("\n")[0]


def same(ours: Callable[[], Any], theirs: Callable[[], torch.Tensor]) -> None:
    assert outcome(ours) == outcome(lambda: layout_of(theirs()))


# --- generated layouts ------------------------------------------------------------------------

ints = st.integers
sizes = st.sampled_from([0, 1, 1, 2, 2, 3, 4, 5])
dims = ints(-5, 5)


@st.composite
def shapes(draw: st.DrawFn, max_dims: int = 4) -> Ints:
    return tuple(draw(st.lists(sizes, max_size=max_dims)))


@st.composite
def strides_for(draw: st.DrawFn, shape: Ints) -> Ints:
    """Dense in some order of dimensions, then perhaps broken: gaps, zeros, any number."""
    order = draw(st.permutations(range(len(shape))))
    strides = [0] * len(shape)
    step = draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    for dim in range(len(shape)):
        change = draw(st.sampled_from(["", "", "", "", "", "", "zero", "gap", "any", "one"]))
        if change == "zero":
            strides[dim] = 0
        elif change == "gap":
            strides[dim] *= 2
        elif change == "any" or (change == "one" and shape[dim] == 1):
            strides[dim] = draw(ints(0, 30))
    return tuple(strides)


@st.composite
def layouts(draw: st.DrawFn, shape: Ints | None = None, max_dims: int = 4) -> Layout:
    shape = draw(shapes(max_dims)) if shape is None else shape
    return Layout(shape, draw(strides_for(shape)), draw(st.sampled_from([0, 0, 1, 2, 6])))


def with_dim(own: Layout) -> st.SearchStrategy[int]:
    """A dimension, in range more often than not."""
    ndim = len(own.shape) or 1
    return st.one_of(ints(-ndim, ndim - 1), ints(-ndim, ndim - 1), dims)


# --- one layout -------------------------------------------------------------------------------


@examples
@given(layouts(max_dims=5))
@example(Layout((0, 3, 2, 2), (12, 1, 6, 3), 0))
@example(Layout((2, 0, 2, 2), (0, 1, 0, 0), 0))
def test_predicates(own: Layout) -> None:
    tensor = tensor_of(own)
    assert layout.numel(own.shape) == tensor.numel()
    assert layout.is_contiguous(own) == tensor.is_contiguous()
    assert layout.is_non_overlapping_and_dense(own) == torch.ops.aten.is_non_overlapping_and_dense(
        tensor
    )
    for ndim, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        expected = tensor.dim() == ndim and tensor.is_contiguous(memory_format=form)
        assert layout.is_channels_last(own, ndim) == expected


@examples
@given(layouts(max_dims=5))
def test_fresh_strides(own: Layout) -> None:
    tensor = tensor_of(own)
    fresh = torch.empty(own.shape)
    assert layout.contiguous_strides(own.shape) == fresh.stride()
    assert layout.contiguous(own.shape) == layout_of(fresh)
    assert layout.empty_like_strides(own) == torch.empty_like(tensor).stride()
    assert layout.dense_strides_like([own], own.shape) == torch.exp(tensor).stride()
    for ndim, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if len(own.shape) == ndim:
            expected = torch.empty(own.shape, memory_format=form).stride()
            assert layout.channels_last_strides(own.shape) == expected


@pytest.mark.parametrize("shape", [(), (2,), (2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4, 5)])
def test_rank_for_channels_last(shape: Ints) -> None:
    for ndim, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        theirs = outcome(lambda form=form: torch.zeros(shape).contiguous(memory_format=form))
        ours = outcome(lambda n=ndim: layout.check_rank_for_channels_last(shape, n))
        assert (ours is None) == isinstance(theirs, torch.Tensor)
        assert ours is None or ours == theirs


@given(layouts(max_dims=5))
def test_memory_order_is_what_exp_writes(own: Layout) -> None:
    order = layout.memory_order(own)
    assert sorted(order) == list(range(len(own.shape)))
    assume(all(size > 1 for size in own.shape))
    strides = torch.exp(tensor_of(own)).stride()
    assert [strides[dim] for dim in order] == sorted(strides, reverse=True)


@examples
@given(st.data())
def test_strides_of_a_pointwise_result(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    count = data.draw(ints(2, 3))
    inputs = []
    for _ in range(count):
        own = shape[data.draw(ints(0, len(shape))) :] if data.draw(st.booleans()) else shape
        own = tuple([1 if data.draw(ints(0, 5)) == 0 else size for size in own])
        inputs.append(data.draw(layouts(own)))
    tensors = [tensor_of(each) for each in inputs]
    result = torch.add(*tensors) if count == 2 else torch.addcmul(*tensors)
    target = layout.broadcast_shapes(*[each.shape for each in inputs])
    assert target == tuple(result.shape)
    assert layout.dense_strides_like(inputs, target) == result.stride()


@examples
@given(layouts())
@example(Layout((0, 1), (1, 1), 0))
def test_strides_of_a_result_with_a_number(own: Layout) -> None:
    result = torch.add(tensor_of(own), 1)
    assert layout.dense_strides_like([own, Layout((), (), 0)], own.shape) == result.stride()


def test_strides_of_an_empty_result() -> None:
    tensors = torch.zeros(0, 1), torch.zeros(1, 1)
    inputs = [layout_of(tensor) for tensor in tensors]
    assert layout.dense_strides_like(inputs, (0, 1)) == torch.add(*tensors).stride()


@examples
@given(layouts())
def test_extent(own: Layout) -> None:
    tensor = tensor_of(own)
    places = [
        own.offset + sum(i * step for i, step in zip(index, own.strides, strict=True))
        for index in itertools.product(*map(range, own.shape))
    ]
    assert layout.storage_span(own) == ((min(places), max(places) + 1) if places else None)
    assert layout.nbytes_needed(own, 4) == 4 * (max(places) + 1 if places else 0)
    assert tensor.numel() == len(places)


def test_extent_of_negative_strides() -> None:
    assert layout.storage_span(Layout((3, 2), (-2, 1), 4)) == (0, 6)


# --- dimensions and shapes --------------------------------------------------------------------


@pytest.mark.parametrize("ndim", range(4))
def test_normalize_dim(ndim: int) -> None:
    tensor = torch.zeros((2,) * ndim)
    for dim in range(-6, 6):
        theirs = outcome(lambda d=dim: layout_of(tensor.sum(d)))
        ours = outcome(lambda d=dim: layout.normalize_dim(d, ndim))
        assert ours == (dim % max(ndim, 1) if isinstance(theirs, Layout) else theirs)


@given(shapes(), st.lists(dims, min_size=1, max_size=3))
def test_normalize_dims(shape: Ints, given_dims: list[int]) -> None:
    theirs = outcome(lambda: layout_of(torch.zeros(shape).sum(given_dims)))
    ours = outcome(lambda: layout.normalize_dims(given_dims, len(shape)))
    if isinstance(theirs, Layout):
        assert ours == tuple([dim % max(len(shape), 1) for dim in given_dims])
    else:
        assert ours == theirs


@given(st.lists(ints(-2, 3), max_size=3).map(tuple))
def test_negative_sizes(shape: Ints) -> None:
    theirs = outcome(lambda: layout_of(torch.empty(shape)))
    ours = outcome(lambda: layout.check_shape(shape))
    assert ours == (None if isinstance(theirs, Layout) else theirs)


@examples
@given(st.lists(shapes(3), min_size=2, max_size=3))
def test_broadcast(some: list[Ints]) -> None:
    tensors = [torch.zeros(shape) for shape in some]
    operation = torch.add if len(some) == 2 else torch.addcmul
    theirs = outcome(lambda: tuple(operation(*tensors).shape))
    assert outcome(lambda: layout.broadcast_shapes(*some)) == theirs


@examples
@given(st.lists(st.lists(ints(-1, 3), max_size=3).map(tuple), max_size=3))
def test_broadcast_shapes_function(some: list[Ints]) -> None:
    theirs = outcome(lambda: tuple(torch.broadcast_shapes(*some)))
    assert outcome(lambda: layout.broadcast_shapes_function(*some)) == theirs


@examples
@given(layouts(), st.lists(ints(-2, 5), max_size=5))
def test_expand_to_anything(own: Layout, target: list[int]) -> None:
    same(lambda: layout_views.expand(own, target), lambda: tensor_of(own).expand(target))


@examples
@given(st.data())
def test_expand(data: st.DataObject) -> None:
    own = data.draw(layouts())
    lead = data.draw(st.lists(sizes, max_size=2))
    tail = [
        data.draw(st.sampled_from([size, -1, size, 3 if size == 1 else size])) for size in own.shape
    ]
    target = (*lead, *tail)
    same(lambda: layout_views.expand(own, target), lambda: tensor_of(own).expand(target))
    expanded = layout_of(tensor_of(own).expand(target))
    strides = layout.broadcast_strides(own.shape, own.strides, expanded.shape)
    for step, expected in zip(strides, expanded.strides, strict=True):
        assert step in (0, expected)


@pytest.mark.parametrize("of", dtypes.ALL, ids=str)
def test_expand_names_the_type(of: dtypes.dtype) -> None:
    tensor = torch.zeros(2, 3, dtype=getattr(torch, of.name))
    same(lambda: layout_views.expand(layout_of(tensor), (4,), of), lambda: tensor.expand(4))


# --- views ------------------------------------------------------------------------------------


@examples
@given(layouts(), dims, dims)
def test_transpose(own: Layout, dim0: int, dim1: int) -> None:
    same(
        lambda: layout_views.transpose(own, dim0, dim1),
        lambda: tensor_of(own).transpose(dim0, dim1),
    )


@examples
@given(st.data())
def test_permute(data: st.DataObject) -> None:
    own = data.draw(layouts())
    ndim = len(own.shape)
    order = st.permutations([d - data.draw(st.sampled_from([0, ndim])) for d in range(ndim)])
    order = data.draw(st.one_of(order, st.lists(dims, max_size=4)))
    same(
        lambda: layout_views.permute(own, order), lambda: torch.permute(tensor_of(own), list(order))
    )


@examples
@given(st.data())
def test_movedim(data: st.DataObject) -> None:
    own = data.draw(layouts())
    ndim = max(len(own.shape), 1)
    some = st.lists(ints(-ndim, ndim - 1), max_size=3)
    source = data.draw(st.one_of(some, st.lists(dims, max_size=3)))
    destination = data.draw(
        st.lists(ints(-ndim, ndim - 1), min_size=len(source), max_size=len(source))
    )
    if data.draw(ints(0, 9)) == 0:
        destination = data.draw(st.lists(dims, max_size=3))
    same(
        lambda: layout_views.movedim(own, source, destination),
        lambda: tensor_of(own).movedim(tuple(source), tuple(destination)),
    )


@examples
@given(layouts())
@pytest.mark.filterwarnings("ignore:The use of `x.T` on tensors of dimension")
@pytest.mark.filterwarnings("ignore:.*deprecated on 0-D tensors")
def test_matrix_transposes(own: Layout) -> None:
    tensor = tensor_of(own)
    same(lambda: layout_views.t(own), tensor.t)
    same(lambda: layout_views.reverse_dims(own), lambda: tensor.T)
    same(lambda: layout_views.matrix_transpose(own), lambda: tensor.mT)
    same(lambda: layout_views.matrix_transpose(own, "mH"), lambda: tensor.mH)
    same(lambda: layout_views.matrix_transpose(own, "adjoint()"), tensor.adjoint)
    same(lambda: layout_views.hermitian(own), lambda: tensor.H)


@examples
@given(layouts(), dims, st.lists(dims, max_size=2))
def test_squeeze(own: Layout, dim: int, several: list[int]) -> None:
    tensor = tensor_of(own)
    same(lambda: layout_views.squeeze(own), tensor.squeeze)
    same(lambda: layout_views.squeeze(own, dim), lambda: tensor.squeeze(dim))
    same(lambda: layout_views.squeeze(own, several), lambda: tensor.squeeze(tuple(several)))
    same(lambda: layout_views.unsqueeze(own, dim), lambda: tensor.unsqueeze(dim))


@examples
@given(st.data(), ints(-7, 7), ints(-7, 7))
def test_parts(data: st.DataObject, a: int, b: int) -> None:
    own = data.draw(layouts())
    dim = data.draw(with_dim(own))
    tensor = tensor_of(own)
    same(lambda: layout_views.select(own, dim, a), lambda: tensor.select(dim, a))
    same(lambda: layout_views.narrow(own, dim, a, b), lambda: tensor.narrow(dim, a, b))


@examples
@given(st.data(), st.none() | ints(-9, 9), st.none() | ints(-9, 9), ints(-1, 4))
def test_slice(data: st.DataObject, start: int | None, stop: int | None, step: int) -> None:
    own = data.draw(layouts())
    dim = data.draw(with_dim(own))
    same(
        lambda: layout_views.slice_(own, dim, start, stop, step),
        lambda: torch.ops.aten.slice(tensor_of(own), dim, start, stop, step),
    )


@examples
@given(st.data(), ints(-1, 6), ints(0, 4))
def test_unfold(data: st.DataObject, size: int, step: int) -> None:
    own = data.draw(layouts())
    dim = data.draw(with_dim(own))
    same(
        lambda: layout_views.unfold(own, dim, size, step),
        lambda: tensor_of(own).unfold(dim, size, step),
    )


@examples
@given(st.data(), ints(-6, 6))
def test_diagonal(data: st.DataObject, offset: int) -> None:
    own = data.draw(layouts())
    dim1, dim2 = data.draw(with_dim(own)), data.draw(with_dim(own))
    same(
        lambda: layout_views.diagonal(own, offset, dim1, dim2),
        lambda: tensor_of(own).diagonal(offset, dim1, dim2),
    )
