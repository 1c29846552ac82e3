"""Advice is computed by replay: each change is made, and the peak is the one that was told."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any

import pytest

import skimp as torch
from skimp import lens, memory, nn
from skimp._engine.memory.ledger import host
from skimp.config import config
from skimp.lens import Recording
from skimp.lens.data import Advice, Report
from skimp.nn import functional as F
from skimp.utils.checkpoint import checkpoint
from tests.lens.blocks import Block
from tests.support.running import default_mode

WITHIN = 0.02
Step = Callable[[], None]


class Again(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False)


class Net(nn.Module):
    def __init__(self, d: int = 64, depth: int = 5) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(d) for _ in range(depth)])
        self.head = nn.Linear(d, 10)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def transformer(batch: int = 8, early: bool = False, again: bool = False) -> Step:
    net = Net()
    if again:
        net.blocks = nn.ModuleList([Again(block) for block in net.blocks])
    optimizer = torch.optim.Adam(net.parameters())

    def step() -> None:
        x, y = torch.randn(batch, 64, 64), torch.randint(0, 10, (batch,))
        if early:
            optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        if not early:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def wide(inside: bool) -> Step:
    net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)])
    parameters = list(net.parameters())
    optimizers = {p: torch.optim.SGD([p], 0.1) for p in parameters}
    whole = torch.optim.SGD(parameters, 0.1)

    def use(p: Any) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    if inside:
        for p in parameters:
            p.register_post_accumulate_grad_hook(use)

    def step() -> None:
        net(torch.randn(16, 256)).pow(2).mean().backward()
        if not inside:
            whole.step()
            whole.zero_grad()
        memory.step()

    return step


def conv(batch: int) -> Step:
    body = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    net = nn.Sequential(*body, nn.Flatten(), nn.Linear(16 * 15 * 15, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def step() -> None:
        x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


class Inverted(nn.Module):
    """Ends with a sum, as MobileNetV2's blocks."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.wide = nn.Sequential(nn.Conv2d(d, 4 * d, 1), nn.BatchNorm2d(4 * d))
        self.deep = nn.Sequential(nn.Conv2d(4 * d, 4 * d, 3, 1, 1, 1, d), nn.BatchNorm2d(4 * d))
        self.narrow = nn.Sequential(nn.Conv2d(4 * d, d, 1), nn.BatchNorm2d(d))

    def forward(self, x: Any) -> Any:
        return x + self.narrow(F.silu(self.deep(F.relu(self.wide(x)))))


class Residual(nn.Module):
    """Ends with an activation that is made again of what both branches keep, as RegNet's."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(d, d, 3, padding=1), nn.BatchNorm2d(d), nn.ReLU(True))
        self.end = nn.Sequential(nn.Conv2d(d, d, 3, padding=1), nn.BatchNorm2d(d))
        self.side = nn.Sequential(nn.Conv2d(d, d, 1), nn.BatchNorm2d(d))

    def forward(self, x: Any) -> Any:
        out = self.end(self.body(x))
        out += self.side(x)
        return F.relu(out)


class Norms(nn.Module):
    """Ends with a convolution that writes a shortcut into its result, as pre-activation nets."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(4, d), nn.BatchNorm2d(d)
        self.conv1 = nn.Conv2d(d, d, 3, padding=1)
        self.conv2 = nn.Conv2d(d, d, 3, padding=1)

    def forward(self, x: Any) -> Any:
        out = self.conv1(F.relu(self.first(x)))
        out = self.conv2(F.relu(self.second(out)))
        out += x
        return out


def image_net(block: type[nn.Module], again: bool) -> Step:
    blocks = [block(16) for _ in range(4)]
    if again:
        blocks = [Again(b) for b in blocks]
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    net = nn.Sequential(stem, nn.Sequential(*blocks), nn.AvgPool2d(24), nn.Flatten())
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

    def step() -> None:
        x, y = torch.randn(16, 3, 24, 24), torch.randint(0, 10, (16,))
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


