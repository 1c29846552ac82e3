"""batch_norm, group_norm and their kin: statistics, and one a * x + b that is deferred where x is
large.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.last_reader import in_place_of
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import export, general, hidden
from skimp._engine.dispatch.pointwise import call
from skimp._engine.dispatch.row import ORDINARY, sampled
from skimp._engine.dispatch.targets import blank
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import channels_onednn, shaping
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn import channel_few, channel_lines, channel_places, channel_sums
from skimp._ops.nn.channel_arguments import STATISTICS, check_batch, refuse_followed, refuse_one
from skimp._ops.nn.channel_running import move, steps, to_move
from skimp._ops.nn.normalization import with_statistics
from skimp.config import config

Ints = tuple[int, ...]
_SHORT = 512  # places of a channel beside which its number is written out
_FEW = 16  # images of which one more does not matter


# -- statistics of channels and groups ------------------------------------------------------------


def moments(x: Any, dims: list[int]) -> tuple[Any, Any]:
    """Mean and biased variance over `dims`, kept as size 1, in float32 for half precision."""
    return accumulated(x).mean(dims, True), accumulated(x).var(dims, correction=0, keepdim=True)


def accumulated(t: Any) -> Any:
    return t.to(dtypes.float32) if t is not None and t._dtype in dtypes.HALVES else t


def standard_back(g: Any, x: Any, mean: Any, rstd: Any, weight: Any, dims: list[int]) -> Any:
    """(dx, g * xhat): the gradient through statistics over `dims`, as one deferred expression of
    g and x."""
    n = math.prod([x.shape[d] for d in dims])
    xhat = (x - mean) * rstd
    gw = g if weight is None else g * weight
    along = (gw * xhat).sum(dims, True) / n
    return (gw - gw.sum(dims, True) / n - xhat * along) * rstd, xhat


# -- batch_norm -----------------------------------------------------------------------------------


def _numbers(t: Any) -> Array | None:
    """A vector of channels as an array of the working type; None for none."""
    if t is None:
        return None
    own: Array | None = t._np
    if own is None or own.ndim != 1 or t._dtype not in dtypes.FLOATING:
        own = accumulated(t)._skimp_array().reshape(-1)
    return own


def _shared(t: Any, ndim: int) -> Any:
    """A vector of channels as it broadcasts against (n, channels, ...)."""
    return None if t is None else accumulated(t).reshape((1, -1) + (1,) * (ndim - 2))


def _batch_back(
    g0: Any,
    input: Any,
    weight: Any,
    running_mean: Any,
    running_var: Any,
    result1: Any,
    result2: Any,
    training: bool,
    eps: float,
    needs: Any,
) -> Any:
    affine = "weight" in needs or "bias" in needs
    given = (result1, result2) if training else (running_mean, running_var)
    if not (modes.state.grad or g0._hollow) and (training or affine):
        images = in_sums_order(input)
        if channel_sums.has_rows(images):
            plain = g0._np is None and g0._dtype is input._dtype and channel_sums.has_rows(g0)
            place = in_place_of(g0) if plain and g0._dtype in dtypes.FLOATING else None
            return _batch_back_in_rows(g0, images, weight, *given, None if training else eps, place)
        if training and channel_places.lie_last(images):
            return _batch_back_of_places(g0, images, weight, result1, result2)
    if not modes.state.grad:
        few = _batch_back_of_few(g0, input, weight, *given, None if training else eps, affine)
        if few is not None:
            return few
    dims = [d for d in range(input.ndim) if d != 1]
    x, g = accumulated(in_format(input, input)), accumulated(g0)
    w = _shared(weight, input.ndim)
    if training:
        if modes.state.grad:
            mean = x.mean(dims, True)
            rstd = (((x - mean) * (x - mean)).mean(dims, True) + eps) ** -0.5
        else:
            mean, rstd = _shared(result1, input.ndim), _shared(result2, input.ndim)
        dx, xhat = standard_back(g, x, mean, rstd, w, dims)
    else:
        mean, rstd = (
            _shared(running_mean, input.ndim),
            (_shared(running_var, input.ndim) + eps) ** -0.5,
        )
        xhat = (x - mean) * rstd
        dx = g * (rstd if w is None else rstd * w)
        if not affine:
            return in_format(dx, input), None, None
    return in_format(dx, input), (g * xhat).sum(dims), g.sum(dims)


def in_format(result: Any, input: Any) -> Any:
    """In PyTorch's order where the input or the result is turned, as `x.transpose(1, 2)` is: the
    usual one.
    """
    if input._hollow:
        return result
    if result._np is not None and not (input._skimp_turned or result._skimp_turned):
        return result
    return result.contiguous(memory_format=formats.suggested(input))


def in_sums_order(input: Any) -> Any:
    """Images as `channel_sums` or `channel_places` read them, if they are many: where they lie, or
    a copy in PyTorch's order."""
    own = input._np
    if own is not None and (own.size < channel_places.LEAST or own.flags.c_contiguous):
        return input
    if input._hollow or math.prod(shape_of(input)) < channel_places.LEAST:
        return input
    lies = channel_sums.has_rows(input) or channel_places.lie_last(input)
    return input if lies else in_format(input, input)


