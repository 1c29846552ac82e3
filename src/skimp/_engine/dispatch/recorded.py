"""The lines of a wrapper that record what the body, or its fast path, has made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skimp._engine.autograd import modes
from skimp._engine.autograd.record import record, recording
from skimp._engine.autograd.rules import Choice, Rule, parameters
from skimp._engine.dispatch.row import AnyRule
from skimp._engine.tensor.tensor import Tensor

# arguments that are lists of tensors
LIST_NAMES = frozenset({
    "tensors", "inputs", "matrices", "indices", "index", "operands", "hx", "params", "flat_weights",
})  # fmt: skip


def needed(value: Any) -> bool:
    """Whether a tensor, or one in a list of tensors, requires grad."""
    if isinstance(value, (list, tuple)):
        for t in value:  # noqa: SIM110  (a generator takes longer)
            if isinstance(t, Tensor) and t._rg:
                return True
        return False
    return isinstance(value, Tensor) and value._rg


def needs_of(
    space: dict[str, Any], rule: AnyRule | None, names: Sequence[str], ordinary: str | None = None
) -> str:
    """The condition that an argument with a derivative, or any without a rule, requires grad;
    `ordinary` is known to be a tensor.
    """
    space.update(needed=needed, Tensor=Tensor)
    watched = [n for n in getattr(rule, "names", names) if n in names]
    found = [
        f"{n}._rg"
        if n == ordinary
        else f"needed({n})"
        if n in LIST_NAMES
        else f"({n} is not None and ({n}._rg if isinstance({n}, Tensor) else needed({n})))"
        for n in watched
    ]
    return f"({' or '.join(found)})"


def recording_of(needs: str) -> str:
    """The condition that the call is recorded: a list of tensors is looked at last."""
    lists = needs.startswith("(needed(")
    return f"state.grad and {needs}" if lists else f"{needs} and state.grad"


def recorded_by(
    space: dict[str, Any], rule: AnyRule, nondiff: tuple[int, ...], names: Sequence[str]
) -> list[str]:
    """The lines that record `result`."""
    passed, names = ", ".join(names), tuple(names)
    if isinstance(rule, Rule):
        space["recording"] = recording(rule, names, nondiff)
        return [f"recording.record(result, {passed})"]
    if isinstance(rule, Choice):
        nothing = " and ".join([f"{name} is None" for name in rule.by])
        space.update(
            usual=recording(rule.usual, names, nondiff),
            pick=rule.pick,
            names=names,
            nondiff=nondiff,
            recording=recording,
        )
        space["key"] = names if not nondiff else (names, nondiff)
        return [
            f"if {nothing}:",
            f"    usual.record(result, {passed})",
            "else:",
            f"    rule = pick({', '.join(rule.by)})",
            "    chosen = rule.recordings.get(key) or recording(rule, names, nondiff)",
            f"    chosen.record(result, {passed})",
        ]
    space.update(record=record, rule=rule, nondiff=nondiff)
    given = ", ".join([f"{n!r}: {n}" for n in names])
    return [f"given = {{{given}}}", "record(rule(given), given, result, nondiff)"]


def recorded_fast(space: dict[str, Any], rule: Rule | Choice, names: Sequence[str]) -> list[str]:
    """The lines that record what a fast path gave by the rule of the op that it stands for, whose
    arguments have the names that they have in the function. (It is asked for ordinary tensors
    alone, and the wrapper has looked at the first.)
    """
    rules = [rule] if isinstance(rule, Rule) else [rule.usual]
    read = {n for r in rules for f in r.formulas.values() for n in parameters(f)}
    read.update(rule.names, rule.by if isinstance(rule, Choice) else ())
    own = [n for n in names if n in read]
    needs = " or ".join(
        [
            f"{n}._rg" if n == names[0] else f"type({n}) in ordinary and {n}._rg"
            for n in own
            if n in rule.names
        ]
    )
    space["state"] = modes.state
    return [
        f"if ({needs}) and state.grad:",
        *[f"    {line}" for line in recorded_by(space, rule, (), own)],
    ]
