"""Functions of two numbers: remainders, extremes, angles, exponents, complex numbers of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from operator import ge, le
from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import METHODS, export
from skimp._engine.dispatch.operands import no_zero
from skimp._engine.dispatch.operators import plain_operators
from skimp._engine.dispatch.pointwise import Pointwise, Refused, call
from skimp._engine.dispatch.pointwise_forms import binary
from skimp._engine.dispatch.result_types import common, floating, operand_kind, same
from skimp._engine.dispatch.rows import (
    COMPLEX,
    FLOAT,
    INT,
    NO_HALVES,
    PAIR,
    binary_row,
    conj,
    node_name,
    refused,
    zeros,
)
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import division, pointwise as K
from skimp._ops.index.masks import where
from skimp._ops.math.arithmetic import div
from skimp._ops.math.powers import pow
from skimp._ops.shape.complex_views import imag, real

# -- remainders -----------------------------------------------------------------------------------

REMAINDER = Pointwise(
    "remainder",
    {INT: division.remainder, FLOAT: division.remainder},
    same,
    Rule(
        "RemainderBackward1",
        input=lambda g: g,
        other=lambda g, input, other: -g * div(input, other, rounding_mode="floor"),
        numbers={"other": Rule("RemainderBackward0", input=lambda g: g)},
    ),
    PAIR,
    check=no_zero,
)
FMOD = Pointwise(
    "fmod",
    {INT: division.fmod, FLOAT: division.fmod},
    same,
    Rule(
        "FmodBackward1",
        input=lambda g: g,
        other=lambda g, input, other: -g * div(input, other, rounding_mode="trunc"),
        numbers={"other": Rule("FmodBackward0", input=lambda g: g)},
    ),
    PAIR,
    check=no_zero,
    numbers=(1,),
)
remainder = binary(REMAINDER, doc="The remainder, with the sign of other.")
fmod = binary(FMOD, doc="The remainder, with the sign of input.")
plain_operators("mod", remainder, Tensor.remainder_)

# -- extremes -------------------------------------------------------------------------------------


def _no_complex(name: str) -> Refused:
    return Refused(RuntimeError, f"{name} not implemented for complex tensors.")


def _extreme(name: str, ufunc: Any, formulas: Any, doc: str, **known: Any) -> Any:
    kernels = {**dict.fromkeys(range(3), ufunc), COMPLEX: _no_complex(name)}
    return binary(
        Pointwise(name, kernels, same, Rule(node_name(name), formulas), PAIR, numbers=()),
        inplace=False,
        doc=doc,
        **known,
    )


def _shared(name: str, kernel: Any) -> dict[str, Any]:
    """maximum and minimum: each of two equal numbers gets half."""
    rule = Rule(
        f"{node_name(name)[:-1]}Backward0", grad=lambda g, own, other: call(row, (g, own, other))
    )
    row = Pointwise(f"{name}_backward", {FLOAT: kernel}, same, rule, ("grad", "own", "other"))
    return {
        "input": lambda g, input, other: call(row, (g, input, other)),
        "other": lambda g, input, other: call(row, (g, other, input)),
    }


def _first_wins(wins: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """fmax and fmin: all to the number that is chosen, the first of two equal ones."""
    return {
        "input": lambda g, input, other: where(wins(input, other) | other.isnan(), g, 0),
        "other": lambda g, input, other: where(wins(input, other) | other.isnan(), 0, g),
    }


maximum = _extreme(
    "maximum",
    np.maximum,
    _shared("maximum", K.larger_backward),
    "The larger of two elements; NaN if one is.",
    foreach=2,
)
minimum = _extreme(
    "minimum",
    np.minimum,
    _shared("minimum", K.smaller_backward),
    "The smaller of two elements; NaN if one is.",
    foreach=2,
)
fmax = _extreme(
    "fmax", np.fmax, _first_wins(ge), "The larger of two elements, or the one that is not NaN."
)
fmin = _extreme(
    "fmin", np.fmin, _first_wins(le), "The smaller of two elements, or the one that is not NaN."
)

# -- angles, lengths, signs -----------------------------------------------------------------------


def _atan2_back(g: Tensor, along: Any, input: Tensor, other: Tensor) -> Any:
    square = input * input + other * other
    return g * along * square.reciprocal().masked_fill(square == 0, 0)  # at the origin: flat


binary_row(
    "atan2",
    {FLOAT: np.arctan2},
    floating,
    {
        "input": lambda g, input, other: _atan2_back(g, other, input, other),
        "other": lambda g, input, other: _atan2_back(g, -input, input, other),
    },
    numbers=(),
    aliases=("arctan2",),
    doc="The angle of the point (other, input).",
)
binary_row(
    "hypot",
    {FLOAT: np.hypot},
    same,
    {
        "input": lambda g, input, result: g * (input / result),
        "other": lambda g, other, result: g * (other / result),
    },
    numbers=(),
    doc="The length of the vector (input, other).",
)
binary_row(
    "copysign",
    {FLOAT: np.copysign},
    floating,
    Rule(
        "CopysignBackward0",
        input=lambda g, input, result: where(input == 0, 0, g * (result / input)),
        other=lambda g: zeros(g),
        numbers={
            "other": Rule(
                "CopysignBackward1",
                input=lambda g, input, result: where(input == 0, 0, g * (result / input)),
            )
        },
    ),
    numbers=(1,),
    doc="input with the sign of other.",
)
binary_row(
    "nextafter",
    {
        FLOAT: np.nextafter,
        dtypes.float16: K.nextafter_rounded(np.dtype(np.float16)),
        dtypes.bfloat16: K.nextafter_rounded(dtypes.bfloat16.np),
    },
    same,
    {"input": lambda g, input, other: where(input == other, 0, g), "other": lambda g: zeros(g)},
    numbers=(),
    doc="The next number after input towards other.",
)


def _heaviside_types(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    input, values = args
    if input._dtype.is_complex or values._dtype.is_complex:
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if input._dtype is not values._dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return same(args)


binary_row(
    "heaviside",
    K.heaviside,
    _heaviside_types,
    refused("heaviside"),
    args=("input", "values"),
    numbers=(),
    own=True,
    doc="0 below zero, 1 above, `values` at zero.",
)

# -- exponents ------------------------------------------------------------------------------------


def _ldexp_types(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    if isinstance(args[0], Tensor) and args[0]._dtype.category >= dtypes.FLOAT:
        promotion.refuse("ldexp_cpu_exp", operand_kind(args[1])[0], (dtypes.bool,))
    d = promotion.to_float(common(args))
    return d, d


LDEXP = Pointwise(
    "ldexp",
    {FLOAT: K.ldexp, COMPLEX: K.ldexp},
    _ldexp_types,
    Rule(
        "LdexpBackward0",
        input=lambda g, other: g * conj(pow(2.0, other)),
        other=lambda g, result: g * conj(result * log(2)),
    ),
    PAIR,
    numbers=(),
    overlap=(0,),
)
binary(LDEXP, doc="input * 2 ** other.")
binary_row(
    "logaddexp",
    {FLOAT: K.logaddexp, COMPLEX: K.logaddexp},
    same,
    {
        "input": lambda g, input, other: g / conj(1 + (other - input).exp()),
        "other": lambda g, input, other: g / conj(1 + (input - other).exp()),
    },
    numbers=(),
    inplace=False,
    doc="log(exp(input) + exp(other)).",
)
binary_row(
    "logaddexp2",
    {FLOAT: K.logaddexp2},
    same,
    {
        "input": lambda g, input, other: g / (1 + pow(2, other - input)),
        "other": lambda g, input, other: g / (1 + pow(2, input - other)),
    },
    numbers=(),
    inplace=False,
    doc="log2(2 ** input + 2 ** other).",
)

# -- complex numbers of two parts -----------------------------------------------------------------


def _complex_types(args: Sequence[Any]) -> tuple[dtypes.dtype, dtypes.dtype]:
    a, b = args[0]._dtype, args[1]._dtype
    name = promotion.scalar_type_name
    known = (dtypes.float16, dtypes.float32, dtypes.float64)
    if a not in known or b not in known:
        raise RuntimeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{name(a)} and {name(b)}"
        )
    if a is not b:
        raise RuntimeError(
            f"Expected object of scalar type {name(a)} but got scalar type {name(b)} "
            "for second argument"
        )
    return a, a.to_complex()


COMPLEX_OF_PARTS = Pointwise(
    "complex",
    {FLOAT: K.complex, **NO_HALVES},
    _complex_types,
    Rule("ComplexBackward0", real=lambda g: real(g), imag=lambda g: imag(g)),
    ("real", "imag"),
    numbers=(),
)
POLAR = Pointwise(
    "polar",
    {FLOAT: K.polar, **NO_HALVES},
    _complex_types,
    Rule(
        "PolarBackward0",
        abs=lambda g, result: real(conj(g) * result.sgn()),
        angle=lambda g, result: real(conj(g) * (result * 1j)),
    ),
    ("abs", "angle"),
    numbers=(),
)


def _check_complex_out(made: tuple[Any, Any], out: Tensor | None) -> None:
    if out is None or not all([isinstance(t, Tensor) for t in made]):
        return
    want = _complex_types(made)[1]
    if out._dtype is not want:
        raise RuntimeError(
            f"Expected object of scalar type {promotion.scalar_type_name(want)} but got scalar "
            f"type {promotion.scalar_type_name(out._dtype)} for argument 'out'"
        )


def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """real + 1j * imag."""
    _check_complex_out((real, imag), out)
    return call(COMPLEX_OF_PARTS, (real, imag), (), out)


def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex number of this absolute value and angle."""
    _check_complex_out((abs, angle), out)
    return call(POLAR, (abs, angle), (), out)


export("complex", complex, method=False)
export("polar", polar, method=False, autocast="float32")
export("ldexp_", METHODS["ldexp_"], method=False)


SAYS = """\
Shape: tensors that broadcast; the result has their common shape.
Dtypes: floating point, alike; the result is complex.
Raises: RuntimeError for other dtypes and for shapes that don't broadcast."""
