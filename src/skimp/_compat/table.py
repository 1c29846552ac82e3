"""What names.txt says, as plain data: each module's names, and what each of them is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Set
from sys import intern
from typing import Final, NamedTuple

OURS, THEIRS = "skimp", "torch"


class Row(NamedTuple):
    """One name. `what` is a reason, an error with its message, a module or an expression; `name`
    is how the module of `from` and `own` calls it, or the arguments of a function.
    """

    verb: str  # refuse, raise, from, own, module, value or call
    what: str
    name: str = ""


class Module(NamedTuple):
    """A section of the file, without the lines of its Tensor; `builtins` are functions that bind
    nothing as attributes of classes.
    """

    doc: str
    rows: dict[str, Row]
    builtins: Set[str] = frozenset()


_LINE: Final = re.compile(
    r"\$(?P<word>\w+) = (?P<text>.+)"
    r"|\[(?P<module>[\w.]+)\] ?(?P<doc>.*)"
    r"|(?P<verb>refuse|raise|from|own|module|builtin)\b(?: (?P<what>[^|]+?))? \|(?P<names>.*)"
    r"|(?P<call>\w+)\((?P<arguments>.*)\) -> (?P<result>.+)"
    r"|(?P<value>\w+) = (?P<expression>.+)"
)


def read(text: str) -> dict[str, Module]:
    """The sections by our modules' names; a ValueError names a line that is none of the kinds."""
    words: dict[str, str] = {}
    found: dict[str, Module] = {}
    rows: dict[str, Row] = {}
    module = ""
    for line in _whole_lines(text):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"names.txt: what is {line!r}?")
        part = match.groupdict()
        if part["word"]:
            words[part["word"]] = part["text"]
        elif part["module"]:
            rows, module = {}, ours(part["module"])
            found[module] = Module(part["doc"], rows)
        elif part["call"]:
            rows[part["call"]] = Row("call", part["result"], part["arguments"])
        elif part["value"]:
            rows[part["value"]] = Row("value", part["expression"])
        elif part["verb"] == "builtin":
            more = found[module].builtins | set(part["names"].split())
            found[module] = found[module]._replace(builtins=more)
        else:
            what = re.sub(r"\$(\w+)", lambda m: words[m[1]], part["what"] or "")
            for each in part["names"].split():
                shown, _, name = map(intern, each.partition("="))
                rows[shown] = Row(intern(part["verb"]), what, name or shown)
    return found


def _whole_lines(text: str) -> Iterator[str]:
    """Lines without comments, joined with the indented ones below them."""
    joined = re.sub(r"\n +", " ", text)
    return (line for line in joined.splitlines() if line and not line.startswith("#"))


def ours(name: str) -> str:
    """The skimp module behind a torch module's name; any other name as it is."""
    if name == THEIRS or name.startswith(THEIRS + "."):
        return OURS + name[len(THEIRS) :]
    return name


def theirs(name: str) -> str:
    """The torch module's name that one of ours stands for; any other name as it is."""
    if name == OURS or name.startswith(OURS + "."):
        return THEIRS + name[len(OURS) :]
    return name


with open(os.path.join(os.path.dirname(__file__), "names.txt"), encoding="utf-8") as _file:
    MODULES: Final = read(_file.read())
# What Tensor lacks stands in the same file, though it is no module: {name: reason}.
METHODS: Final = {name: row.what for name, row in MODULES.pop(f"{OURS}.Tensor").rows.items()}
