"""What a recording knows of a program's allocations: roles, modules, phases, steps, stacks."""

from __future__ import annotations

import contextlib
import gc
import re
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import skimp as torch
from skimp import lens, nn
from skimp._engine.autograd import watched
from skimp._engine.memory import call_site
from skimp._engine.memory.ledger import host, materialize_pending
from skimp._engine.memory.storage import Storage
from skimp.lens import Recording, modules, stacks, steps
from skimp.lens.data import PHASES, ROLES, Report
from skimp.nn import functional as F
from skimp.nn.modules.hooks import Hooked
from tests.lens.blocks import Block


class Net(nn.Module):
    def __init__(self, d: int = 64) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(d), Block(d)])
        self.register_buffer("scale", torch.ones(d))
        self.head = nn.Linear(d, 10)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head((x * self.scale).mean(1))


def train(steps: int = 3, keep: list[Any] | None = None) -> tuple[Any, Any]:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        x, y = torch.randn(8, 96, 64), torch.randint(0, 10, (8,))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        if keep is not None:
            keep.append(loss)
    return net, optimizer


class Figures(NamedTuple):
    """What the tensors say themselves."""

    weights: int
    state: int
    scale: int
    names: set[str]


Recorded = tuple[Report, Figures]


@pytest.fixture
def recorded() -> Recorded:
    gc.collect()
    with Recording("train") as recording:
        net, optimizer = train()
        materialize_pending()
        report = recording.report()
        assert report.live == host.allocated
        state = sum(t.nbytes for s in optimizer.state.values() for t in s.values())
        weights = sum(p.nbytes for p in net.parameters())
        names = {name for name, _ in net.named_parameters()}
    return report, Figures(weights, state, net.scale.nbytes, names)


def test_roles_add_up_to_the_tensors_own_bytes(recorded: Recorded) -> None:
    report, figures = recorded
    roles = report.peak.by_role()
    assert roles["parameter"] == figures.weights
    assert roles.get("gradient", 0) <= figures.weights  # none, where backward has just begun
    assert roles["optimizer state"] == figures.state
    assert roles["buffer"] == figures.scale
    assert roles["data"] == 8 * 96 * 64 * 4
    assert sum(roles.values()) == report.peak.bytes
    assert set(roles) <= set(ROLES)


def test_modules_have_the_paths_of_the_program(recorded: Recorded) -> None:
    report, figures = recorded
    modules = {h.module for h in report.peak.held if h.place.line}
    assert {"blocks.0.mlp.0", "blocks.1.mlp.2", "blocks.1.norm", "head"} <= modules
    named = {h.name for h in report.peak.held if h.role in ("parameter", "gradient")}
    assert named == figures.names
    assert {p.root for p in report.places} == {"", "Net"}


def test_compiled_modules_have_their_own_names_wherever_they_stand() -> None:
    """What they hold and what they do stands at one place."""
    found = []
    for compiled in (lambda module: module, torch.compile):
        gc.collect()
        with Recording() as recording:
            net = nn.Sequential(compiled(Block(8)), nn.Linear(8, 2))
            net(torch.ones(3, 8)).sum().backward()
            found.append({(h.module, h.role) for h in recording.report().peak.held})
        del net
    assert found[0] == found[1]
    assert {m for m, _ in found[0]} >= {"0.mlp.0", "0.norm", "1"}


def test_ops_have_the_names_that_the_program_called(recorded: Recorded) -> None:
    ops = {p.op for p in recorded[0].places}
    assert {"linear", "gelu", "layer_norm", "randn", "cross_entropy"} <= ops
    assert not ops & {"__call__", "wrapper", "_operator", "_conv", "f", "run", ""}


def test_backward_stands_at_the_forward_line_and_module(recorded: Recorded) -> None:
    report, _ = recorded
    backward = [p for p in report.places if p.phase == "backward" and p.op == "AddmmBackward0"]
    assert {p.module for p in backward} >= {"blocks.0.mlp.0", "blocks.1.mlp.2", "head"}
    lines = {report.frames[p.stack[-1]].function for p in backward if p.module != "head"}
    assert lines == {"Block.forward"}
    whole = [report.frames[i].function for i in backward[0].stack]
    assert "train" in whole  # the stack of forward, not of the call of backward


def test_stacks_are_the_programs_own_lines(recorded: Recorded) -> None:
    report, _ = recorded
    place = next(p for p in report.places if p.op == "gelu" and p.module == "blocks.1.mlp.1")
    frames = [report.frames[i] for i in place.stack]
    assert [f.function for f in frames[-3:]] == ["train", "Net.forward", "Block.forward"]
    assert (frames[-1].file, frames[-1].line) == (place.file, place.line)
    assert not any("/skimp/" in f.file and "/tests/" not in f.file for f in report.frames)


