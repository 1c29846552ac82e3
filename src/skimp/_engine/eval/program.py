"""What a plan is: frozen data that `make` builds, `plan` caches, `run` follows and `show` prints.

A plan names its operands by number: leaves first, then constants, scratch registers and outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skimp._engine.eval.expr import Kernel, Shape

# An argument is (kind, number): a node of the DAG, a leaf, or a constant.
NODE, LEAF, CONSTANT = range(3)
Arg = tuple[int, int]
Node = tuple[Kernel, tuple[Arg, ...], "np.dtype[Any]"]


@dataclass(frozen=True, slots=True)
class Step:
    """kernel.fn(*args, out=out), operands by number."""

    kernel: Kernel
    args: tuple[int, ...]
    out: int


class LeafLayout(NamedTuple):
    """What a plan knows of a leaf: its element type and its strides over the domain, in bytes."""

    dtype: np.dtype[Any]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How roots of one shape run.

    `domain` is `shape` in as few dims as the leaves' strides allow; `block` is the largest box of
    it that runs at once, and `tiled` says that blocks are not runs of C order. `once` are the steps
    whose result is the same for the blocks of a thread, `steps` those that run for each.
    """

    shape: Shape
    domain: Shape
    block: Shape
    tiled: bool
    leaves: tuple[LeafLayout, ...]
    constants: tuple[np.dtype[Any], ...]
    scratch: tuple[np.dtype[Any], ...]
    outs: tuple[np.dtype[Any], ...]
    once: tuple[Step, ...]
    steps: tuple[Step, ...]
    unwritten_bytes: int  # what eager execution would have written besides the outputs

    @property
    def scratch_bytes(self) -> int:
        """Bytes that each thread needs for its registers."""
        return sum(dtype.itemsize for dtype in self.scratch) * math.prod(self.block)

    @property
    def first_constant(self) -> int:
        return len(self.leaves)

    @property
    def first_scratch(self) -> int:
        return self.first_constant + len(self.constants)

    @property
    def first_out(self) -> int:
        return self.first_scratch + len(self.scratch)
