"""Every public function and class says what holds of shapes, dtypes, errors and memory.

Which sections apply follows from what a thing is: all four for an op, and for what takes or gives
tensors, by its annotations; all four for modules with a forward, optimizers, schedules and
distributions; Raises for any function that has a `raise` of its own, and for what is refused; a
sentence for the rest. What is said of dtypes and memory is tried in tests/ops/test_docstrings.py
and tests/engine/dispatch/test_describing.py.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch as oracle

import skimp
from skimp._compat.refusals import is_refused
from skimp._engine.dispatch.row import FORMS

HEADS = ("Shape", "Dtypes", "Raises", "Memory")
SPACES = [  # by whose names things are known here
    "nn.functional",
    "nn",
    "linalg",
    "fft",
    "special",
    "sparse",
    "masked",
    "optim",
    "optim.lr_scheduler",
    "distributions",
    "memory",
    "func",
    "autograd",
]
Module, Optimizer = skimp.nn.Module, skimp.optim.Optimizer
FAMILIES = (
    Optimizer,
    skimp.optim.lr_scheduler.LRScheduler,
    skimp.distributions.Distribution,
    skimp.distributions.Transform,
    skimp.nn.Parameter,
    skimp.nn.Buffer,
)


def public() -> Iterator[tuple[str, Any]]:
    """Functions and classes by the first name that leads to each."""
    seen: set[int] = set()
    spaces = {"": skimp, "Tensor.": skimp.Tensor}
    for name in SPACES:
        space: Any = skimp
        for part in name.split("."):
            space = getattr(space, part)
        spaces[f"{name}."] = space
    for prefix, space in spaces.items():
        for name in dir(space):
            value = None if name[0] == "_" else getattr(space, name, None)
            home = getattr(value, "__module__", None) or ""
            if callable(value) and home.startswith("skimp") and id(value) not in seen:
                seen.add(id(value))
                yield prefix + name, value


def elsewhere(known: set[int]) -> Iterator[tuple[str, Any]]:
    """What else PyTorch's modules of the same names count as their own."""
    for module in pkgutil.walk_packages(skimp.__path__, "skimp."):
        path = module.name.removeprefix("skimp.")
        if "._" in module.name or module.name.endswith("__main__"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch's modules call what is deprecated
                theirs: Any = importlib.import_module(f"torch.{path}")
        except ImportError:
            continue
        ours = importlib.import_module(module.name)
        for name in getattr(theirs, "__all__", vars(theirs)):
            value = None if name[0] == "_" else getattr(ours, name, None)
            home = getattr(value, "__module__", None) or ""
            if callable(value) and home.startswith("skimp") and id(value) not in known:
                known.add(id(value))
                yield f"{path}.{name}", value


PUBLIC = dict(public())
PUBLIC |= elsewhere(set(map(id, PUBLIC.values())))


def written(f: Any) -> Any:
    """The function that somebody wrote, behind the one that takes PyTorch's words for it."""
    if f in FORMS:
        return FORMS[f].op.raw
    made = getattr(f, "__code__", None) and f.__code__.co_filename.startswith("<skimp")
    return f.__globals__.get("f", f) if made else f


def refuses(f: Any) -> bool:
    """Whether a function only says why skimp has not what it is called for."""
    return is_refused(written(f)) or "NoReturn" in str(
        getattr(f, "__annotations__", {}).get("return")
    )


def takes_tensors(f: Any) -> bool:
    return any(re.search(r"\bTensor\b", str(a)) for a in getattr(f, "__annotations__", {}).values())


def raises(f: Any) -> bool:
    """Whether the function has a `raise` of its own."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(written(f))))
    except (OSError, TypeError):
        return False
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree))


def wanted(value: Any) -> tuple[str, ...]:
    if isinstance(value, type):
        if issubclass(value, Module):
            return HEADS if value.forward is not Module.forward else ("Shape",)
        return HEADS if issubclass(value, FAMILIES) else ()
    if not inspect.isroutine(value):
        return ()
    if refuses(value):
        return ("Raises",)
    if value in FORMS or takes_tensors(value):
        return HEADS
    return ("Raises",) if raises(value) else ()


def sections(value: Any) -> list[str]:
    return re.findall(r"^(Shape|Dtypes|Raises|Memory):", inspect.getdoc(value) or "", re.M)


@pytest.mark.parametrize("name", PUBLIC)
def test_says_what_applies(name: str) -> None:
    value = PUBLIC[name]
    assert (value.__doc__ or "").strip(), "no docstring"
    said = sections(value)
    assert [h for h in wanted(value) if h not in said] == []
    assert said == sorted(said, key=HEADS.index)
    assert len(said) == len(set(said))


def test_most_of_what_is_public_has_to_say_all() -> None:
    """The rules above reach what they are for."""
    full = [name for name, value in PUBLIC.items() if wanted(value) == HEADS]
    assert len(full) > 1500


EXAMPLES = [name for name, value in PUBLIC.items() if ">>>" in (value.__doc__ or "")]
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("torch", [skimp, oracle], ids=["skimp", "PyTorch"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_show_what_comes_in_both(name: str, torch: Any) -> None:
    """An example of what surprises in PyTorch's API says what PyTorch does."""
    if torch is oracle and not hasattr(oracle, name.partition(".")[0]):
        pytest.skip("skimp's own")
    text = inspect.getdoc(PUBLIC[name]) or ""
    shown: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=FLAGS)
    runner.run(
        doctest.DocTestParser().get_doctest(text, {"torch": torch}, name, None, None),
        out=shown.append,
    )
    assert runner.tries
    assert not runner.failures, "".join(shown)
