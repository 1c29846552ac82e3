"""Sobol sequences: points that fill a cube evenly, a row of direction numbers for each dimension.

The n-th point is the exclusive or of the direction numbers that the bits of n's Gray code name
(Antonov and Saleev, 1979); the numbers are those of Joe and Kuo (2008), which SciPy has.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

try:  # this module is imported by programs that name SobolEngine, and by no others
    from scipy.stats import qmc
except ImportError:
    qmc = None

I64 = NDArray[np.int64]

BITS: Final = 30
_SCALE: Final = 1.0 / (1 << BITS)


def directions(dimension: int) -> I64:
    """The direction numbers of so many dimensions: (dimension, BITS)."""
    if qmc is None:
        raise ImportError(
            "torch.quasirandom.SobolEngine has its direction numbers from SciPy: pip install scipy"
        )
    found: I64 = qmc.Sobol(dimension, scramble=False, bits=BITS)._sv.astype(np.int64)
    return found


def draw(out: NDArray[Any], last: I64, numbers: I64, drawn: int) -> I64:
    """Fill `out` (n, dimension) with the points behind the `drawn` first; the last one, as an
    integer, is returned.
    """
    steps = np.arange(drawn, drawn + len(out), dtype=np.int64)
    change = np.bitwise_count(steps ^ (steps + 1)) - 1  # the lowest bit that is 0
    points = numbers.T[change]
    points[:1] ^= last
    np.bitwise_xor.accumulate(points, out=points)
    np.multiply(points.astype(out.dtype), out.dtype.type(_SCALE), out=out)
    return points[-1].copy() if len(points) else last


def skip(last: I64, numbers: I64, drawn: int, n: int) -> I64:
    """The last point, as an integer, n points on."""
    changed = (drawn ^ (drawn >> 1)) ^ ((drawn + n) ^ ((drawn + n) >> 1))
    bits = [k for k in range(BITS) if changed >> k & 1]
    found: I64 = last ^ np.bitwise_xor.reduce(numbers[:, bits], axis=1)
    return found


def scrambled(numbers: I64, triangles: I64) -> I64:
    """The direction numbers after a random lower triangular matrix of bits for each dimension."""
    matrices = np.tril(triangles, -1) + np.eye(BITS, dtype=np.int64)
    weights = 1 << np.arange(BITS - 1, -1, -1, dtype=np.int64)
    rows = matrices @ weights  # (dimension, BITS): the rows as integers
    ones = np.bitwise_count(rows[:, None, :] & numbers[:, :, None]).astype(np.int64) & 1
    found: I64 = ones @ weights
    return found
