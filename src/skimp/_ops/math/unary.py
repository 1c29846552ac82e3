"""Functions of one number: powers and logarithms, trigonometry, rounding, signs, angles."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log, pi
from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.bodies import pointwise
from skimp._engine.dispatch.forms import export, general
from skimp._engine.dispatch.operands import require_tensor
from skimp._engine.dispatch.operators import attach
from skimp._engine.dispatch.pointwise import Pointwise, Refused, call
from skimp._engine.dispatch.pointwise_forms import unary
from skimp._engine.dispatch.result_types import common, real_valued, same
from skimp._engine.dispatch.rows import (
    BOOL,
    COMPLEX,
    FLOAT,
    INT,
    conj,
    formula_of,
    unary_row,
    zeros,
)
from skimp._engine.dispatch.settled import Run
from skimp._engine.eval.expr import COPY
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.finfo import finfo
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import activation as A, bare, pointwise as K
from skimp._ops import batching, return_types
from skimp._ops.index.masks import where
from skimp._ops.meta import shapes
from skimp._ops.shape.complex_views import real

_row = partial(unary_row, foreach=1)
_zero_row = partial(_row, sparse="values")  # 0 stays 0

# -- exponentials, logarithms, roots --------------------------------------------------------------

exp = _row("exp", bare.EXP, lambda g, result: g * conj(result), doc="e to the power of input.")
unary_row(
    "exp2",
    {FLOAT: K.exp2, COMPLEX: K.exp2},
    lambda g, result: g * conj(result) * log(2),
    namespaces=("", "special"),
    doc="2 to the power of input.",
)
_zero_row(
    "expm1",
    np.expm1,
    lambda g, result: g * (conj(result) + 1),
    namespaces=("", "special"),
    doc="exp(input) - 1, exact near 0.",
)
_row("log", np.log, lambda g, input: g / conj(input), doc="The natural logarithm.")
_row("log2", np.log2, lambda g, input: g / (conj(input) * log(2)), doc="The logarithm to base 2.")
_row(
    "log10", np.log10, lambda g, input: g / (conj(input) * log(10)), doc="The logarithm to base 10."
)
_zero_row(
    "log1p",
    np.log1p,
    lambda g, input: g / conj(input + 1),
    namespaces=("", "special"),
    doc="log(1 + input), exact near 0.",
)
_zero_row("sqrt", np.sqrt, lambda g, result: g / (2 * conj(result)), doc="The square root.")
_row("rsqrt", K.rsqrt, lambda g, result: -0.5 * g * conj(result.pow(3)), doc="1 / sqrt(input).")
_row("reciprocal", K.reciprocal, lambda g, result: -g * conj(result * result), doc="1 / input.")


def _squared(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    d = args[0]._dtype
    return (dtypes.int64, dtypes.int64) if d is dtypes.bool else (d, d)


unary_row(
    "square",
    np.square,
    lambda g, input: g * conj(2 * input),
    types=_squared,
    node="PowBackward0",
    doc="input * input.",
)

# -- trigonometry ---------------------------------------------------------------------------------

_zero_row("sin", np.sin, lambda g, input: g * conj(input.cos()), doc="The sine.")
_row("cos", np.cos, lambda g, input: g * conj(-input.sin()), doc="The cosine.")
_zero_row("tan", np.tan, lambda g, result: g * conj(result * result + 1), doc="The tangent.")
_zero_row("sinh", np.sinh, lambda g, input: g * conj(input.cosh()), doc="The hyperbolic sine.")
_row("cosh", np.cosh, lambda g, input: g * conj(input.sinh()), doc="The hyperbolic cosine.")
_zero_row(
    "asin",
    np.arcsin,
    lambda g, input: g * conj((1 - input * input).rsqrt()),
    aliases=("arcsin",),
    doc="The inverse sine.",
)
_row(
    "acos",
    np.arccos,
    lambda g, input: g * -conj((1 - input * input).rsqrt()),
    aliases=("arccos",),
    doc="The inverse cosine.",
)
_zero_row(
    "atan",
    np.arctan,
    lambda g, input: g / conj(input * input + 1),
    aliases=("arctan",),
    doc="The inverse tangent.",
)
unary_row(
    "asinh",
    np.arcsinh,
    lambda g, input: g * conj((input * input + 1).rsqrt()),
    aliases=("arcsinh",),
    doc="The inverse hyperbolic sine.",
    sparse="values",
)
unary_row(
    "atanh",
    np.arctanh,
    lambda g, input: g / conj(1 - input * input),
    aliases=("arctanh",),
    doc="The inverse hyperbolic tangent.",
    sparse="values",
)


def _acosh_back(g: Tensor, input: Tensor) -> Any:
    if input._dtype.is_complex:
        return g * conj((input - 1).rsqrt() * (input + 1).rsqrt())
    return g * (input * input - 1).rsqrt()


unary_row(
    "acosh", np.arccosh, _acosh_back, aliases=("arccosh",), doc="The inverse hyperbolic cosine."
)


def _no_complex(name: str) -> Refused:
    return Refused(RuntimeError, f"{name} is not supported for complex tensors.")


unary_row(
    "deg2rad",
    {FLOAT: K.deg2rad, COMPLEX: _no_complex("deg2rad")},
    lambda g: g * (pi / 180),
    doc="Degrees to radians.",
    sparse="values",
)
unary_row(
    "rad2deg",
    {FLOAT: K.rad2deg, COMPLEX: _no_complex("rad2deg")},
    lambda g: g * (180 / pi),
    doc="Radians to degrees.",
    sparse="values",
)

# -- tanh, sigmoid: derivatives in one pass, from the result ---------------------------------------

TANH_BACK = Pointwise(
    "tanh_backward",
    A.tanh_backward,
    same,
    Rule(
        "TanhBackwardBackward0",
        grad=lambda g, output: tanh_backward(g, conj(output)),
        output=lambda g, grad, output: conj(g) * grad * (-2 * conj(output)),
    ),
    ("grad", "output"),
)
SIGMOID_BACK = Pointwise(
    "sigmoid_backward",
    A.sigmoid_backward,
    same,
    Rule(
        "SigmoidBackwardBackward0",
        grad=lambda g, output: sigmoid_backward(g, conj(output)),
        output=lambda g, grad, output: conj(g) * grad * (1 - 2 * conj(output)),
    ),
    ("grad", "output"),
)


def tanh_backward(grad: Tensor, output: Tensor) -> Tensor:
    """The gradient of tanh's input, from that of its result and the result."""
    return call(TANH_BACK, (grad, output))


