"""Sums over what a report holds at its peak: by role, by module with what is below it, by line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from skimp.lens.data import ROLES, Held, Report

_K = TypeVar("_K")
OUTSIDE = "(no module)"
ITSELF = "itself"  # what a module has outside of the modules in it


@dataclass(slots=True)
class Total:
    """Bytes and tensors of one role, module or line; bytes by role."""

    bytes: int = 0
    allocations: int = 0
    roles: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, held: Held) -> None:
        """Take one entry in."""
        self.bytes += held.bytes
        self.allocations += held.allocations
        self.roles[held.role] += held.bytes


def whose(report: Report) -> Callable[[str, str], str]:
    """Names what belongs to a module below an outermost one (`root`): with that one's name where
    the program has several, whose modules may have the same names.
    """
    roots = {held.root for held in report.peak.held if held.root and held.module}
    roots |= {place.root for place in report.places if place.root and place.module}
    several = len(roots) > 1

    def name(root: str, below: str) -> str:
        return f"{root}.{below}" if several and root and below else below

    return name


def by_role(held: Iterable[Held]) -> dict[str, Total]:
    """Totals of the roles that hold something, largest first."""
    totals = {role: Total() for role in ROLES}
    for one in held:
        totals[one.role].add(one)
    return _sorted({role: total for role, total in totals.items() if total.bytes})


def by_line(held: Iterable[Held]) -> dict[tuple[str, int], Total]:
    """Totals of files' lines, largest first."""
    totals: dict[tuple[str, int], Total] = defaultdict(Total)
    for one in held:
        totals[one.place.file, one.place.line].add(one)
    return _sorted(totals)


def by_module(held: Iterable[Held], depth: int | None = None) -> dict[tuple[str, ...], Total]:
    """Totals of modules with all that is below them, by path: the outermost module's class, then
    the names down to the module. `depth` bounds the paths' length. Largest first below each other.
    """
    totals: dict[tuple[str, ...], Total] = defaultdict(Total)
    for one in held:
        names = filter(None, one.module.split("."))
        path = (one.root, *names) if one.root else (OUTSIDE,)
        for end in range(1, len(path[:depth]) + 1):
            totals[path[:end]].add(one)
    return _sorted(totals)


def tree(totals: dict[tuple[str, ...], Total]) -> list[tuple[tuple[str, ...], Total]]:
    """Modules in the order of a tree: each before what is below it, larger ones first."""
    children: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for path in totals:
        children[path[:-1]].append(path)
    found: list[tuple[tuple[str, ...], Total]] = []

    def visit(path: tuple[str, ...]) -> None:
        for child in sorted(children[path], key=lambda p: (-totals[p].bytes, p)):
            found.append((child, totals[child]))
            visit(child)

    visit(())
    return found


def widest(held: Iterable[Held]) -> list[tuple[tuple[str, ...], Total]]:
    """Modules for one line, largest first: those of the first level, and where one of them has
    most of it, what is below that one instead.
    """
    totals = by_module(held)
    shown: dict[tuple[str, ...], Total] = {p: t for p, t in totals.items() if len(p) == 1}
    whole = sum(total.bytes for total in shown.values())
    while True:
        path, most = max(shown.items(), key=lambda item: item[1].bytes)
        below = {p: t for p, t in totals.items() if len(p) == len(path) + 1 and p[:-1] == path}
        inside = sum(total.bytes for total in below.values())
        if most.bytes * 2 < whole or inside * 2 < most.bytes:
            return sorted(shown.items(), key=lambda item: -item[1].bytes)
        del shown[path]
        shown.update(below)
        if most.bytes > inside:  # the module's own
            shown[(*path, ITSELF)] = Total(most.bytes - inside)


def _sorted(totals: dict[_K, Total]) -> dict[_K, Total]:
    return dict(sorted(totals.items(), key=lambda item: -item[1].bytes))
