"""Sums over the channels of images in one pass: what batch_norm needs, forwards and backwards.

A tensor (n, channels, *places) is read as n * channels rows of places, a promise without being
written. Each row gives its numbers from the working type; those of a channel's rows are joined in
float64, in the order of the rows. No result depends on blocks or threads.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from skimp._tensor import Array, Tensor, fresh
from skimp.eval.reduce import map_rows
from skimp.memory import layout as layouts
from skimp.ops.reduction import source_of
from skimp.ops.rowwise import Scratch, row_sums, wide

_SHORT: Final = 16  # places below which rows cost more than their elements


def has_rows(t: Tensor) -> bool:
    """Whether the places of each channel are a run that is worth a row of its own."""
    if t.ndim < 3 or t.numel() == 0 or not t._dtype.is_floating_point:
        return False
    return math.prod(t.shape[2:]) >= _SHORT and layouts.is_contiguous(t.layout_of())


def moments(x: Tensor) -> tuple[Any, Any]:
    """Mean and biased variance of each channel, as (1, channels, 1, ...) in the working type: each
    row's own, joined as by Chan, Golub, LeVeque (1983)."""
    acc = wide(x._dtype)
    totals, squares = _numbers(x, 2, acc.np)

    def block(rows: Array, total: Array, square: Array) -> None:
        flat = rows.reshape(len(rows), -1).astype(acc.np, copy=False)
        total[...] = row_sums(flat)
        with Scratch(flat.shape, flat.dtype) as apart:
            np.subtract(flat, total / acc.np.type(flat.shape[1]), out=apart)
            square[...] = np.vecdot(apart, apart)[:, None]

    _over(x, block, totals, squares)
    n, length = x.shape[0], math.prod(x.shape[2:])
    sums = totals.reshape(n, -1).astype(np.float64)
    mean = sums.sum(0) / (n * length)
    spread = squares.reshape(n, -1).sum(0, dtype=np.float64)
    spread += np.square(sums / length - mean).sum(0) * length
    shape = (1, -1) + (1,) * (x.ndim - 2)
    found = [fresh(a.astype(acc.np).reshape(shape), acc) for a in (mean, spread / (n * length))]
    return found[0], found[1]


def gradient_sums(g: Tensor, x: Tensor, mean: Tensor) -> tuple[Any, Any]:
    """The sums of g and of g * (x - mean) for each channel, as (1, channels, 1, ...)."""
    acc = wide(x._dtype)
    totals, products = _numbers(g, 2, acc.np)
    centres = np.tile(mean.array().reshape(-1), x.shape[0]).reshape(totals.shape)

    def block(rows: Array, seen: Array, centre: Array, total: Array, product: Array) -> None:
        flat = rows.reshape(len(rows), -1).astype(acc.np, copy=False)
        total[...] = row_sums(flat)
        with Scratch(flat.shape, flat.dtype) as apart:
            np.subtract(seen.reshape(flat.shape), centre.reshape(-1, 1), out=apart)
            product[...] = np.vecdot(flat, apart)[:, None]

    _over(g, block, x.array(), centres, totals, products)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    found = [
        fresh(a.reshape(x.shape[0], -1).sum(0, dtype=np.float64).astype(acc.np).reshape(shape), acc)
        for a in (totals, products)
    ]
    return found[0], found[1]


def _numbers(t: Tensor, count: int, dtype: Any) -> list[Array]:
    """Arrays with one number for each row."""
    return [np.empty((*t.shape[:2], 1), dtype) for _ in range(count)]


def _over(source: Tensor, block: Any, *parts: Array) -> None:
    found, _ = source_of(source, in_order=True)
    map_rows(found, block, parts, source.ndim - 2)
