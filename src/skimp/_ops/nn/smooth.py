"""Activations that are smooth: GELU, SiLU, mish, softplus and their kin, with two derivatives."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.operands import refuse_complex
from skimp._engine.dispatch.pointwise import call
from skimp._engine.dispatch.rows import COMPLEX, FLOAT
from skimp._engine.dispatch.settled import Run
from skimp._engine.eval.expr import Kernel
from skimp._engine.tensor.tensor import Tensor
from skimp._kernels import activation as A, onednn
from skimp._kernels.elementwise_onednn import calls
from skimp._kernels.threads import Call
from skimp._ops.index.masks import where
from skimp._ops.math.unary import sigmoid, sigmoid_backward, tanh
from skimp._ops.nn.activations import apply, back, functional, row


def _gelu_second(g: Tensor, grad: Tensor, input: Tensor) -> Any:
    square = input * input
    return g * grad * ((-0.5 * square).exp() * (2 - square) / sqrt(2 * pi))


def _gelu_tanh_second(g: Tensor, grad: Tensor, input: Tensor) -> Any:
    scale, cube = sqrt(2 / pi), 0.044715
    square = input * input
    t = (scale * input * (1 + cube * square)).tanh()
    slope = scale * (1 + 3 * cube * square)
    return g * grad * (1 - t * t) * (slope + 3 * scale * cube * square - input * t * slope * slope)


def _gelu_kernels(of: int, forward: Any, backward: Any) -> tuple[Kernel, Kernel]:
    """Of one of the two, and of its derivative, which oneDNN makes over what it reads."""

    def listed(x: Any, *, out: Any) -> list[Call]:
        return calls(of, (x,), out)

    def listed_back(g: Any, x: Any, *, out: Any) -> list[Call]:
        return calls(of, (x, g), out)

    name = "gelu_backward"
    return Kernel("gelu", forward, listed=listed), Kernel(
        name, backward, gate=backward, listed=listed_back
    )


_EXACT, _EXACT_BACK = _gelu_kernels(onednn.GELU, A.gelu, A.gelu_backward)
_TANH, _TANH_BACK = _gelu_kernels(onednn.GELU_TANH, A.gelu_tanh, A.gelu_tanh_backward)
GELU_BACK = back("gelu_backward", _EXACT_BACK, _gelu_second)
GELU_TANH_BACK = back("gelu_backward", _TANH_BACK, _gelu_tanh_second)
GELU = {
    "none": row("gelu", _EXACT, GELU_BACK, title="GeluKernelImpl"),
    "tanh": row("gelu", _TANH, GELU_TANH_BACK, title="GeluKernelImpl"),
}


def _quick_gelu(input: Tensor, *, approximate: str = "none") -> Tensor | None:
    found = GELU.get(approximate)
    return None if found is None else found.fast(input)


@functional(GELU["none"], fast=_quick_gelu)
def gelu(input: Tensor, *, approximate: str = "none", out: Tensor | None = None) -> Tensor:
    """input * Phi(input), the normal distribution's, or its approximation by tanh."""
    if approximate not in GELU:
        raise RuntimeError("approximate argument must be either none or tanh.")
    return call(GELU[approximate], (input,), (), out)


def _silu_second(g: Tensor, grad: Tensor, input: Tensor) -> Any:
    s = sigmoid(input)
    return g * grad * (s * (1 - s) * (2 + input * (1 - 2 * s)))


SILU_BACK = back("silu_backward", A.silu_backward, _silu_second)
SILU = row("silu", {FLOAT: A.silu, COMPLEX: A.silu}, SILU_BACK)


@functional(SILU)
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input)."""
    return apply(SILU, input, (), inplace)


def _mish_second(g: Tensor, grad: Tensor, input: Tensor) -> Any:
    s = sigmoid(input)
    t = softplus(input).tanh()
    return g * grad * (s * (1 - t * t) * (2 + input * (1 - s) - 2 * input * t * s))


MISH_BACK = back("mish_backward", A.mish_backward, _mish_second)
MISH = row("mish", A.mish, MISH_BACK)


@functional(MISH)
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input))."""
    return apply(MISH, input, (), inplace)


def _softplus_second(g: Tensor, grad: Tensor, input: Tensor, beta: float, threshold: float) -> Any:
    z = input * beta
    return where(z > threshold, 0, sigmoid_backward(g * grad, sigmoid(z)) * beta)


SOFTPLUS_BACK = back(
    "softplus_backward", A.softplus_backward, _softplus_second, "beta", "threshold"
)
SOFTPLUS = row("softplus", A.softplus, SOFTPLUS_BACK, "beta", "threshold")


@functional(SOFTPLUS)
def softplus(
    input: Tensor, beta: float = 1, threshold: float = 20, *, out: Tensor | None = None
) -> Run:
    """log(1 + exp(beta input)) / beta; the input itself where beta input is above the threshold."""
    if isinstance(input, Tensor):
        refuse_complex(input._dtype, beta, threshold)
    return Run(SOFTPLUS, (input,), (beta, threshold))


LOGSIGMOID_BACK = back(
    "log_sigmoid_backward",
    A.logsigmoid_backward,
    lambda g, grad, input: -sigmoid_backward(g * grad, sigmoid(input)),
)
LOGSIGMOID = row("log_sigmoid", A.logsigmoid, LOGSIGMOID_BACK, overlap=())


@functional(LOGSIGMOID)
def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(sigmoid(input))."""
    return call(LOGSIGMOID, (input,), (), out)


@functional()
def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input).

    Shape: any; the result's is the input's.
    Dtypes: numbers; integers give the default float type.
    Raises: RuntimeError for bools, which can't be subtracted.
    """
    return input - input.tanh()


@functional()
def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|).

    Shape: any; the result's is the input's.
    Dtypes: numbers; integers give the default float type.
    Raises: NotImplementedError for bools, which have no absolute value.
    """
    return input / (input.abs() + 1)


for _name, _f in (("sigmoid", sigmoid), ("tanh", tanh)):
    export(_name, _f, ("nn.functional",), False)