def square(batch: int) -> Step:
    """With batches of 256, results have as many bytes as weights, and one gradient of a layer's
    input is taken for one of its weight.
    """
    layers = [m for _ in range(16) for m in (nn.Linear(256, 256), nn.Tanh())]
    net = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        net(torch.randn(batch, 256)).pow(2).mean().backward()
        optimizer.step()

    return step


def lstm(batch: int) -> Step:
    net = nn.LSTM(32, 64, 2, batch_first=True)
    optimizer = torch.optim.Adam(net.parameters())

    def step() -> None:
        optimizer.zero_grad()
        net(torch.randn(batch, 24, 32))[0].pow(2).mean().backward()
        optimizer.step()

    return step


def evaluation(inplace: bool) -> Step:
    net = nn.Sequential(nn.Linear(32, 256), nn.LeakyReLU(0.1, inplace), nn.Linear(256, 8))

    def step() -> None:
        with torch.no_grad():
            net(torch.randn(128, 32))
        memory.step()

    return step


class Loop:
    """Keeps what a training loop's variables keep, or lets go of it when a step is over."""

    def __init__(self, drop: bool) -> None:
        self.net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2048))
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
        self.drop = drop
        self.out: Any = None

    def __call__(self) -> None:
        out = self.net(torch.randn(128, 64))
        loss = out.pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.out = None if self.drop else out  # for a log that only wants the last one


def report_of(step: Step, steps: int = 3) -> Report:
    gc.collect()
    with Recording() as recording:
        for _ in range(steps):
            step()
        return recording.report()


def told(step: Step, kind: str) -> Advice:
    found = [a for a in report_of(step).advice if a.kind == kind]
    assert found, f"no advice of the kind {kind!r}"
    return found[0]


CHANGES: dict[str, tuple[str, Callable[[], Step], Callable[[], Step]]] = {
    "zero grad": ("zero grad", transformer, lambda: transformer(early=True)),
    "checkpoint": ("checkpoint", lambda: transformer(16), lambda: transformer(16, again=True)),
    "checkpoint at a small batch": ("checkpoint", transformer, lambda: transformer(again=True)),
    "half a transformer's batch": ("batch", lambda: transformer(16), transformer),
    "optimizer in backward": ("optimizer in backward", lambda: wide(False), lambda: wide(True)),
    "half a convolution's batch": ("batch", lambda: conv(32), lambda: conv(16)),
    "half a recurrence's batch": ("batch", lambda: lstm(64), lambda: lstm(32)),
    "half a batch as large as weights": ("batch", lambda: square(256), lambda: square(128)),
    "drop": ("drop", lambda: Loop(False), lambda: Loop(True)),
    "in place": ("in place", lambda: evaluation(False), lambda: evaluation(True)),
}


# With everything deferred, activations write over their inputs unasked.
DEFAULT = ("in place",)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=default_mode if n in DEFAULT else ()) for n in CHANGES]
)
def test_the_change_gives_the_peak_that_was_told(name: str) -> None:
    kind, before, after = CHANGES[name]
    advice = told(before(), kind)
    measured = report_of(after()).peak.bytes
    assert measured == pytest.approx(advice.peak, rel=WITHIN)
    assert advice.saves > 0


@default_mode  # activations are made again there
@pytest.mark.parametrize(("block", "within"), [(Inverted, 0.08), (Residual, WITHIN), (Norms, 0.14)])
def test_checkpoints_of_blocks_with_norms_give_the_peak_that_was_told(
    block: type[nn.Module], within: float
) -> None:
    """To one image of 8 to 16 where a block's second forward needs as much as its backward: what
    forward has at once there is told by when its ops began, not by when each reader was done."""
    before = report_of(image_net(block, False))
    advice = next(a for a in before.advice if a.kind == "checkpoint")
    assert advice.modules == tuple([f"1.{i}" for i in range(4)])
    after = report_of(image_net(block, True))
    assert after.peak.bytes == pytest.approx(advice.peak, rel=within)
    assert advice.saves > 0.2 * before.peak.bytes


