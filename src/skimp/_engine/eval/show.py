"""Shows what an expression would do: its inputs, steps, registers, blocks and bytes."""

from __future__ import annotations

import math

from skimp._engine.eval.expr import Expr
from skimp._engine.eval.plan import plan
from skimp._engine.eval.program import Plan, Step


def show(expr: Expr) -> str:
    """The plan of an expression, one step a line, for people."""
    return show_plan(plan((expr,)))


def show_plan(what: Plan) -> str:
    """A plan, one step a line, for people."""
    names = _names(what)
    lines = [
        f"shape {_dims(what.shape)} as {_dims(what.domain)}, "
        f"{_blocks(what)} {'tiles' if what.tiled else 'blocks'} of {_dims(what.block)}"
    ]
    for number, leaf in enumerate(what.leaves):
        lines.append(
            f"  {names[number]}: {leaf.dtype} with strides {_dims(leaf.strides, ', ')} in bytes"
        )
    lines += [f"  once {_step(step, names)}" for step in what.once]
    lines += [f"  {_step(step, names)}" for step in what.steps]
    lines.append(
        f"{len(what.scratch)} registers, {what.scratch_bytes:,} bytes per thread; "
        f"{what.unwritten_bytes:,} bytes not written"
    )
    return "\n".join(lines)


def _names(what: Plan) -> list[str]:
    return [
        *(f"in{number}" for number in range(len(what.leaves))),
        *(f"const{number}" for number in range(len(what.constants))),
        *(f"r{number}" for number in range(len(what.scratch))),
        *(f"out{number}" for number in range(len(what.outs))),
    ]


def _step(step: Step, names: list[str]) -> str:
    args = ", ".join(names[arg] for arg in step.args)
    return f"{names[step.out]} = {step.kernel.name}({args})"


def _dims(dims: tuple[int, ...], between: str = " x ") -> str:
    return between.join(map(str, dims)) or "()"


def _blocks(what: Plan) -> int:
    return math.prod(-(-size // part) for size, part in zip(what.domain, what.block, strict=True))
