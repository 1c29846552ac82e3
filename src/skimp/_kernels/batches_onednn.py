"""float32 products of the matrices of two batches, pair by pair, by oneDNN (`onednn`), where it is
installed: the heads of an attention, above all.

NumPy asks BLAS for one matrix after the other, on one thread. Here all are one call, on a team
that waits awake. A team shares the batch evenly, so each matrix is one thread's whole: of one that
is cut, edges are made by other code, which adds up in another order. Primitives are for one shape,
so small batches, which are soon done, stay with NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import onednn, shaping, teams
from skimp._kernels.onednn_runs import Runs
from skimp._kernels.products_onednn import EACH
from skimp._kernels.threads import alone

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Lies = tuple[Ints, Ints]  # a shape, and strides in bytes or elements
Make = Callable[..., None]  # of the addresses of the factors and the result, and how many threads

WORTH: Final = 1 << 22  # multiplications of a batch from which a primitive pays
_DEEP: Final = 1 << 10  # beyond 2048 oneDNN cuts sums where the number of threads says
_KINDS: Final = (b"gemm:jit", b"brg:")  # how the names of code begin that adds up so
_TYPE: Final = np.dtype(np.float32)


def multiply(a: Array, b: Array, out: Array, threads: int) -> bool:
    """out = a @ b for (*batch, m, k) and (*batch, k, n) of the same batch; whether oneDNN makes it,
    which types, shapes, strides and the library alone say. `out` shares no memory with the others.
    """
    if a.size * b.shape[-1] < WORTH or not (a.dtype == b.dtype == out.dtype == _TYPE):
        return False
    made = prepared((a.shape, a.strides), (b.shape, b.strides), (out.shape, out.strides))
    if made is None:
        return False
    made(*shaping.addresses(a, b, out), threads)
    return True


@lru_cache(1024)
def prepared(a: Lies, b: Lies, out: Lies) -> Make | None:
    """What makes `multiply` of float32 that lies so, by addresses; None where that does not. It is
    called as `products_onednn.Make` is, and adds nothing: `blas.by_address` asks it for no sums.
    """
    multiplications, (rows, columns) = math.prod(a[0]) * b[0][-1], out[0][-2:]
    if (
        multiplications < WORTH
        or onednn.library() is None
        or a[0][:-2] != b[0][:-2]
        or not 1 < a[0][-1] <= _DEEP
        or min(rows, columns) < 2
    ):
        return None
    if _runs(a, b, out, 1) is None:
        return None
    count, seconds = math.prod(a[0][:-2]), multiplications * EACH

    def make(at_a: int, at_b: int, at_out: int, threads: int, add: bool = False) -> None:
        team = math.gcd(teams.size(threads, seconds), count) if threads > 1 and alone() else 1
        runs = _runs(a, b, out, team) or _runs(a, b, out, 1)  # of which not all are kept
        assert runs is not None
        runs.make((at_a, at_b, at_out), team)

    return make


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
