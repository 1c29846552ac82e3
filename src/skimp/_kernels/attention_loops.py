"""Attention of whole float32 matrices by `loops`: all of a call is one of C, which a team shares.

Loops have bits of their own, so what types and shapes they take is made by them always, or never.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import compiled, openblas, sharing
from skimp._kernels.blas import one_thread
from skimp._kernels.scratch import give, take
from skimp._kernels.threads import quietly
from skimp.config import config

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]
Ints = tuple[int, ...]

_TYPE: Final = np.dtype(np.float32)
_NOTHING: Final = np.zeros(1, np.float32)  # in the place of masks that are not there
_NONE: Final = np.zeros(1, np.uint8)
_LINE: Final = sharing.LINE // _TYPE.itemsize
_BLOCK: Final = 1 << 16  # scores that are made at once
_CAUSAL: Final = 64  # and rows of them where causal: of more, more lies above the diagonal
_AT_ONCE: Final = 1 << 24  # scores of a call of C, some 50 ms, in which no signal is handled
_TURNED: Final = 1 << 17  # elements of k or v up to which a transpose is worth its memory and time
_COPIED: Final = 1 << 19  # elements of operands that are copied for a call
_WORK: Final = 8  # a score is as much work as so many elements that `sharing` counts:
_SCORE: Final = 1.6e-9 / _WORK  # seconds of it,
_FEATURE: Final = 0.03e-9 / _WORK  # and for each feature


class _Plan(NamedTuple):
    """What follows from how operands lie."""

    ready: bool  # they are taken where they lie, in one call
    step: int  # parts of the first dim that are one call else; 0: calls are of one dim less
    matrices: int
    rows: int  # of all matrices
    each: int  # elements of the scores that are made at once, to the end of a line,
    turned: bool  # or of k's or v's transpose, which loops make where they come in several blocks
    elements: int  # and `cost` for each, as `sharing.call` takes them
    cost: float
    large: bool  # BLAS would share a product
    told: tuple[Any, ...]  # what loops are told of sizes and masks, where there are none of these


def takes(q: Array, k: Array, v: Array, a: Any) -> bool:
    """Whether loops make attention of these."""
    return (
        a.work.char == "f"
        and compiled.loops() is not None
        and openblas.place() is not None
        and a.scale != 0  # by which BLAS multiplies nothing, not even NaN
        and q.size > 0 < k.size
        and v.shape[-1] > 0
    )


def forward(q: Array, k: Array, v: Array, out: Array, lse: Array | None, a: Any) -> None:
    """Write the result, and each row's logsumexp if it is asked for."""
    lies = q.strides, k.strides, v.strides, out.strides
    plan = _plan(q.shape, k.shape, v.shape, a.causal, lies)
    if not plan.ready or q.dtype.char != "f":
        quietly(_by_parts, forward, plan, (q, k, v), (out,), lse, a)
        return
    level = np.empty(plan.rows, _TYPE) if lse is None else lse.reshape(-1)
    _call(compiled.loops().attended, plan, 1, (q, k, v), (out,), level, a)


def backward(
    g: Array, q: Array, k: Array, v: Array, dq: Array, dk: Array, dv: Array, lse: Array, a: Any
) -> None:
    """Write the gradients of q, k and v."""
    if 0 in g.strides and g.size <= _COPIED:  # a number for all, such as a sum's gradient
        g = np.array(g, order="C")
    lies = q.strides, k.strides, v.strides, g.strides, dq.strides, dk.strides, dv.strides
    plan = _plan(q.shape, k.shape, v.shape, a.causal, lies)
    if not plan.ready or q.dtype.char != "f":
        quietly(_by_parts, backward, plan, (g, q, k, v), (dq, dk, dv), lse, a)
        return
    back = compiled.loops().attended_back
    _call(back, plan, 2, (g, q, k, v), (dq, dk, dv), lse.reshape(-1), a)


def _call(
    loop: Callable[..., None], plan: _Plan, rooms: int, read: Arrays, into: Arrays, level: Array,
    a: Any,
) -> None:  # fmt: skip
    q = read[-3]
    if a.mask is None and a.kept is None:
        told = plan.told
    else:
        told = _told((*q.shape[:-1], read[-2].shape[-2]), plan.turned, a)
    if q.ndim == 3:
        read, into = [tuple([x[None] for x in arrays]) for arrays in (read, into)]
    where = openblas.place()
    assert where is not None  # so says `takes`
    elements, cost = plan.elements, plan.cost * rooms
    rooms += rooms * plan.turned
    if elements < sharing.FROM and not plan.large:
        room = np.empty((rooms, plan.each), _TYPE)
        loop(*where, *read, a.scale, *told, room, level, *into, 1)
        return
    team = min(config.threads, plan.matrices)
    flat = take(rooms * team * plan.each, _TYPE)
    given = *where, *read, a.scale, *told, flat.reshape(-1, plan.each), level, *into
    elements *= team > 1  # of a single matrix the others would have nothing
    if plan.large:
        with one_thread():
            sharing.call(loop, elements, cost, *given)
    else:
        sharing.call(loop, elements, cost, *given)
    give(flat)


