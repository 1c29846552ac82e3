"""Attention of arrays: softmax(q k' * scale + mask) v, never with the whole matrix in memory.

Arrays are q (*lead, l, e), k (*lead, s, e), v (*lead, s, ev), of any strides: k and v may repeat
over heads. Rows are worked on in blocks; with a causal mask a block sees only the keys up to its
last row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from skimp.backend.blas import one_thread
from skimp.backend.scratch import give, take
from skimp.config import config
from skimp.threads import share

Array = np.ndarray[Any, Any]

_UNIT: Final = 1 << 17  # elements of the matrix made at once
_CAUSAL_ROWS: Final = 64  # rows of a causal block: of longer ones more lies above the diagonal
_SPREAD_FROM: Final = 1 << 16  # elements of the whole matrix from which threads share the work
_TAME: Final = 24.0  # scores whose exponentials, and sums of them, are far from the ends of float32


@dataclass(frozen=True)
class Attention:
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


def _run(
    groups: list[Any], elements: int, dtype: Any, worker: Callable[[_Room], Callable[[Any], None]]
) -> None:
    """worker(room) makes a function that does one group: one for each thread that shares them."""
    todo = iter(groups)  # shared by the threads: next() is atomic

    def work() -> None:
        room = _Room(dtype)
        fn = worker(room)
        for group in todo:
            fn(group)
        room.give_back()

    if len(groups) > 1 and config.threads > 1 and elements >= _SPREAD_FROM:
        with one_thread():
            share(work, config.threads)
    else:
        share(work, 1)


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

    def give_back(self) -> None:
        for flat in self._flat.values():
            give(flat)

    def columns(self, name: str, rows: Array, last: Any) -> Array:
        """`rows` (heads, n, e) transposed, with a row of `last` below unless it is None."""
        heads, n, e = rows.shape
        made = self.of(name, heads, e if last is None else e + 1, n)
        made[:, :e] = np.swapaxes(rows, -1, -2)
        if last is not None:
            made[:, e] = last
        return made


def _blocks(rows: int, step: int, keys: int, causal: bool) -> Iterator[tuple[slice, int]]:
    """Row blocks, and how many keys each can see."""
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield slice(start, stop), min(keys, stop) if causal else keys


def _hide(s: Array, a: Attention, group: Any, rows: slice) -> None:
    """Mask a block of scores (heads, rows, seen)."""
    seen = s.shape[-1]
    if a.mask is not None:
        mask = a.mask[group][..., rows, :seen]
        if mask.dtype == bool:
            np.copyto(s, -np.inf, where=~mask)
        else:
            s += mask
    if a.causal and seen > rows.start + 1:
        hidden = np.arange(rows.start, seen) > np.arange(rows.start, rows.stop)[:, None]
        np.copyto(s[..., rows.start :], -np.inf, where=hidden)


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


def _sums(s: Array, ones: Array) -> Array:
    """The sum of each row, by BLAS."""
    found: Array = np.matmul(s, ones[: s.shape[-1]])
    return found[..., None]


def forward(q: Array, k: Array, v: Array, out: Array, lse: Array, a: Attention) -> None:
    """Write the result, and each row's logsumexp (*lead, l, 1)."""
    keys, rows = k.shape[-2], q.shape[-2]
    groups, step = _tasks(q.shape, keys, a.causal)
    ones = np.ones(keys, a.work)

    def worker(room: _Room) -> Callable[[Any], None]:
        def task(group: Any) -> None:
            ks, vs = _ready(k[group], a.work), _ready(v[group], a.work)
            qs = np.multiply(q[group], a.work.type(a.scale), out=room.of("q", *q[group].shape))
            kt = room.columns("k", ks, None)
            tame = _is_tame(qs, ks, a)
            for block, seen in _blocks(rows, step, keys, a.causal):
                here = qs[:, block]
                s = room.of("s", *here.shape[:2], seen)
                np.matmul(here, kt[..., :seen], out=s)
                _hide(s, a, group, block)
                top: Any = 0
                if not tame:
                    top = np.maximum.reduce(s, axis=-1, keepdims=True, initial=-np.inf)
                    top = np.where(np.isneginf(top), 0, top)  # rows that see nothing: not nan
                    np.subtract(s, top, out=s)
                np.exp(s, out=s)
                total = _sums(s, ones)
                lse[group][..., block, :] = top + np.log(total)
                if a.kept is not None:
                    s *= a.kept[group][..., block, :seen]
                    s *= a.work.type(a.grow)
                found = room.of("found", *here.shape[:2], vs.shape[-1])
                np.matmul(s, vs[..., :seen, :], out=found)
                found /= np.where(total == 0, 1, total)
                out[group][..., block, :] = found

        return task

    _run(groups, math.prod(q.shape[:-1]) * keys, a.work, worker)


