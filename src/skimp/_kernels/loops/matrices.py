"""Products of matrices by oneDNN's function, which is told by its address (`matrices.h`)."""

from __future__ import annotations

from typing import Any

import cython

if not cython.compiled:
    import ctypes
    import struct

    _SIZE, _AT, _REAL, _KIND = ctypes.c_int64, ctypes.c_void_p, ctypes.c_float, ctypes.c_char
    _PRODUCT = ctypes.CFUNCTYPE(
        *(ctypes.c_int, _KIND, _KIND, _SIZE, _SIZE, _SIZE, _REAL, _AT, _SIZE, _AT, _SIZE),
        *(_REAL, _AT, _SIZE),
    )
    _THREADS = ctypes.CFUNCTYPE(None, ctypes.c_int)


def multiplied(plan: Any, a: Any, b: Any, out: Any, threads: Any, add: Any) -> None:
    """out = a @ b of float32, and what it held if `add`, of matrices that begin at these addresses.

    `plan`: words of 64 bits. Where `dnnl_sgemm` is, and what it is told its threads by (or 0); how
    both factors lie, b"N" or b"T", as numbers; the columns; how far apart runs of the three are.
    Then of each part its rows, its depth, how many bytes it lies behind in the three, and whether
    it is added. `threads`: 0 for as many as were told before.
    """
    if cython.compiled:
        matrices_multiplied(plan, a, b, out, threads, add)  # type: ignore[name-defined] # noqa: F821
        return
    words = struct.unpack(f"{len(plan) // 8}q", plan)
    product, put, one, other, n, pitch_a, pitch_b, pitch = words[:8]
    if put and threads:
        _THREADS(put)(threads)
    for rows, deep, from_a, from_b, to, added in zip(*[iter(words[8:])] * 6, strict=True):
        _PRODUCT(product)(
            one, other, rows, n, deep, 1, a + from_a, pitch_a, b + from_b, pitch_b,
            1 if add or added else 0, out + to, pitch,
        )  # fmt: skip
