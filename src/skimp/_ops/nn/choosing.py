"""Elements of a dim at places that follow from sizes, which padding and resampling choose: as they
are, or the weighted sums of a few of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden
from skimp._engine.dispatch.targets import blank
from skimp._engine.dispatch.transforms import active
from skimp._engine.memory.layout import channels_last_strides
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import shaping
from skimp._kernels.chosen import add_chosen
from skimp._ops import batching
from skimp._ops.meta import nn as shapes

_PIECE: Final = 1 << 17  # elements that are worked on at once


def _along(input: Any, dim: int, size: int, last: bool) -> tuple[Any, Array, Array, int]:
    """A blank result with another size of a dim; both arrays, and where the dim is in them.

    Channels that are last in memory are last in the arrays."""
    have, own = shape_of(input), input._np
    shape, strides = (*have[:dim], size, *have[dim + 1 :]), None
    if last:
        strides = channels_last_strides(shape)
    elif own is None or not own.flags.c_contiguous:
        strides = formats.suggested_strides(input, shape)
    result, target = blank(shape, input._dtype, strides, (input,))
    source = input._skimp_array()
    if strides is None:
        return result, source, target, dim
    source, target = shaping.dim_last(source, 1), shaping.dim_last(target, 1)
    return result, source, target, dim - 1 if dim > 1 else source.ndim - 1


def _pieces(source: Array, target: Array, dim: int) -> Iterator[tuple[Array, Array, int]]:
    """Both by rows of what comes before `dim`, a few at a time, and where it is in them: what is
    made of a piece on the way is small, and stays in the cache.
    """
    most = max(source.size, target.size)
    if dim == 0 or most <= _PIECE or not (source.flags.c_contiguous and target.flags.c_contiguous):
        yield source, target, dim
        return
    rows = math.prod(source.shape[:dim])
    source = source.reshape(rows, *source.shape[dim:])
    target = target.reshape(rows, *target.shape[dim:])
    count = max(_PIECE * rows // most, 1)
    for i in range(0, rows, count):
        yield source[i : i + count], target[i : i + count], 1


def _shaped(weights: Array, like: Array, dim: int) -> Array:
    shaped = weights.reshape(-1, *[1] * (like.ndim - dim - 1))
    return shaped.astype(like.dtype, copy=False)


def _back(g: Any, dim: int, places: Array, weights: Array | None, last: bool, size: int) -> Any:
    return _resample_back(g, dim, places, weights, last, size)


@hidden(
    rule=Rule(
        "UpsampleBackward0",
        input=lambda g, input_shape, dim, places, weights, last: _back(
            g, dim, places, weights, last, input_shape[dim]
        ),
    ),
    batch=batching.dims.by_dims("dim"),
    meta=shapes.resample,
)
def resample(input: Any, dim: int, places: Array, weights: Array | None, last: bool = False) -> Any:
    """result[i] = the sum over taps of input[places[i, tap]] * weights[i, tap], along `dim`;
    without weights input[places[i]]. `last`: the gradient lies channels last, whatever the result's
    does."""
    result, source, target, dim = _along(input, dim, len(places), False)
    if weights is None:
        source.take(places, dim, out=target, mode="clip")
        return result
    for given, made, at in _pieces(source, target, dim):
        for tap in range(places.shape[1]):
            part = given.take(places[:, tap], at, made if not tap else None, "clip")
            part *= _shaped(weights[:, tap], part, at)
            if tap:
                made += part
    return result


@hidden(
    rule=Rule(
        "UpsampleBackwardBackward0",
        input=lambda g, dim, places, weights, last: resample(g, dim, places, weights, last),
    ),
    batch=batching.dims.by_dims("dim"),
    meta=shapes.resample_back,
)
def _resample_back(
    input: Any, dim: int, places: Array, weights: Array | None, last: bool, size: int
) -> Any:
    """The adjoint."""
    result, source, target, dim = _along(input, dim, size, last)
    into = target if input._dtype not in dtypes.HALVES else np.empty(target.shape, np.float32)
    into[...] = 0
    if weights is None:
        add_chosen(into, dim, places, source)
    else:
        for given, made, at in _pieces(source, into, dim):
            for tap in range(places.shape[1]):
                add_chosen(made, at, places[:, tap], given * _shaped(weights[:, tap], given, at))
    if into is not target:
        target[...] = into
    return result


def selected(input: Any, dim: int, places: Array, back_as_input: bool = False) -> Any:
    """The elements at `places` of a dim, in the format that the input suggests; `back_as_input`: so
    is the gradient, in that of the input."""
    x = input._np if type(input) is Tensor and not active else None
    if x is not None and not x.flags.c_contiguous:
        x = None
    if x is not None and not (input._rg and modes.state.grad):
        return fresh(x.take(places, dim), input._dtype)
    last = back_as_input and x is None and formats.suggested_strides(input, input.shape) is not None
    return resample(input, dim, places, None, last)
