"""One thread's part of a plan: registers, and the loop over the steps."""

from __future__ import annotations

import math
from functools import partial
from operator import itemgetter
from typing import Any

from skimp._engine.eval.expr import Array, Shape
from skimp._engine.eval.plan import Prepared
from skimp._engine.eval.program import Step
from skimp._kernels.scratch import give, take
from skimp._kernels.threads import Call


class Runner:
    """One thread's registers, and the loop over a plan's steps."""

    __slots__ = (
        "_kernels", "_once", "_operands", "_outs", "_ready", "_registers", "_scratch", "_steps",
        "leaves",
    )  # fmt: skip

    def __init__(self, prepared: Prepared) -> None:
        plan = prepared.plan
        length = math.prod(plan.block)
        self.leaves = prepared.leaves
        self._scratch = [take(length, dtype) for dtype in plan.scratch]
        self._registers = slice(plan.first_scratch, plan.first_out)
        self._outs = slice(plan.first_out, plan.first_out + len(plan.outs))
        self._operands: list[Array] = [*prepared.leaves, *prepared.constants, *self._scratch]
        self._ready: Any = None
        self._once = [_bound(step) for step in plan.once]
        self._steps = [_bound(step) for step in plan.steps]
        self._kernels: list[Any] = [step.kernel for step in plan.steps]

    def run(self, box: tuple[slice, ...], shape: Shape, place: Any, outs: list[Array]) -> None:
        """Run the steps on the leaves' `box`, of `shape`, writing to `outs` of that shape.

        Windows of equal `place` differ only in dims that the plan's blocks cut.
        """
        operands = self._load(box, shape, place, outs)
        for fn, args, out in self._steps:
            fn(*args(operands), out=operands[out])

    def calls(self, box: tuple[slice, ...], shape: Shape, outs: list[Array]) -> list[Call]:
        """What `run` does, as calls of the kernels' ufuncs that are still to be made."""
        operands = self._load(box, shape, shape, outs)
        return [
            (partial(kernel.ufunc, *args(operands), *kernel.numbers, out=operands[out]),)
            for kernel, (_, args, out) in zip(self._kernels, self._steps, strict=True)
        ]

    def _load(
        self, box: tuple[slice, ...], shape: Shape, place: Any, outs: list[Array]
    ) -> list[Array]:
        operands = self._operands
        leaves = self.leaves
        operands[: len(leaves)] = [leaf[box] for leaf in leaves]
        operands[self._outs] = outs
        if self._ready != place:
            self._prepare(shape)
            self._ready = place
        return operands

    def close(self) -> None:
        """Give the registers back; the runner is of no use any more."""
        for register in self._scratch:
            give(register)

    def _prepare(self, shape: Shape) -> None:
        """View the registers in a block's shape; fill those that are the same for many blocks."""
        length = math.prod(shape)
        operands = self._operands
        operands[self._registers] = [part[:length].reshape(shape) for part in self._scratch]
        for fn, args, out in self._once:
            fn(*args(operands), out=operands[out])


def _bound(step: Step) -> tuple[Any, Any, int]:
    return step.kernel.fn, _picker(step.args), step.out


def _picker(args: tuple[int, ...]) -> Any:
    """A function from the operands to the tuple of a step's arguments."""
    if len(args) > 1:
        return itemgetter(*args)
    return itemgetter(slice(args[0], args[0] + 1)) if args else _nothing


def _nothing(operands: list[Array]) -> tuple[Array, ...]:
    return ()
