"""Pooling whose windows are told by the result's size (adaptive), or undone (max_unpool)."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.bodies import of_dims
from skimp._engine.dispatch.forms import export, hidden
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.tensor import dtypes, formats, meta
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Array, fresh
from skimp._kernels import bare, shaping
from skimp._ops import batching
from skimp._ops.nn.choosing import selected
from skimp._ops.nn.pooling import (
    _avg_pool,
    as_images,
    export_pool,
    node_of,
    plane_samples,
    pool_form,
)
from skimp._ops.nn.pooling_windows import is_plain, per_dim, side_by_side
from skimp._ops.shape.views import as_int
from skimp._ops.ties import tied

Ints = tuple[int, ...]
_REMEMBERED = 1 << 12  # elements of a plane, or a matrix, that is kept for the next call
_FEW = 1 << 17  # elements of which a copy stays in the cache


def _sizes(name: str, nd: int, input: Any, output_size: Any) -> Ints:
    """The result's spatial sizes, both shapes checked."""
    find = _sizes_of if is_plain(output_size) else _sizes_of.__wrapped__
    return find(name, nd, shape_of(input), output_size)


@lru_cache(256)
def _sizes_of(name: str, nd: int, shape: Ints, output_size: Any) -> Ints:
    _check(name, shape, nd, output_size)
    return _wanted(shape[len(shape) - nd :], output_size, nd)


def _wanted(have: Ints, output_size: Any, nd: int) -> Ints:
    """The result's spatial sizes; None keeps the input's."""
    if output_size is None:
        raise TypeError("object of type 'NoneType' has no len()")
    sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * nd
    if len(sizes) != nd:
        raise RuntimeError(
            f"adaptive pooling: output_size must have {nd} elements, but got {len(sizes)}"
        )
    found = tuple(
        [n if s is None else as_int(s, "output_size") for s, n in zip(sizes, have, strict=True)]
    )
    if any(s < 0 for s in found):
        raise RuntimeError(
            "adaptive pooling: elements of output_size must be greater than or equal to 0, got "
            f"{found}"
        )
    return found


def _check(name: str, shape: Ints, nd: int, output_size: Any) -> None:
    """Maxima of images, and all of volumes, refuse batches without channels as well."""
    listed = isinstance(output_size, (tuple, list))
    if nd > 1 and listed and len(shape) <= len(output_size):
        raise ValueError(f"Input dimension should be at least {len(output_size) + 1}")
    if len(shape) not in (nd + 1, nd + 2):
        raise RuntimeError(
            f"{name}(): Expected {nd + 1}D or {nd + 2}D tensor, but got {list(shape)}"
        )
    averages = "avg" in name and nd < 3
    for dim in range(len(shape) - nd if averages else 1, len(shape)):
        if shape[dim] == 0:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                f"input has sizes {list(shape)} with dimension {dim} being empty"
            )


@lru_cache(256)
def _bounds(n: int, out: int) -> tuple[Array, Array]:
    """Where each of `out` windows over n elements begins and ends; neighbours may overlap."""
    at = np.arange(out)
    return at * n // max(1, out), -((-(at + 1) * n) // max(1, out))


# -- averages -------------------------------------------------------------------------------------


def _mean_matrix(n: int, out: int, dtype: dtypes.dtype) -> Any:
    """(n, out): each column holds the weights of one window."""
    if n * out > _REMEMBERED:
        return fresh(_means.__wrapped__(n, out, dtype.np), dtype)
    return fresh(_means(n, out, dtype.np).copy(), dtype)


@lru_cache(64)
def _means(n: int, out: int, dtype: np.dtype[Any]) -> Array:
    start, stop = _bounds(n, out)
    at = np.arange(n)[:, None]
    inside = (at >= start) & (at < stop)
    means: Array = (inside / np.maximum(stop - start, 1)).astype(dtype)
    return means


