"""Tensor methods about places, of which there is one, the CPU, and those that are left out."""

from __future__ import annotations

from typing import Any

from skimp._compat import refusals
from skimp._compat.table import METHODS
from skimp._engine.dispatch.forms import export
from skimp._engine.memory.meta import NO_DATA
from skimp._engine.tensor import devices
from skimp._engine.tensor.tensor import Tensor


def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor itself: it is on the CPU, or has no bytes that could be moved.

    Raises: RuntimeError for a memory format that the rank does not allow.
    Memory: the input itself, or a new tensor in another memory format.
    """
    if self._skimp_meta is not None:
        raise NotImplementedError(NO_DATA)
    return self


def cuda(
    self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Tensor:
    """PyTorch's error of a build without CUDA.

    Raises: AssertionError, always.
    Memory: no tensor is made.
    """
    devices.check("cuda")
    return self


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """PyTorch's error of a machine without an accelerator.

    Raises: RuntimeError, always.
    Memory: no tensor is made.
    """
    raise RuntimeError("Cannot access accelerator device when none is available.")


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the bytes are in page-locked memory: never."""
    return False


def get_device(input: Tensor) -> int:
    """The number of the tensor's GPU; -1 on the CPU."""
    return -1


for _f in (cpu, cuda, pin_memory):
    export(_f.__name__, _f, namespaces=())
export("is_pinned", is_pinned, namespaces=(), looks=True)
export("get_device", get_device, looks=True)
for _name, _reason in METHODS.items():
    _text = f"torch.Tensor.{_name}: {_reason}"
    export(_name, refusals.refusing(_name, RuntimeError, _text, _reason), namespaces=())


SAYS = """\
Shape: any; the result's is the input's."""
