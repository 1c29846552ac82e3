"""The lens on PyTorch itself: totals are its profiler's, roles are skimp's."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from skimp.lens import Peak, Place, Report, from_json, load, show_comparison
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

# All that PyTorch's own profiler has to say of some programs, without any of our hooks
PROFILE = """
    import json, runpy, sys
    import torch
    from torch.profiler import ProfilerActivity, profile

    for path in sys.argv[1:]:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
            space = runpy.run_path(path, run_name="__main__")
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
        del space
"""


def recorded(folder: Path, script: str, engine: str) -> Report:
    path = folder / f"{engine}.json"
    done = skimp("run", "--engine", engine, "--report", str(path), script, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # PyTorch's profiler keeps quiet
    return load(path)


def test_totals_are_those_of_pytorch_s_profiler(tmp_path: Path) -> None:
    texts = {"mlp.py": TRAIN, "conv.py": CONV, "lstm.py": LSTM}
    scripts = [write(tmp_path, text, name) for name, text in texts.items()]
    profiler = write(tmp_path, PROFILE, "profiled.py")
    profiled = start([sys.executable, profiler, *scripts], tmp_path).stdout.splitlines()
    expected = [json.loads(line) for line in profiled if line.startswith("[")]
    reports = [recorded(tmp_path, script, "torch") for script in scripts]
    assert [[r.allocations, r.allocated, r.peak.bytes] for r in reports] == expected
    for report in reports:
        assert sum(held.bytes for held in report.peak.held) == report.peak.bytes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """The report of one program from each engine."""
    folder = tmp_path_factory.mktemp("trained")
    script = write(folder, TRAIN)
    return {engine: recorded(folder, script, engine) for engine in ("skimp", "torch")}


def test_roles_are_those_of_skimp(trained: dict[str, Report]) -> None:
    mine, theirs = trained["skimp"], trained["torch"]
    assert theirs.engine == "torch"
    ours, pytorch = mine.peak.by_role(), theirs.peak.by_role()
    del ours["temporary"], pytorch["temporary"]  # PyTorch's own ops have some inside
    assert pytorch == ours
    assert {(h.role, h.module, h.name) for h in theirs.peak.held if h.name} == {
        (h.role, h.module, h.name) for h in mine.peak.held if h.name
    }


def test_places_name_line_op_module_and_phase(trained: dict[str, Report]) -> None:
    report = trained["torch"]
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


def test_a_long_program_is_counted_in_parts(tmp_path: Path, trained: dict[str, Report]) -> None:
    """More facts than one profile takes: the totals are the same."""
    code = """
        import sys
        from skimp.lens.pytorch import recording
        recording.FACTS = 100
        from skimp.cli import main
        sys.exit(main(["run", "--engine", "torch", "--report", "json", *sys.argv[1:]]))
    """
    runner = write(tmp_path, code, "runner.py")
    done = start([sys.executable, runner, write(tmp_path, TRAIN)], tmp_path)
    assert done.returncode == 0, done.stderr
    whole, parts = trained["torch"], from_json(done.stderr)
    assert (parts.allocations, parts.allocated, parts.live, parts.peak.bytes) == (
        whole.allocations, whole.allocated, whole.live, whole.peak.bytes,
    )  # fmt: skip


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


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        (("a\nb\n", "a\nc\n"), "line 2 on\n    PyTorch  b\n    skimp    c"),
        (("a\n", "a\nc\n"), "line 2 on\n    PyTorch  (nothing)\n    skimp    c"),
        (("", ""), "both printed nothing"),
        (("a\nb\n", "a\nb\n"), "both printed the same 2 lines"),
    ],
)
def test_what_both_printed_is_compared(printed: tuple[str, str], told: str) -> None:
    empty = Report("a.py", 0.0, Peak(0, 0.0, Place("", 0, ""), ()), 0, 0, 0, 0, ())
    out = StringIO()
    show_comparison(replace(empty, engine="torch"), empty, (2.0, 1.0), printed, out)
    assert told in out.getvalue()
    assert ["time", "of", "the", "process", "2.00", "s", "1.00", "s", "0.50"] in [
        line.split() for line in out.getvalue().splitlines()
    ]


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
