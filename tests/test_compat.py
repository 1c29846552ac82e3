"""The name `torch`: what it resolves to, in this process and in those that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from skimp.compat import missing
from skimp.compat.finder import ours

pytestmark = pytest.mark.skipif(
    os.environ.get("SKIMP_DEFER", "auto") != "auto",
    reason="nothing here depends on what is deferred, and starting processes takes its time",
)


def python(code: str, folder: Path) -> str:
    """Run a program of its own (this process may hold the real torch) and return what it prints."""
    script = folder / "program.py"
    script.write_text(dedent(code))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "real"),
    [
        ("torch", "skimp"),
        ("torch.nn.functional", "skimp.nn.functional"),
        ("torchvision", "torchvision"),
    ],
)
def test_modules_below_torch_have_their_twin_below_skimp(name: str, real: str) -> None:
    assert ours(name) == real


def test_a_missing_name_is_told_with_the_nearest() -> None:
    error = missing("skimp.nn", "Liner", ["Linear", "LayerNorm", "_Linter"])
    assert isinstance(error, AttributeError)
    assert str(error) == "module 'skimp.nn' has no attribute 'Liner'; the nearest is 'Linear'"
    assert error.name == "Liner"


def test_nothing_near_is_said_of_a_name_like_no_other() -> None:
    assert str(missing("skimp", "qqq", ["add", "mul"])) == "module 'skimp' has no attribute 'qqq'"


# -- install and uninstall ------------------------------------------------------------------------


def test_torch_and_its_submodules_are_the_modules_of_skimp(tmp_path: Path) -> None:
    printed = python(
        """
        import skimp, skimp.compat
        skimp.compat.install()
        skimp.compat.install()  # once is enough, twice does no harm
        import torch
        import torch.nn as nn
        from torch import nn as again
        print(torch is skimp, nn is skimp.nn, again is nn)
        print(skimp.__spec__.name, nn.__spec__.name, nn.__name__)
        """,
        tmp_path,
    )
    assert printed == "True True True\nskimp skimp.nn skimp.nn\n"


def test_a_missing_module_is_told_with_the_nearest(tmp_path: Path) -> None:
    printed = python(
        """
        import skimp.compat
        skimp.compat.install()
        for name in ("torch.optin", "torch.nn.no_such_module.deeper"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                print(error.name, "|", error)
        """,
        tmp_path,
    )
    assert printed == (
        "torch.optin | No module named 'torch.optin' in skimp; the nearest is 'optim'\n"
        "torch.nn.no_such_module | No module named 'torch.nn.no_such_module' in skimp\n"
    )


def test_uninstall_leaves_nothing(tmp_path: Path) -> None:
    printed = python(
        """
        import sys
        before = list(sys.path), list(sys.meta_path)
        import skimp, skimp.compat
        skimp.compat.install()
        import torch.nn
        skimp.compat.uninstall()
        print([name for name in sys.modules if name.split(".")[0] == "torch"])
        print(before == (sys.path, sys.meta_path))
        skimp.compat.uninstall()
        skimp.compat.install()
        import torch
        print(torch is skimp)
        """,
        tmp_path,
    )
    assert printed == "[]\nTrue\nTrue\n"


def test_a_real_torch_that_is_there_already_is_not_replaced(tmp_path: Path) -> None:
    printed = python(
        """
        import sys, types
        sys.modules["torch"] = real = types.ModuleType("torch")
        real.__file__ = "/site-packages/torch/__init__.py"
        import skimp.compat
        try:
            skimp.compat.install()
        except RuntimeError as error:
            print(error)
        print(sys.modules["torch"] is real)
        """,
        tmp_path,
    )
    assert "torch is already imported (/site-packages/torch/__init__.py)" in printed
    assert printed.endswith("True\n")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_a_program_starts_have_it_too(tmp_path: Path, method: str) -> None:
    printed = python(
        f"""
        import skimp.compat
        skimp.compat.install()
        import multiprocessing
        import torch

        def work(number):
            import torch.nn
            return number, torch.__name__, torch.nn.__name__

        if __name__ == "__main__":
            with multiprocessing.get_context("{method}").Pool(1) as pool:
                print(pool.apply_async(work, [7]).get(60))
        """,
        tmp_path,
    )
    assert printed == "(7, 'skimp', 'skimp.nn')\n"


def test_a_process_started_afresh_finds_torch_without_being_told(tmp_path: Path) -> None:
    """Under `skimp run` no line of the script installs anything, so no child does by itself."""
    (tmp_path / "work.py").write_text("import torch\n\ndef name(): return torch.__name__\n")
    printed = python(
        """
        import multiprocessing

        if __name__ == "__main__":
            import skimp.compat
            skimp.compat.install()
            import work
            for method in ("spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.apply(work.name))
        """,
        tmp_path,
    )
    assert printed == "skimp\nskimp\n"
