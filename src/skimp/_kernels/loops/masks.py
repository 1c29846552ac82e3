"""What masks keep, rectifiers let pass, and masked fills."""

from __future__ import annotations

from typing import Any


def kept(x: Any, stays: Any, scale: Any, out: Any) -> None:
    """out = x * (stays * scale)"""
    for i in range(out.shape[0]):
        out[i] = x[i] * (stays[i] * scale)


def passed(g: Any, x: Any, low: Any, high: Any, out: Any) -> None:
    """out = g where x is between the limits or NaN, else 0; NaN as a limit is none."""
    for i in range(out.shape[0]):
        out[i] = 0 if (x[i] <= low) | (x[i] >= high) else g[i]


def filled(mask: Any, value: Any, x: Any, out: Any) -> None:
    """out = value where the mask is set, else x, of as many rows as are repeated of the mask."""
    for r in range(out.shape[0]):
        for k in range(out.shape[1]):
            out[r, k] = value if mask[k] else x[r, k]
