"""Arithmetic and comparison: the rows that every program uses, with their operators."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import present, recorded
from skimp._engine.dispatch import older
from skimp._engine.dispatch.fast_path import to_write
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.operands import (
    all_hold,
    check_number,
    no_zero,
    number,
    require_tensor,
    unrecorded,
)
from skimp._engine.dispatch.operators import (
    OPERANDS,
    attach,
    compare,
    offered,
    operators,
    plain_operators,
)
from skimp._engine.dispatch.pointwise import Pointwise, Refused, call, expressed
from skimp._engine.dispatch.pointwise_forms import (
    ROWS,
    binary,
    direct,
    named,
    small_in_place,
    target_is_small,
    unary,
)
from skimp._engine.dispatch.result_types import common, floating, predicate, same
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.rows import BOOL, COMPLEX, FLOAT, INT, PAIR, conj, refused, zeros
from skimp._engine.generated import compiled
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import bare, division

# -- add, sub: a factor for the second argument ---------------------------------------------------


ADD = Pointwise(
    "add",
    np.add,
    same,
    Rule("AddBackward0", input=lambda g: g, other=lambda g: g),
    PAIR,
    title="add_stub",
    bare=True,
)
TWO_BOOLS = (
    "Subtraction, the `-` operator, with two bool tensors is not supported. "
    "Use the `^` or `logical_xor()` operator instead."
)
SUB = Pointwise(
    "sub",
    {BOOL: Refused(RuntimeError, TWO_BOOLS), **dict.fromkeys((INT, FLOAT, COMPLEX), np.subtract)},
    same,
    Rule("SubBackward0", input=lambda g: g, other=lambda g: -g),
    PAIR,
    title="add_stub",
    bare=True,
)
RSUB = Pointwise(
    "rsub",
    SUB.kernels,
    same,
    Rule(
        "RsubBackward0",
        other=lambda g: -g,
        input=lambda g: g,  # its first argument is what is subtracted
        numbers={"input": Rule("RsubBackward1", other=lambda g: -g)},
    ),
    PAIR,
    title="add_stub",
)


def _fused(name: str, step: Any) -> Any:
    """input + alpha * other in one pass, the product rounded as the op's type rounds."""

    def kernel(a: Any, b: Any, alpha: Any, *, out: Any) -> None:
        step(a, bare.multiply(b, alpha, dtype=out.dtype), out=out)

    kernel.__name__ = name
    return kernel


def _without_factor(args: Any) -> Any:
    d = common(args[:2])
    return d, d


def _check_factor(compute: dtypes.dtype, args: tuple[Any, ...], sign: int = 1) -> None:
    """Refuse a factor, or its negative that is added, which the operands' type can't hold."""
    alpha = args[2]
    if not all_hold(alpha, compute) and isinstance(alpha, (int, float, complex)):
        check_number(alpha * sign, common(args[:2]))


def _check_negative(compute: dtypes.dtype, args: tuple[Any, ...]) -> None:
    _check_factor(compute, args, -1)


SCALED = {
    row: Pointwise(
        row.name,
        dict.fromkeys(kinds, _fused(row.name, row.kernel(dtypes.float32).fn)),
        _without_factor,
        Rule(
            f"{row.name.title()}Backward0",
            input=lambda g: g,
            other=(lambda g, alpha: g * conj(alpha))
            if row is ADD
            else (lambda g, alpha: g * -conj(alpha)),
        ),
        (*PAIR, "alpha"),
        check=_check_factor if row is ADD else _check_negative,
    )
    for row, kinds in ((ADD, (BOOL, INT, FLOAT, COMPLEX)), (SUB, (INT, FLOAT, COMPLEX)))
}


