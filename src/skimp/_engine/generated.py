"""Functions written as text, compiled: the one place where the package makes code.

Who needs a function for a signature or a plan (an op's public form, an `__init__` of declared
options, a recorder without loops) writes its lines and gives them here. Frames of files named
"<skimp ..." are the package's own; their lines stand in `linecache`, where tracebacks, debuggers
and `inspect.getsource` look.

What an import compiles is kept beside this module's own bytecode, as Python keeps that: the next
import reads it in a tenth of the time. What a program compiles after that (how its ops are recorded
and run backwards) is kept too, a file for each text, which is read when it is asked for: parsing
takes a millisecond or two, and 100 bytes for each character while it lasts. It is kept where
Python would write bytecode, and nowhere else; a file of another version, or one that is not whole,
is as good as none.
"""

from __future__ import annotations

import contextlib
import linecache
import marshal
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import MAGIC_NUMBER, cache_from_source
from io import FileIO  # `open` is gone when finalizers run at the interpreter's end
from types import CodeType, FunctionType
from typing import Any
from zlib import crc32

_made: dict[str, int] = {}


def compiled(name: str, text: list[str], space: dict[str, Any], kind: str = "") -> Any:
    """The function `name` that the lines define, with `space` for its globals."""
    title = f"{kind}{name}"
    number = _made[title] = _made.get(title, 0) + 1
    file = f"<skimp {title}>" if number == 1 else f"<skimp {title} {number}>"
    source = "\n".join(text) + "\n"
    exec(_known(source).get(file) or _whole(file, source), space)
    _remember(file, source)
    return space[name]


class _Lines(Sequence[str]):
    """The lines of a text, split when somebody reads them: 900 texts take 1.8 MiB as lists."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __getitem__(self, at: Any) -> Any:
        return self.text.splitlines(True)[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self.text.splitlines(True))

    def __len__(self) -> int:
        return self.text.count("\n")


def _remember(file: str, source: str) -> None:
    known: Any = linecache.cache
    known[file] = (len(source), None, _Lines(source), file)


def text_of(code: CodeType) -> str:
    """The text that a function's code was compiled from here; nothing of one in a file."""
    known: Any = linecache.cache.get(code.co_filename)
    lines = known[2] if known is not None and len(known) > 2 else None  # 1: a file that may be read
    return lines.text if isinstance(lines, _Lines) else ""


Codes = dict[str, dict[str, CodeType]]  # by text, and then by title
_codes: Codes = {}
_kept: Codes = {}  # what an earlier import compiled and this one has not asked for
_compiled: dict[str, CodeType] = {}  # by text, before they have a title


def function_of(title: str, text: list[str], space: dict[str, Any]) -> FunctionType:
    """The function that the lines (`def function(...):` first) define, called `title`.

    Functions of the same text are compiled once, which takes longer than all else: defaults, and
    what a text calls by name, are a function's own.
    """
    source = "\n".join(text) + "\n"
    if source not in _codes:
        _remember(_file_of(source), source)
    code = _known(source).get(title) or _named(title, source)
    f = FunctionType(code, space, title)
    f.__qualname__ = title
    return f


def late_function(
    title: str, lines: Callable[[dict[str, Any]], list[str]], space: dict[str, Any]
) -> FunctionType:
    """`function_of`, of lines that are made of `space` when the function is first called, and may
    put there what they name: of a thousand public functions a program calls a few.
    """
    f = FunctionType(FIRST_CALL, space, title)
    f.__qualname__ = title
    space.update(_skimp_made=_made_now, _skimp_late=(f, lines))
    return f


def ready(f: FunctionType) -> FunctionType:
    """The function, made of its lines if it was not called yet."""
    return _made_now(f.__globals__["_skimp_late"]) if f.__code__ is FIRST_CALL else f


