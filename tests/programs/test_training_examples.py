"""Training scripts written for PyTorch run unchanged, and lose as they do there."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.running import SKIMP, WITH_WARNINGS, default_mode, printed_by_pytorch
from tests.support.shared import made_once
from tests.support.warm import Done

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 20
IN_EVERY_MODE = ["gan", "inplace_rnn"]  # starting processes takes its time
IN_ONE_MODE = ["transformer", "mlp", "convnet", "lstm", "vae", "gradient_penalty"]
TRAININGS = [*IN_EVERY_MODE, *[pytest.param(name, marks=default_mode) for name in IN_ONE_MODE]]


def path_of(name: str) -> str:
    return str(EXAMPLES / f"{name}.py")


def under_skimp(name: str, cwd: Path) -> Done:
    """The script, with every warning an error: PyTorch gives none here."""
    return WITH_WARNINGS.run([*SKIMP, "run", "--quiet", path_of(name)], cwd)


@made_once
def by_pytorch() -> dict[str, list[str]]:
    """The lines that each script prints under PyTorch."""
    default = os.environ.get("SKIMP_DEFER", "auto") == "auto"
    names = [f"train_{name}" for name in IN_EVERY_MODE + (IN_ONE_MODE if default else [])]
    if default:
        names.append("clone_and_detach")
    paths = {path_of(name): name for name in names}
    with TemporaryDirectory() as folder:
        printed = printed_by_pytorch(Path(folder), list(paths), "-W", "error")
    return {paths[path]: lines for path, lines in printed.items()}


def number(line: str) -> float | str:
    try:
        return float(line)
    except ValueError:
        return line


def about(line: str) -> object:
    """What equals a text, or a number up to rounding."""
    value = number(line)
    return pytest.approx(value, rel=1e-5, abs=0) if isinstance(value, float) else value


@pytest.mark.parametrize("name", TRAININGS)
def test_losses_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    wanted = by_pytorch()[f"train_{name}"]
    done = under_skimp(f"train_{name}", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(wanted) >= STEPS
    assert all(isinstance(number(line), float) for line in wanted[:STEPS])
    assert [number(line) for line in lines] == [about(line) for line in wanted]


@default_mode
def test_clones_and_detached_tensors_are_as_in_pytorch(tmp_path: Path) -> None:
    done = under_skimp("clone_and_detach", tmp_path)
    assert done.stdout.splitlines() == by_pytorch()["clone_and_detach"], done.stderr
    assert "tensor([-0.0053,  0.3793])" in done.stdout


KEPT = """\
a graph keeps 1024 KiB
without it    0 KiB
hooks inside: Saved tensor hooks are disabled
with a message: no hooks in this house
and the gradient is there: tensor(6.)
the second thousand takes no more than the first: True
which is less than four of its matrices: True
with all names: 2048 KiB
without one:    1024 KiB, which is the leaf
the gradient is there: True
in another process: True False
in NumPy: True
"""


@default_mode
def test_what_is_saved_for_backward_is_under_control(tmp_path: Path) -> None:
    done = under_skimp("saved_for_backward", tmp_path)
    lines = done.stdout.splitlines(keepends=True)
    refusal = [line for line in lines if line.startswith("backward:    ")]
    assert "".join(line for line in lines if line not in refusal) == KEPT, done.stderr
    (said,) = refusal
    assert said.split(maxsplit=1)[1].startswith("ExpBackward0 needs what it did not keep: ")
    assert "`with disable_saved_tensors_hooks():`" in said
