"""Sums over the channels of images in one pass: what batch_norm needs, forwards and backwards.

A tensor (n, channels, *places) is read as n * channels rows of places, a deferred one without being
written. Each row gives its numbers from the working type; those of a channel's rows are joined in
float64, in the order of the rows. No result depends on blocks or threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.dispatch.result_types import same
from skimp._engine.dispatch.rows import FLOAT
from skimp._engine.eval import reducers
from skimp._engine.eval.expr import COPY, Expr, Kernel
from skimp._engine.eval.reduce import Geometry, geometry, map_rows, of_units
from skimp._engine.eval.run import threads_for
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import channels, channels_onednn
from skimp._kernels.pointwise import CLIP
from skimp._kernels.scratch import Scratch, row_products, row_sums
from skimp._kernels.threads import quietly, share
from skimp._ops.nn.rectified import Rectified, rectified

_DIRECT: Final = 1 << 19  # elements below which one call on all rows is the shortest way
_SHORT: Final = 16  # places below which rows cost more than their elements
_PASSES: Final = 2  # over the rows, as memory gives them
_PART: Final = 1 << 15  # elements of the rows that are read twice
_STEPS: Final = 4  # over what is blended
_UNIT: Final = 1 << 17  # elements of what stays in the cache until it is read again
_WIDE: Final = 1 << 16
_WRITTEN: Final = 1 << 18  # elements of a rectifier's gradient that are written and read at once
_SHORT_RUN: Final = 512
_BRIEF: Final = 1 << 15  # elements of which arrays of their own cost less than a plan
_VARIANCE: Final = reducers.var(0)
# Sums around the mean are those around 0 less what the mean makes of them, one pass less, unless
# the mean is more than so many deviations from 0: that loses three bits.
_FAR: Final = 2.75


def has_rows(t: Tensor) -> bool:
    """Whether the places of each channel are a run that is worth a row of its own."""
    shape = shape_of(t)
    if len(shape) < 3 or 0 in shape or not t._dtype.is_floating_point:
        return False
    return math.prod(shape[2:]) >= _SHORT and layouts.is_contiguous(t._skimp_layout_of())


def moments(x: Tensor) -> tuple[Array, Array]:
    """Mean and biased variance of each channel in the working type."""
    totals, squares, length = _moments_of_rows(x)
    n = x.shape[0]
    return _joined_rows(totals.reshape(n, -1), squares.reshape(n, -1), length)


def group_moments(x: Tensor, groups: int) -> tuple[Array, Array]:
    """The same of each of so many groups of an image's channels, (n * groups,)."""
    totals, squares, length = _moments_of_rows(x)
    each = x.shape[0] * groups
    return _joined_rows(totals.reshape(each, -1).T, squares.reshape(each, -1).T, length)


def _moments_of_rows(x: Tensor) -> tuple[Array, Array, int]:
    """`_row_moments` of all rows, and how many places they have."""
    acc = dtypes.accumulator(x._dtype).np
    n, source = x.shape[0], _source(x)
    if isinstance(source, np.ndarray) and source.size < _DIRECT and source.dtype == acc:
        rows = source.reshape(n * source.shape[1], -1)
        length = rows.shape[1]
        totals, squares = quietly(_row_moments, rows)
    else:
        length = math.prod(x.shape[2:])
        totals, squares = _numbers(x, 2, acc)

        def block(rows: Array, total: Array, square: Array) -> None:
            flat = rows.reshape(len(rows), -1).astype(acc, copy=False)
            total[...], square[...] = _row_moments(flat)

        _over(source, 2, block, totals, squares)
    return totals, squares, length


def _joined_rows(totals: Array, squares: Array, length: int) -> tuple[Array, Array]:
    """Mean and variance of rows of so many places from those of each (rows, results), joined as by
    Chan, Golub, LeVeque (1983)."""
    acc, n, sums = totals.dtype, len(totals), totals.astype(np.float64)
    if n == 1:  # nothing is joined, but what is not finite spreads
        mean = sums[0] / length
        spread = squares.reshape(-1) + (mean - mean)
        return mean.astype(acc), (spread / length).astype(acc)
    mean = np.add.reduce(sums, 0) / (n * length)
    spread = np.add.reduce(squares, 0, np.float64)
    spread += np.add.reduce(np.square(sums / length - mean), 0) * length
    return mean.astype(acc), (spread / (n * length)).astype(acc)


