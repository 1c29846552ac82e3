"""The adjoint of a convolution: what each input element gives to the places whose kernel covers it.

With steps of one it is a convolution by the kernel turned round, and its columns serve the gradient
of the weights too; with larger steps several of them.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels import conv_onednn, conv_works, shaping
from skimp._kernels.blas import multiply, side_by_side, spread
from skimp._kernels.conv import Array, forward, forward_and_weights, weights
from skimp._kernels.im2col import Block, Window, blocks, gathered, working
from skimp._kernels.scratch import Scratch

_NARROW: Final = 16  # channels of an input below which a product with it is slow


def adjoint(g: Array, weight: Array, bias: Array | None, out: Array, w: Window) -> None:
    """out (n, groups, ci, *size) = for each input element, the sum over the places whose kernel
    covers it, plus a bias (groups, ci)."""
    if conv_onednn.adjoint(g, weight, bias, out, w):
        return
    _by_products(g, weight, out, w)
    if bias is not None:
        conv_works.add_to_channels(out, bias)


def _by_products(g: Array, weight: Array, out: Array, w: Window) -> None:
    back = _turned_window(w)
    if _to_few(weight, w):
        _scatter(g[:, 0], weight[0], out[:, 0], w)
    elif back is not None:
        forward(g, _turned(weight), None, out, back)
    elif all(d == 1 for d in w.dilation):
        _phases(g, weight, out, w)
    else:
        for group in range(g.shape[1]):
            _scatter(g[:, group], weight[group], out[:, group], w)


def _to_few(weight: Array, w: Window) -> bool:
    """Whether what is scattered is less than the columns of g would be: the input has few channels
    beside g, or g has few places beside the input, so that most of its columns were zeros."""
    groups, co, ci = weight.shape[:3]
    if groups > 1:
        return False
    steps = math.prod(w.stride)
    if ci * 2 <= co and (ci < _NARROW or (ci * 4 <= co and steps > 1)):
        return True
    return math.prod(w.size) >= 2 * math.prod(w.out) * steps


def adjoint_and_weights(
    g: Array, x: Array, weight: Array, out: Array, grad: Array, w: Window, bias: Array | None
) -> None:
    """`adjoint` into out, and `weights` of g and x into grad (groups, co, ci, *kernel) and bias
    (groups, co); where it can be, both from columns of g that are gathered once: in <g, x * w> the
    turned kernel's gradient is to x what the kernel's is to g."""
    if conv_onednn.adjoint_and_weights(g, x, weight, out, grad, w, bias):
        return
    back = _turned_window(w)
    if back is None or x.shape[1] > 1 or x.shape[2] < _NARROW or _to_few(weight, w):
        pieces = partial(adjoint, g, weight, None, out, w), partial(weights, g, x, grad, w, bias)
        # several groups' are many short calls, in which two threads would wait for each other
        side_by_side(pieces, 2 * g.size * weight[0, 0].size if x.shape[1] == 1 else 0)
        return
    with Scratch(_turned(grad).shape, grad.dtype) as into:
        forward_and_weights(g, _turned(weight), out, x, into, back, bias)
        grad[...] = _turned(into)


def _turned(weight: Array) -> Array:
    """(groups, co, ci, *kernel) with channels in each other's place, and the taps from last to
    first."""
    return np.flip(np.swapaxes(weight, 1, 2), tuple(range(3, weight.ndim)))


def _turned_window(w: Window) -> Window | None:
    """Where the turned kernel goes over g, if steps and padding let it."""
    if any(s != 1 for s in w.stride) or any(
        p > r - 1 for p, r in zip(w.padding, w.reach, strict=True)
    ):
        return None
    padding = tuple([r - 1 - p for p, r in zip(w.padding, w.reach, strict=True)])
    return Window(w.out, w.kernel, w.stride, padding, w.dilation, w.size)


def _phases(g: Array, weight: Array, out: Array, w: Window) -> None:
    """The adjoint for larger steps, without dilation: the input elements that are equally far from
    a step see the same taps, so each such set is a convolution of g with every so many-th tap."""
    sides = [
        [_phase(r, k, t, p) for r in range(t)]
        for k, t, p in zip(w.kernel, w.stride, w.padding, strict=True)
    ]
    ones = (1,) * len(w.size)
    for phase in itertools.product(*sides):
        steps = list(zip(phase, w.stride, strict=True))
        places: Any = (..., *[slice(p.first, None, t) for p, t in steps])
        target = out[places]
        kernel = tuple([p.taps for p in phase])
        if 0 in target.shape:
            continue
        if 0 in kernel:
            target[...] = 0
            continue
        taps: Any = (..., *[slice(p.number, None, t) for p, t in steps])
        turned = np.flip(np.swapaxes(weight[taps], 1, 2), tuple(range(3, weight.ndim)))
        padding = tuple([p.padding for p in phase])
        back = Window(w.out, kernel, ones, padding, ones, target.shape[3:])
        forward(g, turned, None, target, back)


class Phase(NamedTuple):
    """The input elements at `number` from a step along one dim: the first of them, how many taps
    they see, and the padding with which these go over g."""

    number: int
    first: int
    taps: int
    padding: int


def _phase(number: int, kernel: int, step: int, padding: int) -> Phase:
    taps = len(range(number, kernel, step))
    skipped = -(-(padding - number) // step) if padding > number else 0
    return Phase(number, skipped * step + number - padding, taps, taps - 1 - skipped)


def _scatter(g: Array, weight: Array, out: Array, w: Window) -> None:
    """The same for any steps: products of blocks of g, added tap by tap to the (padded) input
    that they came from."""
    dtype = working(out.dtype)
    # (taps, ci) x co, so that each tap's part is one run
    turned = np.ascontiguousarray(shaping.dim_last(weight, 1), dtype=dtype)
    matrix = turned.reshape(len(weight), -1).T
    todo = blocks(w, len(out), max(1, len(matrix)), 0) if g.size else ()
    some = [list(each) for _, each in itertools.groupby(todo, lambda block: block.first)]
    if not some:
        out[...] = 0
        return
    items = iter(some)  # shared by the threads: next() is atomic

    def work() -> None:
        for each in items:
            _scatter_images(g, matrix, out, w, each)

    spread(work, len(some), g.size * len(matrix))


def _scatter_images(g: Array, matrix: Array, out: Array, w: Window, each: list[Block]) -> None:
    """`_scatter` of some images, whose blocks these are."""
    images = each[0].last - each[0].first
    channels = out.shape[1]
    padded = [
        max((o - 1) * t + r, p + s)
        for o, t, r, p, s in zip(w.out, w.stride, w.reach, w.padding, w.size, strict=True)
    ]
    inner = tuple([slice(p, p + s) for p, s in zip(w.padding, w.size, strict=True)])
    with Scratch((channels, images, *padded), matrix.dtype) as total:
        total[...] = 0
        for block in each:
            seen = g[block.images, :, block.lines]
            places = seen.size // g.shape[1]
            shape = (w.taps, channels, images, block.stop - block.start, *w.out[1:])
            with (
                Scratch((g.shape[1], places), matrix.dtype) as room,
                Scratch((len(matrix), places), matrix.dtype) as columns,
            ):
                multiply(matrix, gathered(seen, matrix.dtype, room), columns)
                for tap, part in zip(np.ndindex(*w.kernel), columns.reshape(shape), strict=True):
                    total[_places(tap, block, w)] += part
        out[each[0].images] = np.swapaxes(total[(slice(None), slice(None), *inner)], 0, 1)


def _places(tap: Any, block: Block, w: Window) -> tuple[slice, ...]:
    """Which elements of the padded input this tap of the kernel covers, for the block's outputs."""
    found = [slice(None), slice(None)]
    for dim, (i, d, t, o) in enumerate(zip(tap, w.dilation, w.stride, w.out, strict=True)):
        start, count = (block.start, block.stop - block.start) if dim == 0 else (0, o)
        begin = i * d + start * t
        found.append(slice(begin, begin + (count - 1) * t + 1, t))
    return tuple(found)
