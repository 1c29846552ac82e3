"""Activations and their derivatives, each fused over one block.

The kernels' contract is that of `pointwise`. A `name_backward(g, x)` gives the gradient of the
input from that of the result; where it needs the result instead of the input, its argument is y.
"""

from __future__ import annotations

from functools import partial
from math import inf, nan, pi, sqrt
from typing import Any, Final

import numpy as np

from skimp._kernels import bare, compiled, elementwise_onednn, sharing
from skimp._kernels.elementwise_onednn import GELU, GELU_TANH
from skimp._kernels.pieces import in_pieces, rooms_of
from skimp._kernels.pointwise import BLENDED, Array, blends, clamp, drop, loose, select
from skimp._kernels.powers import POWER, UNIT
from skimp._kernels.scratch import give, giving
from skimp._kernels.special.erf import erf
from skimp._kernels.threads import Call

_SQRT1_2 = sqrt(0.5)
# numbers as arrays: a ufunc takes half a microsecond longer to see what a Python number is
_ZERO: Final = {char: np.zeros((), char) for char in "fd"}
_ONE: Final = {char: np.ones((), char) for char in "fd"}
_HALF: Final = {char: np.array(0.5, char) for char in "fd"}
_INTEGERS: Final = {c: np.dtype(f"i{np.dtype(c).itemsize}") for c in "efd"}  # as long as floats
_SIGNS: Final = {bits: np.array(np.iinfo(bits).min, bits) for bits in _INTEGERS.values()}
_BOOL: Final = np.dtype(np.bool_)
_BITS: Final = np.dtype(np.int32)
_PIECE: Final = 1 << 17  # elements: twenty passes over them stay in the cache
_SMALL: Final = 1 << 14  # elements up to which a fresh array costs less than one from the scratch
_TANH_SCALE, _TANH_CUBE = sqrt(2 / pi), 0.044715  # of the tanh approximation to GELU
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
_MISH_FLAT = 20.0  # tanh(softplus(x)) is 1 from here on, in every type


def _like(x: Array) -> Array:
    return np.empty(np.shape(x), np.asarray(x).dtype)


def _one(like: Array) -> Any:
    return _ONE.get(like.dtype.char, 1)


def _half(like: Array) -> Any:
    return _HALF.get(like.dtype.char, 0.5)


# Rectifiers


def threshold_calls(g: Array, x: Array, at: float = 0.0, *, out: Array) -> list[Call]:
    """What `threshold_backward` does, as calls of C; none where it is not of float32."""
    if not out.dtype.char == g.dtype.char == x.dtype.char == "f":
        return []
    if (found := _passing(g, x, at, nan, out)) is not None:
        return [sharing.as_call(*found)]
    made: list[Call] = []
    used = rooms_of((g, x, out), 2 * _PIECE, _BITS, _BOOL)
    for some, one, to in in_pieces(g, x, out, length=used[0].size):
        bits, mask = [room[: to.size].reshape(to.shape) for room in used]
        made += [
            (partial(np.less_equal, one, at, out=mask),),
            (partial(np.subtract, mask.view(np.int8), 1, out=bits),),
            (partial(np.bitwise_and, some.view(_BITS), bits, out=to.view(_BITS)),),
        ]
    return made + giving(used[0])


def relu(x: Array, *, out: Array) -> None:
    """x clamped from below to 0: NaN stays, and so does -0."""
    if x.size > _SMALL:
        clamp(x, 0, out=out)
    else:
        bare.maximum(_ZERO.get(x.dtype.char, 0), x, out=out)


@loose
def hardtanh(x: Array, low: float = -1.0, high: float = 1.0, *, out: Array) -> None:
    """x clamped to [low, high]."""
    clamp(x, low, high, out=out)


def hardtanh_backward(
    g: Array, x: Array, low: float = -1.0, high: float = 1.0, *, out: Array
) -> None:
    """g strictly inside (low, high), and for NaN."""
    if out.size <= _SMALL:
        drop(bare.less_equal(x, low) | bare.greater_equal(x, high), g, out=out)
        return
    drop_outside(g, x, low, high, out=out)


def drop_outside(g: Array, x: Array, low: float, high: float | None = None, *, out: Array) -> None:
    """g where x is above `low`, and below `high` if there is one, and for NaN; else 0."""
    if (found := _passing(g, x, low, nan if high is None else high, out)) is not None:
        sharing.call(*found)
        return
    used = rooms_of((g, x, out), 2 * _PIECE, blends(out.dtype), _BOOL, _BOOL)
    for some, one, to in in_pieces(g, x, out, length=used[0].size):
        bits, mask, above = [room[: to.size].reshape(to.shape) for room in used]
        bare.less_equal(one, low, out=mask)
        if high is not None:
            bare.logical_or(mask, bare.greater_equal(one, high, out=above), out=mask)
        drop(mask, some, out=to, room=bits)
    give(used[0])


