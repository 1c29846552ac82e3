"""Few numbers at a time, for tensors so small that what a call costs is all that a draw costs.

What PyTorch makes of single words (uniforms) or of 16 in a row (normals) is computed from all
words that the engine holds at once, and handed out piece by piece. None: the draw needs more words
than are left, and goes the general way, which has the engine make the next ones.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels.random import normal as draws_normal
from skimp._kernels.random.arithmetic import F32, fma32
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.normal import GROUP, standard_singles

_LOW24: Final = np.uint32((1 << 24) - 1)
_LOW53: Final = (1 << 53) - 1
_STEP24: Final = np.float32(2.0**-24)
_STEP53: Final = 2.0**-53
_TWO_PI: Final = 2.0 * math.pi


def uniforms(n: int, engine: Engine) -> F32 | None:
    """`draws.uniform24`; the engine's lock is held."""
    start = engine.at
    end = start + n
    if end > engine.words.size:
        return None
    table = engine.uniforms
    if table is None:
        table = (engine.words & _LOW24).astype(np.float32)
        table *= _STEP24
        engine.uniforms = table
    engine.at = end
    return table[start:end].copy()


def normals(n: int, engine: Engine) -> F32 | None:
    """Standard normals as `normal` makes float32 ones; the engine's lock is held."""
    if n % GROUP or not n:
        return _serial(n, engine) if n < GROUP else None
    start = engine.at
    end = start + n
    if end > engine.words.size:
        return None
    first, table = engine.normals or (end, None)
    if table is None or first > start or (start - first) % GROUP or end > first + table.size:
        last = start + (engine.words.size - start) // GROUP * GROUP
        table = standard_singles(engine.words[start:last])
        engine.normals = first, table = start, table
    engine.at = end
    return table[start - first : end - first].copy()


def normal(out: NDArray[Any], mean: float, std: float, engine: Engine) -> None:
    """`normal.normal`: few float32 numbers are handed out too."""
    n = out.size
    if not GROUP <= n <= engine.words.size or n % GROUP or out.dtype != np.float32 or not std >= 0:
        draws_normal.normal(out, mean, std, engine)
        return
    with engine.lock:
        found = normals(n, engine)
    if found is None:
        draws_normal.normal(out, mean, std, engine)
        return
    mean32, std32 = np.float32(mean), np.float32(std)
    with np.errstate(over="ignore"):
        if mean32 and math.frexp(std32)[0] not in (0.5, 0.0):  # a product that rounds
            found = fma32(found, std32, mean32)
        else:
            if std32 != 1:
                found *= std32
            found += mean32
    out[...] = found.reshape(out.shape)


def _serial(n: int, engine: Engine) -> F32 | None:
    """Fewer than 16: one pair after the other, as `normal.serial_normal` has them."""
    kept = engine.next_double
    pairs = n >> 1 if kept is not None else (n + 1) >> 1
    start = engine.at
    end = start + 4 * pairs
    if end > engine.words.size:
        return None
    engine.at = end
    engine.next_double = None
    found = [] if kept is None else [kept]
    words = engine.words[start:end].tolist()
    for i in range(0, 4 * pairs, 4):
        a, b, c, d = words[i : i + 4]
        angle = ((a << 32 | b) & _LOW53) * _STEP53 * _TWO_PI
        length = math.sqrt(-2.0 * math.log1p(-(((c << 32 | d) & _LOW53) * _STEP53)))
        found.append(length * math.cos(angle))
        found.append(length * math.sin(angle))
    if len(found) > n:
        engine.next_double = found.pop()
    return np.array(found, np.float64).astype(np.float32) + np.float32(0)
