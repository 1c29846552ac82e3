"""Pointwise arithmetic where NumPy's function differs from PyTorch's or is missing.

A kernel fills `out` (C-contiguous, of the result's type, overlapping no input) from arrays of its
shape or 0-d operands; parameters follow as Python numbers. Inputs come in the type in which the op
computes (integers already converted where PyTorch converts them, float16 and bfloat16 as float32).
The caller has told NumPy to ignore floating point errors. Where NumPy's ufunc does what PyTorch
does (`maximum`, `fmax`, `hypot`, `nextafter`, shifts, `gcd`, ...), the ufunc itself is the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan as is_nan, log, nan, pi
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from skimp._kernels import bare, compiled, sharing
from skimp._kernels.scratch import give, take

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
INTEGERS = "iu"
BLENDED = 1 << 12  # elements from which it is worth four calls
F = TypeVar("F", bound=Callable[..., None])
_SAME_SIZE = {n: np.dtype(f"i{n}") for n in (1, 2, 4)}


def loose(kernel: F) -> F:
    """Mark a kernel that may be given inputs of any strides, and of shapes that are broadcast to
    `out`'s, for the same bits: it reads them by ufuncs of which that is known, and all others go
    over what these have made.
    """
    kernel.loose = True  # type: ignore[attr-defined]
    return kernel


def select(mask: Mask, a: Any, b: Any, *, out: Array) -> None:
    """where(mask, a, b); small types blend their bits, which is twice as fast as np.where."""
    whole = _SAME_SIZE.get(out.itemsize)
    if whole is None or mask.size < BLENDED:
        out[...] = bare.where(mask, a, b)
        return
    if _fills(mask, a, b, out):
        return
    a, b = np.asarray(a, out.dtype).view(whole), np.asarray(b, out.dtype).view(whole)
    into = out.view(whole)
    if mask.ndim > 1 and not mask.strides[0]:
        mask = mask[:1]  # what is repeated, as one for all heads is
    large = mask.size >= _LONG
    room = take(mask.size, whole) if large else np.empty(mask.size, whole)
    bits = room.reshape(mask.shape)
    bare.negative(mask.view(np.int8), out=bits)  # all ones where the mask is set
    bare.bitwise_xor(a, b, out=into)
    bare.bitwise_and(into, bits, out=into)
    bare.bitwise_xor(into, b, out=into)
    if large:
        give(room)


def _fills(mask: Mask, value: Any, x: Any, out: Array) -> bool:
    """out = value where the mask is set, else x; whether a compiled loop did it."""
    if np.ndim(value) or np.shape(x) != out.shape:
        return False
    loops = compiled.taking(x, out)
    if loops is None:
        return False
    while mask.ndim > 1 and not mask.strides[0]:
        mask = mask[0]  # what is repeated, as one for all heads is
    if not mask.size or not mask.flags.c_contiguous:
        return False
    rows = x.reshape(-1, mask.size)
    bits, to = mask.view(np.uint8).reshape(-1), out.reshape(rows.shape)
    sharing.call(loops.filled, out.size, sharing.BRIEF, bits, value, rows, to)
    return True


def blends(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of `drop`'s scratch memory, if it is of numbers, as many as there are."""
    return _SAME_SIZE.get(dtype.itemsize, _SAME_SIZE[1])


def drop(mask: Mask, g: Array, *, out: Array, room: Array | None = None) -> None:
    """g, and zero where the mask is set (even where g is infinite or NaN there)."""
    whole = _SAME_SIZE.get(out.itemsize)
    if whole is None or mask.size < BLENDED:
        out[...] = bare.where(mask, bare.zero(out.dtype), g)
        return
    if _fills(mask, 0, g, out):
        return
    if mask.ndim > 1 and not mask.strides[0]:
        mask = mask[:1]  # likewise
    large = room is None and mask.size >= _LONG
    if room is None:
        room = take(mask.size, whole) if large else np.empty(mask.size, whole)
    bits = room.reshape(mask.shape)
    bare.subtract(mask.view(np.int8), 1, out=bits)
    bare.bitwise_and(np.asarray(g, out.dtype).view(whole), bits, out=out.view(whole))
    if large:
        give(room)


