"""Files that are written whole or not at all, and files as programs name them."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO, Any


def is_path(f: Any) -> bool:
    return isinstance(f, (str, os.PathLike))


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file for writing that takes the place of `path` when the block ends without an error.

    Until then, and whatever happens, the old file stays. Pipes and devices are written directly.
    """
    target = os.path.realpath(os.fspath(path))
    mode = os.stat(target).st_mode if os.path.exists(target) else None
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as file:
            yield file
        return
    beside = os.path.join(
        os.path.dirname(target), f".{os.path.basename(target)}.{secrets.token_hex(6)}.tmp"
    )
    with _refusals(path):
        file = open(beside, "xb")  # noqa: SIM115  (closed below, on both ways out)
    try:
        with file:
            yield file
        if mode is not None:
            os.chmod(beside, stat.S_IMODE(mode))
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise


@contextlib.contextmanager
def _refusals(path: Any) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        folder = os.path.dirname(os.path.abspath(os.fspath(path)))
        raise RuntimeError(f"Parent directory {folder} does not exist.") from error


@contextlib.contextmanager
def reading(f: Any) -> Iterator[IO[bytes]]:
    """The open file of a path, or the file object itself."""
    if is_path(f):
        with open(f, "rb") as file:
            yield file
        return
    try:
        f.seek(f.tell())
    except (AttributeError, OSError) as error:
        raise AttributeError(
            f"{error}. You can only torch.load from a file that is seekable. Please "
            "pre-load the data into a buffer "
            "like io.BytesIO and try to load from it instead."
        ) from error
    yield f
