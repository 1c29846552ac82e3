"""How many threads BLAS uses. Work that is shared among our own threads asks for one: two pools
would wait for each other."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

_lock = threading.Lock()
_inside = 0
_before = 0


@cache
def _functions() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """(get, set) the number of threads of the OpenBLAS in NumPy's wheels; None with any other
    BLAS."""
    home = Path(np.__file__).parent
    for folder in (home.parent / "numpy.libs", home / ".dylibs"):
        for path in folder.glob("*scipy_openblas*") if folder.is_dir() else ():
            library = ctypes.CDLL(str(path))
            for suffix in ("64_", ""):
                get = getattr(library, f"scipy_openblas_get_num_threads{suffix}", None)
                put = getattr(library, f"scipy_openblas_set_num_threads{suffix}", None)
                if get is not None and put is not None:
                    return get, put
    return None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, a product runs on the thread that asks for it."""
    global _inside, _before
    functions = _functions()
    if functions is None:
        yield
        return
    get, put = functions
    with _lock:
        if _inside == 0:
            _before = get()
            put(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                put(_before)
