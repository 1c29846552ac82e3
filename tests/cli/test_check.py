"""`skimp check`, and the page of names: what they say of programs is so."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from textwrap import dedent

import pytest

import skimp
from skimp._compat.homes import HOMES
from skimp._compat.table import THEIRS
from skimp.cli.check import check
from skimp.cli.names import DATA, State, known, look, state
from tests.support.running import skimp as command, write

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    os.environ.get("SKIMP_DEFER", "auto") != "auto", reason="nothing is computed here"
)


def found(code: str) -> list[tuple[int, str, str]]:
    return [(f.line, f.name, f.kind) for f in check(dedent(code), "program.py")]


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("import torch\ntorch.relu", []),
        ("import torch\ntorch.hspmm", [(2, "torch.hspmm", "refused")]),
        ("import torch as t\nt.nn.Linear\nt.hspmm()", [(3, "torch.hspmm", "refused")]),
        (
            "import torch.nn as nn\nnn.LinearCrossEntropyLoss(1)",
            [(2, "torch.nn.LinearCrossEntropyLoss", "refused")],
        ),
        (
            "from torch.nn import functional as F\nF.relu\nF.scaled_mm",
            [(3, "torch.nn.functional.scaled_mm", "refused")],
        ),
        (
            "from torch.nn import Linear, LinearCrossEntropyLoss",
            [(1, "torch.nn.LinearCrossEntropyLoss", "refused")],
        ),
        (
            "import torch\nm = torch.nn\nm.LinearCrossEntropyLoss",
            [(3, "torch.nn.LinearCrossEntropyLoss", "refused")],
        ),
        ("import torch\ntorch.jit.save(1)", [(2, "torch.jit.save", "refused")]),
        ("from torch.onnx import export", [(1, "torch.onnx.export", "refused")]),
        ("import torch\ntorch.vmap", [(2, "torch.vmap", "differs")]),
        ("import torch\nx = torch.ones(2)\nx.to_mkldnn()", [(3, ".to_mkldnn", "possible")]),
        ("import torch\nx = torch.ones(2)\nx.values()\nx.relu()", []),
        ("import torch\ntorch.Tensor.to_mkldnn", [(2, "torch.Tensor.to_mkldnn", "refused")]),
        ("import torch\ntorch.float32.itemsize\ntorch.nn.Linear.from_float", []),
        ("import torch.no_such", [(1, "torch.no_such", "missing")]),
        ("from torch.utils.no_such import x", [(1, "torch.utils.no_such", "missing")]),
        ("import torchvision.transforms as T", [(1, "torchvision", "missing")]),
        ("import numpy as torch\ntorch.hspmm", []),
        ("from torch import *\nhspmm", []),
        ("def f():\n    import torch\n    return torch.hspmm", [(3, "torch.hspmm", "refused")]),
    ],
)
def test_what_is_said(code: str, want: list[tuple[int, str, str]]) -> None:
    assert found(code) == want


def test_states_are_what_programs_meet() -> None:
    """Names picked by hand, one of each state, in a module and in the class."""
    assert state("torch", "add") is State.WORKS
    assert state("torch.Tensor", "add") is State.WORKS
    assert state("torch.Tensor", "grad") is State.WORKS
    assert state("torch.jit", "load") is State.REFUSED
    assert state("torch.fx", "Tracer") is State.REFUSED
    assert state("torch.func", "linearize") is State.REFUSED
    assert state("torch", "compile") is State.DIFFERS
    assert state("torch.Tensor", "to_mkldnn") is State.REFUSED
    assert state("torch.no_such", "x") is State.MISSING
    assert look("torch.nn", "functional") is skimp.nn.functional


def test_no_name_that_torch_gets_from_elsewhere_is_missing() -> None:
    """`torch.nn.modules.activation.MultiheadAttention` stands in another file here."""
    spaces = {f"{THEIRS}.{home}".rstrip("."): names for home, names in HOMES.items()}
    lost = [
        f"{space}.{n}" for space, names in spaces.items() for n in names
        if state(space, n) is State.MISSING
    ]  # fmt: skip
    assert lost == []


def test_the_command(tmp_path: Path) -> None:
    write(tmp_path, "import torch\ntorch.lobpcg\ntorch.vmap\n", "pkg/a.py")
    write(tmp_path, "import torch\ntorch.relu\n", "pkg/b.py")
    done = command("check", "pkg", cwd=tmp_path)
    assert done.returncode == 1
    first, second, last = done.stdout.splitlines()
    assert first == "pkg/a.py:2: torch.lobpcg: skimp lacks it"
    assert second.startswith("pkg/a.py:3: torch.vmap: differs from PyTorch: ")
    assert last == "2 files: 1 missing, 1 differs"
    quiet = command("check", "--quiet", "pkg/a.py", "pkg/b.py", cwd=tmp_path)
    assert quiet.stdout.splitlines() == [first]
    good = command("check", "pkg/b.py", cwd=tmp_path)
    assert (good.returncode, good.stdout) == (0, "1 file: nothing lacking\n")


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    write(tmp_path, "import torch\nthis is no Python\n", "a.py")
    done = command("check", "a.py", "missing.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "a.py: invalid syntax" in done.stderr
    assert "missing.py: No such file or directory" in done.stderr


def test_our_own_examples_lack_nothing() -> None:
    done = command("check", "--quiet", "examples", cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")


# -- the page -------------------------------------------------------------------------------------


def test_the_data_is_small_and_has_the_names_of_the_page() -> None:
    assert DATA.stat().st_size < 80_000
    names = json.loads(DATA.read_text())["names"]
    page = (ROOT / "docs" / "api.md").read_text()
    assert [m for m in names if f"\n## {m}\n" not in page] == []
    (total,) = re.findall(r"^\| all \| (\d+) \|", page, re.MULTILINE)
    assert int(total) == sum(len(words) for words in known().names.values())


def test_rows_say_what_each_side_does() -> None:
    for name, text in known().differs.items():
        assert re.search(r"\. PyTorch: .+ skimp: .+", text), name
    assert "torch.flatten" not in known().differs  # an example in another op's row


def test_cuda_is_flagged_where_it_may_be_a_tensors() -> None:
    code = "import torch\nx = torch.ones(2).cuda()\nx.to('cpu')\ntorch.cuda.is_available()\n"
    assert found(code) == [(2, ".cuda()", "possible")]


def test_devices_named_cuda_are_flagged_where_nobody_asks_for_them() -> None:
    code = """\
    import torch
    import torch.nn as nn
    x = torch.ones(2).to("cuda:0")
    y = torch.zeros(3, device="cuda")
    d = torch.device("cuda:1")
    m = nn.Linear(2, 2, device="cuda")
    d = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    d = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    if torch.cuda.is_available():
        x = x.to("cuda")
        m.cuda()
    else:
        x = x.to("cuda", non_blocking=True)
    x = x.to("cpu").to(torch.float32)
    name = "cuda"
    x = x.to(name)
    print("cuda", x.to(dtype=torch.float64), device="cpu")
    """
    assert [one for one in found(code) if one[2] == "possible"] == [
        (3, ".to('cuda:0')", "possible"),
        (4, "device='cuda'", "possible"),
        (5, "torch.device('cuda:1')", "possible"),
        (6, "device='cuda'", "possible"),
        (13, ".to('cuda')", "possible"),
    ]


def test_a_missing_file_is_an_error_alone(tmp_path: Path) -> None:
    done = command("check", "gone.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "skimp check: gone.py: No such file or directory\n"