def test_phases_and_steps(recorded: Recorded) -> None:
    report, _ = recorded
    assert {p.phase for p in report.places} == set(PHASES)
    assert [(s.first, s.last) for s in report.steps] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert report.peak.bytes == max(s.peak for s in report.steps)
    assert {m.kind for m in report.marks} == {"forward", "backward", "optimizer"}


def test_an_optimizers_step_that_fails_is_no_step_and_its_phase_ends() -> None:
    net = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with Recording() as recording:
        for i in range(4):
            net(torch.ones(2, 8)).sum().backward()
            with contextlib.suppress(ZeroDivisionError):
                optimizer.step(lambda i=i: 1 / (i - 1))
        report = recording.report()
    ended = [m for m in report.marks if m.kind == "optimizer"]
    assert len(ended) == 4
    assert report.steps[-1].last == 3  # three of the four ended one, and then came the end
    assert {p.phase for p in report.places if p.op == "linear"} == {"forward"}


def test_what_nodes_saved_is_so_until_they_have_run() -> None:
    x = torch.randn(64, 64)
    w = torch.randn(64, 64, requires_grad=True)
    with Recording() as recording:
        y = torch.tanh(x @ w)
        total = y.sum()
        assert y.data_ptr()  # its bytes are there in every mode
        before = recording.report()
        total.backward()
        del w, x
        after = lens.report.make("", recording.collector)
    index = ROLES.index("saved for backward")
    assert before.detail.role.count(index) == 2  # x, and tanh's result
    pairs = zip(after.detail.role, after.detail.saved, strict=True)
    assert [when >= 0 for role, when in pairs if role == index] == [True, True]
    assert y.shape == (64, 64)


def test_the_detail_has_every_allocation_and_replays_to_the_peak(recorded: Recorded) -> None:
    report, _ = recorded
    d = report.detail
    assert len(d.bytes) >= report.allocations  # a block that changes hands is a second row
    events = sorted(
        [(o, n) for o, n in zip(d.order, d.bytes, strict=True)]
        + [(g, -n) for g, n in zip(d.gone, d.bytes, strict=True) if g >= 0]
    )
    total = peak = 0
    for _, n in events:
        total += n
        peak = max(peak, total)
    assert (peak, total) == (report.peak.bytes, report.live)


def test_nothing_stays_when_a_recording_ends() -> None:
    call, saved = Hooked.__call__, Storage.saved
    with Recording():
        assert Hooked.__call__ is not call
        train(1)
    assert Hooked.__call__ is call
    assert Storage.saved is saved
    assert call_site.finder is None
    assert (watched.ON, watched.OBSERVERS, host.watched) == ([], [], False)


def test_a_peak_is_in_a_step_or_after_the_last() -> None:
    w = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([w], 0.1)
    with Recording() as recording:
        for _ in range(2):
            w.sum().backward()
            optimizer.step()
        first = lens.to_text(recording.report(), [])
        large = torch.ones(1000)
        last = lens.to_text(recording.report(), [])
    assert re.search(r" s in step 1's backward ", first)
    assert re.search(r" s, after step 2 at .*test_recording\.py:\d+ \(ones\)", last)
    assert large.shape == (1000,)


def test_a_program_that_steps_no_optimizer_is_told_how_to_say_where_steps_end() -> None:
    w = nn.Parameter(torch.zeros(4))
    with Recording() as recording:
        for _ in range(2):
            w.sum().backward()
            w.data.add_(w.grad, alpha=-0.1)
    text = lens.to_text(recording.report(), [])
    assert "not known: no optimizer stepped; skimp.memory.step() says where a step ends" in text


def test_one_recording_at_a_time() -> None:
    with Recording(), pytest.raises(RuntimeError, match="recorded already"), Recording():
        pass


def test_a_report_comes_back_from_its_json(recorded: Recorded) -> None:
    report = recorded[0]
    assert lens.from_json(lens.to_json(report)) == report


