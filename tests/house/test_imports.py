"""Imports point one way, as docs/layout.md draws it, and nothing in the package imports torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "skimp"
SHIM = PACKAGE / "_compat" / "shim"  # not skimp's modules: a package named torch
LAYOUT = ROOT / "docs" / "layout.md"


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(p): p for p in sorted(PACKAGE.rglob("*.py")) if not p.is_relative_to(SHIM)}


def statements(tree: ast.AST, top_only: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports of a module; with `top_only` those that run when it is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif not (top_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from statements(node, top_only)


def targets(module: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules that one import names: `from package import x` means x where x is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        path = FILES[module]
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        kept = package[: len(package) - node.level + 1]
        base = ".".join([*kept, *([node.module] if node.module else [])])
    for alias in node.names:
        inner = f"{base}.{alias.name}"
        yield inner if inner in FILES else base


RARE = {"_skimp_counter", "_conj", "_skimp_neg", "_skimp_inference", "_skimp_creation"}


class Facts:
    """What the tests ask of a module, read once: trees are large, and none is kept."""

    def __init__(self, module: str) -> None:
        text = FILES[module].read_text()
        tree, lines = ast.parse(text), text.splitlines()
        top = list(statements(tree, top_only=True))
        every = list(statements(tree, top_only=False))
        self.imports = {True: self._named(module, top), False: self._named(module, every)}
        inside = [node for node in every if node not in top]
        self.inside = [f"{module}, line {n.lineno}: {ast.unparse(n)}" for n in inside]
        self.silent = [
            where
            for node, where in zip(inside, self.inside, strict=True)
            if not lines[node.lineno - 2].strip().startswith("#")
            if "  # " not in lines[node.lineno - 1]
        ]
        self.rare: set[str] = set()
        self.makes_code = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.rare |= {node.attr} & RARE
            elif isinstance(node, ast.Call):
                self.makes_code |= getattr(node.func, "id", "") in ("exec", "eval")

    @staticmethod
    def _named(module: str, nodes: list[ast.Import | ast.ImportFrom]) -> set[str]:
        return {name for node in nodes for name in targets(module, node)}


facts = cache(Facts)


def imports(module: str, top_only: bool = True) -> set[str]:
    return facts(module).imports[top_only]


ON_PYTORCH = "skimp.lens.pytorch"  # the lens for programs that run on PyTorch itself


def test_nothing_else_imports_torch() -> None:
    def roots(module: str) -> set[str]:
        return {name.split(".")[0] for name in imports(module, top_only=False)}

    found = [m for m in FILES if roots(m) & {"torch", "torchvision", "functorch"}]
    assert [m for m in found if not m.startswith(ON_PYTORCH)] == []


def test_the_lens_on_pytorch_is_imported_only_when_asked_for() -> None:
    users = [
        m
        for m in FILES
        if not m.startswith(ON_PYTORCH)
        if any(target.startswith(ON_PYTORCH) for target in imports(m))
    ]
    assert users == []


def test_imports_have_no_cycles() -> None:
    graph = {module: (imports(module) & FILES.keys()) - {module} for module in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("modules import each other: " + " <- ".join(error.args[1]))


def ranks() -> dict[str, int]:
    """Rows of the page's table from the top: each imports from its own row and those below."""
    rows = re.findall(r"^\| (`[^|]+`) \|", LAYOUT.read_text(), re.MULTILINE)
    named = (re.findall(r"`([\w.]+)`", row) for row in rows)
    return {
        name if name == "skimp" else f"skimp.{name}": place
        for place, names in enumerate(named)
        for name in names
    }


def rank(module: str, table: dict[str, int]) -> int:
    """The row of the module, or of the nearest package around it that has one."""
    while module not in table:
        module = module.rpartition(".")[0]
    return table[module]


def test_every_module_has_its_row_in_the_layout() -> None:
    table = ranks()
    on_top = table["skimp"]  # where `rank` ends for a module without a row
    assert [m for m in FILES if m != "skimp" and rank(m, table) == on_top] == []
    assert [name for name in table if name not in FILES] == []


def test_imports_point_down_the_layout() -> None:
    table = ranks()
    upwards = [
        f"{module} imports {target}"
        for module in FILES
        for target in imports(module, top_only=False) & FILES.keys()
        if rank(target, table) < rank(module, table)
    ]
    assert upwards == []


MOST = 26  # imports inside functions; each says why in a comment


def test_imports_inside_functions_are_few_and_say_why() -> None:
    assert [where for module in FILES for where in facts(module).silent] == []
    found = [where for module in FILES for where in facts(module).inside]
    assert len(found) <= MOST, found


def test_the_root_holds_what_a_stranger_looks_for() -> None:
    entries = [p.name for p in PACKAGE.iterdir() if p.name != "__pycache__"]
    assert len(entries) <= 40, sorted(entries)


def test_what_few_tensors_have_is_given_by_mark_alone() -> None:
    """The fast paths look at `_skimp_marked` and no further: who sets one of these sets it too."""
    found = {name: facts(name).rare for name in FILES}
    assert {name: names for name, names in found.items() if names} == {
        # `mark_creation`, `mark_version`; `fresh` and `wrap`, which make what inference mode marks
        "skimp._engine.tensor.tensor": {"_skimp_creation", "_skimp_counter", "_skimp_inference"},
        # views: it sets `_skimp_marked` too, written out
        "skimp._engine.autograd.alias": {"_skimp_creation", "_skimp_inference"},
        "skimp._ops.index.indexing": {"_skimp_creation"},  # likewise
        "skimp._engine.dispatch.batched": {"_skimp_creation"},  # None, as `blank`
    }


READ_TEXT = {
    "skimp.cli.program",  # a program's own
    "skimp.utils.benchmark.timing",
    "skimp._compat.modules",  # the constants in its file of names
}


def test_one_module_makes_code_of_text() -> None:
    found = {module for module in FILES if facts(module).makes_code}
    assert found == {"skimp._engine.generated"} | READ_TEXT
