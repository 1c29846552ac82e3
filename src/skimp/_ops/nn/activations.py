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
from skimp._engine.dispatch.fast_path import fast_of
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.operands import refuse_complex
from skimp._engine.dispatch.pointwise import Pointwise, Refused, call
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.result_types import same
from skimp._engine.dispatch.rows import BOOL, COMPLEX, FLOAT, INT, zeros
from skimp._engine.eval.expr import Kernel
from skimp._engine.generated import function_of
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import activation as A
from skimp._kernels.pointwise import CLIP
from skimp._ops.index.masks import where

FUNCTIONAL = ("nn.functional",)
NO_COMPLEX = Refused(NotImplementedError, "clamp is not supported for complex types")


def functional(f: Any, fast: Any = None) -> Any:
    export(f.__name__, f, FUNCTIONAL, False, fast=fast)
    return f


def everywhere(f: Any, method: bool = False, **known: Any) -> Any:
    export(f.__name__, f, ("", *FUNCTIONAL), method, **known)
    return f


def apply(
    row: Pointwise, input: Tensor, params: tuple[Any, ...] = (), inplace: bool = False
) -> Tensor:
    if complex in map(type, params) and (dtype := dtype_of(input)) is not None:
        refuse_complex(dtype, *params)
    return call(row, (input,), params, input if inplace else None, inplace)


def back(
    name: str,
    kernel: Any,
    first: Callable[..., Any],
    second: Callable[..., Any] | None,
    *params: str,
    of: str = "input",
) -> Pointwise:
    """The row of a derivative: linear in the gradient (`first`); `second` by the input, or flat."""
    formulas = {"grad": first, of: second or (lambda g: zeros(g))}
    title = "".join([w.title() for w in name.split("_")])
    return Pointwise(
        name,
        {FLOAT: kernel, COMPLEX: kernel},
        same,
        Rule(f"{title}Backward0", formulas),
        ("grad", of),
        params,
    )


def row(
    name: str,
    kernels: Any,
    node: str,
    formula: Callable[..., Any],
    *params: str,
    title: str | None = None,
    overlap: tuple[int, ...] | None = None,
) -> Pointwise:
    """The row of an activation; from what one keeps of its input, the result is made again."""
    rule = Rule(node, input=formula)
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
        text = [f"def function(input, {given}):", f"    return call(row, (input,), ({given}))"]
        rule.rematerialize = function_of(f"{name}_again", text, {"call": call, "row": made})
    return made


# -- rectifiers -----------------------------------------------------------------------------------

# These two read an element before they write it: relu_ writes where it reads.
RECTIFY = Kernel("relu", A.relu, aliases=True, strided=True, brief=True)
RECTIFY_FLOATS = Kernel("relu", A.relu, True, True, brief=True, ufunc=CLIP, numbers=(0, inf))
PASS_ABOVE = Kernel(
    "threshold_backward", A.threshold_backward, aliases=True, strided=True, brief=True
)

THRESHOLD_BACK: Pointwise = back(
    "threshold_backward",
    PASS_ABOVE,
    lambda g, input, at: call(THRESHOLD_BACK, (g, input), (at,)),
    None,
    "at",
)
RELU = row(
    "relu",
    {
        BOOL: Refused(RuntimeError, "Boolean inputs not supported for relu"),
        INT: RECTIFY,
        FLOAT: RECTIFY_FLOATS,
        COMPLEX: NO_COMPLEX,
    },
    "ReluBackward0",
    lambda g, result: call(THRESHOLD_BACK, (g, result), (0.0,)),
)
THRESHOLD = row(
    "threshold",
    {INT: A.threshold, FLOAT: A.threshold},
    "ThresholdBackward0",
    lambda g, input, threshold: call(THRESHOLD_BACK, (g, input), (threshold,)),
    "threshold",
    "value",
)


def relu(input: Tensor) -> Tensor:
    """max(input, 0).

    Shape: any; the result's is the input's.
    Dtypes: integers and floating point; the result has the input's.
    Raises: RuntimeError for bools, NotImplementedError for complex numbers.
    Memory: a new tensor.
    """
    return apply(RELU, input)


