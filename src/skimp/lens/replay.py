"""What would help, computed by replaying a report's own events: the allocations of the step with
the peak, with other moments of birth and death, or other sizes.

Reads a report and nothing else. Each piece of advice is one change of the replay.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from skimp._engine.budget.choice import goes_from
from skimp._engine.dispatch.row import OPS
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.sizes import readable
from skimp.lens.data import ROLES, Advice, Place, Report
from skimp.lens.sections import where
from skimp.lens.totals import whose as whose_of

LEAST: Final = 0.02  # of the peak: what saves less is no advice
MOST: Final = 8  # pieces of advice
IN_PLACE: Final = frozenset(
    ["relu", "relu6", "leaky_relu", "elu", "hardtanh", "dropout", "tanh", "sigmoid"]
)
ELEMENTWISE: Final = ("pointwise", "composite")  # composite, and as large: an activation
PASSING: Final = ("saved for backward", "temporary", "data")
STATE: Final = 5056  # bytes of the CPU's generator's state, which a checkpoint keeps
LARGE: Final = POOLED  # bytes of a tensor that is computed by itself


@dataclass(frozen=True, slots=True)
class Row:
    """An allocation: alive from `start` until before `end`, in the order of events."""

    start: float
    end: float
    bytes: int
    role: str
    place: Place
    module: str
    within: str  # the module that ran
    step: int
    born: float


class Replay:
    """The allocations of one step, and of what was alive when it began."""

    def __init__(self, report: Report) -> None:
        self.step = report.peak.step
        self.batch = _batch(report)
        self.backwards = _backwards(report)
        rows = _rows(report)
        own = [r.start for r in rows if r.step == self.step]
        self.begin = min(own, default=0)
        after = [r.start for r in rows if r.step > self.step]
        self.end = min(after, default=math.inf)
        self.rows = [r for r in rows if r.start < self.end and r.end > self.begin]
        self.peak, self.moment = peak(self.rows)
        self.turn = min([r.start for r in self.rows if self.backward(r)], default=math.inf)

    def forward(self, row: Row) -> bool:
        """Whether an allocation is of this step's forward, and was not put off until backward."""
        return row.step == self.step and row.place.phase == "forward" and row.start < self.turn

    def backward(self, row: Row) -> bool:
        """Whether it is of its backward."""
        return row.step == self.step and row.place.phase == "backward"


def peak(rows: Iterable[Row]) -> tuple[int, float]:
    """The most bytes that are alive at once, and at which event first."""
    events: list[tuple[float, int, int]] = []
    for row in rows:
        events.append((row.start, 1, row.bytes))
        if row.end != math.inf:
            events.append((row.end, 0, -row.bytes))
    total = most = 0
    moment = 0.0
    for at, _, change in sorted(events):
        total += change
        if total > most:
            most, moment = total, at
    return most, moment


def advise(report: Report) -> tuple[Advice, ...]:
    """What would make the peak smaller, the most helpful first."""
    if not report.detail.bytes:
        return ()
    played = Replay(report)
    found: list[Advice] = []
    for kind in (_zero_grad, _in_backward, _checkpoint, _in_place, _drop, _smaller_batch, _budget):
        found += kind(played)
    worth = [a for a in found if a.saves >= LEAST * played.peak]
    return tuple(sorted(worth, key=lambda a: -a.saves)[:MOST])


COST: Final = (
    "zero grad", "drop", "in place", "optimizer in backward", "checkpoint", "budget", "batch",
)  # fmt: skip


def cheapest(report: Report, excess: int, limit: int) -> Advice | None:
    """The advice that frees so many bytes more than a limit and costs least: nothing, then time,
    then the batch.
    Within the first step too: what is not known yet (what backward would do) saves nothing then.
    """
    played = Replay(report)
    found = [a for a in advise(report) if a.kind not in ("budget", "batch")]
    found += _budget(played, excess, limit) + _smaller_batch(played, excess)
    fits = [a for a in found if a.saves >= excess]
    return min(fits, key=lambda a: (COST.index(a.kind), a.seconds), default=None)


def _advice(
    played: Replay, rows: Sequence[Row], kind: str, text: str, place: Place | None = None,
    seconds: float = 0.0, modules: tuple[str, ...] = (),
) -> Advice:  # fmt: skip
    then, _ = peak(rows)
    line = "" if place is None else where(place)
    return Advice(kind, text, played.peak - then, then, seconds, line, modules)


# -- gradients -------------------------------------------------------------------------------------


def _zero_grad(played: Replay) -> list[Advice]:
    """Gradients of the step before go when the step begins."""
    rows = [
        replace(r, end=played.begin) if r.role == "gradient" and r.start < played.begin else r
        for r in played.rows
    ]
    text = "call optimizer.zero_grad() before the forward pass, so that old gradients are gone"
    return [_advice(played, rows, "zero grad", text)]


