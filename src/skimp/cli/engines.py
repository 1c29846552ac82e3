"""What a program runs on: skimp under the name torch, or PyTorch itself."""

from __future__ import annotations

import argparse
import importlib.util
import os

from skimp import _compat as compat, lens
from skimp._engine.budget.setting import set_budget
from skimp._engine.memory import limits
from skimp.cli import spent
from skimp.cli.listen import Recording


def prepare(options: argparse.Namespace) -> None:
    """Make `import torch` mean the engine, which is held to the bounds that were given.

    RuntimeError, OSError: that can't be had.
    """
    if options.budget is None:
        for word in ("no_spill", "verify", "spill_dir"):
            if getattr(options, word):
                raise RuntimeError(f"--{word.replace('_', '-')} needs --budget SIZE")
    if options.engine == "torch":
        _prepare_torch(options)
        return
    compat.install()
    if options.limit is not None:
        limits.set_limit(options.limit)
    if options.budget is not None:
        set_budget(
            options.budget,
            spill=not options.no_spill,
            spill_dir=options.spill_dir,
            verify=options.verify,
        )
    spent.tell_at_exit(options)


def _prepare_torch(options: argparse.Namespace) -> None:
    if options.limit is not None or options.budget is not None:
        raise RuntimeError(
            "--limit and --budget hold skimp's tensors; PyTorch has neither on a CPU"
        )
    if importlib.util.find_spec("torch") is None:
        raise RuntimeError(
            "--engine torch needs PyTorch, which is not installed: pip install torch"
        )
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its profiler talks on stderr


def recording(engine: str, program: str) -> Recording:
    """What records the engine's memory."""
    if engine == "skimp":
        return lens.Recording(program)
    # PyTorch is imported only where somebody asks for it
    from skimp.lens.pytorch.recording import Recording as OnPyTorch

    return OnPyTorch(program)
