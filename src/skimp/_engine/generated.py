"""Functions written as text, compiled: the one place where the package makes code.

Who needs a function for a signature or a plan (an op's public form, an `__init__` of declared
options, a recorder without loops) writes its lines and gives them here. Frames of files named
"<skimp ..." are the package's own; their lines stand in `linecache`, where tracebacks, debuggers
and `inspect.getsource` look.
"""

from __future__ import annotations

import linecache
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
