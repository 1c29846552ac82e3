"""Activations with a factor for each element: learned (prelu), drawn (rrelu), computed (glu)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.bodies import form_of
from skimp._engine.dispatch.forms import export, general, hidden
from skimp._engine.dispatch.operands import OPMATH, require_tensor
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.result_types import same
from skimp._engine.dispatch.rows import FLOAT, zeros
from skimp._engine.memory.layout import normalize_dim
from skimp._engine.tensor import dtypes, meta, promotion
from skimp._engine.tensor.tensor import Tensor, adopt, empty, fresh
from skimp._kernels import activation as A, bare
from skimp._kernels.random.normal import uniform53
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.index.masks import where
from skimp._ops.math.unary import sigmoid
from skimp._ops.meta import shapes
from skimp._ops.nn.activations import EVERYWHERE, LEAKY_BACK, apply, leaky_of_result, row
from skimp._ops.random.generator import LOCK, engine_of

# -- prelu: a slope for each channel ---------------------------------------------------------------

PRELU_BACK: Pointwise = Pointwise(
    "prelu_backward",
    {FLOAT: A.leaky_relu_backward},
    same,
    Rule(
        "PreluKernelBackwardBackward0",
        grad=lambda g, input, weight: call(PRELU_BACK, (g, input, weight)),
        input=lambda g: zeros(g),
        weight=lambda g, grad, input: where(input > 0, 0, g * grad),
    ),
    ("grad", "input", "weight"),
)
PRELU_WEIGHT: Pointwise = Pointwise(
    "prelu_weight_backward",
    {FLOAT: A.prelu_weight_backward},
    same,
    Rule(
        "PreluKernelBackwardBackward0",
        grad=lambda g, input: call(PRELU_WEIGHT, (g, input)),
        input=lambda g, grad, input: where(input > 0, 0, g * grad),
    ),
    ("grad", "input"),
)
PRELU = Pointwise(
    "prelu",
    {FLOAT: A.prelu},
    same,
    Rule(
        "PreluKernelBackward0",
        input=lambda g, input, weight: call(PRELU_BACK, (g, input, weight)),
        weight=lambda g, input: call(PRELU_WEIGHT, (g, input)),
    ),
    ("input", "weight"),
    numbers=(),
)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """The input above zero, else the weight (one, or one for each channel) times it.

    Shape: input (n, channels, ...) and weight (1,) or (channels,); the result has the input's.
    Dtypes: floating point, the same for both.
    Raises: RuntimeError for a weight of another length or dtype.
    """
    for i, (name, t) in enumerate((("input", input), ("weight", weight))):
        require_tensor("prelu", name, t, i + 1)
    if input._dtype is not weight._dtype:
        names = [promotion.scalar_type_name(t._dtype) for t in (input, weight)]
        raise RuntimeError(f"prelu: Type promoting not supported. Got {names[0]} and {names[1]}")
    count, dims = weight.numel(), input.ndim
    if count != 1:
        if dims == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if dims > 1 else 1
        if channels != count:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{count} and channel size = {channels}."
            )
    if weight.ndim > 1:
        raise RuntimeError(
            "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
            + str(weight.ndim)
        )
    if count != 1 or not dims:  # one is for all as it is
        shape = (1, count, *([1] * (dims - 2))) if dims > 1 else (count,) if dims else ()
        weight = weight.reshape(shape)
    return call(PRELU, (input, weight))


export("prelu", prelu, EVERYWHERE, autocast="lower")

# -- rrelu: a slope drawn for each element ---------------------------------------------------------


def _by_noise(g: Any, x: Any, noise: Any, *, out: Any) -> None:
    bare.multiply(g, noise, out=out)


NOISE_BACK: Pointwise = Pointwise(
    "rrelu_with_noise_backward",
    {FLOAT: _by_noise},
    same,
    Rule(
        "RreluWithNoiseBackwardBackward0",
        grad=lambda g, input, noise: call(NOISE_BACK, (g, input, noise)),
        input=lambda g: zeros(g),
    ),
    ("grad", "input", "noise"),
)
RRELU = {
    node: Pointwise(
        "rrelu",
        {FLOAT: np.multiply},
        same,
        Rule(node, input=lambda g, input, noise: call(NOISE_BACK, (g, input, noise))),
        ("input", "noise"),
        title="rrelu_with_noise_cpu",
    )
    for node in ("RreluWithNoiseBackward0", "RreluWithNoiseBackward1")
}
_OF_SLOPES: tuple[Any, ...] = (LEAKY_BACK, leaky_of_result)
RRELU_FIXED, RRELU_FIXED_IN_PLACE = [
    row("rrelu", A.leaky_relu, gradient, "slope", node=node, title="leaky_relu_cpu")
    for node, gradient in zip(RRELU, _OF_SLOPES, strict=True)
]


def _rrelu(
    input: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    inplace: bool = False,
    generator: Any = None,
) -> Tensor:
    """The input above zero, else a slope times it, drawn or (not training) the limits' mean."""
    for word, bound in (("lower", lower), ("upper", upper)):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu: {word} bound must be finite, got {bound:g}")
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    if training and isinstance(input, Tensor):
        promotion.refuse("rrelu_with_noise_out_cpu", input._dtype, (dtypes.float16,))
        RRELU["RreluWithNoiseBackward0"].kernel(input._dtype)
        row = RRELU[f"RreluWithNoiseBackward{int(inplace)}"]
        return call(
            row,
            (input, _slopes(input, lower, upper, generator)),
            (),
            input if inplace else None,
            inplace,
        )
    return apply(
        RRELU_FIXED_IN_PLACE if inplace else RRELU_FIXED, input, ((lower + upper) / 2,), inplace
    )


