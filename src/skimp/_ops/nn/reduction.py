"""The `reduction` argument of losses."""

from __future__ import annotations

from skimp._engine.memory.call_site import warn


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The name of a reduction, where the two old arguments may still ask for one."""
    if size_average is None and reduce is None:
        return reduction
    by_mean = size_average is None or bool(size_average)
    name = "none" if not (reduce is None or reduce) else "mean" if by_mean else "sum"
    warn(f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.")
    return name


def check_reduction(reduction: str) -> None:
    """Refuse what is not one of the three."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
