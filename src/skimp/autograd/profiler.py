"""torch.autograd.profiler: the older form of torch.profiler."""

from __future__ import annotations

import importlib
from typing import Any

from skimp._compat.modules import lookup as _lookup, public as _public

__all__ = ["profile"]
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)


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
