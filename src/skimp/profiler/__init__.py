"""torch.profiler: where a program's time and bytes go, by op."""

from __future__ import annotations

import enum

from skimp._compat.modules import lookup as _lookup, public as _public
from skimp.profiler.profile import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function",
    "schedule", "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)


def kineto_available() -> bool:
    """Whether PyTorch's library of tracing is there: the interpreter's hook is used instead."""
    return False


class DeviceType(enum.Enum):
    """Where work may run."""

    CPU, CUDA, MKLDNN, OPENGL, OPENCL, IDEEP, HIP, FPGA, MAIA, XLA, Vulkan, Metal, XPU, MPS = range(
        14
    )
    Meta, HPU, VE, Lazy, IPU, MTIA, PrivateUse1 = range(14, 21)
