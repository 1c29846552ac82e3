"""How ops cast their inputs while autocast is on: the row says into which class it falls.

    lower    products and convolutions: autocast's type
    float32  losses, transforms, factorizations: float32
    widest   joins: float32 if one of them is, else autocast's type

These are PyTorch's classes for the CPU. einsum and what follows it are there made of such ops, and
here not, so they are of the class too. While autocast is off everywhere, no op is asked.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from skimp._engine.dispatch.transforms import AUTOCAST, TRANSFORMS, Call, active
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp.amp.state import check, state


class _Inside(threading.local):
    now = False


_inside = _Inside()


class Autocast:
    """The transform: arguments cast, and what the op is made of left alone."""

    def concerns(self, call: Call) -> bool:
        return (
            call.op.autocast is not None
            and state.enabled["cpu"]
            and not _inside.now
            and call.kwargs.get("out") is None
            and not call.form.writes
        )

    def run(self, call: Call) -> Any:
        cast = CLASSES[call.op.autocast or ""]
        change = cast((*call.args, *call.kwargs.values()))
        args = tuple([_each(a, change) for a in call.args])
        kwargs = {k: _each(v, change) for k, v in call.kwargs.items()}
        _inside.now = True
        try:
            return call.below(args, kwargs)
        finally:
            _inside.now = False


# -- casting --------------------------------------------------------------------------------------


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, _HOLDS) for v in value):
        return type(value)([_each(v, change) for v in value])
    return value


_HOLDS = (Tensor, list, tuple)


def _eligible(t: Tensor) -> bool:
    return t.dtype.is_floating_point and t.dtype is not dtypes.float64


def to_lower(values: Any) -> Callable[[Tensor], Tensor]:
    """Cast to autocast's type."""
    dtype = state.dtype["cpu"]
    return lambda t: cached(t, dtype) if _eligible(t) else t


def lowered(value: Any) -> Any:
    """Cast to autocast's type, in containers too."""
    return _each(value, to_lower(())) if value is not None else None


def to_float32(values: Any) -> Callable[[Tensor], Tensor]:
    """Cast to float32."""
    return lambda t: cast_to(t, dtypes.float32) if _eligible(t) else t


def to_widest(values: Any) -> Callable[[Tensor], Tensor]:
    """Cast to float32 if one of them is, else to autocast's type."""
    dtype = state.dtype["cpu"]
    if any(t.dtype is dtypes.float32 for t in _tensors(values)):
        dtype = dtypes.float32
    return lambda t: cached(t, dtype) if _eligible(t) else t


def _tensors(values: Any) -> Iterator[Tensor]:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _tensors(v)


def cast_to(t: Tensor, dtype: dtypes.dtype) -> Tensor:
    return t if t.dtype is dtype else t.to(dtype)


def cached(t: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The cast tensor; a weight's is kept until the outermost region ends."""
    if t.dtype is dtype:
        return t
    keep = (
        state.cache
        and t._rg
        and t._skimp_node is None
        and t._base is None
        and t.dtype is dtypes.float32
    )
    if not keep or dtype is dtypes.float32:
        return cast_to(t, dtype)
    known = state.casts.get(id(t))
    if known is not None and known[0]() is t and known[1].dtype is dtype:
        return known[1]  # type: ignore[no-any-return]
    found = cast_to(t, dtype)
    state.casts[id(t)] = weakref.ref(t), found
    return found


CLASSES: dict[str, Callable[[Any], Callable[[Tensor], Tensor]]] = {
    "lower": to_lower,
    "float32": to_float32,
    "widest": to_widest,
}
TRANSFORMS[AUTOCAST] = Autocast()


# -- the switch -----------------------------------------------------------------------------------


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch autocast on or off."""
    where, on = (
        ("cuda", bool(device_type)) if enabled is None else (check(str(device_type)), enabled)
    )
    was, state.enabled[where] = state.enabled[where], on
    if where == "cpu" and on and not was:  # one step with the line above, in either case
        active[:0] = ("autocast",)
    elif where == "cpu" and was and not on:
        active.remove("autocast")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switch autocast on or off for the CPU."""
    set_autocast_enabled("cpu", enabled)
