"""torch.testing: values compared with the tolerances of their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from skimp._compat.finder import join as _join
from skimp._compat.modules import lookup as _lookup
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.promotion import promote_types
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import as_tensor
from skimp.testing.making import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
__getattr__ = _lookup(__name__)

_TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}
_WIDE = {0: np.int64, 1: np.int64, 2: np.float64, 3: np.complex128}  # by category


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise an AssertionError that says where `actual` is not close to `expected`.

    Both may be tensors, arrays, numbers, or containers of these. The tolerances are those of the
    types unless both are given.

    Raises: AssertionError where they differ, TypeError for what can't be compared, ValueError for
    one tolerance without the other.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            f"rtol and atol must both be specified or both be unspecified, but got rtol={rtol} and "
            f"atol={atol}"
        )
    attributes = [
        name for name, asked in (("dtype", check_dtype), ("stride", check_stride)) if asked
    ]
    try:
        _compare(actual, expected, [], rtol, atol, equal_nan, attributes)
    except AssertionError as error:
        text = str(error)
        raise AssertionError(text if msg is None else msg(text) if callable(msg) else msg) from None


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """The old name of `assert_close`, which looks at the values only."""
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_dtype=False,
        check_device=True,
        msg=msg or None,
    )


def _compare(a: Any, b: Any, path: list[Any], *how: Any) -> None:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        _same_keys(a, b, path)
        for key in b:
            _compare(a[key], b[key], [*path, key], *how)
    elif (
        isinstance(a, Sequence)
        and isinstance(b, Sequence)
        and not isinstance(a, str)
        and not isinstance(b, str)
    ):
        if len(a) != len(b):
            raise AssertionError(
                _at(f"The length of the sequences mismatch: {len(a)} != {len(b)}", path)
            )
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            _compare(x, y, [*path, i], *how)
    elif a is None or b is None:
        if a is not b:
            raise AssertionError(_at(f"None mismatch: {a} is not {b}", path))
    else:
        _compare_values(a, b, path, *how)


def _same_keys(a: Mapping[Any, Any], b: Mapping[Any, Any], path: list[Any]) -> None:
    lines = [
        f"{title} {sorted(keys, key=str)!r}"
        for title, keys in (
            ("Missing keys in the actual mapping:", b.keys() - a.keys()),
            ("Additional keys in the actual mapping:", a.keys() - b.keys()),
        )
        if keys
    ]
    if lines:
        raise AssertionError(
            _at("\n".join(["The keys of the mappings do not match:", *lines]), path)
        )


def _compare_values(
    a: Any,
    b: Any,
    path: list[Any],
    rtol: Any,
    atol: Any,
    equal_nan: bool,
    attributes: Iterable[str],
) -> None:
    numbers = (int, float, complex, np.number, np.bool_)
    arrays = (Tensor, np.ndarray, np.number, np.bool_)
    tensors = isinstance(a, arrays) and isinstance(b, arrays)
    if not tensors and not (isinstance(a, numbers) and isinstance(b, numbers)):
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}."
        )
    x, y = (
        (_number(a), _number(b)) if not tensors else (as_tensor(a).detach(), as_tensor(b).detach())
    )
    if tensors:
        _same_attributes(x, y, ("shape", *attributes), path)
    if rtol is None:
        pairs = [_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (x, y)]
        rtol, atol = (max(values) for values in zip(*pairs, strict=True))
    wide = _WIDE[max(x.dtype.category, y.dtype.category)]
    report = _difference(x, y, wide, rtol, atol, equal_nan, tensors)
    if report is not None:
        raise AssertionError(_at(report, path))


def _number(value: Any) -> Tensor:
    return as_tensor(value, dtype=dtypes.float64 if isinstance(value, float) else None)


def _same_attributes(a: Tensor, b: Tensor, names: Iterable[str], path: list[Any]) -> None:
    for name in names:
        x, y = (v() if callable(v) else v for v in (getattr(a, name), getattr(b, name)))
        if x != y:
            raise AssertionError(
                _at(f"The values for attribute '{name}' do not match: {x} != {y}.", path)
            )


def _difference(
    x: Tensor, y: Tensor, wide: Any, rtol: float, atol: float, equal_nan: bool, tensors: bool
) -> str | None:
    """What to say about values that are not close."""
    a, b = x._skimp_array().astype(wide), y._skimp_array().astype(wide)
    close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    if close.all():
        return None
    exact = rtol == 0 and atol == 0
    absolute, relative = [np.where(close, 0, d._skimp_array()) for d in _distances(x, y, tensors)]
    how = "equal" if exact else "close"

    def bound(limit: float) -> str:
        return "" if exact else f" (up to {limit} allowed)"

    if not tensors or a.ndim == 0:
        return (
            f"Scalars are not {how}!\n\nExpected {b.item()} but got {a.item()}.\n"
            f"Absolute difference: {absolute.item()}{bound(atol)}\n"
            f"Relative difference: {relative.item()}{bound(rtol)}"
        )
    wrong = int((~close).sum())
    lines = [
        f"Tensor-likes are not {how}!\n",
        f"Mismatched elements: {wrong} / {a.size} ({wrong / a.size:.1%})",
    ]
    for title, values, limit in (("absolute", absolute, atol), ("relative", relative, rtol)):
        where = np.unravel_index(int(values.argmax()), values.shape)
        place = tuple([int(i) for i in where])
        lines.append(
            f"Greatest {title} difference: {values[where].item()} at index {place}{bound(limit)}"
        )
    return "\n".join(lines)


def _distances(x: Tensor, y: Tensor, tensors: bool) -> tuple[Tensor, Tensor]:
    """Absolute and relative differences, computed in the tensors' own type, or as Python would."""
    common = promote_types(x.dtype, y.dtype)
    absolute: Tensor
    if not tensors:
        absolute = (x - y).abs()
        return absolute, absolute.double() / y.abs()
    if common.category < dtypes.FLOAT:
        common = dtypes.int64
    x, y = x.to(common), y.to(common)
    absolute = (x - y).abs()
    return absolute, absolute / y.abs()


def _at(text: str, path: list[Any]) -> str:
    return (
        text
        if not path
        else f"{text}\n\nThe failure occurred for item {''.join(f'[{p!r}]' for p in path)}"
    )


_join()
