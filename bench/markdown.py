"""Figures as text, and tables of them."""

from __future__ import annotations

from collections.abc import Sequence

NONE = ""


def seconds(value: float | None) -> str:
    """Three digits and the unit that suits them."""
    if value is None:
        return NONE
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 0.9995:  # which three digits round to 1
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def mib(value: float | None) -> str:
    return NONE if value is None else f"{value:.0f}"


def ratio(value: float | None, goal: float | None = None) -> str:
    """The ratio, and the goal behind it."""
    if value is None:
        return NONE
    return f"{value:.2f}" if goal is None else f"{value:.2f} ({goal:g})"


def bold(text: str, important: bool) -> str:
    return f"**{text or 'failed'}**" if important else text


def yes(met: bool | None) -> str:
    return {True: "yes", False: "**no**", None: NONE}[met]


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Markdown; all columns but the first and the last hold figures."""
    rule = ["---", *["---:"] * (len(head) - 2), "---"]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *body))
