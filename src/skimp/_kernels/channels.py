"""Images times a number for each channel, plus another, and perhaps held between two numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from skimp._kernels import channels_onednn
from skimp._kernels.channels_onednn import Limits
from skimp._kernels.pointwise import CLIP, clamp
from skimp._kernels.threads import Call

Array = np.ndarray[Any, Any]


def scaled(x: Array, a: Array, b: Array, hold: Limits | None = None, *, out: Array) -> None:
    """out = x * a + b, held between two numbers if they are given, NaN as it is; it may be where x
    is."""
    if not channels_onednn.scaled(x, a, b, out, hold):
        np.multiply(x, a, out=out)
        np.add(out, b, out=out)
        if hold is not None:
            clamp(out, *hold, out=out)


def calls(x: Array, a: Array, b: Array, hold: Limits | None = None, *, out: Array) -> list[Call]:
    """What `scaled` does, as calls of C."""
    made = channels_onednn.calls(x, a, b, out, hold)
    if not made:
        made = [(partial(np.multiply, x, a, out=out),), (partial(np.add, out, b, out=out),)]
        if hold is not None:
            made.append((partial(CLIP, out, *hold, out=out),))
    return made