def _batch_back_in_rows(
    g0: Any, input: Any, weight: Any, mean: Any, spread: Any, eps: float | None, place: Any
) -> Any:
    """The same in two passes: for two sums of each channel, and for dx = g * a + x * b + c, which
    is g * a where statistics are given. `spread` as `_batch_back_of_few` has it; `place`: that of a
    gradient which nobody else has, and over which dx may be written."""
    centre, rstd, scale = [_numbers(t) for t in (mean, spread, weight)]
    assert centre is not None
    assert rstd is not None
    given = eps is not None
    if given:
        rstd = quietly(channel_few.over_deviation, rstd, eps)
    x, g = channel_sums.small(input), g0._np
    if x is not None and g is not None and x.dtype == g.dtype:
        made = quietly(channel_sums.back_of_small, g, x, centre, rstd, scale, given)
        return [fresh(each, input._dtype) for each in made]
    over = None
    if place is not None:
        _held = input._skimp_array()  # which comes back while the gradient still waits
        over = channel_sums.read_over(place)
    if over is not None:
        dx, (source, into) = place, over
    else:
        _held = None  # which may go for the room
        # first: a gradient that waits is not to be made for room that is asked for while it is read
        dx, into = blank(shape_of(input), dtypes.accumulator(input._dtype))
        source = channel_sums.elements_of(g0)
    dw, db = channel_sums.back_of_rows(source, input, centre, rstd, scale, given, into)
    return dx, _vector(dw), _vector(db)


def _batch_back_of_places(g0: Any, input: Any, weight: Any, result1: Any, result2: Any) -> Any:
    """The same of images that lie channels last."""
    mean, rstd = result1._skimp_array(), result2._skimp_array()
    scale = None if weight is None else accumulated(weight)._skimp_array()
    # first: a gradient that waits is not to be made for room that is asked for while it is read
    dx, into = channel_places.room_like(input)
    g = channel_places.gradient_images(accumulated(g0), into)
    x = channel_places.images_of(input)
    g, x, out = [channel_places.as_one(each) for each in (g, x, into)]
    rows = channel_places.gradient_sums(g, x, mean[None])
    apart = np.ones(mean.shape, bool)
    n = input.numel() // input.shape[1]
    *line, dw, db = quietly(channel_sums.line_back, n, mean, rstd, scale, rows, apart)
    channel_places.blend(g, x, out, *[each[None] for each in line])
    return dx, _vector(dw), _vector(db)


def _batch_back_of_few(
    g: Any, input: Any, weight: Any, mean: Any, spread: Any, eps: float | None, affine: bool
) -> Any:
    """The same of small arrays; None if one is not. `spread` is one over the deviation, or the
    variance, which `eps` is given with."""
    own, x = channel_few.few(g, input), channel_few.few(input, input)
    if own is None or x is None or own.shape != x.shape or not x.flags.c_contiguous:
        return None
    scale = None if weight is None else weight._skimp_array().reshape(-1)
    numbers = [t._skimp_array().reshape(-1) for t in (mean, spread)]
    if eps is None:
        made: Any = quietly(channel_few.back_of_few, own, x, *numbers, scale)
    else:
        made = quietly(channel_few.back_of_line, own, x, *numbers, scale, eps, affine)
    return [None if each is None else fresh(each, input._dtype) for each in made]


