"""Plans of ufuncs over runs of memory, by NumPy's own loops without Python between them, where
`skimp compile` was run (`_kernels/sharing.py`): blocks are as short as the L1 cache wants them, and
a team shares them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from skimp._engine.eval.expr import Array, Expr, Leaf
from skimp._engine.eval.plan import Prepared
from skimp._engine.eval.program import Passes
from skimp._kernels import compiled, sharing, teams
from skimp._kernels.scratch import give, take
from skimp._kernels.threads import Call, at_once
from skimp.config import config

_BLOCK: Final = 1 << 11  # elements: registers and what is read of a chain stay in the L1 cache


def run_pass(root: Expr, out: Array) -> bool:
    """Write one kernel by its loop, where that is a ufunc's and all that it reads lies as `out`
    does, or is a number; whether it is done. An element may be written over what it is made of."""
    kernel = root.kernel
    if kernel.ufunc is None or not config.small_below or compiled.loops() is None:
        return False
    read: list[Any] = []
    for arg in root.args:
        if type(arg) is Leaf:
            arg = arg.array
            if not arg.flags.c_contiguous or arg.shape != out.shape:
                return False
        elif kernel.dense:
            return False
        read += (arg,)
    return sharing.ran(kernel.ufunc, read, out, kernel.numbers)


def run_passes(
    prepared: Prepared, passes: Passes, outs: Sequence[Array], then: Sequence[Call]
) -> bool:
    """Run the plan so, and make the calls `then`; whether that is done. While teams rest one thread
    does it, half as long as in long blocks: our own would be waited for."""
    plan, loops = prepared.plan, compiled.loops()
    if loops is None:
        return False
    n = outs[0].size
    began = sharing.begun(n, passes.cost)
    threads = sharing.team() if began else 1
    block = _BLOCK if plan.scratch else n
    rooms = [take(block * threads, dtype) for dtype in plan.scratch]
    operands = _operands(prepared, passes, (*rooms, *outs))
    asked = passes.steps, operands, n, block, passes.registers, passes.outs
    taken: bool = loops.ran(*asked, threads, True)
    if taken:
        at_once([(loops.ran, *asked, threads, False), *then])
        if began:
            teams.done(began, n * passes.cost)
    for room in rooms:
        give(room)
    return taken


def _operands(prepared: Prepared, passes: Passes, rooms: tuple[Array, ...]) -> tuple[Array, ...]:
    operands = (*prepared.leaves, *prepared.constants, *passes.beside, *rooms)
    for number, register in passes.filled:
        operands[register][...] = operands[number]
    return operands


def pass_sums(prepared: Prepared, rows: int, unit: int, square: bool) -> Array | None:
    """The sums of so many rows of a plan's one result, which is written nowhere, or of its squares:
    of each `unit` elements, with the bits of `reducers.looped_sums`. None where the plan is none of
    passes in float32.
    """
    plan, loops = prepared.plan, compiled.loops()
    passes = plan.passes
    if loops is None or passes is None or plan.outs[0].char != "f":
        return None
    n = math.prod(plan.shape)
    cost = passes.cost + sharing.BRIEF
    began = sharing.begun(n, cost)
    threads = sharing.team() if began else 1
    rooms = tuple([take(_BLOCK * threads, dtype) for dtype in (*plan.scratch, *plan.outs)])
    operands = _operands(prepared, passes, rooms)
    given = passes.registers, passes.outs, rows, n // rows, unit, square, threads
    found: Array | None = loops.passed_totals(passes.steps, operands, *given)
    if began and found is not None:
        teams.done(began, n * cost)
    for room in rooms:
        give(room)
    return found
