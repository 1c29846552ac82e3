"""Depthwise convolutions that oneDNN has no code for as they are: it would multiply matrices of a
single row, at a thirtieth of the rate.

*Of one dim* they are of two, one of which has one place. *Padding* of more than a few places is
written out, a few images at a time. *The adjoint* by steps of one is a convolution by the kernel
backwards. *The weights' gradient* is a convolution itself: of a channel
of an image, what each tap has seen of the result's gradient is what that gradient, as a kernel,
gives at the tap's place. So with each channel of each image as a group of its own the code for
forward makes it, and the images' own are added up in their order; steps and dilation change places.

Shapes: x (n, groups, 1, *size), w (groups, 1, 1, *kernel), g (n, groups, 1, *out), bias (groups,
1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np

from skimp._kernels.conv_pieces import TYPE, Three
from skimp._kernels.im2col import Ints, Window
from skimp._kernels.scratch import Scratch, row_sums

Array = np.ndarray[Any, Any]

_ROOM: Final = 1 << 18  # elements of the planes that are worked on together, before or after
_BUNDLE: Final = 16  # channels that are not cut
_FIRST: Final = 3  # dims of arrays before those of places


class Forward(Protocol):
    """`conv_onednn.forward`, where oneDNN has code of its own for it."""

    def __call__(
        self, x: Array, weight: Array, bias: Array | None, out: Array, w: Window
    ) -> bool: ...


def is_depthwise(kernels: Ints) -> bool:
    """Whether weights of this shape are."""
    return kernels[0] > 1 and kernels[1:_FIRST] == (1, 1)


def of_two_dims(
    w: Window, kernels: Ints, strides: tuple[Ints, Ints, Ints]
) -> tuple[Window, Ints, tuple[Ints, Ints, Ints]]:
    """The same convolution, where it is of one dim: the window, and the shape of weights and the
    strides of x, w and g (`with_two_dims`)."""
    if len(w.size) > 1:
        return w, kernels, strides
    x, weight, g = [(*each[:-1], 0, each[-1]) for each in strides]
    return _lifted(w), (*kernels[:-1], 1, kernels[-1]), (x, weight, g)


def with_two_dims(arrays: Three) -> Three:
    x, weight, g = [a[..., None, :] for a in arrays]
    return x, weight, g


@lru_cache(256)
def _lifted(w: Window) -> Window:
    size, kernel, stride, dilation, out = [
        (1, *each) for each in (w.size, w.kernel, w.stride, w.dilation, w.out)
    ]
    return Window(size, kernel, stride, (0, *w.padding), dilation, out)


@lru_cache(256)
def _turned(w: Window) -> Window:
    return Window(w.size, w.out, w.dilation, w.padding, w.stride, w.kernel)


@lru_cache(256)
def _backwards(w: Window) -> Window | None:
    """Of the adjoint, as a convolution by the kernel backwards; None if it is none."""
    padding = tuple([reach - 1 - p for reach, p in zip(w.reach, w.padding, strict=True)])
    if any([step > 1 for step in w.stride]) or min(padding) < 0:
        return None
    return Window(w.out, w.kernel, w.stride, padding, w.dilation, w.size)


@lru_cache(256)
def _padded(w: Window) -> Window:
    """Of images that have their padding around them."""
    size = tuple([size + 2 * around for size, around in zip(w.size, w.padding, strict=True)])
    return Window(size, w.kernel, w.stride, (0,) * len(size), w.dilation, w.out)


def made(face: str, arrays: Three, bias: Array | None, w: Window, forward: Forward) -> bool:
    """Whether one of `conv_onednn`'s faces, of x, weights and g, could be made by `forward`."""
    x, weight, g = arrays
    if face == "weights":
        return _weights(g, x, weight, bias, w, forward)
    if face == "adjoint":
        back = _backwards(w)
        if back is None:
            return False
        x, g, w = g, x, back
        weight = weight[_places([slice(None, None, -1)] * len(w.size))]
    n, count = x.shape[:2]
    for images, some in _parts(n, count, w):
        add = None if bias is None else bias[some]
        if not _forward(x[images, some], weight[some], add, g[images, some], w, forward):
            return False
    return True


def _places(slices: list[slice]) -> tuple[slice, ...]:
    """An index of all images and channels, and these places."""
    return *[slice(None)] * _FIRST, *slices


def _forward(
    x: Array, weight: Array, bias: Array | None, out: Array, w: Window, forward: Forward
) -> bool:
    """`forward`, with padding written out where that is in its way."""
    if forward(x, weight, bias, out, w):
        return True
    if not any(w.padding):
        return False
    whole = _padded(w)
    inner = _places([slice(p, p + size) for p, size in zip(w.padding, w.size, strict=True)])
    with Scratch((*x.shape[:_FIRST], *whole.size), x.dtype) as room:
        room[...] = 0
        room[inner] = x
        return forward(room, weight, bias, out, whole)


def _weights(
    g: Array, x: Array, out: Array, bias: Array | None, w: Window, forward: Forward
) -> bool:
    """out = for each tap, the sum of g times what the tap saw; bias = the sum of g."""
    turned = _turned(w)
    n, count = x.shape[:2]
    with Scratch((count, w.taps), TYPE) as total, Scratch((count,), TYPE) as sums:
        for images, some in _parts(n, count, w):
            into = total[some], None if bias is None else sums[some]
            if _add(g[images, some], x[images, some], *into, images.start > 0, turned, forward):
                continue
            return False
        out[...] = total.reshape(out.shape)
        if bias is not None:
            bias[...] = sums[:, None]
    return True


def _parts(n: int, count: int, w: Window) -> Iterator[tuple[slice, slice]]:
    """A few images, or a few channels of one, after the other."""
    places = max(math.prod(_padded(w).size), math.prod(w.out))
    many = max(1, _ROOM // (count * places))
    some = max(1, _ROOM // (_BUNDLE * places)) * _BUNDLE
    for image in range(0, n, many):
        for channel in range(0, count, some):
            yield slice(image, image + many), slice(channel, channel + some)


def _add(
    g: Array,
    x: Array,
    total: Array,
    sums: Array | None,
    begun: bool,
    turned: Window,
    forward: Forward,
) -> bool:
    """Add what some images and channels make to the total, and to the sums of g, or begin them."""
    n, count = x.shape[:2]
    with (
        _as_planes(g, turned.kernel) as kernels,
        _as_planes(x, turned.size) as planes,
        Scratch((n, count, *turned.out), TYPE) as own,
    ):
        result = own.reshape(1, n * count, 1, *turned.out)
        taken = planes[None, :, None], kernels[:, None, None]
        if not _forward(*taken, None, result, turned, forward):
            return False
        _sum(own.reshape(n, *total.shape), total, begun)
        if sums is not None:
            _sum(row_sums(kernels.reshape(n * count, -1)).reshape(n, count), sums, begun)
    return True


@contextmanager
def _as_planes(a: Array, places: Ints) -> Iterator[Array]:
    """(n, groups, 1, *places) as (n * groups, *places), copied where it is not that in memory."""
    shape = math.prod(a.shape[:_FIRST]), *places
    if a.dtype == TYPE and a.flags.c_contiguous:
        yield a.reshape(shape)
        return
    with Scratch(shape, TYPE) as room:
        room.reshape(a.shape)[...] = a
        yield room


def _sum(parts: Array, total: Array, begun: bool) -> None:
    if begun:
        total += np.add.reduce(parts, 0)
    else:
        np.add.reduce(parts, 0, out=total)