def _made_now(late: tuple[FunctionType, Callable[[dict[str, Any]], list[str]]]) -> FunctionType:
    f, lines = late
    space = f.__globals__
    f.__code__ = function_of(f.__name__, lines(space), space).__code__  # the last that is done
    return f


def _when_first_called(*args: Any, **kwargs: Any) -> Any:
    return _skimp_made(_skimp_late)(*args, **kwargs)


_skimp_made: Any = None  # of the function that has this code, among its own globals
_skimp_late: Any = None
FIRST_CALL = _when_first_called.__code__


def _known(source: str) -> dict[str, CodeType]:
    """The code of a text, by the titles that it has had in this import or the one before."""
    titled = _codes.get(source)
    if titled is None:
        titled = _codes[source] = _kept.pop(source, {})
    return titled


def _named(title: str, source: str) -> CodeType:
    """The code of the text's one function, under its title."""
    code = _compiled.get(source)
    if code is None:
        code = _recalled(source)
    if code is None:
        module = compile(source, _file_of(source), "exec")
        code = next(c for c in module.co_consts if isinstance(c, CodeType))
        _write_later(source, code)
    _compiled[source] = code
    titled = _codes[source][title] = code.replace(co_name=title, co_qualname=title)
    return titled


def _whole(file: str, source: str) -> CodeType:
    """The code of all of the text, in a file of its own."""
    text = f"{file}\n{source}"
    code = _recalled(text)
    if code is None:
        code = compile(source, file, "exec")
        _write_later(text, code)
    _compiled[text] = _codes[source][file] = code
    return code


def _write_later(text: str, code: CodeType) -> None:
    """Keep what a program compiles once an import is over."""
    if _single:
        _write(_place_of(text), marshal.dumps((text, code)))


def _recalled(text: str) -> CodeType | None:
    """What an earlier program has kept of the text; None before an import is over."""
    found = _read(_place_of(text)) if _single else None
    return found[1] if found and found[0] == text else None


def _file_of(source: str) -> str:
    return f"<skimp op {crc32(source.encode()):08x}>"


_single: list[str] = []  # the folder of texts that are kept one by one, once an import is over


def _place() -> str:
    """The file of what is kept: beside this module's bytecode."""
    return cache_from_source(__file__).removesuffix(".pyc") + ".texts"


def _place_of(source: str) -> str:
    return f"{_single[0]}/{crc32(source.encode()):08x}"


def recall() -> None:
    """Read what an earlier import kept, before the first text."""
    with contextlib.suppress(NotImplementedError):
        _kept.update(_read(_place()) or {})


def keep() -> None:
    """Write what this import used, after the last text, if any of it had to be compiled; what was
    kept one by one is of another version then. What comes later shares its code with none of it.
    """
    codes, whole = dict(_codes), not _compiled
    for known in (_codes, _kept, _compiled):
        known.clear()
    with contextlib.suppress(NotImplementedError):
        place = _place()
        _single.append(f"{place}.later")
        if not whole and not sys.dont_write_bytecode:
            _write(place, marshal.dumps(codes))
            with contextlib.suppress(OSError):
                for name in os.listdir(_single[0]):
                    os.unlink(f"{_single[0]}/{name}")


def _read(place: str) -> Any:
    """What `_write` has written there; None where there is none of this version."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError), FileIO(place) as file:
        check, data = file.read(_CHECK), file.read()
        if check == _check_of(data):
            return marshal.loads(data)
    return None


def _write(place: str, data: bytes) -> None:
    """Write it, or nothing, as for bytecode; whoever reads finds the whole file or none."""
    if sys.dont_write_bytecode:
        return
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        part = f"{place}.{os.getpid()}"
        with FileIO(part, "x") as file:
            file.write(_check_of(data) + data)
        os.replace(part, place)


def _check_of(data: bytes) -> bytes:
    return MAGIC_NUMBER + _FORM + crc32(data).to_bytes(4, "little")


_FORM = b"by text and title"
_CHECK = len(_check_of(b""))
recall()