def _scaled(row: Pointwise, doc: str, aliases: tuple[str, ...] = ()) -> tuple[Any, Any]:
    f = binary(row, inplace=False, method=False, namespaces=(), doc=doc, foreach=2)
    ufunc, ok = direct(row)
    words = ("Number alpha, Tensor other", "Tensor other, *, Number alpha = 1")

    def function(
        input: Any, other: Any, *rest: Any, alpha: Any = 1, out: Tensor | None = None
    ) -> Tensor:
        if rest:  # add(input, alpha, other), which PyTorch has deprecated
            older.say(row.name, *words)
            alpha, other = other, rest[0]
        elif alpha == 1 and out is None and row is ADD and type(alpha) is int:
            return f(input, other)
        return _run(row, input, other, alpha, out, False)

    def function_(input: Tensor, other: Any, *rest: Any, alpha: Any = 1) -> Tensor:
        if rest:
            older.say(f"{row.name}_", *words)
            alpha, other = other, rest[0]
        x = input._np
        plain = x is not None and type(alpha) is int and alpha == 1
        if plain and small_in_place(ufunc, ok, input, x, other):
            return input
        return _run(row, input, other, alpha, input, True)

    step = row.kernel(dtypes.float32).fn

    def fast(input: Any, other: Any, *, alpha: Any = 1) -> Tensor | None:
        if type(alpha) is not int or alpha != 1:
            plain = type(alpha) is float or type(alpha) is int  # which floats take
            if plain and input._dtype in dtypes.FLOATING and _is_float(other):
                return call(SCALED[row], (input, other, _factor(row, alpha)))
            return None
        # the others refuse bools
        if row is ADD or (input._dtype in dtypes.FLOATING and _is_float(other)):
            return f(input, other)
        return None

    def fast_(input: Any, other: Any, *, alpha: Any = 1) -> Tensor | None:
        x = input._np
        if x is None:
            return None
        if alpha == 1 and type(alpha) is int:
            return input if small_in_place(ufunc, ok, input, x, other) else None
        if not all_hold(alpha, input._dtype):
            return None
        y = other._np if target_is_small(input, other) else None
        if y is None:
            return None
        product = bare.multiply(y, number(_factor(row, alpha), input._dtype))
        step(x, product, out=to_write(input))
        return input  # type: ignore[no-any-return]

    made, made_ = (
        named(function, row.name, doc),
        named(function_, f"{row.name}_", f"{doc} In place."),
    )
    for name in (row.name, *aliases):
        _sign(export(name, made, fast=fast), "input, other, *, alpha=1, out=None")
        _sign(export(f"{name}_", made_, namespaces=(), fast=fast_), "input, other, *, alpha=1")
    return made, made_


def _is_float(other: Any) -> bool:
    kind = type(other)
    return other._dtype in dtypes.FLOATING if kind in ORDINARY else kind is float


def _sign(f: Any, text: str) -> None:
    """Give `f` the signature that PyTorch documents."""
    f.__signature__ = inspect.signature(compiled("f", [f"def f({text}): ..."], {}))


def _run(
    row: Pointwise, input: Any, other: Any, alpha: Any, out: Tensor | None, inplace: bool
) -> Tensor:
    if not isinstance(alpha, (int, float, complex, np.generic)) and not (
        isinstance(alpha, Tensor) and not alpha.ndim
    ):
        name = f"{row.name}_" if inplace else row.name
        raise TypeError(f"{name}(): argument 'alpha' must be Number, not {type(alpha).__name__}")
    if row is not ADD:
        _refuse_bool(input, other)
    if type(alpha) is int and alpha == 1:
        return call(row, (input, other), (), out, inplace)
    _check_alpha(input, other, alpha)
    if isinstance(alpha, bool) and alpha:
        return call(row, (input, other), (), out, inplace)
    if type(alpha) is int and common((input, other)).category == FLOAT:
        alpha = _factor(row, alpha)
    return call(SCALED[row], (input, other, alpha), (), out, inplace)


def _factor(row: Pointwise, alpha: Any) -> Any:
    """A zero that is taken from floats keeps no sign of theirs: PyTorch adds its negative, and an
    integer has no other zero."""
    return -0.0 if row is SUB and type(alpha) is int and not alpha else alpha


def _check_alpha(input: Any, other: Any, alpha: Any) -> None:
    kind = common(
        tuple([a for a in (input, other) if isinstance(a, (Tensor, int, float, complex))])
    )
    if isinstance(alpha, bool) and kind is not dtypes.bool:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, (float, complex, np.inexact)) and kind.category < FLOAT:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if isinstance(alpha, complex) and kind.category < COMPLEX:
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )


def _refuse_bool(input: Any, other: Any) -> None:
    kinds = [
        t._dtype is dtypes.bool if isinstance(t, Tensor) else isinstance(t, bool)
        for t in (input, other)
    ]
    if all(kinds):  # before what is wrong with alpha
        raise RuntimeError(TWO_BOOLS)
    if any(kinds):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
            "to invert a mask, use the `~` or `logical_not()` operator instead."
        )


add, add_ = _scaled(ADD, "input + alpha * other.")
sub, sub_ = _scaled(SUB, "input - alpha * other.", ("subtract",))


