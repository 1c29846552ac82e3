"""Tensors cut into views along a dimension: split, chunk, tensor_split, unbind."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from types import NoneType
from typing import Any, Final

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import OPS, general, hidden, view
from skimp._engine.dispatch.view_forms import large_views, small_array, small_views
from skimp._engine.memory import layout_splits as S, layout_views as V
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Array, Tensor, VersionCounter, alias, mark_version
from skimp._ops import batching
from skimp._ops.shape.views import as_int, ints, narrow


def _joined(grads: Any, dim: int) -> Tensor:
    return OPS["cat"].forms["cat"](grads, dim)  # type: ignore[no-any-return]


def _stacked(grads: Any, dim: int) -> Tensor:
    return OPS["stack"].forms["stack"](grads, dim)  # type: ignore[no-any-return]


def _lengths(node: Any) -> tuple[int, ...]:
    """How long the pieces are that a node has cut."""
    return tuple([shape[node._saved_dim] for shape, _ in node._skimp_metas()])


def _whole(node: Any) -> tuple[int, ...]:
    """The shape of what was cut."""
    shape = list(node._skimp_metas()[0][0])
    shape[node._saved_dim] = sum(_lengths(node))
    return tuple(shape)


_EQUAL: Final = {"self_sym_sizes": _whole, "split_size": lambda node: _lengths(node)[0]}
_GIVEN: Final = {"self_sym_sizes": _whole, "split_sizes": _lengths}
_PIECES, _SECTIONS, _UNSAFE, _UNSAFE_SECTIONS = (
    Rule(f"{name}Backward0", shows=shows, input=lambda grads, dim: _joined(grads, dim))
    for name, shows in (
        ("Split", _EQUAL), ("SplitWithSizes", _GIVEN),
        ("UnsafeSplit", _EQUAL), ("UnsafeSplitWithSizes", _GIVEN),
    )
)  # fmt: skip


def _layouts(layout: Layout, pieces: Any, dim: int) -> list[Layout]:
    return [V.slice_(layout, dim, start, start + length, 1) for start, length in pieces]


_layouts_of: Final = lru_cache(256)(_layouts)


def _cut(name: str, rule: Rule) -> Callable[..., tuple[Tensor, ...]]:
    made: Callable[..., tuple[Tensor, ...]] = view(
        name,
        function=False,
        method=False,
        multi=True,
        rule=rule,
        batch=batching.dims.by_dims("dim"),
    )(_layouts)
    return made


_pieces = _cut("_pieces", _PIECES)
_sections = _cut("_sections", _SECTIONS)


def _cut_apart(name: str, rule: Rule) -> Callable[..., tuple[Tensor, ...]]:
    """Pieces that are no views: on the same bytes, but with a history and a version of their own,
    so that each may be written to. The caller answers for what others then read.
    """

    def apart(input: Tensor, pieces: Any, dim: int) -> tuple[Tensor, ...]:
        found = tuple(
            [alias(input, one) for one in _layouts(input._skimp_layout_of(), pieces, dim)]
        )
        for one in found:
            mark_version(one, VersionCounter())
        return found

    return hidden(name, rule=rule, batch=batching.dims.by_dims("dim"))(apart)


_unsafe_pieces = _cut_apart("_unsafe_pieces", _UNSAFE)
_unsafe_sections = _cut_apart("_unsafe_sections", _UNSAFE_SECTIONS)


def _small_array(input: Tensor, dim: Any) -> Array | None:
    """The small array of a tensor, where `dim` is one of its dims."""
    x = small_array(input)
    if x is None or not x.size or type(dim) is not int:
        return None
    return x if -x.ndim <= dim < x.ndim else None


def _cut_by(
    by: Callable[..., Any], input: Tensor, n: Any, dim: Any, rule: Rule
) -> tuple[Tensor, ...] | None:
    """The pieces that `by` has of a tensor, which need not be small or in memory."""
    x = input._np
    if x is None:
        x = small_array(input)
    shape = shape_of(input) if x is None else x.shape
    if type(n) is not int or type(dim) is not int or input._hollow:
        return None
    if not -len(shape) <= dim < len(shape) or 0 in shape:
        return None
    pieces = _spans(by, shape, n, dim)
    if x is not None:
        return _small_pieces(input, x, pieces, dim, rule)
    if 0 in _places(pieces, dim, len(shape))[1]:
        return None
    layouts = _layouts_of(input._skimp_layout_of(), pieces, dim)
    return large_views(input, layouts, rule, {"input": input, "pieces": pieces, "dim": dim})


def _small_pieces(
    input: Tensor, x: Array, pieces: Any, dim: int, rule: Rule
) -> tuple[Tensor, ...] | None:
    places, lengths = _places(pieces, dim, x.ndim)
    if 0 in lengths:
        return None
    arrays = [x[place] for place in places]
    views = small_views(input, arrays, rule, {"input": input, "pieces": pieces, "dim": dim})
    if 1 in x.shape or 1 in lengths:  # NumPy leaves strides of size-1 dims as they come
        have = input._skimp_layout
        if have is None and x.strides == _row_major(x.shape, x.itemsize):
            return views  # but it cuts what lies so as layouts are cut
        layouts = _layouts_of(have or input._skimp_layout_of(), pieces, dim)
        for view_, layout in zip(views, layouts, strict=True):
            view_._skimp_layout = layout
    return views


@lru_cache(256)
def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple([n * itemsize for n in contiguous_strides(shape)])


@lru_cache(256)
def _places(pieces: Any, dim: int, ndim: int) -> tuple[list[Any], frozenset[int]]:
    """The index of each piece, and what lengths there are."""
    lead = (slice(None),) * (dim % ndim)
    found = [(*lead, slice(start, start + length)) for start, length in pieces]
    return found, frozenset([length for _, length in pieces])


@lru_cache(256)
def _spans(cut: Callable[..., Any], shape: tuple[int, ...], n: Any, dim: int) -> Any:
    return tuple(cut(shape, n, dim))


def _small_split(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...] | None:
    if type(split_size) is not int:
        return _small_sections(self, split_size, dim)
    return _cut_by(S.split, self, split_size, dim, _PIECES)


def _small_sections(self: Tensor, sizes: Any, dim: int = 0) -> tuple[Tensor, ...] | None:
    x = _small_array(self, dim)
    if x is None or type(sizes) not in _LISTS or not _INTS.issuperset(map(type, sizes)):
        return None
    spans = _spans(S.split_with_sizes, x.shape, tuple(sizes), dim)
    return _small_pieces(self, x, spans, dim, _SECTIONS)


def _small_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...] | None:
    return _cut_by(S.chunk, input, chunks, dim, _PIECES)


@general(method=False, fast=_small_split)
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of one size (the last may be shorter), or of the sizes given, along a dimension.

    >>> [len(piece) for piece in torch.arange(5).split(2)]
    [2, 2, 1]
    """
    return _split(tensor, split_size_or_sections, dim)


