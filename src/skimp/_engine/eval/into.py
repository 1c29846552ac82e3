"""Expressions written to any memory: where the target is not one run, row by row."""

from __future__ import annotations

import numpy as np

from skimp._engine.eval.copy import copy
from skimp._engine.eval.expr import COPY, Array, Expr, Leaf
from skimp._engine.eval.reduce import map_rows
from skimp._engine.eval.run import evaluate, observed
from skimp._kernels import bare

_SMALL = 1 << 14  # elements that may as well be computed beside and copied


def write(root: Expr, out: Array) -> None:
    """Write root's values to `out`, of root's shape and dtype and any strides.

    `out` may be the very elements of leaves; other overlaps cost a copy.
    """
    if root.kernel is COPY and type(source := root.args[0]) is Leaf:
        array = source.array
        if not bare.may_share_memory(array, out):
            observed(copy, out, array)  # which needs no plan
            return
    if out.flags.c_contiguous:
        evaluate(root, out)
        return
    if out.size < _SMALL or any([crosses(leaf.array, out) for leaf in root.leaves]):
        value = np.empty(root.shape, root.dtype)
        evaluate(root, value)
        copy(out, value)
        return
    map_rows(root, _place, (out,), out.ndim - _even_dims(out))


def _place(block: Array, part: Array) -> None:
    part[...] = block


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