def _row_moments(flat: Array) -> tuple[Array, Array]:
    """The sum of each row and that of the squares around its mean, in columns."""
    total = row_sums(flat)
    centre = total / flat.dtype.type(flat.shape[1])
    square = row_products(flat, flat)
    own: Array = square - total * centre
    careful = ~(square <= (1 + _FAR**2) * own)  # nan is careful too
    for some in _groups(careful, flat):
        with Scratch((len(some), flat.shape[1]), flat.dtype) as apart:
            np.subtract(flat[some], centre[some], out=apart)
            own[some] = row_products(apart, apart)
    return total, own


def few(t: Any, like: Any) -> Array | None:
    """The elements of a small tensor of the type and shape of `like`, row-major or one number
    expanded, whose channels are no rows; None for any other."""
    a: Array | None = t._np
    if a is None or t._dtype is not like._dtype or t._dtype not in dtypes.FLOATING:
        return None
    if not 0 < a.size <= _BRIEF or a.ndim < 2 or not (a.flags.c_contiguous or not any(a.strides)):
        return None
    return a if _cut(a.shape).alone else None


@lru_cache(1024)
def _cut(shape: tuple[int, ...]) -> Geometry:
    return geometry(shape, (0, *range(2, len(shape))))


def moments_of_few(x: Array) -> tuple[Array, Array]:
    """Mean and biased variance of each channel, as the ops `mean` and `var` give them."""
    cut = _cut(x.shape)
    if cut.direct:
        block = x.reshape(cut.groups, cut.rows, cut.columns)
        mean, squares = state = _VARIANCE.first(block, 0)
        var = _VARIANCE.value(state, cut.rows)
        if squares.dtype == x.dtype:  # else they were out of its range
            return mean.reshape(-1), var.reshape(-1)
    else:
        var = of_units(x, cut, _VARIANCE)
    mean = of_units(x, cut, reducers.MEAN)
    return mean.reshape(-1).astype(x.dtype), var.reshape(-1).astype(x.dtype)


def _sum_of_few(x: Array) -> Array:
    """The sum of each channel, as the op `sum` gives it."""
    cut = _cut(x.shape)
    total = of_units(np.ascontiguousarray(x), cut, reducers.SUM)
    return total.reshape(-1).astype(x.dtype, copy=False)


def back_of_few(
    g: Array, x: Array, mean: Array, rstd: Array, weight: Array | None
) -> tuple[Array, Array, Array]:
    """The gradients of input, weight and bias, in the steps in which the ops take them."""
    middle, scale = beside(x, (mean, rstd))
    n = x.size // x.shape[1]
    xhat = x - middle
    np.multiply(xhat, scale, out=xhat)
    apart = g * xhat
    dw, db = _sum_of_few(apart), _sum_of_few(g)
    gw, total, along = g, db, dw
    if weight is not None:
        gw = g * beside(x, (weight,))[0]
        along = _sum_of_few(np.multiply(gw, xhat, out=apart))
        total = _sum_of_few(gw)
    total, along = beside(x, (total / n, along / n))
    dx = np.subtract(gw, total, out=apart)
    np.subtract(dx, np.multiply(xhat, along, out=xhat), out=dx)
    return np.multiply(dx, scale, out=dx), dw, db


def gradient_sums(
    g: Tensor, x: Tensor, mean: Array, rstd: Array, into: Array
) -> tuple[Array, Array, Array]:
    """The sums of g and of g * (x - mean) for each channel, given one over x's deviations, and g's
    values, as `gradient_rows` has them."""
    n = len(x)
    *rows, own = gradient_rows(g, x, _each(mean, n), _each(rstd, n), into)
    total, product = [np.add.reduce(a.reshape(n, -1), 0, np.float64).astype(a.dtype) for a in rows]
    return total, product, own