def _check_kernel(what: str, nd: int, input: Any) -> None:
    if not input._dtype.is_floating_point:
        tail = "3d_cpu" if nd == 3 else "2d"
        raise no_kernel(f"adaptive_{what}_pool{tail}", input._dtype)


def _as_suggested(result: Any, input: Any, nd: int) -> Any:
    """Images lie channels last where the input suggests it; volumes never."""
    a, made = input._np, result._np
    plain = a is not None and made is not None and a.flags.c_contiguous and made.flags.c_contiguous
    if nd != 2 or plain:
        return result
    return result.contiguous(memory_format=formats.suggested(input))


@lru_cache(256)
def _blocks(have: Ints, sizes: Ints) -> Ints | None:
    """The windows' sizes, if they lie side by side."""
    if not all(s and n % s == 0 for n, s in zip(have, sizes, strict=True)):
        return None
    return tuple([n // s for n, s in zip(have, sizes, strict=True)])


def _average(nd: int, input: Any, output_size: Any) -> Any:
    sizes = _sizes(f"adaptive_avg_pool{nd}d", nd, input, output_size)
    _check_kernel("avg", nd, input)
    shape = shape_of(input)
    first = len(shape) - nd
    have = shape[first:]
    images = as_images(input) if nd == 1 else None
    if images is not None:
        return _average(2, images, (1, *sizes)).squeeze(2)
    if sizes == (1,) * nd:
        return tied(input).mean(list(range(first, len(shape))), True)
    each = _blocks(have, sizes)
    if each is not None:
        return _avg_pool(input, side_by_side(have, each), True, None)
    whole = tied(input)
    made = _by_products(whole, have, sizes)
    if not (made._hollow or np.isfinite(made.detach()._skimp_array()).all()):
        made = _by_elements(whole, have, sizes)
    return _as_suggested(made if nd == 2 else made.contiguous(), input, nd)


def _by_products(x: Any, have: Ints, sizes: Ints) -> Any:
    """Means along one dim after another, as products; what is not finite is then in all means of
    its row.
    """
    first = x.ndim - len(have)
    for dim, (n, s) in enumerate(zip(have, sizes, strict=True), first):
        if n != s:
            x = _multiplied(x, dim, n, s) if x._hollow else _means_along(x, dim, n, s)
    return x


def _multiplied(x: Any, dim: int, n: int, s: int, turned: bool = False) -> Any:
    """The product of one dim with the windows' weights."""
    matrix = meta.empty((n, s), x._dtype) if x._hollow else _mean_matrix(n, s, x._dtype)
    return x.movedim(dim, -1).matmul(matrix.t() if turned else matrix).movedim(-1, dim)


def _means_back(g: Any, dim: int, n: int, s: int) -> Any:
    return _spread_along(g, dim, n, s)


@hidden(
    "_means_along", rule=Rule("MmBackward0", input=_means_back), batch=batching.dims.by_dims("dim")
)
def _means_along(input: Any, dim: int, n: int, s: int) -> Any:
    """The means over `s` windows that share the `n` elements of a dim."""
    return _multiplied(input, dim, n, s)


@hidden(
    "_spread_along",
    rule=Rule("MmBackward0", input=lambda g, dim, n, s: _means_along(g, dim, n, s)),
    batch=batching.dims.by_dims("dim"),
)
def _spread_along(input: Any, dim: int, n: int, s: int) -> Any:
    """The adjoint of means: each window's shares, added up; what is not finite stays inside."""
    made = _multiplied(input, dim, n, s, turned=True)
    if np.isfinite(made._skimp_array()).all():
        return made
    start, stop = _bounds(n, s)
    along = (s,) + (1,) * (input.ndim - 1 - dim)
    shares = input / fresh((stop - start).astype(input._dtype.np).reshape(along), input._dtype)
    made = made.new_zeros(made.shape)
    for i in range(int((stop - start).max())):
        windows = np.flatnonzero(start + i < stop)
        at = fresh(start[windows] + i, dtypes.int64)
        made.index_add_(dim, at, shares.index_select(dim, fresh(windows, dtypes.int64)))
    return made


def _by_elements(x: Any, have: Ints, sizes: Ints) -> Any:
    """The same, added up element by element of the windows."""
    first = x.ndim - len(have)
    for dim, (n, s) in enumerate(zip(have, sizes, strict=True), first):
        start, stop = _bounds(n, s)
        along = (s,) + (1,) * (x.ndim - 1 - dim)
        total = selected(x, dim, start)
        for i in range(1, int((stop - start).max(initial=1))):
            one = selected(x, dim, np.minimum(start + i, stop - 1))
            inside = fresh((start + i < stop).reshape(along), dtypes.bool)
            total = total + one.where(inside, 0.0)
        x = total / fresh((stop - start).astype(x._dtype.np).reshape(along), x._dtype)
    return x


# -- maxima ---------------------------------------------------------------------------------------


def _highest(x: Array, starts: list[Array], stops: list[Array]) -> Array:
    """For planes (p, *size), the flat position of the first maximum (the last nan) of each window
    (p, *out)."""
    size = x.shape[1:]
    if all([a.ndim == 1 and n % len(a) == 0 for a, n in zip(starts, size, strict=True)]):
        blocks = _highest_of_blocks(x, [len(a) for a in starts])
        if blocks is not None:
            return blocks
    pitches = [math.prod(size[d + 1 :]) for d in range(len(size))]
    reach = [int((b - a).max(initial=1)) for a, b in zip(starts, stops, strict=True)]
    out = (len(x), *[s.shape[-1] for s in starts])
    flat = x.reshape(len(x), -1)
    row = np.arange(len(x)).reshape(-1, *[1] * len(size))
    best: Array | None = None
    places = np.zeros(out, np.int64)
    for tap in itertools.product(*[range(r) for r in reach]):
        at = np.zeros((), np.int64)
        for d, (t, a, b, pitch) in enumerate(zip(tap, starts, stops, pitches, strict=True)):
            one = (
                np.minimum(a + t, b - 1) * pitch
            )  # (out,) or (planes, out); past its end a window shows its last again
            shape = [1] * len(out)
            shape[d + 1] = out[d + 1]
            shape[0] = one.shape[0] if one.ndim == 2 else 1
            at = at + one.reshape(shape)
        at = shaping.broadcast(at, out)
        found = flat[row, at]
        if best is None:
            best, places[...] = found, at
            continue
        better = (found > best) | (found != found)
        bare.copyto(best, found, where=better)
        bare.copyto(places, at, where=better)
    return places


def _highest_of_blocks(x: Array, out: list[int]) -> Array | None:
    """`_highest` of windows that are blocks side by side. None where one has a nan, of which it is
    not the first that counts, or where they are many and have to be copied.
    """
    if x.dtype.kind != "f" or (x.size > _FEW and math.prod(out) > 1):
        return None
    flat = x.reshape(-1)
    if math.isnan(bare.dot(flat, flat)):
        return None
    size = x.shape[1:]
    few = math.prod(size) <= _REMEMBERED
    places = _places_of_blocks if few else _places_of_blocks.__wrapped__
    sides, order, corners, inside = places(size, tuple(out))
    blocks = x.reshape(len(x), *sides).transpose(order).reshape(len(x), *out, -1)
    found: Array = inside.take(blocks.argmax(-1))
    found += corners
    return found


@lru_cache(64)
def _places_of_blocks(size: Ints, out: Ints) -> tuple[Ints, Ints, Array, Array]:
    """The sides of blocks in planes of this size and the order that brings each block's elements
    together, where in a plane blocks begin, and where from there each of their elements is.
    """
    each = [n // m for n, m in zip(size, out, strict=True)]
    sides = tuple([m for pair in zip(out, each, strict=True) for m in pair])
    order = (0, *range(1, len(sides), 2), *range(2, len(sides) + 1, 2))
    at = np.arange(math.prod(size)).reshape(sides).transpose([d - 1 for d in order[1:]])
    first = (0,) * len(size)
    begins: tuple[Any, ...] = (..., *first)
    return sides, order, at[begins].copy(), at[first].reshape(-1)


def gathered(input: Any, starts: list[Array], stops: list[Array], nd: int) -> tuple[Any, Any]:
    """(maxima, positions): the maxima are gathered, so their gradient goes where they are."""
    shape = shape_of(input)
    lead, have = shape[: len(shape) - nd], shape[len(shape) - nd :]
    sizes = tuple([s.shape[-1] for s in starts])
    if input._hollow:
        index = meta.empty((*lead, math.prod(sizes)), dtypes.int64)
        return _taken(input, index, lead, sizes)
    a = np.ascontiguousarray(input._skimp_array()).reshape(math.prod(lead), *have)
    places = (
        _highest(a, starts, stops)
        if a.size and math.prod(sizes)
        else np.zeros((len(a), *sizes), np.int64)
    )
    if places.size and not (input._rg and modes.state.grad):
        at = places.reshape(len(a), -1) + np.arange(0, a.size, a.size // len(a))[:, None]
        values = fresh(a.reshape(-1).take(at).reshape((*lead, *sizes)), input._dtype)
        return values, fresh(places.reshape((*lead, *sizes)), dtypes.int64)
    index = fresh(places.reshape((*lead, math.prod(sizes))), dtypes.int64)
    return _taken(input, index, lead, sizes)


def _taken(input: Any, index: Any, lead: Ints, sizes: Ints) -> tuple[Any, Any]:
    flat = math.prod(input.shape[len(lead) :])
    values = tied(input).reshape((*lead, flat)).gather(-1, index)
    return values.reshape((*lead, *sizes)), index.reshape((*lead, *sizes))


def _maximum(nd: int, input: Any, output_size: Any, return_indices: bool = False) -> Any:
    sizes = _sizes(f"adaptive_max_pool{nd}d", nd, input, output_size)
    _check_kernel("max", nd, input)
    images = as_images(input) if nd == 1 else None
    if images is not None:
        found = _maximum(2, images, (1, *sizes), True)
        return tuple([t.squeeze(2) for t in found]) if return_indices else found[0].squeeze(2)
    have = shape_of(input)[-nd:]
    bounds = [_bounds(n, s) for n, s in zip(have, sizes, strict=True)]
    values, places = gathered(input, [a for a, _ in bounds], [b for _, b in bounds], nd)
    values = _as_suggested(values, input, nd)
    return (values, _as_suggested(places, input, nd)) if return_indices else values


# -- undoing max_pool ------------------------------------------------------------------------------


def _unpool(
    nd: int,
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Any:
    name = f"max_unpool{nd}d"
    kernel = per_dim(name, "kernel_size", kernel_size, nd)
    stride = kernel if stride is None else per_dim(name, "stride", stride, nd)
    padding = per_dim(name, "padding", padding, nd)
    if tuple(indices.shape) != tuple(input.shape):
        raise RuntimeError(
            "Expected shape of indices to be same as that of the input tensor "
            f"({list(input.shape)}) but got indices tensor with shape: {list(indices.shape)}"
        )
    if not input._dtype.is_floating_point:
        raise no_kernel("max_unpool3d" if nd == 3 else "max_unpool2d", input._dtype)
    if indices._dtype is not dtypes.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices._dtype}")
    have = tuple(input.shape[input.ndim - nd :])
    sizes = tuple(
        [(n - 1) * s - 2 * p + k for n, s, p, k in zip(have, stride, padding, kernel, strict=True)]
    )
    if output_size is not None:
        sizes = _checked_size(tuple(int(s) for s in output_size)[-nd:], sizes, stride)
    lead = tuple(input.shape[: input.ndim - nd])
    places = math.prod(sizes)
    index = indices.reshape((*lead, math.prod(have)))
    at = meta.checked(index)
    if at.size and (int(at.max()) >= places or int(at.min()) < 0):
        bad = int(at[(at < 0) | (at >= places)].flat[0])
        raise RuntimeError(
            f"Found an invalid max index: {bad} (output volumes are of size "
            f"{'x'.join(map(str, sizes))})"
        )
    blank = input.new_zeros((*lead, places))
    made = blank.scatter(-1, index, input.reshape((*lead, math.prod(have))))
    return _as_suggested(made.reshape((*lead, *sizes)), input, nd)


def _checked_size(wanted: Ints, natural: Ints, stride: Ints) -> Ints:
    for d, (w, n, s) in enumerate(zip(wanted, natural, stride, strict=True)):
        if not n - s < w < n + s:
            raise ValueError(
                f'invalid output_size "{wanted}" (dim {d} must be between {n - s} and {n + s})'
            )
    return wanted


# -- the public functions -------------------------------------------------------------------------


def _declare(nd: int) -> None:
    def title(output_size: Any, **_: Any) -> str | None:
        sizes = output_size if isinstance(output_size, (tuple, list)) else (output_size,)
        mean = all([s == 1 for s in sizes])
        return None if mean else f"AdaptiveAvgPool{nd}DBackward0"

    name, doc = (
        f"adaptive_avg_pool{nd}d",
        "{} over windows that share the input among a given result.",
    )
    average = pool_form(_average, nd, name, doc.format("Means"))
    export_pool((shown("SqueezeBackward1") if nd == 1 else shown(title, "input"))(average))
    name, shown_as = f"adaptive_max_pool{nd}d", node_of(nd, "AdaptiveMaxPool")
    export_pool(shown_as(pool_form(_maximum, nd, name, doc.format("Maxima"))))
    export_with_indices(name, _maximum, nd, shown_as, batch=batching.layers.by_images("input"))
    unpool = node_of(nd, "MaxUnpool")(of_dims(_unpool, nd, f"max_unpool{nd}d", _UNPOOL))
    pairs = batching.layers.by_images("input", "indices")
    export_plain(unpool, "float32" if nd > 1 else None, batch=pairs)


_UNPOOL = """\
Each element at its index in a plane of zeros.

Shape: input and indices alike, (n, channels, ...) or (channels, ...); the result's
sizes are `output_size`, or those from which such windows come.
Dtypes: any; int64 indices.
Raises: RuntimeError for indices out of range, ValueError for sizes that can't be.
Memory: a new tensor."""


def export_plain(
    f: Any, autocast: str | None = None, samples: Any = None, batch: Any = None
) -> None:
    export(
        f.__name__,
        f,
        ("nn.functional",),
        method=False,
        composite=False,
        autocast=autocast,
        samples=samples,
        batch=batch,
    )


def export_with_indices(
    name: str, body: Any, nd: int, shown_as: Any, *more: Any, batch: Any = None
) -> None:
    """The function that always returns the indices too."""
    doc = (
        f"`{name}` and where in its plane each maximum is.\n\nShape: two of {name}'s.\n"
        "Dtypes: the input's, and int64.\nMemory: two new tensors."
    )
    both = of_dims(body, nd, f"{name}_with_indices", doc, return_indices=True)
    export_plain(shown_as(both), samples=plane_samples(nd, 2, *more), batch=batch)


def _maximum_and_places(input: Any, output_size: Any) -> Any:
    """Maxima over windows that share the input among a given result, and their places."""
    return _maximum(1, input, output_size, True)


for _nd in (1, 2, 3):
    _declare(_nd)
# torch's own, unlike torch.nn.functional's, answers both
export(
    "adaptive_max_pool1d",
    named(
        _maximum_and_places,
        "adaptive_max_pool1d",
        """nn.functional.adaptive_max_pool1d, always with the places of the maxima.

    Shape: (N, C, L) or (C, L); both results have output_size in place of L.
    Dtypes: floating point.
    """,
    ),
    method=False,
)

SAYS = """\
Raises: NotImplementedError for other dtypes, RuntimeError for sizes that don't fit.
Memory: a new tensor."""
