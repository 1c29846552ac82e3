"""How long idle threads of OpenBLAS stay awake, told before NumPy loads it: it is read then.

As it comes, OpenBLAS lets them spin for 2 ** 26 cycles, 20 ms, on a core that the work between two
products could use (a GPT's training step takes a fifth more with that). After 2 ** 16, 20 us,
products that follow each other still find them awake.
"""

from __future__ import annotations

import os
import sys
from typing import Final

VARIABLE: Final = "OPENBLAS_THREAD_TIMEOUT"  # the logarithm to base 2 of cycles
CYCLES: Final = "16"
CHOSEN: Final = VARIABLE in os.environ  # by whoever started the process, or by the program
LATE: Final = "numpy" in sys.modules  # OpenBLAS has read the variable already

if not CHOSEN:
    os.environ[VARIABLE] = CYCLES