@general("split", namespaces=(), fast=_small_split, copy=True)
def _split(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of one size (the last may be shorter), or of the sizes given, along a dimension."""
    shape = tuple(self.shape)
    if isinstance(split_size, (tuple, list)):
        return _sections(self, S.split_with_sizes(shape, ints((split_size,)), dim), dim)
    return _pieces(self, S.split(shape, as_int(split_size), dim), dim)


@general()
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of one size (the last may be shorter) along a dimension, which are no views: writes to
    them are not refused, nor seen by others on the same bytes.
    """
    return _unsafe_pieces(input, S.split(tuple(input.shape), as_int(split_size), dim), dim)


@general()
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`unsafe_split` into pieces of the sizes given."""
    spans = S.split_with_sizes(tuple(input.shape), ints((split_sizes,)), dim)
    return _unsafe_sections(input, spans, dim)


@general(fast=_small_sections, copy=True)
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of the sizes given along a dimension."""
    return _sections(input, S.split_with_sizes(tuple(input.shape), ints((split_sizes,)), dim), dim)


@general(fast=_small_chunk)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of one size (the last may be shorter).

    >>> [len(piece) for piece in torch.arange(6).chunk(4)]  # not four
    [2, 2, 2]
    """
    return _pieces(input, S.chunk(tuple(input.shape), chunks, dim), dim)


@general()
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of one size (the last may be shorter), as `unsafe_split` gives."""
    return _unsafe_pieces(input, S.chunk(tuple(input.shape), chunks, dim), dim)


def _small_tensor_split(
    input: Tensor,
    tensor_indices_or_sections: Any = None,
    dim: int = 0,
    *,
    indices: Any = None,
    sections: Any = None,
) -> tuple[Tensor, ...] | None:
    how = tensor_indices_or_sections
    x = _small_array(input, dim)
    if x is None or indices is not None or sections is not None:
        return None
    if type(how) in (list, tuple) and _INTS.issuperset(map(type, how)):
        how = tuple(how)
    elif type(how) is not int:
        return None
    return _narrowed(input, dim, _spans(S.tensor_split, x.shape, how, dim))


_INTS: Final = frozenset({int})
_LISTS: Final = frozenset({list, tuple, Size})
_WAYS: Final = (int, np.integer, tuple, list, Tensor)


@general(fast=_small_tensor_split)
def tensor_split(
    input: Tensor,
    tensor_indices_or_sections: Any = None,
    dim: int = 0,
    *,
    indices: Any = None,
    sections: Any = None,
) -> tuple[Tensor, ...]:
    """Pieces as even as can be, or cut at the indices given."""
    how = _cuts("tensor_split", tensor_indices_or_sections, indices, sections)
    if isinstance(how, Tensor):
        how = _places_in(how)
    return _narrowed(input, dim, S.tensor_split(tuple(input.shape), how, dim))


def _narrowed(input: Tensor, dim: int, pieces: Any) -> tuple[Tensor, ...]:
    return tuple([narrow(input, dim, start, length) for start, length in pieces])


def _places_in(where: Tensor) -> int | list[int]:
    """The number of pieces, or the places to cut at, that a tensor holds."""
    says = "tensor_split expected tensor_indices_or_sections to "
    if where._dtype is not dtypes.int64:
        raise RuntimeError(f"{says}have dtype of long, but got {scalar_type_name(where._dtype)}")
    if where.ndim > 1:
        raise RuntimeError(
            f"{says}be a zero-dimensional or one-dimensional tensor, but got a tensor with "
            f"{where.ndim} dims"
        )
    found: int | list[int] = where.tolist()
    return found


def _cuts(name: str, *ways: Any) -> Any:
    """The one of the ways to say where to cut that was given."""
    given = [v for v in ways if v is not None]
    _, indices, sections = ways
    named_wrong = isinstance(indices, int) or not isinstance(sections, (int, NoneType))
    if len(given) != 1 or named_wrong or not isinstance(given[0], _WAYS):
        got = ", ".join([type(v).__name__ for v in given])
        raise TypeError(
            f"{name}() received an invalid combination of arguments - got (Tensor, {got})"
        )
    how = given[0]
    if isinstance(how, (tuple, list)):
        return [_place(v) for v in how]
    return how if isinstance(how, Tensor) else _place(how)


def _place(value: Any) -> Any:
    """A number of any kind as an int; a flag as it is, for whoever refuses it."""
    return value if isinstance(value, bool) else operator.index(value)


def _stacked_pieces(name: str, least: int, dim_of: Any, doc: str) -> None:
    def f(
        input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None
    ) -> tuple[Tensor, ...]:
        how = indices_or_sections
        if indices is not None or sections is not None or type(how) is not int:
            how = _cuts(name, how, indices, sections)
        if isinstance(how, Tensor):
            how = _cuts(name, how, how, None) if how.ndim else operator.index(how)
        n = input.ndim
        if n < least:
            raise RuntimeError(
                f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
                f"with {n} dimensions!"
            )
        dim = dim_of(n)
        if isinstance(how, int) and (how <= 0 or input.shape[dim] % how):
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {dim}, but the size of the "
                f"dimension {input.shape[dim]} is not divisible by the split_size {how}!"
            )
        return tensor_split(input, how, dim)

    f.__doc__ = doc
    general(name, one_by_one="indices_or_sections")(f)


