"""The storage of tensors on the device "meta": as long as theirs would be, and no byte of it."""

from __future__ import annotations

from typing import Any, NoReturn

from skimp._engine.memory.storage import Storage, bare

NO_DATA = "Cannot copy out of meta tensor; no data!"
# whether the program has made one: asking for their tensors costs the others nothing
exist = [False]


class MetaStorage(Storage):
    """A number of bytes that are nowhere: nothing is counted, written or handed out.

    Whoever asks for them gets NotImplementedError.
    """

    def flat(self) -> NoReturn:
        raise NotImplementedError(NO_DATA)

    export = flat

    def address(self) -> int:
        return 0

    def will_write(self) -> None:
        """Nobody reads them."""

    def resize(self, nbytes: int, tensors: list[object] | None = None) -> None:
        self.size = nbytes

    def __deepcopy__(self, memo: dict[int, object]) -> MetaStorage:
        new = without_bytes(len(self))
        memo[id(self)] = new
        return new

    def __reduce__(self) -> tuple[object, ...]:
        return without_bytes, (len(self),)


def without_bytes(nbytes: int) -> MetaStorage:
    """A storage of that length."""
    exist[0] = True
    s: Any = bare(MetaStorage)
    s.size = nbytes
    return s  # type: ignore[no-any-return]
