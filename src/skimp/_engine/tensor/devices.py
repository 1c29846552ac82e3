"""Where tensors live: PyTorch's `device` on the backends that exist."""

from __future__ import annotations

from typing import Any

from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.interrupts import insist
from skimp._engine.tensor import missing_backend as missing
from skimp._engine.tensor.regions import active

_TYPES = (
    "cpu", "cuda", "meta", "mps", "xpu", "ipu", "hpu", "mtia", "xla", "vulkan", "privateuseone",
)  # fmt: skip


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
        elif isinstance(type, int) and not isinstance(type, bool):
            raise missing.unnumbered(type)
        elif isinstance(type, str):
            given = type
        else:
            raise TypeError(
                "device() received an invalid combination of arguments - got "
                f"({type.__class__.__name__})"
            )
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
            if index >= 1 << 31:
                raise RuntimeError(
                    f"Could not parse device index '{number}' in device string '{given}'"
                )
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
        self._previous[:0] = (_default.device,)
        try:
            _make_default(self)
        except BaseException:
            self.__exit__()
            raise
        return self

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        before = self._previous[0]
        del self._previous[0]
        insist(_make_default, before)


class _Default:
    device: device | None = None


_default = _Default()
CPU = device("cpu")
META = device("meta")


def check(where: Any) -> device:
    """The device that `where` names (None: the default one), if there are bytes; one clear error if
    not.
    """
    found = place(where)
    if found is not CPU:
        raise missing.refused(found)
    return CPU


def place(where: Any) -> device:
    """The device that `where` names (None: the default one), if tensors can be made there, with
    bytes (CPU) or without (META); one clear error if not.
    """
    if where is None:
        found = _default.device
        if found is None:
            return CPU
    else:
        found = where if isinstance(where, device) else device(where)
    if found.type == "cpu":
        return CPU
    if found.type == "meta":
        return META
    raise missing.refused(found)


def set_default_device(where: Any) -> None:
    """Tensors made without `device=` live here from now on (None: the CPU)."""
    _make_default(None if where is None else device(where))


def _make_default(where: device | None) -> None:
    """From here on; fast paths make tensors on the CPU, and are off where that is not the one."""
    found = _default.device
    was = found is not None and found.type != "cpu"
    now = where is not None and where.type != "cpu"
    _default.device = where
    if now and not was:  # one step with the line above, in either case
        active[:0] = ("device",)
    elif was and not now:
        active.remove("device")


def get_default_device() -> device:
    """Where tensors made without `device=` live."""
    return _default.device or CPU
