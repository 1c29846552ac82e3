"""Pooling: max_pool keeps the number of the winning tap (a byte for each output), averages keep
nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.bodies import of_dims
from skimp._engine.dispatch.forms import export, general, hidden
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.dispatch.row import KNOWN
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.expr import Expr
from skimp._engine.eval.rows import map_rows
from skimp._engine.memory import copies as told, layout as layouts, layout_views
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import pool as windows, pool_maxima as maxima
from skimp._kernels.pool import Pool
from skimp._kernels.threads import quietly
from skimp._ops import batching
from skimp._ops.meta import nn as shapes
from skimp._ops.nn.pooling_windows import per_dim, pool_of
from skimp._ops.shape.copies import describe
from skimp._ops.ties import tie

Ints = tuple[int, ...]
F = TypeVar("F", bound=Callable[..., Any])
KNOWN.add(Pool)
_LITTLE = 1 << 13  # elements of planes below which no library is asked for averages
_DEFERRED = 1 << 18  # elements of deferred planes that are made at once: they stay in the L2 cache


# -- arrays ---------------------------------------------------------------------------------------


def planes(t: Any, nd: int) -> Array:
    """The elements as (planes, *size), where they lie if they lie so."""
    a = t._skimp_array()
    if not a.flags.c_contiguous:
        told.told(a.nbytes, "pool", lambda: f"planes of {describe(t)}", t)
        a = np.ascontiguousarray(a)
    flat: Array = a.reshape(math.prod(a.shape[: a.ndim - nd]), *a.shape[a.ndim - nd :])
    return flat


def _lies_last(t: Any, nd: int) -> bool:
    """Whether results lie channels last, as PyTorch's do where the input suggests it (averages of
    volumes never).
    """
    a = t._np
    if a is not None and a.flags.c_contiguous:
        return False
    shape = shape_of(t)
    return len(shape) == nd + 2 and formats.suggested_strides(t, shape) is not None


def as_images(input: Any) -> Any:
    """Rows with their channels last (`x.transpose(1, 2)`) as images of one row, as which PyTorch
    pools all rows, so that the result lies so too; None for any other.
    """
    a = input._np
    if len(shape_of(input)) != 3 or (a is not None and a.flags.c_contiguous):
        return None
    images = layout_views.unsqueeze(input._skimp_layout_of(), 2)
    return input.unsqueeze(2) if layouts.suggests_channels_last(images) else None


def _across(one: int, name: str, word: str, given: Any) -> Any:
    """An argument of a pool of rows for images of one row, of which `one` is the row's own."""
    return given if given in (None, (), []) else (one, *per_dim(name, word, given, 1))


def _given(t: Any, nd: int, last: bool) -> Array:
    """The elements as kernels take them: images with their channels last, or planes."""
    array: Array = t._skimp_array() if last else planes(t, nd)
    return array


def _made(
    like: Any, sizes: Ints, last: bool, dtype: Any = None, reads: tuple[Any, ...] = ()
) -> tuple[Any, Array]:
    """A blank result of the sizes, and its array as kernels take it."""
    nd = len(sizes)
    shape = (*shape_of(like)[:-nd], *sizes)
    if last:
        strides = layouts.channels_last_strides(shape)
        return blank(shape, dtype or like._dtype, strides, reads)
    result, target = blank(shape, dtype or like._dtype, None, reads)
    return result, target.reshape(math.prod(shape[: len(shape) - nd]), *sizes)


def _written(
    kernel: Any, given: tuple[Any, ...], sizes: Ints, last: bool, *more: Any, dtype: Any = None
) -> Any:
    """A result of the sizes that a kernel of tensors writes."""
    result, target = _made(given[0], sizes, last, dtype, given)
    kernel(*[_given(t, len(sizes), last) for t in given], target, *more)
    return result


# -- max_pool -------------------------------------------------------------------------------------


def _picked_back(g: Any, taps: Any, pool: Pool) -> Any:
    return _picked(g, taps, pool)


def _as_planes(t: Any, nd: int) -> Array | None:
    """A small tensor's planes where they lie, of several channels, so that nothing asks for them
    last; None of any other."""
    a: Array | None = t._np
    if a is None or a.ndim <= nd or not a.flags.c_contiguous or a.shape[-nd - 1] < 2:
        return None
    return a.reshape(-1, *a.shape[a.ndim - nd :]) if 0 < a.size < _LITTLE else None