def _passing(g: Array, x: Array, low: float, high: float, out: Array) -> tuple[Any, ...] | None:
    """The loop of `drop_outside` with what `sharing` is told of it, of float32 that lies alike."""
    loops = compiled.taking(g, x, out)
    if loops is None or not g.shape == x.shape == out.shape:
        return None
    runs = g.reshape(-1), x.reshape(-1), low, high, out.reshape(-1)
    return loops.passed, out.size, sharing.BRIEF, *runs


def threshold(x: Array, at: float, value: float, *, out: Array) -> None:
    """x above `at`, else `value`; NaN stays."""
    select(bare.less_equal(x, at), value, x, out=out)


def threshold_backward(g: Array, x: Array, at: float = 0.0, *, out: Array) -> None:
    """g where x is above `at`; with at=0 the derivative of relu, of its input or its result."""
    if out.size <= _SMALL:
        drop(bare.less_equal(x, at), g, out=out)
        return
    drop_outside(g, x, at, out=out)


def leaky_relu(x: Array, slope: Any = 0.01, *, out: Array) -> None:
    """x above zero, else slope * x; an array as slope makes it prelu."""
    if isinstance(slope, int | float) and 0 < slope <= 1:
        bare.multiply(x, slope, out=out)
        bare.maximum(x, out, out=out)
    else:
        select(bare.greater(x, 0), x, bare.multiply(x, slope), out=out)


def leaky_relu_backward(g: Array, x: Array, slope: Any = 0.01, *, out: Array) -> None:
    """g above zero, else slope * g."""
    if out.dtype.char not in "fd" or not isinstance(slope, int | float) or not 0 <= slope <= 1:
        select(bare.greater(x, 0), g, bare.multiply(g, slope), out=out)
        return
    (room,) = rooms_of((g, x, out), _PIECE, out.dtype)
    for some, one, to in in_pieces(g, x, out, length=room.size):
        factor = room[: to.size].reshape(to.shape)
        factor[...] = bare.greater(one, 0)
        bare.maximum(factor, slope, out=factor)
        bare.multiply(some, factor, out=to)
    give(room)


@loose
def prelu(x: Array, weight: Array, *, out: Array) -> None:
    """x above zero, else weight * x, whose shape is broadcast to x's."""
    if _are_slopes(weight, out):
        bare.multiply(x, weight, out=out)
        bare.maximum(x, out, out=out)
    else:
        select(bare.greater(x, bare.zero(x.dtype)), x, bare.multiply(x, weight), out=out)


def _are_slopes(weight: Array, out: Array) -> bool:
    """Whether few weights are known to lie above 0 and up to 1: then the larger of x and its
    product with them is what they make of it."""
    if weight.size == 1:
        return bool(0 < weight.item() <= 1)
    if out.size < BLENDED or weight.size * 8 > out.size:
        return False
    return bool(np.minimum.reduce(weight, None) > 0 and np.maximum.reduce(weight, None) <= 1)


def prelu_weight_backward(g: Array, x: Array, *, out: Array) -> None:
    """The weight's gradient before it is summed: g * x where x is not above zero."""
    drop(bare.greater(x, 0), bare.multiply(g, x), out=out)


# Shrinkers


def hardshrink(x: Array, size: float = 0.5, *, out: Array) -> None:
    """x outside [-size, size], else 0."""
    drop(bare.less_equal(bare.absolute(x), size), x, out=out)


@loose
def softshrink(x: Array, size: float = 0.5, *, out: Array) -> None:
    """x moved towards zero by `size`, and 0 within it."""
    bare.subtract(x, bare.minimum(bare.maximum(x, -size), size), out=out)


def shrink_backward(g: Array, x: Array, size: float = 0.5, *, out: Array) -> None:
    """g outside [-size, size]: of hardshrink and of softshrink."""
    drop(bare.less_equal(bare.absolute(x), size), g, out=out)


# The sigmoid's family


@loose
def sigmoid(x: Array, *, out: Array) -> None:
    """1 / (1 + exp(-x)); an exp that overflows gives the right 0."""
    one = _ONE.get(x.dtype.char, 1)
    bare.exp(bare.negative(x, out), out)
    bare.add(out, one, out)
    bare.divide(one, out, out)


