"""torch.version. The version says which PyTorch this behaves as, and which skimp it is."""

from __future__ import annotations

import re
from typing import Any, Final

VERSION = "0.1.0"  # of the package
BEHAVES_AS: Final = "2.13.0"


class TorchVersion(str):
    """A version that is compared by its numbers: with other versions, and with tuples of
    numbers; as text with what is no version ("parrots").
    """

    __slots__ = ()

    def _pair(self, other: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        mine, others = _numbers(self), _numbers(other)
        if not (mine and others):
            return (str(self),), (str(other),)
        n = max(len(mine), len(others))
        return mine + (0,) * (n - len(mine)), others + (0,) * (n - len(others))

    def __lt__(self, other: Any) -> bool:
        a, b = self._pair(other)
        return a < b

    def __le__(self, other: Any) -> bool:
        a, b = self._pair(other)
        return a <= b

    def __gt__(self, other: Any) -> bool:
        a, b = self._pair(other)
        return a > b

    def __ge__(self, other: Any) -> bool:
        a, b = self._pair(other)
        return a >= b

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, (str, tuple, list)):
            return False
        a, b = self._pair(other)
        return a == b

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = str.__hash__


def _numbers(version: Any) -> tuple[int, ...]:
    """The release's numbers: what a suffix says does not count. None of what is no version."""
    if isinstance(version, (tuple, list)):
        return tuple([int(n) for n in version])
    found = re.match(r"\s*v?(\d+(?:\.\d+)*)", str(version))
    return () if found is None else tuple([int(n) for n in found[1].split(".")])


__version__: Final = TorchVersion(f"{BEHAVES_AS}+skimp{VERSION}")
debug = False
cuda: str | None = None
hip: str | None = None
xpu: str | None = None
git_version = "unknown"
