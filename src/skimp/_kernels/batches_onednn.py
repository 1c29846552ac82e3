"""float32 products of the matrices of two batches, pair by pair, by oneDNN (`onednn`), where it is
installed: the heads of an attention, above all.

NumPy asks BLAS for one matrix after the other, on one thread. Here all are one call, on a team
that waits awake. A team shares the batch evenly, so each matrix is one thread's whole: of one that
is cut, edges are made by other code, which adds up in another order. Primitives are for one shape,
so small batches, which are soon done, stay with NumPy.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, shaping, teams
from skimp._kernels.onednn_runs import Runs
from skimp._kernels.products_onednn import LONG
from skimp._kernels.threads import alone

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Lies = tuple[Ints, Ints]  # a shape, and strides in bytes or elements

WORTH: Final = 1 << 22  # multiplications of a batch from which a primitive pays
_DEEP: Final = 1 << 10  # beyond 2048 oneDNN cuts sums where the number of threads says
_KINDS: Final = (b"gemm:jit", b"brg:")  # how the names of code begin that adds up so
_TYPE: Final = np.dtype(np.float32)


def multiply(a: Array, b: Array, out: Array, threads: int) -> bool:
    """out = a @ b for (*batch, m, k) and (*batch, k, n) of the same batch; whether oneDNN makes it,
    which types, shapes, strides and the library alone say. `out` shares no memory with the others.
    """
    if (
        a.size * b.shape[-1] < WORTH
        or onednn.library() is None
        or a.shape[:-2] != b.shape[:-2]
        or not 1 < a.shape[-1] <= _DEEP
        or min(out.shape[-2:]) < 2
        or not (a.dtype == b.dtype == out.dtype == _TYPE)
    ):
        return False
    lies = (a.shape, a.strides), (b.shape, b.strides), (out.shape, out.strides)
    runs = _runs(*lies, 1)
    if runs is None:
        return False
    long = a.size * b.shape[-1] >= LONG
    team = math.gcd(teams.size(threads, long), math.prod(a.shape[:-2])) if alone() else 1
    if team > 1:
        runs = _runs(*lies, team) or runs
    runs.make(shaping.addresses(a, b, out), team)
    return True


def _in_elements(lies: Lies) -> Lies | None:
    """How matrices of a batch lie, with strides in elements, if rows or columns are runs of memory
    and none repeats.
    """
    shape, strides = lies
    if any([s % _TYPE.itemsize or s <= 0 for s in strides]):
        return None
    strides = tuple([s // _TYPE.itemsize for s in strides])
    (rows, columns), (down, right) = shape[-2:], strides[-2:]
    if not ((right == 1 and down >= columns) or (down == 1 and right >= rows)):
        return None
    return shape, strides


@lru_cache(256)
def _runs(a: Lies, b: Lies, out: Lies, team: int) -> Runs | None:
    found = [lies for each in (a, b, out) if (lies := _in_elements(each)) is not None]
    if len(found) < 3:
        return None
    one, other, into = [onednn.layout(*lies) for lies in found]
    try:
        with onednn.team(team):
            primitive = onednn.products(one, other, into, [])
    except onednn.Unsupported:
        return None
    if not primitive.name.startswith(_KINDS):
        return None
    return Runs(primitive, {onednn.FROM: one, onednn.WEIGHTS: other, onednn.TO: into})