@loose
def reciprocal(x: Array, *, out: Array) -> None:
    """1 / x."""
    bare.divide(1, x, out=out)


@loose
def rsqrt(x: Array, *, out: Array) -> None:
    """1 / sqrt(x)."""
    bare.sqrt(x, out=out)
    bare.divide(1, out, out=out)


def nextafter_rounded(dtype: Any) -> Any:
    """nextafter of a narrow type that comes in a wider one."""

    def nextafter_of_narrow(a: Array, b: Any, *, out: Array) -> None:
        out[...] = np.nextafter(np.asarray(a, dtype), np.asarray(b, dtype))

    return nextafter_of_narrow


def lcm(a: Array, b: Any, *, out: Array) -> None:
    """The least common multiple, not negative where it does not overflow twice."""
    divisor = np.gcd(a, b)
    np.floor_divide(a, bare.where(divisor == 0, 1, divisor), out=out)
    bare.multiply(out, b, out=out)
    np.absolute(out, out=out)


# Powers


def power(a: Any, b: Any, *, out: Array) -> None:
    """a ** b; a Python number as exponent takes PyTorch's short cuts (x ** 0.5 is sqrt(x))."""
    if out.dtype.kind in INTEGERS:
        _integer_power(a, b, out)
    elif isinstance(b, int | float) and out.dtype.kind == "f":
        _power_of_number(a, b, out)
    else:
        np.power(a, b, out=out)


def _integer_power(a: Any, b: Any, out: Array) -> None:
    if isinstance(b, int):
        if b < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        np.power(a, np.asarray(b).astype(out.dtype), out=out)
        return
    negative = bare.less(b, 0)
    if not bare.count_nonzero(negative):
        np.power(a, b, out=out)
        return
    np.power(a, bare.where(negative, 0, b), out=out, casting="same_kind")
    # of the whole numbers only 1 and -1 have a whole inverse; PyTorch truncates the others to 0
    parity = bare.where(bare.bitwise_and(b, 1) == 0, 1, a)
    inverse = bare.where(bare.equal(a, 1) | bare.equal(a, -1), parity, 0)
    bare.copyto(out, inverse, where=negative, casting="same_kind")


def _power_of_number(x: Any, b: float, out: Array) -> None:
    if b == 0.5:
        bare.sqrt(x, out=out)
    elif b == -0.5:
        rsqrt(x, out=out)
    elif b == 2:
        bare.square(x, out=out)
    elif b == 3:
        bare.multiply(x, x, out=out)
        bare.multiply(out, x, out=out)
    elif b == -1:
        bare.divide(1, x, out=out)
    elif b == -2:
        bare.multiply(x, x, out=out)
        bare.divide(1, out, out=out)
    elif b == 1:
        out[...] = x
    else:
        np.power(x, b, out=out)


def exp2(x: Array, *, out: Array) -> None:
    """2 ** x, complex as well."""
    if out.dtype.kind == "c":
        bare.multiply(x, log(2), out=out)
        bare.exp(out, out=out)
    else:
        np.exp2(x, out=out)


def ldexp(x: Array, n: Any, *, out: Array) -> None:
    """x * 2 ** n; with a fractional type of n the power alone may overflow, as in PyTorch."""
    if np.asarray(n).dtype.kind in "biu":
        np.ldexp(x, n, out=out)
        return
    out[...] = n
    np.exp2(out, out=out)
    bare.multiply(x, out, out=out)


def frexp_mantissa(x: Array, *, out: Array) -> None:
    """The m of x = m * 2 ** e with 0.5 <= |m| < 1."""
    np.frexp(x, out, np.empty(out.shape, np.int32))