def _slopes(input: Tensor, lower: float, upper: float, generator: Any = None) -> Tensor:
    """1 above zero, else drawn between the limits: one draw for each such element, in order."""
    if input._hollow:
        return meta.like(input)
    values = input._skimp_array()
    of = OPMATH.get(input._dtype, input._dtype).np.type
    low, high = float(of(lower)), float(of(upper))
    noise = np.ones(values.shape, input._dtype.np)
    below = values <= 0
    with LOCK():
        drawn = uniform53(int(bare.count_nonzero(below)), engine_of(generator))
    noise[below] = (drawn * (high - low) + low).astype(of)
    return adopt(noise, input._dtype)


_by_generator = form_of(
    _rrelu, "rrelu", ("inplace",), doc="nn.functional.rrelu, with a generator to draw from."
)
_in_place = form_of(
    _rrelu,
    "rrelu_",
    ("inplace",),
    ", inplace=True",
    "The input above zero, else a slope times it, in place.",
)
export(
    "rrelu",
    form_of(_rrelu, "rrelu", ("generator",)),
    ("nn.functional",),
    method=False,
    row=RRELU_FIXED,
)
export("rrelu", _by_generator, method=False, row=RRELU_FIXED)
export("rrelu_", _in_place, EVERYWHERE, method=False, row=RRELU_FIXED)

# -- glu: half of the input opens and closes the other ---------------------------------------------

GLU = Pointwise("glu", {FLOAT: A.glu}, same, None, ("input", "gate"))
GLU_GATE_BACK = Pointwise(
    "glu_backward", {FLOAT: A.glu_gate_backward}, same, None, ("grad", "input", "gate")
)


