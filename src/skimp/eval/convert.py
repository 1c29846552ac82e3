"""Copies of one block: between types as PyTorch converts, and between transposed layouts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from skimp.eval.scratch import Array, give, take

PAGE: Final = 4096
_PAD: Final = (
    64  # bytes between the rows of the staging area, so that a column is spread over the cache
)

# What PyTorch converts through on its way from one type to another, where NumPy goes straight.
_THROUGH: Final = {
    (np.dtype(have), np.dtype(want)): np.dtype(through)
    for have, want, through in (
        (np.float64, np.uint8, np.int64),
        (np.float64, np.float16, np.float32),  # rounds twice
    )
}


def convert(source: Any, out: Array) -> None:
    """Copy elements, converting as PyTorch does on x86 (complex to real keeps the real part).

    NumPy does the same, but warns about complex numbers and takes another way from float64.
    """
    want = out.dtype
    if source.dtype is not want:
        if source.dtype.kind == "c" and want.kind not in "cb":
            source = source.real
        through = _THROUGH.get((source.dtype, want))
        if through is not None:
            source = source.astype(through)
    np.copyto(out, source, casting="unsafe")


def collides(stride: int) -> bool:
    """Whether elements this many bytes apart compete for the same few places in the cache."""
    return stride != 0 and stride % PAGE == 0


def turn(source: Array, out: Array) -> None:
    """`convert` for a transposed tile whose columns collide in the cache: by way of padded rows."""
    turned = source.T
    width = turned.shape[-1] + _PAD // turned.itemsize
    area = take(turned.size // max(turned.shape[-1], 1) * width, turned.dtype)
    staged = area.reshape(*turned.shape[:-1], width)[..., : turned.shape[-1]]
    np.copyto(staged, turned)
    convert(staged.T, out)
    give(area)