def frexp_exponent(x: Array, *, out: Array) -> None:
    """The e of x = m * 2 ** e; 0 for zeros, infinities and NaN."""
    np.frexp(x, np.empty(out.shape, np.asarray(x).dtype), out)
    bare.copyto(out, 0, where=~bare.isfinite(x))


# Signs, rounding, limits


@loose
def sign(x: Array, *, out: Array) -> None:
    """-1, 0 or 1; 0 for NaN (NumPy: NaN)."""
    if out.dtype.kind in "bu":
        bare.not_equal(x, 0, out=out)
        return
    if out.dtype.kind != "f" or out.size < BLENDED:
        bare.sign(x, out=out)
        if may_have_nan(out):
            bare.copyto(out, 0, where=bare.isnan(out))
        return
    none = bare.zero(out.dtype)
    above, below = bare.greater(x, none), bare.less(x, none)
    out[...] = bare.subtract(above.view(np.int8), below.view(np.int8))


def may_have_nan(x: Array) -> bool:
    """Whether a number may be NaN: as the sum of the squares is then, of numbers in a row."""
    if x.dtype.char not in "fd" or not x.flags.c_contiguous:
        return x.dtype.kind == "f"
    flat = x.reshape(-1)
    return is_nan(flat.dot(flat))


def sgn(x: Array, *, out: Array) -> None:
    """x / |x| of complex numbers, 0 at 0; otherwise sign."""
    if out.dtype.kind != "c":
        sign(x, out=out)
        return
    bare.divide(x, bare.absolute(x), out=out)
    bare.copyto(out, 0, where=bare.equal(x, 0))


def signbit(x: Array, *, out: Array) -> None:
    """Whether the sign bit is set: below zero for integers, never for bool."""
    if np.asarray(x).dtype.kind == "f":
        np.signbit(x, out=out)
    else:
        bare.less(x, 0, out=out)


def round(x: Array, decimals: int = 0, *, out: Array) -> None:
    """To the nearest, halves to even, after scaling by 10 ** decimals in x's own type."""
    if decimals == 0 or out.dtype.kind in INTEGERS:
        (np.positive if out.dtype.kind in INTEGERS else np.rint)(x, out=out)
        return
    scale = np.power(out.dtype.type(10), out.dtype.type(abs(decimals)))
    forth, back = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
    forth(x, scale, out=out)
    np.rint(out, out=out)
    back(out, scale, out=out)


@loose
def frac(x: Array, *, out: Array) -> None:
    """x less its whole part, with x's sign."""
    np.trunc(x, out=out)
    bare.subtract(x, out, out=out)


CLIP: Final[Any] = bare.clip and bare.ufunc(bare.clip)
_FAR: Final = 1e30
_LONG: Final = 1 << 11  # elements from which `clip` repays its dearer call


@loose
def clamp(x: Array, low: Any = None, high: Any = None, *, out: Array) -> None:
    """min(max(low, x), high): NaN in any of them gives NaN, high wins over low.

    Beside an equal number x stays, so that -0 does beside 0. NumPy's maximum and minimum are three
    to four times slower beside a number than `clip` is, whose result is the same.
    """
    if x.size >= _LONG and out.dtype.kind == "f" and _is_number(low) and _is_number(high):
        least, most = -np.inf if low is None else low, np.inf if high is None else high
        if x.size < sharing.FROM or not _held(x, least, most, out):
            x.clip(least, most, out)
        return
    if out.dtype.kind == "f":
        if type(low) is not np.ndarray and _is_plain(low):
            low = bare.number(low, out.dtype)
        if type(high) is not np.ndarray and _is_plain(high):
            high = bare.number(high, out.dtype)
        if (
            CLIP is not None
            and type(low) is type(high) is np.ndarray
            and low.ndim == 0 == high.ndim
        ):
            CLIP(x, low, high, out)
            return
    if low is not None:
        bare.maximum(low, x, out=out)
        x = out
    if high is not None:
        bare.minimum(high, x, out=out)


