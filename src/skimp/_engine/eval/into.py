"""Expressions written to any memory: where the target is not one run, row by row."""

from __future__ import annotations

import math

import numpy as np

from skimp._engine.eval.convert import convert
from skimp._engine.eval.copy import copy
from skimp._engine.eval.expr import COPY, Array, Expr, Leaf, Whole
from skimp._engine.eval.make import ITEM
from skimp._engine.eval.program import steps_of
from skimp._engine.eval.rows import map_rows
from skimp._engine.eval.run import evaluate, observed, operand, threads_for
from skimp._kernels import bare, copies
from skimp._kernels.scratch import give, take
from skimp._kernels.threads import quietly
from skimp.config import config

_SMALL = 1 << 14  # elements that may as well be computed beside and copied
_MIDDLE = 1 << 18  # elements up to which one kernel's plan costs more than it saves


def write(root: Expr, out: Array) -> None:
    """Write root's values to `out`, of root's shape and dtype and any strides.

    `out` may be the very elements of leaves; other overlaps cost a copy.
    """
    if type(root) is Whole:
        observed(root.compute, out)
        return
    if root.kernel is COPY and type(source := root.args[0]) is Leaf:
        array = source.array
        if not bare.may_share_memory(array, out):
            observed(copy, out, array)  # which needs no plan
            return
    if out.flags.c_contiguous:
        evaluate(root, out)
        return
    crossed = any([crosses(leaf.array, out) for leaf in root.leaves])
    if not crossed and out.size <= _MIDDLE and _is_single(root):
        observed(quietly, _write_single, root, out)
        return
    if out.size < _SMALL or crossed:
        value = np.empty(root.shape, root.dtype)
        evaluate(root, value)
        copy(out, value)
        return
    map_rows(root, _place, (out,), out.ndim - _even_dims(out))


def _is_single(root: Expr) -> bool:
    """Whether one call of NumPy on what lies in memory gives all values, on one thread."""
    kernel = root.kernel
    return (
        root.size == 1
        and kernel.ufunc is not None
        and kernel.strided
        and config.small_below > 0
        and threads_for(math.prod(root.shape), steps_of(kernel)) == 1
    )


def _write_single(root: Expr, out: Array) -> None:
    """Where rows are long NumPy's loop goes over them as they lie; short ones are made beside, and
    put where they belong."""
    kernel = root.kernel
    args = [operand(arg, kernel, out.shape) for arg in root.args]
    if out.dtype == root.dtype and not _in_short_rows(out):
        kernel.fn(*args, out=out)
        return
    taken = [take(out.size, root.dtype)]
    value = taken[0].reshape(out.shape)
    for number, a in enumerate(args):
        if isinstance(a, np.ndarray) and a.shape == out.shape and _in_short_rows(a):
            taken.append(take(a.size, a.dtype))
            args[number] = taken[-1].reshape(a.shape)
            copies.put(a, args[number])
    kernel.fn(*args, out=value)
    convert(value, out)
    for each in taken:
        give(each)


def _in_short_rows(a: Array) -> bool:
    return a.strides[-1] == a.itemsize and _run_of(a) * a.itemsize <= ITEM


def _run_of(a: Array) -> int:
    """How many elements lie one after the other."""
    count = 1
    for size, stride in zip(reversed(a.shape), reversed(a.strides), strict=True):
        if size > 1 and stride != count * a.itemsize:
            break
        count *= size
    return count


def _place(block: Array, part: Array) -> None:
    copies.put(block, part)


def crosses(leaf: Array, out: Array) -> bool:
    """Whether they share memory other than element for element."""
    if not bare.may_share_memory(leaf, out):
        return False
    same = leaf.shape == out.shape and leaf.strides == out.strides and leaf.itemsize == out.itemsize
    return not (same and leaf.__array_interface__["data"] == out.__array_interface__["data"])


def _even_dims(out: Array) -> int:
    """How many leading dims can be seen as one."""
    count = 1
    while count < out.ndim and out.strides[count - 1] == out.strides[count] * out.shape[count]:
        count += 1
    return count
