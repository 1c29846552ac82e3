"""Attention of arrays: softmax(q k' * scale + mask) v, never with the whole matrix in memory.

Arrays are q (*lead, l, e), k (*lead, s, e), v (*lead, s, ev), of any strides: k and v may repeat
over heads. Rows are worked on in blocks; with a causal mask a block sees only the keys up to its
last row. Where rows and keys are few, the matrices of many heads are made at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import attention_loops, bare
from skimp._kernels.blas import multiply, one_thread
from skimp._kernels.powers import POWER, UNIT
from skimp._kernels.scratch import give, over_column, row_tops, take
from skimp._kernels.threads import quietly, share
from skimp.config import config

Array = np.ndarray[Any, Any]

_tuple: Final[Any] = tuple.__new__  # of a NamedTuple, whose own way is a function of Python's
_UNIT: Final = 1 << 17  # elements of the matrix made at once
_CAUSAL_ROWS: Final = 64  # rows of a causal block: of longer ones more lies above the diagonal
_SPREAD_FROM: Final = 1 << 19  # elements of the whole matrix from which threads share the work
_WHOLE: Final = 1 << 16  # elements of the whole matrices that are made at once
_WHOLE_CAUSAL: Final = 128  # rows and keys of such a matrix of which half is hidden
_FEW: Final = 512  # scores, and the sum of their squares
_TAME: Final = 24.0  # scores whose exponentials, and sums of them, are far from the ends of float32


class Attention(NamedTuple):
    """What stays the same for all blocks. `kept`: the elements that dropout leaves; `grow`: what
    they grow by."""

    scale: float
    causal: bool
    mask: Array | None  # bool (True: seen) or added, of shape (*lead, l, s)
    kept: Array | None
    grow: float
    work: np.dtype[Any]


def _tasks(shape: tuple[int, ...], keys: int, causal: bool) -> tuple[list[tuple[Any, ...]], int]:
    """Groups of heads (indices of lead dims), and how many rows of each are worked on at once."""
    *lead, rows, _ = shape
    most = _CAUSAL_ROWS if causal else rows
    step = min(most, rows, max(16, _UNIT // max(1, keys)))
    heads = max(1, _UNIT // max(1, step * keys))
    groups = [
        (*where, slice(first, first + heads))
        for where in np.ndindex(*lead[:-1])
        for first in range(0, lead[-1], heads)
    ]
    return groups, max(1, step)


class _Room:
    """One thread's scratch: by name, the same memory in the shape that is asked for."""

    def __init__(self, work: np.dtype[Any]) -> None:
        self._work = work
        self._flat: dict[str, Array] = {}

    def of(self, name: str, *shape: int) -> Array:
        length = math.prod(shape)
        flat = self._flat.get(name)
        if flat is None or len(flat) < length:
            if flat is not None:
                give(flat)
            flat = self._flat[name] = take(length, self._work)
        return flat[:length].reshape(shape)

    def close(self) -> None:
        """Give the memory back; the room is of no use any more."""
        for flat in self._flat.values():
            give(flat)

    def columns(self, name: str, rows: Array, ones: bool, unit: float = 1) -> Array:
        """`rows` (heads, n, e) transposed, perhaps with a row of ones below, all times `unit`."""
        heads, n, e = rows.shape
        made = self.of(name, heads, e + ones, n)
        np.multiply(np.swapaxes(rows, -1, -2), self._work.type(unit), out=made[:, :e])
        made[:, e:] = unit
        return made


def _run(
    groups: Sequence[Any],
    elements: int,
    work_type: np.dtype[Any],
    task: Callable[[Any, _Room], None],
) -> None:
    """task(group, room) for every group, in the threads that share them."""
    todo = iter(groups)  # shared by the threads: next() is atomic

    def work() -> None:
        room = _Room(work_type)
        for group in todo:
            task(group, room)
        room.close()

    _spread(work, len(groups), elements)


def _spread(work: Callable[[], None], groups: int, elements: int) -> None:
    """`work`, which goes through so many groups, on the threads that share them."""
    if groups > 1 and elements >= _SPREAD_FROM:
        with one_thread():  # with one of ours too: BLAS's bits may depend on the number of its own
            share(work, min(config.threads, groups))
    else:
        quietly(work)


def _blocks(rows: int, step: int, keys: int, causal: bool) -> Iterator[tuple[slice, int]]:
    """Row blocks, and how many keys each can see."""
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield slice(start, stop), min(keys, stop) if causal else keys