@loose
def sigmoid_backward(g: Array, y: Array, *, out: Array) -> None:
    """g y (1 - y), conjugated for complex y."""
    if y.dtype.kind == "c":
        y = np.conj(y)
    bare.subtract(_ONE.get(out.dtype.char, 1), y, out=out)
    bare.multiply(out, y, out=out)
    bare.multiply(g, out, out=out)


@loose
def tanh_backward(g: Array, y: Array, *, out: Array) -> None:
    """g (1 - y**2), conjugated for complex y."""
    if y.dtype.kind == "c":
        y = np.conj(y)
    bare.multiply(y, y, out=out)
    bare.subtract(_ONE.get(out.dtype.char, 1), out, out=out)
    bare.multiply(g, out, out=out)


@loose
def logsigmoid(x: Array, *, out: Array) -> None:
    """log(sigmoid(x)) without overflow."""
    bare.absolute(x, out=out)
    bare.negative(out, out=out)
    bare.exp(out, out=out)
    bare.log1p(out, out=out)
    bare.subtract(bare.minimum(x, bare.zero(x.dtype)), out, out=out)


def logsigmoid_backward(g: Array, x: Array, *, out: Array) -> None:
    """g sigmoid(-x)."""
    bare.exp(x, out=out)
    bare.add(out, _one(out), out=out)
    bare.divide(g, out, out=out)


def logit_backward(g: Array, x: Array, eps: float | None = None, *, out: Array) -> None:
    """g / (x (1 - x)); outside [0, 1] NaN, or with eps 0 outside [eps, 1 - eps]."""
    bare.subtract(_one(out), x, out=out)
    bare.multiply(out, x, out=out)
    bare.divide(g, out, out=out)
    low, value = (0.0, np.nan) if eps is None else (eps, 0.0)
    bare.copyto(out, value, where=bare.less(x, low) | bare.greater(x, 1 - low))


@loose
def silu(x: Array, *, out: Array) -> None:
    """x sigmoid(x)."""
    bare.negative(x, out=out)
    bare.exp(out, out=out)
    bare.add(out, _one(out), out=out)
    bare.divide(x, out, out=out)


@loose
def silu_backward(g: Array, x: Array, *, out: Array) -> None:
    """g s (1 + x (1 - s)), s = sigmoid(x); real only, as in PyTorch."""
    s = _like(x)
    sigmoid(x, out=s)
    bare.subtract(_one(out), s, out=out)
    bare.multiply(out, x, out=out)
    bare.add(out, _one(out), out=out)
    bare.multiply(out, s, out=out)
    bare.multiply(g, out, out=out)


@loose
def glu(x: Array, gate: Array, *, out: Array) -> None:
    """x sigmoid(gate)."""
    sigmoid(gate, out=out)
    bare.multiply(x, out, out=out)


@loose
def glu_gate_backward(g: Array, x: Array, gate: Array, *, out: Array) -> None:
    """The gate's gradient: g x s (1 - s), s = sigmoid(gate)."""
    s = _like(gate)
    sigmoid(gate, out=s)
    bare.subtract(_one(out), s, out=out)
    bare.multiply(out, s, out=out)
    bare.multiply(out, x, out=out)
    bare.multiply(g, out, out=out)


@loose
def hardsigmoid(x: Array, *, out: Array) -> None:
    """(x + 3) / 6 clamped to [0, 1]."""
    six = bare.literal(6, out.dtype)
    bare.add(x, bare.literal(3, out.dtype), out=out)
    clamp(out, bare.zero(out.dtype), six, out=out)
    bare.divide(out, six, out=out)


def hardsigmoid_backward(g: Array, x: Array, *, out: Array) -> None:
    """g / 6 inside (-3, 3)."""
    drop(bare.logical_not(bare.less(bare.absolute(x), 3)), bare.multiply(g, 1 / 6), out=out)


@loose
def hardswish(x: Array, *, out: Array) -> None:
    """x hardsigmoid(x)."""
    six = bare.literal(6, out.dtype)
    bare.add(x, bare.literal(3, out.dtype), out=out)
    clamp(out, bare.zero(out.dtype), six, out=out)
    bare.multiply(x, out, out=out)
    bare.divide(out, six, out=out)


