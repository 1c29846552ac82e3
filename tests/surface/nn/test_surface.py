"""The surface of nn and optim: constructors as PyTorch's, and what docstrings have to say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import textwrap
import traceback
from typing import Any

import pytest
import torch as oracle

import skimp


def _classes(space: str) -> list[str]:
    theirs = getattr(oracle, space)
    return sorted(
        name
        for name, value in vars(getattr(skimp, space)).items()
        if isinstance(value, type) and name[0] != "_" and isinstance(getattr(theirs, name, 0), type)
    )


PUBLIC = [(space, name) for space in ("nn", "optim") for name in _classes(space)]
# refused as a whole, or made by a function of other arguments
OTHERS = {"SyncBatchNorm", "Parameter", "UninitializedParameter", "UninitializedBuffer", "Buffer"}


def _made_by(torch: Any, space: str, name: str) -> Any:
    return getattr(getattr(torch, space), name)


def _arguments(cls: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(cls).parameters.values()]


@pytest.mark.parametrize(("space", "name"), PUBLIC)
def test_constructors_take_what_pytorchs_take(space: str, name: str) -> None:
    if name in OTHERS:
        return
    ours, theirs = (_arguments(_made_by(torch, space, name)) for torch in (skimp, oracle))
    assert [(n, k) for n, k, _ in ours] == [(n, k) for n, k, _ in theirs]
    for (argument, _, mine), (_, _, wanted) in zip(ours, theirs, strict=True):
        if callable(wanted) and wanted is not inspect.Parameter.empty:
            assert mine.__name__ == wanted.__name__, argument
        else:
            assert (mine, type(mine)) == (wanted, type(wanted)), argument


@pytest.mark.parametrize(("space", "name"), PUBLIC)
def test_wrong_calls_are_refused_in_pytorchs_words(space: str, name: str) -> None:
    if name in OTHERS:
        return

    def says(torch: Any, *args: Any, **kwargs: Any) -> str:
        try:
            _made_by(torch, space, name)(*args, **kwargs)
        except TypeError as e:
            return str(e).replace("skimp.", "torch.")
        except Exception as e:
            return type(e).__name__
        return "made"

    assert says(skimp) == says(oracle)
    assert says(skimp, no_such_option=1) == says(oracle, no_such_option=1)
    many = (1,) * 30
    assert says(skimp, *many) == says(oracle, *many)


DECLARED = sorted(
    {
        base
        for space, name in PUBLIC
        for base in _made_by(skimp, space, name).__mro__
        if "_skimp_options" in vars(base)
    },
    key=lambda cls: cls.__name__,
)


@pytest.mark.parametrize("cls", DECLARED, ids=lambda cls: cls.__name__)
def test_declared_options_leave_only_a_constructor(cls: Any) -> None:
    for option in cls._skimp_options:
        assert option.name not in vars(cls)
    source = inspect.getsource(cls.__init__)
    for option in cls._skimp_options:
        assert f"self.{option.name} = {option.name}" in source or not option.kept


def test_subclasses_annotate_what_they_like() -> None:
    class Mine(skimp.nn.Dropout):
        extra: int = 3

    assert Mine(0.25).p == 0.25
    assert Mine.extra == 3
    assert [n for n, _, _ in _arguments(Mine)] == ["p", "inplace"]


def test_tracebacks_show_the_lines_of_a_declared_constructor() -> None:
    with pytest.raises(ValueError, match="but got 7") as refused:
        skimp.nn.Dropout(7)
    lines = [frame.line for frame in traceback.extract_tb(refused.tb)]
    assert "self._skimp_set_up()" in lines
    assert not [line for line in lines if not line]


# -- docstrings -----------------------------------------------------------------------------------

DOCUMENTED = (
    "nn nn.init nn.utils nn.utils.rnn nn.utils.parametrize nn.utils.parametrizations "
    "nn.utils.prune nn.utils.stateless optim optim.lr_scheduler optim.swa_utils"
)


def _documented() -> dict[str, Any]:
    found = {}
    for space in DOCUMENTED.split():
        module = importlib.import_module(f"skimp.{space}")
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            home = getattr(value, "__module__", None) or ""
            if callable(value) and name[0] != "_" and home.startswith(("skimp.nn", "skimp.optim")):
                found[f"{space}.{name}"] = value
    return found


SPACES = _documented()
FUNCTIONS = {
    f"nn.functional.{name}": f
    for name, f in vars(skimp.nn.functional).items()
    if callable(f) and name[0] != "_" and not isinstance(f, type)
}
SPACES.update(FUNCTIONS)


@pytest.mark.parametrize("name", SPACES)
def test_docstrings_say_shapes(name: str) -> None:
    """A line that begins with "Shape:", also where no tensors are taken; sections in one order."""
    text = inspect.getdoc(SPACES[name]) or ""
    assert "Shape:" in [line.split(" ")[0] for line in text.splitlines()]
    sections = [line.split(" ")[0] for line in text.splitlines()]
    order = ["Shape:", "Dtypes:", "Raises:", "Memory:", "Source:"]
    given = [s for s in sections if s in order]
    assert given == sorted(given, key=order.index)


@pytest.mark.parametrize("name", [n for n in SPACES if n.endswith("_") and ".init." in n])
def test_docstrings_of_what_writes_in_place_say_so(name: str) -> None:
    assert "Memory: written in place" in (SPACES[name].__doc__ or "")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_say_what_becomes_of_memory(name: str) -> None:
    text = FUNCTIONS[name].__doc__ or ""
    assert "Memory:" in text
    if "inplace" in inspect.signature(FUNCTIONS[name]).parameters:
        assert "written" in text.partition("Memory:")[2]


OF_TYPES = [  # those that take one tensor and numbers; tests/ops tries all on samples
    n
    for n, f in FUNCTIONS.items()
    if "NotImplementedError for other dtypes" in f.__doc__ and not n.endswith("_with_indices")
]


@pytest.mark.parametrize("name", OF_TYPES)
def test_functions_refuse_the_dtypes_that_they_say(name: str) -> None:
    f = FUNCTIONS[name]
    needed = [p for p in inspect.signature(f).parameters.values() if p.default is p.empty][1:]
    taken = f.__doc__.partition("Dtypes:")[2].partition("\n")[0]
    numbers = [0.5] * len(needed) if "dim" not in [p.name for p in needed] else [0]
    words = {"dim": 0} if "softm" in name else {}
    f(skimp.ones(2, 2), *numbers, **words)
    for kind, dtype in (("integers", skimp.int64), ("complex", skimp.complex64)):
        if kind not in taken:
            with pytest.raises(NotImplementedError):
                f(skimp.ones(2, 2, dtype=dtype), *numbers, **words)


EXAMPLES = [n for n, v in SPACES.items() if ">>>" in (v.__doc__ or "")]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings_run(name: str) -> None:
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=flags)
    text = textwrap.dedent(SPACES[name].__doc__)
    runner.run(parser.get_doctest(text, {"torch": skimp}, name, None, None))
    assert runner.tries
    assert not runner.failures
