"""Where tensors live: PyTorch's `device` on the backends that exist."""

from __future__ import annotations

import contextlib
from typing import Any

from skimp._engine.tensor import missing_backend as missing

_TYPES = (
    "cpu",
    "cuda",
    "meta",
    "mps",
    "xpu",
    "ipu",
    "hpu",
    "mtia",
    "xla",
    "vulkan",
    "privateuseone",
)


class device:  # noqa: N801  (PyTorch's name)
    """A place for tensors: `device("cpu")`, `device("cuda", 0)`. Also a context that makes it the
    default.
    """

    __slots__ = ("_previous", "index", "type")
    type: str
    index: int | None

    def __init__(self, type: str | int | device = "cpu", index: int | None = None) -> None:
        if isinstance(type, device):
            given, index = type.type, type.index if index is None else index
        elif isinstance(type, int):
            given, index = "cuda", type
        else:
            given = str(type)
        name, _, number = given.partition(":")
        if name not in _TYPES:
            raise RuntimeError(
                f"Expected one of {', '.join(_TYPES)} device type at start of device string: "
                f"{given}"
            )
        if number:
            if index is not None:
                raise RuntimeError(
                    f"type (string) must not include an index because index was passed "
                    f"explicitly: {given}"
                )
            if not number.isdigit():
                raise RuntimeError(f"Invalid device string: '{given}'")
            index = int(number)
        if index is not None and index < 0:
            raise RuntimeError("Device index must not be negative")
        self.type = name
        self.index = index
        self._previous: list[device | None] = []

    def __repr__(self) -> str:
        return f"device(type='{self.type}'" + (
            f", index={self.index})" if self.index is not None else ")"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (self.type, self.index)

    def __enter__(self) -> device:
        self._previous.append(_default.device)
        _default.device = self
        return self

    def __exit__(self, *_: object) -> None:
        _default.device = self._previous.pop()


class _Default:
    device: device | None = None


_default = _Default()
CPU = device("cpu")


def check(where: Any) -> device:
    """The device that `where` names (None: the default one), if tensors can be made there; one
    clear error if not.
    """
    if where is None:
        found = _default.device
        if found is None:
            return CPU
    else:
        found = where if isinstance(where, device) else device(where)
    if found.type != "cpu":
        missing.refuse(found)
    return CPU


def set_default_device(where: Any) -> None:
    """Tensors made without `device=` live here from now on (None: the CPU)."""
    _default.device = None if where is None else device(where)


def get_default_device() -> device:
    return _default.device or CPU


def using(where: Any) -> contextlib.AbstractContextManager[device]:
    return device(where)
