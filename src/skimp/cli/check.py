"""`skimp check`: which of PyTorch's names a program uses that skimp lacks, before it runs."""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from skimp.cli.names import State, known, look, module, state

# packages that need PyTorch's own binary
BINARY = frozenset({"torchaudio", "torchtext", "torchvision", "triton", "xformers"})
# attributes of so much else that nothing follows from them
COMMON = frozenset([n for kind in (dict, str, list, set, Path, slice) for n in dir(kind)])
POSSIBLE = "possible"
NO_CUDA = (
    "if this is a tensor's or a module's, it raises an error where there is no CUDA; "
    'write .to(device) with "cuda" if torch.cuda.is_available() else "cpu"'
)
CUDA_DEVICE = (
    "using it raises an error where there is no CUDA; "
    'write "cuda" if torch.cuda.is_available() else "cpu"'
)
WORDS = {
    State.MISSING: "skimp lacks it",
    State.REFUSED: "skimp refuses it: using it raises an error",
    State.DIFFERS: "differs from PyTorch: ",
}


class Finding(NamedTuple):
    """A name that a program uses, at a line."""

    file: str
    line: int
    name: str
    kind: str  # a State's value, or "possible"
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name}: {self.text}"


def add_to(commands: Any) -> None:
    """Declare the command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="say which names a program uses that skimp lacks",
        description="Read Python files, without running them, and say which of PyTorch's names "
        "they use that skimp lacks, refuses, or does otherwise. The exit code is 1 where a name "
        "is lacking or refused. PyTorch need not be installed.",
        allow_abbrev=False,
    )
    parser.add_argument("paths", nargs="+", metavar="path", help="a file, or a folder of them")
    parser.add_argument("--quiet", action="store_true", help="only what is lacking or refused")


def main(options: argparse.Namespace) -> int:
    """Check the files; 1 where something is lacking, 2 where a file can't be read."""
    files = list(_files(options.paths))
    findings: list[Finding] = []
    code = read = 0
    for path in files:
        try:
            findings += check(path.read_text(), str(path))
            read += 1
        except OSError as error:
            print(f"skimp check: {path}: {error.strerror}", file=sys.stderr)
            code = 2
        except (SyntaxError, ValueError) as error:
            print(f"skimp check: {path}: {error}", file=sys.stderr)
            code = 2
    serious = [f for f in findings if f.kind in (State.MISSING.value, State.REFUSED.value)]
    for finding in serious if options.quiet else findings:
        print(finding)
    if read and not options.quiet:  # a file that can't be read is an error, and nothing else
        print(_summary(read, Counter(f.kind for f in findings)))
    return code or bool(serious)


def _files(paths: list[str]) -> Iterator[Path]:
    for word in paths:
        path = Path(word)
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _summary(files: int, kinds: Counter[str]) -> str:
    order = [State.MISSING.value, State.REFUSED.value, State.DIFFERS.value, POSSIBLE]
    told = ", ".join([f"{kinds[kind]} {kind}" for kind in order if kinds[kind]])
    return f"{files} file{'s' * (files != 1)}: {told or 'nothing lacking'}"


def check(source: str, file: str) -> list[Finding]:
    """What is to be said of a program's text, by line."""
    reader = _Reader(file)
    reader.visit(ast.parse(source, file))
    return sorted(set(reader.found), key=lambda f: (f.line, f.name))


