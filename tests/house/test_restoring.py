"""What is restored is restored: no loop jumps back where its `finally` or `with` is not in force.

CPython 3.12 to 3.14 compile a jump back that ends an `if`, a `match` or an `assert`, or that a
`while` with a condition makes, into no `try` of its function, and look there for signals: an
interrupt leaves the lock locked, or gradients off (docs/notes/interrupts.md). Such a loop is a
function of its own, or has the form `if not wanted: continue`, or `while True`. A comprehension is
a loop of its function there: one with an `if` is in a function of its own, too.
"""

from __future__ import annotations

import ast
import dis
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "skimp"


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.GeneratorExp


def leaves(tail: ast.stmt) -> bool:
    """Whether a loop whose body ends so jumps back from the end of a branch."""
    if isinstance(tail, ast.Match | ast.Assert):
        return True
    if isinstance(tail, ast.If):
        return not tail.orelse or leaves(tail.body[-1]) or leaves(tail.orelse[-1])
    if isinstance(tail, ast.Try):
        return any(leaves(block[-1]) for block in (tail.body, tail.orelse) if block)
    return False


def is_endless(loop: ast.While) -> bool:
    return isinstance(loop.test, ast.Constant) and bool(loop.test.value)


def restores(node: ast.AST) -> bool:
    if isinstance(node, ast.Try):
        caught = [h.type for h in node.handlers]
        everything = any(t is None or "BaseException" in ast.unparse(t) for t in caught)
        return bool(node.finalbody) or everything
    return isinstance(node, ast.With)


def loops(node: ast.AST, inside: bool = False) -> Iterator[int]:
    """The lines of loops that may be left without what their function restores."""
    if isinstance(node, ast.For | ast.While) and inside:
        conditional = isinstance(node, ast.While) and not is_endless(node)
        if conditional or leaves(node.body[-1]):
            yield node.lineno
    comprehends = isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp)
    if comprehends and inside and any(part.ifs for part in node.generators):
        yield node.lineno
    for name, value in ast.iter_fields(node):
        within = inside or (restores(node) and name == "body")
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, FUNCTIONS):
                yield from loops(child)
            elif isinstance(child, ast.AST):
                yield from loops(child, within)


def test_no_loop_leaves_what_is_restored() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line in loops(ast.parse(path.read_text()))
    ]
    assert not found


FORMS = (
    "for s in xs:\n    if a: b()",
    "for s in xs:\n    if a: b()\n    else: c()",
    "for s in xs:\n    if a: b()\n    elif c: d()",
    "for s in xs:\n    if a: continue\n    b()",
    "for s in xs:\n    b()",
    "for s in xs:\n    for y in s:\n        if y: b()",
    "for s in xs:\n    b()\n    if a: return 1",
    "for s in xs:\n    if not a: continue\n    break\nelse:\n    b()",
    "for s in xs:\n    try: b()\n    except E: c()",
    "for s in xs:\n    with m: b()",
    "for s in xs:\n    match s:\n        case 1: b()",
    "for s in xs:\n    assert s",
    "for s in xs:\n    a = b or c",
    "for s in xs:\n    ys = [y for y in s if y]",
    "while a: b()",
    "while True:\n    if a: break\n    b()",
    "ys = [b(s) for s in xs]",
    "ys = [s or a if b else c for s in xs]",
    "ys = [s for s in xs if a]",
    "ys = {s: [y for y in s if a] for s in xs}",
    "ys = sum(s for s in xs if a)",
    "ys = sum([s for s in xs if a])",
)


def jumps_out(code: types.CodeType) -> bool:
    """Whether a jump back is in fewer `try` blocks than where it leads."""
    entries = dis.Bytecode(code).exception_entries

    def handlers(offset: int) -> set[int]:
        return {e.target for e in entries if e.start <= offset < e.end}

    return any(
        handlers(jump.argval) - handlers(jump.offset)
        for jump in dis.get_instructions(code)
        if jump.opname.startswith("JUMP_BACKWARD") and "NO_INTERRUPT" not in jump.opname
    )


@pytest.mark.skipif(
    not (3, 12) <= sys.version_info[:2] <= (3, 14), reason="this CPython has not that habit"
)
@pytest.mark.parametrize("form", FORMS)
def test_the_rule_finds_what_the_compiler_does(form: str) -> None:
    text = "def f():\n    with lock:\n" + textwrap.indent(form, " " * 8)
    code = next(c for c in compile(text, "f", "exec").co_consts if isinstance(c, types.CodeType))
    assert bool(list(loops(ast.parse(text)))) == jumps_out(code)
