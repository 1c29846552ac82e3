"""The gradient of the weights of few channels, as the sum of several: each for some of the images.

It has too few bundles of channels for a team of oneDNN's threads, which then cuts the images and
adds up in an order that its size decides. So images that follow each other are told to oneDNN as
groups of one image that has all of their channels, for they are that in memory: a thread has groups
of its own, however many there are, and what the groups gave is added up in their order. How many
there are follows from shapes and strides alone.

Shapes: x (n, 1, ci, *size), w (1, co, ci, *kernel), g (n, 1, co, *out), bias (1, co).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels.conv_pieces import TYPE, Sizes, Three, dense
from skimp._kernels.im2col import LANES, Ints, Window
from skimp._kernels.scratch import give, take

Array = np.ndarray[Any, Any]

_BUNDLE: Final = 16  # channels that are not cut
_FEW: Final = 4  # bundles of x by bundles of g
_COUNTS: Final = (LANES, 2, 3)


class Lanes(NamedTuple):
    """The groups' x, w and g, and bias; where the sums go; scratch memory, in which w is."""

    arrays: Three
    bias: Array | None
    out: Array
    total: Array | None
    room: Array

    def join(self) -> None:
        """Write the sums."""
        np.add.reduce(self.arrays[1], 0, out=self.out[0])
        give(self.room)
        if self.bias is not None and self.total is not None:
            np.add.reduce(self.bias, 0, out=self.total[0])


def lanes(arrays: Three, bias: Array | None, many: int) -> Lanes:
    """The same gradient in so many groups."""
    x, weight, g = arrays
    n = len(x)
    room = take(many * weight.size, TYPE)
    own = room.reshape(many, *weight.shape[1:])
    seen, given = [a.reshape(n // many, many, *a.shape[2:]) for a in (x, g)]
    beside = None if bias is None else np.empty((many, weight.shape[1]), TYPE)
    return Lanes((seen, own, given), beside, weight, bias, room)


def groups(
    n: int, kernels: Ints, strides: tuple[Ints, Ints, Ints], w: Window, least: int, most: int
) -> int:
    """How many groups n images become, of these strides of x, w and g, if there are few channels in
    whole bundles, several images, and so many multiplications at least: such of at most so many
    elements, before and after; 0 where they stay what they are.
    """
    sizes = Sizes(n, *kernels[:3])
    if n * sizes.effort(w) < least:
        return 0
    _, alone, co, ci = sizes
    if alone > 1 or co % _BUNDLE or ci % _BUNDLE or co * ci > _FEW * _BUNDLE**2:
        return 0
    if not (_follow(strides[0], ci) and _follow(strides[2], co)):
        return 0
    fit = most // sizes.image(w)
    return next((count for count in _COUNTS if n % count == 0 and count <= fit), 0)


def grouped(
    n: int, kernels: Ints, strides: tuple[Ints, Ints, Ints], many: int
) -> tuple[int, Ints, tuple[Ints, Ints, Ints]]:
    """How many images, weights of what shape, and what strides of x, w and g those groups have."""
    own = many, *kernels[1:]
    seen, given = [(many * each[0], each[0], *each[2:]) for each in (strides[0], strides[2])]
    return n // many, own, (seen, dense(own, TYPE.itemsize), given)


def _follow(strides: Ints, channels: int) -> bool:
    """Whether an image begins where the channels of the one before end."""
    return strides[0] == channels * strides[2]