def _held(x: Array, low: Any, high: Any, out: Array) -> bool:
    """`clamp` between numbers that are none of NaN, by a loop; whether there is one."""
    loops = compiled.taking(x, out)
    if loops is None or x.shape != out.shape or not (low == low and high == high):
        return False
    sharing.call(loops.held, out.size, sharing.BRIEF, x.reshape(-1), low, high, out.reshape(-1))
    return True


def _is_plain(bound: Any) -> bool:
    """Whether it is a number that every type of floats but the short ones holds."""
    return type(bound) in (int, float) and -_FAR < bound < _FAR


def _is_number(bound: Any) -> bool:
    return getattr(bound, "ndim", 0) == 0  # Python's, NumPy's, 0-d, or None


@loose
def heaviside(x: Array, values: Any, *, out: Array) -> None:
    """1 above zero, `values` at zero, else 0; 0 for NaN (NumPy: NaN)."""
    none = bare.zero(x.dtype)
    bare.greater(x, none, out=out)
    bare.copyto(out, values, where=bare.equal(x, none), casting="same_kind")


@loose
def nan_to_num(
    x: Array,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    *,
    out: Array,
) -> None:
    """Numbers for NaN and the infinities: by default 0 and the limits of `out`'s type.

    For float16 and bfloat16, which arrive widened, the caller names the limits.
    """
    bare.copyto(out, x)
    kind = out.dtype.kind
    if kind not in "fc":
        return
    for part in (out.real, out.imag) if kind == "c" else (out,):
        if bare.count_nonzero(bare.isfinite(part)) < part.size:
            largest = float(np.finfo(out.dtype).max)
            high, low = part == inf, part == -inf
            bare.copyto(part, nan, where=bare.isnan(part))
            bare.copyto(part, largest if posinf is None else posinf, where=high)
            bare.copyto(part, -largest if neginf is None else neginf, where=low)


# Logarithms of sums


def _log_add(a: Any, b: Any, out: Array, exp: np.ufunc, unit: float) -> None:
    bare.subtract(a, b, out=out)
    if may_have_nan(out):
        bare.copyto(out, 0, where=bare.equal(a, b))  # two equal infinities
    bare.absolute(out, out=out)
    bare.negative(out, out=out)
    exp(out, out=out)
    bare.log1p(out, out=out)
    if unit != 1:
        bare.multiply(out, unit, out=out)
    bare.add(out, bare.maximum(a, b), out=out)


@loose
def logaddexp(a: Any, b: Any, *, out: Array) -> None:
    """log(exp(a) + exp(b)), real or complex."""
    if out.dtype.kind != "c":
        _log_add(a, b, out, bare.exp, 1)
        return
    turned = bare.less(np.real(a), np.real(b))
    larger, smaller = bare.where(turned, b, a), bare.where(turned, a, b)
    alike = bare.equal(np.real(a), np.real(b)) & np.isinf(np.real(a))
    both = None
    if alike.any():
        both = bare.log(bare.add(bare.exp(a), bare.exp(b)))
        both = bare.where(bare.less(np.real(a), 0), smaller, both)
    bare.subtract(smaller, larger, out=out)
    bare.exp(out, out=out)
    bare.log1p(out, out=out)
    bare.add(out, larger, out=out)
    if both is not None:
        bare.copyto(out, both, where=alike)
    bare.copyto(
        out, bare.literal(nan * 1j, out.dtype), where=bare.isnan(smaller) | bare.isnan(larger)
    )


@loose
def logaddexp2(a: Any, b: Any, *, out: Array) -> None:
    """log2(2 ** a + 2 ** b)."""
    _log_add(a, b, out, np.exp2, 1 / log(2))


# Three operands


