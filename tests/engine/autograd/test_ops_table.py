"""Autograd computes with the ops of one table, and calls no tensor's method of them by name."""

import ast
from dataclasses import fields
from pathlib import Path

import skimp._engine.autograd
from skimp._engine.autograd.ops import Ops, ops
from skimp._engine.dispatch.row import METHODS

ROOM = Path(skimp._engine.autograd.__file__).parent
# Names that methods of containers, modules and NumPy's arrays have too.
OTHERS = {"add", "index", "values"}  # of sets, lists and dicts; a sum is written `a + b`
OTHERS |= {"numel", "storage_offset"}  # what a tensor is, not what is computed from it
NO_TENSORS = {"captures", "lines", "math", "mode", "np", "ops", "self", "RemovableHandle"}


def calls():
    for path in sorted(ROOM.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield path.name, ast.unparse(node.func.value), node.func.attr


def test_no_op_is_called_as_a_method():
    asked = [
        (name, of, attr)
        for name, of, attr in calls()
        if attr in METHODS and attr not in OTHERS and of not in NO_TENSORS
    ]
    assert asked == []


def test_the_table_is_filled_and_has_nothing_else():
    assert all(callable(getattr(ops, f.name)) for f in fields(Ops))
    assert {attr for _, of, attr in calls() if of == "ops"} == {f.name for f in fields(Ops)}
