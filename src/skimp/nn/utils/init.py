"""Modules without their initialisation."""

from __future__ import annotations

from typing import Any

from skimp._engine.tensor import devices
from skimp._ops.random.generator import fork_rng
from skimp.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module that leaves no trace in the stream of random numbers; its values are not to be
    relied on.

    Shape: no tensors: the module's class and its arguments.
    Raises: RuntimeError for a class that is no Module.
    Memory: as the module made by itself; the generator is put back.
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    devices.check(kwargs.get("device"))
    with fork_rng():
        return module_cls(*args, **kwargs)
