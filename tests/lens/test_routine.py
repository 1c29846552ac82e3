"""Steps like the one before are followed, not looked into: reports are the same to the byte."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import skimp as torch
from skimp import nn
from skimp._engine.memory.ledger import host
from skimp.lens import Recording, Report, routine
from skimp.lens.awaited import Awaited, Events, as_they_came
from skimp.lens.live import BEFORE, Record
from skimp.nn import functional as F
from skimp.utils.checkpoint import checkpoint

STEPS = 16
ODD = 11  # the step that is another one, where one is


class Model(nn.Module):
    """Modules within modules, a layout that forces a copy, and ops that copy by nature."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.rematerialized = False

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        x = torch.cat([x, x])[:4].t().contiguous().t()
        if self.rematerialized:
            return checkpoint(self.second, x, use_reentrant=False)
        return self.second(x)


def train(odd: Callable[[int, Model, Any], Any] | None = None, **options: Any) -> Report:
    """Some steps, one of which may do something `odd` with the model and its data."""
    torch.manual_seed(0)
    model = Model()
    model.rematerialized = options.pop("rematerialized", False)
    optimizer = torch.optim.Adam(model.parameters())
    constant = torch.ones(4, 8)
    kept: list[Any] = []
    with Recording("program") as recording:
        ahead = torch.randn(4, 6)
        for step in range(STEPS):
            x = ahead if options.get("prefetch") else torch.randn(4, 6)
            optimizer.zero_grad(set_to_none=not options.get("zeroed"))
            y = None if odd is None else odd(step, model, x)
            loss = F.mse_loss(model(x) if y is None else y, constant)
            if options.get("prefetch"):
                ahead = torch.randn(4, 6)
            loss.backward()
            if options.get("leaks"):
                kept.append(model(x))
            optimizer.step()
            if step >= options.get("seen", STEPS):
                recording.report()
        followed.append(recording.watch.routine.follows)
        return recording.report()


followed: list[bool] = []


def other_line(step: int, model: Model, x: Any) -> Any:
    """The same bytes and ops, elsewhere."""
    return model(x) if step == ODD else None


def more(step: int, model: Model, x: Any) -> Any:
    """An op more in the middle of a forward, and the highest peak."""
    return model(x) + torch.ones(4000, 4, 8).sum(0) * 0 if step == ODD else None


def other_op(step: int, model: Model, x: Any) -> Any:
    """Another function in the same place."""
    function = torch.sin if step == ODD else torch.cos
    return function(model(x))


def other_graph(step: int, model: Model, x: Any) -> Any:
    """The same forward, and a backward through the other half of it."""
    model.outputs = a, b = model(x) * 2, model(x) * 3
    return a if step == ODD else b


def evaluated(step: int, model: Model, x: Any) -> Any:
    """Evaluation between steps, with more samples."""
    if step == ODD:
        with torch.no_grad():
            model(torch.randn(40, 6))


def kept_graph(step: int, model: Model, x: Any) -> Any:
    """A graph that is thrown away."""
    if step == ODD:
        model(x).exp()


def raised(step: int, model: Model, x: Any) -> Any:
    """An error in the middle of a forward."""
    if step == ODD:
        with pytest.raises(RuntimeError):
            model.second(model.first(x)[:, :3])


def on_a_thread(step: int, model: Model, x: Any) -> Any:
    """An allocation of another thread."""
    if step >= ODD:
        made = threading.Thread(target=torch.ones, args=(3,))
        made.start()
        made.join()


def other_left(step: int, model: Model, x: Any) -> None:
    """Of two of one size, made and freed in the same places, the other one is left."""
    two = [torch.ones(40), torch.ones(40)]
    model.left = two[int(step >= ODD)]
    del two[0]


def profiled(step: int, model: Model, x: Any) -> Any:
    """Somebody else observes for a while."""
    if step == ODD:
        with torch.profiler.profile(profile_memory=True):
            return model(x)
    return None