def test_memory_is_bounded_over_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a program does in each step, what is kept of it does not grow with their number."""
    monkeypatch.setattr(steps, "ROWS", 16)
    monkeypatch.setattr(stacks, "_MARKS", 64)
    monkeypatch.setattr(modules, "_FEW", 8)
    w = nn.Parameter(torch.ones(4, 6))

    def step() -> None:
        net = nn.Sequential(nn.Tanh(), nn.Dropout(0.1))  # modules and optimizers of one step
        optimizer = torch.optim.Adam([w])
        x = torch.ones(3, 4)
        loss = F.mse_loss(net(x @ w).t().contiguous(), torch.cat([w, w])[:6, :3])
        loss.backward()
        optimizer.step()

    with Recording() as recording:
        kept = []
        for _ in range(3):
            for _ in range(32):
                step()
            gc.collect()
            kept.append(objects(recording.collector, recording.watch))
        report = recording.report()
    assert kept[2] <= kept[1] + 100  # tables that are cut when they are full; 12 a step grew here
    assert len(report.steps) <= 17
    assert report.steps[0].first == 0
    assert all(a.last + 1 == b.first for a, b in zip(report.steps, report.steps[1:], strict=False))
    assert report.steps[-1].last == 96
    assert report.detail.kept == (report.peak.step, *range(92, 97))  # of the others figures alone
    w.grad = None
    assert {root for root in (held.root for held in report.peak.held) if root} <= {"Sequential"}


def objects(*roots: Any) -> int:
    """How many objects are reachable from these, without code and classes."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen.add(id(one))
        waiting += gc.get_referents(one)
    return len(seen)


_SHARED = (type, types.ModuleType, types.FunctionType, types.CodeType, types.BuiltinFunctionType)


def _each(n: int) -> Iterator[Any]:
    for _ in range(n):
        yield torch.ones(100)


def _one(batches: Iterator[Any]) -> Any:
    return next(batches)


def _other(batches: Iterator[Any]) -> Any:
    return next(batches)


def _stacks(report: Report) -> set[tuple[str, ...]]:
    found = {
        tuple([report.frames[i].function for i in h.place.stack])
        for h in report.peak.held
        if h.place.line
    }
    return {names[names.index("test_a_stack_is_that_of_its_moment") + 1 :] for names in found}


def test_a_stack_is_that_of_its_moment() -> None:
    """What called a function is noted in its frame: a generator's caller changes, and a frame may
    run longer than a recording.
    """
    batches = _each(4)
    for _ in range(2):
        with Recording() as recording:
            kept = [_one(batches), _other(batches), torch.ones(50)]
            report = recording.report()
        del kept
        assert _stacks(report) == {("_one", "_each"), ("_other", "_each"), ()}


def test_a_history_in_lists_is_optimizer_state_and_a_decorator_is_no_op() -> None:
    """LBFGS keeps lists of tensors, and its step is decorated with `no_grad`."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4, history_size=64)
    x, y = torch.randn(8, 16), torch.randn(8, 1)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        return loss

    with Recording() as recording:
        for _ in range(3):
            optimizer.step(closure)
        report = recording.report()
    (state,) = [s for p, s in optimizer.state.items()]
    kept = [t for value in state.values() for t in (value if isinstance(value, list) else [value])]
    storages = {id(t._storage): t._storage.nbytes for t in kept if isinstance(t, torch.Tensor)}
    alive = sum(a.held.bytes for a in report.alive if a.held.role == "optimizer state")
    assert alive == sum(storages.values())
    assert "run" not in {place.op for place in report.places}
    assert "each of the last 3 steps ended with more" in str(recording)


def test_what_has_no_bytes_of_its_own_is_passed_over() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, by: Any, x: Any) -> Any:
            ctx.save_for_backward(by)
            return torch.sparse.mm(by, x)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return None, torch.sparse.mm(ctx.saved_tensors[0], grads[0])

    layer = nn.Linear(2, 2)
    layer.register_buffer("by", torch.eye(2).mul(2).to_sparse())
    weights = {"weight": torch.stack([layer.weight.detach()] * 3)}
    x = torch.ones(3, 2)
    keep, optimizer = [layer.by], torch.optim.SGD(layer.parameters(), 0.1)

    def sample(weights: Any, x: Any) -> Any:
        keep.append(x)
        torch.memory.holders(layer.weight)
        return torch.func.functional_call(layer, weights, (x,))

    def step() -> list[Any]:
        found = [torch.vmap(layer)(x), torch.vmap(sample)(weights, x)]
        with torch.autograd.graph.saved_tensors_hooks(
            torch.Tensor.to_sparse, lambda t: t.to_dense()
        ):
            found.append(layer.weight * layer.weight)
        found.append(Doubled.apply(layer.by, layer(x).mT))
        assert torch.memory.saved(*found)
        sum([one.sum() for one in found]).backward()
        found.append(layer.weight.grad.clone())
        optimizer.zero_grad()
        return [one.detach() for one in found]

    expected = step()
    with Recording():
        for _ in range(3):
            for a, b in zip(step(), expected, strict=True):
                assert torch.equal(a, b)
