"""The history of views after a write to what they look at: a view's grad_fn is made anew, from its
base's.

A base and its views share bytes and version. A view remembers the version that its node belongs to
(`_stale`); when another is found, the node is replaced by an AsStridedBackward0 of the base's
present one.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from skimp._engine.autograd import errors, node_lines as lines
from skimp._engine.autograd.nodes import Grads, Node, accumulate_of, init, shape_of
from skimp._engine.autograd.ops import ops
from skimp._engine.memory.layout import Layout, contiguous_strides
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, empty, fresh
from skimp.config import config

_new = object.__new__
_tuple = tuple.__new__  # a NamedTuple's own is Python's


class ViewMeta(NamedTuple):
    """Which elements of its base a view shows, and how."""

    layout: Layout
    dtype: dtypes.dtype
    conj: bool = False
    neg: bool = False

    def of(self, base: Tensor, like: ViewMeta) -> Tensor:
        """This view of `base`, a tensor that stands for one that `like` describes."""
        if like.dtype.is_complex and not self.dtype.is_complex:
            base = ops.view_as_real(base)
            like = ViewMeta(real_layout(like), self.dtype)
        layout = self.layout
        if self.dtype.is_complex and not like.dtype.is_complex:
            layout = real_layout(self)
        if not covers(like.layout, layout):
            raise errors.uncovered(like.layout, layout)
        offset = base.storage_offset() if base._hollow else base._skimp_layout_of().offset
        start = offset + max(0, layout.offset - like.layout.offset)
        seen = ops.as_strided(base, layout.shape, layout.strides, start)
        if self.dtype.is_complex and not like.dtype.is_complex:
            return ops.view_as_complex(seen)
        return seen


def real_layout(w: ViewMeta) -> Layout:
    """A complex tensor's layout, in real elements with a last dimension of 2."""
    shape, strides, offset = w.layout
    return Layout((*shape, 2), (*[2 * s for s in strides], 1), 2 * offset)


def view_meta(t: Tensor) -> ViewMeta:
    layout = t._skimp_layout or t._skimp_layout_of()
    return _tuple(ViewMeta, (layout, t._dtype, t._conj, t._skimp_neg))


def node_of_view(t: Tensor) -> Node | None:
    """The present grad_fn of a view."""
    version = t._skimp_version
    base = t._base
    assert base is not None
    if t._skimp_stale == version or (t._skimp_node is None and not base._rg):
        return t._skimp_node
    if t._skimp_creation is not None:
        raise errors.view_refused(t._skimp_creation, t._skimp_node, t._skimp_index, True)
    if not base._rg and (t._dtype, t._conj, t._skimp_neg) != (
        base._dtype,
        base._conj,
        base._skimp_neg,
    ):
        t._skimp_node, t._skimp_index, t._rg, t._skimp_stale = None, 0, False, version
        return None  # PyTorch calls the view anew, and finds nothing to differentiate
    before, index = t._skimp_node, t._skimp_index
    source = base._skimp_node
    if source is not None:
        to: tuple[Node | None, int] = (source, base._skimp_index)
    else:  # a leaf that requires no grad any more gets none
        to = (accumulate_of(base) if base._rg else None, 0)
    t._skimp_node = strided(to, view_meta(base), view_meta(t), t)
    t._skimp_index = 0
    t._rg = True
    t._skimp_inherits = False
    t._skimp_stale = version
    if t._skimp_retains and before is not None:
        move_retain(t, before, index)
    return t._skimp_node


def edge(t: Tensor) -> tuple[Node | None, int]:
    """Where the gradient of `t` goes."""
    if not t._rg:
        return None, 0
    node = t._skimp_node if t._base is None else node_of_view(t)
    if node is not None:
        return node, t._skimp_index
    return (None, 0) if t._skimp_inherits else (accumulate_of(t), 0)