_stacked_pieces("hsplit", 1, lambda n: 0 if n == 1 else 1, "Pieces along the columns.")
_stacked_pieces("vsplit", 2, lambda n: 0, "Pieces along the rows.")
_stacked_pieces("dsplit", 3, lambda n: 2, "Pieces along the third dimension.")


_UNBOUND = Rule("UnbindBackward0", input=lambda grads, dim: _stacked(grads, dim))


def _small_unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...] | None:
    x = _small_array(input, dim)
    if x is None:
        return None
    lead: tuple[Any, ...] = (slice(None),) * (dim % x.ndim)
    arrays = [x[(*lead, i, ...)] for i in range(x.shape[dim])]
    views = small_views(input, arrays, _UNBOUND, {"input": input, "dim": dim})
    if 1 in x.shape:
        layout = input._skimp_layout_of()
        for i, view_ in enumerate(views):
            view_._skimp_layout = V.select(layout, dim, i)
    return views


@view(
    multi=True,
    fast=_small_unbind,
    rule=_UNBOUND,
    copy=True,
    batch=batching.dims.at_least(1, batching.dims.by_dims("dim")),
)
def unbind(layout: Layout, dim: int = 0) -> list[Layout]:
    """The slices along a dimension, without it."""
    dim, n = S.unbind(layout.shape, dim)
    return [V.select(layout, dim, i) for i in range(n)]


SAYS = """\
Shape: the input's, shorter along the dim.
Raises: IndexError for a dim that is not there, RuntimeError for sizes that don't fit.
Memory: views, which share the input's bytes."""
