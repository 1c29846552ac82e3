"""Sums over the channels of images in one pass: what batch_norm needs, forwards and backwards.

A tensor (n, channels, *places) is read as n * channels rows of places, a deferred one without being
written. Each row gives its numbers from the working type; those of a channel's rows are joined in
float64, in the order of the rows. No result depends on blocks or threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.eval.expr import Expr
from skimp._engine.eval.rows import map_rows
from skimp._engine.eval.run import threads_for
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare, channels, channels_compiled, channels_onednn
from skimp._kernels.bare import einsum
from skimp._kernels.scratch import RUN, Scratch, row_products, row_sums
from skimp._kernels.threads import quietly, share
from skimp._ops.nn.channel_running import kept, steps
from skimp._ops.nn.rectified import Rectified, rectified

_DIRECT: Final = 1 << 19  # elements below which one call on all rows is the shortest way
_SHORT: Final = 16  # places below which rows cost more than their elements
_VECTORS: Final = 32  # places of a row that BLAS multiplies at once
_PASSES: Final = 2  # over the rows, as memory gives them
_PART: Final = 1 << 15  # elements of the rows that are read twice
_STEPS: Final = 4  # over what is blended
_UNIT: Final = 1 << 17  # elements of what stays in the cache until it is read again
_WIDE: Final = 1 << 16
_WRITTEN: Final = 1 << 18  # elements of a rectifier's gradient that are written and read at once
_SHORT_RUN: Final = 512
# Sums around the mean are those around 0 less what the mean makes of them, one pass less, unless
# the mean is more than so many deviations from 0: that loses three bits.
_FAR: Final = 2.75


def has_rows(t: Tensor) -> bool:
    """Whether the places of each channel are a run that is worth a row of its own."""
    shape, strides, _ = t._skimp_layout or t._skimp_layout_of()
    return t._dtype.is_floating_point and _are_rows(shape, strides)


@lru_cache(1024)
def _are_rows(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if len(shape) < 3 or 0 in shape:
        return False
    return math.prod(shape[2:]) >= _SHORT and layouts.is_contiguous(Layout(shape, strides, 0))


def small(t: Any) -> Array | None:
    """The elements of a small tensor of full precision; None for any other."""
    a: Array | None = t._np
    if a is None or t._skimp_turned or t._dtype not in dtypes.FLOATING:
        return None
    return a if a.ndim > 1 and 0 < a.size < _DIRECT else None


def in_rows(x: Array) -> bool:
    """`has_rows` of a `small` tensor's elements."""
    shape = x.shape
    return len(shape) > 2 and x.size >= _SHORT * shape[0] * shape[1] and x.flags.c_contiguous


def moments(x: Tensor) -> Array:
    """Mean and biased variance of each channel, (2, channels) in float64."""
    sums, careful, length = _moments_of_rows(x)
    cut = (x.shape[0], -1)
    marks = None if careful is None else careful.reshape(cut)
    return _joined_rows(sums.reshape(2, *cut), marks, length)


def group_moments(x: Tensor, groups: int) -> Array:
    """The same of each of so many groups of an image's channels, (2, n * groups)."""
    sums, careful, length = _moments_of_rows(x)
    cut = (x.shape[0] * groups, -1)
    marks = None if careful is None else careful.reshape(cut).T
    return _joined_rows(sums.reshape(2, *cut).swapaxes(1, 2), marks, length)


def _moments_of_rows(x: Tensor) -> tuple[Array, Array | None, int]:
    """`_row_moments` of all rows, and how many places they have."""
    acc = dtypes.accumulator(x._dtype).np
    n, count, *size = shape_of(x)
    source, length = elements_of(x), math.prod(size)
    if isinstance(source, np.ndarray) and source.dtype == acc:
        return *quietly(_row_moments, source.reshape(n * count, -1)), length
    kind = channels_compiled.type_of_sums(acc)
    sums, careful = np.empty((2, n, count, 1), kind), np.empty((n, count, 1), bool)

    def block(rows: Array, total: Array, square: Array, apart: Array) -> None:
        flat = rows.reshape(len(rows), -1).astype(acc, copy=False)
        found, far = _row_moments(flat)
        total[...], square[...] = found
        apart[...] = False if far is None else far

    _over(source, 2, block, *sums, careful)
    return sums, careful if _any(careful) else None, length