def test_a_step_with_several_backwards_is_not_told_to_step_inside_of_them() -> None:
    """Each would be a step of the optimizer, with a part of the gradient."""
    net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(6)])
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def kinds(pieces: int) -> list[str]:
        def step() -> None:
            for _ in range(pieces):
                net(torch.randn(16, 256)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return [a.kind for a in report_of(step).advice]

    assert "optimizer in backward" in kinds(1)
    assert "optimizer in backward" not in kinds(2)


class Judge(Net):
    """Has modules of the same names."""


def two_nets(again: bool) -> Step:
    net, judge = Net(), Judge(depth=2)
    if again:
        net.blocks = nn.ModuleList([Again(block) for block in net.blocks])
    optimizer = torch.optim.Adam([*net.parameters(), *judge.parameters()])

    def step() -> None:
        x, y = torch.randn(16, 64, 64), torch.randint(0, 10, (16,))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        del x
        (loss + judge(torch.randn(4, 64, 64)).mean()).backward()
        optimizer.step()

    return step


def test_checkpoints_in_one_of_two_nets_are_those_of_that_net() -> None:
    found = [a for a in report_of(two_nets(False)).advice if a.kind == "checkpoint"]
    advice = next(a for a in found if a.modules[0] == "Net.blocks.0")
    assert advice.modules == tuple([f"Net.blocks.{i}" for i in range(5)])
    assert report_of(two_nets(True)).peak.bytes == pytest.approx(advice.peak, rel=WITHIN)


def test_single_layers_are_not_told_to_be_checkpointed() -> None:
    """They would keep their inputs, which is what they keep anyway."""
    layers = [m for _ in range(4) for m in (nn.Linear(256, 256), nn.LayerNorm(256), nn.Tanh())]
    net = nn.Sequential(nn.Sequential(*layers))

    def step() -> None:
        net(torch.randn(1024, 256)).sum().backward()
        memory.step()

    assert "checkpoint" not in [a.kind for a in report_of(step).advice]


def test_what_writes_over_its_input_anyway_is_not_told_to() -> None:
    with config.using(defer="always"):
        report = report_of(evaluation(False))
        assert report.peak.bytes == report_of(evaluation(True)).peak.bytes
    assert "in place" not in [a.kind for a in report.advice]


def deep(rows: int = 1024, width: int = 128) -> Step:
    layers = [m for _ in range(6) for m in (nn.Linear(width, width), nn.Tanh())]
    net = nn.Sequential(*layers)

    def step() -> None:
        net(torch.randn(rows, width)).sum().backward()
        memory.step()

    return step


def test_the_budget_that_was_told_is_what_is_held() -> None:
    step = deep()
    advice = told(step, "budget")
    assert f"--budget {advice.peak / 2**20:.1f}MiB" in advice.text
    with memory.budget(advice.peak):
        held = report_of(step)
        assert held.peak.bytes == pytest.approx(advice.peak, rel=WITHIN)
        assert "budget" not in [a.kind for a in held.advice]  # there is one


def test_a_small_budget_is_told_as_a_size_that_is_no_nought() -> None:
    advice = told(deep(128, 32), "budget")
    assert advice.peak < 1 << 20
    assert f"--budget {-(-advice.peak // 1024)}KiB" in advice.text


def test_a_budget_that_takes_bytes_away_leaves_no_advice_and_any_other_leaves_it() -> None:
    free = report_of(transformer())
    with memory.budget(free.peak.bytes * 2):
        same = report_of(transformer())
    saves = {a.kind: a.saves for a in free.advice if a.kind != "budget"}
    assert {a.kind: a.saves for a in same.advice} == pytest.approx(saves, rel=WITHIN)
    with memory.budget(free.peak.bytes * 7 // 10):
        held = report_of(transformer())
    assert held.budget is not None
    assert held.budget.evictions
    assert held.advice == ()
    assert "the budget decides the peak" in lens.to_text(held, ["advice"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (deep, r"`skimp run --budget \d\.\dMiB`"),
        (lambda: conv(32), r"a batch of \d+ samples, not 32"),
    ],
)
def test_a_refusal_within_the_first_step_names_what_fits(
    make: Callable[[], Step], words: str
) -> None:
    step = make()
    said = ""
    with Recording():
        memory.set_limit(memory.memory_allocated() + (5 << 19))
        try:
            step()
        except torch.OutOfMemoryError as error:
            said = str(error)
        finally:
            memory.set_limit(None)
    assert re.search(f"It would fit with .* less at the peak: .*{words}", said)


def test_a_batch_is_that_of_the_forward_with_the_peak() -> None:
    net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 4))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with Recording() as recording:
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(512, 64)).sum().backward()
            optimizer.step()
        with torch.no_grad():
            net[2](torch.randn(6, 256))  # a few samples to look at
    words = [a.text for a in recording.report().advice if a.kind == "batch"]
    assert words
    assert words[0].startswith("a batch of 256 samples, not 512: ")


