"""Activations (nn.functional), and the rows of their derivatives, each one pass over its operands.

The derivative of an activation is a row of its own, so that it runs fused and has a derivative
again. relu keeps its result; the others keep their input, except in place, where elu and
leaky_relu can do with the result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from skimp._engine.autograd.rules import Rule, parameters
from skimp._engine.dispatch.alike import alike
from skimp._engine.dispatch.bodies import in_place_of
from skimp._engine.dispatch.fast_path import fast_of
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.operands import check_number, constant, refuse_complex, unrecorded
from skimp._engine.dispatch.pointwise import Pointwise, Refused, call, expressed
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.result_types import same
from skimp._engine.dispatch.row import Function
from skimp._engine.dispatch.rows import BOOL, COMPLEX, FLOAT, INT, formula_of, node_name, zeros
from skimp._engine.dispatch.settled import Run, settle
from skimp._engine.eval.expr import Kernel
from skimp._engine.generated import function_of
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._kernels import activation as A, bare
from skimp._kernels.pointwise import BLENDED, CLIP
from skimp._ops.index.masks import where

Formula = Callable[..., Any]
FUNCTIONAL = ("nn.functional",)
EVERYWHERE = ("", *FUNCTIONAL)
NO_COMPLEX = Refused(NotImplementedError, "clamp is not supported for complex types")


def functional(
    row: Pointwise | None = None,
    namespaces: tuple[str, ...] = FUNCTIONAL,
    method: bool = False,
    *,
    in_place: bool = False,
    **known: Any,
) -> Callable[[Function], Callable[..., Tensor]]:
    """Declare a function of nn.functional by the row that it runs, or one that decides which
    (`settled.py`); `in_place`: and `name_`.
    """

    def declare(f: Function) -> Function:
        over = None
        if f.__annotations__["return"] == "Run":
            f, known["fast"], over = settle(f)
        code = f.__code__
        alone = code.co_varnames[: code.co_argcount] == ("input", "inplace")
        if row is not None and alone and not row.params:
            known["fast"] = _fast(row)
        export(f.__name__, f, namespaces, method, row=row, **known)
        if in_place:
            export(f"{f.__name__}_", in_place_of(f), namespaces, method, row=row, fast=over)
        return f

    return declare


def _fast(row: Pointwise) -> Callable[..., Tensor | None]:
    """The row's fast paths, of a function of an input and whether it is in place."""

    def fast(input: Tensor, inplace: bool = False) -> Tensor | None:
        if inplace:
            return input if row.fast_inplace(input) else None
        made = row.fast(input)
        return alike(row, (input,), ()) if made is None else made

    return fast


def run(row: Pointwise, input: Tensor, params: tuple[Any, ...]) -> Run:
    if complex in map(type, params) and (dtype := dtype_of(input)) is not None:
        refuse_complex(dtype, *params)
    return Run(row, (input,), params)


def apply(
    row: Pointwise, input: Tensor, params: tuple[Any, ...] = (), inplace: bool = False
) -> Tensor:
    if complex in map(type, params) and (dtype := dtype_of(input)) is not None:
        refuse_complex(dtype, *params)
    return call(row, (input,), params, input if inplace else None, inplace)


def back(
    name: str, kernel: Any, second: Formula | None = None, *params: str, of: str = "input"
) -> Pointwise:
    """The row of a derivative: linear in the gradient, so its own derivative by that is itself;
    `second` by the input, or flat."""
    own = formula_of(name, of, params)
    formulas = {"grad": own, of: second or (lambda g: zeros(g))}
    if not isinstance(kernel, Kernel):
        kernel = Kernel(name, kernel, gate=kernel)
    kernels = {FLOAT: kernel, COMPLEX: kernel}
    made = Pointwise(name, kernels, same, Rule(node_name(name), formulas), ("grad", of), params)
    own.__globals__["row"] = made
    return made


def row(
    name: str,
    kernels: Any,
    gradient: Pointwise | Formula,
    *params: str,
    node: str | None = None,
    title: str | None = None,
    overlap: tuple[int, ...] | None = None,
) -> Pointwise:
    """The row of an activation, whose gradient is a row's or a formula; from what one keeps of its
    input, the result is made again."""
    formula: Formula
    if isinstance(gradient, Pointwise):
        formula = formula_of(name, gradient.args[1], gradient.params, gradient)
    else:
        formula = gradient
    rule = Rule(node or node_name(name), input=formula)
    made = Pointwise(
        name,
        kernels if isinstance(kernels, dict) else {FLOAT: kernels},
        same,
        rule,
        params=params,
        title=title,
        overlap=overlap,
    )
    if "input" in parameters(formula):
        given = "".join([f"{p}, " for p in params])
        text = [f"def function(input, {given}):", f"    return expressed(row, (input,), ({given}))"]
        space = {"expressed": expressed, "row": made}
        rule.rematerialize = function_of(f"{name}_again", text, space)
    return made


