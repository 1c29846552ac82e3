"""Normal numbers: PyTorch's two algorithms, 16 at a time and one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels import compiled, sharing
from skimp._kernels.locks import reentrant
from skimp._kernels.random import boxmuller as boxmuller
from skimp._kernels.random.arithmetic import (
    F32,
    F64,
    cos_sin,
    flat,
    fma32,
    fma64,
    log1p,
    log_below_one,
    narrowed,
)
from skimp._kernels.random.mt19937 import Engine, paired
from skimp._kernels.threads import share
from skimp.config import config

GROUP: Final = 16  # numbers that PyTorch makes together: 8 radii, then 8 angles
_PART: Final = 2 * boxmuller.BLOCK
_THREADED: Final = 1 << 19  # from here on the transform of one part overlaps the draw of the next
FEW53: Final = 1 << 8  # numbers of 53 bits that are handed out of a table
_LOW53: Final = np.array((1 << 53) - 1, np.uint64)
_STEP53: Final = np.array(2.0**-53)
_TWO_PI: Final = 2.0 * math.pi
LEAST: Final = 1e-30  # a deviation times which no number becomes 0
_EACH: Final = 0.5e-9  # seconds of a loop for a number

Words = NDArray[Any]
Transform = Callable[[Words, NDArray[Any], boxmuller.Scratch], None]


def normal(out: NDArray[Any], mean: float, std: float, engine: Engine) -> None:
    """torch.Tensor.normal_: fill `out` with numbers of this mean and standard deviation.

    16 numbers and more come from another algorithm than fewer, as in PyTorch.
    """
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if out.dtype.kind == "c":
        std /= math.sqrt(2)
    numbers = flat(out)
    with engine.lock, np.errstate(over="ignore"):
        if numbers.size >= _THREADED:
            engine.load()
        if numbers.size < GROUP:
            numbers[:] = narrowed(serial_normal(numbers.size, mean, std, engine), numbers.dtype)
        elif numbers.dtype == np.float64:
            _fill(numbers, engine.random64, _doubles(mean, std))
        elif numbers.dtype == np.float32:
            _fill(numbers, engine.random32, _singles(mean, std))
        else:
            _fill_halves(numbers, engine.random32, _singles(mean, std))


def serial_normal(n: int, mean: float, std: float, engine: Engine) -> F64:
    """n numbers of at::normal_distribution<double>, which keeps every second one for later."""
    kept = n > 0 and engine.next_double is not None
    pairs = (n - kept + 1) // 2
    uniforms = uniform53(2 * pairs, engine).reshape(pairs, 2)
    length = np.sqrt(-2.0 * log1p(-uniforms[:, 1]))
    cos, sin = cos_sin(_TWO_PI * uniforms[:, 0])
    samples = np.empty(2 * pairs + kept, np.float64)
    if kept:
        samples[0] = engine.next_double
        engine.next_double = None
    np.multiply(length, cos, out=samples[kept::2])
    np.multiply(length, sin, out=samples[kept + 1 :: 2])
    if samples.size > n:
        engine.next_double = float(samples[-1])
    return fma64(samples[:n], std, mean)


def uniform53(n: int, engine: Engine) -> F64:
    """n multiples of 2**-53 in [0, 1): at::uniform_real_distribution<double>(0, 1). Few come out of
    a table of those that all words at hand make, of which a pair begins at an even or odd place.
    """
    start = engine.at
    end = start + 2 * n
    if n > FEW53 or end > engine.words.size:
        return to_uniform53(engine.random64(n))
    table = engine.doubles[start & 1]
    if table is None:
        table = engine.doubles[start & 1] = to_uniform53(paired(engine.words[start & 1 :]))
    engine.at = end
    return table[start >> 1 : end >> 1].copy()


def to_uniform53(words: NDArray[np.uint64]) -> F64:
    """The uniform of each 64-bit word, from its low 53 bits; overwrites `words`."""
    words &= _LOW53
    result = words.view(np.int64).astype(np.float64)
    result *= _STEP53
    return result


def _fill(out: NDArray[Any], draw: Callable[[int], Words], transform: Transform) -> None:
    """Groups of 16 from one word per number; an incomplete one makes the last 16 anew."""
    tail = out.size % GROUP
    _in_order(out[: out.size - tail], draw, transform)
    if tail:
        draw(tail)
        _in_order(out[-GROUP:], draw, transform)


def _fill_halves(out: NDArray[Any], draw: Callable[[int], Words], transform: Transform) -> None:
    """Like _fill for 16-bit types, which draw no words for the numbers made anew."""

    def narrowing(words: Words, part: NDArray[Any], scratch: boxmuller.Scratch) -> None:
        wide = np.empty(part.size, np.float32)
        transform(words, wide, scratch)
        part[:] = wide

    tail = out.size % GROUP
    _in_order(out[: out.size - tail], draw, narrowing)
    if tail:
        _in_order(out[-GROUP:], draw, narrowing)


def _in_order(out: NDArray[Any], draw: Callable[[int], Words], transform: Transform) -> None:
    """Transform `out` part by part: words are drawn in order; transforms overlap on threads, but
    for what a loop makes, which takes less than they take to meet."""
    if out.dtype != np.float64 and compiled.loops() is not None:
        scratch = boxmuller.Scratch(0)
        for start in range(0, out.size, _PART):
            part = out[start : start + _PART]
            transform(draw(part.size), part, scratch)
        return
    starts = iter(range(0, out.size, _PART))
    turn = reentrant()
    failures: list[BaseException] = []

    def rounds(scratch: boxmuller.Scratch) -> None:
        while not failures:
            with turn:
                start = next(starts, None)
                if start is None:
                    return
                part = out[start : start + _PART]
                words = draw(part.size)
            with np.errstate(over="ignore"):  # not inherited by threads
                transform(words, part, scratch)

    def work() -> None:
        scratch = boxmuller.Scratch(out.size // 2)
        try:
            rounds(scratch)
        except BaseException as failure:
            failures.append(failure)

    share(work, config.threads if out.size >= _THREADED else 1)
    if failures:
        raise failures[0]


def _singles(mean: float, std: float) -> Transform:
    """The transform of 32-bit words into float32 normals."""
    mean32, std32 = np.float32(mean), np.float32(std)
    # whether the product rounds at most once, and to no zero
    plain = (mean32 == 0 or math.frexp(std32)[0] in (0.5, 0.0)) and not 0 < std32 < LEAST
    loops = compiled.loops()
    if loops is not None:
        return lambda words, out, scratch: sharing.call(
            loops.normals, out.size, _EACH, words, out, std32, mean32
        )

    def transform(words: Words, out: F32, scratch: boxmuller.Scratch) -> None:
        first, second = _split(words)
        length = np.empty(first.size, np.float32)
        cos = first.view(np.float32)  # the words of the radii are spent when cosines are written
        sin = np.empty(first.size, np.float32)
        boxmuller.radius(first, length, scratch)
        boxmuller.cos_sin(second, cos, sin, scratch)
        cos *= length
        sin *= length
        _join(cos, sin, out)
        if not plain:
            out[:] = fma32(out, std32, mean32)
            return
        if std32 != 1:
            out *= std32
        out += mean32  # also for mean 0: -0.0 becomes 0.0

    return transform


def standard_singles(words: NDArray[np.uint32]) -> F32:
    """The float32 normals that groups of 16 words make, with mean 0 and standard deviation 1."""
    made = np.empty(words.size, np.float32)
    _singles(0.0, 1.0)(words, made, boxmuller.Scratch(words.size // 2))
    return made


def _doubles(mean: float, std: float) -> Transform:
    """The transform of 64-bit words into float64 normals."""

    def transform(words: Words, out: F64, scratch: boxmuller.Scratch) -> None:
        del scratch
        groups = to_uniform53(words).reshape(-1, 2, GROUP // 2)
        length = np.sqrt(-2.0 * log_below_one(1.0 - groups[:, 0]))
        cos, sin = cos_sin(_TWO_PI * groups[:, 1])
        groups[:, 0] = cos
        groups[:, 1] = sin
        groups *= length[:, None]
        out[:] = fma64(groups.reshape(-1), std, mean)

    return transform


_OCTET: Final = np.dtype("V32")  # 8 words moved as one element


def _split(words: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The first and the second 8 words of each group, each side contiguous."""
    octets = words.view(_OCTET).reshape(-1, 2)
    return octets[:, 0].copy().view(np.uint32), octets[:, 1].copy().view(np.uint32)


def _join(first: F32, second: F32, out: F32) -> None:
    octets = out.view(_OCTET).reshape(-1, 2)
    octets[:, 0] = first.view(_OCTET)
    octets[:, 1] = second.view(_OCTET)