def test_a_batch_is_the_models_and_not_the_losss() -> None:
    net, loss_of = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 8)), nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with Recording() as recording:
        for _ in range(3):
            optimizer.zero_grad()
            out = net(torch.randn(32, 20, 16))
            loss_of(out.reshape(-1, 8), torch.zeros(640, 8)).backward()
            optimizer.step()
    words = [a.text for a in recording.report().advice if a.kind == "batch"]
    assert words
    assert words[0].startswith("a batch of 16 samples, not 32: ")


def test_advice_has_its_words_and_numbers() -> None:
    report = report_of(transformer())
    kinds = {a.kind: a for a in report.advice}
    assert {"checkpoint", "batch"} <= set(kinds)
    assert kinds["checkpoint"].modules == tuple([f"blocks.{i}" for i in range(5)])
    assert kinds["checkpoint"].seconds > 0
    assert all(a.peak + a.saves == report.peak.bytes for a in report.advice)
    order = [a.saves for a in report.advice]
    assert order == sorted(order, reverse=True)
    assert "advice" in lens.to_text(report, ())


def test_advice_is_computed_from_a_file_as_well() -> None:
    report = lens.from_json(lens.to_json(report_of(transformer())))
    assert lens.replay.advise(report) == report.advice
    assert lens.replay.Replay(report).peak == report.peak.bytes


def test_a_program_without_steps_gets_no_advice_of_them() -> None:
    with Recording() as recording:
        torch.ones(100).sum()
        assert recording.report().advice == ()


def test_a_refusal_names_the_cheapest_advice_that_fits() -> None:
    step = transformer()
    with Recording():
        for _ in range(2):
            step()
        top = memory.max_memory_allocated()
        memory.set_limit(memory.memory_allocated() + 1000)
        try:
            with pytest.raises(torch.OutOfMemoryError) as caught:
                torch.ones(2000)
        finally:
            memory.set_limit(None)
        assert "It would fit with" in str(caught.value)
        assert any(kind in str(caught.value) for kind in ("zero_grad()", "checkpoint each"))
        assert top > 0
    del step


def test_a_refusal_for_what_blocks_are_rounded_to_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tensors' own bytes would fit: their blocks, rounded, do not."""
    rounded = torch.ones(1_000_003)
    asked: list[int] = []
    monkeypatch.setattr(host, "adviser", lambda excess: str(asked.append(excess) or ""))
    fits = memory.memory_allocated() + 4_000_012
    assert torch.cuda.memory_reserved() + 4_000_012 > fits
    memory.set_limit(fits)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(1_000_003)
    finally:
        memory.set_limit(None)
    torch.cuda.empty_cache()  # what others left there is no part of it
    of_one = torch.cuda.memory_reserved() - memory.memory_allocated()
    assert asked == [2 * of_one]
    del rounded