# -- rectifiers -----------------------------------------------------------------------------------

# These two read an element before they write it: relu_ writes where it reads.
RECTIFY = Kernel("relu", A.relu, aliases=True, strided=True, brief=True)
RECTIFY_FLOATS = Kernel("relu", A.relu, True, True, brief=True, ufunc=CLIP, numbers=(0, inf))
PASS_ABOVE = Kernel(
    "threshold_backward",
    A.threshold_backward,
    aliases=True,
    strided=True,
    brief=True,
    listed=A.threshold_calls,
    gate=A.drop_outside,
)

THRESHOLD_BACK = back("threshold_backward", PASS_ABOVE, None, "at")


def _relu_back(g: Tensor, result: Tensor) -> Tensor:
    found = unrecorded(g, result)
    if found is not None and found[0].size < BLENDED and found[0].shape == found[1].shape:
        none = bare.zero(g._dtype.np)  # as `drop` does for so few, without an array to write to
        return fresh(bare.where(bare.less_equal(found[1], none), none, found[0]), g._dtype)
    made = THRESHOLD_BACK.fast(g, result, 0.0)  # as `call` asks it first
    return call(THRESHOLD_BACK, (g, result), (0.0,)) if made is None else made


RELU = row(
    "relu",
    {
        BOOL: Refused(RuntimeError, "Boolean inputs not supported for relu"),
        INT: RECTIFY,
        FLOAT: RECTIFY_FLOATS,
        COMPLEX: NO_COMPLEX,
    },
    _relu_back,
)
THRESHOLD = row(
    "threshold",
    {INT: A.threshold, FLOAT: A.threshold},
    lambda g, input, threshold: call(THRESHOLD_BACK, (g, input), (threshold,)),
    "threshold",
    "value",
)


def relu(input: Tensor) -> Tensor:
    """max(input, 0)."""
    return apply(RELU, input)


def relu_(input: Tensor) -> Tensor:
    """max(input, 0). In place."""
    return apply(RELU, input, inplace=True)


def _functional_relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)."""
    return apply(RELU, input, inplace=inplace)


export("relu", relu, fast=fast_of(RELU), sparse="values", row=RELU)
export(
    "relu",
    named(_functional_relu, "relu", _functional_relu.__doc__),
    FUNCTIONAL,
    False,
    fast=_fast(RELU),
    row=RELU,
)
export(
    "relu_",
    relu_,
    EVERYWHERE,
    fast=lambda input: input if RELU.fast_inplace(input) else None,
    row=RELU,
)


def dtype_of(input: Any) -> dtypes.dtype | None:
    """None for what is no tensor, which the call will refuse."""
    return input._dtype if isinstance(input, Tensor) else None


def _whole(input: Any, *numbers: float) -> tuple[Any, ...]:
    """Numbers that the type of a tensor holds, in that type if it is of integers."""
    dtype = dtype_of(input)
    if dtype is None or dtype.category not in (INT, FLOAT):
        return numbers
    refuse_complex(dtype, *numbers)
    for n in numbers:
        check_number(n, dtype)
    if dtype.category == FLOAT:
        return numbers
    return tuple([constant(int(n), dtype).item() for n in numbers])


@functional(THRESHOLD, EVERYWHERE, in_place=True)
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Run:
    """The input where it is above the threshold, else `value`."""
    dtype = dtype_of(input)
    if dtype in dtypes.HALVES and not isinstance(threshold, complex):
        check_number(threshold, dtypes.float32)  # in which it is compared
        return run(THRESHOLD, input, (threshold, *_whole(input, value)))
    return run(THRESHOLD, input, _whole(input, threshold, value))


_CUT = Kernel("hardtanh", A.hardtanh, brief=True)
_CUT_FLOATS = Kernel("hardtanh", A.hardtanh, True, True, brief=True, ufunc=CLIP)
HARDTANH_BACK = back(
    "hardtanh_backward",
    Kernel("hardtanh_backward", A.hardtanh_backward, brief=True, gate=A.drop_outside),
    None,
    "min_val",
    "max_val",
)
HARDTANH = row(
    "hardtanh",
    {
        BOOL: Refused(RuntimeError, "Bool inputs not supported for hardtanh"),
        INT: _CUT,
        FLOAT: _CUT_FLOATS,
        COMPLEX: NO_COMPLEX,
    },
    HARDTANH_BACK,
    "min_val",
    "max_val",
)


def _hold(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Run:
    """The input held within the limits, by the upper one where they are turned."""
    dtype = dtype_of(input)
    if dtype is not None and dtype.category == INT:
        for v in (min_val, max_val):
            check_number(v, dtypes.int64)  # which PyTorch asks first
        min_val, max_val = int(min_val), int(max_val)
        if dtype is dtypes.uint8 and min_val < 0:
            raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return run(HARDTANH, input, _whole(input, min_val, max_val))


@functional(HARDTANH)
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Run:
    """The input held within the limits."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return _hold(input, min_val, max_val)


