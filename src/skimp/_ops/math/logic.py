"""Questions and bits: isnan and its like, logic, bits and shifts, with their operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import METHODS, export
from skimp._engine.dispatch.operators import attach, plain_operators
from skimp._engine.dispatch.pointwise import Pointwise, Refused
from skimp._engine.dispatch.pointwise_forms import binary, unary
from skimp._engine.dispatch.result_types import predicate, same
from skimp._engine.dispatch.rows import BOOL, COMPLEX, FLOAT, INT, PAIR
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import pointwise as K

# -- questions about one number -------------------------------------------------------------------


def _no_complex(name: str) -> Refused:
    return Refused(RuntimeError, f"{name} does not support complex inputs.")


_INFINITE = (*dtypes.UNSIGNED, dtypes.float8_e5m2)
for _name, _kernels, _also, _doc in (
    ("isnan", np.isnan, dtypes.NARROW, "Whether each element is NaN."),
    ("isinf", np.isinf, _INFINITE, "Whether each element is infinite."),
    (
        "isfinite",
        np.isfinite,
        (*_INFINITE, dtypes.float8_e8m0fnu),
        "Whether each element is neither NaN nor infinite.",
    ),
    ("isreal", K.isreal, dtypes.NARROW, "Whether each element has no imaginary part."),
    (
        "isposinf",
        {BOOL: K.isposinf, INT: K.isposinf, FLOAT: K.isposinf, COMPLEX: _no_complex("isposinf")},
        dtypes.UNSIGNED,
        "Whether each element is +inf.",
    ),
    (
        "isneginf",
        {BOOL: K.isneginf, INT: K.isneginf, FLOAT: K.isneginf, COMPLEX: _no_complex("isneginf")},
        dtypes.UNSIGNED,
        "Whether each element is -inf.",
    ),
    (
        "signbit",
        {
            BOOL: K.signbit,
            INT: K.signbit,
            FLOAT: K.signbit,
            COMPLEX: Refused(
                NotImplementedError, "signbit is not implemented for complex tensors."
            ),
        },
        dtypes.UNSIGNED,
        "Whether each element's sign bit is set.",
    ),
):
    false_at_0 = _name not in ("isfinite", "isreal")
    unary(
        Pointwise(_name, _kernels, predicate, also=_also, own=True),
        inplace=False,
        doc=_doc,
        sparse="values" if false_at_0 else None,
    )

# -- logic ----------------------------------------------------------------------------------------

unary(
    Pointwise("logical_not", np.logical_not, predicate, unwatched=True),
    doc="Whether each element is zero.",
)
for _name, _ufunc, _doc in (
    ("logical_and", np.logical_and, "Whether both elements are not zero."),
    ("logical_or", np.logical_or, "Whether one of the elements is not zero."),
    ("logical_xor", np.logical_xor, "Whether one element is zero and the other is not."),
):
    binary(Pointwise(_name, _ufunc, predicate, None, PAIR, numbers=(), unwatched=True), doc=_doc)

# -- bits -----------------------------------------------------------------------------------------


bitwise_not = unary(
    Pointwise("bitwise_not", {BOOL: np.logical_not, INT: np.invert}, same),
    doc="Each bit the other way.",
)


def _operator(word: str, name: str, ufunc: Any, doc: str, *, title: str | None = None) -> None:
    kinds = (BOOL, INT) if title is None else (INT,)  # shifts of bools are refused
    also = dtypes.UNSIGNED if title is None else ()
    row = Pointwise(name, dict.fromkeys(kinds, ufunc), same, None, PAIR, title=title, also=also)
    plain_operators(word, binary(row, doc=doc), getattr(Tensor, f"{name}_"))


_operator("and", "bitwise_and", np.bitwise_and, "The bits that both have.")
_operator("or", "bitwise_or", np.bitwise_or, "The bits that one of them has.")
_operator("xor", "bitwise_xor", np.bitwise_xor, "The bits in which they differ.")
_operator(
    "lshift",
    "bitwise_left_shift",
    np.left_shift,
    "input * 2 ** other, by moving bits.",
    title="lshift_cpu",
)
_operator(
    "rshift",
    "bitwise_right_shift",
    np.right_shift,
    "input / 2 ** other rounded down.",
    title="rshift_cpu",
)


def _invert(self: Tensor) -> Tensor:
    if self._dtype.category > dtypes.INT:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
        )
    return bitwise_not(self)


_invert.__name__ = _invert.__qualname__ = "__invert__"
attach("invert", _invert)

for _name, _kernel, _doc in (
    ("gcd", np.gcd, "The greatest common divisor."),
    ("lcm", K.lcm, "The least common multiple."),
):
    binary(Pointwise(_name, {INT: _kernel}, same, None, PAIR, numbers=()), doc=_doc)
    export(f"{_name}_", METHODS[f"{_name}_"], method=False)