def backward(g: Array, kept: tuple[Array, ...], into: tuple[Array, ...], a: Attention) -> None:
    """Write the three gradients; the probabilities are made again, block by block.

    `kept`: q, k, v, the result and the logsumexp; `into`: where the gradients of q, k, v go.
    What is subtracted from a row of a product is one more column of its first factor, against ones.
    """
    q, k, v, out, lse = kept
    dq, dk, dv = into
    keys, rows = k.shape[-2], q.shape[-2]
    groups, step = _tasks(q.shape, keys, a.causal)
    scale = a.work.type(a.scale)
    early = a.kept is None and out.dtype == a.work  # the result says what is subtracted from dp

    def worker(room: _Room) -> Callable[[Any], None]:
        def task(group: Any) -> None:
            ks, vs = _ready(k[group], a.work), _ready(v[group], a.work)
            kt, vt = room.columns("k", ks, 1), room.columns("v", vs, 1)
            (heads, _, e), ev = ks.shape, vs.shape[-1]
            qs, gs = room.of("q", heads, rows, e + 1), room.of("g", heads, rows, ev + 1)
            level = lse[group][..., 0]
            np.multiply(q[group], scale, out=qs[..., :e])
            qs[..., e] = -np.where(np.isneginf(level), np.inf, level)
            gs[..., :ev] = g[group]
            gs[..., ev] = -np.vecdot(gs[..., :ev], out[group]) if early else 0
            sum_k, sum_v = room.of("dk", heads, keys, e), room.of("dv", heads, keys, ev)
            sum_k[...] = 0
            sum_v[...] = 0
            for block, seen in _blocks(rows, step, keys, a.causal):
                shape = (heads, block.stop - block.start, seen)
                p, dp = room.of("p", *shape), room.of("dp", *shape)
                np.matmul(qs[:, block], kt[..., :seen], out=p)
                _hide(p, a, group, block)
                np.exp(p, out=p)
                np.matmul(gs[:, block], vt[..., :seen], out=dp)
                some_k, some_v = (
                    room.of("k part", heads, seen, e),
                    room.of("v part", heads, seen, ev),
                )
                if a.kept is None:
                    np.matmul(np.swapaxes(p, -1, -2), gs[:, block, :ev], out=some_v)
                else:
                    left = a.kept[group][..., block, :seen] * a.work.type(a.grow)
                    np.matmul(np.swapaxes(p * left, -1, -2), gs[:, block, :ev], out=some_v)
                    dp *= left
                sum_v[:, :seen] += some_v
                if not early:  # of what was not rounded to half precision
                    dp -= np.vecdot(dp, p)[..., None]
                dp *= p
                found = room.of("dq", *shape[:2], e)
                np.matmul(dp, ks[..., :seen, :], out=found)
                np.multiply(found, scale, out=dq[group][..., block, :], casting="same_kind")
                np.matmul(np.swapaxes(dp, -1, -2), qs[:, block, :e], out=some_k)
                sum_k[:, :seen] += some_k
            dk[group], dv[group] = sum_k, sum_v

        return task

    _run(groups, math.prod(q.shape[:-1]) * keys, a.work, worker)
