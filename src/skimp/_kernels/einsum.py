"""NumPy's einsum without its Python: asking operands whose they are, and looking for an order of
them, takes 2 us, longer than the sums of small rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy._core import multiarray

einsum: Final[Any] = getattr(multiarray, "c_einsum", np.einsum)  # the name is not a public one
