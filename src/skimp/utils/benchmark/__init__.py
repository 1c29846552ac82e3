"""torch.utils.benchmark: statements timed with enough repetitions, and tables of the results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from skimp._compat.modules import lookup as _lookup
from skimp._kernels.blas import get_num_threads, set_num_threads
from skimp.utils.benchmark.compare import Compare
from skimp.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    select_unit,
    trim_sigfig,
    unit_to_english,
)
from skimp.utils.benchmark.timing import Language, Timer, timer

__all__ = [
    "Compare", "Language", "Measurement", "TaskSpec", "Timer", "select_unit", "timer",
    "trim_sigfig", "unit_to_english",
]  # fmt: skip
__getattr__ = _lookup(__name__)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The elements without repetitions, in the order of their first places."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Use so many threads inside a `with`."""
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)
