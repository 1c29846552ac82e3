"""Few numbers at a time, for tensors so small that what a call costs is all that a draw costs.

What PyTorch makes of single words (uniforms) or of 16 in a row (normals, wherever they begin) is
computed from all words that the engine holds at once, and handed out piece by piece. None: the draw
needs more words than are left, and goes the general way, which has the engine make the next ones.
"""

from __future__ import annotations

import math
from math import cos, log1p, sin, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare
from skimp._kernels.random import boxmuller, draws, normal as draws_normal
from skimp._kernels.random.arithmetic import F32, fma32
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.normal import GROUP, standard_singles
from skimp._kernels.threads import quietly

_LOW24: Final = np.uint32((1 << 24) - 1)
_LOW53: Final = (1 << 53) - 1
_STEP24: Final = np.float32(2.0**-24)
_STEP53: Final = 2.0**-53
_TWO_PI: Final = 2.0 * math.pi
_FAR: Final = 1e30  # beyond, a product or sum may be too large for float32


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


def drawn_uniforms(n: int, engine: Engine) -> F32 | None:
    """The same, drawn where they are not handed out; None of more than one part of a draw."""
    found = uniforms(n, engine)
    return draws.uniform24(n, engine) if found is None and n <= draws.PART else found


def normals(n: int, engine: Engine) -> F32 | None:
    """Standard normals as `normal` makes float32 ones; the engine's lock is held. None of more than
    one part of a draw, or of fewer than 16 where the words at hand are too few.
    """
    if n < GROUP:
        return _serial(n, engine) if n else None
    start, middle = engine.at, engine.at + n
    end = middle + GROUP if n % GROUP else middle
    if end > engine.words.size:
        return _drawn(n, engine) if n <= draws.PART else None
    ahead = engine.normals
    if ahead is None:  # which a program may want no more of
        engine.normals = _Normals(engine.words)
        made = _of_words(engine.words[start:end], n)
    else:
        made = ahead.of(start, middle)
        if end > middle:  # an incomplete group: the last 16 are made anew, of words of their own
            made[-GROUP:] = ahead.of(middle, end)
    engine.at = end
    return made


def _drawn(n: int, engine: Engine) -> F32:
    """The same of words that the engine makes now. Who had others made ahead will want more."""
    wanted = engine.normals is not None
    made = _of_words(engine.random32(n + GROUP if n % GROUP else n), n)
    if wanted:
        engine.normals = _Normals(engine.words)
    return made


def _of_words(words: NDArray[np.uint32], n: int) -> F32:
    """n normals of their words, and where their last group is incomplete of 16 more for that."""
    whole = n // GROUP * GROUP
    if whole == n:
        return standard_singles(words)
    groups = standard_singles(bare.concatenate((words[:whole], words[n:])))
    made = np.empty(n, np.float32)
    made[:whole] = groups[:whole]
    made[-GROUP:] = groups[whole:]
    return made


class _Normals:
    """The normals that groups of some words make, wherever those begin: of one or two of the 16
    places all groups that are left; where more are wanted, of what each word is to any group.
    """

    __slots__ = ("_parts", "_phases", "_words")

    def __init__(self, words: NDArray[np.uint32]) -> None:
        self._words = words
        self._parts: tuple[F32, F32, F32] | None = None
        self._phases: dict[int, tuple[int, F32]] = {}  # by the place: the first word, the normals

    def of(self, start: int, end: int) -> F32:
        """Those of the groups between two words, and anything for an incomplete one."""
        found = self._phases.get(start % GROUP)
        if found is None:
            found = self._phases[start % GROUP] = self._phase(start, end - start)
        first, made = found
        return made[start - first : end - first].copy()

    def _phase(self, start: int, n: int) -> tuple[int, F32]:
        alone = self._parts is None and n % (GROUP // 2) == 0 and len(self._phases) < 2
        first = start if alone else start % GROUP
        made = np.zeros(self._words.size - first, np.float32)
        whole = made.size // GROUP * GROUP
        if alone:
            made[:whole] = standard_singles(self._words[first : first + whole])
            return first, made
        if self._parts is None:
            self._parts = boxmuller.parts(self._words)
        radius, cos, sin = [
            part[first : first + whole].reshape(-1, 2, GROUP // 2) for part in self._parts
        ]
        pairs = made[:whole].reshape(-1, 2, GROUP // 2)
        np.multiply(radius[:, 0], cos[:, 1], out=pairs[:, 0])
        np.multiply(radius[:, 0], sin[:, 1], out=pairs[:, 1])
        made += np.float32(0)  # -0.0 becomes 0.0
        return first, made


def normal(out: NDArray[Any], mean: float, std: float, engine: Engine) -> None:
    """`normal.normal`: few float32 numbers are handed out too."""
    n = out.size
    fits = n >= GROUP or (n and mean == 0 and std == 1)
    if not fits or out.dtype != np.float32 or not std >= 0:
        draws_normal.normal(out, mean, std, engine)
        return
    with engine.lock:
        found = normals(n, engine)
    if found is None:
        draws_normal.normal(out, mean, std, engine)
        return
    if mean or std != 1:
        far = std > _FAR or not -_FAR < mean < _FAR
        found = quietly(_moved, found, mean, std) if far else _moved(found, mean, std)
    out[...] = found.reshape(out.shape)


def _moved(found: F32, mean: float, std: float) -> F32:
    mean32, std32 = np.float32(mean), np.float32(std)
    if mean32 and math.frexp(std32)[0] not in (0.5, 0.0):  # a product that rounds
        return fma32(found, std32, mean32)
    if std32 != 1:
        found *= std32
    found += mean32
    return found


def uniform(out: NDArray[Any], low: float, high: float, engine: Engine) -> None:
    """`draws.uniform`: few float32 numbers are handed out too."""
    found = None
    if out.dtype == np.float32 and out.size and -_FAR < low < high < _FAR:
        with engine.lock:
            found = uniforms(out.size, engine)
    if found is None:
        draws.uniform(out, low, high, engine)
        return
    if low != 0 or high != 1:
        first, last = np.float32(low), np.float32(high)
        draws.scaled(found, first, last, found)
        if draws.reaches(low, high, found.dtype):
            found[found == last] = first
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
    each = iter(words)
    for a, b, c, d in zip(each, each, each, each, strict=True):
        angle = ((a << 32 | b) & _LOW53) * _STEP53 * _TWO_PI
        length = sqrt(-2.0 * log1p(-(((c << 32 | d) & _LOW53) * _STEP53)))
        found += length * cos(angle), length * sin(angle)
    if len(found) > n:
        engine.next_double = found.pop()
    made = np.array(found, np.float32)
    return made + np.float32(0) if 0.0 in found else made  # of zeros, only, one may be negative
