"""Random numbers on NumPy arrays, with the bits that PyTorch 2.13's CPU kernels draw.

Each function fills a C-contiguous `out` of one of PyTorch's types in memory order, from an Engine
whose state then equals that of the torch.Generator. Emulated are the kernels that PyTorch picks on
x86-64 with AVX2 or AVX-512 (they share these) and glibc. On Intel CPUs PyTorch hands scalar
bernoulli_ and exponential_ to MKL's own generators; here everyone gets the numbers of AMD CPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare, shaping
from skimp._kernels.random.arithmetic import (
    F32,
    F64,
    exp,
    flat,
    fma32,
    fma64,
    log1p,
    log_below_one,
    narrowed,
    tan,
)
from skimp._kernels.random.integers import C_NAMES, largest, random_, randperm
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.normal import FEW53, normal, serial_normal, uniform53
from skimp._kernels.random.rejection import poisson, standard_gamma
from skimp._kernels.random.weighted import multinomial

__all__ = [
    "Engine", "bernoulli", "bernoulli_each", "cauchy", "exponential", "geometric", "log_normal",
    "multinomial", "normal", "poisson", "random_", "randperm", "standard_gamma", "uniform",
]  # fmt: skip

PART: Final = 1 << 16  # elements that are drawn at once
_PAIRS: Final = 1 << 14  # pairs of words that are made at once, or for a large tensor half of its
_OF_ALL: Final = 2  # elements, up to PART: the bytes of the factors that are made next
_LOW53: Final = np.uint64((1 << 53) - 1)
_SCALARS: Final = {
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
}
_STEP24: Final = np.array(2.0**-24, np.float32)  # ufuncs take arrays sooner than scalars
_LOW24: Final = np.array((1 << 24) - 1, np.uint32)
_CLOSE: Final = 2.0**-22  # of a span: numbers of 24 bits times it, and beside them a number from
_FAR: Final = 16  # so close to 0 up to so far away, are 53 bits


def uniform(out: NDArray[Any], low: float, high: float, engine: Engine) -> None:
    """torch.Tensor.uniform_: fill `out` from [low, high); both parts of complex numbers."""
    if out.dtype.kind == "c" and not out.size:
        return  # PyTorch looks at the range only to fill some
    numbers = flat(out)
    double = numbers.dtype == np.float64
    # Rounding up may reach `high`, which is outside; but not from [0, 1) in the type drawn in.
    clamped = (low, high) != (0, 1) or numbers.dtype.itemsize == 2
    if clamped:
        _check_uniform(numbers.dtype, low, high)
    first, last = numbers.dtype.type(low), numbers.dtype.type(high)
    with engine.lock:
        for part in _parts(numbers):
            if not clamped:
                if double:
                    part[:] = uniform53(part.size, engine)
                else:
                    uniform24(part.size, engine, part)
                continue
            if double:
                part[:] = fma64(uniform53(part.size, engine), high - low, low)
            else:
                values = uniform24(part.size, engine)
                scaled(values, np.float32(low), np.float32(high), part)
            if not double and not reaches(low, high, part.dtype):
                continue
            part[part == last] = first


def exponential(out: NDArray[Any], rate: float, engine: Engine) -> None:
    """torch.Tensor.exponential_."""
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate:g}")
    with engine.lock:
        for part in _parts(out):
            values = log1p(-uniform53(part.size, engine))
            values *= -1.0 / rate
            part[:] = narrowed(values, part.dtype)


def cauchy(out: NDArray[Any], median: float, sigma: float, engine: Engine) -> None:
    """torch.Tensor.cauchy_."""
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    with engine.lock:
        for part in _parts(out):
            angles = uniform53(part.size, engine)
            angles -= 0.5
            angles *= math.pi
            part[:] = narrowed(fma64(tan(angles), sigma, median), part.dtype)


def log_normal(out: NDArray[Any], mean: float, std: float, engine: Engine) -> None:
    """torch.Tensor.log_normal_."""
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    with engine.lock:
        for part in _parts(out):
            values = exp(serial_normal(part.size, mean, std, engine))
            part[:] = narrowed(values, part.dtype)


def geometric(out: NDArray[Any], p: float, engine: Engine) -> None:
    """torch.Tensor.geometric_: the number of trials up to the first success."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    scale = math.log1p(-p)
    with engine.lock:
        for part in _parts(out):
            values = np.ceil(log_below_one(uniform53(part.size, engine)) / scale)
            if part.dtype.kind in "iu":
                values = _truncated(values, part.dtype)
            part[:] = narrowed(values, part.dtype)


