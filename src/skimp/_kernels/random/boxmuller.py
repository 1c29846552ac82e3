"""Box-Muller as PyTorch's AVX2 kernel computes it, bit for bit, in plain NumPy.

PyTorch has no AVX-512 version of this kernel, so every x86-64 CPU with AVX2 gets these numbers.
The kernel is Cephes' logf and sincosf, and its compiler fused each product with the sum it feeds:
a fused step is done in float64, where the product is exact, and rounded to float32. Rounding twice
could differ from rounding once, but does not here: the two inputs have 2**24 values each, and all
of them were compared with hardware FMA.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from skimp._kernels.random.arithmetic import F32, F64

# Pairs at a time. The scratch outgrows the L2 cache, but shorter calls cost more: between them
# two threads hand the interpreter to each other.
BLOCK: Final = 1 << 16

_f = np.float32
_LOG: Final = [
    np.array(float(_f(c)))
    for c in (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    )
]  # fmt: skip
_SIN: Final = [
    np.array(float(_f(c))) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
]
_COS: Final = [
    np.array(float(_f(c)))
    for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
]
# Constants are arrays of one element, which ufuncs take a quarter of a microsecond sooner.
_LN2_LOW: Final = np.array(-2.12194440e-4, np.float32)
_LN2_HIGH: Final = np.array(0.693359375, np.float32)
_ONE: Final = np.array(1, np.float32)
_HALF: Final = np.array(0.5, np.float32)
_MINUS_TWO: Final = np.array(-2, np.float32)
_WIDE_HALF: Final = np.array(0.5)
# pi/2 in three parts, of which the kernel subtracts one after the other; the first two steps
# are exact there, and so is all of it in float64.
_RIGHT_ANGLE: Final = np.array(
    2 * sum(float(_f(c)) for c in (0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8))
)
_STEP: Final = np.array(_f(2 * np.pi) * _f(2.0**-24))  # the angle of one step of a 24-bit uniform
_MANTISSA: Final = np.array(0x7FFFFF, np.int32)
_SQRT_HALF: Final = np.array(0x3F3504F3, np.int32)  # the bits of sqrt(0.5)
_SCALED: Final = np.array(0x3F3504F3 + (24 << 23), np.int32)  # those of sqrt(0.5) * 2**24
_TO_MANTISSA: Final = np.array(23, np.int32)
_UPPER: Final = np.array(0xFF000000, np.uint32)
_LOWER: Final = np.array(0x00FFFFFF, np.uint32)
_EIGHTH: Final = np.array(1 << 21, np.int32)  # of a turn, in steps
_TO_QUARTER: Final = np.array(22, np.int32)
_BIT0: Final = np.array(1, np.int32)
_BIT1: Final = np.array(2, np.int32)
_TO_SIGN: Final = np.array(30, np.int32)


class Scratch:
    """Working memory for one thread."""

    __slots__ = ("doubles", "singles")

    def __init__(self, pairs: int) -> None:
        size = min(pairs, BLOCK)
        self.singles = np.empty((4, size), np.float32)
        self.doubles = np.empty((3, size), np.float64)


def parts(words: NDArray[np.uint32]) -> tuple[F32, F32, F32]:
    """What each word is as a radius, and the cosine and the sine of what it is as an angle."""
    length, cos, sin = np.empty((3, words.size), np.float32)
    scratch = Scratch(words.size)
    radius(words, length, scratch)
    cos_sin(words, cos, sin, scratch)
    return length, cos, sin


def radius(words: NDArray[np.uint32], out: F32, scratch: Scratch) -> None:
    """out = sqrt(-2 log(1 - u)), u the uniform of each word's low 24 bits."""
    n = words.size
    x, y, z, e = scratch.singles[:, :n]
    wide, acc = scratch.doubles[:2, :n]
    bits = x.view(np.int32)
    exponent = z.view(np.int32)
    steps = out.view(np.uint32)

    # 1 - u = (2**24 - low bits) / 2**24 = (1 + x) * 2**e with sqrt(1/2) <= 1 + x < sqrt(2)
    np.bitwise_or(words, _UPPER, out=steps)
    np.negative(steps, out=steps)
    x[...] = steps.view(np.int32)
    bits -= _SCALED
    np.right_shift(bits, _TO_MANTISSA, out=exponent)
    e[...] = exponent
    bits &= _MANTISSA
    bits += _SQRT_HALF
    x -= _ONE

    wide[...] = x
    _horner(_LOG, wide, acc, y)
    y *= x
    np.multiply(x, x, out=z)
    np.multiply(e, _LN2_LOW, out=out)
    wide[...] = y
    acc[...] = z
    wide *= acc
    acc[...] = out
    wide += acc
    y[...] = wide
    z *= _HALF
    y -= z
    x += y
    e *= _LN2_HIGH
    x += e
    x *= _MINUS_TWO
    np.sqrt(x, out=out)


def cos_sin(words: NDArray[np.uint32], cos: F32, sin: F32, scratch: Scratch) -> None:
    """The cosine and sine of 2 pi u, u the uniform of each word's low 24 bits."""
    n = words.size
    x, z, even, odd = scratch.singles[:, :n]
    wide, acc, square = scratch.doubles[:, :n]
    steps, quarter, swap = x.view(np.int32), cos.view(np.int32), sin.view(np.int32)

    # The nearest quarter of a turn, 0 to 4, and what the angle is from there
    np.bitwise_and(words, _LOWER, out=steps.view(np.uint32))
    np.add(steps, _EIGHTH, out=quarter)
    quarter >>= _TO_QUARTER
    x[...] = steps
    x *= _STEP
    acc[...] = quarter
    acc *= _RIGHT_ANGLE
    wide[...] = x
    wide -= acc
    x[...] = wide
    wide[...] = x
    np.multiply(x, x, out=z)
    square[...] = z

    _horner(_SIN, square, acc, odd)
    odd *= z
    acc[...] = odd
    acc *= wide
    acc += wide
    odd[...] = acc
    _horner(_COS, square, acc, even)
    even *= z
    acc[...] = even
    acc *= square
    square *= _WIDE_HALF
    acc -= square
    even[...] = acc
    even += _ONE

    # For 1 and 3 quarters the polynomials change places; the sine is negative beyond the second
    # quarter, the cosine beyond the first and up to the third
    even_bits, odd_bits, chosen = even.view(np.int32), odd.view(np.int32), x.view(np.int32)
    np.bitwise_and(quarter, _BIT0, out=swap)
    np.negative(swap, out=swap)
    np.bitwise_xor(even_bits, odd_bits, out=chosen)
    chosen &= swap
    odd_bits ^= chosen
    even_bits ^= chosen
    np.bitwise_and(quarter, _BIT1, out=swap)
    swap <<= _TO_SIGN
    swap ^= odd_bits  # swap is sin
    quarter += _BIT0
    quarter &= _BIT1
    quarter <<= _TO_SIGN
    quarter ^= even_bits  # quarter is cos


def _horner(coefficients: list[F64], x: F64, acc: F64, out: F32) -> None:
    """out = the polynomial at x, each step rounded to float32 once."""
    first, second, *others = coefficients
    np.multiply(x, first, out=acc)
    acc += second
    out[...] = acc
    for c in others:
        acc[...] = out
        acc *= x
        acc += c
        out[...] = acc