def sigmoid_backward(grad: Tensor, output: Tensor) -> Tensor:
    """The gradient of sigmoid's input, from that of its result and the result."""
    return call(SIGMOID_BACK, (grad, output))


tanh = _zero_row(
    "tanh",
    np.tanh,
    formula_of("tanh_backward", "result", (), TANH_BACK),
    doc="The hyperbolic tangent.",
)
sigmoid = _row(
    "sigmoid",
    A.sigmoid,
    formula_of("sigmoid_backward", "result", (), SIGMOID_BACK),
    doc="1 / (1 + exp(-input)).",
)
export("expit", sigmoid, ("special",), False)

# -- rounding -------------------------------------------------------------------------------------


def _rounding(name: str, ufunc: Any, doc: str, aliases: tuple[str, ...] = ()) -> None:
    no_complex = Refused(NotImplementedError, f"{name} is not supported for complex inputs")
    _zero_row(
        name,
        {INT: np.positive, FLOAT: ufunc, COMPLEX: no_complex},
        lambda g: zeros(g),
        types=same,
        title=f"{name}_vml_cpu",
        also=dtypes.UNSIGNED,
        aliases=aliases,
        doc=doc,
    )


_rounding("floor", np.floor, "The largest integer not above input.")
_rounding("ceil", np.ceil, "The smallest integer not below input.")
_rounding("trunc", np.trunc, "The integer part.", ("fix",))
_zero_row(
    "frac",
    {FLOAT: K.frac},
    lambda g: g,
    types=same,
    doc="What the integer part leaves, with the sign of input.",
)

ROUND = Pointwise(
    "round",
    {INT: np.positive, FLOAT: np.rint},
    same,
    Rule("RoundBackward0", input=lambda g: zeros(g)),
    title="round_vml_cpu",
    also=dtypes.UNSIGNED,
)
ROUND_FLOATS = Pointwise("round", {FLOAT: np.rint}, same, ROUND.rule, title="round_vml_cpu")
ROUND_AT = Pointwise(
    "round",
    {FLOAT: K.round},
    same,
    Rule("RoundBackward1", input=lambda g: zeros(g)),
    params=("decimals",),
    title="round_cpu",
)


@pointwise(ROUND, foreach=1, sparse="values")
def round(
    input: Tensor, *, decimals: int = 0, out: Tensor | None = None, inplace: bool = False
) -> Run:
    """To the nearest integer, halves to even; or to so many decimals.

    >>> torch.tensor([0.5, 1.5, 2.5]).round()
    tensor([0., 2., 2.])

    Raises: NotImplementedError for bool and complex numbers, and for integers with `decimals`.
    """
    return Run(ROUND_AT, (input,), (int(decimals),)) if decimals else Run(ROUND, (input,))


