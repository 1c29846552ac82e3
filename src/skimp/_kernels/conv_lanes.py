"""The gradient of the weights of few channels, as the sum of several: each for some of the images.

It has too few bundles of channels for a team of oneDNN's threads, which then cuts the images and
adds up in an order that its size decides. So images that follow each other are told to oneDNN as
groups of one image that has all of their channels, for they are that in memory: a thread has groups
of its own, however many there are, and what the groups gave is added up in their order. How many
there are follows from shapes and strides alone.

Shapes: x (n, 1, ci, *size), w (1, co, ci, *kernel), g (n, 1, co, *out), bias (1, co).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._kernels.conv_pieces import TYPE, Sizes, Three
from skimp._kernels.im2col import LANES, Window
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


def lanes(arrays: Three, bias: Array | None, w: Window, least: int, most: int) -> Lanes | None:
    """The same gradient in groups, if it has few channels in whole bundles, several images, and
    takes so many multiplications at least: such of at most so many elements, before and after."""
    x, weight, g = arrays
    n = len(x)
    many = _groups(n, *weight.shape[:3], w, least, most)
    if not many or not (weight.dtype == TYPE and _follow(x) and _follow(g)):
        return None
    room = take(many * weight.size, TYPE)
    own = room.reshape(many, *weight.shape[1:])
    seen, given = [a.reshape(n // many, many, *a.shape[2:]) for a in (x, g)]
    beside = None if bias is None else np.empty((many, weight.shape[1]), TYPE)
    return Lanes((seen, own, given), beside, weight, bias, room)


@lru_cache(256)
def _groups(n: int, groups: int, co: int, ci: int, w: Window, least: int, most: int) -> int:
    """How many groups n images become; 0 where they stay what they are."""
    sizes = Sizes(n, groups, co, ci)
    if n * sizes.effort(w) < least:
        return 0
    if groups > 1 or co % _BUNDLE or ci % _BUNDLE or co * ci > _FEW * _BUNDLE**2:
        return 0
    fit = most // sizes.image(w)
    return next((count for count in _COUNTS if n % count == 0 and count <= fit), 0)


def _follow(images: Array) -> bool:
    """Whether an image begins where the channels of the one before end."""
    channels: int = images.shape[2]
    return images.strides[0] == channels * images.strides[2]