@loose
def hardswish_backward(g: Array, x: Array, *, out: Array) -> None:
    """g (x / 3 + 1/2) inside (-3, 3), 0 below and g above."""
    bare.multiply(x, 1 / 3, out=out)
    bare.add(out, 0.5, out=out)
    bare.multiply(g, out, out=out)
    bare.copyto(out, g, where=bare.greater_equal(x, 3))
    bare.copyto(out, 0, where=bare.less_equal(x, -3))


# GELU


# -logit(Phi(x)) / x as a polynomial in x**2, Phi the normal distribution: fitted so that x Phi(x)
# is within 1.9e-7 of itself right of 0, within 1.5e-7 everywhere; the last term wins for large x.
_PHI: Final = tuple(UNIT * c for c in (
    -1.59576968e00, -7.26669486e-02, 6.59746197e-05, 1.10305799e-04, -7.87649134e-06,
    2.60500067e-07, -3.40397281e-09,
))  # fmt: skip


def _over_phi(x: Array, square: Array, out: Array) -> None:
    """out = 1 / Phi(x) = 1 + exp(-logit(Phi(x))) in float32; `square` is left with x**2."""
    bare.multiply(x, x, out=square)
    bare.multiply(square, _PHI[-1], out=out)
    for c in _PHI[-2:0:-1]:
        bare.add(out, c, out=out)
        bare.multiply(out, square, out=out)
    bare.add(out, _PHI[0], out=out)
    bare.multiply(out, x, out=out)
    POWER(out, out=out)
    bare.add(out, _one(out), out=out)


def gelu(x: Array, *, out: Array) -> None:
    """x Phi(x), Phi the distribution function of the standard normal."""
    if elementwise_onednn.forward(GELU, x, out):
        return
    if out.dtype == np.float32:
        (room,) = rooms_of((x, out), _PIECE, out.dtype)
        for one, to in in_pieces(x, out, length=room.size):
            _over_phi(one, room[: to.size].reshape(to.shape), to)
            bare.divide(one, to, out=to)
        give(room)
        return
    erf(bare.multiply(x, _SQRT1_2), out=out)
    bare.add(out, _one(out), out=out)
    bare.multiply(out, x, out=out)
    bare.multiply(out, _half(out), out=out)


def gelu_backward(g: Array, x: Array, *, out: Array) -> None:
    """g (Phi(x) + x phi(x)), the normal's distribution and density."""
    if elementwise_onednn.backward(GELU, g, x, out):
        return
    (room,) = rooms_of((g, x, out), _PIECE, out.dtype)
    for some, one, to in in_pieces(g, x, out, length=room.size):
        _gelu_backward(some, one, room[: to.size].reshape(to.shape), to)
    give(room)


def _gelu_backward(g: Array, x: Array, density: Array, out: Array) -> None:
    if out.dtype == np.float32:
        _over_phi(x, density, out)
        bare.divide(_one(out), out, out=out)
    else:
        erf(bare.multiply(x, _SQRT1_2), out=out)
        bare.add(out, _one(out), out=out)
        bare.multiply(out, _half(out), out=out)
        bare.multiply(x, x, out=density)
    bare.multiply(density, -0.5 * UNIT, out=density)
    POWER(density, out=density)
    bare.multiply(density, x, out=density)
    bare.multiply(density, 1 / sqrt(2 * pi), out=density)
    bare.add(out, density, out=out)
    bare.multiply(g, out, out=out)


def _gelu_tanh(x: Array, out: Array) -> None:
    bare.multiply(x, x, out=out)
    bare.multiply(out, _TANH_CUBE * _TANH_SCALE, out=out)
    bare.add(out, _TANH_SCALE, out=out)
    bare.multiply(out, x, out=out)
    bare.tanh(out, out=out)


def gelu_tanh(x: Array, *, out: Array) -> None:
    """GELU by its tanh approximation."""
    if elementwise_onednn.forward(GELU_TANH, x, out):
        return
    _gelu_tanh(x, out)
    bare.add(out, _one(out), out=out)
    bare.multiply(out, x, out=out)
    bare.multiply(out, _half(out), out=out)


def gelu_tanh_backward(g: Array, x: Array, *, out: Array) -> None:
    """g/2 ((1 + t) + x (1 - t**2) u'), t = tanh(u) the approximation's."""
    if elementwise_onednn.backward(GELU_TANH, g, x, out):
        return
    t = _like(x)
    _gelu_tanh(x, t)
    bare.multiply(x, x, out=out)
    bare.multiply(out, 3 * _TANH_CUBE * _TANH_SCALE, out=out)
    bare.add(out, _TANH_SCALE, out=out)
    bare.multiply(out, x, out=out)
    bare.multiply(out, bare.subtract(1, bare.multiply(t, t)), out=out)
    bare.add(out, t, out=out)
    bare.add(out, _one(out), out=out)
    bare.multiply(out, _half(out), out=out)
    bare.multiply(g, out, out=out)


