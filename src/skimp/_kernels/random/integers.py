"""Whole numbers from PyTorch's CPU generator: random_, randint's kernel, and permutations."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import bare
from skimp._kernels.random.arithmetic import flat
from skimp._kernels.random.mt19937 import Engine
from skimp._kernels.random.shuffle import permutation

I64 = NDArray[np.int64]
Indices = NDArray[np.signedinteger[Any]]

_PART: Final = 1 << 16
_FEW: Final = 1 << 8  # words up to which one call is the shortest way
_SKEW: Final = 1 << 28  # from this range on PyTorch takes the remainder of 64 bits
_WIDE_PERMUTATION: Final = ((1 << 32) - 1) // 20  # from here on randperm is another algorithm
_DIGITS: Final = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_INT64: Final = np.iinfo(np.int64)


def random_(
    out: NDArray[Any], engine: Engine, low: int | None = None, high: int | None = None
) -> None:
    """torch.Tensor.random_: from [low, high), from [low, the largest], or from all that is >= 0.

    Floats are whole numbers up to 2**digits where nothing says otherwise.
    """
    if low is None:
        _random_any(flat(out), engine)
    elif high is None and low == _INT64.min:
        _random_bits(flat(out), engine)
    else:
        first, last = bounds(out.dtype, low, high)
        _random_range(flat(out), first, last - first + 1, engine)


def randperm(out: NDArray[Any], engine: Engine) -> None:
    """torch.randperm: fill the vector `out` with a permutation of 0 .. out.size - 1."""
    n = out.size
    with engine.lock:
        if n >= _WIDE_PERMUTATION:
            steps = np.arange(1, n + 1, dtype=np.uint64)
            out[:] = _inside_out((engine.random64(n) % steps).view(np.int64))
        elif n > 1:
            words, at = engine.place32(n - 1)
            out[:] = permutation(words[at : at + n - 1])
        else:
            out[:] = 0


def _random_any(numbers: NDArray[Any], engine: Engine) -> None:
    count, wide = _all_of(numbers.dtype)
    _remainders(numbers, 0, count, wide, engine)


@cache
def _all_of(dtype: np.dtype[Any]) -> tuple[int, bool]:
    """How many numbers are drawn from where nothing says so, and whether from 64-bit words."""
    if dtype.kind == "b":
        count = 2
    elif dtype.kind in "iu":
        count = int(np.iinfo(dtype).max) + 1
    else:
        count = (1 << _DIGITS[dtype.name]) + 1
    return count, dtype.name in ("int64", "float64")


def _random_bits(numbers: NDArray[Any], engine: Engine) -> None:
    if not numbers.size:
        return
    kernel, name = "random_full_64_bits_range_kernel_cpu", numbers.dtype.name
    if name in ("float16", "bool"):
        shown = "Half" if name == "float16" else "Bool"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{shown}'")
    if numbers.dtype.kind in "iu" and name != "int64":
        raise RuntimeError(f"{kernel} handles only int64, double, float and bfloat16")
    with engine.lock:
        for start in range(0, numbers.size, _PART):
            part = numbers[start : start + _PART]
            _store(part, engine.random64(part.size).view(np.int64))


def _random_range(numbers: NDArray[Any], base: int, count: int, engine: Engine) -> None:
    _remainders(numbers, base, count, count >= _SKEW, engine)


def _remainders(numbers: NDArray[Any], base: int, count: int, wide: bool, engine: Engine) -> None:
    """Fill with base + word % count, from 64-bit words where `wide`."""
    with engine.lock:
        for start in range(0, numbers.size, _PART):
            part = numbers[start : start + _PART]
            words = engine.random64(part.size) if wide else engine.random32(part.size)
            values = _remainder(words, count).astype(np.int64)
            if base:
                values += base
            _store(part, values)


def _remainder(words: NDArray[Any], count: int) -> NDArray[Any]:
    """words % count, in place."""
    divisor = words.dtype.type(count)
    if words.size <= _FEW:
        bare.remainder(words, divisor, words)
        return words
    if count & (count - 1) == 0:
        words &= divisor - words.dtype.type(1)
    else:  # NumPy divides by a constant much faster than it takes remainders
        quotients = words // divisor
        quotients *= divisor
        words -= quotients
    return words


def _store(part: NDArray[Any], values: I64) -> None:
    if part.itemsize == 2 and part.dtype.kind not in "iu":  # C++ goes by way of float
        part[:] = values.astype(np.float32).astype(part.dtype)
    else:
        part[:] = values.astype(part.dtype)


@lru_cache(256)
def bounds(dtype: np.dtype[Any], low: int, high: int | None) -> tuple[int, int]:
    """The smallest and the largest number to draw, both exact in `dtype`."""
    digits = _DIGITS.get(dtype.name)
    if high is None:
        last = 1 << digits if digits else 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)
        first = _raised(low, dtype, digits) if digits else low
        if digits and first >= last:
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' "
                f"casted to dtype, but got from={first} > to_inc={last}"
            )
        _check_range(dtype, first, last)
        return first, last
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    if digits:
        low, high = _raised(low, dtype, digits), _lowered(high, dtype, digits)
        if low >= high:
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, "
                f"but got from={low} >= to={high}"
            )
    _check_range(dtype, low, high - 1)
    return low, high - 1


def _check_range(dtype: np.dtype[Any], first: int, last: int) -> None:
    least, most = _limits(dtype)
    for name, value in (("from", first), ("to - 1", last)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {C_NAMES[dtype.name]}")


C_NAMES: Final = {
    "bool": "bool",
    "uint8": "unsigned char",
    "int8": "signed char",
    "int16": "short int",
    "int32": "int",
    "int64": "long",
    "uint16": "short unsigned int",
    "uint32": "unsigned int",
    "uint64": "long unsigned int",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float32": "float",
    "float64": "double",
}


@cache
def largest(dtype: np.dtype[Any]) -> float:
    """The largest number of a float type."""
    if dtype.name == "bfloat16":
        return float(255 * 2**120)
    return float(np.finfo(dtype).max)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    return -largest(dtype), largest(dtype)


def _raised(low: int, dtype: np.dtype[Any], digits: int) -> int:
    """The next whole number from `low` up that survives the cast to `dtype`."""
    above = _cast(low + 1, dtype)
    if above >= low:
        return low
    return above + (1 << (abs(low + 1).bit_length() - digits))


def _lowered(high: int, dtype: np.dtype[Any], digits: int) -> int:
    below = _cast(high - 1, dtype)
    if below < high:
        return high
    return below - (1 << (abs(high - 1).bit_length() - digits))


def _cast(value: int, dtype: np.dtype[Any]) -> int:
    with np.errstate(over="ignore"):
        number = float(
            np.float32(value).astype(dtype) if dtype.itemsize == 2 else dtype.type(value)
        )
    return _INT64.min if not abs(number) < 2.0**63 else int(number)


def _inside_out(targets: I64) -> Indices:
    """What r[i] = r[targets[i]], r[targets[i]] = i, for each i in turn, makes of nothing."""
    earlier, latest = _same_target(targets)
    known = earlier >= 0
    # Place i is first filled with a number known at once, or with what place targets[i] got.
    sources = bare.where(known, np.arange(targets.size), targets)
    first = _resolved(sources)
    filled = bare.where(known[first], earlier[first], first)
    return bare.where(latest < 0, filled, latest)


def _same_target(targets: I64) -> tuple[Indices, Indices]:
    """For each step the one before it with its target, for each target its last step; else -1."""
    keys = targets.view(np.uint64) << np.uint64(32)
    keys |= np.arange(targets.size, dtype=np.uint64)
    keys.sort()
    index: Any = np.int32 if targets.size < 1 << 31 else np.int64
    steps = (keys & np.uint64(0xFFFFFFFF)).astype(index)
    ordered = (keys >> np.uint64(32)).astype(index)
    same = ordered[1:] == ordered[:-1]
    earlier = np.full(targets.size, -1, index)
    earlier[steps[1:][same]] = steps[:-1][same]
    ends = np.append(~same, True)
    latest = np.full(targets.size, -1, index)
    latest[ordered[ends]] = steps[ends]
    return earlier, latest


def _resolved(sources: Indices) -> Indices:
    """Follow each chain of sources to its end."""
    while True:
        further = sources[sources]
        if np.array_equal(further, sources):
            return sources
        sources = further
