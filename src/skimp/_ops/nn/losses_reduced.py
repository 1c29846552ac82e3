"""Losses of pairs of elements and their mean or sum, as one node of the graph, as in PyTorch."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record
from skimp._engine.autograd.rules import Formula, Rule, parameters
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.writing import bindings
from skimp._engine.generated import compiled
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.nn.reduction import check_reduction

_means: dict[Rule, Rule] = {}


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
    rule = row.rule
    state = modes.state
    plain = not (input._hollow or target._hollow)
    if (
        reduction == "none"
        or rule is None
        or not (plain and state.grad and (input._rg or target._rg))
    ):
        return reduced(call(row, (input, target), params), reduction)
    state.grad = False
    try:
        losses = call(row, (input, target), params)
        made = reduced(losses, reduction)
    finally:
        state.grad = True
    given = bindings(row, (input, target), params)
    if reduction == "mean":
        rule = _means.get(rule) or _mean_of(rule)
        given["count"] = losses.numel()
    record(rule, given, made)
    return made


def _mean_of(rule: Rule) -> Rule:
    """The rule of the mean of what `rule` is for."""
    made = _means[rule] = Rule(rule.name, {k: _divided(f) for k, f in rule.formulas.items()})
    return made


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
