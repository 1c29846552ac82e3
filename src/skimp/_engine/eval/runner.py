"""One thread's part of a plan: registers, and the loop over the steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from skimp._engine.eval.expr import Array, Shape
from skimp._engine.eval.plan import Prepared
from skimp._kernels.scratch import give, spares, take
from skimp._kernels.threads import Call, share


class Runner:
    """One thread's registers, and the loop over a plan's steps."""

    __slots__ = (
        "_operands", "_outs", "_plan", "_ready", "_scratch", "_steps", "leaves",
        "prepared",
    )  # fmt: skip

    def __init__(self, prepared: Prepared, registers: list[Array] | None = None) -> None:
        self.prepared = prepared
        self._plan = plan = prepared.plan
        self.leaves = prepared.leaves
        if registers is None:
            registers = []
            for dtype in plan.scratch:
                registers.append(take(plan.length, dtype))
        self._scratch = registers
        self._outs = plan.written
        self._operands: list[Array] = [*prepared.leaves, *prepared.constants, *self._scratch]
        self._ready: Any = None
        self._steps = plan.bound_steps

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
        found: list[Call] = []
        for step, (_, args, out) in zip(self._plan.steps, self._steps, strict=True):
            ufunc: Any = step.kernel.ufunc
            found.append(
                (partial(ufunc, *args(operands), *step.kernel.numbers, out=operands[out]),)
            )
        return found

    def _load(
        self, box: tuple[slice, ...], shape: Shape, place: Any, outs: list[Array]
    ) -> list[Array]:
        operands = self._operands
        for number, leaf in enumerate(self.leaves):
            operands[number] = leaf[box]
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
        operands[self._plan.registers] = [part[:length].reshape(shape) for part in self._scratch]
        for fn, args, out in self._plan.bound_once:
            fn(*args(operands), out=operands[out])


def spare_runner(prepared: Prepared) -> Runner | None:
    """A runner, where there is room for its registers."""
    length = prepared.plan.length
    registers = spares([(length, dtype) for dtype in prepared.plan.scratch])
    return None if registers is None else Runner(prepared, registers)


def share_plan(runner: Runner, work: Callable[[Runner], object], threads: int) -> None:
    """`work` with a runner each, on so many threads. Helpers that find no room for their registers
    leave all to the others.
    """
    share(partial(work, runner), threads, partial(_help, runner.prepared, work))


def _help(prepared: Prepared, work: Callable[[Runner], object]) -> None:
    runner = spare_runner(prepared)
    if runner is not None:
        work(runner)
