"""Whether a tensor's bytes are nobody else's, so that they may be written to, or taken."""

from __future__ import annotations

import sys

from skimp._engine.interpreter import HELD_BY_ARGUMENT, HELD_BY_VARIABLE
from skimp._engine.memory.layout import contiguous, is_non_overlapping_and_dense, numel
from skimp._engine.memory.rematerialize import has_others
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor.tensor import Tensor, wrap

# of what a runner gives a formula, which hands it on
_READ = 2 * HELD_BY_ARGUMENT - HELD_BY_VARIABLE


def is_own(t: Tensor, tensors: int = 1) -> bool:
    """Whether `t`, which nobody else holds, is all of a storage that nobody else reads; so many
    tensors are on it."""
    if t._hollow:
        return False
    s = t._storage
    if not (
        sys.getrefcount(s) == HELD_BY_VARIABLE + tensors
        and not (s.exported or t._rg or t._conj or t._skimp_neg or t._skimp_inference)
        and t._base is None
    ):
        return False
    if type(s) is not Storage and has_others(s):
        return False
    a = t._np
    if a is not None:
        return a is s.block or (a.nbytes == len(s) and a.flags.forc)
    layout = t._skimp_layout_of()
    whole: bool = numel(layout.shape) * t._dtype.itemsize == len(s)
    return whole and is_non_overlapping_and_dense(layout)


def is_last_reader(value: Tensor) -> bool:
    """Whether the formula that calls this with a value that was saved for it may write to it: its
    node has let go of it (`runner.py`), and nobody else reads its bytes. Within a budget, what is
    away and made from these has them, and what will be knows by their version that they changed.
    """
    return sys.getrefcount(value) == _READ and is_own(value)


def in_place_of(g: Tensor | None) -> Tensor | None:
    """A row-major tensor in the memory of a gradient that the formula that calls this was given,
    for when it has read that; None if anybody else might read it."""
    if g is None or sys.getrefcount(g) != _READ + 1:  # and by the runner's list
        return None
    base = g._base  # of a gradient with other strides, which nobody holds but that
    if base is None:
        own = is_own(g)
    else:
        own = sys.getrefcount(base) == HELD_BY_VARIABLE + 1 and is_own(base, 2)
    layout = contiguous(tuple(g.shape))
    if not own or numel(layout.shape) * g._dtype.itemsize != len(g._storage):
        return None
    return wrap(g._storage, layout, g._dtype)
