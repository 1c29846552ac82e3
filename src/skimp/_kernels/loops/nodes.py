"""Records of ops in C (`nodes.h`); where nothing is compiled `_engine/autograd/recorder.py` writes
a text for each."""

from __future__ import annotations

from typing import Any

import cython


def bind(given: Any) -> Any:
    """Tell C what all recordings use, in the order of its G_TENSOR and on."""
    return nodes_bind(given) if cython.compiled else None  # type: ignore[name-defined] # noqa: F821


def recording(described: Any) -> Any:
    """What records the calls of an op, from what `described.in_c` tells of it."""
    return nodes_recording(described) if cython.compiled else None  # type: ignore[name-defined] # noqa: F821