def _in_backward(played: Replay) -> list[Advice]:
    """Each gradient goes when the optimizer has used it, right after it has been accumulated. With
    several backwards in a step that would be several steps.
    """
    if played.backwards > 1:
        return []
    starts = sorted(r.start for r in played.rows if played.backward(r))
    rows = []
    for r in played.rows:
        if r.role == "gradient" and r.start < played.begin:
            rows.append(replace(r, end=played.begin))
        elif r.role == "gradient" and r.step == played.step:
            later = [s for s in starts if s > r.start][:1]
            rows.append(replace(r, end=min(r.end, later[0] if later else r.end)))
        else:
            rows.append(r)
    text = (
        "step the optimizer inside of backward (a hook by register_post_accumulate_grad_hook for "
        "each parameter), so that gradients never are alive together"
    )
    return [_advice(played, rows, "optimizer in backward", text)]


# -- what is saved ---------------------------------------------------------------------------------


def _checkpoint(played: Replay) -> list[Advice]:
    """Modules whose saved tensors go after forward and are made again in backward."""
    groups: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for r in played.rows:
        if not (played.forward(r) and r.role == "saved for backward"):
            continue
        names = r.module.split(".")
        for depth in range(1, len(names)):
            groups[".".join(names[:depth])][".".join(names[: depth + 1])].add(r.place.op)
    found = []
    for container, modules in groups.items():
        # a single layer would keep its input instead of what it saves
        several = [m for m, ops in modules.items() if len(ops) > 1]
        if len(several) < 2 or not all(m.rpartition(".")[2].isdigit() for m in modules):
            continue
        several.sort(key=_natural)
        whose = f"{container}.*" if len(several) == len(modules) else ", ".join(several)
        found.append(_with_checkpoints(played, whose, several))
    return sorted([a for a in found if a.saves > 0], key=lambda a: -a.saves)[:2]


def _natural(module: str) -> tuple[int, str]:
    return int(module.rpartition(".")[2]), module


def _with_checkpoints(played: Replay, names: str, modules: list[str]) -> Advice:
    rows = list(played.rows)
    seconds = 0.0
    for module in modules:
        rows, took = _checkpointed(played, rows, module)
        seconds += took
    text = f"checkpoint each of {names} (torch.utils.checkpoint): forward runs twice there"
    return _advice(played, rows, "checkpoint", text, None, seconds, tuple(modules))


def _checkpointed(played: Replay, rows: list[Row], module: str) -> tuple[list[Row], float]:
    below = f"{module}."
    inside = [
        r for r in rows if played.forward(r) and (r.module == module or r.module.startswith(below))
    ]
    if len(inside) < 2:
        return rows, 0.0
    first, last = min(r.start for r in inside), max(r.start for r in inside)
    # the module returns before anything else is made
    others = [r.start for r in rows if played.forward(r) and r.start > last]
    left = min(others, default=last + 1) - 0.25
    result = max([r for r in inside if r.end > left] or inside, key=lambda r: r.start)
    late = [
        r
        for r in rows
        if r.step == played.step
        and r.start >= played.turn
        and (r.within == module or r.within.startswith(below))
    ]
    rematerialized = [r for r in late if r.place == result.place and r.bytes == result.bytes]
    back = [r.start for r in late if r not in rematerialized]
    if not back:
        return rows, 0.0
    again = min(back) - 0.5  # when its backward begins
    if any(r.start < again for r in rematerialized):
        rows, result = _kept_result(rows, result, rematerialized, again)
        inside = [result if r.start == result.start else r for r in inside]
    scale = 0.4 / (left - first)
    # forward keeps nothing for backward there: a tensor goes when the ops behind it have run, or is
    # written over by a pointwise one that is deferred
    order = sorted(inside, key=lambda r: r.start)
    until = {id(r): after.start for r, after in zip(order, order[2:], strict=False)}
    for r, after in pairwise(order):
        op = OPS.get(after.place.op)
        if op is not None and op.kind in ELEMENTWISE and after.bytes == r.bytes >= LARGE:
            until[id(r)] = after.start - 0.125
    known = set(map(id, inside)) - {id(result)}
    made = [
        replace(r, end=min(r.end, until.get(id(r), left))) if id(r) in known else r for r in rows
    ]
    for r in inside:
        start = again + (r.start - first) * scale
        if r.end > left and r is not result:
            made.append(replace(r, start=start, end=max(r.end, again + 0.45)))
        elif r.end <= left:
            made.append(replace(r, start=start, end=again + (r.end - first) * scale))
    done = max(back) + 0.5
    state = replace(result, start=first, end=done, bytes=STATE, role="saved for backward")
    return [*made, state], result.born - min(r.born for r in inside)


def _kept_result(
    rows: list[Row], result: Row, rematerialized: list[Row], again: float
) -> tuple[list[Row], Row]:
    """A module's result that its readers had made again, of what the module keeps, stays until they
    have run: there is nothing to make it of before the module's second forward.
    """
    kept = replace(result, end=max(result.end, again))
    found = []
    for r in rows:
        if r is result:
            found.append(kept)
        elif r not in rematerialized or r.start >= again:
            found.append(r)
        elif r.end > again:  # the module's own node reads it too
            found.append(replace(r, start=again + 0.45))
    return found, kept


