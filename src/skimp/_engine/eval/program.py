"""What a plan is: frozen data that `make` builds, `plan` caches, `run` follows and `show` prints.

A plan names its operands by number: leaves first, then constants, scratch registers and outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.eval.expr import COPY, Array, Kernel, Shape
from skimp._engine.eval.pieces import Box, Cut, box_of, cuts
from skimp._kernels import bare, sharing

# Brief steps of a plan that take as long as another, which pays for threads from
# `config.threads_from` elements: a helper takes 60 us to wake, and a call that meets another at the
# interpreter's lock waits as long.
BRIEF: Final = 8
FEW: Final = 64  # blocks whose boxes a plan keeps

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


Bound = tuple[Any, Any, int]  # a function, what picks its arguments of all operands, its output


class Passes(NamedTuple):
    """What of a plan is told to `loops.ran`: its steps, the numbers of their kernels' own (which
    stand before the registers), the registers that are filled with numbers before, the steps' time
    for each element, and where registers begin and end."""

    steps: tuple[tuple[Any, ...], ...]
    beside: tuple[Array, ...]
    filled: tuple[tuple[int, int], ...]
    cost: float
    registers: int
    outs: int


@dataclass(frozen=True)
class Plan:
    """How roots of one shape run. What follows from that is found once: most plans run often.

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

    @cached_property
    def registers(self) -> slice:
        """Where scratch registers stand among the operands."""
        first = len(self.leaves) + len(self.constants)
        return slice(first, first + len(self.scratch))

    @cached_property
    def written(self) -> slice:
        """Where outputs stand."""
        first = self.registers.stop
        return slice(first, first + len(self.outs))

    @cached_property
    def length(self) -> int:
        """Elements of the largest block."""
        return math.prod(self.block)

    @cached_property
    def weight(self) -> int:
        """How many brief steps all steps take as long as."""
        return sum([steps_of(step.kernel) for step in self.steps])

    @cached_property
    def by_ufuncs(self) -> bool:
        """Whether each step is one call of a ufunc."""
        return all([step.kernel.ufunc is not None for step in self.steps])

    @cached_property
    def passes(self) -> Passes | None:
        """The plan as passes, if it is ufuncs over runs of memory alone."""
        return _passes_of(self)

    @cached_property
    def bound_once(self) -> list[Bound]:
        return [_bound(step) for step in self.once]

    @cached_property
    def bound_steps(self) -> list[Bound]:
        return [_bound(step) for step in self.steps]

    @cached_property
    def kept_boxes(self) -> list[Box] | None:
        """Where the blocks are, if there are few."""
        sides, count = self._sides()
        return [box_of(number, sides) for number in range(count)] if count <= FEW else None

    def boxes(self) -> Iterator[Box]:
        """Where the blocks are. Threads may share it: what it does in `next` is one step of C, or
        has no state of its own.
        """
        kept = self.kept_boxes
        if kept is not None:
            return iter(kept)
        sides, count = self._sides()
        return map(partial(box_of, sides=sides), range(count))

    def _sides(self) -> tuple[list[list[Cut]], int]:
        """The pieces of each dim, and how many blocks they make."""
        sides = [cuts(size, part) for size, part in zip(self.domain, self.block, strict=True)]
        return sides, math.prod(map(len, sides))


def _passes_of(plan: Plan) -> Passes | None:
    if plan.tiled or len(plan.domain) > 1:
        return None
    kinds = {leaf.dtype for leaf in plan.leaves}.union(plan.constants, plan.scratch, plan.outs)
    if not kinds <= sharing.TYPES:
        return None
    if any([leaf.strides[0] != leaf.dtype.itemsize for leaf in plan.leaves]):
        return None
    leaves, first = len(plan.leaves), plan.registers.start
    for step in plan.once:
        if step.kernel is not COPY or not leaves <= step.args[0] < first:
            return None
    steps, cost, beside = [], 0.0, list[Array]()
    made = *plan.scratch, *plan.outs
    later = sum([len(step.kernel.numbers) for step in plan.steps])  # which stand before `first`
    place = [*range(first), *range(first + later, first + later + len(made))]
    for step in plan.steps:
        own = range(first + len(beside), first + len(beside) + len(step.kernel.numbers))
        beside += [bare.number(a, made[step.out - first]) for a in step.kernel.numbers]
        args = *[place[a] for a in step.args], *own, place[step.out]
        for asked, *numbers in step.kernel.steps or ((step.kernel.ufunc, *range(len(args) - 1)),):
            ufunc = sharing.NUMPYS.get(asked)
            if ufunc is None:
                return None
            steps.append((ufunc, *[args[a] for a in numbers], args[-1]))
            cost += sharing.COSTS[ufunc]
    filled = tuple([(step.args[0], place[step.out]) for step in plan.once])
    return Passes(
        tuple(steps), tuple(beside), filled, cost, first + later, plan.registers.stop + later
    )


def steps_of(kernel: Kernel) -> int:
    """How many brief steps a kernel takes as long as."""
    return 1 if kernel.brief else BRIEF


def _bound(step: Step) -> Bound:
    return step.kernel.fn, _picker(step.args), step.out


def _picker(args: tuple[int, ...]) -> Any:
    """A function from the operands to the tuple of a step's arguments."""
    if len(args) > 1:
        return itemgetter(*args)
    return itemgetter(slice(args[0], args[0] + 1)) if args else _nothing


def _nothing(operands: list[Array]) -> tuple[Array, ...]:
    return ()
