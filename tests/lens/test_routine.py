"""Steps like the one before are followed, not looked into: reports are the same to the byte."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import skimp as torch
from skimp import nn
from skimp.lens import Recording, Report, routine
from skimp.nn import functional as F
from skimp.utils.checkpoint import checkpoint

STEPS = 16
ODD = 11  # the step that is another one, where one is


class Model(nn.Module):
    """Modules within modules, a layout that forces a copy, and ops that copy by nature."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.remade = False

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        x = torch.cat([x, x])[:4].t().contiguous().t()
        if self.remade:
            return checkpoint(self.second, x, use_reentrant=False)
        return self.second(x)


def train(odd: Callable[[int, Model, Any], Any] | None = None, **options: Any) -> Report:
    """Some steps, one of which may do something `odd` with the model and its data."""
    torch.manual_seed(0)
    model = Model()
    model.remade = options.pop("remade", False)
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
    other_line, more, other_op, other_graph, evaluated, kept_graph, raised, on_a_thread, other_left,
    profiled,
]  # fmt: skip
OPTIONS = [{}, {"leaks": True}, {"zeroed": True}, {"prefetch": True}, {"remade": True}, {"seen": 9}]


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
