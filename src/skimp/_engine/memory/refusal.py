"""An OutOfMemoryError from its numbers: who asked, what is live by line, what would have to go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from skimp._engine.memory.call_site import Site
from skimp._engine.memory.sizes import exact, readable
from skimp.errors import Live, OutOfMemoryError

SHOWN: Final = 10  # lines of the program that a message lists


def out_of_memory(
    requested: int,
    allocated: int,
    limit: int | None,
    site: Site,
    live: Sequence[Live],
    reason: str | None = None,
    advice: str = "",
) -> OutOfMemoryError:
    """`live` is largest first; `limit` is None where the system refused; `reason` is a budget's,
    `advice` a sentence of whoever knows the program's steps.
    """
    parts = [f"CPU out of memory. Tried to allocate {exact(requested)}: {site}."]
    parts.append(reason or _standing(requested, allocated, limit))
    if live:
        parts += ["Live by line, largest first:", *_listed(live)]
    if limit is not None and reason is None:
        parts.append(_remedy(requested, allocated, limit, live))
    if advice:
        parts.append(advice)
    return OutOfMemoryError(
        "\n".join(parts),
        requested=requested,
        allocated=allocated,
        limit=limit,
        site=site,
        live=live,
    )


def _standing(requested: int, allocated: int, limit: int | None) -> str:
    if limit is None:
        return f"{readable(allocated)} are allocated, and the system gives no more."
    return (
        f"{readable(allocated)} of the limit of {readable(limit)} are allocated; "
        f"the request is {readable(requested + allocated - limit)} too large."
    )


def _listed(live: Sequence[Live]) -> list[str]:
    lines = [f"  {readable(one.bytes):>12}  {_origin(one)}" for one in live[:SHOWN]]
    if len(live) > SHOWN:
        rest = sum(one.bytes for one in live[SHOWN:])
        lines.append(f"  {readable(rest):>12}  {len(live) - SHOWN} more lines")
    return lines


def _origin(one: Live) -> str:
    if one.site is None:
        return "before the limit was set"
    return f"{one.site}" + (f" ({one.allocations} times)" if one.allocations > 1 else "")


def _remedy(requested: int, allocated: int, limit: int, live: Sequence[Live]) -> str:
    if requested > limit:
        return f"It needs a limit of {readable(requested)} at least, or smaller pieces."
    excess = requested + allocated - limit
    step = f"{readable(excess)} would have to go"
    going: list[Live] = []
    for one in live:
        going.append(one)
        if sum(g.bytes for g in going) >= excess:
            return f"{step}, for instance what was made by {', '.join(_origin(g) for g in going)}."
    return f"{step}, or the limit be set to {readable(requested + allocated)}."