class _Reader(ast.NodeVisitor):
    """Follows names that stand for torch's modules, classes and functions through a program.

    `names` maps a name of the program to the dotted name that it stands for. Scopes are not told
    apart: programs seldom give a module's name to something else.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.names: dict[str, str] = {}
        self.found: list[Finding] = []
        self._asked = False  # whether there is CUDA

    # -- imports ----------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.split(".")[0]
            if root in BINARY:
                self._binary(node, root)
            if root != "torch":
                continue
            self._chain(node, alias.name.split("."))
            if alias.asname is None:
                self.names["torch"] = "torch"
            else:
                self.names[alias.asname] = alias.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        source = node.module or ""
        root = source.split(".")[0]
        if node.level or root not in ("torch", *BINARY):
            return
        if root in BINARY:
            self._binary(node, root)
            return
        for alias in node.names:
            if alias.name == "*":
                for name in known().names.get(source, ()):
                    self.names[name] = f"{source}.{name}"
                continue
            self._chain(node, [*source.split("."), alias.name])
            self.names[alias.asname or alias.name] = f"{source}.{alias.name}"

    # -- uses -------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Name):
            chain = self._dotted(node.value)
            if chain is not None:
                self.names[target.id] = ".".join(chain)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = self._dotted(node)
        if chain is not None:
            self._chain(node, chain)
            return
        self._method(node)
        self.generic_visit(node)

    def _dotted(self, node: ast.expr) -> list[str] | None:
        """The dotted name that an expression stands for, if it begins with a name of torch's."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        return [*self.names[node.id].split("."), *reversed(parts)]

    def _chain(self, node: ast.stmt | ast.expr, parts: list[str]) -> None:
        """Say what is to be said of the first part of a chain that is no plain module."""
        space = parts[0]
        for name in parts[1:]:
            found = state(space, name)
            dotted = f"{space}.{name}"
            if found is not State.WORKS:
                self._say(node, dotted, found)
            value = look(space, name)
            if dotted == "torch.Tensor" or isinstance(value, ModuleType):
                space = dotted
                continue
            return  # what an object has is its own matter

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        chain = self._dotted(called)
        method = called.attr if isinstance(called, ast.Attribute) and chain is None else ""
        if self._asked:
            pass
        elif method == "cuda" and not (node.args or node.keywords):
            self._add(node, ".cuda()", POSSIBLE, NO_CUDA)
        elif method == "to" and node.args and _is_cuda(node.args[0]):
            self._add(node, f".to({ast.unparse(node.args[0])})", POSSIBLE, NO_CUDA)
        elif chain == ["torch", "device"] and node.args and _is_cuda(node.args[0]):
            self._add(node, ast.unparse(node), POSSIBLE, CUDA_DEVICE)
        elif any(word.arg == "device" and _is_cuda(word.value) for word in node.keywords):
            text = next(ast.unparse(word) for word in node.keywords if word.arg == "device")
            self._add(node, text, POSSIBLE, CUDA_DEVICE)
        self.generic_visit(node)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        """What runs only where there is CUDA moves nothing elsewhere."""
        self.visit(node.test)
        asks = any(
            isinstance(one, ast.Attribute) and one.attr == "is_available"
            for one in ast.walk(node.test)
        )
        before, self._asked = self._asked, self._asked or asks
        for one in [node.body] if isinstance(node.body, ast.expr) else node.body:
            self.visit(one)
        self._asked = before
        for one in [node.orelse] if isinstance(node.orelse, ast.expr) else node.orelse:
            self.visit(one)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit_If(node)

    def _method(self, node: ast.Attribute) -> None:
        """A tensor's method that skimp lacks, on an object of which nothing is known."""
        if node.attr in known().names["torch.Tensor"] - COMMON:
            found = state("torch.Tensor", node.attr)
            if found in (State.MISSING, State.REFUSED):
                text = f"if this is a tensor's, {WORDS[found]}"
                self._add(node, f".{node.attr}", POSSIBLE, text)

    # -- findings ---------------------------------------------------------------------------------

    def _say(self, node: ast.stmt | ast.expr, dotted: str, found: State) -> None:
        text = WORDS[found]
        space, _, name = dotted.rpartition(".")
        if found is State.DIFFERS:
            text += known().differs[dotted]
        elif found is State.MISSING and name not in known().names.get(space, ()):
            other = module(dotted) is None and space in known().names
            text += ", and PyTorch 2.13 does not document it" if other else ""
        self._add(node, dotted, found.value, text)

    def _binary(self, node: ast.stmt, package: str) -> None:
        text = "needs PyTorch's own binary, which skimp is not"
        self._add(node, package, State.MISSING.value, text)

    def _add(self, node: ast.stmt | ast.expr, name: str, kind: str, text: str) -> None:
        self.found.append(Finding(self.file, node.lineno, name, kind, text))


def _is_cuda(node: ast.expr) -> bool:
    """Whether an expression is the name of a CUDA device."""
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and text.partition(":")[0] == "cuda"