def _declare_hardtanh_() -> None:
    """hardtanh_, which PyTorch's parser calls without a look at the limits."""
    f, _, fast = settle(_hold)
    f.__name__ = "hardtanh"
    export("hardtanh_", in_place_of(f), FUNCTIONAL, False, row=HARDTANH, fast=fast)


_declare_hardtanh_()


@functional(HARDTANH)
def relu6(input: Tensor, inplace: bool = False) -> Run:
    """The input held within 0 and 6."""
    return run(HARDTANH, input, (0, 6))


LEAKY_BACK = back("leaky_relu_backward", A.leaky_relu_backward, None, "slope")
LEAKY = row("leaky_relu", A.leaky_relu, LEAKY_BACK, "slope")


def check_slope(slope: float, name: str) -> None:
    if slope < 0:
        raise RuntimeError(
            f"In-place {name} backward calculation is triggered with a negative slope which is not "
            "supported. This is caused by calling in-place forward function with a negative slope, "
            "please call out-of-place version instead."
        )


def leaky_of_result(g: Tensor, result: Tensor, slope: float) -> Tensor:
    check_slope(slope, "leakyReLu")
    return call(LEAKY_BACK, (g, result), (slope,))


LEAKY_IN_PLACE = row(
    "leaky_relu", A.leaky_relu, leaky_of_result, "slope", node="LeakyReluBackward1"
)


@functional(LEAKY, in_place=True)
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Run:
    """The input above zero, else the slope times it."""
    return run(LEAKY_IN_PLACE if inplace else LEAKY, input, (negative_slope,))


# -- elu and its kin ------------------------------------------------------------------------------


def _elu_second(
    g: Tensor, grad: Tensor, input: Tensor, alpha: float, scale: float, input_scale: float
) -> Any:
    curve = (input * input_scale).exp() * (alpha * scale * input_scale * input_scale)
    return where(input < 0, g * grad * curve, 0)


CURVE = ("alpha", "scale", "input_scale")
ELU_BACK = back("elu_backward", A.elu_backward, _elu_second, *CURVE)
ELU_BACK_OF_RESULT = back(
    "elu_backward_of_result",
    A.elu_backward_of_result,
    lambda g, grad, output, input_scale: where(output < 0, g * grad * input_scale, 0),
    *CURVE,
    of="output",
)


def _elu_of_result(
    g: Tensor, result: Tensor, alpha: float, scale: float, input_scale: float
) -> Tensor:
    check_slope(alpha, "elu")
    return call(ELU_BACK_OF_RESULT, (g, result), (alpha, scale, input_scale))


ELU = {
    (name, inplace): row(
        name,
        A.elu,
        _elu_of_result if inplace else ELU_BACK,
        *CURVE,
        node=f"{node}Backward{int(inplace)}",
        title="elu_cpu",
    )
    for name, node in (("elu", "Elu"), ("selu", "Elu"), ("celu", "Celu"))
    for inplace in (False, True)
}


@functional(ELU["elu", False])
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Run:
    """The input above zero, else alpha (exp(input) - 1)."""
    return run(ELU["elu", bool(inplace)], input, (alpha, 1, 1))


@functional(ELU["elu", True])
def elu_(input: Tensor, alpha: float = 1.0, scale: float = 1, input_scale: float = 1) -> Tensor:
    """The input above zero, else alpha (exp(input_scale * input) - 1), both times `scale`; in
    place.
    """
    return apply(ELU["elu", True], input, (alpha, scale, input_scale), True)


SELU = (A.SELU_ALPHA, A.SELU_SCALE, 1)


@functional(ELU["selu", False], EVERYWHERE, in_place=True)
def selu(input: Tensor, inplace: bool = False) -> Run:
    """elu with the two constants of self-normalising networks."""
    return run(ELU["selu", bool(inplace)], input, SELU)


@functional(ELU["celu", False], EVERYWHERE, in_place=True)
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Run:
    """elu with a slope of 1 at zero for every alpha."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return run(ELU["celu", bool(inplace)], input, (alpha, 1, 1 / alpha))