def _channels(like: Any, kept: bool, *numbers: Array) -> list[Any]:
    """Numbers for each channel as tensors that broadcast against `like` (n, channels, ...).

    Beside short rows it is one image of its own: then the rows of an image are one run for NumPy,
    which takes twice as long for rows of 256. For fewer elements only if it is not `kept` to make
    the result again.
    """
    if channel_places.lie_last(like):
        return channel_places.beside(like, *[each.reshape(1, -1) for each in numbers])
    n, count, *size = shape_of(like)
    places = math.prod(size)
    least = config.threads_from if kept else config.defer_from
    short = n >= _FEW and 1 < places <= _SHORT and n * count * places >= least
    if short and not channels_onednn.takes(numbers[0].dtype):
        return [_vector(each.repeat(places).reshape(1, count, *size)) for each in numbers]
    shape = (1, -1) + (1,) * len(size)
    return [_vector(each.reshape(shape)) for each in numbers]


def _vector(values: Array) -> Any:
    return fresh(values, dtypes.FROM_NUMPY[values.dtype])


@hidden(
    nondiff=(1, 2),
    rule=Rule("NativeBatchNormBackward0", {("input", "weight", "bias"): _batch_back}, at_once=True),
    batch=batching.layers.batch_norm,
    meta=shapes.batch_norm,
)
def _batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """(normalised, the batch's mean, one over its deviation); updates the running statistics in
    place."""
    affine = _numbers(weight), _numbers(bias)
    images = in_sums_order(input)
    x, kind = channel_sums.small(images), dtypes.accumulator(input._dtype)
    acc, small = kind.np, x is not None
    rows = not small and channel_sums.has_rows(images)
    running = [t for t in (running_mean, running_var) if t is not None]
    ready: list[Any] = []
    whole = None
    if not training:
        whole = np.array([_numbers(t) for t in running], np.float64)
    else:
        if rows and images._storage.deferred is None and images._dtype in dtypes.FLOATING:
            x = images._skimp_array()
        if x is None or not (rows or channel_sums.in_rows(x)):
            whole = _batch_moments(images, x)
        if len(running) == STATISTICS:
            ready = [to_move(t, acc) for t in running]
            ready = [] if ready[0] is None or ready[1] is None else ready
    shape = shape_of(input)
    n = math.prod(shape) // shape[1]
    whole, mean, rstd, a, b, made = quietly(
        channel_sums.normalized, x, whole, acc, eps, *affine, ready, momentum, n, small
    )
    if training and running and not ready:
        moved = steps(whole, momentum, n, acc)
        for t, step in zip((running_mean, running_var), moved, strict=True):
            if t is not None:
                move(t, step, momentum)
    if made is not None:
        y = fresh(made, input._dtype)
    else:
        images = images if rows else in_format(images, images)
        line = channel_lines.STANDARDIZED if training else channel_lines.SCALED
        y = call(line, (accumulated(images), *_channels(images, training, a, b)))
        y = y if y._dtype is input._dtype else y.to(input._dtype)
    if not training:
        nothing = _vector(np.empty(0, input._dtype.np))
        return y, nothing, nothing
    return y, fresh(mean, kind), fresh(rstd, kind)


def _batch_moments(input: Any, small: Array | None) -> Array:
    """Mean and biased variance of each channel, (2, channels) in float64; of elements that are
    `small` and no rows, or of a tensor that may have rows."""
    if small is None and channel_sums.has_rows(input):
        return channel_sums.moments(input)
    if small is None and channel_places.lie_last(input):
        images = channel_places.images_of(accumulated(input))
        whole = quietly(channel_places.moments, channel_places.as_one(images))
        return np.concatenate(whole)
    if small is not None and small.flags.c_contiguous and channel_few.is_few(small):
        found = channel_few.moments_of_few(small)
    else:
        ops = moments(input, [d for d in range(input.ndim) if d != 1])
        found = tuple([t._skimp_array().reshape(-1) for t in ops])
    return np.array(found, np.float64)


