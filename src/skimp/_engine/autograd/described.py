"""A recording as C reads it (`_kernels/loops/nodes.h`), for the plans that its rule has had by now:
what `recorder.py` writes out as text, as data.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from skimp._engine.autograd import node_lines as lines, saving
from skimp._engine.autograd.nodes import FOLDED, AccumulateGrad
from skimp._engine.autograd.op_node import OpNode
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.autograd.rematerialize import AGAIN_FROM
from skimp._engine.autograd.rules import ARG_META, CONSTANT, RESULT, RESULT_META, Plan, Slot
from skimp._engine.memory.storage import sequence
from skimp._engine.tensor.tensor import Tensor, ghost
from skimp._kernels import compiled

if TYPE_CHECKING:
    from skimp._engine.autograd.record import Recording

WANTED, LISTED, SHAPE, STRIDES, KNOWN, BARE = 1, 2, 4, 8, 16, 32  # flags, as C has them
_NONE: Final = 255  # no place, or no number
# what makes a function of a description, in C; None where nothing is compiled
IN_C: Final[Any] = getattr(compiled.loops(), "recording", None)


def _bind() -> None:
    numbers = frozenset({int, float, bool, slice, type(None), type(...)})
    compiled.loops().bind(
        (
            Tensor, OpNode, AccumulateGrad, saving.GUARDED, sequence, node_of_view, saving.save,
            saving.meta_of, ghost, lines.outside, lines.INSIDE, lines.OUTSIDE, numbers,
            sys._getframe, AGAIN_FROM,
        )
    )  # fmt: skip


if IN_C is not None:
    _bind()


def in_c(recording: Recording, count: int | None) -> Any:
    """`recording.record` in C, for one output (`count` is None) or a tuple of so many."""
    rule, names = recording.rule, recording.names
    every = (1 << len(rule.names)) - 1
    plans = [(bits, plan) for bits, plan in sorted(rule.masks.items()) if bits & every]
    few = count is None or 0 < count < _NONE  # C reads what the first output is like
    if len(names) >= _NONE or len(rule.names) > 24 or not few:
        return recording.loops  # no op has as many
    places = bytes([names.index(n) if n in names else _NONE for n in rule.names])
    listed = bytes([any([n in plan.lists for _, plan in plans]) for n in rule.names])
    unlike = bytes([i in recording.nondiff for i in range(count or 1)])
    folded = 0 if rule.unfolds is None else FOLDED
    head = listed + bytes([_NONE if count is None else count, len(names), folded]) + unlike
    others = [
        recording.of_number(rule.numbers[n]) if n in rule.numbers else None for n in rule.names
    ]
    return IN_C(
        (
            recording.loops, recording.others, rule.node_class(), head, places, tuple(others),
            tuple([_of_plan(bits, plan, names, recording.nondiff) for bits, plan in plans]),
        )
    )  # fmt: skip


def _of_plan(
    bits: int, plan: Plan, names: tuple[str, ...], nondiff: tuple[int, ...]
) -> tuple[Any, ...]:
    rule = plan.rule
    flags = [
        LISTED if n in plan.lists else WANTED * wanted
        for n, wanted in zip(rule.names, plan.mask, strict=True)
    ]
    tensors = {n for n, f in zip(rule.names, flags, strict=True) if f == WANTED}
    slots = tuple([_of_slot(slot, names, plan, tensors, nondiff) for slot in plan.slots])
    return bits, plan, bytes(flags), rule.names, slots


def _of_slot(
    slot: Slot, names: tuple[str, ...], plan: Plan, tensors: set[str], nondiff: tuple[int, ...]
) -> tuple[Any, ...]:
    """(kind, flags and place as bytes, what of it, the constant or the result's number)."""
    result = slot.kind in (RESULT, RESULT_META)
    # without a history, which would keep the node alive, a result is saved as it is
    bare = slot.kind == RESULT and slot.of in nondiff
    flags = BARE * bare + KNOWN * (slot.of in tensors or slot.kind == RESULT_META)
    if slot.kind in (ARG_META, RESULT_META):
        flags += LISTED * (slot.of in plan.lists)
        flags += {"_shape": SHAPE, "_strides": STRIDES}.get(slot.meta, 0)
    at = slot.of if result else 0 if slot.kind == CONSTANT else names.index(slot.of)
    return bytes([slot.kind, flags, at]), slot.meta, slot.of
