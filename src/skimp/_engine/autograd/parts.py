"""Gradients of which all but a part is zero: what a view that shows a part of a tensor sends it.

    for i in range(n): h = a[:, i] * h + b[:, i]

Each step's select has such a gradient, as large as `a`, and backward adds all of them. So its
formula answers a `Part`, and where another gradient waits already, in memory of backward's own,
the part alone is added to it. The first becomes a tensor when it arrives, so whoever looks at
gradients (hooks, captures, `retain_grad`) sees tensors; `node.apply` gives tensors too.

The bits are those of sums of whole tensors. These add a zero outside of the part, which changes one
value: -0.0 becomes 0.0. A sum is -0.0 only where both terms are, so a gradient without negative
zeros (`Clean`) never gets one; any other is looked at once, before the first part is added.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.last_reader import is_own
from skimp._engine.autograd.nodes import Grads, Node, shape_of
from skimp._engine.autograd.ops import ops
from skimp._engine.interpreter import HELD_BY_VARIABLE
from skimp._engine.tensor import regions
from skimp._engine.tensor.tensor import Array, Tensor, fresh, ghost
from skimp._kernels import bare
from skimp.config import config

_active = regions.active
_count = sys.getrefcount
_HELD = HELD_BY_VARIABLE + 1  # a gradient in a variable, and in the list where it waits
_BITS: Final = {2: np.int16, 4: np.int32, 8: np.int64}


class Clean(list["Tensor | None"]):
    """The gradients that wait at a node, of which those `at` places have no negative zeros."""

    __slots__ = ("at",)

    def __init__(self, grads: Grads) -> None:
        super().__init__(grads)
        self.at: set[int] = set()


class Part:
    """Zeros of `shape` with `g` where `place` looks, in a tensor and in an ndarray alike."""

    __slots__ = ("g", "place", "shape")

    def __init__(self, g: Tensor, shape: tuple[int, ...], place: Callable[[Any], Any]) -> None:
        self.g = g
        self.shape = shape
        self.place = place

    def whole(self) -> Tensor:
        """As a tensor of its own."""
        g = self.g
        y = g._np
        recorded = modes.state.grad or _active
        if y is None or recorded or math.prod(self.shape) > config.small_below:
            zeros = ops.new_zeros(g, self.shape)
            ops.copy_(self.place(zeros), g)
            return zeros
        made = np.zeros(self.shape, y.dtype)
        _shown(self, made)[...] = y
        return fresh(made, g._dtype)

    def arrives(self, buffers: dict[Node, Grads], to: Node, index: int) -> Tensor | None:
        """None once it was added to the gradient that waits for output `index` of a node; else a
        tensor, for whoever adds that.
        """
        grads = buffers.get(to)
        have = None if grads is None else grads[index]
        if (
            have is None
            or grads is None
            or _count(have) != _HELD
            or have._dtype is not self.g._dtype
            or have._dtype.itemsize < 2  # which nobody adds: an op says so
            or not is_own(have)
            or shape_of(have) != self.shape
        ):
            return self.whole()
        if type(grads) is not Clean:
            grads = buffers[to] = Clean(grads)
        if index in grads.at or not has_negative_zero(have):
            grads.at.add(index)
            _add(self, have)
        elif not _add_cleaning(self, have):
            grads.at.add(index)
        return None


def part(g: Tensor, shape: tuple[int, ...], place: Callable[[Any], Any]) -> Part | Tensor:
    """The gradient of a view without overlap that shows what `place` finds in a tensor of `shape`,
    as a tensor where backward is recorded, or transforms look at its ops.
    """
    found = Part(g, shape, place)
    if modes.state.grad or _active or type(g) is not Tensor:
        return found.whole()
    return found


def wholes(results: Any) -> Any:
    """What a node gives for its inputs, all tensors."""
    if Part in map(type, results):
        return [r.whole() if type(r) is Part else r for r in results]
    return results


def has_negative_zero(t: Tensor) -> bool:
    """Whether an element of a tensor, all of its storage, is -0.0: the least of integers."""
    flat = t._storage.flat()
    if not flat.size:
        return False
    size = t._dtype.itemsize >> t._dtype.is_complex
    bits = np.frombuffer(flat, _BITS[size])
    return bool(np.minimum.reduce(bits) == np.iinfo(bits.dtype).min)


def _shown(one: Part, a: Array) -> Array:
    """The elements of an array that the part is for, to write to (NumPy's diagonals are not)."""
    found: Array = one.place(a)
    if not found.flags.writeable:
        found.flags.writeable = True
    return found


def _add(one: Part, have: Tensor) -> None:
    """Add the part in place."""
    y = one.g._np
    if y is not None and y.dtype.char in "fdFD":
        seen = _shown(one, have._skimp_writable())
        bare.add(seen, y, seen)
    else:
        ops.add_(one.place(ghost(have)), one.g)


def _add_cleaning(one: Part, have: Tensor) -> bool:
    """The same where `have` has negative zeros, which outside of the part become zeros; whether
    there are some left.
    """
    seen = one.place(ghost(have))
    sums = seen + one.g
    left = has_negative_zero(ops.contiguous(sums))
    ops.add_(ghost(have), 0.0)
    ops.copy_(seen, sums)
    return left
