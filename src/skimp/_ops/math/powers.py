"""Powers: of tensors and numbers by tensors and numbers, whose derivatives differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.bodies import pointwise
from skimp._engine.dispatch.forms import METHODS
from skimp._engine.dispatch.operands import check_number, number_of, unrecorded
from skimp._engine.dispatch.operators import plain_operators
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.result_types import common, same
from skimp._engine.dispatch.rows import BOOL, COMPLEX, FLOAT, INT, conj, zeros
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import bare, pointwise as K
from skimp._ops.index.masks import where
from skimp._ops.shape.complex_views import imag, real


def _to_number_back(g: Tensor, input: Tensor, exponent: Any) -> Any:
    if exponent == 0:
        return zeros(g)
    found = unrecorded(g, input)
    if found is not None and type(exponent) in (int, float) and found[0].shape == found[1].shape:
        a, x = found
        slope = np.empty(x.shape, x.dtype)
        K.power(x, exponent - 1, out=slope)
        bare.multiply(exponent, slope, slope)
        return fresh(bare.multiply(a, slope, slope), g._dtype)
    return g * conj(exponent * input.pow(exponent - 1))


def _base_back(g: Tensor, input: Tensor, exponent: Tensor) -> Any:
    return where(exponent == 0, 0, g * conj(exponent * input.pow(exponent - 1)))


def _exponent_back(g: Tensor, input: Any, exponent: Tensor, result: Tensor) -> Any:
    """0 where both are 0: the power is 1 whatever the exponent is near there. A real number below 0
    has a logarithm where the power is complex.
    """
    flat = _not_below_0(exponent) & (input == 0)
    base = input.to(result._dtype) if result._dtype.is_complex else input
    return g * where(flat, 0, conj(result * base.log()))


def _not_below_0(exponent: Tensor) -> Any:
    """Where an exponent is a real number from 0 on."""
    right = real(exponent) >= 0
    return right & (imag(exponent) == 0) if exponent._dtype.is_complex else right


def _of_number_back(g: Tensor, input: Any, exponent: Tensor, result: Tensor) -> Any:
    if input == 0:
        return g * where(_not_below_0(exponent), 0, conj(result * -float("inf")))
    base = np.asarray(
        input, np.complex128 if isinstance(input, complex) or input < 0 else np.float64
    )
    slope: Any = bare.log(base).item()
    if isinstance(slope, complex) and not result._dtype.is_complex:
        slope = float("nan")
    return g * conj(result * slope)


def _truth(x: Any, exponent: bool, *, out: Any) -> None:
    bare.logical_or(x, not exponent, out=out)


POW_KINDS = {INT: K.power, FLOAT: K.power, COMPLEX: K.power}
POW_NUMBER = Pointwise(
    "pow",
    {**POW_KINDS, BOOL: _truth},
    same,
    Rule("PowBackward0", input=_to_number_back),
    params=("exponent",),
    title="pow",
    own=False,
)
POW_MIXED = Pointwise(
    "pow",
    POW_KINDS,
    same,
    Rule("PowBackward0", input=_to_number_back),
    ("input", "exponent"),
    title="pow",
)
POW = Pointwise(
    "pow",
    POW_KINDS,
    same,
    Rule("PowBackward1", input=_base_back, exponent=_exponent_back),
    ("input", "exponent"),
    title="pow",
)
POW_OF_NUMBER = Pointwise(
    "pow",
    POW_KINDS,
    same,
    Rule("PowBackward2", exponent=_of_number_back),
    ("input", "exponent"),
    title="pow",
    row_major=True,
)


@pointwise(
    None,
    in_place=(),
    says_in_place="Dtypes: integers, floating point and complex numbers.",
    foreach=2,
)
def pow(input: Any, exponent: Any, *, out: Tensor | None = None, inplace: bool = False) -> Tensor:
    """input ** exponent; either may be a number.

    Dtypes: integers, floating point and complex numbers.
    """
    if (
        type(exponent) in (int, float)
        and isinstance(input, Tensor)
        and input._dtype.category == FLOAT
    ):
        if out is None and not inplace and -INT64_END < exponent < INT64_END:
            made = POW_NUMBER.fast(input, exponent)  # as `call` asks it first
            if made is not None:
                return made
        return call(POW_NUMBER, (input,), (number_of(exponent),), out, inplace)
    if isinstance(exponent, Tensor):
        return call(
            POW if isinstance(input, Tensor) else POW_OF_NUMBER, (input, exponent), (), out, inplace
        )
    if not isinstance(input, Tensor) or not isinstance(exponent, (int, float, complex, np.generic)):
        raise TypeError(
            "pow() received an invalid combination of arguments - got "
            f"({type(input).__name__}, {type(exponent).__name__})"
        )
    exponent = number_of(exponent)
    kind = common((input, exponent))
    if kind.category == INT:
        if exponent < 0:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        check_number(exponent, kind)
        exponent = int(exponent)
    if kind is not input._dtype or kind.category == COMPLEX:
        return call(POW_MIXED, (input, exponent), (), out, inplace)
    return call(POW_NUMBER, (input,), (exponent,), out, inplace)


plain_operators("pow", pow, METHODS["pow_"], public=METHODS["pow"])


def _cast(value: Any, dtype: dtypes.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) else value


def _power_dtype(input: Any, exponent: Any) -> dtypes.dtype:
    if not isinstance(input, Tensor) and not isinstance(exponent, Tensor):
        raise TypeError(
            "float_power() received an invalid combination of arguments - got "
            f"({type(input).__name__}, {type(exponent).__name__})"
        )
    kinds = [
        v._dtype.is_complex if isinstance(v, Tensor) else isinstance(v, complex)
        for v in (input, exponent)
    ]
    return dtypes.complex128 if any(kinds) else dtypes.float64


@pointwise(None, in_place=(), says_in_place="Dtypes: float64 and complex128; the exponent any.")
def float_power(
    input: Any, exponent: Any, *, out: Tensor | None = None, inplace: bool = False
) -> Tensor:
    """input ** exponent in double precision."""
    dtype = _power_dtype(input, exponent)
    if out is not None and out._dtype is not dtype:
        given = "the base given to float_power_" if inplace else "the output given to float_power"
        raise RuntimeError(
            f"{given} has dtype {promotion.scalar_type_name(out._dtype)} but the operation's "
            f"result requires dtype {promotion.scalar_type_name(dtype)}"
        )
    return pow(_cast(input, dtype), _cast(exponent, dtype), out=out, inplace=inplace)


SAYS = """\
Shape: tensors (and numbers) that broadcast; the result has their common shape.
Raises: RuntimeError for integers to a negative number and for shapes that don't broadcast."""
