"""The type stubs are those of the declared ops, and tell a type checker what values are."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import skimp

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import stubs  # noqa: E402

PROGRAM = """
    from typing import assert_type

    import numpy as np

    import skimp
    import skimp.nn.functional as F

    x = skimp.zeros(2, 3, dtype=skimp.float32, device="cpu")
    assert_type(x, skimp.Tensor)
    assert_type(x.sum(dim=1), skimp.Tensor)
    total: float = x.sum(dim=1).max().item()
    assert_type(x.shape, skimp.Size)
    assert_type(x.shape[0], int)
    assert_type(x.size(), skimp.Size)
    assert_type(x.size(0), int)
    assert_type(x.stride(), tuple[int, ...])
    assert_type(x.dtype, skimp.dtype)
    assert_type(x.numel(), int)
    assert_type(x.T @ x + 1 > -x, skimp.Tensor)
    assert_type(x == 1, skimp.Tensor)
    assert_type(x[0, None, ...], skimp.Tensor)
    assert_type(x.reshape(3, -1).transpose(0, 1).exp_().clone(), skimp.Tensor)
    assert_type(x.split(1), tuple[skimp.Tensor, ...])
    assert_type(x.grad, skimp.Tensor | None)
    assert_type(x.untyped_storage().nbytes(), int)
    assert_type(skimp.exp(x, out=x), skimp.Tensor)
    assert_type(F.linear(x, x), skimp.Tensor)
    array = np.asarray(x.numpy())
    for row in x:
        row.add_(1, alpha=2)
    x.requires_grad = True
    x.backward()
"""

MISTAKES = {
    "x.reshap(2)": 'has no attribute "reshap"',
    "skimp.zeroes(2)": 'has no attribute "zeroes"',
    "x.numel() + 'a'": "Unsupported operand types",
    "x.transpose(0)": "Missing positional argument",
    "x.exp(2)": "Too many positional arguments",
    "x.shape.numel('a')": "Too many arguments",
    "x.dtype = skimp.int8": "read-only",
}


def test_stubs_are_what_the_ops_declare() -> None:
    stale = [p.name for p, text in stubs.stubs().items() if not p.exists() or p.read_text() != text]
    assert stale == [], "run `make stubs`"


def test_every_name_is_there() -> None:
    text = (ROOT / "src/skimp/_engine/tensor/tensor.pyi").read_text()
    missing = [
        name for name in vars(skimp.Tensor) if name not in text and name not in stubs.SKIPPED
    ]
    assert missing == []


def test_signatures_say_what_callers_may_pass() -> None:
    assert "out" in inspect.signature(skimp.sum).parameters
    assert inspect.signature(skimp.transpose).return_annotation == "Tensor"
    assert [*inspect.signature(skimp.transpose).parameters] == ["input", "dim0", "dim1"]


# What a checker sees depends neither on how ops run nor on the machine.
once = pytest.mark.skipif(
    os.environ.get("SKIMP_DEFER", "auto") != "auto", reason="types are checked in one mode"
)


MISTAKEN = ["import skimp", "x = skimp.ones(2, 2)"]


def test_a_file_of_views_need_not_import_what_they_answer() -> None:
    module = "skimp._engine.memory.layout_splits"
    assert "Tensor" not in vars(sys.modules[module])
    assert stubs.names_of(module)["Tensor"] is skimp.Tensor


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What mypy says of both programs, asked once: it takes seconds to start."""
    pytest.importorskip("mypy", reason="the extra named check is not installed")
    folder = tmp_path_factory.mktemp("programs")
    (folder / "program.py").write_text(dedent(PROGRAM))
    (folder / "mistakes.py").write_text("\n".join([*MISTAKEN, *MISTAKES]) + "\n")
    cache = f"--cache-dir={ROOT / '.mypy_cache'}"
    options = [
        "--strict",
        "--python-version=3.11",
        "--follow-imports=silent",
        "--config-file=",
        cache,
    ]
    command = [sys.executable, "-m", "mypy", *options, "program.py", "mistakes.py"]
    env = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)
    return (done.stdout + done.stderr).splitlines()


@once
def test_a_program_is_understood(said: list[str]) -> None:
    assert said[-1].startswith("Found"), said  # it ran, and counts the mistakes
    assert [s for s in said if "program.py" in s] == []


@once
def test_mistakes_are_found(said: list[str]) -> None:
    for line, words in enumerate(MISTAKES.values(), len(MISTAKEN) + 1):
        assert any(f"mistakes.py:{line}: error" in s and words in s for s in said), said
