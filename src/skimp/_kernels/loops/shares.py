"""How many threads run a work, decided in one call (`shares.h`)."""

from __future__ import annotations

from typing import Any

import cython


def calling(instead: Any, told: Any, limits: Any) -> Any:
    """`sharing.call`. `told`: the account, the settings, the list of who shares work with helpers,
    what belongs to the thread (`threads`, `teams`), and `teams.worth`, `teams.done`,
    `sharing.team`, the clock; `limits`: the fewest elements that are shared, and seconds."""
    if cython.compiled:
        return share_prepared(told, limits)  # type: ignore[name-defined] # noqa: F821
    return instead


def priced(ufunc: Any, cost: Any) -> None:
    """Have teams share what this ufunc (`ufuncs.ufunc`) makes of long arrays, of which a thread
    takes so many seconds for each element."""
    if cython.compiled:
        bare_shared(ufunc, cost)  # type: ignore[name-defined] # noqa: F821


def written(ufunc: Any, arrays: Any, out: Any, numbers: Any = ()) -> Any:
    """Write ufunc(*arrays, *numbers) by its loop alone; whether it is done."""
    if cython.compiled:
        return bare_done(ufunc, arrays, out, numbers)  # type: ignore[name-defined] # noqa: F821
    ufunc(*arrays, *numbers, out=out)
    return True
