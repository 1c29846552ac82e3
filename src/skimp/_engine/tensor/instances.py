"""Instances whose attributes CPython keeps in an array, not in a dict each."""

from __future__ import annotations

from collections.abc import Callable

_FIRST = 40  # instances, after which CPython hardly lets names in


def share_names(make: Callable[[], object], *names: str) -> None:
    """Let the instances of a new class, which `make` makes, share the keys `names`.

    CPython 3.11 and 3.12 let a class's first 30 or so instances say which names those are. One that
    is given another attribute later gets a dict of its own, which takes longer than making a
    tensor (a view by 120 ns): without this, how fast an op is would depend on what the program did
    first. Names cost as well, 8 bytes in each instance: those that small ops set are enough.
    """
    first = make()
    for name in names:
        setattr(first, name, None)
    for name in names:
        delattr(first, name)
    for _ in range(_FIRST):
        make()
