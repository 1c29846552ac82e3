"""The fast path of pointwise rows on large tensors: what is alike needs neither promotion nor a
look for strides.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.dispatch.operands import constant
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.eval.expr import Expr, Kernel, Leaf
from skimp._engine.memory import layout as layouts, storage as storages
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, wrap
from skimp._kernels import shaping
from skimp._kernels.threads import Call
from skimp.config import config

if TYPE_CHECKING:
    from skimp._engine.dispatch.pointwise import Pointwise

_NUMBERS = frozenset({int, float})
_ndarray = np.ndarray
_tuple = tuple.__new__  # of a NamedTuple, whose own way is a function of Python's


def alike(row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...]) -> Tensor | None:
    """The row deferred on large row-major tensors of one dtype and shape, or which broadcast to
    that of the first one, and on numbers beside floats; None where a call is not for it.
    """
    first = args[0]
    if type(first) not in ORDINARY or first._skimp_layout is None:
        return None
    dtype, (shape, strides, _) = first._dtype, first._skimp_layout
    size = layouts.numel(shape)
    if (
        dtype not in row.plain
        or (row.check is not None and dtype not in dtypes.FLOATING)
        or size < config.small_below
        or size < config.defer_from
        or strides != layouts.contiguous_strides(shape)
    ):
        return None
    nodes: list[Any] = []
    needed, total = False, 0
    for i, a in enumerate(args):
        if type(a) not in ORDINARY:
            if dtype in dtypes.FLOATING and type(a) in _NUMBERS and i in row.numbers:
                nodes.append(constant(a, dtype))
                continue
            return None
        layout, storage = a._skimp_layout, a._storage
        if a._dtype is not dtype or a._skimp_marked or a._hollow or storage.exported:
            return None
        needed |= a._rg
        if layout is None or layout.shape != shape:
            leaf = _spread(a, shape)
            if leaf is None:
                return None
            nodes.append(leaf)
            continue
        if layout.strides != strides:
            return None
        node = storage.deferred and storage.awaited()
        if node is None:
            flat = storage._flat
            if flat is None:
                flat = storage.flat()
            if layout.offset or flat.size != size * dtype.itemsize:
                node = Leaf(storage, a._skimp_array())
            else:
                node = Leaf(storage, _ndarray(shape, dtype.np, flat))
        elif node.shape == shape and node.dtype == dtype.np:
            total += node.size
        else:
            return None
        nodes.append(node)
    if total >= config.max_nodes or (params and any([isinstance(p, Tensor) for p in params])):
        return None
    kernel: Any = row.kernels[dtype]
    root = Expr(bound(kernel, *params) if params else kernel, tuple(nodes), shape, dtype.np)
    made = wrap(storages.defer(root), _tuple(Layout, (shape, strides, 0)), dtype)
    if needed and row.recording is not None and modes.state.grad:
        row.recording.record(made, *args, *params)
    return made


def _spread(t: Tensor, shape: tuple[int, ...]) -> Leaf | None:
    """A tensor in memory, of smaller dims, as a leaf of this shape; None for numbers, whose value
    is taken now, and where it does not broadcast.
    """
    if t._storage.deferred is not None:
        return None
    array = t._np
    if array is None:
        array = t._skimp_array()
    own = array.shape
    if not own or len(own) > len(shape):
        return None
    if any([n != 1 and n != m for n, m in zip(own[::-1], shape[::-1], strict=False)]):
        return None
    return Leaf(t._storage, shaping.broadcast(array, shape))


def bound(kernel: Kernel, *params: Any) -> Kernel:
    """The kernel with its plain values; the same one for the same values, because plans are cached
    by kernels.
    """
    signed = any([type(p) is float and not p for p in params])  # a zero, which has two
    return _bound(kernel, repr(params) if signed else "", *params)


@lru_cache(maxsize=1024, typed=True)
def _bound(kernel: Kernel, _: str, *params: Any) -> Kernel:
    fn = kernel.fn

    def run(*arrays: Any, out: Array) -> None:
        fn(*arrays, *params, out=out)

    listed = kernel.listed

    def calls(*arrays: Any, out: Array) -> list[Call]:
        assert listed is not None
        return listed(*arrays, *params, out=out)

    facts = kernel.aliases, kernel.strided, kernel.dense, kernel.brief
    numbers = (*params, *kernel.numbers)
    made = kernel.name, run, *facts, kernel.ufunc, numbers, calls if listed else None
    return Kernel(*made, gate=kernel.gate)
