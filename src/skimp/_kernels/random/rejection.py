"""Draws that try until they succeed, one number after the other: Poisson, gamma, binomial.

How many words a number takes depends on the words, so these run at Python's speed, about a
microsecond per number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from operator import length_hint
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.normal import to_uniform53, uniform53
from skimp._kernels.threads import quietly

_FEW: Final = 1 << 5  # numbers that are made ahead, and of long draws
_MOST: Final = 1 << 12
_THIRD: Final = np.float32(1) / np.float32(3)  # PyTorch writes 1.0f / 3.0f
_SQUEEZE: Final = float(np.float32(0.0331))
_TWO_PI: Final = 2.0 * math.pi
_HALF_LOG_TWO_PI: Final = 0.5 * math.log(_TWO_PI)


def poisson(rates: NDArray[Any], engine: Engine) -> NDArray[Any]:
    """torch.poisson: one number for each rate."""
    if not bool((rates >= 0).all()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    with engine.lock:
        source = _Source(engine)
        numbers = [_one_poisson(rate, source) for rate in rates.reshape(-1).tolist()]
        source.close()
    return _shaped_like(rates, numbers)


def standard_gamma(alpha: NDArray[Any], engine: Engine) -> NDArray[Any]:
    """torch._standard_gamma: one number for each shape parameter, float32 or float64."""
    with engine.lock:
        source = _Source(engine)
        numbers = [_one_gamma(*parts, source) for parts in _of_gamma(alpha)]
        source.close()
    result = _shaped_like(alpha, numbers)
    bare.maximum(result, np.finfo(alpha.dtype).tiny, out=result)
    return result


def _of_gamma(alpha: NDArray[Any]) -> Iterator[tuple[float, float, float]]:
    """Each shape parameter and, in the tensor's type as in PyTorch, d of the method, for one more
    where it is below 1, and then the exponent of the factor that makes up for it (else 0).
    """
    flat = alpha.reshape(-1)
    number = alpha.dtype.type
    below = flat < 1
    exponents = np.zeros_like(flat)
    quietly(partial(np.divide, number(1), flat, out=exponents, where=below))
    ds = np.add(flat, number(1), out=flat.copy(), where=below) - number(_THIRD)
    return zip(flat.tolist(), ds.tolist(), exponents.tolist(), strict=True)


def binomial(counts: NDArray[Any], chances: NDArray[Any], engine: Engine) -> NDArray[Any]:
    """torch.binomial: one number for each pair of arrays of one shape."""
    pairs = zip(counts.reshape(-1).tolist(), chances.reshape(-1).tolist(), strict=True)
    with engine.lock:
        source = _Source(engine)
        numbers = [_one_binomial(count, chance, source) for count, chance in pairs]
        source.close()
    return _shaped_like(counts, numbers)


def _shaped_like(model: NDArray[Any], numbers: Sequence[float]) -> NDArray[Any]:
    result: NDArray[Any] = np.array(numbers, np.float64).astype(model.dtype)
    return result.reshape(model.shape)


class _Source:
    """Uniform and normal numbers one at a time, made of words that lie at hand; `close` takes
    those that were used out of the stream.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._left: Iterator[float] = iter(())  # of what was looked at
        self._seen = 0
        self._ahead = _FEW

    def uniform(self) -> float:
        for value in self._left:
            return value
        return self._next()

    def _next(self) -> float:
        """The first of the next ones. Where no words lie at hand the engine makes them."""
        self.close()
        numbers = to_uniform53(self._engine.at_hand64(self._ahead)).tolist()
        if not numbers:
            return float(uniform53(1, self._engine)[0])
        self._ahead = min(2 * self._ahead, _MOST)
        self._left, self._seen = iter(numbers), len(numbers)
        return next(self._left)

    def normal(self) -> float:
        engine = self._engine
        if engine.next_double is not None:
            kept, engine.next_double = engine.next_double, None
            return kept
        turn = _TWO_PI * self.uniform()
        length = math.sqrt(-2.0 * math.log1p(-self.uniform()))
        engine.next_double = length * math.sin(turn)
        return length * math.cos(turn)

    def close(self) -> None:
        self._engine.at += 2 * (self._seen - length_hint(self._left))
        self._left, self._seen = iter(()), 0