def special_round(input: Tensor, *, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    """To the nearest integer, halves to even; or to so many decimals. Integers are refused."""
    if decimals:
        return round(input, decimals=decimals, out=out)
    return call(ROUND_FLOATS, (input,), (), out)


export("round", special_round, ("special",), False, row=ROUND_FLOATS)

# -- signs, absolute values, angles ---------------------------------------------------------------


ABS = Pointwise(
    "abs",
    {INT: np.absolute, FLOAT: np.absolute, COMPLEX: np.absolute},
    real_valued,
    Rule("AbsBackward0", input=lambda g, input: g * input.sgn()),
    also=dtypes.FLOAT8[:4],
)
abs = unary(
    ABS,
    aliases=("absolute",),
    doc="The absolute value; of complex numbers a real one.",
    foreach=1,
    sparse="values",
)


def abs_(input: Tensor) -> Tensor:
    """The absolute value, in place.

    Dtypes: integers and floating point.
    """
    if input._dtype.is_complex:
        raise RuntimeError("In-place abs is not supported for complex tensors.")
    return call(ABS, (input,), (), input, True)


for _name in ("abs_", "absolute_"):
    export(_name, abs_)
attach("abs", abs)

NO_SIGN = (
    "Unlike NumPy, torch.sign is not intended to support complex numbers. "
    "Please use torch.sgn instead."
)
_zero_row(
    "sign",
    {BOOL: K.sign, INT: K.sign, FLOAT: K.sign, COMPLEX: Refused(NotImplementedError, NO_SIGN)},
    lambda g: zeros(g),
    types=same,
    doc="-1, 0 or 1.",
)


def _sgn_back(g: Tensor, input: Tensor, result: Tensor) -> Any:
    if not input._dtype.is_complex:
        return zeros(g)
    size = input.abs()
    along = real(g * result.conj()) * result
    return where(size == 0, 0, (g - along) / size)


unary_row(
    "sgn",
    K.sgn,
    _sgn_back,
    types=same,
    doc="input / |input|, 0 at 0; the sign of real numbers.",
    sparse="values",
)


def _angle_back(g: Tensor, input: Tensor) -> Any:
    if not input._dtype.is_complex:
        return zeros(g)
    return where(input == 0, 0, g * input / (real(input * input.conj())) * 1j)


def _real_floating(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    d = promotion.to_float(common(args))
    return d, d.to_real()


unary_row(
    "angle",
    {FLOAT: K.angle, COMPLEX: K.angle},
    _angle_back,
    types=_real_floating,
    inplace=False,
    doc="The argument of complex numbers; pi below zero.",
)

CONJ = Pointwise(
    "conj_physical",
    {BOOL: COPY, INT: COPY, FLOAT: COPY, COMPLEX: np.conjugate},
    same,
    Rule("ConjPhysicalBackward0", input=lambda g: conj(g)),
)


@pointwise(CONJ)
def conj_physical(input: Any, *, out: Tensor | None = None, inplace: bool = False) -> Tensor:
    """The conjugate, computed; a real tensor itself.

    Memory: the input itself where it is real, else a new tensor, or `out`.
    """
    if (out is None or inplace) and isinstance(input, Tensor) and not input._dtype.is_complex:
        return input
    return call(CONJ, (input,), (), out, inplace)


# -- nan_to_num, frexp ----------------------------------------------------------------------------


NAN_TO_NUM = Pointwise(
    "nan_to_num",
    {BOOL: K.nan_to_num, INT: K.nan_to_num, FLOAT: K.nan_to_num, COMPLEX: K.nan_to_num},
    same,
    Rule("NanToNumBackward0", input=lambda g, input: g * input.isfinite()),
    params=("nan", "posinf", "neginf"),
    also=dtypes.UNSIGNED,
)


def _replacements(input: Any, nan: Any, posinf: Any, neginf: Any) -> tuple[Any, Any, Any]:
    nan = 0.0 if nan is None else float(nan)
    if not isinstance(input, Tensor) or input._dtype.category < FLOAT:
        return nan, 0.0, 0.0
    largest = finfo(input._dtype.to_real()).max
    return (
        nan,
        largest if posinf is None else float(posinf),
        -largest if neginf is None else float(neginf),
    )


@pointwise(NAN_TO_NUM)
def nan_to_num(
    input: Tensor,
    nan: Any = 0.0,
    posinf: Any = None,
    neginf: Any = None,
    *,
    out: Tensor | None = None,
    inplace: bool = False,
) -> Run:
    """Numbers for NaN and the infinities: by default 0 and the largest and smallest of the type."""
    return Run(NAN_TO_NUM, (input,), _replacements(input, nan, posinf, neginf))


def _exponents(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    return args[0]._dtype, dtypes.int32


MANTISSA = Pointwise("frexp", {FLOAT: K.frexp_mantissa}, same)
EXPONENT = Pointwise("frexp", {FLOAT: K.frexp_exponent}, _exponents)


@general(
    out="same",
    nondiff=(1,),
    rule=Rule("FrexpBackward0", input=lambda g0, result1: g0 / result1.exp2()),
    batch=batching.dims.ELEMENTWISE,
    meta=shapes.frexp,
)
def frexp(input: Tensor) -> Any:
    """The mantissa, from 0.5 up to 1, and the exponent to base 2.

    Shape: the input's, both.
    Dtypes: floating point.
    Raises: RuntimeError for integers and bools.
    """
    require_tensor("frexp", "input", input)
    if input._dtype.category != FLOAT:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return return_types.frexp(call(MANTISSA, (input,)), call(EXPONENT, (input,)))
