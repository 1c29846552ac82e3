"""Whether a tensor's bytes are nobody else's, so that they may be written to, or taken."""

from __future__ import annotations

import sys

from skimp._engine.interpreter import HELD_BY_ARGUMENT, HELD_BY_VARIABLE
from skimp._engine.memory.layout import is_non_overlapping_and_dense, numel
from skimp._engine.tensor.tensor import Tensor

# of what a runner gives a formula, which hands it on
_READ = 2 * HELD_BY_ARGUMENT - HELD_BY_VARIABLE


def is_own(t: Tensor) -> bool:
    """Whether `t`, which nobody else holds, is all of a storage that nobody else reads."""
    if t._hollow:
        return False
    s = t._storage
    if not (
        sys.getrefcount(s) == HELD_BY_VARIABLE + 1  # and by the tensor
        and not (s.exported or t._rg or t._conj or t._skimp_neg or t._skimp_inference)
        and t._base is None
    ):
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
