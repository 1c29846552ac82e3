"""torch.autograd.profiler: the older form of torch.profiler."""

from __future__ import annotations

import importlib
from typing import Any

from skimp._compat import refusals

_NAMES = ("emit_itt", "emit_nvtx", "load_nvprof", "parse_nvprof_trace")
_ABOVE = ("record_function",)
__all__ = ["profile"]
__all__.extend(_ABOVE)
__all__.extend(_NAMES)
_refuse = refusals.names(__name__, _NAMES, "there is no CUDA; torch.profiler.profile times ops")


class profile:  # noqa: N801  (PyTorch's name)
    """Times the ops inside; see torch.profiler.profile, whose words for results are here too."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: Any = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        **_: Any,
    ) -> None:
        newer = importlib.import_module("skimp.profiler")  # it stands above this package
        self._enabled = enabled
        self._inner = newer.profile(record_shapes=record_shapes, profile_memory=profile_memory)

    def __enter__(self) -> profile:
        if self._enabled:
            self._inner.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            self._inner.stop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events by themselves."""
        found: float = self._inner.key_averages().self_cpu_time_total
        return found

    def table(self, **words: Any) -> str:
        """The averages as text."""
        found: str = self._inner.key_averages().table(**words)
        return found

    def total_average(self) -> Any:
        """All events as one."""
        return self._inner.key_averages().total_average()


def __getattr__(name: str) -> Any:
    if name in _ABOVE:
        return getattr(importlib.import_module("skimp.profiler"), name)
    return _refuse(name)
