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
_LOG: Final = tuple(
    float(_f(c))
    for c in (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    )
)  # fmt: skip
_SIN: Final = tuple(float(_f(c)) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
_COS: Final = tuple(
    float(_f(c)) for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
)
_LN2_LOW: Final = _f(-2.12194440e-4)
_LN2_HIGH: Final = _f(0.693359375)
# pi/4 in three parts, of which the kernel subtracts one after the other; the first two steps
# are exact there, and so is all of it in float64.
_QUARTER: Final = sum(
    float(_f(c)) for c in (0.78515625, 2.4187564849853515625e-4, 3.77489497744594108e-8)
)
_FOUR_OVER_PI: Final = _f(1.27323954473516)
_STEP: Final = _f(_f(2 * np.pi) * _f(2.0**-24))  # the angle of one step of a 24-bit uniform
_MANTISSA: Final = 0x7FFFFF
_SQRT_HALF: Final = 0x3F3504F3  # the bits of sqrt(0.5)
_UPPER: Final = np.uint32(0xFF000000)
_LOWER: Final = np.uint32(0x00FFFFFF)


class Scratch:
    """Working memory for one thread."""

    __slots__ = ("doubles", "singles")

    def __init__(self, pairs: int) -> None:
        size = min(pairs, BLOCK)
        self.singles = np.empty((5, size), np.float32)
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
    x, y, z, e = scratch.singles[:4, :n]
    wide, acc = scratch.doubles[:2, :n]
    bits = x.view(np.int32)
    exponent = z.view(np.int32)
    steps = out.view(np.uint32)

    # 1 - u = (2**24 - low bits) / 2**24 = (1 + x) * 2**e with sqrt(1/2) <= 1 + x < sqrt(2)
    np.bitwise_or(words, _UPPER, out=steps)
    np.negative(steps, out=steps)
    x[...] = steps.view(np.int32)
    bits -= _SQRT_HALF
    np.right_shift(bits, 23, out=exponent)
    exponent -= 24
    e[...] = exponent
    bits &= _MANTISSA
    bits += _SQRT_HALF
    x -= _f(1)

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
    z *= _f(0.5)
    y -= z
    x += y
    e *= _LN2_HIGH
    x += e
    x *= _f(-2)
    np.sqrt(x, out=out)


def cos_sin(words: NDArray[np.uint32], cos: F32, sin: F32, scratch: Scratch) -> None:
    """The cosine and sine of 2 pi u, u the uniform of each word's low 24 bits."""
    n = words.size
    x, z, even, odd, swap_ = scratch.singles[:, :n]
    wide, acc, square = scratch.doubles[:, :n]
    swap = swap_.view(np.int32)
    octant = cos.view(np.int32)
    steps = sin.view(np.uint32)

    np.bitwise_and(words, _LOWER, out=steps)
    x[...] = steps.view(np.int32)
    x *= _STEP
    np.multiply(x, _FOUR_OVER_PI, out=z)
    octant[...] = z
    octant += 1
    octant &= -2
    acc[...] = octant
    acc *= _QUARTER
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
    square *= 0.5
    acc -= square
    even[...] = acc
    even += _f(1)

    # octant is 0, 2, 4, 6 or 8; where its bit 1 is set the polynomials change places
    even_bits, odd_bits, chosen = even.view(np.int32), odd.view(np.int32), x.view(np.int32)
    np.bitwise_and(octant, 2, out=swap)
    swap -= 1
    swap >>= 1
    np.bitwise_xor(even_bits, odd_bits, out=chosen)
    chosen &= swap
    np.bitwise_and(octant, 4, out=swap)
    swap <<= 29
    np.bitwise_xor(even_bits, chosen, out=sin.view(np.int32))
    np.bitwise_xor(sin.view(np.int32), swap, out=sin.view(np.int32))
    octant += 2
    octant &= 4
    octant <<= 29
    odd_bits ^= chosen
    octant ^= odd_bits  # octant is cos


def _horner(coefficients: tuple[float, ...], x: F64, acc: F64, out: F32) -> None:
    """out = the polynomial at x, each step rounded to float32 once."""
    np.multiply(x, coefficients[0], out=acc)
    acc += coefficients[1]
    out[...] = acc
    for c in coefficients[2:]:
        acc[...] = out
        acc *= x
        acc += c
        out[...] = acc