def move_retain(t: Tensor, before: Node, index: int) -> None:
    """The wish to keep `t`'s gradient goes over to its new node."""
    extra = before._skimp_extra
    assert t._skimp_node is not None
    if extra is not None and extra.retains.pop(index, None) is not None:
        t._skimp_node._skimp_more().retains[t._skimp_index] = weakref.ref(t)


class AsStridedBackward0(Node):
    """The node of a view whose base was written to: scatters into zeros of the base."""

    __slots__ = ("base", "view")
    _skimp_label = "AsStridedBackward0"
    base: ViewMeta
    view: ViewMeta

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Sequence[Tensor | None]:
        g = grads[0]
        if g is None or self._skimp_edges[0] is None:
            return (None,)
        return (scatter(g, self.base, self.view),)


def strided(
    edge: tuple[Node | None, int],
    base: ViewMeta,
    view: ViewMeta,
    t: Tensor,
    made_by: Node | None = None,
) -> Node:
    """The node of `t`, which shows `view` of the `base` whose gradient goes to `edge`; of the line
    of `made_by`, a node that was made with it.
    """
    node = _new(AsStridedBackward0)
    init(node, edge, shape_of(t), t._dtype)
    node.base = base
    node.view = view
    if made_by is None:
        node._skimp_code, node._skimp_lasti = lines.here()
    else:
        node._skimp_code, node._skimp_lasti = made_by._skimp_code, made_by._skimp_lasti
    return node


def empty_like_base(base: ViewMeta, g: Tensor) -> Tensor:
    """Uninitialised, with the base's shape, strides and dtype; under vmap if the gradient is."""
    shape, strides, first = base.layout
    reach = 0 if 0 in shape else _last(base.layout) - first + 1
    if g._hollow:
        wide: Tensor = ops.new_empty(g, (reach,), dtype=base.dtype)
        return ops.as_strided(wide, shape, strides, 0)
    count = math.prod(shape)
    if reach <= count:
        if count < config.small_below and strides == contiguous_strides(shape):
            return fresh(np.empty(shape, base.dtype.np), base.dtype)
        return empty(shape, base.dtype, strides)
    return ops.as_strided(empty((reach,), base.dtype), shape, strides, 0)


def scatter(g: Tensor, base: ViewMeta, view: ViewMeta) -> Tensor:
    """The gradient of the base, from that of a view of it."""
    if view.conj:
        g = ops.conj(g)
    if view.neg:
        g = -g
    if 0 in view.layout.shape:
        return ops.zero_(empty_like_base(base, g))
    if not covers(base.layout, view.layout) and view.dtype is base.dtype:
        raise errors.uncovered(base.layout, view.layout)
    if not (may_overlap(view.layout) or may_overlap(base.layout)):
        zeros: Tensor = ops.zero_(empty_like_base(base, g))
        ops.copy_(view.of(zeros, base), g)
        return zeros
    return ops.strided_gradient(g, base.layout, view.layout)


@lru_cache(1024)
def covers(base: Layout, view: Layout) -> bool:
    """Whether a base still shows all elements of a view of it: it may have taken another layout."""
    if 0 in view.shape:
        return True
    if 0 in base.shape:
        return False
    first, last = base.offset, _last(base)
    if view.offset < first or _last(view) > last:
        return False
    if last - first < math.prod(base.shape) and not may_overlap(base):
        return True
    shown = np.zeros(last - first + 1, np.bool_)
    as_strided(shown, base.shape, base.strides)[...] = True
    seen = as_strided(shown[view.offset - first :], view.shape, view.strides)
    return bool(np.all(seen))


def _last(layout: Layout) -> int:
    """The place of the last element."""
    return layout.offset + sum(
        [s * (n - 1) for s, n in zip(layout.strides, layout.shape, strict=True)]
    )


@lru_cache(1024)
def may_overlap(layout: Layout) -> bool:
    """Whether two indices may reach one place (False is certain)."""
    reach = 0
    for step, size in sorted(zip(layout.strides, layout.shape, strict=True)):
        if size > 1:
            if step <= reach:
                return True
            reach += step * (size - 1)
    return False
