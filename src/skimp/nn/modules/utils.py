"""Numbers that stand for one per dimension."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any


def ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function of this name that repeats a single value n times, and leaves sequences as
    tuples.
    """

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


single, pair, triple, quadruple = ntuple(1), ntuple(2), ntuple(3), ntuple(4)
_single, _pair, _triple, _quadruple = (
    single,
    pair,
    triple,
    quadruple,
)  # the names that programs import


def reverse_repeat_tuple(t: Sequence[Any], n: int) -> tuple[Any, ...]:
    """Each value n times, the last dimension first: the order in which padding is written."""
    return tuple(x for x in reversed(t) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Strip the prefix from the keys that begin with it, in place, and from the versions' keys."""
    _strip(state_dict, prefix)
    versions = getattr(state_dict, "_metadata", None)
    if versions is not None:
        if prefix[:-1] in versions and prefix.endswith("."):
            versions[""] = versions.pop(prefix[:-1])
        _strip(versions, prefix)


def _strip(named: dict[str, Any], prefix: str) -> None:
    for key in [key for key in named if key.startswith(prefix)]:
        named[key.removeprefix(prefix)] = named.pop(key)


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The `reduction` that a loss was asked for, in its old form or its new one."""
    if size_average is None and reduce is None:
        return reduction

    average, reduces = size_average in (None, True), reduce in (None, True)
    found = "none" if not reduces else "mean" if average else "sum"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{found}' instead.",
        stacklevel=4,
    )
    return found


def factory_kwargs(kwargs: dict[str, Any] | None) -> dict[str, Any]:
    """What `dtype`, `device` and `memory_format` ask for, by themselves or in `factory_kwargs`.

    Shape: none.
    Raises: TypeError for other names, or one given twice.
    """
    if kwargs is None:
        return {}
    names = {"device", "dtype", "memory_format"}
    unknown = kwargs.keys() - {"factory_kwargs"} - names
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    found = dict(kwargs.get("factory_kwargs", {}))
    for name in [n for n in kwargs if n in names]:
        if name in found:
            raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
        found[name] = kwargs[name]
    return found
