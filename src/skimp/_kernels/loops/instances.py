"""Tensors and storages as C makes them (`instances.h`)."""

from __future__ import annotations

from typing import Any

import cython


def instances(given: Any) -> Any:
    """What stands for the functions of `given["general"]`, by their names, and for the `__del__` of
    storages; of nothing where this is not compiled.

    `given` has the classes, by name, with the values of new ones' slots, and what is asked and
    counted when one is made (_engine/tensor/tensor.py).
    """
    return instances_made(given) if cython.compiled else {}  # type: ignore # noqa: F821
