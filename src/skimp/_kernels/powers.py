"""The faster of NumPy's exponentials, for kernels that can give it its argument in its own unit.

Where NumPy has Intel's vector loops (Linux, AVX-512), exp2 takes 41 us for 128 K elements of
float32 and errs by 0.9 units in the last place, exp takes 76 us and errs by 1.7. Results that are
infinite or below the normal numbers are made one by one: with a tenth of them it takes 260 us.
Elsewhere exp2 is no vector loop.
"""

from __future__ import annotations

import math
import sys
from typing import Final

import numpy as np


def _has_loops() -> bool:
    if sys.platform != "linux":
        return False
    found = np.lib.introspect.opt_func_info("^exp2$", "^float32$").get("exp2", {})
    return any(not loop["current"].startswith("baseline") for loop in found.values())


_FAST: Final = _has_loops()
POWER: Final[np.ufunc] = np.exp2 if _FAST else np.exp
"""POWER(UNIT * x) is exp(x)."""
UNIT: Final = math.log2(math.e) if _FAST else 1.0