def _hide(s: Array, a: Attention, group: Any, rows: slice, hidden: float = -np.inf) -> None:
    """Mask a block of scores (heads, rows, seen), or of their powers: then `hidden` is 0."""
    seen = s.shape[-1]
    if a.mask is not None:
        mask = a.mask[group][..., rows, :seen]
        if mask.dtype == bool:
            bare.copyto(s, hidden, where=~mask)
        else:
            s += mask
    if a.causal and seen > rows.start + 1:
        after = _after(rows.stop - rows.start)[:, : seen - rows.start]
        bare.copyto(s[..., rows.start :], hidden, where=after)


@cache
def _after(n: int) -> Array:
    """The places right of the diagonal of n by n: n is at most _CAUSAL_ROWS."""
    return ~np.tri(n, dtype=bool)


def _is_tame(q: Array, k: Array, a: Attention) -> bool:
    """Whether the exponentials of all scores are fine as they are: |q k'| is at most |q| |k|."""
    if (a.mask is not None and a.mask.dtype != bool) or not (q.size and k.size):
        return False
    square = float(np.vecdot(q, q).max()) * float(np.vecdot(k, k).max())
    return square <= _TAME * _TAME  # not so where there is a nan


def _ready(x: Array, work: np.dtype[Any]) -> Array:
    """In the working type, with runs that BLAS takes."""
    return (
        x
        if x.dtype == work and x.strides[-1] == x.itemsize
        else np.ascontiguousarray(x, dtype=work)
    )


def forward(q: Array, k: Array, v: Array, out: Array, lse: Array | None, a: Attention) -> None:
    """Write the result, and each row's logsumexp (*lead, l, 1) where it is asked for."""
    keys, rows = k.shape[-2], q.shape[-2]
    if attention_loops.takes(q, k, v, a):
        attention_loops.forward(q, k, v, out, lse, a)
        return
    pieces = _pieces(q.shape, keys, a.causal)
    if pieces:
        _run_pieces(pieces, _whole_forward, (q, k, v, out, lse), a)
        return
    groups, step = _tasks(q.shape, keys, a.causal)
    ones = np.ones(keys, a.work)

    def task(group: Any, room: _Room) -> None:
        ks = _ready(k[group], a.work)
        qs = np.multiply(q[group], a.work.type(a.scale), out=room.of("q", *q[group].shape))
        tame = _is_tame(qs, ks, a)
        kt = room.columns("k", ks, False, UNIT if tame else 1)
        (heads, _, _), ev = ks.shape, v.shape[-1]
        # the sum of each row of weights is one more column of the product: of ones in v
        vs = room.of("v", heads, keys, ev + 1)
        vs[..., :ev] = v[group]
        vs[..., ev] = 1
        found = room.of("found", heads, rows, ev + 1)
        top = None if tame else room.of("top", heads, rows, 1)
        for block, seen in reversed([*_blocks(rows, step, keys, a.causal)]):  # the longest first
            s = room.of("s", heads, block.stop - block.start, seen)
            np.matmul(qs[:, block], kt[..., :seen], out=s)
            if top is None:
                POWER(s, out=s)
                _hide(s, a, group, block, 0)  # what is hidden does not make it slow, as -inf would
            else:
                _hide(s, a, group, block)
                most = np.maximum.reduce(s, axis=-1, keepdims=True, initial=-np.inf)
                top[:, block] = bare.where(np.isneginf(most), 0, most)  # sees nothing: not nan
                np.subtract(s, top[:, block], out=s)
                bare.exp(s, out=s)
            if a.kept is None:
                np.matmul(s, vs[:, :seen], out=found[:, block])
                continue
            total = np.matmul(s, ones[:seen])  # of what is there before dropout
            s *= a.kept[group][..., block, :seen]
            s *= a.work.type(a.grow)
            np.matmul(s, vs[:, :seen], out=found[:, block])
            found[:, block, ev] = total
        total = found[..., ev:]
        if lse is not None:
            level = np.log(total)
            lse[group] = level if top is None else np.add(level, top, out=level)
        bare.copyto(total, 1, where=total == 0)
        np.divide(found[..., :ev], total, out=out[group], casting="same_kind")

    _run(groups, math.prod(q.shape[:-1]) * keys, a.work, task)