@sampled(lambda tensor: [(tensor([[1, 2], [3, 5]]), tensor([1, 2]), tensor([1, 4]))])
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Each channel with the batch's mean and variance (`training`), or the running ones, taken
    out.

    Shape: (n, channels, ...); statistics, weight and bias (channels,); the result has the input's.
    Dtypes: floating point; weight and bias may be float32 for halves.
    Raises: ValueError in training for one value per channel or an eps of 0, and for one below it;
    RuntimeError for lengths that don't fit.
    Memory: a new tensor; running statistics are written in training.
    Source: Ioffe and Szegedy, 2015.
    """
    if training:
        refuse_one(input)
    if eps <= 0.0 and (training or eps < 0.0):
        wanted = "positive during training" if training else "non-negative"
        raise ValueError(f"batch_norm eps must be {wanted}, but got {eps}")
    return by_batch(input, running_mean, running_var, weight, bias, training, momentum, eps)


def by_batch(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """`batch_norm` of any batch, with any eps."""
    if 0 in shape_of(input):
        y = input.clone()
        for t in (weight, bias):
            if t is not None and t.numel():
                y = y * t[0] if t is weight else y + t[0]
        return y
    refuse_followed(running_mean, running_var)
    check_batch(input, running_mean, running_var, weight, bias, training)
    return _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


export("batch_norm", batch_norm, ("nn.functional",), method=False, quick=True)


@general(method=False, out=True)
def native_batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """`batch_norm` with the statistics that it saves.

    Shape: (N, C, ...); weights and statistics are (C,).
    Dtypes: floating point; weights and statistics may be float32 for halves.
    Raises: RuntimeError for vectors of other lengths, NotImplementedError for another dtype.
    Memory: a new tensor and two of C elements; running statistics are written with `training`.
    """
    check_batch(input, running_mean, running_var, weight, bias, training)
    return with_statistics(
        input,
        weight,
        _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps),
    )


# -- instance_norm --------------------------------------------------------------------------------


def _quick_instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Of small images alone, where nothing is recorded and no statistics are kept."""
    x = channel_sums.small(input)
    if x is None or not channel_sums.in_rows(x) or not use_input_stats:
        return None
    if running_mean is not None or running_var is not None or (input._rg and modes.state.grad):
        return None
    n, c, *size = x.shape
    affine: list[Array | None] = []
    for t in (weight, bias):
        if t is None:
            affine.append(None)
            continue
        if type(t) not in ORDINARY or (t._rg and modes.state.grad):
            return None
        own = t._np
        if own is None or own.shape != (c,) or t._dtype is not input._dtype:
            return None
        affine.append(shaping.broadcast(own, (n, c)).reshape(-1))
    rows = x.reshape(1, n * c, *size)
    moved = (), momentum, 0
    found = quietly(channel_sums.normalized, rows, None, x.dtype, eps, *affine, *moved, True)
    return fresh(found[-1].reshape(x.shape), input._dtype)


def instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """batch_norm of every image by itself.

    Shape: (n, channels, ...) with at least one size more; the result has the input's.
    Dtypes: floating point; weight and bias may be float32 for halves.
    Raises: ValueError for one value per channel of an image, NotImplementedError for another dtype.
    Memory: a new tensor; running statistics are written with `use_input_stats`.
    """
    shape = tuple(input.shape)
    if use_input_stats and (len(shape) < 3 or math.prod(shape[2:]) == 1):
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {input.shape}"
        )
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when use_input_stats is false"
        )
    n, c = shape[:2]
    copies = [None if t is None else t.repeat(n) for t in (running_mean, running_var)]
    scale, shift = [None if t is None else t.repeat(n) for t in (weight, bias)]
    flat = input.reshape((1, n * c, *shape[2:]))
    mean, var = copies
    if 0 in shape:
        made = by_batch(flat, mean, var, scale, shift, use_input_stats, momentum, eps)
    else:
        check_batch(flat, mean, var, scale, shift, use_input_stats)
        made = _batch_norm(flat, scale, shift, mean, var, use_input_stats, momentum, eps)[0]
    result = made.reshape(shape)
    if use_input_stats:
        for running, each in zip((running_mean, running_var), copies, strict=True):
            if running is not None and each is not None:
                with modes.no_grad():
                    running.copy_(each.reshape(n, c).mean(0))
    return result


export("instance_norm", instance_norm, ("nn.functional",), method=False, fast=_quick_instance_norm)
