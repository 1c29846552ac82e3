"""Functions written as text, compiled: the one place where the package makes code.

Who needs a function for a signature or a plan (an op's public form, an `__init__` of declared
options, a recorder without loops) writes its lines and gives them here. Frames of files named
"<skimp ..." are the package's own; their lines stand in `linecache`, where tracebacks, debuggers
and `inspect.getsource` look.

What an import compiles is kept beside this module's own bytecode, as Python keeps that: the next
import reads it in a tenth of the time. It is kept where Python would write bytecode, and nowhere
else; a file of another version, or one that is not whole, is as good as none.
"""

from __future__ import annotations

import contextlib
import linecache
import marshal
import os
import sys
from importlib.util import MAGIC_NUMBER, cache_from_source
from types import CodeType, FunctionType
from typing import Any
from zlib import crc32

_made: dict[str, int] = {}


def compiled(name: str, text: list[str], space: dict[str, Any], kind: str = "") -> Any:
    """The function `name` that the lines define, with `space` for its globals."""
    title = f"{kind}{name}"
    number = _made[title] = _made.get(title, 0) + 1
    file = f"<skimp {title}>" if number == 1 else f"<skimp {title} {number}>"
    source = "\n".join(text)
    exec(compile(source, file, "exec"), space)
    linecache.cache[file] = (len(source), None, [f"{line}\n" for line in text], file)
    return space[name]


_codes: dict[str, CodeType] = {}
_kept: dict[str, CodeType] = {}  # what an earlier import compiled


def function_of(title: str, text: list[str], space: dict[str, Any]) -> FunctionType:
    """The function that the lines (`def function(...):` first) define, called `title`.

    Functions of the same text share their code, which takes longer to compile than all else:
    defaults, and what a text calls by name, are a function's own.
    """
    source = "\n".join(text) + "\n"
    code = _codes.get(source)
    if code is None:
        file = f"<skimp op {crc32(source.encode()):08x}>"
        code = _codes[source] = _kept.get(source) or _code_of(source, file)
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    f = FunctionType(code.replace(co_name=title, co_qualname=title), space, title)
    f.__qualname__ = title
    return f


def _code_of(source: str, file: str) -> CodeType:
    module = compile(source, file, "exec")
    return next(c for c in module.co_consts if isinstance(c, CodeType))


def _place() -> str:
    """The file of what is kept: beside this module's bytecode."""
    return cache_from_source(__file__).removesuffix(".pyc") + ".texts"


def recall() -> None:
    """Read what an earlier import kept, before the first text."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError, NotImplementedError):
        with open(_place(), "rb") as file:
            check, data = file.read(_CHECK), file.read()
        if check == _check_of(data):
            _kept.update(marshal.loads(data))


def keep() -> None:
    """Write what this import used, after the last text, if any of it had to be compiled."""
    if sys.dont_write_bytecode or _codes.keys() <= _kept.keys():
        return
    data = marshal.dumps(_codes)
    with contextlib.suppress(OSError, NotImplementedError):  # as for bytecode: it is kept, or not
        place = _place()
        part = f"{place}.{os.getpid()}"
        with open(part, "xb") as file:
            file.write(_check_of(data) + data)
        os.replace(part, place)


def _check_of(data: bytes) -> bytes:
    return MAGIC_NUMBER + crc32(data).to_bytes(4, "little")


_CHECK = len(_check_of(b""))
recall()
