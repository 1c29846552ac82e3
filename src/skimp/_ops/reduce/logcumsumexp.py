"""The logarithm of running sums of exponentials, and its derivatives by shares of the sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden, rowwise
from skimp._engine.dispatch.targets import blank
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare
from skimp._ops import batching
from skimp._ops.reduce import small
from skimp._ops.reduce.cumulative import SAYS as SAYS, WIDE, in_doubles, scan, steps_of


def _log_add_step(block: Array, carry: Any) -> Array:
    if block.dtype.kind == "c":
        return _complex_log_add(block, carry)
    return steps_of(np.logaddexp)(block, carry)


def _complex_log_add(block: Array, carry: Any) -> Array:
    """One row after the other: the larger part is taken out, as in logaddexp."""
    for k in range(len(block)):
        if carry is not None:
            high = bare.where(carry.real >= block[k].real, carry, block[k])
            low = bare.where(carry.real >= block[k].real, block[k], carry)
            both = high + bare.log1p(bare.exp(low - high))
            block[k] = bare.where(np.isneginf(high.real), high, both)
        carry = block[k].copy()
    return block


def _log_back(g: Any, input: Any, dim: int, result: Any) -> Any:
    """exp(input) times the sums of g / exp(result) to come."""
    if input.ndim == 0:
        return g
    if input.dtype.is_complex:
        ahead = (g.log() - result.conj()).flip(dim).logcumsumexp(dim).flip(dim)
        return (ahead + input.conj()).exp()
    return _shares_to_come(g, input, result, dim)


def _by_signs(g: Any, less: Any, more: Any, sums: Any) -> Any:
    """exp(more) times sums of g exp(-less), in logarithms: g > 0 and g < 0 apart."""
    size = g.abs().log() - less
    parts = [
        (sums(size.masked_fill(kept.logical_not(), float("-inf"))) + more).exp()
        for kept in (g > 0, g < 0)
    ]
    return parts[0] - parts[1]


def _to_come(g: Any, input: Any, total: Any, dim: int) -> Any:
    return _shares_to_come(g, input, total, dim)


def _so_far(g: Any, input: Any, total: Any, dim: int) -> Any:
    return _shares_so_far(g, input, total, dim)


@hidden(
    rule=Rule(
        "LogcumsumexpBackwardBackward0",
        grad=_so_far,
        input=lambda g, grad, input, total, dim: g * _to_come(grad, input, total, dim),
        total=lambda g, grad, input, total, dim: -grad * _so_far(g, input, total, dim),
    )
)
def _shares_to_come(grad: Tensor, input: Tensor, total: Tensor, dim: int) -> Tensor:
    """sum over j >= i of grad[j] exp(input[i] - total[j])."""
    made: Tensor = _by_signs(grad, total, input, lambda t: t.flip(dim).logcumsumexp(dim).flip(dim))
    return made


@hidden(
    rule=Rule(
        "LogcumsumexpBackwardBackward0",
        v=_to_come,
        input=lambda g, v, input, total, dim: v * _to_come(g, input, total, dim),
        total=lambda g, v, input, total, dim: -g * _so_far(v, input, total, dim),
    )
)
def _shares_so_far(v: Tensor, input: Tensor, total: Tensor, dim: int) -> Tensor:
    """sum over i <= j of v[i] exp(input[i] - total[j]): the tangent of the total."""
    made: Tensor = _by_signs(v, -input, -total, lambda t: t.logcumsumexp(dim))
    return made.masked_fill(total == float("-inf"), 0)


def _small_log(input: Tensor, dim: int) -> Tensor | None:
    x = small.floats(input)
    if x is None or type(dim) is not int or not -x.ndim <= dim < x.ndim:
        return None
    return fresh(in_doubles(np.logaddexp, x, dim), input._dtype)


@rowwise(
    out="same",
    overlap="aligned",
    fast=_small_log,
    rule=Rule("LogcumsumexpBackward0", input=_log_back),
    batch=batching.dims.by_dims("dim"),
)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of the running sum of the exponentials along a dim.

    Dtypes: floating point and complex numbers.
    """
    if input._dtype.category < dtypes.FLOAT:
        raise no_kernel("logcumsumexp_out_cpu", input._dtype)
    dim = layouts.normalize_dim(dim, input.ndim)
    if input._hollow:
        return meta.like(input)
    result, target = blank(tuple(input.shape), input._dtype, None, (input,))
    if target.size:
        scan(
            input._skimp_array(),
            target,
            dim,
            WIDE.get(input._dtype, input._dtype.np),
            _log_add_step,
        )
    return result