def backward(g: Array, kept: tuple[Array, ...], into: tuple[Array, ...], a: Attention) -> None:
    """Write the three gradients; the probabilities are made again, block by block.

    `kept`: q, k, v, the result and the logsumexp; `into`: where the gradients of q, k, v go.
    What is subtracted from a row of a product is one more column of its first factor, against ones.
    """
    q, k, v, out, lse = kept
    dq, dk, dv = into
    keys, rows = k.shape[-2], q.shape[-2]
    if attention_loops.takes(q, k, v, a):
        attention_loops.backward(g, q, k, v, dq, dk, dv, lse, a)
        return
    pieces = _pieces(q.shape, keys, a.causal)
    if pieces:
        _run_pieces(pieces, _whole_backward, (g, *kept, *into), a)
        return
    groups, step = _tasks(q.shape, keys, a.causal)
    scale = a.work.type(a.scale)
    early = a.kept is None and out.dtype == a.work  # the result says what is subtracted from dp
    added = a.mask is not None and a.mask.dtype != bool  # such a mask may hold -inf

    def task(group: Any, room: _Room) -> None:
        ks, vs = _ready(k[group], a.work), _ready(v[group], a.work)
        kt, vt = room.columns("k", ks, True), room.columns("v", vs, True)
        (heads, _, e), ev = ks.shape, vs.shape[-1]
        qs, gs = room.of("q", heads, rows, e + 1), room.of("g", heads, rows, ev + 1)
        level = lse[group][..., 0]
        # far from 0 the scores are as forward's to the bit, since their errors then cancel
        tame = not added and bool(np.abs(level).max(initial=0) <= 2 * _TAME)
        unit = a.work.type(UNIT if tame else 1)
        np.multiply(q[group], a.work.type(a.scale * unit), out=qs[..., :e])
        qs[..., e] = bare.where(np.isneginf(level), -np.inf, level * -unit)
        gs[..., :ev] = g[group]
        gs[..., ev] = -np.vecdot(gs[..., :ev], out[group]) if early else 0
        sum_k, sum_v = room.of("dk", heads, keys, e), room.of("dv", heads, keys, ev)
        found = room.of("dq", heads, rows, e)
        written = 0  # sums of so many keys have been begun: the last block sees most keys
        for block, seen in reversed([*_blocks(rows, step, keys, a.causal)]):
            shape = (heads, block.stop - block.start, seen)
            p, dp = room.of("p", *shape), room.of("dp", *shape)
            np.matmul(qs[:, block], kt[..., :seen], out=p)
            if tame:
                POWER(p, out=p)
                _hide(p, a, group, block, 0)
            else:
                _hide(p, a, group, block)
                bare.exp(p, out=p)
            np.matmul(gs[:, block], vt[..., :seen], out=dp)
            some_k, some_v = sum_k[:, :seen], sum_v[:, :seen]
            if written:
                some_k = room.of("k part", heads, seen, e)
                some_v = room.of("v part", heads, seen, ev)
            if a.kept is None:
                np.matmul(np.swapaxes(p, -1, -2), gs[:, block, :ev], out=some_v)
            else:
                left = a.kept[group][..., block, :seen] * a.work.type(a.grow)
                np.matmul(np.swapaxes(p * left, -1, -2), gs[:, block, :ev], out=some_v)
                dp *= left
            if not early:  # of what was not rounded to half precision
                dp -= np.vecdot(dp, p)[..., None]
            dp *= p
            np.matmul(dp, ks[..., :seen, :], out=found[:, block])
            np.matmul(np.swapaxes(dp, -1, -2), qs[:, block, :e], out=some_k)
            if written:
                sum_k[:, :seen] += some_k
                sum_v[:, :seen] += some_v
            written = max(written, seen)
        np.multiply(found, scale, out=dq[group], casting="same_kind")
        sum_k[:, written:] = 0  # nobody sees these keys
        sum_v[:, written:] = 0
        np.divide(sum_k, unit, out=dk[group], casting="same_kind")
        dv[group] = sum_v

    _run(groups, math.prod(q.shape[:-1]) * keys, a.work, task)


# -- short rows: whole matrices at once -----------------------------------------------------------


@lru_cache(maxsize=1024)
def _pieces(shape: tuple[int, ...], keys: int, causal: bool) -> tuple[slice, ...]:
    """Parts of the first dim whose whole matrices are made at once; none where a part of one is too
    large. The choice is by shapes alone.
    """
    each = math.prod(shape[1:-1]) * keys
    if not 0 < each <= _WHOLE or (causal and max(shape[-2], keys) > _WHOLE_CAUSAL):
        return ()
    step = _WHOLE // each
    return tuple([slice(first, first + step) for first in range(0, shape[0], step)])


