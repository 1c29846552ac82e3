"""torch.utils.benchmark: statements timed with enough repetitions, and tables of the results."""

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
    "Compare",
    "Language",
    "Measurement",
    "TaskSpec",
    "Timer",
    "select_unit",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]
