"""Losses of pairs of elements and their mean or sum, as one node of the graph, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import Recording, recording
from skimp._engine.autograd.rules import Formula, Rule, parameters
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.generated import compiled
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.nn.reduction import check_reduction
from skimp._ops.reduce import small


def reduced(loss: Any, reduction: str) -> Any:
    """All losses, their mean or their sum."""
    check_reduction(reduction)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def loss_of(
    row: Pointwise, input: Tensor, target: Tensor, params: tuple[Any, ...], reduction: str
) -> Any:
    """The losses of a row on each pair of elements, or their mean or sum.

    The gradient of a sum is one number for all losses, so their own formula is that of the sum; for
    a mean, it is divided by how many there are.
    """
    check_reduction(reduction)
    state = modes.state
    plain = not (input._hollow or target._hollow)
    if reduction == "none" or not (plain and state.grad and (input._rg or target._rg)):
        return reduced(call(row, (input, target), params), reduction)
    state.grad = False
    try:
        losses = call(row, (input, target), params)
        made = reduced(losses, reduction)
    finally:
        state.grad = True
    _record(row, made, (input, target, *params), reduction, losses.numel())
    return made


def small_loss(
    row: Pointwise, input: Tensor, target: Any, params: tuple[Any, ...], reduction: Any
) -> Tensor | None:
    """`loss_of` of small plain tensors of one shape and type, which nothing refuses."""
    x, y = input._np, target._np if type(target) in ORDINARY else None
    if x is None or y is None or x.shape != y.shape or reduction not in _REDUCES:
        return None
    if input._dtype not in dtypes.FLOATING or target._dtype is not input._dtype or not x.size:
        return None
    state = modes.state
    needed = state.grad and (input._rg or target._rg)
    try:
        state.grad = state.grad and not needed
        losses = row.fast(input, target, *params)
    finally:
        state.grad = state.grad or needed
    made: Tensor | None = None if losses is None else _REDUCES[reduction](losses)
    if needed and made is not None:
        _record(row, made, (input, target, *params), reduction, x.size)
    return made


_REDUCES: Final[dict[Any, Callable[[Any], Any]]] = {"mean": small.mean, "sum": small.sum_}


def _record(row: Pointwise, made: Any, given: tuple[Any, ...], reduction: str, count: int) -> None:
    if reduction == "mean":
        _recording_of(row, True).record(made, *given, count)
    else:
        _recording_of(row, False).record(made, *given)


@cache
def _recording_of(row: Pointwise, mean: bool) -> Recording:
    """How the sum of a row's losses is recorded, or their mean."""
    rule, names = row.rule, (*row.args, *row.params)
    assert rule is not None
    if not mean:
        return recording(rule, names)
    formulas = {name: _divided(f) for name, f in rule.formulas.items()}
    return recording(Rule(rule.name, formulas), (*names, "count"))


def _share(g: Tensor, count: int) -> Tensor:
    """Of a mean's gradient what each loss has: in float32, for float16 has few bits below 6e-5."""
    return (g.float() if count > 1 and g._dtype in dtypes.HALVES else g) / count


def _divided(f: Formula) -> Formula:
    """A formula for the mean: parameters are what says what is kept, so it has those of `f`."""
    names = [p for p in parameters(f) if p != "g"]
    text = [
        f"def formula({', '.join(['g', *names, 'count'])}):",
        f"    return f({', '.join([f'{p}={p}' for p in names] + ['g=share(g, count)'])})",
    ]
    return compiled("formula", text, {"f": f, "share": _share}, "mean ")  # type: ignore[no-any-return]
