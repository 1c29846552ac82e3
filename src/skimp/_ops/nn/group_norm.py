"""group_norm: groups of channels of each image, as rows."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import general, hidden
from skimp._engine.dispatch.pointwise import call
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval import reducers
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, fresh, ghost
from skimp._kernels import bare
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.nn import channel_few, channel_lines, channel_places, channel_sums
from skimp._ops.nn.normalization import refuse_mixed, with_statistics
from skimp._ops.nn.normalization_channels import (
    accumulated,
    in_format,
    in_sums_order,
    moments,
    standard_back,
)
from skimp._ops.reduce.softmax import floating

Ints = tuple[int, ...]
_LARGE: Final = 1 << 17  # elements from which a pass less is worth the joining of rows


def _affine(x: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
    """x * a + b with a = rstd * weight, b = bias - mean * a: two small tensors, one pass,
    deferred where x is large."""
    a = rstd if weight is None else rstd * weight
    b = -mean * a if bias is None else bias - mean * a
    return x * a + b


def _group_shapes(input: Any, groups: int) -> tuple[Ints, Ints]:
    """The input as (n, groups, channels of one, places), and an affine parameter beside it."""
    n, c = input.shape[:2]
    return (n, groups, c // groups, math.prod(input.shape[2:])), (1, groups, c // groups, 1)


def _group_back(
    g: Any, input: Any, groups: int, weight: Any, result1: Any, result2: Any, eps: float
) -> Any:
    if not (modes.state.grad or g._hollow):
        images = in_sums_order(input)
        if channel_sums.has_rows(images):
            return _group_back_in_rows(g, images, groups, weight, result1, result2)
        if channel_places.lie_last(images):
            return _group_back_of_places(g, images, groups, weight, result1, result2)
        own, x = channel_few.few(g, input), channel_few.few(input, input)
        if own is not None and x is not None and x.flags.c_contiguous:
            scale = None if weight is None else weight._skimp_array()
            numbers = [t._skimp_array().reshape(-1, groups, 1, 1) for t in (result1, result2)]
            made = quietly(channel_few.back_of_groups, own, x, *numbers, scale)
            return [fresh(each, input._dtype) for each in made]
    whole, affine = _group_shapes(input, groups)
    x, g = [accumulated(in_format(t, t)).reshape(whole) for t in (input, g)]
    w = None if weight is None else accumulated(weight).reshape(affine)
    if modes.state.grad:
        mean = x.mean([2, 3], True)
        rstd = (((x - mean) * (x - mean)).mean([2, 3], True) + eps) ** -0.5
    else:
        mean, rstd = [s.reshape((*whole[:2], 1, 1)) for s in (result1, result2)]
    dx, xhat = standard_back(g, x, mean, rstd, w, [2, 3])
    dw, db = (g * xhat).sum([0, 3]), g.sum([0, 3])
    return dx.reshape(tuple(input.shape)), dw.reshape(-1), db.reshape(-1)


def _group_back_in_rows(
    g: Any, input: Any, groups: int, weight: Any, result1: Any, result2: Any
) -> Any:
    """The same in two passes, as of batch_norm: for two sums of each row, and for
    dx = g * a + x * b + c."""
    n, c, *size = shape = shape_of(input)
    mean, rstd = [t._skimp_array().reshape(n, groups) for t in (result1, result2)]
    scale = None if weight is None else accumulated(weight)._skimp_array()
    x, own = channel_sums.small(input), g._np
    if x is not None and own is not None and own.dtype == x.dtype:
        made = quietly(_back_of_small, own, x, mean, rstd, scale)
        return [fresh(each, input._dtype) for each in made]
    # first: a gradient that waits is not to be made for room that is asked for while it is read
    dx, into = blank(shape, dtypes.accumulator(input._dtype))
    apart = quietly(channel_sums.far, mean, rstd)
    centres = _centres(mean, apart, c // groups)
    sums, values = channel_sums.gradient_rows(g, input, *centres, into)
    *line, dw, db = quietly(_line_back, math.prod(size), mean, rstd, scale, sums, apart)
    rows = [a.reshape(1, n * c, *size) for a in (values, input._skimp_array(), into)]
    channel_sums.blend(*rows, *line)
    return dx, fresh(dw, dx._dtype), fresh(db, dx._dtype)


def _centres(mean: Array, apart: Array | None, many: int) -> tuple[Array, Array | None]:
    """Means, and which are far from 0, of groups of so many channels for each channel."""
    return (mean, None) if apart is None else (mean.repeat(many, 1), apart.repeat(many, 1))


def _back_of_small(
    g: Array, x: Array, mean: Array, rstd: Array, weight: Array | None
) -> tuple[Array, Array, Array]:
    """The same of arrays that `channel_sums.small` takes."""
    apart = channel_sums.far(mean, rstd)
    centres = _centres(mean, apart, x.shape[1] // mean.shape[1])
    sums = channel_sums.products_of_rows(g, x, *centres)
    *line, dw, db = _line_back(math.prod(x.shape[2:]), mean, rstd, weight, sums, apart)
    images = 1, len(line[0]), -1
    dx = channel_sums.blended(g.reshape(images), x.reshape(images), line)
    return dx.reshape(x.shape), dw, db


def _group_back_of_places(
    g: Any, input: Any, groups: int, weight: Any, result1: Any, result2: Any
) -> Any:
    """The same of images that lie channels last."""
    n, c = shape_of(input)[:2]
    dx, into = channel_places.room_like(input)
    mean, rstd = [t._skimp_array().reshape(n, groups) for t in (result1, result2)]
    values = channel_places.gradient_images(accumulated(g), into)
    x = channel_places.images_of(input)
    sums = channel_places.gradient_sums(values, x, mean.repeat(c // groups, 1))
    scale = None if weight is None else accumulated(weight)._skimp_array()
    apart = np.ones(mean.shape, bool)
    *line, dw, db = quietly(_line_back, x.shape[1], mean, rstd, scale, sums, apart)
    channel_places.blend(values, x, into, *[each.reshape(n, c) for each in line])
    return dx, fresh(dw, dx._dtype), fresh(db, dx._dtype)


def _line_back(
    places: int, mean: Array, rstd: Array, weight: Array | None, sums: Array, apart: Array | None
) -> list[Array]:
    """(a, b, c) of g * a + x * b + c for each row, and the gradients of weight and bias, from
    `gradient_rows`; in float64, as rows are joined everywhere."""
    n, groups = mean.shape
    sums = sums.reshape(2, n, groups, -1).astype(np.float64)
    total, product = sums
    m, r = [v[:, :, None].astype(np.float64) for v in (mean, rstd)]
    channel_sums.around(m, None if apart is None else apart[:, :, None], total, product)
    many = total.shape[2]
    if weight is None:
        a, weighted = r.repeat(many), sums
    else:
        w = weight.reshape(groups, -1).astype(np.float64)
        a, weighted = bare.multiply(r, w).reshape(-1), bare.multiply(sums, w)
    c, b = bare.sums(weighted, 3, keepdims=True)
    share = bare.divide(r, bare.number(-many * places, r.dtype))
    bare.multiply(b, bare.multiply(bare.square(r), share), out=b)
    bare.multiply(c, share, out=c)
    bare.subtract(c, bare.multiply(b, m), out=c)
    bare.multiply(product, r, out=product)
    db, dw = sums[:, 0] if n == 1 else bare.sums(sums, 1)
    each = (a, b.repeat(many), c.repeat(many), dw.reshape(-1), db.reshape(-1))
    return [v.astype(mean.dtype) for v in each]


def _in_rows(input: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """`_group_norm` where the places of each channel are a row, or the channels of each place, as
    of batch_norm: one pass for the sums of each, and one for x * a + b."""
    n, c, *size = shape = shape_of(input)
    acc = dtypes.accumulator(input._dtype)
    last = channel_places.lie_last(input)
    if last:
        own = channel_places.images_of(accumulated(input))
        mean, var = quietly(_places_moments, own, groups)
    else:
        mean, var = channel_sums.group_moments(input, groups).reshape(2, n, groups, 1)
    affine = [
        None if t is None else accumulated(t)._skimp_array().reshape(groups, -1)
        for t in (weight, bias)
    ]
    numbers = quietly(_line, c // groups, mean, var, eps, *affine)
    mean, rstd, *line = [v.astype(acc.np) for v in (mean, *numbers)]
    if last:
        line = channel_places.beside(input, *[v.reshape(n, c) for v in line])
        y = call(channel_lines.SCALED, (accumulated(input), *line)).to(input._dtype)
        return y, *[fresh(v.reshape(n, groups), acc) for v in (mean, rstd)]
    # each channel of each image is one of a single image
    images = accumulated(input.reshape((1, n * c, *size)))
    beside = [fresh(v.reshape(1, -1, *(1,) * len(size)), acc) for v in line]
    y = call(channel_lines.SCALED, (images, *beside)).to(input._dtype)
    y = ghost(y.reshape(shape))  # a result of its own, no view: what follows may write to it
    return y, *[fresh(v.reshape(n, groups), acc) for v in (mean, rstd)]


def _places_moments(images: Array, groups: int) -> tuple[Array, Array]:
    """Mean and variance of each group, (n, groups, 1), of images that lie channels last."""
    mean, var = [v.reshape(len(v), groups, -1) for v in channel_places.moments(images)]
    middle = bare.sums(mean, 2, keepdims=True) / mean.shape[2]
    var += bare.square(mean - middle)
    return middle, bare.sums(var, 2, keepdims=True) / var.shape[2]


def _line(
    many: int, mean: Array, var: Array, eps: float, weight: Any, bias: Any
) -> tuple[Array, ...]:
    """(rstd, a, b) such that x * a + b is normalised, the latter for each of so many channels of
    each group of each image."""
    rstd, a, b = channel_sums.line(mean, var, eps, weight, bias)
    each = (*mean.shape[:2], many)
    return rstd, *[v.reshape(-1) if v.shape == each else v.repeat(many) for v in (a, b)]


def _small_group_norm(input: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    x, dtype = input._np, input._dtype
    if x is None or dtype not in dtypes.FLOATING or not x.flags.c_contiguous:
        return None
    if not 0 < x.size < _LARGE:
        return None
    vectors: list[Any] = []
    for t in (weight, bias):
        v = None if t is None else t._np
        if t is not None and (v is None or t._dtype is not dtype):
            return None
        vectors.append(v)
    found = quietly(_grouped, x, groups, *vectors, eps)
    return None if found is None else tuple([fresh(a, dtype) for a in found])


def _grouped(x: Array, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """`_group_norm` on small arrays; None where the moments are to be taken in float64."""
    n, c = x.shape[:2]
    rows = x.reshape(n * groups, -1, 1)
    length = bare.number(rows.shape[1], x.dtype)
    mean = bare.divide(reducers.add_up(rows), length)
    apart = bare.subtract(rows, mean[:, None])
    squares = reducers.add_up(bare.square(apart, out=apart))
    if x.dtype.itemsize < 8 and not reducers.in_range(squares):
        return None
    rstd = bare.add(bare.divide(squares, length), bare.number(eps, x.dtype))
    bare.divide(bare.number(1, x.dtype), bare.sqrt(rstd, out=rstd), out=rstd)
    beside = (1, groups, c // groups, 1)
    middle, scale = mean.reshape(n, groups, 1, 1), rstd.reshape(n, groups, 1, 1)
    a = scale if weight is None else bare.multiply(scale, weight.reshape(beside))
    if bias is None:
        b = bare.multiply(bare.negative(middle), a)
    else:
        b = bare.subtract(bias.reshape(beside), bare.multiply(middle, a))
    y = bare.multiply(x.reshape(n, groups, c // groups, -1), a)
    bare.add(y, b, out=y)
    return y.reshape(x.shape), mean.reshape(n, groups), rstd.reshape(n, groups)


@hidden(
    fast=_small_group_norm,
    nondiff=(1, 2),
    rule=Rule(
        "NativeGroupNormBackward0",
        {
            ("input", "weight", "bias"): lambda g0, input, groups, weight, result1, result2, eps: (
                _group_back(g0, input, groups, weight, result1, result2, eps)
            )
        },
        at_once=True,
    ),
    batch=batching.layers.group_norm,
)
def _group_norm(input: Any, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    images = in_sums_order(input)
    rows = input.numel() >= _LARGE and channel_sums.has_rows(images) and not input._hollow
    if rows or channel_places.lie_last(images):
        return _in_rows(images, groups, weight, bias, eps)
    whole, affine = _group_shapes(input, groups)
    x = in_format(images, images).reshape(whole)
    mean, var = moments(x, [2, 3])
    rstd = (var + eps) ** -0.5
    w, b = [None if t is None else accumulated(t).reshape(affine) for t in (weight, bias)]
    y = _affine(accumulated(x), mean, rstd, w, b)
    if y._dtype is not input._dtype:
        y = y.to(input._dtype)
    # results of their own, no views: what follows may write to them
    y = ghost(y.reshape(tuple(input.shape)))
    return y, ghost(mean.reshape(whole[:2])), ghost(rstd.reshape(whole[:2]))


def _in_groups(input: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    shape = shape_of(input)
    if len(shape) < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {len(shape)}"
        )
    c = shape[1]
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if c % num_groups:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(shape)} and num_groups={num_groups}"
        )
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None and shape_of(t) != (c,):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {list(t.shape)} and input of shape {list(shape)}"
            )
    refuse_mixed(input, weight, bias)
    floating("GroupNormKernelImpl", input)
    return _group_norm(input, int(num_groups), weight, bias, eps)[0]


# as `torch.group_norm` has it, which takes groups of one value
in_groups = hidden("_in_groups")(_in_groups)


@general(method=False, namespaces=("nn.functional",))
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Groups of channels of each image with their mean taken out, over their deviation.

    Shape: (n, channels, ...); weight and bias (channels,); the result has the input's.
    Dtypes: floating point.
    Raises: RuntimeError for channels that don't divide into groups, ZeroDivisionError for none,
    ValueError for one value in each group of a single image.
    Memory: a new tensor; two numbers per group are saved.
    Source: Wu and He, 2018.
    """
    shape = shape_of(input)
    if len(shape) > 1:
        n, c, *places = shape
        per_group = n * c // num_groups
        if per_group * math.prod(places) == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got input size "
                f"{[per_group, num_groups, *places]}"
            )
    return _in_groups(input, num_groups, weight, bias, eps)


@general(method=False)
@shown("NativeGroupNormBackward0", "input", "weight", "bias")
def native_group_norm(
    input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    """(normalised, mean, one over deviation) of groups of channels; all three have gradients.

    Shape: (N, C, ...) with C a multiple of `group`; mean and deviation are (N, group).
    """
    if input.numel() != N * C * HxW:
        raise RuntimeError(
            "Expected X.numel() == N * C * HxW to be true, but got false. "
            f"X has {input.numel()} elements, and N, C, HxW are {N}, {C}, {HxW}"
        )
    y = _in_groups(input.reshape((N, C, HxW)), group, weight, bias, eps)
    x = accumulated(input.reshape((N, group, C * HxW // group)))
    mean, rstd = x.mean(-1), (x.var(-1, correction=0) + eps) ** -0.5
    return with_statistics(input, weight, (y.reshape(tuple(input.shape)), mean, rstd))


SAYS = """\
Dtypes: floating point.
Raises: NotImplementedError or RuntimeError for other dtypes and for sizes that don't fit."""