def _in_place(played: Replay) -> list[Advice]:
    """Activations that write over what they read, where nothing else wants it."""
    rows = sorted(played.rows, key=lambda r: r.start)
    changed: dict[float, Row | None] = {}
    places: dict[Place, int] = {}
    for i, r in enumerate(rows):
        if not (played.forward(r) and r.place.op in IN_PLACE):
            continue
        source = next(
            (s for s in rows[max(i - 4, 0) : i][::-1] if s.bytes == r.bytes and s.end > r.start),
            None,
        )
        if source is None or source.role != "temporary" or source.start in changed:
            continue
        changed[source.start] = replace(source, end=max(source.end, r.end))
        changed[r.start] = None
        places[r.place] = places.get(r.place, 0) + 1
    if not places:
        return []
    new = [changed.get(r.start, r) for r in rows]
    ops = ", ".join(sorted({p.op for p in places}))
    text = f"inplace=True for {len(places)} activations ({ops}), whose inputs nothing else reads"
    kept = [r for r in new if r is not None]
    return [_advice(played, kept, "in place", text, next(iter(places)))]


# -- what is held ----------------------------------------------------------------------------------


def _drop(played: Replay) -> list[Advice]:
    """What the step before left in variables, and this step replaces."""
    groups: dict[Place, list[Row]] = defaultdict(list)
    for r in played.rows:
        old = r.start < played.begin and r.step < played.step
        if old and r.role in PASSING and played.moment < r.end < played.end:
            groups[r.place].append(r)
    found = []
    for place, held in groups.items():
        gone = set(map(id, held))
        rows = [replace(r, end=played.begin) if id(r) in gone else r for r in played.rows]
        size = readable(sum(r.bytes for r in held))
        text = (
            f"`del` what {place.op} made at {where(place)} when a step is over: {size} of the step "
            "before are alive at the peak"
        )
        found.append(_advice(played, rows, "drop", text, place))
    return found


def _budget(played: Replay, excess: int = 0, limit: int = 0) -> list[Advice]:
    """Half of what may go at the peak, or so much as is above a limit, made again or spilled."""
    there = [r.bytes for r in played.rows if r.start <= played.moment < r.end]
    may_go = sum([n for n in there if n >= goes_from(played.peak)])
    largest = max(there, default=0)
    least = sum(there) - may_go + 4 * largest  # what one op may read and write at once
    then = played.peak - excess if excess else max(played.peak - may_go // 2, least)
    if not least <= then < played.peak:
        return []
    bound = limit or then
    size = f"{bound / 2**20:.1f}MiB" if bound >= 1 << 20 else f"{-(-bound >> 10)}KiB"
    text = (
        f"a budget: `skimp run --budget {size}` has the same results, and large "
        "tensors are made again or spilled (`skimp fit` measures how small, and what it costs)"
    )
    return [Advice("budget", text, played.peak - then, then)]


def _smaller_batch(played: Replay, excess: int = 0) -> list[Advice]:
    """What is made for each sample, for half as many of them, or for so many as fit."""
    batch = played.batch
    if batch < 2:
        return []
    fixed = {(r.module, r.bytes) for r in played.rows if r.role not in PASSING}

    def less(row: Row, samples: int) -> Row:
        if row.role not in PASSING or row.bytes % batch:
            return row
        if (row.within, row.bytes) in fixed and row.place.phase != "forward":
            return row  # a parameter's gradient before it is one
        return replace(row, bytes=row.bytes // batch * samples)

    half = batch // 2
    slope = (played.peak - peak([less(r, half) for r in played.rows])[0]) // (batch - half)
    fewer = max(1, batch + -excess // slope) if excess and slope else half
    rows = [less(r, fewer) for r in played.rows]
    samples = "1 sample" if fewer == 1 else f"{fewer} samples"
    text = f"a batch of {samples}, not {batch}: {readable(slope)} less for each sample less"
    return [_advice(played, rows, "batch", text)]


# -- reading the report ----------------------------------------------------------------------------


def _rows(report: Report) -> list[Row]:
    d = report.detail
    found = []
    whose = whose_of(report)
    columns = zip(d.order, d.gone, d.bytes, d.role, d.place, d.module, d.step, d.born, strict=True)
    for order, gone, nbytes, role, place, module, step, born in columns:
        end = math.inf if gone < 0 else float(gone)
        where_made = report.places[place]
        within = whose(where_made.root, where_made.module)
        module = whose(where_made.root, module)
        found.append(
            Row(float(order), end, nbytes, ROLES[role], where_made, module, within, step, born)
        )
    return found


def _backwards(report: Report) -> int:
    """How many backwards the step with the peak has run."""
    begin = max([s.start for s in report.steps if s.first <= report.peak.step], default=0.0)
    end = min([s.start for s in report.steps if s.first > report.peak.step], default=math.inf)
    return sum(m.kind == "backward" and begin <= m.start < end for m in report.marks)


def _batch(report: Report) -> int:
    """How many samples the last forward before the peak was given; other parts of a program
    (validation, a few samples to look at) may give others.
    """
    known = [m for m in report.marks if m.kind == "forward" and m.name.isdigit()]
    before = [m for m in known if m.start <= report.peak.seconds]
    return int((before or known)[-1].name) if known else 0
