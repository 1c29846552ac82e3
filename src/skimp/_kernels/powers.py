"""The faster of the exponentials at hand, for kernels that can give it its argument in its own
unit.

Where loops are compiled and the processor has vectors of 512 bits, `bare.EXP` takes 12 us for
100,000 elements of float32 and errs by 0.8 units in the last place. Of NumPy's, where it has
Intel's vector loops (Linux, AVX-512), exp2 takes 17 us and errs by 0.9, exp 33 us and 2.3; results
of exp2 that are infinite or below the normal numbers are made one by one: with a tenth of them it
takes five times as long. Elsewhere exp2 is no vector loop.
"""

from __future__ import annotations

import math
import sys
from typing import Final

import numpy as np

from skimp._kernels import bare


def _has_loops() -> bool:
    if sys.platform != "linux":
        return False
    found = np.lib.introspect.opt_func_info("^exp2$", "^float32$").get("exp2", {})
    return any(not loop["current"].startswith("baseline") for loop in found.values())


_FAST: Final = bare.EXP is np.exp and _has_loops()
POWER: Final[np.ufunc] = np.exp2 if _FAST else bare.EXP
"""POWER(UNIT * x) is exp(x)."""
UNIT: Final = math.log2(math.e) if _FAST else 1.0