def _small_max(input: Any, pool: Pool) -> Any:
    best = _small_values(input, pool)
    if best is None:
        return None
    x, target, shape = best
    number = dtypes.FROM_NUMPY.get(pool.number)
    if number is None:
        return None
    taps = np.empty(target.shape, pool.number)
    quietly(maxima.maximum_of_planes, x, target, taps, pool)
    return fresh(target.reshape(shape), input._dtype), fresh(taps.reshape(shape), number)


def _small_values(input: Any, pool: Pool) -> Any:
    """The planes of a small tensor, room for their maxima, and its shape."""
    nd = len(pool.size)
    x = _as_planes(input, nd)
    if x is None or math.prod(pool.padded) * len(x) >= _LITTLE:
        return None
    return x, np.empty((len(x), *pool.out), x.dtype), (*shape_of(input)[:-nd], *pool.out)


def _small_max_values(input: Any, pool: Pool) -> Any:
    best = _small_values(input, pool)
    if best is None:
        return None
    x, target, shape = best
    quietly(maxima.maximum_of_planes, x, target, None, pool)
    return fresh(target.reshape(shape), input._dtype)


def _small_spread(grad: Any, taps: Any, pool: Pool) -> Any:
    nd = len(pool.size)
    g, at = _as_planes(grad, nd), _as_planes(taps, nd)
    if g is None or at is None or math.prod(pool.padded) * len(g) >= _LITTLE:
        return None
    made = np.empty((len(g), *pool.size), g.dtype)
    quietly(maxima.spread_of_planes, g, at, made, pool)
    return fresh(made.reshape(*shape_of(grad)[:-nd], *pool.size), grad._dtype)


@hidden(
    "_max_pool_spread",
    fast=_small_spread,
    rule=Rule(
        "MaxPool2DWithIndicesBackwardBackward0",
        grad=lambda g, taps, pool: _picked_back(g, taps, pool),
    ),
    batch=batching.dims.leading(0),
    meta=shapes.spread,
)
def _spread(grad: Any, taps: Any, pool: Pool) -> Any:
    last = _lies_last(taps, len(pool.size))
    return _written(maxima.spread, (grad, taps), pool.size, last, pool)


@hidden(
    nondiff=(1,),
    fast=_small_max,
    rule=Rule(
        "MaxPool2DWithIndicesBackward0",
        input=lambda g, result1, pool, node: tie(_spread(g, result1, pool), node),
    ),
    batch=batching.dims.leading(0),
    meta=shapes.pooled_with_taps,
)
def _max_pool(input: Any, pool: Pool) -> Any:
    """(maxima, the number of the tap where each is)."""
    last = _lies_last(input, len(pool.size))
    result, target = _made(input, pool.out, last)
    number = dtypes.FROM_NUMPY.get(pool.number, dtypes.int32)
    taps, at = _made(input, pool.out, last, number)
    _maxima(input, target, at, pool)
    return result, taps


def _maxima(input: Any, target: Array, at: Array | None, pool: Pool) -> None:
    """Write the maxima of each plane, and the taps that show them; a deferred input is made a few
    planes at a time, and not written."""
    nd = len(pool.size)
    source, _ = source_of(input, in_order=True)
    if not isinstance(source, Expr):
        maxima.maximum(_given(input, nd, target.ndim > nd + 1), target, at, pool)
        return
    lead = source.shape[: len(source.shape) - nd]
    outs = tuple([a.reshape(*lead, *pool.out) for a in (target, at) if a is not None])

    def block(x: Array, best: Array, taps: Array | None = None) -> None:
        maxima.maximum_of_planes(x, best, taps, pool)

    map_rows(source, block, outs, nd, _DEFERRED)


@hidden(
    "_max_pool_picked",
    rule=Rule("GatherBackward0", input=lambda g, taps, pool: _spread(g, taps, pool)),
    batch=batching.dims.leading(0),
    meta=shapes.picked,
)
def _picked(input: Any, taps: Any, pool: Pool) -> Any:
    last = _lies_last(taps, len(pool.size))
    return _written(maxima.picked, (input, taps), pool.out, last, pool)


