"""Names of ops stand in the ops' rows: no list of them anywhere else, which could disagree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import skimp  # noqa: F401  (declares the rows)
from skimp._engine.dispatch.row import METHODS, NAMESPACES, OPS

ROOT = Path(__file__).parents[2]
MANY = 12  # names of ops in one collection are a list of ops
NAMES = {*OPS, *METHODS, *(name for space in NAMESPACES.values() for name in space)}
# Collections that are none, by file and what comes first in them.
ALLOWED = {
    # the loops that declare these very rows, which differ in little but their names
    ("src/skimp/_ops/math/special.py", "airy_ai"),
    ("src/skimp/_ops/math/special.py", "chebyshev_polynomial_t"),
    # what files may name when they are loaded: reviewed one by one, so no new op is among them
    ("src/skimp/serialization/functions.py", "adaptive_avg_pool1d"),
    ("src/skimp/serialization/functions.py", "abs"),
    # functions of NumPy and PyTorch itself, for reports on programs that run on PyTorch
    ("src/skimp/lens/stacks.py", "zeros"),
    ("src/skimp/lens/pytorch/copies.py", "clone"),
}


def strings_of(node: ast.AST) -> list[str]:
    """What a collection that is written out holds: its strings, its keys, the first strings of its
    tuples, and those of collections that are spread in it; the words of a text that is little else
    than names.
    """
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            firsts = [e.elts[0] if isinstance(e, ast.Tuple) and e.elts else e for e in elements]
            spread = [e.value for e in elements if isinstance(e, ast.Starred)]
        case ast.Dict(keys=keys, values=values):
            firsts = [key for key in keys if key is not None]
            spread = [v for key, v in zip(keys, values, strict=True) if key is None]
        case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[names, *_]):
            return strings_of(names)
        case ast.Constant(value=str(text)):
            words = text.replace(",", " ").split()
            return words if 2 * len(NAMES.intersection(words)) > len(words) else []
        case _:
            return []
    found = [e.value for e in firsts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    return found + [name for each in spread for name in strings_of(each)]


def lists_in(text: str) -> Iterator[tuple[int, list[str]]]:
    """The line and the names of each collection of many ops; `__all__`, which is a module's public
    names, is none.
    """
    tree = ast.parse(text)
    public = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    }
    for node in ast.walk(tree):
        names = strings_of(node) if id(node) not in public else []
        if len([name for name in names if name in NAMES]) >= MANY:
            yield node.lineno, names  # type: ignore[attr-defined]


FILES = [p for folder in ("src/skimp", "tools") for p in sorted((ROOT / folder).rglob("*.py"))]


def test_there_is_no_second_list_of_ops() -> None:
    found = [
        (str(path.relative_to(ROOT)), names[0], line)
        for path in FILES
        for line, names in lists_in(path.read_text())
    ]
    second = [f"{file}:{line}: {name}, ..." for file, name, line in found]
    allowed = [(file, name) for file, name, _ in found if (file, name) in ALLOWED]
    assert len(second) == len(allowed), "\n".join(second)
    assert set(allowed) == ALLOWED, "what is allowed is still there"


WORDS = sorted(set(METHODS) - {name for name in METHODS if name.startswith("_")})[:MANY]


@pytest.mark.parametrize(
    "text",
    [
        f"x = {WORDS}",
        f"x = {tuple(WORDS)}",
        f"x = frozenset({{{str(WORDS)[1:-1]}}})",
        f"for name, f in {tuple((word, 1) for word in WORDS)}: pass",
        f"x = {dict.fromkeys(WORDS, 1)}",
        f"x = '{' '.join(WORDS)}'",
        f"x = [*{WORDS[:6]}, *{WORDS[6:]}]",
        f"x = {{**dict.fromkeys({WORDS[:6]}, 1), **dict.fromkeys({tuple(WORDS[6:])}, 2)}}",
    ],
)
def test_a_list_that_comes_back_is_found(text: str) -> None:
    assert [sorted(names) for _, names in lists_in(text)] == [WORDS]
    assert list(lists_in(text.replace(WORDS[0], "nobody"))) == []
    assert list(lists_in(f"__all__ = {WORDS}")) == []
