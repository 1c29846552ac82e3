"""`torch.utils._contextlib`'s classes, which libraries derive their context managers from."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils import _contextlib as theirs

import skimp
from skimp.utils import _contextlib as ours  # type: ignore[attr-defined]

BOTH = [(torch, theirs), (skimp, ours)]


def told(contexts: Any) -> list[Any]:
    """What a derived manager sees as a context, around a function and around a generator."""
    seen: list[Any] = []

    class Noted(contexts._DecoratorContextManager):  # type: ignore[misc]
        def __init__(self, word: str = "none") -> None:
            self.word = word

        def __enter__(self) -> None:
            seen.append(f"in {self.word}")

        def __exit__(self, *error: object) -> None:
            seen.append("out")

        def clone(self) -> Noted:
            return Noted(self.word)

    @Noted("function")
    def doubled(x: int) -> int:
        seen.append(x)
        return 2 * x

    @Noted("generator")
    def counted() -> Any:
        try:
            seen.append((yield 1))
        except KeyError:
            yield 9
        return 5

    with Noted("context"):
        seen.append(doubled(3))
    steps = counted()
    return [*seen, next(steps), steps.throw(KeyError), list(steps), seen[-1], doubled.__name__]


def test_derived_managers_are_decorators() -> None:
    with warnings.catch_warnings():  # of PyTorch's call of `throw`, from Python 3.12 on
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = told(theirs)
    assert told(ours) == expected


@pytest.mark.parametrize(("library", "contexts"), BOTH, ids=["torch", "skimp"])
def test_without_parentheses(library: Any, contexts: Any) -> None:
    class Bare(contexts._NoParamDecoratorContextManager):  # type: ignore[misc]
        entered = 0

        def __enter__(self) -> None:
            Bare.entered += 1

        def __exit__(self, *error: object) -> None: ...

    @Bare
    def three() -> int:
        return 3

    assert three() == 3
    assert isinstance(Bare(), Bare)
    assert Bare.entered == 1
    assert issubclass(library.no_grad, contexts._NoParamDecoratorContextManager)
    assert isinstance(library.set_grad_enabled(True), contexts._DecoratorContextManager)
    with pytest.raises(NotImplementedError):
        contexts._DecoratorContextManager().__enter__()