def bernoulli(out: NDArray[Any], p: float, engine: Engine) -> None:
    """torch.Tensor.bernoulli_(p): ones with probability p."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    with engine.lock:
        if out.dtype == np.bool_:
            numbers = flat(out)
            stays(numbers.size, p, engine, numbers)
            return
        for part in _parts(out):
            part[:] = stays(part.size, p, engine)


def bernoulli_each(out: NDArray[Any], p: NDArray[Any], engine: Engine) -> None:
    """torch.Tensor.bernoulli_(p): ones, each with its own probability; p broadcasts to `out`."""
    if not bool(((p >= 0) & (p <= 1)).all()):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    numbers = flat(out)
    chances = shaping.broadcast(p, out.shape).reshape(-1)
    draw = uniform53 if p.dtype == np.float64 else uniform24
    with engine.lock:
        for start in range(0, numbers.size, PART):
            chance = chances[start : start + PART]
            values = draw(chance.size, engine)
            numbers[start : start + PART] = values < chance.astype(values.dtype, copy=False)


def uniform24(n: int, engine: Engine, out: F32 | None = None) -> F32:
    """n multiples of 2**-24 in [0, 1): at::uniform_real_distribution<float>(0, 1)."""
    words = engine.random32(n)
    bare.bitwise_and(words, _LOW24, words)
    result: F32 = np.empty(n, np.float32) if out is None else out
    result[:] = words.view(np.int32)
    bare.multiply(result, _STEP24, result)
    return result


def stays(
    n: int, p: float, engine: Engine, out: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """What `bernoulli` draws for n elements, as bools: uniform53 < p, in integers."""
    kept = np.empty(n, np.bool_) if out is None else out
    if n <= FEW53:
        with engine.lock:
            bare.less(uniform53(n, engine), p, kept)
        return kept
    bound = math.ceil(math.ldexp(p, 53))  # in steps of 2**-53
    with engine.lock:
        if engine.stay(kept, bound):
            return kept
    end = np.uint64(bound)
    step = min(max(_PAIRS, -(-n // _OF_ALL)), PART)
    start = 0
    with engine.lock:
        for words in engine.pairs(n, step):  # 8 bytes of words for one that is kept
            bare.bitwise_and(words, _LOW53, words)
            bare.less(words, end, kept[start : start + step])
            start += step
            del words  # before the next are there
    return kept


def _check_uniform(dtype: np.dtype[Any], low: float, high: float) -> None:
    most = largest(dtype)
    for which, value in (("from", low), ("to", high)):
        if not -most <= value <= most:
            raise RuntimeError(f"{which} is out of bounds for {C_NAMES[dtype.name]}")
    if not low <= high:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}"
        )
    if high - low > most:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{_SCALARS[dtype.name]}>::max(), but "
            f"found to={high:g} and from={low:g} which result in to-from to exceed the limit"
        )


def scaled(values: F32, low: np.float32, high: np.float32, out: NDArray[Any]) -> None:
    """Numbers of [0, 1) as such of [low, high), or `high` by rounding, into `out`."""
    span = bare.subtract(high, low)
    if is_exact(low, span):
        values *= span
        values += low
        out[...] = values
    elif _CLOSE * span <= abs(low) <= _FAR * span:  # the sum is exact in float64
        wide = values.astype(np.float64)
        wide *= float(span)
        wide += float(low)
        out[...] = wide if out.itemsize == 4 else wide.astype(np.float32)
    else:
        out[...] = fma32(values, span, low)


def is_exact(low: np.float32, span: np.float32) -> bool:
    """Whether the product with a range's length, or the sum, is exact."""
    return bool(low == 0) or math.frexp(span)[0] in (0.5, 0.0)


@lru_cache(maxsize=64)
def reaches(low: float, high: float, dtype: np.dtype[Any]) -> bool:
    """Whether rounding takes numbers of [low, high) up to `high`: it takes the largest there."""
    made = np.empty(1, dtype)
    scaled(1 - _STEP24.reshape(1), np.float32(low), np.float32(high), made)
    return bool(made[0] == dtype.type(high))


def _truncated(values: F64, dtype: np.dtype[Any]) -> F64 | NDArray[np.int64]:
    """Floats as x86 converts them to integers: too large ones become the smallest integer."""
    smallest = -(2.0**31) if dtype.itemsize <= 4 else -(2.0**63)
    return bare.where(values >= -smallest, smallest, values).astype(np.int64)


def _parts(out: NDArray[Any]) -> Iterator[NDArray[Any]]:
    numbers = flat(out)
    for start in range(0, numbers.size, PART):
        yield numbers[start : start + PART]
