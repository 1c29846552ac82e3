"""A registry that forgets: ops declared inside are gone afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import skimp
from skimp._engine.dispatch import forms
from skimp._engine.dispatch.pointwise_forms import ROWS
from skimp._engine.dispatch.row import FORMS, METHODS, NAMESPACES, OPS


@contextmanager
def declared(declare: Callable[[], None]) -> Iterator[None]:
    """Inside, the ops of `declare` are there, as if the package had them."""
    tables: list[dict[Any, Any]] = [OPS, ROWS, METHODS, FORMS, forms._made, NAMESPACES]
    tables += NAMESPACES.values()
    before = [dict(table) for table in tables]
    names, methods = set(vars(skimp)), set(vars(skimp.Tensor))
    try:
        declare()
        vars(skimp).update(NAMESPACES[""])  # what the package does when it is imported
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            table.clear()
            table.update(old)
        for name in set(vars(skimp)) - names:
            delattr(skimp, name)
        for name in set(vars(skimp.Tensor)) - methods:
            delattr(skimp.Tensor, name)