@lru_cache(1024)
def _plan(q: Ints, k: Ints, v: Ints, causal: bool, strides: tuple[Ints, ...]) -> _Plan:
    """Of operands of these shapes, q, k, v, one like the result, and perhaps three as these are."""
    (*lead, rows, width), keys = q, k[-2]
    matrices, widest = math.prod(lead), max(width, v[-1])
    scores = matrices * rows * keys
    shapes = q, k, v, (rows, v[-1]), q, k, v
    lie = all([*map(_is_ready, shapes, strides)])
    copied = matrices * (rows + keys) * (width + v[-1])
    step = _AT_ONCE * q[0] // scores if lie else _COPIED * q[0] // copied
    if len(q) == 3:
        step = max(step, 1)
    ready = len(q) <= 4 and lie and step >= q[0]
    many = _at_once(rows, keys, causal)
    each = many * keys
    turned = rows > many and widest * keys <= _TURNED and not (causal and keys > rows)
    room = -(-(max(many, widest) if turned else many) * keys // _LINE) * _LINE
    cost = _SCORE + _FEATURE * widest
    large = each * widest > openblas.ALONE
    told = _sizes((*q[:-1], keys), causal, 0, False, (1, 1, 1), turned), _NONE, _NOTHING, _NONE, 1.0
    step = step if len(q) <= 4 else 0
    elements = scores * _WORK
    return _Plan(ready, step, matrices, matrices * rows, room, turned, elements, cost, large, told)


def _at_once(rows: int, keys: int, causal: bool) -> int:
    """Rows whose scores are made at once."""
    return min(rows, max(16, _BLOCK // keys), _CAUSAL if causal else rows)


def _is_ready(shape: Ints, strides: Ints) -> bool:
    """Whether BLAS takes the matrices where they lie: rows are runs of memory."""
    (*_, rows, width), (*_, down, right) = shape, strides
    item = _TYPE.itemsize
    return (right == item or width == 1) and (
        rows == 1 or (down >= width * item and down % item == 0)
    )


def _by_parts(
    call: Callable[..., None], plan: _Plan, read: Arrays, into: Arrays, lse: Array | None, a: Any
) -> None:
    """call(*read, *into, lse, a) of parts of the first dim, which are copied where that is not as
    loops take it."""
    n, step = len(read[0]), plan.step
    parts: Any = [slice(at, at + step) for at in range(0, n, step)] if step else range(n)
    for part in parts:
        mask, kept, level = [None if x is None else x[part] for x in (a.mask, a.kept, lse)]
        some = [x if _is_taken(x) else np.array(x, _TYPE, order="C") for x in _of(read, part)]
        places = _of(into, part)
        made = [x if _is_taken(x) else np.empty(x.shape, _TYPE) for x in places]
        call(*some, *made, level, a._replace(mask=mask, kept=kept))
        for place, found in zip(places, made, strict=True):
            if place is not found:
                place[...] = found


def _of(arrays: Arrays, part: Any) -> list[Array]:
    return [x[part] for x in arrays]


def _is_taken(x: Array) -> bool:
    return x.dtype.char == "f" and _is_ready(x.shape, x.strides)


def _told(shape: Ints, turned: bool, a: Any) -> tuple[Any, ...]:
    """What loops are told of scores of this shape: sizes and masks."""
    mask, kept, seen, added = a.mask, _NONE, _NONE, _NOTHING
    kind, of_mask = 0, (1, 1, 1)
    if mask is not None:
        some = tuple([slice(0, None if step else 1) for step in mask.strides[:-1]])
        mask = np.ascontiguousarray(mask[some])  # of what is repeated for rows or heads, one
        of_mask = mask.shape[:-1]
        if mask.dtype == bool:
            kind, seen = 1, mask.ravel().view(np.uint8)
        else:
            kind, added = 2, mask.ravel()
    if a.kept is not None:
        kept = a.kept.ravel().view(np.uint8)
    return (
        _sizes(shape, a.causal, kind, a.kept is not None, of_mask, turned),
        seen,
        added,
        kept,
        a.grow,
    )


@lru_cache(1024)
def _sizes(shape: Ints, causal: bool, kind: int, thin: bool, of_mask: Ints, turned: bool) -> Array:
    *lead, rows, keys = shape
    *_, images, heads, places = 1, 1, *of_mask
    steps = heads * places * (images > 1), places * (heads > 1), int(places > 1)
    step = _at_once(rows, keys, causal)
    return np.array((keys, rows, lead[-1], causal, kind, thin, *steps, step, turned), np.int64)
