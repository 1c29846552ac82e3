"""Attention of arrays: softmax(q k' * scale + mask) v, never with the whole matrix in memory.

Arrays are q (*lead, l, e), k (*lead, s, e), v (*lead, s, ev), of any strides: k and v may repeat
over heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from skimp.backend.blas import one_thread
from skimp.config import config
from skimp.threads import share

Array = np.ndarray[Any, Any]

_UNIT: Final = 1 << 17  # elements of the matrix made at once
_SPREAD_FROM: Final = 1 << 16  # elements of the whole matrix from which threads share the work


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


def _tasks(shape: tuple[int, ...], keys: int) -> tuple[list[tuple[Any, ...]], int]:
    """Groups of heads (indices of lead dims), and how many rows of each are worked on at once."""
    *lead, rows, _ = shape
    step = min(rows, max(16, _UNIT // max(1, keys)))
    heads = max(1, _UNIT // max(1, step * keys))
    groups = [
        (*where, slice(first, first + heads))
        for where in np.ndindex(*lead[:-1])
        for first in range(0, lead[-1], heads)
    ]
    return groups, max(1, step)


def _run(groups: list[Any], elements: int, fn: Any) -> None:
    todo = iter(groups)  # shared by the threads: next() is atomic

    def work() -> None:
        for group in todo:
            fn(group)

    if len(groups) > 1 and config.threads > 1 and elements >= _SPREAD_FROM:
        with one_thread():
            share(work, config.threads)
    else:
        share(work, 1)


def _blocks(rows: int, step: int, keys: int, causal: bool) -> Iterator[tuple[slice, int]]:
    """Row blocks, and how many keys each can see."""
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield slice(start, stop), min(keys, stop) if causal else keys


def _scores(q: Array, kt: Array, a: Attention, group: Any, rows: slice, seen: int) -> Array:
    """The block's scores (heads, rows, seen), scaled and masked. `q` is scaled already."""
    s: Array = np.matmul(q, kt[..., :seen])
    if a.mask is not None:
        mask = a.mask[group][..., rows, :seen]
        if mask.dtype == bool:
            np.copyto(s, -np.inf, where=~mask)
        else:
            s += mask
    if a.causal and seen > rows.start + 1:
        hidden = np.arange(rows.start, seen) > np.arange(rows.start, rows.stop)[:, None]
        np.copyto(s[..., rows.start :], -np.inf, where=hidden)
    return s


def _ready(x: Array, work: np.dtype[Any]) -> Array:
    """In the working type, with runs that BLAS takes."""
    return (
        x
        if x.dtype == work and x.strides[-1] == x.itemsize
        else np.ascontiguousarray(x, dtype=work)
    )


def forward(q: Array, k: Array, v: Array, out: Array, lse: Array, a: Attention) -> None:
    """Write the result, and each row's logsumexp (*lead, l, 1)."""
    keys, rows = k.shape[-2], q.shape[-2]
    groups, step = _tasks(q.shape, keys)

    def task(group: Any) -> None:
        kt, vs = np.swapaxes(_ready(k[group], a.work), -1, -2), _ready(v[group], a.work)
        for block, seen in _blocks(rows, step, keys, a.causal):
            s = _scores(q[group][..., block, :] * a.work.type(a.scale), kt, a, group, block, seen)
            top = np.maximum.reduce(s, axis=-1, keepdims=True, initial=-np.inf)
            top = np.where(np.isneginf(top), 0, top)  # rows that see nothing: zeros, not nan
            np.subtract(s, top, out=s)
            np.exp(s, out=s)
            total = np.add.reduce(s, axis=-1, keepdims=True)
            lse[group][..., block, :] = top + np.log(total)
            if a.kept is not None:
                s *= a.kept[group][..., block, :seen]
                s *= a.work.type(a.grow)
            found = np.matmul(s, vs[..., :seen, :])
            found /= np.where(total == 0, 1, total)
            out[group][..., block, :] = found

    _run(groups, math.prod(q.shape[:-1]) * keys, task)


def backward(g: Array, kept: tuple[Array, ...], into: tuple[Array, ...], a: Attention) -> None:
    """Write the three gradients; the probabilities are made again, block by block.

    `kept`: q, k, v, the result and the logsumexp; `into`: where the gradients of q, k, v go.
    """
    q, k, v, out, lse = kept
    dq, dk, dv = into
    keys, rows = k.shape[-2], q.shape[-2]
    groups, step = _tasks(q.shape, keys)

    def task(group: Any) -> None:
        ks, vs = _ready(k[group], a.work), _ready(v[group], a.work)
        kt, vt = np.swapaxes(ks, -1, -2), np.swapaxes(vs, -1, -2)
        sum_k, sum_v = np.zeros(ks.shape, a.work), np.zeros(vs.shape, a.work)
        for block, seen in _blocks(rows, step, keys, a.causal):
            qs = _ready(q[group][..., block, :], a.work) * a.work.type(a.scale)
            gs = _ready(g[group][..., block, :], a.work)
            p = _scores(qs, kt, a, group, block, seen)
            level = lse[group][..., block, :]
            np.subtract(p, np.where(np.isneginf(level), np.inf, level), out=p)
            np.exp(p, out=p)
            dp = np.matmul(gs, vt[..., :seen])
            if a.kept is None:
                sum_v[..., :seen, :] += np.matmul(np.swapaxes(p, -1, -2), gs)
            else:
                kept = a.kept[group][..., block, :seen] * a.work.type(a.grow)
                sum_v[..., :seen, :] += np.matmul(np.swapaxes(p * kept, -1, -2), gs)
                dp *= kept
            if out.dtype == a.work:
                along = np.add.reduce(gs * out[group][..., block, :], axis=-1, keepdims=True)
            else:  # the same sum, of what was not rounded to half precision
                along = np.add.reduce(dp * p, axis=-1, keepdims=True)
            np.subtract(dp, along, out=dp)
            np.multiply(dp, p, out=dp)
            dq[group][..., block, :] = np.matmul(dp, ks[..., :seen, :]) * a.work.type(a.scale)
            sum_k[..., :seen, :] += np.matmul(np.swapaxes(dp, -1, -2), qs)
        dk[group], dv[group] = sum_k, sum_v

    _run(groups, math.prod(q.shape[:-1]) * keys, task)