def relu_(input: Tensor) -> Tensor:
    """max(input, 0), in place.

    Shape: any.
    Dtypes: integers and floating point.
    Raises: RuntimeError for bools, NotImplementedError for complex numbers.
    Memory: written in place.
    """
    return apply(RELU, input, inplace=True)


def _functional_relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0).

    Shape: any; the result's is the input's.
    Dtypes: integers and floating point; the result has the input's.
    Raises: RuntimeError for bools, NotImplementedError for complex numbers.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    return apply(RELU, input, inplace=inplace)


export("relu", relu, fast=fast_of(RELU), sparse="values")
export(
    "relu",
    named(_functional_relu, "relu", _functional_relu.__doc__),
    FUNCTIONAL,
    False,
    fast=lambda input, inplace=False: None if inplace else RELU.fast(input),
)
everywhere(relu_, True)


def dtype_of(input: Any) -> dtypes.dtype | None:
    """None for what is no tensor, which the call will refuse."""
    return input._dtype if isinstance(input, Tensor) else None


def _whole(input: Any, *numbers: float) -> tuple[Any, ...]:
    """Numbers in the type of an integer tensor."""
    dtype = dtype_of(input)
    if dtype is not None and dtype.category == INT:
        refuse_complex(dtype, *numbers)
        return tuple([int(n) for n in numbers])
    return numbers


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """The input where it is above the threshold, else `value`.

    Shape: any; the result's is the input's.
    Dtypes: integers and floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    return apply(THRESHOLD, input, _whole(input, threshold, value), inplace)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """The input where it is above the threshold, else `value`, in place.

    Shape: any.
    Dtypes: integers and floating point.
    Raises: NotImplementedError for other dtypes.
    Memory: written in place.
    """
    return apply(THRESHOLD, input, _whole(input, threshold, value), True)


everywhere(threshold)
everywhere(threshold_)

_CUT = Kernel("hardtanh", A.hardtanh, brief=True)
HARDTANH_BACK: Pointwise = back(
    "hardtanh_backward",
    Kernel("hardtanh_backward", A.hardtanh_backward, brief=True),
    lambda g, input, min_val, max_val: call(HARDTANH_BACK, (g, input), (min_val, max_val)),
    None,
    "min_val",
    "max_val",
)
HARDTANH = row(
    "hardtanh",
    {
        BOOL: Refused(RuntimeError, "Bool inputs not supported for hardtanh"),
        INT: _CUT,
        FLOAT: _CUT,
        COMPLEX: NO_COMPLEX,
    },
    "HardtanhBackward0",
    lambda g, input, min_val, max_val: call(HARDTANH_BACK, (g, input), (min_val, max_val)),
    "min_val",
    "max_val",
)


@functional
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """The input held within the limits.

    Shape: any; the result's is the input's.
    Dtypes: integers and floating point; the result has the input's.
    Raises: RuntimeError for bools, NotImplementedError for complex numbers.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if dtype_of(input) is dtypes.uint8 and min_val < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return apply(HARDTANH, input, _whole(input, min_val, max_val), inplace)


@functional
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """The input held within the limits, in place.

    Shape: any.
    Dtypes: integers and floating point.
    Raises: RuntimeError for bools, NotImplementedError for complex numbers.
    Memory: written in place.
    """
    result: Tensor = hardtanh(input, min_val, max_val, True)
    return result


@functional
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """The input held within 0 and 6.

    Shape: any; the result's is the input's.
    Dtypes: integers and floating point; the result has the input's.
    Raises: RuntimeError for bools, NotImplementedError for complex numbers.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    return apply(HARDTANH, input, (0, 6), inplace)


LEAKY_BACK: Pointwise = back(
    "leaky_relu_backward",
    A.leaky_relu_backward,
    lambda g, input, slope: call(LEAKY_BACK, (g, input), (slope,)),
    None,
    "slope",
)
LEAKY = row(
    "leaky_relu",
    A.leaky_relu,
    "LeakyReluBackward0",
    lambda g, input, slope: call(LEAKY_BACK, (g, input), (slope,)),
    "slope",
)


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


LEAKY_IN_PLACE = row("leaky_relu", A.leaky_relu, "LeakyReluBackward1", leaky_of_result, "slope")


@functional
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """The input above zero, else the slope times it.

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    return apply(LEAKY_IN_PLACE if inplace else LEAKY, input, (negative_slope,), inplace)


