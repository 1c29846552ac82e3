"""Images read at points between their pixels (grid_sample): what they show there, and the adjoints.

Images are (n, channels, pixels), points are (n, points, axes) from -1 to 1, x first. A point sees
one pixel, two or four along each axis, each with a weight that is a polynomial of where it lies;
`orders` says which derivatives of these polynomials are the weights, so that derivatives of any
order are readings too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import bare
from skimp._kernels.threads import quietly, share
from skimp.config import config

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

_BLOCK: Final = 1 << 15  # pixels that are looked at together: they stay in the cache
_TAPS: Final = {"nearest": 1, "bilinear": 2, "bicubic": 4}


class Reading(NamedTuple):
    """How an image is read: `sizes` of its axes, x first, PyTorch's words, and the orders of the
    derivatives, one for each axis."""

    sizes: Ints
    mode: str
    padding: str
    align: bool
    orders: Ints

    def along(self, axis: int) -> Reading:
        """The derivative along an axis."""
        orders = tuple([order + (d == axis) for d, order in enumerate(self.orders)])
        return self._replace(orders=orders)


# -- where points lie -----------------------------------------------------------------------------


class _Lattice(NamedTuple):
    """What follows from a reading in a type: numbers for each axis, beside coordinates (axes,
    images, points), and where taps lie beside the first."""

    last: Array  # where the last pixel is
    span: Array  # of the image, of which a grid's 2 are
    half: Array
    pitches: Array
    taps: Array


@lru_cache(maxsize=256)
def _lattice(sizes: Ints, mode: str, align: bool, dtype: np.dtype[Any]) -> _Lattice:
    n = np.array(sizes, dtype).reshape(-1, 1, 1)
    span = n - 1 if align else n
    pitches = [math.prod(sizes[:axis]) for axis in range(len(sizes))]
    first = -1 if mode == "bicubic" else 0
    taps = np.arange(first, first + _TAPS[mode], dtype=dtype).reshape(-1, 1, 1, 1)
    return _Lattice(n - 1, span, span / 2, np.array(pitches).reshape(-1, 1, 1), taps)


def _lattice_of(how: Reading, like: Array) -> _Lattice:
    return _lattice(how.sizes, how.mode, how.align, like.dtype)


def _inside(x: Array, how: Reading) -> Array:
    """Coordinates (..., axes, images, points) brought into the image, as the padding says."""
    if how.padding == "zeros":
        return x
    if how.padding == "reflection":
        x = _mirrored(x, how)[0]
    found: Array = np.minimum(np.maximum(x, 0), _lattice_of(how, x).last)
    return found


def _mirrored(x: Array, how: Reading) -> tuple[Array, Array]:
    """x mirrored at both ends as often as it takes, and where it runs backwards then."""
    low = 0.0 if how.align else -0.5
    span = _lattice_of(how, x).span
    away = np.abs(x - low)
    turns = np.floor(away / span)
    rest = away - turns * span
    odd = np.remainder(turns, 2) == 1
    found = bare.where(span == 0, 0, bare.where(odd, span - rest, rest) + low)
    return found, odd != (x < low)


def _points(grid: Array, how: Reading) -> Array:
    """Coordinates (axes, images, points) in pixels, of a grid from -1 to 1."""
    x: Array = np.add(grid.transpose(2, 0, 1), 1, order="C")
    x *= _lattice_of(how, x).half
    if not how.align:
        x -= 0.5
    return x


def steps(grid: Array, how: Reading) -> Array:
    """(axes, images, points): how far coordinates go when the grid does."""
    x = _points(grid, how)
    found = bare.empty_like(x)
    lattice = _lattice_of(how, x)
    found[...] = lattice.half
    if how.mode == "bicubic" or how.padding == "zeros":
        return found
    if how.padding == "reflection":
        x, backwards = _mirrored(x, how)
        np.negative(found, out=found, where=backwards)
    found *= (x > 0) & (x < lattice.last)
    return found


# -- what points see ------------------------------------------------------------------------------


def _derived(polynomial: list[float], order: int) -> list[float]:
    """The coefficients of a derivative, highest first."""
    for _ in range(order):
        last = len(polynomial) - 1
        polynomial = [c * (last - i) for i, c in enumerate(polynomial[:-1])] or [0.0]
    return polynomial


def cubic_weights(t: Any, a: float = -0.75, order: int = 0) -> list[Any]:
    """Keys' cubic convolution: the weights of the four neighbours of a point at `t` between the
    middle two, or a derivative of them."""
    near, far = [[a + 2, -(a + 3), 0.0, 1.0], [a, -5 * a, 8 * a, -4 * a]]
    found = []
    for polynomial, x, sign in ((far, t + 1, 1), (near, t, 1), (near, 1 - t, -1), (far, 2 - t, -1)):
        first, *others = _derived(polynomial, order)
        total = first * x if others else first + 0 * x
        for c in others[:-1]:
            total = (total + c) * x
        found.append((total + others[-1] if others else total) * sign**order)
    return found


def _weights(t: Array, mode: str, order: int) -> list[Any]:
    """The weight of each tap of an axis for points that lie at `t` after the first, or between the
    middle two."""
    if mode == "bicubic":
        return cubic_weights(t, order=order)
    if order == 0:
        return [1 - t, t]
    return [-1, 1] if order == 1 else [0, 0]


def _each(parts: Array, combine: Callable[[Array, Array], Array]) -> Array:
    """(pixels, images, points) of what taps (taps, axes, images, points) have along each axis; x
    goes fastest."""
    axes = parts.shape[1]
    found = parts[:, axes - 1]
    for axis in range(axes - 2, -1, -1):
        found = combine(found[:, None], parts[:, axis]).reshape(-1, *found.shape[1:])
    return found


class _Seen(NamedTuple):
    """What some points see: pixels' places, which of them exist (None: all), and what weighs
    them."""

    place: Array
    exists: Array | None
    shares: Array

    def weights(self, how: Reading) -> Array | None:
        if how.mode == "nearest":
            return None
        taps, shares = _TAPS[how.mode], self.shares
        parts = np.empty((taps, *shares.shape), shares.dtype)
        if not any(how.orders):
            for tap, weight in enumerate(_weights(shares, how.mode, 0)):
                parts[tap] = weight
            return _each(parts, np.multiply)
        for axis, order in enumerate(how.orders):
            for tap, weight in enumerate(_weights(shares[axis], how.mode, order)):
                parts[tap, axis] = weight
        return _each(parts, np.multiply)

    def clear(self, values: Array) -> None:
        """Write zeros to what (pixels, images, channels, points) has outside."""
        if self.exists is not None:
            bare.copyto(values, 0, where=~self.exists[:, :, None])


def _look(grid: Array, how: Reading) -> _Seen:
    x = _points(grid, how)
    lattice = _lattice_of(how, x)
    if how.mode != "bicubic":
        x = _inside(x, how)
    if how.mode == "nearest":
        low = np.rint(x)
        at = low[None]
    else:
        low = np.floor(x)
        at = np.add(low, lattice.taps)
        if how.mode == "bicubic":
            at = _inside(at, how)
    there = np.fmin(np.fmax(at, 0), lattice.last)  # of nan 0, which is not there
    exists = np.equal(there, at)
    place = there.astype(np.int64)
    place *= lattice.pitches
    whole = bare.count_nonzero(exists) == exists.size
    seen = None if whole else _each(exists, np.logical_and)
    return _Seen(_each(place, np.add), seen, x - low)


# -- readings, and their adjoints -----------------------------------------------------------------


def _blocks(shape: Ints, how: Reading, images: slice) -> Iterator[tuple[slice, slice]]:
    """Which points of these images (n, channels, points) are worked on together."""
    each = shape[1] * _TAPS[how.mode] ** len(how.sizes)
    step = max(1, _BLOCK // max(1, each))
    for start in range(0, shape[2], step):
        yield images, slice(start, start + step)


def _by_images(shape: Ints, how: Reading, work: Callable[[slice, slice], None]) -> None:
    """work(images, points) for blocks of (n, channels, points); images are shared by threads."""
    n, channels, points = shape
    each = max(1, channels * points * _TAPS[how.mode] ** len(how.sizes))
    if n and points and n * each <= _BLOCK:
        quietly(work, slice(0, n), slice(0, points))
        return
    step = max(1, _BLOCK // each)
    starts = iter(range(0, n, step))  # next() is atomic

    def several() -> None:
        for start in starts:
            for images, at in _blocks(shape, how, slice(start, min(start + step, n))):
                work(images, at)

    share(several, config.sharers(n * each))


def _index(place: Array, images: slice, channels: int, pixels: int) -> Array:
    """(pixels seen, images, channels, points) in an array of all images' pixels."""
    planes = np.arange(images.start * channels, images.stop * channels) * pixels
    found: Array = place[:, :, None] + planes.reshape(-1, channels, 1)
    return found