def _run_pieces(
    pieces: tuple[slice, ...], task: Callable[..., None], arrays: tuple[Any, ...], a: Attention
) -> None:
    """task(*arrays, a) for every piece of them."""
    if len(pieces) == 1:
        quietly(task, *arrays, a)
        return

    todo, given = iter(pieces), (a.mask, a.kept, *arrays)

    def work() -> None:
        for piece in todo:
            mask, kept, *parts = [None if x is None else x[piece] for x in given]
            task(*parts, _tuple(Attention, (a.scale, a.causal, mask, kept, a.grow, a.work)))

    q, k = arrays[:2]
    _spread(work, len(pieces), math.prod(q.shape[:-1]) * k.shape[-2])


@cache
def _unseen(rows: int, keys: int) -> Array:
    """The places right of the diagonal: both are at most _WHOLE_CAUSAL."""
    return ~np.tri(rows, keys, dtype=bool)


def _hide_whole(s: Array, a: Attention, hidden: float) -> None:
    """Mask the scores of all heads, or their powers: then `hidden` is 0."""
    if a.mask is not None:
        if a.mask.dtype == bool:
            bare.copyto(s, hidden, where=~a.mask)
        else:
            s += a.mask
    if a.causal:
        bare.copyto(s, hidden, where=_unseen(*s.shape[-2:]))


def _whole_forward(
    q: Array, k: Array, v: Array, out: Array, lse: Array | None, a: Attention
) -> None:
    work = a.work
    added = a.mask is not None and a.mask.dtype != bool
    k, v = k.astype(work, copy=False), v.astype(work, copy=False)
    scale = bare.number(a.scale, work)
    s = multiply(np.multiply(q.astype(work, copy=False), scale), k.swapaxes(-1, -2))
    top = None
    if not added and _are_tame(s):
        bare.exp(s, out=s)
        if a.causal or a.mask is not None:
            _hide_whole(s, a, 0)
    else:
        _hide_whole(s, a, -np.inf)
        lowest = np.finfo(work).min  # of a row that sees nothing: it is all -inf, and not nan
        top = np.maximum(row_tops(s.reshape(-1, s.shape[-1])), lowest).reshape(*s.shape[:-1], 1)
        s -= top
        bare.exp(s, out=s)
    total = np.matmul(s, _ones(s.shape[-1], work))  # a sum by BLAS: NumPy's of short rows is slow
    if lse is not None:
        np.log(total, out=lse)
        if top is not None:
            lse += top
    if a.mask is not None or top is not None:
        bare.copyto(total, 1, where=total == 0)
    if a.kept is not None:
        s *= a.kept
        s *= work.type(a.grow)
    over_column(multiply(s, v), total, out)


def _are_tame(s: Array) -> bool:
    """Whether the exponentials of these scores are fine; not so where there is a nan."""
    if s.size <= _FEW:
        flat = s.reshape(-1)
        if bare.dot(flat, flat) <= _FEW:  # no score is far off if their squares aren't
            return True
    return bool(np.maximum.reduce(s, None) <= _TAME and np.minimum.reduce(s, None) >= -_TAME)


@cache
def _ones(keys: int, work: np.dtype[Any]) -> Array:
    """A column of so many ones."""
    return np.ones((keys, 1), work)


def _whole_backward(
    g: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    dq: Array,
    dk: Array,
    dv: Array,
    a: Attention,
) -> None:
    work = a.work
    scale = work.type(a.scale)
    k, v = k.astype(work, copy=False), v.astype(work, copy=False)
    g = g.astype(work, copy=False)
    q = np.multiply(q, scale, dtype=work)
    p = multiply(q, k.swapaxes(-1, -2))
    if a.mask is not None or a.causal:
        _hide_whole(p, a, -np.inf)
        # of a row that sees nothing: exponentials of -inf, not of nan
        lse = bare.where(np.equal(lse, -np.inf), np.inf, lse)
    p -= lse
    bare.exp(p, out=p)
    dp = multiply(g, v.swapaxes(-1, -2))
    seen = p
    if a.kept is not None:
        left = a.kept * work.type(a.grow)
        seen = p * left
        dp *= left
    dv[...] = multiply(seen.swapaxes(-1, -2), g)
    if a.kept is None and out.dtype == work:  # the result says what is subtracted
        dp -= np.vecdot(g, out)[..., None]
    else:
        dp -= np.vecdot(dp, p)[..., None]
    dp *= p
    np.multiply(multiply(dp, k), scale, out=dq, casting="same_kind")
    dk[...] = multiply(dp.swapaxes(-1, -2), q)
