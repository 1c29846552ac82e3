"""Attention of whole float32 matrices by `loops`: products by BLAS, and one pass between them.

A pass has bits of its own, so what types and shapes it takes is made by it always, or never.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, compiled
from skimp._kernels.blas import multiply
from skimp._kernels.products import has_unit_stride

Array = np.ndarray[Any, Any]
_TYPE: Final = np.dtype(np.float32)
_NOTHING: Final = np.zeros(1, np.float32)  # in the place of masks that are not there
_NONE: Final = np.zeros(1, np.uint8)


def forward(q: Array, k: Array, v: Array, out: Array, lse: Array | None, a: Any) -> None:
    """Write the result, and each row's logsumexp if it is asked for."""
    s = _scores(q, k, a)
    level = np.empty(s.shape[:-1], _TYPE) if lse is None else lse
    compiled.loops().attended(s.ravel(), *_told(s.shape, a), level.ravel())
    _put_product(s, v.astype(_TYPE, copy=False), out)


def backward(
    g: Array, q: Array, k: Array, v: Array, _out: Array, lse: Array, dq: Array, dk: Array,
    dv: Array, a: Any,
) -> None:  # fmt: skip
    """Write the gradients of q, k and v."""
    g, v = g.astype(_TYPE, copy=False), v.astype(_TYPE, copy=False)
    p, dp = _scores(q, k, a), multiply(g, v.swapaxes(-1, -2))
    told = _told(p.shape, a)
    compiled.loops().attended_back(p.ravel(), *told, lse.ravel(), a.scale, dp.ravel())
    _put_product(p.swapaxes(-1, -2), g, dv)
    _put_product(dp, k.astype(_TYPE, copy=False), dq)
    _put_product(dp.swapaxes(-1, -2), q.astype(_TYPE, copy=False), dk)


def _scores(q: Array, k: Array, a: Any) -> Array:
    scaled = np.multiply(q.astype(_TYPE, copy=False), bare.number(a.scale, _TYPE))
    return multiply(scaled, k.astype(_TYPE, copy=False).swapaxes(-1, -2))


def _put_product(x: Array, y: Array, out: Array) -> None:
    if out.dtype == _TYPE and (out.flags.c_contiguous or has_unit_stride(out)):
        multiply(x, y, out)
    else:
        out[...] = multiply(x, y)


def _told(shape: tuple[int, ...], a: Any) -> tuple[Any, ...]:
    """What loops are told of scores of this shape: sizes and masks."""
    mask, kept, seen, added = a.mask, _NONE, _NONE, _NOTHING
    kind, of_mask = 0, (1, 1, 1)
    if mask is not None:
        steps = mask.strides
        if len(shape) <= 4 and (steps[-1] or shape[-1] == 1):  # as much of it as is not repeated
            mask = mask[tuple([slice(0, None if step else 1) for step in steps[:-1]])]
        mask = np.ascontiguousarray(mask)
        of_mask = mask.shape[:-1]
        if mask.dtype == bool:
            kind, seen = 1, mask.ravel().view(np.uint8)
        else:
            kind, added = 2, mask.ravel()
    if a.kept is not None:
        kept = a.kept.ravel().view(np.uint8)
    return _sizes(shape, a.causal, kind, a.kept is not None, of_mask), seen, added, kept, a.grow


@lru_cache(1024)
def _sizes(
    shape: tuple[int, ...], causal: bool, kind: int, thin: bool, of_mask: tuple[int, ...]
) -> Array:
    *lead, rows, keys = shape
    *_, images, heads, places = 1, 1, *of_mask
    steps = heads * places * (images > 1), places * (heads > 1), int(places > 1)
    if len(lead) > 2:  # of such a mask there is all: its rows are the scores'
        lead, steps = [1], (rows, 0, 1)
    return np.array((keys, rows, lead[-1], causal, kind, thin, *steps), np.int64)