def _fetch(image: Array, images: slice, points: Array, seen: _Seen) -> Array:
    """(pixels seen, images, channels, points): what they show, zeros outside."""
    channels, pixels = image.shape[1:]
    if images.stop - images.start == 1:  # one index for all channels
        found = image[images.start].take(seen.place[:, 0], 1).transpose(1, 0, 2)[:, None]
    else:
        found = image.reshape(-1).take(_index(seen.place, images, channels, pixels))
    values: Array = found.astype(points.dtype, copy=False)
    seen.clear(values)
    return values


def read(image: Array, grid: Array, how: Reading, out: Array) -> None:
    """out (n, channels, points) = the image (n, channels, pixels) at the points of the grid."""

    def work(images: slice, at: slice) -> None:
        points = grid[images, at]
        seen = _look(points, how)
        found = _fetch(image, images, points, seen)
        weights = seen.weights(how)
        if weights is not None:
            found *= weights[:, :, None]
        total = found[0]
        for more in found[1:]:
            total += more
        out[images, :, at] = total

    _by_images(out.shape, how, work)


def spread(g: Array, grid: Array, how: Reading, out: Array) -> None:
    """The adjoint of `read`: out (n, channels, pixels), zeros before."""
    channels, pixels = out.shape[1:]
    flat = out.reshape(-1)

    def work(images: slice, at: slice) -> None:
        seen = _look(grid[images, at], how)
        weights = seen.weights(how)
        given = g[images, :, at].astype(out.dtype, copy=False)
        values = np.empty((len(seen.place), *given.shape), out.dtype)
        values[...] = given if weights is None else given * weights[:, :, None]
        seen.clear(values)
        places = _index(seen.place, images, channels, pixels)
        np.add.at(flat, places.reshape(-1), values.reshape(-1))

    _by_images(g.shape, how, work)


def slopes(g: Array, image: Array, grid: Array, how: Reading, out: Array) -> None:
    """out (n, points, axes) = how the sum of g * `read` changes with the grid."""

    def work(images: slice, at: slice) -> None:
        points = grid[images, at]
        seen = _look(points, how)
        found = _fetch(image, images, points, seen)
        found *= g[images, :, at].astype(points.dtype, copy=False)
        each = found.sum(2)
        for axis, step in enumerate(steps(points, how)):
            weights = seen.weights(how.along(axis))
            assert weights is not None
            total = each[0] * weights[0]
            for pixel, weight in zip(each[1:], weights[1:], strict=True):
                total += pixel * weight
            out[images, at, axis] = total * step

    _by_images(g.shape, how, work)