def _joined_rows(sums: Array, careful: Array | None, length: int) -> Array:
    """Mean and variance, (2, results) in float64, of `_row_moments` (2, rows of each, results) of
    rows of so many places."""
    sums = sums.astype(np.float64)
    total = _added(sums)
    whole: Array = np.divide(total, bare.number(sums.shape[1] * length, sums.dtype))
    mean, var = whole
    np.subtract(var, np.square(mean), out=var)
    np.maximum(var, 0, out=var)
    if careful is not None:  # as by Chan, Golub, LeVeque (1983)
        some = careful.any(0)
        total, square = sums[:, :, some]
        centre = total / length
        square -= bare.where(careful[:, some], 0, total * centre)
        square += np.square(centre - mean[some]) * length
        var[some] = np.add.reduce(square, 0) / (len(square) * length)
    return whole


def _added(rows: Array) -> Array:
    """What follows each other in dim 1, one after the other, as loops add it."""
    total: Array = np.add.accumulate(rows, 1)[:, -1]
    return total + 0  # of -0 alone the sum is 0


def _any(marks: Array) -> bool:
    """Whether one is set: a third of the time of `any`, which is written in Python."""
    return marks.size > 0 and bool(marks.item(marks.argmax()))


def _sums_of_rows(flat: Array, other: Array) -> Array:
    """The sum of each row and that of its products with the other, (2, rows, 1): of a few rows at
    a time, which stay in the cache."""
    sums = np.empty((2, len(flat), 1), channels_compiled.type_of_sums(flat.dtype))
    if flat.size <= _UNIT:
        _add_up(flat, other, sums)
        return sums
    step = max(1, _UNIT // flat.shape[1])
    threads = threads_for(flat.size, _PASSES)
    if threads == 1:
        for i in range(0, len(flat), step):
            _add_up(flat[i : i + step], other[i : i + step], sums[:, i : i + step])
        return sums
    pieces = iter([slice(i, i + step) for i in range(0, len(flat), step)])

    def work() -> None:
        for some in pieces:  # shared by the threads: next() is atomic
            _add_up(flat[some], other[some], sums[:, some])

    share(work, threads)
    return sums


def _add_up(flat: Array, other: Array, sums: Array) -> None:
    """BLAS takes twice as long as einsum for rows of less than its vectors."""
    if channels_compiled.adds(flat.dtype):
        channels_compiled.summed(flat, other, sums)
        return
    length = flat.shape[1]
    if length > RUN:
        sums[0], sums[1] = row_sums(flat), row_products(flat, other)
        return
    total, product = sums[..., 0]
    einsum("ij->i", flat, out=total)
    if length < _VECTORS:
        einsum("ij,ij->i", flat, other, out=product)
    else:
        np.vecdot(flat, other, out=product)


def _row_moments(flat: Array) -> tuple[Array, Array | None]:
    """The sum of each row and that of its squares, (2, rows, 1), and for which rows the latter are
    those around its mean, in a column; None if for none."""
    sums = _sums_of_rows(flat, flat)
    if sums.dtype.itemsize > flat.dtype.itemsize:  # nothing is lost far from 0
        return sums, None
    total, square = sums
    # with v = square - total^2 / length: square > (1 + _FAR^2) v
    most = bare.number(flat.shape[1] * (1 - 1 / (1 + _FAR**2)), flat.dtype)
    careful = np.greater(np.square(total), np.multiply(square, most))
    if not _any(careful):
        return sums, None
    for some in _groups(careful, flat):
        centre = total[some] / flat.dtype.type(flat.shape[1])
        with Scratch((len(some), flat.shape[1]), flat.dtype) as apart:
            np.subtract(flat[some], centre, out=apart)
            square[some] = row_products(apart, apart)
    return sums, careful


def far(mean: Array, rstd: Array) -> Array | None:
    """Which means are so far from 0 that sums around them are not made of sums around 0; None if
    none is."""
    if channels_compiled.adds(mean.dtype):
        return None
    ratio = np.multiply(mean, rstd)
    np.abs(ratio, out=ratio)
    return None if ratio.item(ratio.argmax()) <= _FAR else ~(ratio <= _FAR)


def around(mean: Array, apart: Array | None, total: Array, product: Array) -> None:
    """Make sums of g * x of those where the mean is not far those of g * (x - mean), in place."""
    product -= (mean if apart is None else bare.where(apart, 0, mean)) * total


def back_of_small(
    g: Array, x: Array, mean: Array, rstd: Array, weight: Array | None, given: bool
) -> tuple[Array, ...]:
    """The gradients of input, weight and bias of `small` arrays, in two passes."""
    g = np.ascontiguousarray(g)
    if channels_compiled.adds(x.dtype):
        out = np.empty(x.shape, x.dtype)
        made = channels_compiled.normed_back(g, x, mean, rstd, weight, given, out)
        if made is not None:
            return out, *made
    *line, dw, db = _line_of(g, x, mean, rstd, weight, given)
    return blended(g, x, line), dw, db


def blended(g: Array, x: Array, line: Sequence[Array]) -> Array:
    """`blend` of small arrays into a new one."""
    out = np.empty(x.shape, x.dtype)
    if x.size > _WIDE:
        blend(g, x, out, *line)
    else:
        channels.mixed(*_as_runs(x.shape, (g, x, out), line))
    return out


def read_over(place: Tensor) -> tuple[Expr | Array, Array] | None:
    """What holds a gradient that nobody else has, on whose storage `place` is, and the array in its
    memory, over which it may be read and written by channels; None where that is not to be."""
    s = place._storage
    source = s.deferred and s.awaited()
    if source is None:
        return place._skimp_array(), place._skimp_writable()
    if source.shape != shape_of(place) or source.dtype != place._dtype.np:
        return None
    passed = rectified(source)
    if passed is not None and passed.by_channel() is None:  # another gate may not be read over
        return None
    return (source, place._skimp_writable()) if s.give_way(source) else None


def back_of_rows(
    source: Expr | Array,
    x: Tensor,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    given: bool,
    into: Array,
) -> tuple[Array, Array]:
    """The gradients of weight and bias, of images whose channels are rows, by what holds that of
    the result; that of these is written to `into`, of the working type, perhaps over the former."""
    made: tuple[Array, Array] | None
    values = x._skimp_array()
    numbers = values, mean, rstd, weight, given
    if isinstance(source, np.ndarray) and _in_place(source, values, into):
        made = quietly(channels_compiled.normed_back, source, *numbers, into)
        if made is not None:
            return made
        own, (*line, dw, db) = source, quietly(_line_of, source, *numbers)
    else:
        passed = rectified(source) if source.dtype == into.dtype else None
        if passed is not None and (beside := passed.by_channel()) is not None:
            made = quietly(channels_compiled.normed_back, passed.g, *numbers, into, beside)
            if made is not None:
                return made
        apart = quietly(far, mean, rstd)
        rows, own = _gradient_rows(source, passed, values, mean, apart, into)
        n = 0 if given else values.size // values.shape[1]
        *line, dw, db = quietly(line_back, n, mean, rstd, weight, rows, apart)
    blend(own, values, into, *line)
    return dw, db


def _in_place(source: Array, x: Array, into: Array) -> bool:
    """Whether a gradient is read where it is, beside x."""
    if not source.dtype == into.dtype == x.dtype:
        return False
    return source.size < _DIRECT or (source.flags.c_contiguous and x.flags.c_contiguous)


def _line_of(
    g: Array, x: Array, mean: Array, rstd: Array, weight: Array | None, given: bool
) -> list[Array]:
    """`line_back` of what is in memory."""
    apart = far(mean, rstd)
    rows = products_of_rows(g, x, mean, apart)
    return line_back(0 if given else x.size // x.shape[1], mean, rstd, weight, rows, apart)


def products_of_rows(g: Array, x: Array, mean: Array, apart: Array | None) -> Array:
    """The first of `gradient_rows` of arrays in memory."""
    n, count = x.shape[:2]
    flat, other = _flat(g, n * count), _flat(x, n * count)
    marks = () if apart is None else _beside_rows(n, mean, apart)
    return _row_products(flat, other, *marks).reshape(2, n, count)


def _flat(a: Array, rows: int) -> Array:
    return (a if a.flags.c_contiguous else np.ascontiguousarray(a)).reshape(rows, -1)


def _beside_rows(n: int, *numbers: Array) -> list[Array]:
    """Numbers for each channel, or each of n images, as columns for each row of n images."""
    return [np.broadcast_to(v, (n, v.shape[-1])).reshape(-1, 1) for v in numbers]


def gradient_rows(
    g: Tensor, x: Tensor, mean: Array, apart: Array | None, into: Array
) -> tuple[Array, Array]:
    """The sums of g and of g * x for each row, (2, n, channels), the latter of g * (x - mean) where
    means are far `apart`; and g's values: if g is deferred, it is made once and they are in `into`,
    of the working type."""
    source = elements_of(g)
    passed = rectified(source) if source.dtype == into.dtype else None
    return _gradient_rows(source, passed, x._skimp_array(), mean, apart, into)


def _gradient_rows(
    source: Expr | Array,
    passed: Rectified | None,
    x_values: Array,
    mean: Array,
    apart: Array | None,
    into: Array,
) -> tuple[Array, Array]:
    acc = into.dtype
    n, count = x_values.shape[:2]
    if isinstance(source, np.ndarray) and _in_place(source, x_values, into):
        return quietly(products_of_rows, source, x_values, mean, apart), source
    marks = [] if apart is None else _beside_rows(n, mean, apart)
    own = source if isinstance(source, np.ndarray) else into
    kept = [] if own is source or passed is not None else [into]
    sums = np.empty((2, n, count, 1), channels_compiled.type_of_sums(acc))

    def block(rows: Array, seen: Array, total: Array, product: Array, *more: Array) -> None:
        flat = rows.reshape(len(rows), -1).astype(acc, copy=False)
        other = seen.reshape(flat.shape).astype(acc, copy=False)
        for room in more[len(marks) :]:
            room.reshape(flat.shape)[...] = flat
        total[...], product[...] = _row_products(flat, other, *more[: len(marks)])

    numbers = *sums, *[v.reshape(n, count, 1) for v in marks]
    if passed is None:
        _over(source, 2, block, x_values, *numbers, *kept)
    else:
        _over_written(passed, into, block, x_values, *numbers)
    return sums[..., 0], own


def _row_products(
    flat: Array, other: Array, centre: Array | None = None, careful: Array | None = None
) -> Array:
    """The sum of each row, and that of its products with the other, or with the other's distance
    from its centre where that is marked, (2, rows, 1)."""
    sums = _sums_of_rows(flat, other)
    if careful is not None and centre is not None and _any(careful):
        product = sums[1]
        for some in _groups(careful, flat):
            with Scratch((len(some), flat.shape[1]), flat.dtype) as apart:
                np.subtract(other[some], centre[some], out=apart)
                product[some] = row_products(flat[some], apart)
    return sums


def _over_written(passed: Rectified, into: Array, block: Any, *parts: Array) -> None:
    """`block(rows, *parts)` for rows of a gradient, which are written first."""
    n, count, places = images = passed.g.shape
    target = into.reshape(images)
    rows = [a.reshape(n * count, -1) for a in (into, *parts)]
    threads = threads_for(into.size, _PASSES)
    most = min(_WRITTEN, -(-into.size // threads))
    many, some = max(1, most // (count * places)), min(count, max(1, most // places))
    pieces = iter([(i, c) for i in range(0, n, many) for c in range(0, count, some)])

    def work() -> None:
        for i, c in pieces:  # shared by the threads: next() is atomic
            own, channel = slice(i, min(i + many, n)), slice(c, min(c + some, count))
            passed.write(own, channel, target[own, channel])
            box = slice(i * count + c, (own.stop - 1) * count + channel.stop)
            block(*[a[box] for a in rows])

    share(work, threads)


def _groups(careful: Array, flat: Array) -> list[Array]:
    """The rows of `flat` that are marked, a few at a time."""
    marked = np.flatnonzero(careful)
    step = max(1, _PART // flat.shape[1])
    return [marked[i : i + step] for i in range(0, len(marked), step)]


def elements_of(t: Tensor) -> Expr | Array:
    """What holds the elements of images, expression or array."""
    own = t._np
    return own if own is not None and own.size < _DIRECT else source_of(t, in_order=True)[0]


def _over(source: Expr | Array, lead: int, block: Any, *parts: Array, steps: int = _PASSES) -> None:
    """block(rows, *parts) for rows of all that follows the first `lead` dims."""
    if isinstance(source, np.ndarray) and source.size < _DIRECT:  # all at once
        rows = math.prod(source.shape[:lead])
        quietly(block, *[np.ascontiguousarray(a).reshape(rows, -1) for a in (source, *parts)])
        return
    map_rows(source, block, parts, len(source.shape) - lead, _UNIT, steps=steps)


# -- a * x + b for each channel --------------------------------------------------------------------


def line_back(
    n: int, mean: Array, rstd: Array, weight: Any, rows: Array, apart: Array | None
) -> list[Array]:
    """(a, b, c) of g * a + x * b + c, and the gradients of weight and bias, from `gradient_rows` of
    channels of n places; in float64, as rows are joined everywhere. With statistics that are given
    (n is 0) it is g * a."""
    dtype = mean.dtype
    rows = rows.astype(np.float64)
    total, product = _added(rows)
    mean, rstd = mean.astype(np.float64), rstd.astype(np.float64)
    around(mean, apart, total, product)
    dw = np.multiply(product, rstd, out=product)
    a = rstd if weight is None else rstd * weight.astype(np.float64)
    if not n:
        return [v.astype(dtype) for v in (a, dw, total)]
    of_sums = np.divide(a, bare.number(-n, a.dtype))
    b = dw * rstd
    np.multiply(b, of_sums, out=b)
    c = np.multiply(total, of_sums, out=of_sums)
    np.subtract(c, np.multiply(mean, b, out=mean), out=c)
    return [v.astype(dtype) for v in (a, b, c, dw, total)]


def beside(x: Array, numbers: Sequence[Array]) -> list[Array]:
    """A number for each channel as arrays that broadcast against `x` (n, channels, ...)."""
    shape = (-1,) + (1,) * (x.ndim - 2)
    return [v.reshape(shape) for v in numbers]


def blend(g: Array, x: Array, out: Array, *line: Array) -> None:
    """out = (x * b + c) + g * a, with a number of each for each channel in `line`, or g * a of one
    alone; it may be g itself."""
    if g.size >= channels_onednn.LEAST and channels_onednn.blended(g, x, out, *beside(x, line)):
        return
    if g.size <= _WIDE:
        quietly(channels.mixed, *_as_runs(x.shape, (g, x, out), line))
        return
    n, count, *size = x.shape
    short = _in_images(n, count, math.prod(size))
    long = [v.repeat(math.prod(size)) for v in line] if short else []

    def mix(own: Array, seen: Array, into: Array, *numbers: Array) -> None:
        rows = [v.reshape(len(v), -1) for v in (own, seen, into)]
        for start in range(0, rows[0].shape[1], _WIDE):
            channels.mixed(*[v[:, start : start + _WIDE] for v in rows], *(numbers or long))

    along = [] if short else [_beside_rows(n, v)[0].reshape(n, count, 1) for v in line]
    _over(g, 1 if short else 2, mix, x, out, *along, steps=_STEPS)


def _in_images(n: int, count: int, places: int) -> bool:
    """Whether an image is one run for NumPy, which takes twice as long for short rows beside
    numbers."""
    return n > 1 and places <= _SHORT_RUN and count * places <= _WIDE


def _as_runs(
    shape: tuple[int, ...], images: Sequence[Array], numbers: Sequence[Array]
) -> list[Array]:
    """Images, and numbers for each channel beside them, as NumPy multiplies them soonest."""
    n, count = shape[:2]
    places = math.prod(shape[2:])
    if _in_images(n, count, places):
        line = [v.repeat(places) for v in numbers] if places > 1 else numbers
        return [*[v.reshape(n, -1) for v in images], *line]
    return [*[v.reshape(n, count, places) for v in images], *[v[:, None] for v in numbers]]


def _scaled_small(x: Array, a: Array, b: Array) -> Array:
    """x * a + b"""
    made = np.empty(x.shape, x.dtype)
    if x.size >= channels_onednn.LEAST:
        channels.scaled(x, *beside(x, (a, b)), out=made)
        return made
    images, out = x, made
    if x.ndim > 2:
        images, out, a, b = _as_runs(x.shape, (x, made), (a, b))
    np.multiply(images, a, out=out)
    np.add(out, b, out=out)
    return made


def line(mean: Array, var: Array, eps: float, weight: Any, bias: Any) -> tuple[Array, ...]:
    """(rstd, a, b) such that x * a + b is normalised, of moments in float64."""
    rstd = np.add(var, bare.number(eps, var.dtype))
    np.reciprocal(np.sqrt(rstd, out=rstd), out=rstd)
    a = rstd if weight is None else np.multiply(rstd, weight, dtype=np.float64)
    b = np.multiply(mean, a)
    return rstd, a, np.negative(b, out=b) if bias is None else np.subtract(bias, b)


def normalized(
    x: Array | None,
    whole: Array | None,
    dtype: Any,
    eps: float,
    weight: Array | None,
    bias: Array | None,
    running: Sequence[Array],
    momentum: float,
    n: int,
    made: bool,
) -> tuple[Any, ...]:
    """(moments, mean, rstd, a, b, x * a + b), the last None if it is not to be `made`: of the
    moments of x, which has rows, if there are no others. Moves the `running` statistics, if any."""
    found = None
    if whole is None and x is not None and channels_compiled.adds(x.dtype):
        once = x.size <= channels_compiled.PIECE  # else a signal may come when some have been moved
        moving = *kept(momentum, x.dtype)[::-1], n / max(1, n - 1)
        found = channels_compiled.normed(
            x, eps, weight, bias, running if once else (), moving, made
        )
        if found is not None and (once or not running):
            return found
        whole = None if found is None else found[0]
    if whole is None:
        assert x is not None
        cut = x.shape[:2]
        length = x.size // (cut[0] * cut[1])
        sums, careful = _row_moments(x.reshape(-1, length))
        marks = None if careful is None else careful.reshape(cut)
        whole = _joined_rows(sums.reshape(2, *cut), marks, length)
    if running:
        own_part = kept(momentum, running[0].dtype)[1]
        for own, step in zip(running, steps(whole, momentum, n, dtype), strict=True):
            np.add(np.multiply(own, own_part), step, out=own)
    if found is not None:
        return found
    mean, var = whole
    numbers = mean, *line(mean, var, eps, weight, bias)
    mean, rstd, a, b = [v.astype(dtype) for v in numbers]
    return whole, mean, rstd, a, b, _scaled_small(x, a, b) if made and x is not None else None
