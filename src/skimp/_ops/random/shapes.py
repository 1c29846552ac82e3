"""Gamma, Dirichlet and binomial numbers: one for each parameter that a tensor holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import general
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels.random import rejection as draws_rejection
from skimp._kernels.special.implicit import beta_shape_slope, gamma_shape_slope
from skimp._ops import batching
from skimp._ops.meta import shapes
from skimp._ops.random.generator import LOCK, drawing, engine_of


def _in_double(t: Tensor) -> Array:
    return np.asarray(t._skimp_array(), np.float64)


def _only_floats(name: str, *tensors: Tensor) -> None:
    for t in tensors:
        if not t._dtype.is_floating_point:
            raise no_kernel(name, t._dtype)


@general(method=False, composite=False, meta=shapes.as_first)
def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """How gamma numbers `output` move with their shape parameters `input`."""
    _only_floats("_standard_gamma_grad_cpu", input)
    slope = gamma_shape_slope(_in_double(input), _in_double(output))
    return fresh(slope.astype(input._skimp_array().dtype), input._dtype)


@general(method=False, composite=False, meta=shapes.as_first)
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """How elements `x` of Dirichlet vectors move with their own parameters, over 1 - x."""
    _only_floats("_dirichlet_grad_cpu", x)
    slope = beta_shape_slope(_in_double(x), _in_double(alpha), _in_double(total))
    return fresh(slope.astype(x._skimp_array().dtype), x._dtype)


GAMMA = Rule(
    "StandardGammaBackward0", input=lambda g, input, result: g * _standard_gamma_grad(input, result)
)


@general(method=False, rule=GAMMA, batch=batching.dims.ELEMENTWISE, meta=shapes.as_first)
@drawing
def _standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """Gamma numbers of the shapes that `input` holds, and of scale 1."""
    _only_floats("gamma", input)
    with LOCK():
        drawn = draws_rejection.standard_gamma(_rows(input), engine_of(generator))
    return fresh(drawn, input._dtype)


def _rows(t: Tensor) -> Array:
    return np.array(t._skimp_array(), order="C", copy=None)


def _dirichlet_backward(g: Any, input: Any, result: Any) -> Any:
    total = input.sum(-1, True).expand_as(input)
    return _dirichlet_grad(result, input, total) * (g - (result * g).sum(-1, True))


@general(
    method=False, rule=Rule("_DirichletBackward", input=_dirichlet_backward), meta=shapes.as_first
)
@drawing
def _sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """Vectors of chances, along the last dim, of the concentrations that `input` holds."""
    _only_floats("dirichlet", input)
    shape = _rows(input)
    with LOCK():
        numbers = draws_rejection.standard_gamma(shape.astype(np.float64), engine_of(generator))
    chances = (numbers / numbers.sum(-1, keepdims=True)).astype(shape.dtype)
    smallest, largest = np.finfo(shape.dtype).tiny, np.nextafter(shape.dtype.type(1), 0)
    return fresh(np.clip(chances, smallest, largest), input._dtype)


def _nothing(g: Any, shape: Any) -> Any:
    return g.new_zeros(tuple(shape))


BINOMIAL = Rule(
    "BinomialBackward0",
    count=lambda g, count_shape: _nothing(g, count_shape),
    prob=lambda g, prob_shape: _nothing(g, prob_shape),
)


@general(method=False, rule=BINOMIAL, meta=shapes.broadcast)
@drawing
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Numbers of successes among `count` trials of chance `prob`.

    Shape: count and prob have one shape, the result's.
    Dtypes: float32 and float64.
    Raises: ValueError for integers and complex numbers, NotImplementedError for halves,
    RuntimeError for two dtypes.
    """
    for word, t in (("count", count), ("prob", prob)):
        if not t._dtype.is_floating_point:
            title = promotion.scalar_type_name(t._dtype)
            raise ValueError(
                f"binomial only supports floating-point dtypes for {word}, got: {title}"
            )
    promotion.refuse("binomial_cpu", count._dtype, dtypes.HALVES)
    if count._dtype is not prob._dtype:
        a, b = promotion.scalar_type_name(count._dtype), promotion.scalar_type_name(prob._dtype)
        raise RuntimeError(f"Found dtype {b} but expected {a}")
    layouts.broadcast_shapes(tuple(count.shape), tuple(prob.shape))
    trials, chances = np.broadcast_arrays(count._skimp_array(), prob._skimp_array())
    with LOCK():
        drawn = draws_rejection.binomial(trials, chances, engine_of(generator))
    return fresh(drawn, count._dtype)


SAYS = "Dtypes: floating point."