def _halves(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    n = input.shape[dim] // 2
    return input.narrow(dim, 0, n), input.narrow(dim, n, n)


def _small_halves(input: Tensor, dim: Any) -> tuple[Any, Any, Any]:
    """The elements of a small row-major tensor, and where its halves are in them; nothing of any
    other, and of what is refused."""
    a = input._np
    if a is None or input._dtype not in dtypes.FLOATING or not a.flags.c_contiguous:
        return None, None, None
    if type(dim) is not int or not -a.ndim <= dim < a.ndim or not a.size or a.shape[dim] % 2:
        return None, None, None
    n, before = a.shape[dim] // 2, (slice(None),) * (dim % a.ndim)
    return a, (*before, slice(n)), (*before, slice(n, None))


def _small_glu(input: Tensor, dim: Any = -1) -> Any:
    a, *halves = _small_halves(input, dim)
    if a is None:
        return None
    first, gate = [np.ascontiguousarray(a[half]) for half in halves]
    made = np.empty(gate.shape, gate.dtype)
    quietly(partial(A.glu, first, gate, out=made))
    return fresh(made, input._dtype)


def _small_glu_back(grad: Tensor, input: Tensor, dim: Any) -> Any:
    (a, *halves), g = _small_halves(input, dim), grad._np
    if a is None or g is None or grad._dtype is not input._dtype:
        return None
    g = np.ascontiguousarray(g)
    first, gate = [np.ascontiguousarray(a[half]) for half in halves]
    made, room = np.empty(a.shape, a.dtype), np.empty(gate.shape, gate.dtype)
    for half, kernel, read in (
        (halves[0], A.glu, (g, gate)),
        (halves[1], A.glu_gate_backward, (g, first, gate)),
    ):
        quietly(partial(kernel, *read, out=room))
        made[half] = room
    return fresh(made, input._dtype)


@general(
    method=False,
    namespaces=("nn.functional",),
    fast=_small_glu,
    out=True,
    rule=Rule("GluBackward0", input=lambda g, input, dim: _glu_back(g, input, dim)),
    batch=batching.dims.by_dims("dim"),
)
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dimension, times the sigmoid of the second.

    Shape: the result's `dim` is half as long.
    Dtypes: floating point; the result has the input's.
    Raises: RuntimeError where `dim` has an odd length or the input has no dims.
    Memory: a new tensor.
    """
    if input.ndim == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    along = normalize_dim(dim, input.ndim)
    if input.shape[along] % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {along} is size {input.shape[along]}"
        )
    return call(GLU, _halves(input, along))


def _glu_back(g: Tensor, input: Tensor, dim: int) -> Any:
    return glu_backward(g, input, dim)


def _second(g: Tensor, grad: Tensor, input: Tensor, dim: int) -> Any:
    """The derivative of glu_backward with respect to the input, in ops."""
    (first, gate), (g_first, g_gate) = _halves(input, dim), _halves(g, dim)
    s = sigmoid(gate)
    slope = s * (1 - s)
    result = empty(tuple(input.shape), input._dtype)
    to_first, to_gate = _halves(result, dim)
    to_first.copy_(grad * g_gate * slope)
    to_gate.copy_(grad * slope * (g_first + g_gate * first * (1 - 2 * s)))
    return result


@hidden(
    fast=_small_glu_back,
    rule=Rule(
        "GluBackwardBackward0", grad=lambda g, input, dim: _grad_back(g, input, dim), input=_second
    ),
    batch=batching.dims.glu_backward,
    meta=shapes.as_second,
)
def glu_backward(grad: Tensor, input: Tensor, dim: int) -> Tensor:
    """The gradient of glu's input: both halves written in place, nothing between."""
    first, gate = _halves(input, dim)
    result = empty(tuple(input.shape), input._dtype)
    to_first, to_gate = _halves(result, dim)
    call(GLU, (grad, gate), (), to_first)
    call(GLU_GATE_BACK, (grad, first, gate), (), to_gate)
    return result


def _grad_back(g: Tensor, input: Tensor, dim: int) -> Any:
    (first, gate), (g_first, g_gate) = _halves(input, dim), _halves(g, dim)
    s = sigmoid(gate)
    return g_first * s + g_gate * first * (s * (1 - s))


SAYS = """\
Dtypes: floating point.
Raises: NotImplementedError for other dtypes."""
