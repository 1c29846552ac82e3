"""What `skimp run` measures and prints for programs whose bytes and results are known."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.running import default_mode, measured, skimp, write
from tests.support.warm import WITH_PYTORCH

KNOWN = """
    import torch
    a = torch.zeros(1000)
    b = torch.ones(500, dtype=torch.float64)
    c = a + 1
    d = a.view(10, 100).t().reshape(-1)
    for tensor in (a, b, c, d):
        tensor.data_ptr()
    e = b[:250]  # a view: no memory
    del a, b, c, d, tensor
    f = torch.zeros(2000)
    f.data_ptr()
    print(torch.memory.max_memory_allocated(), torch.memory.memory_allocated())
"""


def test_the_report_is_right_to_the_byte(tmp_path: Path) -> None:
    script = write(tmp_path, KNOWN)
    done = skimp("run", "--report", "json", script, cwd=tmp_path)
    assert done.stdout == "16000 12000\n"
    result = measured(done)
    peak = result["peak"]
    assert (peak["bytes"], result["allocated"], result["live"]) == (16000, 24000, 12000)
    assert result["allocations"] == 5
    held = {(h["place"]["line"], h["place"]["op"]): h["bytes"] for h in peak["held"]}
    assert held == {(3, "zeros"): 4000, (4, "ones"): 4000, (5, "add"): 4000, (6, "reshape"): 4000}
    assert {h["place"]["file"] for h in peak["held"]} == {str(tmp_path / script)}
    (copy,) = result["copies"]
    assert (copy["place"]["line"], copy["bytes"], copy["times"]) == (6, 4000, 1)
    assert "strides (1, 100)" in copy["reason"]
    assert 0 <= peak["seconds"] <= result["seconds"]


def test_sections_that_are_named_are_shown_beside_a_file(tmp_path: Path) -> None:
    code = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        for _ in DataLoader(TensorDataset(torch.ones(8)), batch_size=4, pin_memory=True):
            pass
    """
    script = write(tmp_path, code)
    done = skimp("run", "--report", "r.html", "--show", "lines", script, cwd=tmp_path)
    assert "live at the peak" in done.stderr
    assert "script.py:4  DataLoader" in done.stderr
    assert f"{tmp_path / script}:4: UserWarning: 'pin_memory'" in done.stderr
    assert (tmp_path / "r.html").exists()


def test_a_program_that_raises_has_a_report_of_what_had_run(tmp_path: Path) -> None:
    script = write(tmp_path, "import torch\nx = torch.ones(25).add_(1)\nx.view(3)\n")
    done = skimp("run", "--report", "json", script, cwd=tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: shape '[3]' is invalid for input of size 25" in done.stderr
    assert "skimp/ops" not in done.stderr  # none of our frames
    assert measured(done)["peak"]["bytes"] == 100


def test_a_limit_holds(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        """
        import torch
        kept = torch.ones(1000)
        try:
            torch.zeros(100_000).data_ptr()
        except torch.OutOfMemoryError as error:
            print("refused", kept.sum())
        torch.zeros(100_000).data_ptr()
        """,
    )
    done = skimp("run", "--limit", "100KiB", script, cwd=tmp_path)
    assert done.stdout == "refused tensor(1000.)\n"
    assert "OutOfMemoryError" in done.stderr
    assert "script.py:8" in done.stderr
    assert "skimp: script.py" in done.stderr
    assert done.returncode == 1


@default_mode
def test_a_program_that_a_limit_refuses_trains_within_a_budget_of_the_same_bytes(
    tmp_path: Path,
) -> None:
    script = write(
        tmp_path,
        """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(128, 128), nn.GELU())])
        x = torch.randn(2048, 128)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            loss = (net(x) - x).square().mean()
            loss.backward()
            opt.step()
            print(loss.item())
        """,
    )
    free = skimp("run", "--report", "json", script, cwd=tmp_path)
    half = str(measured(free)["peak"]["bytes"] // 2)
    limited = skimp("run", "--quiet", "--limit", half, script, cwd=tmp_path)
    assert limited.returncode == 1
    assert "OutOfMemoryError" in limited.stderr
    held = skimp("run", "--report", "json", "--budget", half, script, cwd=tmp_path)
    assert held.returncode == 0, held.stderr
    assert held.stdout == free.stdout
    assert measured(held)["budget"]["peak"] <= int(half)


@default_mode
def test_a_program_that_departs_from_what_it_repeated_is_noted_again(tmp_path: Path) -> None:
    code = """
        import torch
        from skimp._engine.memory.ledger import host
        layers = [torch.nn.Linear(256, 256) for _ in range(4)]
        x = torch.randn(1024, 256)
        for rows in (x, x, x, x, x, x, torch.cat([x, x])):
            y = rows
            for layer in layers:
                y = torch.tanh(layer(y))
            print(host.budget.notes, end=" ")
            y.sum().backward()
    """
    script = write(tmp_path, code)
    done = skimp("run", "--quiet", "--budget", "64MiB", "--no-spill", script, cwd=tmp_path)
    assert done.stdout.split()[-3:] == ["False", "False", "True"]


@pytest.mark.parametrize("words", [("--no-spill",), ("--verify",), ("--spill-dir", "/tmp")])
def test_what_is_for_a_budget_needs_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = skimp("run", *words, write(tmp_path, "print(1)\n"), cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"skimp run: {words[0]} needs --budget SIZE\n"
    assert not done.stdout


# -- the examples ---------------------------------------------------------------------------------


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.skipif(
    os.environ.get("SKIMP_DEFER", "auto") == "always",
    reason="there a result takes over the memory of what it replaces at any size, and they look",
)
def test_examples_print_what_they_print_under_pytorch(tmp_path: Path) -> None:
    names = ("saving_memory", "storages", "in_place")
    paths = [str(EXAMPLES / f"{name}.py") for name in names]
    all_of_them = "import runpy, sys\nfor p in sys.argv[1:]: runpy.run_path(p, None, '__main__')\n"
    script = write(tmp_path, all_of_them)
    by_pytorch = WITH_PYTORCH.run([sys.executable, script, *paths], tmp_path)
    by_skimp = skimp("run", "--quiet", script, *paths, cwd=tmp_path)
    assert by_pytorch.returncode == 0, by_pytorch.stderr
    assert by_skimp.stdout == by_pytorch.stdout
    assert by_skimp.returncode == 0, by_skimp.stderr


@default_mode
def test_a_program_that_measures_itself_measures_the_host(tmp_path: Path) -> None:
    done = skimp("run", "--quiet", str(EXAMPLES / "measure_relu.py"), cwd=tmp_path)
    assert done.stdout == (
        "out of place: 381.5 MiB in use, 381.5 MiB at most\n"
        "in place:     0.0 MiB in use, 0.0 MiB at most\n"
    ), done.stderr


@default_mode
def test_the_readme_shows_what_the_demo_prints() -> None:
    """And the report, but for its seconds."""
    root = EXAMPLES.parent
    pages = re.findall(r"```text\n(.*?)\n```", (root / "README.md").read_text(), re.S)
    done = skimp("run", "examples/demo.py", cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in pages
    shown = [re.sub(r"[\d.]+ s\b", "- s", page) for page in pages]
    assert re.sub(r"[\d.]+ s\b", "- s", done.stderr.strip()) in shown