def _one_poisson(rate: float, source: _Source) -> int:
    if rate >= 10:
        return _large_poisson(rate, source)
    if rate == 0:
        return 0
    count, product, limit = 0, source.uniform(), math.exp(-rate)
    while product > limit:
        count += 1
        product *= source.uniform()
    return count


def _large_poisson(rate: float, source: _Source) -> int:
    """Hoermann's transformed rejection (1993)."""
    root, log_rate = math.sqrt(rate), math.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    sure = 0.9277 - 3.6224 / (b - 2)
    while True:
        u = source.uniform() - 0.5
        v = source.uniform()
        margin = 0.5 - abs(u)
        # margin is 0 only for u = -0.5, where C++ goes on with an infinity that it rejects
        k = math.floor((2 * a / margin + b) * u + rate + 0.43) if margin else -1
        if margin >= 0.07 and v <= sure:
            return k
        if k < 0 or (margin < 0.013 and v > margin):
            continue
        score = (
            (math.log(v) if v else -math.inf)
            + math.log(inverse_alpha)
            - math.log(a / (margin * margin) + b)
        )
        if score <= -rate + k * log_rate - math.lgamma(float(k) + 1):
            return k


def _one_gamma(alpha: float, d: float, exponent: float, source: _Source) -> float:
    """Marsaglia and Tsang (2000)."""
    if alpha == 0:
        return 0.0
    scale = math.pow(1 - source.uniform(), exponent) if alpha < 1 else 1.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = source.normal()
        y = 1.0 + c * x
        if y <= 0:
            continue
        v = y * y * y
        u = 1 - source.uniform()
        square = x * x
        if u < 1.0 - _SQUEEZE * square * square:
            return scale * d * v
        if math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return scale * d * v


def _one_binomial(count: float, chance: float, source: _Source) -> float:
    if count <= 0 or chance <= 0:
        return 0.0
    if chance >= 1:
        return count
    if math.isnan(count) or math.isnan(chance):
        return math.nan
    if chance > 0.5:
        return count - _one_binomial(count, 1.0 - chance, source)
    if count * chance >= 10:
        return _large_binomial(count, chance, source)
    # the waiting times between successes are geometric
    log_failure, trials, successes = math.log1p(-chance), 0.0, 0
    while True:
        u = source.uniform()
        trials += math.ceil(math.log(u) / log_failure) if u else math.inf
        if trials > count:
            return float(successes)
        successes += 1


def _stirling_tail(k: float) -> float:
    """log k! less Stirling's formula of it."""
    if k <= 9:
        return math.lgamma(k + 1) - (k + 0.5) * math.log(k + 1) + (k + 1) - _HALF_LOG_TWO_PI
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _large_binomial(count: float, chance: float, source: _Source) -> float:
    """Hoermann's BTRS (1993)."""
    deviation = math.sqrt(count * chance * (1 - chance))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * chance
    c = count * chance + 0.5
    sure = 0.92 - 4.2 / b
    odds = chance / (1 - chance)
    alpha = (2.83 + 5.1 / b) * deviation
    m = math.floor((count + 1) * chance)
    while True:
        u = source.uniform() - 0.5
        v = source.uniform()
        margin = 0.5 - abs(u)
        k = math.floor((2 * a / margin + b) * u + c) if margin else -1
        if k < 0 or k > count:
            continue
        if margin >= 0.07 and v <= sure:
            return float(k)
        v = math.log(v * alpha / (a / (margin * margin) + b)) if v else -math.inf
        limit = (
            (m + 0.5) * math.log((m + 1) / (odds * (count - m + 1)))
            + (count + 1) * math.log((count - m + 1) / (count - k + 1))
            + (k + 0.5) * math.log(odds * (count - k + 1) / (k + 1))
            + _stirling_tail(m)
            + _stirling_tail(count - m)
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )
        if v <= limit:
            return float(k)
