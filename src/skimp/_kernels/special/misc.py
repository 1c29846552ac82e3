"""Entropy, x log y, logit and sinc: short formulas in the input's own type."""

from __future__ import annotations

from math import inf, pi

import numpy as np

from skimp._kernels import bare
from skimp._kernels.special.base import Array


def entr(x: Array, *, out: Array) -> None:
    """-x log(x); 0 at 0, -inf below."""
    bare.log(x, out=out)
    out *= x
    bare.negative(out, out=out)
    bare.copyto(out, 0, where=x == 0)
    bare.copyto(out, -inf, where=x < 0)


def xlogy(x: Array, y: Array, *, out: Array) -> None:
    """x log(y), and 0 where x is 0 unless y is NaN."""
    bare.log(y, out=out)
    out *= x
    bare.copyto(out, 0, where=(x == 0) & (y == y))


def xlog1py(x: Array, y: Array, *, out: Array) -> None:
    """x log(1 + y), and 0 where x is 0 unless y is NaN."""
    bare.log1p(y, out=out)
    out *= x
    bare.copyto(out, 0, where=(x == 0) & (y == y))


def logit(x: Array, eps: float | None = None, *, out: Array) -> None:
    """log(x / (1 - x)), of x clamped to [eps, 1 - eps] if eps is given."""
    if eps is not None:
        x = bare.minimum(bare.maximum(x, eps), 1 - eps)
    bare.subtract(1, x, out=out)
    bare.divide(x, out, out=out)
    bare.log(out, out=out)


def sinc(x: Array, *, out: Array) -> None:
    """sin(pi x) / (pi x), 1 at 0; pi x is rounded, as in PyTorch."""
    angle = bare.multiply(x, pi)
    np.sin(angle, out=out)
    out /= angle
    bare.copyto(out, 1, where=x == 0)