# Softplus, ELU, mish


def softplus(x: Array, beta: float = 1.0, at: float = 20.0, *, out: Array) -> None:
    """log(1 + exp(beta x)) / beta, and x where beta x is above `at`."""
    z = bare.multiply(x, beta) if beta != 1 else x
    y = bare.log1p(bare.exp(z))
    if beta != 1:
        y = bare.divide(y, beta)
    select(bare.greater(z, at), x, y, out=out)


def softplus_backward(
    g: Array, x: Array, beta: float = 1.0, at: float = 20.0, *, out: Array
) -> None:
    """g sigmoid(beta x), and g where beta x is above `at`."""
    z = bare.multiply(x, beta) if beta != 1 else x
    y = bare.exp(bare.negative(z))
    y = bare.divide(g, bare.add(y, 1))
    select(bare.greater(z, at), g, y, out=out)


def elu(
    x: Array, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0, *, out: Array
) -> None:
    """scale x above zero, else scale alpha (exp(input_scale x) - 1)."""
    bits, x = _INTEGERS[out.dtype.char], np.asarray(x, out.dtype)
    # as integers all that has the sign bit is below zero: -0 too, which stays
    bare.minimum(x.view(bits), bare.zero(bits), out=out.view(bits))
    if input_scale != 1:
        bare.multiply(out, input_scale, out=out)
    bare.expm1(out, out=out)
    if alpha * scale != 1:
        bare.multiply(out, alpha * scale, out=out)
    if scale == input_scale == 1 and 0 < alpha <= 1:
        bare.maximum(x, out, out=out)  # the curve lies above its tangent at 0
        return
    if not (0 < alpha * scale < inf and scale > 0 and input_scale > 0):
        select(bare.less(x, 0), out, bare.multiply(x, scale), out=out)
        return
    right = np.asarray(bare.maximum(x, bare.zero(out.dtype)))  # of no dims a number otherwise
    bare.add(out, right if scale == 1 else bare.multiply(right, scale, out=right), out=out)
    if out.size < BLENDED:  # the sum of a zero and -0 is 0
        bare.copysign(out, x, out=out)
        return
    sign = bare.bitwise_and(x.view(bits), _SIGNS[bits])
    bare.bitwise_or(out.view(bits), sign, out=out.view(bits))


def elu_backward(
    g: Array,
    x: Array,
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
    *,
    out: Array,
) -> None:
    """From the input: g scale above zero, else g scale alpha input_scale exp(input_scale x)."""
    left = bare.exp(bare.multiply(x, input_scale))
    left = bare.multiply(left, bare.multiply(g, alpha * scale * input_scale))
    select(bare.less_equal(x, 0), left, bare.multiply(g, scale), out=out)


def elu_backward_of_result(
    g: Array,
    y: Array,
    alpha: float = 1.0,
    scale: float = 1.0,
    input_scale: float = 1.0,
    *,
    out: Array,
) -> None:
    """From the result: g scale above zero, else g input_scale (y + scale alpha)."""
    left = bare.multiply(bare.add(y, alpha * scale), bare.multiply(g, input_scale))
    select(bare.less_equal(y, 0), left, bare.multiply(g, scale), out=out)


def _tanh_softplus(x: Array, out: Array) -> None:
    """tanh(log(1 + e)) = n / (n + 2), where e = exp(x), n = e (e + 2)."""
    bare.minimum(x, _MISH_FLAT, out=out)
    bare.exp(out, out=out)
    two = bare.literal(2, out.dtype)
    n = bare.add(out, two)
    n = bare.multiply(n, out)
    bare.divide(n, bare.add(n, two), out=out)


@loose
def mish(x: Array, *, out: Array) -> None:
    """x tanh(softplus(x))."""
    _tanh_softplus(x, out)
    bare.multiply(out, x, out=out)


@loose
def mish_backward(g: Array, x: Array, *, out: Array) -> None:
    """g (t + x sigmoid(x) (1 - t**2)), t = tanh(softplus(x))."""
    t = _like(x)
    _tanh_softplus(x, t)
    silu(x, out=out)
    bare.multiply(out, bare.subtract(1, bare.multiply(t, t)), out=out)
    bare.add(out, t, out=out)
    bare.multiply(g, out, out=out)
