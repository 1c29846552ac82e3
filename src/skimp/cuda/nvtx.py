"""torch.cuda.nvtx: PyTorch's error of a build without CUDA."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _refused(*_: Any, **__: Any) -> NoReturn:
    """Refused, with PyTorch's error of a build without CUDA."""
    raise RuntimeError(
        "NVTX functions not installed. Are you sure you have a CUDA build? "
        "(torch.profiler.record_function works without)"
    )


mark = range = range_end = range_pop = range_push = range_start = _refused
