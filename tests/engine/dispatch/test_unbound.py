"""What is a builtin in PyTorch binds nothing as an attribute of a class; what PyTorch has in Python
does.
"""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import types
from typing import Any

import pytest
import torch
import torch.nn.functional
import torch.overrides

import skimp
import skimp.nn.functional
import skimp.overrides

SPACES = ["", "nn.functional", "linalg", "fft", "special", "nn.init", "sparse", "overrides", "func",
          "random", "jit", "masked", "signal.windows", "cuda"]  # fmt: skip


def _owner(library: Any, space: str) -> Any:
    return functools.reduce(getattr, space.split("."), library) if space else library


def _binds(f: Any) -> bool:
    """Whether an instance's attribute of that name is another object than the function."""

    class Holder:
        held = f

    return Holder().held is not f


def public_functions() -> list[tuple[str, str]]:
    found = []
    for space in SPACES:
        ours, theirs = _owner(skimp, space), _owner(torch, space)
        for name in dir(theirs):
            pair = getattr(theirs, name), getattr(ours, name, None)
            classes = any(isinstance(f, (type, types.ModuleType)) for f in pair)
            if not name.startswith("__") and all(map(callable, pair)) and not classes:
                found.append((space, name))
    return found


def test_every_public_function_binds_where_pytorchs_does() -> None:
    every = public_functions()
    wrong = [
        f"{space}.{name}"
        for space, name in every
        if _binds(getattr(_owner(skimp, space), name))
        is not _binds(getattr(_owner(torch, space), name))
    ]
    assert not wrong
    assert len(every) > 1000


def test_every_function_of_the_package_has_its_own_name() -> None:
    wrong = [
        name
        for space, name in public_functions()
        if space == ""
        and name[0] != "_"
        and getattr(torch, name).__name__ == name
        and getattr(skimp, name).__name__ != name
    ]
    assert wrong == []


def test_as_class_attributes_of_a_module() -> None:
    class Loss(skimp.nn.Module):
        conv = skimp.conv2d
        norm = skimp.linalg.vector_norm
        on = skimp.is_grad_enabled

        def forward(self, x: Any, weight: Any) -> Any:
            assert self.on()
            return self.norm(self.conv(x, weight=weight))

    made = Loss()(skimp.ones(1, 1, 3, 3), skimp.ones(1, 1, 2, 2))
    assert made.item() == 8.0


@pytest.mark.parametrize("space", ["", "linalg", "fft", "special", "nn.functional"])
def test_they_show_as_the_functions_that_they_stand_for(space: str) -> None:
    for name, f in vars(_owner(skimp, space)).items():
        if not isinstance(f, types.MethodType) or isinstance(f.__self__, types.ModuleType):
            continue
        parameters = inspect.signature(f).parameters
        assert "owner" not in parameters, name
        assert f.__name__.isidentifier()
        method = getattr(skimp.Tensor, name, None)
        if space == "" and method is not None and name in ("conv2d", "add", "cumsum", "sin"):
            assert list(parameters) == list(inspect.signature(method).parameters)
            assert f.__doc__ == method.__doc__


PATHS = "relu add clip conv2d can_cast bmm linalg.det fft.fft special.erf nn.functional.gelu"


@pytest.mark.parametrize("path", PATHS.split())
def test_pickled_and_copied(path: str) -> None:
    f = functools.reduce(getattr, path.split("."), skimp)
    assert pickle.loads(pickle.dumps(f)) is f
    assert copy.deepcopy(f) == f


def test_errors_name_the_function_and_count_what_was_given() -> None:
    with pytest.raises(TypeError, match=r"conv2d\(\)"):
        skimp.conv2d("a", "b")
    with pytest.raises(TypeError, match=r"conv2d\(\)"):
        skimp.conv2d(skimp.ones(1, 1, 2, 2), skimp.ones(1, 1, 1, 1), owner=1)


def test_who_takes_over_is_given_the_public_function() -> None:
    seen: dict[Any, list[Any]] = {skimp: [], torch: []}

    def recorder(library: Any) -> Any:
        class Mode(library.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                seen[library].append((func, args, kwargs))
                return func(*args, **(kwargs or {}))

        return Mode()

    for library in (skimp, torch):
        x = library.ones(2, 2)
        with recorder(library):
            library.add(x, x)
            x.add(x)
            library.sum(x, 0)
            library.linalg.det(x)
            library.nn.functional.gelu(x)
            library.clamp(x, 0)
    paths = ["add", "Tensor.add", "sum", "linalg.det", "nn.functional.gelu", "clamp"]
    for library, calls in seen.items():
        expected = [functools.reduce(getattr, p.split("."), library) for p in paths]
        assert [f for f, _, _ in calls] == expected
    assert [len(a) for _, a, _ in seen[skimp]] == [len(a) for _, a, _ in seen[torch]]
