"""Settings of PyTorch's that are accepted, can be read back, and change nothing: results here
depend on no setting.
"""

from __future__ import annotations

from skimp.config import config

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode",
    "get_float32_matmul_precision", "get_num_interop_threads",
    "is_deterministic_algorithms_warn_only_enabled", "is_warn_always_enabled",
    "set_deterministic_debug_mode", "set_float32_matmul_precision", "set_flush_denormal",
    "set_num_interop_threads", "set_warn_always", "use_deterministic_algorithms",
]  # fmt: skip
MODES = {"default": 0, "warn": 1, "error": 2}
PRECISIONS = ("highest", "high", "medium")


class _Switches:
    deterministic = 0
    precision = "highest"
    warn_always = False
    interop: int | None = None


_now = _Switches()


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Accepted: every op is deterministic anyway."""
    _now.deterministic = 0 if not mode else 1 if warn_only else 2


def are_deterministic_algorithms_enabled() -> bool:
    """What was asked for."""
    return _now.deterministic > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What was asked for."""
    return _now.deterministic == 1


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 or "default", 1 or "warn", 2 or "error".

    Raises: RuntimeError for another mode.
    """
    found = MODES.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if found not in MODES.values():
        raise RuntimeError(
            "invalid value of debug_mode, expected `default`, `warn`, or `error`, but got "
            f"{debug_mode}"
        )
    _now.deterministic = found


def get_deterministic_debug_mode() -> int:
    """What was asked for, as a number."""
    return _now.deterministic


def set_float32_matmul_precision(precision: str) -> None:
    """Accepted: products of float32 are always computed in float32.

    Raises: RuntimeError for a precision of another name.
    """
    if precision not in PRECISIONS:
        raise RuntimeError(
            f"Invalid float32 matmul precision {precision!r}; it is one of {', '.join(PRECISIONS)}"
        )
    _now.precision = precision


def get_float32_matmul_precision() -> str:
    """What was asked for."""
    return _now.precision


def set_warn_always(b: bool, /) -> None:
    """Accepted: Python's filters decide how often a warning is shown."""
    _now.warn_always = b


def is_warn_always_enabled() -> bool:
    """What was asked for."""
    return _now.warn_always


def set_flush_denormal(mode: bool) -> bool:
    """Whether denormal numbers can be flushed to zero: they can't."""
    return False


def set_num_interop_threads(threads: int) -> None:
    """Accepted: ops run one after the other.

    Raises: RuntimeError for less than one.
    """
    if threads < 1:
        raise RuntimeError("Expected positive number of threads")
    _now.interop = threads


def get_num_interop_threads() -> int:
    """What was asked for."""
    return _now.interop or config.threads