def gradient_rows(
    g: Tensor, x: Tensor, mean: Array, rstd: Array, into: Array
) -> tuple[Array, Array, Array]:
    """The sums of g and of g * (x - mean) for each row, given x's mean and one over its deviation
    for each (n, channels, 1), and g's values: if g is deferred, it is made once and they are in
    `into`, of the working type."""
    acc, x_values = into.dtype, x._skimp_array()
    source = _source(g)
    n, count = x_values.shape[:2]
    far = ~(np.abs(mean * rstd) <= _FAR)
    if (
        isinstance(source, np.ndarray)
        and source.size < _DIRECT
        and source.dtype == acc == x_values.dtype
    ):
        flat, other = [np.ascontiguousarray(a).reshape(n * count, -1) for a in (source, x_values)]
        careful = far.reshape(-1, 1) if np.count_nonzero(far) else None
        totals, products = quietly(_row_products, flat, other, mean.reshape(-1, 1), careful)
        return totals, products, source
    passed = rectified(source) if source.dtype == acc else None
    own = source if isinstance(source, np.ndarray) else into
    kept = [] if own is source or passed is not None else [into]
    totals, products = [np.empty((n, count, 1), acc) for _ in range(2)]

    def block(
        rows: Array, seen: Array, centre: Array, careful: Array, total: Array, product: Array,
        *kept: Array,
    ) -> None:  # fmt: skip
        flat = rows.reshape(len(rows), -1).astype(acc, copy=False)
        other = seen.reshape(flat.shape).astype(acc, copy=False)
        for room in kept:
            room.reshape(flat.shape)[...] = flat
        total[...], product[...] = _row_products(flat, other, centre, careful)

    numbers = mean, far, totals, products
    if passed is None:
        _over(source, 2, block, x_values, *numbers, *kept)
    else:
        _over_written(passed, into, block, x_values, *numbers)
    return totals, products, own


