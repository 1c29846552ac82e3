"""What autocast is set to, for each thread."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from skimp._engine.tensor import dtypes

DEVICES = ("cpu", "cuda")


class State(threading.local):
    """One thread's settings, and the weights that it has cast since it entered the outermost
    region.
    """

    def __init__(self) -> None:
        self.enabled = dict.fromkeys(DEVICES, False)
        self.dtype = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}
        self.cache = True
        self.nesting = 0
        self.casts: dict[int, tuple[weakref.ref[Any], Any]] = {}


state = State()


def check(device_type: str) -> str:
    if device_type not in DEVICES:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
    return device_type


def is_autocast_available(device_type: str) -> bool:
    """Whether there is autocast for a type of device."""
    return device_type in DEVICES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on here."""
    return state.enabled[check(device_type)]


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """The type to which autocast casts."""
    return state.dtype[check(device_type)]


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Let autocast cast to another type."""
    state.dtype[check(device_type)] = dtype


def is_autocast_cache_enabled() -> bool:
    """Whether a weight is cast once in a region."""
    return state.cache


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Cast weights once in a region, or every time."""
    state.cache = enabled


def clear_autocast_cache() -> None:
    """Forget the weights that were cast."""
    state.casts.clear()


def autocast_increment_nesting() -> int:
    """One region more."""
    state.nesting += 1
    return state.nesting


def autocast_decrement_nesting() -> int:
    """One region less."""
    state.nesting -= 1
    return state.nesting


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU."""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> dtypes.dtype:
    """The type to which autocast casts on the CPU."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: dtypes.dtype) -> None:
    """Let autocast cast to another type on the CPU."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> dtypes.dtype:
    """The type to which autocast casts on a GPU."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: dtypes.dtype) -> None:
    """Let autocast cast to another type on a GPU."""
    set_autocast_dtype("cuda", dtype)