@functional
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """The input above zero, else the slope times it, in place.

    Shape: any.
    Dtypes: floating point.
    Raises: NotImplementedError for other dtypes.
    Memory: written in place.
    """
    return apply(LEAKY_IN_PLACE, input, (negative_slope,), True)


# -- elu and its kin ------------------------------------------------------------------------------


def _elu_second(
    g: Tensor, grad: Tensor, input: Tensor, alpha: float, scale: float, input_scale: float
) -> Any:
    curve = (input * input_scale).exp() * (alpha * scale * input_scale * input_scale)
    return where(input < 0, g * grad * curve, 0)


CURVE = ("alpha", "scale", "input_scale")
ELU_BACK: Pointwise = back(
    "elu_backward",
    A.elu_backward,
    lambda g, input, alpha, scale, input_scale: call(
        ELU_BACK, (g, input), (alpha, scale, input_scale)
    ),
    _elu_second,
    *CURVE,
)
ELU_BACK_OF_RESULT: Pointwise = back(
    "elu_backward_of_result",
    A.elu_backward_of_result,
    lambda g, output, alpha, scale, input_scale: call(
        ELU_BACK_OF_RESULT, (g, output), (alpha, scale, input_scale)
    ),
    lambda g, grad, output, input_scale: where(output < 0, g * grad * input_scale, 0),
    *CURVE,
    of="output",
)


def _elu_of_input(
    g: Tensor, input: Tensor, alpha: float, scale: float, input_scale: float
) -> Tensor:
    return call(ELU_BACK, (g, input), (alpha, scale, input_scale))


def _elu_of_result(
    g: Tensor, result: Tensor, alpha: float, scale: float, input_scale: float
) -> Tensor:
    check_slope(alpha, "elu")
    return call(ELU_BACK_OF_RESULT, (g, result), (alpha, scale, input_scale))


ELU = {
    (name, inplace): row(
        name,
        A.elu,
        f"{node}Backward{int(inplace)}",
        _elu_of_result if inplace else _elu_of_input,
        *CURVE,
        title="elu_cpu",
    )
    for name, node in (("elu", "Elu"), ("selu", "Elu"), ("celu", "Celu"))
    for inplace in (False, True)
}


@functional
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """The input above zero, else alpha (exp(input) - 1).

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    return apply(ELU["elu", bool(inplace)], input, (alpha, 1, 1), inplace)


@functional
def elu_(input: Tensor, alpha: float = 1.0, scale: float = 1, input_scale: float = 1) -> Tensor:
    """The input above zero, else alpha (exp(input_scale * input) - 1), both times `scale`; in
    place.

    Shape: any.
    Dtypes: floating point.
    Raises: NotImplementedError for other dtypes.
    Memory: written in place.
    """
    return apply(ELU["elu", True], input, (alpha, scale, input_scale), True)


SELU = (A.SELU_ALPHA, A.SELU_SCALE, 1)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """elu with the two constants of self-normalising networks.

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    return apply(ELU["selu", bool(inplace)], input, SELU, inplace)


def selu_(input: Tensor) -> Tensor:
    """elu with the two constants of self-normalising networks, in place.

    Shape: any.
    Dtypes: floating point.
    Raises: NotImplementedError for other dtypes.
    Memory: written in place.
    """
    return apply(ELU["selu", True], input, SELU, True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """elu with a slope of 1 at zero for every alpha.

    Shape: any; the result's is the input's.
    Dtypes: floating point; the result has the input's.
    Raises: NotImplementedError for other dtypes.
    Memory: a new tensor; with `inplace` the input is written and returned.
    """
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return apply(ELU["celu", bool(inplace)], input, (alpha, 1, 1 / alpha), inplace)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu with a slope of 1 at zero for every alpha, in place.

    Shape: any.
    Dtypes: floating point.
    Raises: NotImplementedError for other dtypes.
    Memory: written in place.
    """
    return celu(input, alpha, True)


for _f in (selu, selu_, celu, celu_):
    everywhere(_f)
