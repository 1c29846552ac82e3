"""The gradient that a rectifier, or another activation, passes on, as batch norm's backward reads
it: not by a plan, but by the few calls that it takes, block by block, beside the sums that are made
of it.

What the activation had been given is in memory, or a line x * a + b of images, with a number for
each channel, which is made again in the same blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import nan, prod
from typing import Any, NamedTuple

import numpy as np

from skimp._engine.eval.expr import Expr, Leaf
from skimp._engine.tensor.tensor import Array
from skimp._kernels import channels
from skimp._kernels.activation import drop_outside
from skimp._kernels.scratch import Scratch

_FLOATS = "fd"
_LINE = 3  # arguments of x * a + b


class Rectified(NamedTuple):
    """What a `gate` (`Kernel`) of these numbers leaves of g, by what was seen: of arrays (n,
    channels, places).

    `line`: the (a, b) of what was seen, if that is not `seen` itself, against (channels, places).
    """

    g: Array
    seen: Array
    gate: Callable[..., None]
    numbers: tuple[float, ...]
    line: tuple[Array, ...] = ()

    def by_channel(self) -> tuple[Any, ...] | None:
        """`seen`, the (a, b) of a line for each channel, and the limits of what passes, with NaN
        for none; None of another gate, and of numbers that are written out."""
        if self.gate is not drop_outside:
            return None
        count = self.g.shape[1]
        line = [each.reshape(-1) for each in self.line] or _same(count, self.g.dtype)
        if line[0].size != count or line[1].size != count:
            return None
        return self.seen, *line, self.numbers[0], (*self.numbers, nan)[1]

    def write(self, images: slice, some: slice, out: Array) -> None:
        """The values for some images and channels."""
        seen = self.seen[images, some]
        if not self.line:
            self.gate(self.g[images, some], seen, *self.numbers, out=out)
            return
        with Scratch(out.shape, out.dtype) as made:
            channels.scaled(seen, *[each[some] for each in self.line], out=made)
            self.gate(self.g[images, some], made, *self.numbers, out=out)


@lru_cache(64)
def _same(count: int, dtype: Any) -> list[Array]:
    """The line that leaves numbers as they are."""
    return [np.ones(count, dtype), np.zeros(count, dtype)]


def rectified(source: Expr | Array) -> Rectified | None:
    """What an expression of images (n, channels, ...) says, if it is such a gradient."""
    if type(source) is not Expr or source.dtype.char not in _FLOATS:
        return None
    gate, numbers = source.kernel.gate, source.kernel.numbers
    if gate is None:
        return None
    g, seen = source.args
    if type(seen) is not Expr:
        found = _images(source, g, seen)
        return found and Rectified(*found, gate, numbers)
    fn = seen.kernel.fn
    if type(fn) is not partial or fn.func is not channels.scaled or len(seen.args) > _LINE:
        return None
    hold = fn.keywords["hold"]
    if hold is not None and not (
        gate is drop_outside and hold[0] <= numbers[0] <= numbers[-1] < hold[1]
    ):
        return None  # else what is held lies outside of the limits, before and after
    found = _images(source, g, seen.args[0])
    line = [each for arg in seen.args[1:] if (each := _numbers(arg)) is not None]
    if found is None or len(line) < _LINE - 1:
        return None
    return Rectified(*found, gate, numbers, tuple(line))


def _images(source: Expr, *args: Any) -> tuple[Array, Array] | None:
    """Arrays as (n, channels, places), if all are that in memory."""
    n, count, *size = source.shape
    found = [arg.array for arg in args if type(arg) is Leaf]
    if len(found) < len(args):
        return None
    for a in found:
        if a.shape != source.shape or a.dtype != source.dtype or not a.flags.c_contiguous:
            return None
    one, other = [a.reshape(n, count, prod(size)) for a in found]
    return one, other


def _numbers(arg: Any) -> Array | None:
    """A number for each channel as a column, or one for each element of an image as an image."""
    if type(arg) is not Leaf or (arg.array.strides[0] and len(arg.array) > 1):
        return None
    image: Array = arg.array[0]
    if not any(image.strides[1:]):
        image = image[(slice(None), *[slice(1)] * (image.ndim - 1))]
    elif not image.flags.c_contiguous:
        return None
    return image.reshape(len(image), -1)
