"""Functions written as text, compiled: the one place where the package makes code.

Who needs a function for a signature or a plan (an op's public form, an `__init__` of declared
options, a recorder without loops) writes its lines and gives them here. Frames of files named
"<skimp ..." are the package's own; their lines stand in `linecache`, where tracebacks, debuggers
and `inspect.getsource` look.
"""

from __future__ import annotations

import linecache
from types import CodeType, FunctionType
from typing import Any

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


def function_of(title: str, text: list[str], space: dict[str, Any]) -> FunctionType:
    """The function that the lines (`def function(...):` first) define, called `title`.

    Functions of the same text share their code, which takes longer to compile than all else:
    defaults, and what a text calls by name, are a function's own.
    """
    source = "\n".join(text) + "\n"
    code = _codes.get(source)
    if code is None:
        file = f"<skimp op {len(_codes)}>"
        module = compile(source, file, "exec")
        code = next(c for c in module.co_consts if isinstance(c, CodeType))
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        _codes[source] = code
    f = FunctionType(code.replace(co_name=title, co_qualname=title), space, title)
    f.__qualname__ = title
    return f