@loose
def lerp(a: Array, b: Any, weight: Array, *, out: Array) -> None:
    """a + weight (b - a), from the nearer end: PyTorch's two formulas, exact at weights 0 and 1."""
    bare.subtract(b, a, out=out)
    if not weight.ndim:
        near = abs(weight.item()) < 0.5
        bare.multiply(out, weight if near else bare.subtract(1, weight), out=out)
        (np.add if near else np.subtract)(a if near else b, out, out=out)
        return
    far = bare.greater_equal(bare.absolute(weight), bare.literal(0.5, weight.dtype))
    from_b = bare.multiply(out, bare.subtract(bare.literal(1, weight.dtype), weight))
    bare.subtract(b, from_b, out=from_b)
    if out.size < BLENDED:
        bare.multiply(out, weight, out=out)
        bare.add(a, out, out=out)
        bare.copyto(out, from_b, where=far)
    else:
        from_a = bare.multiply(out, weight)
        bare.add(a, from_a, out=from_a)
        select(far, from_b, from_a, out=out)


@loose
def addcmul(x: Array, a: Any, b: Any, value: Any = 1, *, out: Array) -> None:
    """x + value * a * b."""
    if _is_one(value):
        bare.multiply(a, b, out=out)
    else:
        bare.multiply(value, a, out=out)
        bare.multiply(out, b, out=out)
    bare.add(x, out, out=out)


@loose
def addcdiv(x: Array, a: Any, b: Any, value: Any = 1, *, out: Array) -> None:
    """x + value * a / b."""
    if _is_one(value):
        bare.divide(a, b, out=out)
    else:
        bare.multiply(value, a, out=out)
        bare.divide(out, b, out=out)
    bare.add(x, out, out=out)


def _is_one(value: Any) -> bool:
    return (value.item() if type(value) is np.ndarray else value) == 1  # type: ignore[no-any-return]


# Complex numbers and angles


def angle(x: Array, *, out: Array) -> None:
    """The argument of x: pi below zero, 0 from -0.0 up, NaN for NaN."""
    if np.iscomplexobj(x):
        np.arctan2(x.imag, x.real, out=out)
        return
    bare.multiply(bare.less(x, 0), out.dtype.type(pi), out=out)
    bare.copyto(out, x, where=bare.isnan(x))


@loose
def complex(real: Array, imag: Array, *, out: Array) -> None:
    """real + i imag, no arithmetic."""
    out.real[...] = real
    out.imag[...] = imag


def polar(radius: Array, phase: Array, *, out: Array) -> None:
    """radius (cos phase + i sin phase)."""
    bare.multiply(radius, np.cos(phase), out=out.real)
    bare.multiply(radius, np.sin(phase), out=out.imag)


@loose
def deg2rad(x: Array, *, out: Array) -> None:
    """x pi / 180."""
    bare.multiply(x, pi / 180, out=out)


@loose
def rad2deg(x: Array, *, out: Array) -> None:
    """x 180 / pi."""
    bare.multiply(x, 180 / pi, out=out)


# Tests


@loose
def isposinf(x: Array, *, out: Array) -> None:
    """Whether x is +inf."""
    bare.equal(x, inf, out=out)


@loose
def isneginf(x: Array, *, out: Array) -> None:
    """Whether x is -inf."""
    bare.equal(x, -inf, out=out)


def isreal(x: Array, *, out: Array) -> None:
    """Whether the imaginary part is 0."""
    bare.equal(np.imag(x), 0, out=out)


def larger_backward(g: Array, x: Array, y: Array, *, out: Array) -> None:
    """g where x is larger than y, half of it where they are equal, else 0."""
    _shared(g, bare.equal(x, y), bare.less(x, y), out)


def smaller_backward(g: Array, x: Array, y: Array, *, out: Array) -> None:
    """g where x is smaller than y, half of it where they are equal, else 0."""
    _shared(g, bare.equal(x, y), bare.greater(x, y), out)


def _shared(g: Array, equal: Mask, loses: Mask, out: Array) -> None:
    half = bare.multiply(g, bare.number(0.5, g.dtype))
    select(loses, bare.zero(out.dtype), bare.where(equal, half, g), out=out)