def rsub(input: Any, other: Any, alpha: Any = 1) -> Tensor:
    """other - alpha * input.

    Shape: tensors (and numbers) that broadcast; the result has their common shape.
    Dtypes: integers, floating point and complex numbers.
    Raises: RuntimeError for bools, for shapes that don't broadcast, and for a fraction `alpha` of
    integers.
    """
    require_tensor("rsub", "input", input)
    if type(alpha) is int and alpha == 1:
        _refuse_bool(other, input)
        return call(RSUB, (other, input))
    result: Tensor = sub(other, input, alpha=alpha)
    if recorded(result):
        present(result, "RsubBackward0", [input, other], [input, other])
    return result


_rsub = export("rsub", rsub, method=False)

# -- products, quotients --------------------------------------------------------------------------


def _no_narrow_number(compute: dtypes.dtype, args: Any) -> None:
    """PyTorch's product of float8 knows no Python number and no 0-d tensor."""
    if compute in dtypes.FLOAT8 and not all([isinstance(a, Tensor) and a.ndim for a in args]):
        raise no_kernel("mul_cpu_reduced_float", compute)


# A real tensor is its own conjugate, which needs no call to say so; and `*` would be one of C.
def _by_other(g: Tensor, other: Any) -> Any:
    real = type(g) is Tensor is type(other) and other._dtype in dtypes.FLOATING
    return _times(g, other) if real else g * conj(other)


def _by_input(g: Tensor, input: Any) -> Any:
    real = type(g) is Tensor is type(input) and input._dtype in dtypes.FLOATING
    return _times(g, input) if real else g * conj(input)


MUL: Pointwise = Pointwise(
    "mul",
    np.multiply,
    same,
    Rule(
        "MulBackward0",
        input=_by_other,
        other=_by_input,
        rematerialize=lambda input, other: expressed(MUL, (input, other)),
    ),
    PAIR,
    bare=True,
    check=_no_narrow_number,
    also=dtypes.NARROW,
)


def _divisor_back(g: Tensor, input: Any, other: Tensor) -> Any:
    found = unrecorded(g, input, other) if type(input) is Tensor else None
    if found is None:
        return -g * conj((input / other) / other)
    a, x, y = found
    shares = bare.divide(bare.divide(x, y), y)
    return fresh(bare.multiply(bare.negative(a), shares), g._dtype)


DIV = Pointwise(
    "div",
    np.true_divide,
    floating,
    Rule("DivBackward0", input=lambda g, other: g / conj(other), other=_divisor_back),
    PAIR,
    bare=True,
)
_CUT = {d: division.trunc_divide_rounded(d.np) for d in dtypes.HALVES}
ROUNDED = {
    mode: Pointwise(
        f"div_{mode}",
        kernels,
        same,
        Rule("DivBackward2", input=lambda g: zeros(g), other=lambda g: zeros(g)),
        PAIR,
        bare=True,
        check=no_zero,
    )
    for mode, kernels in (
        ("trunc", dict[Any, Any](dict.fromkeys((INT, FLOAT), division.trunc_divide)) | _CUT),
        ("floor", dict[Any, Any](dict.fromkeys((INT, FLOAT), division.floor_divide))),
    )
}
FLOOR_DIVIDE = Pointwise(
    "floor_divide",
    ROUNDED["floor"].kernels,
    same,
    refused("floor_divide"),
    PAIR,
    title="div_floor_cpu",
    check=no_zero,
    bare=True,
)

mul = binary(MUL, aliases=("multiply",), doc="input * other.", foreach=2)
divide = binary(DIV, namespaces=("",), aliases=("true_divide",), doc="input / other.", foreach=2)
divide_ = Tensor.div_
floor_divide = binary(FLOOR_DIVIDE, doc="The quotient, rounded down.")


def _mode(rounding_mode: Any) -> Pointwise:
    row = ROUNDED.get(rounding_mode) if isinstance(rounding_mode, str) else None
    if row is None:
        raise RuntimeError(
            "div expected rounding_mode to be one of None, 'trunc', or 'floor' "
            f"but found '{rounding_mode}'"
        )
    return row