@hidden(
    "_max_pool_values",
    fast=_small_max_values,
    composite=False,
    batch=batching.dims.leading(0),
    meta=shapes.pooled,
)
def _max_values(input: Any, pool: Pool) -> Any:
    """Maxima alone, for when nobody asks where they are."""
    result, target = _made(input, pool.out, _lies_last(input, len(pool.size)))
    _maxima(input, target, None, pool)
    return result


def _max(
    nd: int,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    name = f"max_pool{nd}d"
    _refuse_bool(name, input)
    pool = pool_of(name, input, nd, kernel_size, stride, padding, dilation, bool(ceil_mode))
    if not (return_indices or input._rg):
        if nd == 1 and input._dtype.category == dtypes.INT:
            raise no_kernel("max_pool1d_impl", input._dtype)
        return _max_values(input, pool)
    images = as_images(input) if nd == 1 else None
    if images is not None:
        args = (
            _across(1, name, "kernel_size", kernel_size), _across(1, name, "stride", stride),
            _across(0, name, "padding", padding), _across(1, name, "dilation", dilation),
        )  # fmt: skip
        made = _max(2, images, *args, ceil_mode, return_indices)
        return tuple([t.squeeze(2) for t in made]) if return_indices else made.squeeze(2)
    values, taps = _max_pool(input, pool)
    if not return_indices:
        return values
    return values, _places(taps, pool)


@hidden("_max_pool_places", composite=False, batch=batching.dims.leading(0), meta=shapes.places)
def _places(taps: Any, pool: Pool) -> Any:
    """Where in its plane each maximum is."""
    last = _lies_last(taps, len(pool.size))
    return _written(maxima.positions, (taps,), pool.out, last, pool, dtype=dtypes.int64)


def _refuse_bool(name: str, input: Any) -> None:
    if input._dtype is dtypes.bool or input._dtype.is_complex:
        raise no_kernel(name, input._dtype)


_AVERAGED = (dtypes.float32, dtypes.float64, dtypes.int64)


def refuse_averages(nd: int, input: Any) -> None:
    """Types that PyTorch's kernels of averages don't know: halves are for planes alone."""
    dtype = input._dtype
    if dtype not in _AVERAGED and not (nd < 3 and dtype.is_floating_point):
        raise no_kernel("avg_pool3d_out_frame" if nd == 3 else "avg_pool2d", dtype)


# -- averages -------------------------------------------------------------------------------------


def _avg_again(g: Any, pool: Pool, include: bool, override: int | None) -> Any:
    return _avg_pool(g, pool, include, override)


def _small_average(input: Any, pool: Pool, include: bool, override: int | None) -> Any:
    """Few planes with several channels, whose rows lie one after the other."""
    nd = len(pool.size)
    x = _as_planes(input, nd)
    if x is None:
        return None
    target = np.empty((len(x), *pool.out), x.dtype)
    if not windows.is_brief(x, target, pool):
        return None
    divisor = windows.divisors(pool, include, override)
    quietly(windows.total_of_rows, x, target, divisor, pool)
    return fresh(target.reshape(*shape_of(input)[:-nd], *pool.out), input._dtype)


@hidden(
    "_avg_pool_spread",
    rule=Rule("AvgPool2DBackwardBackward0", input=_avg_again),
    batch=batching.dims.leading(0),
    meta=shapes.unpooled,
)
def _avg_spread(input: Any, pool: Pool, include: bool, override: int | None) -> Any:
    last = len(pool.size) == 2 and _lies_last(input, 2)
    divisor = windows.divisors(pool, include, override)
    return _written(windows.total_spread, (input,), pool.size, last, divisor, pool)


@hidden(
    fast=_small_average,
    rule=Rule(
        "AvgPool2DBackward0",
        input=lambda g, pool, include, override, node: tie(
            _avg_spread(g, pool, include, override), node
        ),
    ),
    batch=batching.dims.leading(0),
    meta=shapes.averaged,
)
def _avg_pool(input: Any, pool: Pool, include: bool, override: int | None) -> Any:
    last = len(pool.size) == 2 and _lies_last(input, 2)
    divisor = windows.divisors(pool, include, override)
    return _written(windows.total, (input,), pool.out, last, divisor, pool)


def _avg(
    nd: int,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    name = f"avg_pool{nd}d"
    if nd == 2 and input.ndim < 3:
        layouts.normalize_dim(-3, input.ndim)
    refuse_averages(nd, input)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    pool = pool_of(name, input, nd, kernel_size, stride, padding, 1, bool(ceil_mode))
    images = as_images(input) if nd == 1 else None
    if images is not None:
        args = (
            _across(1, name, "kernel_size", kernel_size), _across(1, name, "stride", stride),
            _across(0, name, "padding", padding),
        )  # fmt: skip
        return _avg(2, images, *args, ceil_mode, count_include_pad).squeeze(2)
    return _avg_pool(input, pool, bool(count_include_pad), divisor_override)


def _lp(
    nd: int,
    input: Any,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    ceil_mode: bool = False,
) -> Any:
    p = float(norm_type)
    count = math.prod(per_dim(f"lp_pool{nd}d", "kernel_size", kernel_size, nd))
    found = _avg(nd, input.pow(p), kernel_size, stride, 0, ceil_mode)
    return (found.sign() * found.abs().relu() * count).pow(1.0 / p)


# -- the public functions -------------------------------------------------------------------------


_ONE_NODE = ("MaxPool", "AvgPool")  # whose own node is PyTorch's, of images

# of every pool's docstring
_SECTIONS = """\
Shape: (n, channels, ...) or (channels, ...); the spatial sizes become the windows' numbers.
Dtypes: floating point, and integers where nothing is divided; the result has the input's.
Raises: RuntimeError for other numbers of dims and for windows that don't fit.
Memory: a new tensor; windows are never written out."""


def export_pool(f: Any, samples: Any = None) -> None:
    """Reachable as `torch.name` and `nn.functional.name`; autocast keeps volumes in float32."""
    autocast = "float32" if f.__name__.endswith("3d") else None
    export(
        f.__name__,
        f,
        ("", "nn.functional"),
        method=False,
        composite=False,
        autocast=autocast,
        samples=samples,
        batch=batching.layers.by_images("input"),
    )


def pool_form(body: Any, nd: int, name: str, doc: str, **always: Any) -> Any:
    """A pool of `nd` dims, which says what all say."""
    return of_dims(body, nd, name, f"{doc}\n\n{_SECTIONS}", **always)


def plane_samples(nd: int, *more: Any) -> Any:
    """Sample calls that PyTorch's database lacks: of one plane of numbers in no order."""
    shape = (1, 1, *(4,) * nd)
    return lambda tensor: [(tensor([i * 7 % 11 for i in range(4**nd)]).reshape(shape), *more)]


def node_of(nd: int, name: str, rest: str = "") -> Callable[[F], F]:
    """How the last node of a pool shows itself: PyTorch pools one dimension as images of a row."""
    if nd == 2 and name in _ONE_NODE:
        return lambda f: f
    if nd == 1:
        return shown("SqueezeBackward1")
    return shown(f"{name}{nd}D{rest}Backward0", "input")


def _declare(nd: int) -> None:
    shown_as = node_of(nd, "MaxPool", "WithIndices")
    name = f"max_pool{nd}d"
    doc = f"The largest element of each window over {nd} dimensions."
    export_pool(shown_as(pool_form(_max, nd, name, doc)))
    name, doc = f"{name}_with_indices", "`max_pool` and where in its plane each maximum is."
    both = pool_form(_max, nd, name, doc, return_indices=True)
    export_pool(shown_as(both), plane_samples(nd, 2))
    name, doc = f"avg_pool{nd}d", f"The mean of each window over {nd} dimensions."
    average = node_of(nd, "AvgPool")(pool_form(_avg, nd, name, doc))
    overlap = "free" if nd == 3 else ""
    general(out=nd > 1, overlap=overlap, method=False, namespaces=("", "nn.functional"))(average)
    norm = pool_form(_lp, nd, f"lp_pool{nd}d", "The p-norm of each window.")
    export_pool(norm, plane_samples(nd, 2.0, 2))


for _nd in (1, 2, 3):
    _declare(_nd)
