"""What grows from step to step, and the line of the program that holds it."""

from __future__ import annotations

from typing import Any

import pytest

import skimp as torch
from skimp import lens, memory, nn
from skimp.lens import Recording
from skimp.lens.data import Report


class Log:
    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.cache: dict[int, Any] = {}


def train(steps: int, keep: Any) -> Report:
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with Recording() as recording:
        for i in range(steps):
            optimizer.zero_grad()
            h = net(torch.randn(32, 64))
            loss = h.pow(2).mean()
            loss.backward()
            optimizer.step()
            keep(i, h, loss)
        return recording.report()


def test_a_list_of_graphs_is_named_with_its_line() -> None:
    log = Log()

    def keep(i: int, h: Any, loss: Any) -> None:
        log.rows.append(torch.tanh(h * 2).sum())

    report = train(12, keep)
    growth = report.growth
    assert growth is not None
    assert growth.text == "log.rows.append(torch.tanh(h * 2).sum())"
    assert growth.line.endswith("test_growth.py:39")
    assert growth.keeps == "10 graphs"
    assert "log.rows[" in growth.chain
    assert "saved by TanhBackward0" in growth.chain
    exact = (report.steps[9].end - report.steps[4].end) / 5
    assert growth.bytes_per_step == pytest.approx(exact, rel=0.1)
    assert "keeps 10 graphs" in lens.to_text(report, ())


def test_a_cache_of_tensors_is_named_with_its_line() -> None:
    log = Log()

    def keep(i: int, h: Any, loss: Any) -> None:
        log.cache[i] = h.detach() + 1

    growth = train(12, keep).growth
    assert growth is not None
    assert growth.text == "log.cache[i] = h.detach() + 1"
    assert growth.keeps == "10 tensors"
    assert growth.bytes_per_step == pytest.approx(32 * 4, rel=0.1)


def means(losses: Any) -> Any:
    for k in range(len(losses)):
        losses[k] = 0.5  # of the same name, and of nobody's interest
    return losses


def test_the_line_is_of_the_function_that_has_the_list() -> None:
    losses: list[Any] = []
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with Recording() as recording:
        for _ in range(12):
            optimizer.zero_grad()
            loss = net(torch.ones(2, 4)).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        means(torch.zeros(2))
        growth = recording.report().growth
    assert growth is not None
    assert growth.text == "losses.append(loss)"


def test_a_program_that_keeps_nothing_does_not_grow() -> None:
    report = train(12, lambda i, h, loss: None)
    assert report.growth is None
    assert "no growth" in lens.to_text(report, ())


def test_steps_that_the_program_tells_are_the_only_ones() -> None:
    with Recording() as recording:
        for _ in range(5):
            torch.ones(8).sum()
            memory.step()
        report = recording.report()
    assert [s.last for s in report.steps] == [0, 1, 2, 3, 4, 5]
    memory.step()  # nobody records: nothing happens


def test_what_is_alive_at_the_end_has_its_holder() -> None:
    with Recording() as recording:
        kept = {"a": torch.ones(1000)}
        report = recording.report()
    assert [(a.held.bytes, a.chain) for a in report.alive] == [
        (4000, "kept['a'] in test_what_is_alive_at_the_end_has_its_holder()")
    ]
    assert kept


def test_what_a_budget_had_back_is_nothing_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter that came back in some step looks as if that step had left it."""
    monkeypatch.setattr("skimp.lens.recording.look", lambda *_: "a parameter")
    monkeypatch.setattr("skimp.lens.recording.growth", lambda seen, _: seen)
    seen = []
    for size in ("1GiB", f"{memory.memory_allocated() + (2 << 20)}"):
        with memory.budget(size), Recording() as recording:
            kept = [torch.randn(1 << 18) for _ in range(3)]
            seen.append(recording.report().growth)
            kept.clear()
    assert seen == ["a parameter", None]