def div(
    input: Any, other: Any, *, rounding_mode: str | None = None, out: Tensor | None = None
) -> Tensor:
    """input / other; with a rounding mode ("trunc", "floor") rounded, in the inputs' own type.

    >>> seven = torch.tensor(-7)
    >>> seven / 2, seven // 2, torch.div(seven, 2, rounding_mode="trunc")
    (tensor(-3.5000), tensor(-4), tensor(-3))
    """
    if rounding_mode is None:
        return divide(input, other, out=out)
    return call(_mode(rounding_mode), (input, other), (), out)


def div_(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other, in place.

    Dtypes: integers, floating point and complex numbers.
    """
    if rounding_mode is None:
        return divide_(input, other)
    return call(_mode(rounding_mode), (input, other), (), input, True)


for _name in ("div", "divide"):
    export(_name, div)
    export(f"{_name}_", div_, namespaces=())

NO_NEG = (
    "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
    "mask, use the `~` or `logical_not()` operator instead."
)
neg = unary(
    Pointwise(
        "neg",
        {
            BOOL: Refused(RuntimeError, NO_NEG),
            INT: np.negative,
            FLOAT: np.negative,
            COMPLEX: np.negative,
        },
        same,
        Rule("NegBackward0", input=lambda g: -g),
    ),
    aliases=("negative",),
    doc="-input.",
    foreach=1,
)


def positive(input: Tensor) -> Tensor:
    """The tensor itself.

    Shape: the input's.
    Dtypes: integers, floating point and complex numbers.
    Raises: RuntimeError for bool.
    Memory: the input itself.
    """
    require_tensor("positive", "input", input)
    if input._dtype is dtypes.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


export("positive", positive)

# -- comparison -----------------------------------------------------------------------------------


def _flat(node: str) -> Rule:
    """The rule of a comparison in place: the 0 and 1 that it writes don't depend on anything."""
    return Rule(
        f"{node}1",
        input=lambda g: zeros(g),
        other=lambda g: zeros(g),
        numbers={"other": Rule(f"{node}0", input=lambda g: zeros(g))},
    )


for _word, _ufunc, _name, _mark in (
    ("eq", np.equal, "equal", "=="),
    ("ne", np.not_equal, "not_equal", "!="),
    ("lt", np.less, "less", "<"),
    ("le", np.less_equal, "less_equal", "<="),
    ("gt", np.greater, "greater", ">"),
    ("ge", np.greater_equal, "greater_equal", ">="),
):
    _whole = _word in ("eq", "ne")
    _kinds = _ufunc if _whole else dict.fromkeys((BOOL, INT, FLOAT), _ufunc)
    _also = dtypes.NARROW if _whole else ()
    _f = binary(
        Pointwise(
            _word,
            _kinds,
            predicate,
            _flat(f"{_word.title()}Backward"),
            PAIR,
            opmath=False,
            numbers=(1,),
            also=_also,
        ),
        aliases=() if _word == "eq" else (_name,),
        doc=f"input {_mark} other, as bools.",
    )
    compare(ROWS[_word], _word, _f)

# -- operators ------------------------------------------------------------------------------------


def _of_reflected(other: Any, self: Tensor) -> Tensor:
    made: Tensor = _rsub(self, other)
    return made


# 2 + x is x + 2, and 2 * x is x * 2: the tensor's edge comes first
operators(ADD, "add", add, add_, reflected=False)
operators(ADD, "radd", add, None, reflected=False)
operators(SUB, "sub", sub, sub_, reflected=False)
operators(RSUB, "sub", _of_reflected, None, forward=False)
operators(MUL, "mul", mul, Tensor.mul_, reflected=False)
operators(MUL, "rmul", mul, None, reflected=False)
_times: Any = Tensor.__mul__
operators(DIV, "truediv", divide, divide_, reflected=False)
plain_operators("div", divide, divide_, reflected=False)
plain_operators("floordiv", floor_divide, Tensor.floor_divide_)


def _rtruediv(self: Tensor, other: Any) -> Any:
    """other * (1 / self): PyTorch's rounding."""
    if not isinstance(other, (*OPERANDS, np.ndarray)):
        result = offered(other, divide, other, self)
        if result is not NotImplemented:
            return result
    try:
        return self.reciprocal() * other  # which a class that knows numbers on its left may answer
    except TypeError:
        return NotImplemented


_rdiv = named(_rtruediv, "__rdiv__", _rtruediv.__doc__)  # PyTorch's name of both
attach("rtruediv", _rdiv)
attach("rdiv", _rdiv)
attach("neg", neg)
attach("pos", positive)
attach("hash", object.__hash__)  # __eq__ answers tensors
