"""The lens on PyTorch itself: totals are its profiler's, roles are skimp's."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from skimp.cli import main
from skimp.lens import Peak, Place, Report, load, show_comparison
from tests.support.running import SKIMP, default_mode, skimp, write
from tests.support.warm import WITH_PYTORCH, Done

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

COPIES = """
    import torch

    x = torch.ones(20, 30)
    y = x.t()
    first = y[1:].contiguous()
    flat, joined = y.reshape(-1), torch.cat([x, x])
    x[2:4] = joined[:2]
    x.copy_(joined[20:])
    losses = []
    w = torch.ones(50, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for step in range(12):
        loss = w.pow(2).sum()
        loss.backward()
        optimizer.step()
        losses.append(w.exp().sum())
"""
PROGRAMS = {"mlp": TRAIN, "conv": CONV, "lstm": LSTM, "copies": COPIES}

# In one process that has PyTorch: what its own profiler says of each program, without any of our
# hooks; the programs' reports; and that of the first again, counted in small parts.
RUNNER = """
    import gc, json, runpy, sys
    from pathlib import Path
    from torch.profiler import ProfilerActivity, profile
    from skimp import lens
    from skimp.lens.pytorch import recording

    def run(path):
        runpy.run_path(str(path), run_name="__main__")
        gc.collect()

    def report(path, name):
        recorded = recording.Recording(str(path))
        recorded.start()
        run(path)
        recorded.stop()
        path.with_name(name).write_text(lens.to_json(recorded.report()))

    paths = [Path(path) for path in sys.argv[1:]]
    for path in paths:
        run(path)  # what is made once is there already
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as p:
            run(path)
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
        path.with_suffix(".profile").write_text(json.dumps([len(made), sum(made), peak]))
        report(path, f"{path.stem}.json")
    recording.FACTS = 100
    report(paths[0], "parts.json")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one process of PyTorch has left what it knows of the programs."""
    folder = tmp_path_factory.mktemp("programs")
    scripts = [write(folder, text, f"{name}.py") for name, text in PROGRAMS.items()]
    runner = [sys.executable, write(folder, RUNNER, "runner.py"), *scripts]
    done = WITH_PYTORCH.run(runner, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def trained(folder: Path) -> dict[str, Report]:
    """The report of one program from each engine."""
    script = write(folder, TRAIN)
    done = skimp("run", "--report", str(folder / "skimp.json"), script, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {"skimp": load(folder / "skimp.json"), "torch": load(folder / "mlp.json")}


def on_pytorch(*words: str, cwd: Path) -> Done:
    return WITH_PYTORCH.run([*SKIMP, "run", "--engine", "torch", *words], cwd)


@pytest.mark.parametrize("name", PROGRAMS)
def test_totals_are_those_of_pytorch_s_profiler(folder: Path, name: str) -> None:
    r = load(folder / f"{name}.json")
    expected = json.loads((folder / f"{name}.profile").read_text())
    assert [r.allocations, r.allocated, r.peak.bytes] == expected
    assert sum(held.bytes for held in r.peak.held) == r.peak.bytes


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
    assert [report.frames[i].line for i in gelu.stack][-2:] == [19, 12]
    assert [mark.kind for mark in report.marks].count("backward") == 3
    assert [step.first for step in report.steps] == [0, 1, 2, 3]


FAILING = """
    import contextlib
    import torch

    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(4):
        net(torch.ones(2, 8)).sum().backward()
        with contextlib.suppress(ZeroDivisionError):
            optimizer.step(lambda: 1 / (i - 1))
"""


def test_a_step_that_fails_ends(tmp_path: Path) -> None:
    write(tmp_path, FAILING, "fails.py")
    done = on_pytorch("--report", "t.json", "fails.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = load(tmp_path / "t.json")
    assert {p.phase for p in report.places if p.op == "linear"} == {"forward"}
    assert report.steps[-1].last == 3  # three of the four ended one, and then came the end
    assert [m.start <= m.end for m in report.marks if m.kind == "optimizer"] == [True] * 4


def test_a_long_program_is_counted_in_parts(folder: Path) -> None:
    """More facts than one profile takes: the totals are the same."""
    whole, parts = load(folder / "mlp.json"), load(folder / "parts.json")
    assert (parts.allocations, parts.allocated, parts.live, parts.peak.bytes) == (
        whole.allocations, whole.allocated, whole.live, whole.peak.bytes,
    )  # fmt: skip


def test_copies_are_those_of_skimp(folder: Path) -> None:
    script = write(folder, COPIES, "copies.py")
    done = skimp("run", "--report", str(folder / "ours.json"), script, cwd=folder)
    assert done.returncode == 0, done.stderr
    mine, theirs = load(folder / "ours.json"), load(folder / "copies.json")

    def told(report: Report) -> set[Any]:
        listed = [c for c in report.copies if c.shape]
        lines = [(c.place.line, c.made and c.made.line) for c in listed]
        rows = [(c.place.op, c.bytes, c.shape, c.strides, c.forced) for c in listed]
        return set(zip(lines, rows, strict=True))

    assert told(theirs) == told(mine)
    assert ((6, 5), ("contiguous", 29 * 20 * 4, (29, 20), (1, 30), True)) in told(mine)
    assert theirs.copied == mine.copied


def test_what_grows_and_what_would_help_is_told_of_pytorch_too(folder: Path) -> None:
    growth = load(folder / "copies.json").growth
    assert growth is not None
    assert (growth.bytes_per_step, growth.place.line) == (200, 17)
    report = load(folder / "mlp.json")
    batch = next(a for a in report.advice if a.kind == "batch")
    assert "a batch of 32 samples, not 64" in batch.text
    assert batch.peak + batch.saves == report.peak.bytes
    assert "budget" not in {a.kind for a in report.advice}


def test_a_batch_is_the_models_and_not_the_losss(tmp_path: Path) -> None:
    program = TRAIN.replace(
        "(net(x) - x).pow(2).mean()", "nn.MSELoss()(net(x).flatten(), x.flatten())"
    )
    file = tmp_path / "report.json"
    on_pytorch("--report", str(file), write(tmp_path, program), cwd=tmp_path)
    batch = next(a for a in load(file).advice if a.kind == "batch")
    assert "a batch of 32 samples, not 64" in batch.text


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
        (("loss 2.0000\n", "loss 2.0002\n"), "line 1 on, in numbers alone: by at most 0.0001 of"),
        (("2.0 a\n", "2.0 b\n"), "line 1 on\n"),
    ],
)
def test_what_both_printed_is_compared(printed: tuple[str, str], told: str) -> None:
    empty = Report("a.py", 0.0, Peak(0, 0.0, Place("", 0, ""), ()), 0, 0, 0, 0, ())
    out = StringIO()
    show_comparison(replace(empty, engine="torch"), empty, (2.0, 1.0), printed, out)
    assert told in out.getvalue()
    assert ["time", "by", "itself", "2.00", "s", "1.00", "s", "0.50"] in [
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
def test_words_that_do_not_go_together(
    tmp_path: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["run", *words, write(tmp_path, "print(1)")])
    except SystemExit as error:  # the parser's
        code = int(str(error.code))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert told in err


def test_a_program_that_fails_is_not_compared(tmp_path: Path) -> None:
    done = compared(tmp_path, "import sys\nsys.exit(3)\n")
    assert done.returncode == 3
    assert "the program failed on torch with exit code 3" in done.stderr
