"""Files that are written whole or not at all, and files as programs name them."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from typing import IO, Any, Final

try:
    import fcntl
except ImportError:  # Windows, where an open file can't be removed anyway
    fcntl = None  # type: ignore[assignment]

SUFFIX: Final = ".skimp-tmp"
LEFT: Final = 3600  # seconds after which a file that nobody writes is left behind
_NAME: Final = re.compile(r"\..+\.[0-9a-f]{12}" + re.escape(SUFFIX))


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
        with open(target, "wb") as device:
            yield device
        return
    folder, name = os.path.split(target)
    beside = os.path.join(folder, f".{name}.{os.urandom(6).hex()}{SUFFIX}")
    clear_left_behind(folder)
    with _refusals(path):
        file, has_name = _opened(folder, beside)
    try:
        with file:
            yield file
            file.flush()
            if not has_name:
                _give_name(file, folder, beside)
        if mode is not None:
            os.chmod(beside, stat.S_IMODE(mode))
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(beside)
        raise


def _opened(folder: str, beside: str) -> tuple[IO[bytes], bool]:
    """A file for writing in a folder, and whether it has a name already.

    Where the system can, it has none: what a process that is killed was writing is then gone with
    it. Elsewhere it is locked, by which others see that its writer lives.
    """
    if hasattr(os, "O_TMPFILE") and os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            return open(os.open(folder or ".", os.O_TMPFILE | os.O_WRONLY, 0o666), "wb"), False
    named = open(beside, "xb")  # noqa: SIM115  (the caller closes it)
    if fcntl is not None:
        fcntl.flock(named.fileno(), fcntl.LOCK_EX)
    return named, True


def _give_name(file: IO[bytes], folder: str, beside: str) -> None:
    """Link a file without a name; the folder's descriptor is for Python, which else follows no
    link of /proc.
    """
    place = os.open(folder or ".", os.O_RDONLY)
    try:
        os.link(f"/proc/self/fd/{file.fileno()}", beside, src_dir_fd=place, follow_symlinks=True)
    finally:
        os.close(place)


def clear_left_behind(folder: str) -> None:
    """Remove what saves that were killed have left in a folder: our files that nobody has written
    to for an hour and nobody holds.
    """
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        for entry in entries:
            if not _NAME.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            _remove_if_left(entry.path)


def _remove_if_left(path: str) -> None:
    with contextlib.suppress(OSError):
        if time.time() - os.stat(path).st_mtime < LEFT:
            return
        with open(path, "rb") as file:
            if fcntl is not None:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)


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
            f"{error}. You can only torch.load from a file that is seekable. Please pre-load the "
            "data into a buffer like io.BytesIO and try to load from it instead."
        ) from error
    yield f