def _row_products(
    flat: Array, other: Array, centre: Array, careful: Array | None
) -> tuple[Array, Array]:
    """The sum of each row, and that of its products with the other's distance from its centre, in
    columns."""
    total = row_sums(flat)
    product = row_products(flat, other)
    product -= centre * total
    for some in [] if careful is None else _groups(careful, flat):
        with Scratch((len(some), flat.shape[1]), flat.dtype) as apart:
            np.subtract(other[some], centre[some], out=apart)
            product[some] = row_products(flat[some], apart)
    return total, product


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
    if not np.count_nonzero(careful):
        return []
    marked = np.flatnonzero(careful)
    step = max(1, _PART // flat.shape[1])
    return [marked[i : i + step] for i in range(0, len(marked), step)]


def _numbers(t: Tensor, count: int, dtype: Any) -> list[Array]:
    """Arrays with one number for each row."""
    return [np.empty((*t.shape[:2], 1), dtype) for _ in range(count)]


def _each(values: Array, n: int) -> Array:
    """A number for each channel of each of n images."""
    found = np.empty((n, len(values), 1), values.dtype)
    found[...] = values[:, None]
    return found


def _source(t: Tensor) -> Expr | Array:
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


@lru_cache(64)
def _scaled(name: str, plus: bool, hold: tuple[float, ...] | None) -> Kernel:
    """x * a + b, perhaps plus another argument, held between two numbers if they are given."""
    return Kernel(
        name,
        partial(channels.scaled, hold=hold),
        aliases=True,
        strided=True,
        brief=True,
        listed=partial(channels.calls, hold=hold),
        beside=True,
        joined=partial(_joined, name, plus, hold),
    )


def _joined(
    name: str, plus: bool, hold: tuple[float, ...] | None, other: Kernel, more: int
) -> Kernel | None:
    """The kernel that copies its result too, or adds to it, or holds it between two numbers."""
    if other is COPY:
        return _scaled(name, plus, hold)
    if more and not plus and hold is None and other.ufunc is np.add:
        return _scaled(f"{name}_{other.name}", True, None)
    if more or hold is not None or CLIP is None or other.ufunc is not CLIP:
        return None
    nan = any([limit != limit for limit in other.numbers])
    return None if nan else _scaled(f"{name}_{other.name}", plus, other.numbers)


SCALED: Final = Pointwise(
    "scaled", {FLOAT: _scaled("scaled", False, None)}, same, args=("input", "a", "b")
)
"""x * a + b, the latter two with a number for each channel."""


def line_back(
    n: int, mean: Array, rstd: Array, weight: Any, total: Array, product: Array
) -> tuple[Array, ...]:
    """(a, b, c) of g * a + x * b + c, and the gradients of weight and bias, from the sums of g and
    of g * (x - mean)."""
    a = rstd if weight is None else rstd * weight
    b = product * rstd * rstd * a / -n
    return a, b, -(total * a / n + mean * b), product * rstd, total


def small_sums(t: Any, input: Any) -> Array | None:
    """A small tensor of the input's type, row-major and of full precision; None for any other."""
    a: Array | None = t._np
    if a is None or t._dtype is not input._dtype or input._dtype not in dtypes.FLOATING:
        return None
    return np.ascontiguousarray(a)


def beside(x: Array, numbers: Sequence[Array]) -> list[Array]:
    """A number for each channel as arrays that broadcast against `x` (n, channels, ...)."""
    shape = (-1,) + (1,) * (x.ndim - 2)
    return [v.reshape(shape) for v in numbers]


def blend(g: Array, x: Array, out: Array, a: Array, b: Array, c: Array) -> None:
    """out = (x * b + c) + g * a, with a number of each for each channel; it may be g itself."""
    of_g, of_x, more = beside(x, (a, b, c))
    if channels_onednn.blended(g, x, of_g, of_x, more, out):
        return
    n, count, *size = x.shape
    places = math.prod(size)
    short = n > 1 and places <= _SHORT_RUN and count * places <= _WIDE
    # an image is one run for NumPy, which takes twice as long for short ones beside numbers
    line = [v.repeat(places) if short else v[:, None] for v in (a, b, c)]
    if g.size <= _WIDE:
        shape = (n, count * places) if short else (n, count, places)
        quietly(_mixed, *[v.reshape(shape) for v in (g, x, out)], *line)
        return

    def mix(own: Array, seen: Array, into: Array, *numbers: Array) -> None:
        rows = [v.reshape(len(v), -1) for v in (own, seen, into)]
        for start in range(0, rows[0].shape[1], _WIDE):
            _mixed(*[v[:, start : start + _WIDE] for v in rows], *(numbers or line))

    along = [] if short else [_each(v, n) for v in (a, b, c)]
    _over(g, 1 if short else 2, mix, x, out, *along, steps=_STEPS)


def _mixed(g: Array, x: Array, out: Array, a: Array, b: Array, c: Array) -> None:
    with Scratch(out.shape, out.dtype) as scaled:
        np.multiply(g, a, out=scaled)
        np.multiply(x, b, out=out)
        np.add(out, c, out=out)
        np.add(out, scaled, out=out)


def scaled(x: Array, a: Array, b: Array) -> Array:
    """x * a + b"""
    made: Array = np.empty_like(x)
    channels.scaled(x, a, b, out=made)
    return made


def move(running: Array, new: Array, momentum: float) -> None:
    """running = (1 - momentum) * running + momentum * new, in place."""
    np.add(running * (1 - momentum), new * momentum, out=running)


def line(mean: Array, var: Array, eps: float, weight: Any, bias: Any) -> tuple[Array, ...]:
    """(rstd, a, b) such that x * a + b is normalised."""
    rstd = 1 / np.sqrt(var + eps)
    a = rstd if weight is None else rstd * weight
    return rstd, a, -mean * a if bias is None else bias - mean * a


def normalized(
    x: Array | None,
    moves: Sequence[tuple[Array, Array, float]],
    mean: Array,
    var: Array,
    eps: float,
    *affine: Any,
) -> tuple[Any, ...]:
    """`move` each of the running statistics, then the `line`, and what it makes of small images; no
    result where there are none."""
    for each in moves:
        move(*each)
    rstd, a, b = line(mean, var, eps, *affine)
    small = x is not None and a.dtype == x.dtype == b.dtype
    return rstd, a, b, scaled(x, *beside(x, (a, b))) if x is not None and small else None
