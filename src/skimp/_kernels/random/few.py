"""Few numbers at a time, for tensors so small that what a call costs is all that a draw costs.

What PyTorch makes of single words (uniforms) or of 16 in a row (normals, wherever they begin) is
computed from all words that the engine holds at once, and handed out piece by piece. None: the draw
needs more words than are left, and goes the general way, which has the engine make the next ones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from math import cos, log, log1p, sin, sqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare, compiled
from skimp._kernels.random import boxmuller, draws, normal as draws_normal
from skimp._kernels.random.arithmetic import F32, flat, fma32, fma64
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.normal import GROUP, standard_singles
from skimp._kernels.threads import quietly

_LOW24: Final = np.uint32((1 << 24) - 1)
_LOW53: Final = (1 << 53) - 1
_STEP24: Final = np.float32(2.0**-24)
_STEP53: Final = 2.0**-53
_TWO_PI: Final = 2.0 * math.pi
_ONE_BY_ONE: Final = 128  # numbers for which a loop in Python is the shortest way
_FAR: Final = 1e30  # beyond, a product or sum may be too large for float32
_HALF_FAR: Final = 1e4  # the same of 16 bits


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
    if n <= draws.PART and (loops := compiled.loops()) is not None:
        found: F32 = loops.made_normals(*engine.place32(n + GROUP if n % GROUP else n), n)
        return found
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
        bare.multiply(radius[:, 0], cos[:, 1], out=pairs[:, 0])
        bare.multiply(radius[:, 0], sin[:, 1], out=pairs[:, 1])
        made += np.float32(0)  # -0.0 becomes 0.0
        return first, made


def normal(out: NDArray[Any], mean: float, std: float, engine: Engine) -> None:
    """`normal.normal`: few real numbers are handed out too."""
    found: Any = None
    n, single = out.size, out.dtype == np.float32
    if single and std >= 0 and GROUP <= n <= draws.PART and (loops := compiled.loops()) is not None:
        with engine.lock:
            words, at = engine.place32(n + GROUP if n % GROUP else n)
            loops.normals(words[at:], flat(out), std, mean, 1)
        return
    if std >= 0 and (n >= GROUP or (single and mean == 0 and std == 1)):
        with engine.lock:
            found = normals(n, engine) if single else _others(n, out.dtype, engine)
    if found is None:
        draws_normal.normal(out, mean, std, engine)
        return
    if found.dtype == np.float64:
        out[...] = (fma64(found, std, mean) if mean or std != 1 else found + 0.0).reshape(out.shape)
        return
    if mean or std != 1:
        far = std > _FAR or not -_FAR < mean < _FAR
        found = quietly(_moved, found, mean, std) if far else _moved(found, mean, std)
    out[...] = found.reshape(out.shape)


def _others(n: int, dtype: np.dtype[Any], engine: Engine) -> NDArray[Any] | None:
    """16 standard normals and more as `normal` makes numbers of other types of them; the engine's
    lock is held.
    """
    if n > draws.PART or dtype.kind == "c":
        return None
    if dtype == np.float64:
        return _doubles(n, engine) if n <= _ONE_BY_ONE else None
    tail = n % GROUP
    found = normals(n - tail, engine)
    if tail and found is not None:  # for the last 16, made anew, no words were drawn before
        last = normals(GROUP, engine)
        found = None if last is None else bare.concatenate((found[: n - GROUP], last))
    return found


def _doubles(n: int, engine: Engine) -> NDArray[np.float64]:
    """Standard normals as `normal` makes float64 ones, by the C library's functions one by one."""
    tail = n % GROUP
    words = draws_normal.uniform53(n + GROUP if tail else n, engine).tolist()
    found: list[float] = []
    for start in (*range(0, n - tail, GROUP), *([n] if tail else [])):
        lengths = [sqrt(-2.0 * log(1.0 - u)) for u in words[start : start + GROUP // 2]]
        angles = [_TWO_PI * u for u in words[start + GROUP // 2 : start + GROUP]]
        if start == n:
            del found[n - GROUP :]
        found += [r * cos(angle) for r, angle in zip(lengths, angles, strict=True)]
        found += [r * sin(angle) for r, angle in zip(lengths, angles, strict=True)]
    return np.array(found)


def _moved(found: F32, mean: float, std: float) -> F32:
    mean32, std32, rounds = _line(mean, std, math.copysign(1.0, mean))
    if rounds:
        return fma32(found, std32[()], mean32)
    if std != 1:
        found *= std32
    found += mean32
    return found


@lru_cache(maxsize=64)
def _line(mean: float, std: float, _: float) -> tuple[Any, Any, bool]:
    """A mean (whose sign is told, as zeros have two) and a deviation as ufuncs take them, and
    whether their products round before they are moved.
    """
    mean32, std32 = np.array(mean, np.float32), np.array(std, np.float32)
    rounds = bool(mean32) and math.frexp(std32)[0] not in (0.5, 0.0)
    return mean32, std32, rounds or 0 < std < draws_normal.LEAST


def uniform(out: NDArray[Any], low: float, high: float, engine: Engine) -> None:
    """`draws.uniform`: few numbers of 24 bits are handed out too."""
    found = None
    limit = _FAR if out.dtype == np.float32 else _HALF_FAR if out.itemsize == 2 else 0.0
    if out.size and -limit < low < high < limit:
        with engine.lock:
            found = uniforms(out.size, engine)
    if found is None:
        draws.uniform(out, low, high, engine)
        return
    first, last, span, reached = _range(low, high, out.dtype)
    if span is None:
        draws.scaled(found, first[()], last[()], found)
    elif low != 0 or high != 1:
        found *= span
        found += first
    made = found.reshape(out.shape)
    if reached is not None:
        made = made.astype(out.dtype)
        made[made == reached] = low
    out[...] = made


@lru_cache(maxsize=64)
def _range(low: float, high: float, dtype: np.dtype[Any]) -> tuple[Any, Any, Any, Any]:
    """The ends of a range as ufuncs take them; its length, if the product with it or the sum is
    exact; its end in a type to which rounding reaches there.
    """
    first: Any = np.array(low, np.float32)
    last: Any = np.array(high, np.float32)
    span: Any = np.asarray(last - first)
    exact = draws.is_exact(first[()], span[()])
    reached = draws.reaches(low, high, dtype)
    return first, last, span if exact else None, last.astype(dtype) if reached else None


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
