"""The line of the program that runs, and the op that it called."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import skimp
from skimp._engine.memory import call_site
from skimp._engine.memory.call_site import Site


def our_code(source: str, filename: str) -> dict[str, Any]:
    """Names that `source` defines, as if it stood in a file of the package."""
    space: dict[str, Any] = {"sites": call_site}
    exec(compile(source, filename, "exec"), space)
    return space


OURS = call_site.__file__.replace("sites.py", "made_up.py")


@pytest.mark.parametrize("filename", [OURS, "<skimp op clone>"])
@pytest.mark.parametrize(
    ("function", "op"),
    [("relu_", "relu_"), ("__add__", "add"), ("__radd__", "add"), ("__imul__", "mul_"),
     ("__getitem__", "getitem"), ("__len__", "__len__"), ("__invert__", "bitwise_not"),
     ("_skimp_array", "materialize")],
)  # fmt: skip
def test_the_line_and_the_op(filename: str, function: str, op: str) -> None:
    inner = our_code("def helper(): return sites.find()", OURS)["helper"]
    space = our_code(f"def {function}(inner): return inner()", filename)
    found = space[function](inner)
    line = sys._getframe().f_lineno - 1
    assert found == Site(__file__, line, op)
    assert str(found) == f"{op} at {__file__}:{line}"


def test_a_function_made_from_a_row_can_be_named() -> None:
    source = """
def make(op):
    @sites.named(op)
    def f():
        return sites.find()
    return f
"""
    make = our_code(source, OURS)["make"]
    f, g = make("exp"), make("log")
    assert (f().op, g().op) == ("exp", "log")


def test_without_a_line_there_is_still_an_op() -> None:
    assert str(Site("", 0, "relu")) == "relu"


@pytest.mark.parametrize("space", [skimp, skimp.nn.functional, skimp.Tensor, skimp.linalg])
def test_no_public_function_goes_by_the_name_of_what_wraps_it(space: Any) -> None:
    """Reports name ops by the code that runs."""
    wrapped = [
        name
        for name, f in vars(space).items()
        if getattr(f, "__code__", None) is not None
        and f.__code__.co_name in ("function", "function_", "wrapper", "operator", "run", "call")
    ]
    assert wrapped == []