ODDITIES = [
    other_line, more, other_op, evaluated, kept_graph, raised, on_a_thread, other_left, profiled,
]  # fmt: skip
OPTIONS = [
    {},
    {"leaks": True},
    {"zeroed": True},
    {"prefetch": True},
    {"rematerialized": True},
    {"seen": 9},
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    followed.clear()
    yield
    followed.clear()


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "".join(o) or "plain")
def test_followed_steps_are_reported_as_any(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = both(monkeypatch, lambda: train(**options))
    assert facts(reports[0]) == facts(reports[1])
    assert not followed[1]
    # deferred storages that nobody looks at are not alike in each step
    assert followed[2] or {"seen", "prefetch", "leaks"} & options.keys()


@pytest.mark.parametrize("odd", ODDITIES, ids=lambda f: f.__name__)
def test_a_step_that_is_another_one_is_noticed(
    odd: Callable[[int, Model, Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = both(monkeypatch, lambda: train(odd))
    assert facts(reports[0]) == facts(reports[1])


def test_a_graph_of_the_same_bytes_is_noticed_where_a_node_allocates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its nodes saved is told as it was learned until then."""
    reports = [facts(report) for report in both(monkeypatch, lambda: train(other_graph))]
    apart = [report.pop("detail") for report in reports]
    assert reports[0] == reports[1]
    for rows in zip(*apart, strict=True):
        assert rows[0][:2] == rows[1][:2]
        assert rows[0][:6] == rows[1][:6] or rows[0][4] == ODD


def both(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Report]) -> list[Report]:
    """The reports of a program that is never followed, and of one that is if it can be."""
    run()  # what is computed for the first time
    found = []
    for patience in (1 << 20, routine.PATIENCE):
        monkeypatch.setattr(routine, "PATIENCE", patience)
        found.append(run())
    return found


def facts(report: Report) -> dict[str, Any]:
    """All of a report but times, and how events are numbered."""
    d = report.detail
    places = [report.places[p] for p in d.place]
    born = [
        o if p.file else 0 for o, p in zip(d.order, places, strict=True)
    ]  # 0: before, unordered
    events = sorted({o for o in [*born, *d.gone] if o >= 0})
    rank = {order: i for i, order in enumerate(events)} | {-1: -1}
    rows = zip(born, d.bytes, d.role, d.module, d.step, d.saved, places, strict=True)
    detail = [(rank[r[0]], *r[1:5], r[5] >= 0, r[6]) for r in rows]
    detail.sort(key=lambda row: row[:5])
    bare = [replace(s, start=0, seconds=0) for s in report.steps]
    return {
        "detail": detail,
        # which one of two is freed first may depend on where they lie, with everything deferred
        "gone": sorted([(rank[gone], n) for gone, n in zip(d.gone, d.bytes, strict=True)]),
        "kept": (d.steps, d.kept),
        "peak": replace(report.peak, seconds=0),
        "totals": (report.allocations, report.allocated, report.live, report.unwritten),
        "copies": report.copies,
        "saved": report.saved,
        "steps": bare,
        "growth": report.growth,
        "alive": report.alive,
        "marks": [(m.kind, m.name) for m in report.marks],
        "frames": set(report.frames),
    }


def test_leaving_in_a_backward_knows_the_nodes_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report in the middle of a backward, inside of a checkpoint's second forward too."""

    class Asked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            if active and len(steps) == ODD:
                active[0].report()
            return g * x

    active: list[Recording] = []
    steps: list[None] = []

    def run() -> Report:
        torch.manual_seed(0)
        net, last = nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 6)
        optimizer = torch.optim.SGD([*net.parameters(), *last.parameters()])
        x = torch.randn(4, 6)
        steps.clear()
        with Recording("program") as recording:
            active[:] = [recording]
            for _ in range(STEPS):
                optimizer.zero_grad()
                inner = checkpoint(lambda t: Asked.apply(net(t)), last(x), use_reentrant=True)
                Asked.apply(inner).sum().backward()
                optimizer.step()
                steps.append(None)
            followed.append(recording.watch.routine.follows)
            active.clear()
            return recording.report()

    reports = both(monkeypatch, run)
    always = os.environ.get("SKIMP_DEFER") == "always"
    assert followed[2] or always  # storages that nobody looks at
    found = [facts(report) for report in reports]
    for one in found if always else ():
        del one["gone"]  # which of two is freed first, with no allocation between them
    assert found[0] == found[1]


def test_nothing_is_kept_by_leaving() -> None:
    """The frames that are looked at let go of what their functions let go of."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 600), nn.Tanh(), nn.Linear(600, 6))
    optimizer = torch.optim.SGD(net.parameters())
    x = torch.randn(4, 6)
    before = torch.memory.memory_allocated()
    left: list[int] = []

    def step(number: int) -> None:
        optimizer.zero_grad()
        y = net(x)
        if number == ODD:
            y.register_hook(lambda g: recording.watch.routine.leave())
        y.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        del y
        left.append(torch.memory.memory_allocated() - before)

    gc.disable()
    try:
        with Recording("program") as recording:
            for number in range(STEPS):
                step(number)
    finally:
        gc.enable()
    assert left == [0] * STEPS


def test_an_id_that_is_taken_again_is_another_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Storages come to lie where those of the step before were."""

    def run() -> Report:
        held: list[Any] = []
        with Recording("program") as recording:
            for step in range(STEPS):
                held[:] = [torch.ones(4) for _ in range(8)]
                del held[step % 8 if step < ODD else 3]  # another one of as many bytes is freed
                held.insert(step % 7, torch.ones(9))
                torch.memory.step()
            assert recording.watch.routine.follows == (routine.PATIENCE == 2)
            owners = recording.collector.live.owners
            recording.watch.routine.leave()
            assert {id(t._storage) for t in held} <= owners.keys()
            assert len(owners) == len(held)
            return recording.report()

    reports = both(monkeypatch, run)
    assert facts(reports[0])["steps"] == facts(reports[1])["steps"]
    assert [a.held.bytes for a in reports[0].alive] == [a.held.bytes for a in reports[1].alive]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("many", [2, 128])
def test_a_finalizer_that_allocates_while_a_step_is_told(
    first: bool, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it makes is counted, and so is its end; of many, some lie where what died has lain."""
    made: list[Any] = []
    drain, finish = routine.Routine._drain, routine.Routine._finish

    def allocates(self: routine.Routine) -> None:
        drain(self)
        if self.follows and len(made) < many:
            made.extend([torch.ones(77) for _ in range(many // 2)])  # as a finalizer would

    def allocates_first(self: routine.Routine) -> None:
        if len(made) < many:
            host.told = self._between  # which is the first that `_finish` does
            made.extend([torch.ones(77) for _ in range(many // 2)])
        finish(self)

    if first:
        monkeypatch.setattr(routine.Routine, "_finish", allocates_first)
    else:
        monkeypatch.setattr(routine.Routine, "_drain", allocates)
    net = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters())
    with Recording("program") as recording:
        for _ in range(STEPS):
            optimizer.zero_grad()
            net(torch.ones(3)).sum().backward()
            optimizer.step()
        assert len(made) == many
        report = recording.report()
        assert sum(a.held.bytes for a in report.alive) == report.live
        made.clear()
        assert recording.report().live == report.live - many * 77 * 4


def _eight() -> Awaited:
    record = Record()
    record.site = BEFORE
    return Awaited(8, record)


ONES, TWOS = _eight(), _eight()


@pytest.mark.parametrize(
    ("count", "left", "gone", "numbers", "alive"),
    [
        (2, [1], [5], [0, -1, 1, 0], [1]),  # as it was learned
        (2, [0], [5], [0, -1, 1, 1], [0]),  # the other one is left
        (2, [0, 1], [5], [0, -1, 1], [0, 1]),
        (2, [], [5, 6], [0, -1, 1, 0, 1, -1], []),  # more has gone
        (1, [0], [], [0], [0]),  # in the middle of the step
        (0, [], [6], [-1], []),
    ],
)
def test_events_as_they_came(
    count: int, left: list[int], gone: list[int], numbers: list[int], alive: list[int]
) -> None:
    learned = Events([ONES, None, TWOS, None], [8, -5, 8, -8], [0, -1, 1, 0])
    events = as_they_came(learned, count, left, gone)
    assert events.numbers == numbers
    assert events.left == alive
    assert sorted(events.older) == sorted(gone)
    assert sum(events.bytes) == 8 * len(alive) - sum(gone)


def test_the_order_of_those_that_go_is_that_of_their_bytes() -> None:
    learned = Events([None, None, None], [-8, -5, -8], [-1, -1, -1])
    assert learned.order([5, 8, 8]) == [1, 0, 2]
    assert learned.order([5, 8]) is None
    assert learned.order([5, 8, 7]) is None


def test_batches_that_were_made_before_are_data_in_followed_steps_too() -> None:
    """Each is given to the module for the first time in a step that is followed."""
    net = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(net.parameters())
    with Recording("program") as recording:
        batches = [torch.randn(4, 6) for _ in range(STEPS)]
        for x in [batches[0]] * STEPS + batches:
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
        assert recording.watch.routine.follows or os.environ.get("SKIMP_DEFER") == "always"
        roles = recording.report().peak.by_role()
    assert roles["data"] == STEPS * 4 * 6 * 4
