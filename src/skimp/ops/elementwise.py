"""Arithmetic and comparison: the pointwise rows that every program uses, with their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp import dtypes
from skimp._tensor import Tensor
from skimp.autograd.rules import Rule
from skimp.ops.forms import export
from skimp.ops.pointwise import Pointwise, call, floating, predicate, same
from skimp.ops.pointwise_forms import binary, compare, named, operators, unary

B, I, F, C = dtypes.BOOL, dtypes.INT, dtypes.FLOAT, dtypes.COMPLEX  # noqa: E741
PAIR = ("input", "other")


def conj(t: Any) -> Any:
    """The factor that multiplies a complex gradient (itself for real ones)."""
    return t.conj() if isinstance(t, Tensor) and t._dtype.is_complex else t


# -- add, sub: a factor for the second argument ---------------------------------------------------

ADD = Pointwise("add", np.add, same, Rule("AddBackward0", {"input": lambda g: g, "other": lambda g: g}), PAIR)
SUB = Pointwise(
    "sub", {k: np.subtract for k in (I, F, C)}, same,
    Rule("SubBackward0", {"input": lambda g: g, "other": lambda g: -g}), PAIR,
)  # fmt: skip


def _scaled(row: Pointwise, doc: str, aliases: tuple[str, ...] = ()) -> tuple[Any, Any]:
    def function(input: Any, other: Any, *, alpha: Any = 1, out: Tensor | None = None) -> Tensor:
        if alpha != 1:
            other = _times(row, input, other, alpha)
        if row is SUB:
            _refuse_bool(input, other)
        return call(row, (input, other), (), out)

    def function_(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
        if alpha != 1:
            other = _times(row, input, other, alpha)
        if row is SUB:
            _refuse_bool(input, other)
        return call(row, (input, other), (), input, True)

    f, f_ = named(function, row.name, doc), named(function_, f"{row.name}_", f"{doc} In place.")
    for name in (row.name, *aliases):
        export(name, f)
        export(f"{name}_", f_, namespaces=())
    return f, f_


def _times(row: Pointwise, input: Any, other: Any, alpha: Any) -> Any:
    kinds = [t._dtype for t in (input, other) if isinstance(t, Tensor)]
    if isinstance(alpha, bool) and any(d is not dtypes.bool for d in kinds):
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and all(d.category < F for d in kinds) and not isinstance(other, float):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if isinstance(alpha, complex) and all(d.category < C for d in kinds):
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    return other * alpha


def _refuse_bool(input: Any, other: Any) -> None:
    kinds = [t._dtype is dtypes.bool if isinstance(t, Tensor) else isinstance(t, bool) for t in (input, other)]
    if all(kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with two bool tensors is not supported. "
            "Use the `^` or `logical_xor()` operator instead."
        )
    if any(kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead."
        )


add, add_ = _scaled(ADD, "input + alpha * other.")
sub, sub_ = _scaled(SUB, "input - alpha * other.", ("subtract",))


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha * input."""
    return sub(other, input, alpha=alpha)


export("rsub", rsub)


# -- products -------------------------------------------------------------------------------------

MUL = Pointwise(
    "mul", np.multiply, same,
    Rule("MulBackward0", {"input": lambda g, other: g * conj(other), "other": lambda g, input: g * conj(input)}), PAIR,
)  # fmt: skip
DIV = Pointwise(
    "div", np.true_divide, floating,
    Rule("DivBackward0", {
        "input": lambda g, other: g / conj(other),
        "other": lambda g, input, other: -g * conj((input / other) / other),
    }), PAIR,
)  # fmt: skip
mul = binary(MUL, aliases=("multiply",), doc="input * other.")

div_true = binary(DIV, inplace=True, doc="input / other.")

exp = unary(
    Pointwise("exp", np.exp, floating, Rule("ExpBackward0", {"input": lambda g, result: g * conj(result)})),
    doc="e to the power of input.",
)

neg = unary(
    Pointwise("neg", {k: np.negative for k in (I, F, C)}, same, Rule("NegBackward0", {"input": lambda g: -g})),
    aliases=("negative",), doc="-input.",
)  # fmt: skip

# -- comparison -----------------------------------------------------------------------------------

for _word, _ufunc, _name, _sign in (
    ("eq", np.equal, "equal", "=="), ("ne", np.not_equal, "not_equal", "!="), ("lt", np.less, "less", "<"),
    ("le", np.less_equal, "less_equal", "<="), ("gt", np.greater, "greater", ">"),
    ("ge", np.greater_equal, "greater_equal", ">="),
):  # fmt: skip
    _kinds = _ufunc if _word in ("eq", "ne") else {k: _ufunc for k in (B, I, F)}
    _f = binary(
        Pointwise(_word, _kinds, predicate, None, PAIR, opmath=False),
        aliases=() if _word == "eq" else (_name,), doc=f"input {_sign} other, as bools.",
    )  # fmt: skip
    compare(_word, _f)

# -- operators ------------------------------------------------------------------------------------

operators(ADD, "add", add, add_)
operators(SUB, "sub", sub, sub_)
operators(MUL, "mul", mul, Tensor.mul_)  # type: ignore[attr-defined]
operators(DIV, "truediv", div_true, Tensor.div_)  # type: ignore[attr-defined]
Tensor.__neg__ = neg  # type: ignore[attr-defined]
Tensor.__hash__ = object.__hash__  # type: ignore[method-assign]  # __eq__ answers tensors
