"""x * a + b with a number of each for each channel, as pointwise rows: what norms leave to be made
by who reads it, joined with the addition or the rectifier that does.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Final

import numpy as np

from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.dispatch.result_types import same
from skimp._engine.dispatch.rows import FLOAT
from skimp._engine.eval.expr import COPY, Kernel
from skimp._kernels import channels
from skimp._kernels.pointwise import CLIP


@lru_cache(64)
def _scaled(name: str, plus: bool, hold: tuple[float, ...] | None, own: bool) -> Kernel:
    """x * a + b, perhaps plus another argument, held between two numbers if they are given."""
    return Kernel(
        name,
        partial(channels.scaled, hold=hold, own=own),
        aliases=True,
        strided=True,
        brief=True,
        listed=partial(channels.calls, hold=hold, own=own),
        beside=True,
        joined=partial(_joined, name, plus, hold, own),
    )


def _joined(
    name: str, plus: bool, hold: tuple[float, ...] | None, own: bool, other: Kernel, more: int
) -> Kernel | None:
    """The kernel that copies its result too, or adds to it, or holds it between two numbers."""
    if other is COPY:
        return _scaled(name, plus, hold, own)
    if more and not plus and hold is None and other.ufunc is np.add:
        return _scaled(f"{name}_{other.name}", True, None, own)
    if more or hold is not None or CLIP is None or other.ufunc is not CLIP:
        return None
    nan = any([limit != limit for limit in other.numbers])
    return None if nan else _scaled(f"{name}_{other.name}", plus, other.numbers, own)


SCALED: Final = Pointwise(
    "scaled", {FLOAT: _scaled("scaled", False, None, False)}, same, args=("input", "a", "b")
)
"""x * a + b, the latter two with a number for each channel."""

STANDARDIZED: Final = Pointwise(
    "standardized", {FLOAT: _scaled("batch_norm", False, None, True)}, same, args=SCALED.args
)
"""The same, of numbers made of x's own moments: so where x is not finite they are not."""
