"""The lens on PyTorch itself: totals are its profiler's, roles are skimp's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from skimp.lens import Report, load
from tests.support.running import Done, default_mode, skimp, start, write

pytestmark = default_mode  # other processes, in which deferring changes nothing of this

TRAIN = """
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.wide, self.back = nn.Linear(n, 4 * n), nn.Linear(4 * n, n)

        def forward(self, x):
            return x + self.back(F.gelu(self.wide(x)))

    torch.manual_seed(0)
    net = nn.Sequential(Block(32), Block(32))
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(3):
        x = torch.randn(64, 32)
        loss = (net(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.4f}")
"""
CONV = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    features = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
    net = nn.Sequential(*features, nn.Linear(512, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(torch.randn(4, 3, 8, 8)), torch.arange(4))
        loss.backward()
        optimizer.step()
"""
LSTM = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.LSTM(16, 32, batch_first=True)
    head = nn.Linear(32, 5)
    optimizer = torch.optim.AdamW([*net.parameters(), *head.parameters()])
    for step in range(2):
        out, _ = net(torch.randn(8, 12, 16))
        loss = head(out).logsumexp(-1).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""

# All that PyTorch's own profiler has to say, without any of our hooks
PROFILE = """
    import json, runpy, sys
    import torch
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
        runpy.run_path(sys.argv[1], run_name="__main__")
    found = []
    waiting = list(p.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag.name == "Allocation":
            found.append((event.start_time_ns, event.extra_fields.alloc_size))
    found.sort(key=lambda one: one[0])
    made = [n for _, n in found if n > 0]
    now = peak = 0
    for _, n in found:
        now += n
        peak = max(peak, now)
    print(json.dumps([len(made), sum(made), peak]))
"""


def recorded(folder: Path, script: str, engine: str) -> Report:
    path = folder / f"{engine}.json"
    done = skimp("run", "--engine", engine, "--report", str(path), script, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # PyTorch's profiler keeps quiet
    return load(path)


@pytest.mark.parametrize("program", [TRAIN, CONV, LSTM], ids=["mlp", "conv", "lstm"])
def test_totals_are_those_of_pytorch_s_profiler(tmp_path: Path, program: str) -> None:
    script = write(tmp_path, program)
    report = recorded(tmp_path, script, "torch")
    profiled = start([sys.executable, write(tmp_path, PROFILE, "profiled.py"), script], tmp_path)
    made, total, peak = json.loads(profiled.stdout.splitlines()[-1])
    assert (report.allocations, report.allocated, report.peak.bytes) == (made, total, peak)
    assert sum(held.bytes for held in report.peak.held) == peak


def test_roles_are_those_of_skimp(tmp_path: Path) -> None:
    script = write(tmp_path, TRAIN)
    mine, theirs = (recorded(tmp_path, script, engine) for engine in ("skimp", "torch"))
    assert theirs.engine == "torch"
    ours, pytorch = mine.peak.by_role(), theirs.peak.by_role()
    del ours["temporary"], pytorch["temporary"]  # PyTorch's own ops have some inside
    assert pytorch == ours
    assert {(h.role, h.module, h.name) for h in theirs.peak.held if h.name} == {
        (h.role, h.module, h.name) for h in mine.peak.held if h.name
    }


def test_places_name_line_op_module_and_phase(tmp_path: Path) -> None:
    report = recorded(tmp_path, write(tmp_path, TRAIN), "torch")
    places = {(p.line, p.op, p.module, p.phase) for p in report.places}
    assert (12, "gelu", "0", "forward") in places
    assert (12, "linear", "1.back", "forward") in places
    assert (12, "AddmmBackward0", "1.back", "backward") in places
    assert (18, "randn", "", "other") in places
    assert (19, "mean", "", "forward") in places
    assert (22, "zeros_like", "", "optimizer") in places
    gelu = next(p for p in report.places if p.op == "gelu")
    assert [report.frames[i].line for i in gelu.stack] == [19, 12]
    assert [mark.kind for mark in report.marks].count("backward") == 3
    assert [step.first for step in report.steps] == [0, 1, 2, 3]


def test_a_long_program_is_counted_in_parts(tmp_path: Path) -> None:
    """More facts than one profile takes: the totals are the same."""
    script = write(tmp_path, TRAIN.replace("range(3)", "range(60)"))
    code = """
        import sys
        from skimp.lens.pytorch import recording
        recording.FACTS = int(sys.argv.pop(1))
        from skimp.cli import main
        sys.exit(main(["run", "--engine", "torch", "--report", "json", *sys.argv[1:]]))
    """
    runner = write(tmp_path, code, "runner.py")

    def report(facts: int) -> dict[str, Any]:
        done = start([sys.executable, runner, str(facts), script], tmp_path)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stderr))

    whole, parts = report(1 << 30), report(500)
    for name in ("allocations", "allocated", "live"):
        assert whole[name] == parts[name]
    assert whole["peak"]["bytes"] == parts["peak"]["bytes"]


def compared(folder: Path, program: str, *words: str) -> Done:
    return skimp("run", "--compare", *words, write(folder, program), cwd=folder)


def test_compare_shows_both_side_by_side(tmp_path: Path) -> None:
    done = compared(tmp_path, TRAIN, "--report", "both.html")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1  # the program's, once
    assert "both printed the same line" in done.stderr
    lines = [line.split() for line in done.stderr.splitlines()]
    assert ["PyTorch", "skimp", "share"] in lines
    assert [line[-1] for line in lines if line[:1] == ["parameter"]] == ["1.00"]
    assert (tmp_path / "both.html").read_text().count('"engine":') == 2


def test_compare_tells_where_what_was_printed_differs(tmp_path: Path) -> None:
    done = compared(tmp_path, "import torch\nprint(1)\nprint(torch.__file__)\n")
    assert "what they printed differs from line 2 on" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", "torch", "--limit", "1GiB"], "--limit and --budget hold skimp's tensors"),
        (["--compare", "--limit", "1GiB"], "--compare has no limit and no budget"),
        (["--compare", "--report", "json"], "--compare writes a page"),
        (["--compare", "--report", "a.json"], "--compare writes a page"),
        (["--engine", "jax"], "invalid choice: 'jax'"),
    ],
)
def test_words_that_do_not_go_together(tmp_path: Path, words: list[str], told: str) -> None:
    done = skimp("run", *words, write(tmp_path, "print(1)"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_a_program_that_fails_is_not_compared(tmp_path: Path) -> None:
    done = compared(tmp_path, "import sys\nsys.exit(3)\n")
    assert done.returncode == 3
    assert "the program failed on torch with exit code 3" in done.stderr
