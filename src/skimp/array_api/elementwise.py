"""One number in, one number out: the standard's element-wise functions.

As the standard asks, and unlike PyTorch, either argument of a function of two may be a number, and
a tensor without dimensions counts as much as any other when the types are promoted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import skimp as torch
from skimp import Tensor
from skimp.array_api.types import alike


def _one(name: str, of: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor, /) -> Tensor:
        result: Tensor = of(x)
        return result

    _name(function, name, of)
    return function


def _two(name: str, of: Callable[..., Any]) -> Callable[[Any, Any], Tensor]:
    def function(x1: Any, x2: Any, /) -> Tensor:
        result: Tensor = of(*alike(x1, x2))
        return result

    _name(function, name, of)
    return function


def _name(function: Any, name: str, of: Callable[..., Any]) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = of.__doc__


def _imag(x: Tensor) -> Tensor:
    return torch.imag(x) if x.is_complex() else torch.zeros_like(x)


def _round(x: Tensor) -> Tensor:
    """To the nearest integer, halves to the even one; parts of a complex number separately."""
    if not x.is_complex():
        return torch.round(x)
    return torch.complex(torch.round(x.real), torch.round(x.imag))


def _sign(x: Tensor) -> Tensor:
    """-1, 0 or 1, NaN of NaN (PyTorch: 0); x / |x| of complex numbers."""
    sign = torch.sgn(x)
    return torch.where(torch.isnan(x), x, sign) if x.is_floating_point() else sign


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Values between bounds, of the type of `x`. Bounds are tensors or numbers."""
    low, high = (
        bound
        if bound is None or isinstance(bound, Tensor)
        else torch.full((), bound, dtype=x.dtype)
        for bound in (min, max)
    )
    if low is None and high is None:
        return x.clone()
    return torch.clamp(x, low, high).to(x.dtype)


abs = _one("abs", torch.abs)
acos = _one("acos", torch.acos)
acosh = _one("acosh", torch.acosh)
asin = _one("asin", torch.asin)
asinh = _one("asinh", torch.asinh)
atan = _one("atan", torch.atan)
atanh = _one("atanh", torch.atanh)
bitwise_invert = _one("bitwise_invert", torch.bitwise_not)
ceil = _one("ceil", torch.ceil)
# computed: DLPack refuses a tensor that is only marked as conjugate
conj = _one("conj", torch.conj_physical)
cos = _one("cos", torch.cos)
cosh = _one("cosh", torch.cosh)
exp = _one("exp", torch.exp)
expm1 = _one("expm1", torch.expm1)
floor = _one("floor", torch.floor)
imag = _one("imag", _imag)
isfinite = _one("isfinite", torch.isfinite)
isinf = _one("isinf", torch.isinf)
isnan = _one("isnan", torch.isnan)
log = _one("log", torch.log)
log10 = _one("log10", torch.log10)
log1p = _one("log1p", torch.log1p)
log2 = _one("log2", torch.log2)
logical_not = _one("logical_not", torch.logical_not)
negative = _one("negative", torch.negative)
positive = _one("positive", torch.positive)
real = _one("real", torch.real)
reciprocal = _one("reciprocal", torch.reciprocal)
round = _one("round", _round)
sign = _one("sign", _sign)
signbit = _one("signbit", torch.signbit)
sin = _one("sin", torch.sin)
sinh = _one("sinh", torch.sinh)
sqrt = _one("sqrt", torch.sqrt)
square = _one("square", torch.square)
tan = _one("tan", torch.tan)
tanh = _one("tanh", torch.tanh)
trunc = _one("trunc", torch.trunc)

add = _two("add", torch.add)
atan2 = _two("atan2", torch.atan2)
bitwise_and = _two("bitwise_and", torch.bitwise_and)
bitwise_left_shift = _two("bitwise_left_shift", torch.bitwise_left_shift)
bitwise_or = _two("bitwise_or", torch.bitwise_or)
bitwise_right_shift = _two("bitwise_right_shift", torch.bitwise_right_shift)
bitwise_xor = _two("bitwise_xor", torch.bitwise_xor)
copysign = _two("copysign", torch.copysign)
divide = _two("divide", torch.divide)
equal = _two("equal", torch.eq)
floor_divide = _two("floor_divide", torch.floor_divide)
greater = _two("greater", torch.gt)
greater_equal = _two("greater_equal", torch.ge)
hypot = _two("hypot", torch.hypot)
less = _two("less", torch.lt)
less_equal = _two("less_equal", torch.le)
logaddexp = _two("logaddexp", torch.logaddexp)
logical_and = _two("logical_and", torch.logical_and)
logical_or = _two("logical_or", torch.logical_or)
logical_xor = _two("logical_xor", torch.logical_xor)
maximum = _two("maximum", torch.maximum)
minimum = _two("minimum", torch.minimum)
multiply = _two("multiply", torch.multiply)
nextafter = _two("nextafter", torch.nextafter)
not_equal = _two("not_equal", torch.ne)
pow = _two("pow", torch.pow)
remainder = _two("remainder", torch.remainder)
subtract = _two("subtract", torch.subtract)
