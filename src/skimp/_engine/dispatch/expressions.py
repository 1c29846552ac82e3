"""A pointwise row on tensors as an expression, for work that waits or goes in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from skimp._engine.dispatch.operands import OPMATH, constant, operand
from skimp._engine.eval.copy import copy
from skimp._engine.eval.expr import Expr, Kernel, Leaf, walk
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.storage import defer
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, wrap
from skimp._kernels import shaping
from skimp.config import config

if TYPE_CHECKING:
    from skimp._engine.dispatch.pointwise import Pointwise


def expression(
    row: Pointwise,
    kernel: Kernel,
    args: tuple[Any, ...],
    compute: dtypes.dtype,
    result: dtypes.dtype,
    layout: Layout,
) -> Expr:
    """The row on these arguments as an expression whose value, in memory order, has `layout`."""
    order = layouts.memory_order(layout)
    inner = tuple([layout.shape[d] for d in order])
    math = OPMATH.get(compute, compute) if row.opmath else compute
    nodes = [node_of(a, layout, order, inner) for a in args]
    size, lost = 0, False
    for a, n in zip(args, nodes, strict=True):
        if type(n) is Expr:
            size += n.size
            # a later one that was materialized for this may have taken the block that it reads
            lost = lost or n is not a._storage.deferred
    if lost:
        nodes = [node_of(a, layout, order, inner) for a in args]
        size = sum([n.size for n in nodes if type(n) is Expr])
    if size >= config.max_nodes and _too_many(nodes):
        for a in args:
            if isinstance(a, Tensor) and a._storage.deferred is not None:
                a._storage.materialize()
        nodes = [node_of(a, layout, order, inner) for a in args]
    for i, (a, n) in enumerate(zip(args, nodes, strict=True)):
        if n is None:
            own = i in row.masks
            nodes[i] = a._skimp_array().copy() if own else _constant_operand(a, compute, math)
        elif i not in row.masks and not a._dtype is compute is math:
            nodes[i] = converted(converted(n, a._dtype, compute, inner), compute, math, inner)
    wide = OPMATH.get(result, result) if row.opmath else result
    root = Expr(kernel, tuple(nodes), inner, wide.np)
    if wide is not result:
        root = converted(root, wide, result, inner)
    return root


def of_kernel(
    kernel: Kernel, given: Sequence[Tensor], layout: Layout, dtype: dtypes.dtype
) -> Tensor:
    """A dense tensor of a kernel's values alone, of tensors that are broadcast, which nobody waits
    for or knows."""
    order = layouts.memory_order(layout)
    inner = tuple([layout.shape[d] for d in order])
    nodes = tuple([node_of(t, layout, order, inner) for t in given])
    return wrap(defer(Expr(kernel, nodes, inner, dtype.np), waits=False), layout, dtype)


def _constant_operand(a: Any, compute: dtypes.dtype, math: dtypes.dtype) -> Array:
    """A number or a 0-d tensor as an array of its own, whose value later writes don't change."""
    return operand(a, compute, math).copy() if isinstance(a, Tensor) else constant(a, math)


def _too_many(nodes: list[Any]) -> bool:
    """`size` counts a shared node as often as it is used; before work is cut short, count once."""
    exprs = tuple([n for n in nodes if isinstance(n, Expr)])
    count = sum(1 for _ in walk(exprs))
    for e in exprs:
        e.size = min(e.size, count)
    return count >= config.max_nodes


def node_of(a: Any, layout: Layout, order: tuple[int, ...], inner: tuple[int, ...]) -> Any:
    """An argument as a node of an expression; None for a number or a 0-d tensor, whose value is
    taken now.
    """
    if not isinstance(a, Tensor):
        return None
    array = a._np
    if not (a._skimp_layout_of().shape if array is None else array.shape):
        return None
    expr = a._storage.deferred and a._storage.awaited()
    if (
        expr is not None
        and not (a._conj or a._skimp_neg)
        and a._skimp_layout_of() == layout
        and expr.shape == inner
        and expr.dtype == a._dtype.np  # else a view of the bytes as another type
    ):
        return expr
    del expr  # whoever holds it keeps its result from taking over what it reads
    if array is None:
        array = a._skimp_array()
    if array.shape != layout.shape:
        array = shaping.broadcast(array, layout.shape)
    return Leaf(a._storage, array.transpose(order))


def converted(node: Any, have: dtypes.dtype, want: dtypes.dtype, inner: tuple[int, ...]) -> Any:
    return node if have is want else Expr(cast_kernel(have, want), (node,), inner, want.np)


@lru_cache(maxsize=256)
def cast_kernel(have: dtypes.dtype, want: dtypes.dtype) -> Kernel:
    def to(source: Array, out: Array) -> None:
        copy(out, source)

    return Kernel(f"to_{want.name}", to, False)
