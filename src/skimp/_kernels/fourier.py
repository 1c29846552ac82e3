"""NumPy's Fourier transforms, in the precision of what is transformed.

`numpy.fft` multiplies by an int where nothing is to be divided, and of its ufuncs' loops only those
of float64 take one: single precision is cast there and back. So these ask the ufuncs themselves,
with a factor of the type at hand, where NumPy has them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

_SINGLE: Final = np.dtype(np.float32)
# What is multiplied by, 1, 1 / sqrt(n) or 1 / n, as NumPy names it: by the direction that divides.
_FORWARD: Final[dict[str, Any]] = {"none": "backward", "ortho": "ortho", "all": "forward"}
_INVERSE: Final[dict[str, Any]] = {"none": "forward", "ortho": "ortho", "all": "backward"}


@cache
def _ufuncs() -> Any:
    """NumPy's module of them, which `import numpy` alone does not load."""
    return getattr(np.fft, "_pocketfft_umath", None)


def along(a: Array, axis: int, norm: str, forward: bool) -> Array:
    """Complex numbers transformed along an axis."""
    if a.dtype == np.complex64 and (ufuncs := _ufuncs()) is not None:
        run = ufuncs.fft if forward else ufuncs.ifft
        return _run(run, a, axis, a.shape[axis], norm, np.empty_like(a))
    if forward:
        return np.fft.fft(a, axis=axis, norm=_FORWARD[norm])
    return np.fft.ifft(a, axis=axis, norm=_INVERSE[norm])


def half(a: Array, axis: int, norm: str) -> Array:
    """Real numbers transformed along an axis, without what is the conjugate of the rest."""
    if a.dtype == _SINGLE and (ufuncs := _ufuncs()) is not None:
        n = a.shape[axis]
        run = ufuncs.rfft_n_odd if n % 2 else ufuncs.rfft_n_even
        return _run(run, a, axis, n, norm, _blank(a, axis, n // 2 + 1, np.complex64))
    return np.fft.rfft(a, axis=axis, norm=_FORWARD[norm])


def whole(a: Array, size: int, axis: int, norm: str) -> Array:
    """The real numbers, `size` along the axis, of which `half` is the transform."""
    if a.dtype == np.complex64 and (ufuncs := _ufuncs()) is not None:
        return _run(ufuncs.irfft, a, axis, size, norm, _blank(a, axis, size, np.float32))
    return np.fft.irfft(a, size, axis=axis, norm=_INVERSE[norm])


def _blank(a: Array, axis: int, n: int, dtype: Any) -> Array:
    shape = list(a.shape)
    shape[axis] = n
    return np.empty_like(a, dtype=dtype, shape=tuple(shape))


def _run(run: Any, a: Array, axis: int, n: int, norm: str, out: Array) -> Array:
    factor: Any = _SINGLE.type(1)
    if norm != "none":
        factor = np.reciprocal(np.sqrt(n, dtype=_SINGLE) if norm == "ortho" else n, dtype=_SINGLE)
    made: Array = run(a, factor, axes=[(axis,), (), (axis,)], out=out)
    return made
