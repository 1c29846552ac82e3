"""Whether operations are recorded: no_grad, enable_grad, set_grad_enabled, inference_mode. Per
thread.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable
from typing import Any, Self, TypeVar

from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.tensor.inference import marks

F = TypeVar("F", bound=Callable[..., Any])


class _State(threading.local):
    grad: bool = True
    inference: bool = False
    hooks: tuple[Any, ...] = ()  # innermost (pack, unpack) pair of saved_tensors_hooks last
    hooks_off: str | None = None  # the error message of disable_saved_tensors_hooks
    vmaps: tuple[
        Any, ...
    ] = ()  # the vmaps that are running, outermost first (_engine/dispatch/batched.py)
    save_nothing: Any = None  # the Site of a region in which nothing is saved for backward


state: _State = _State()


def is_grad_enabled() -> bool:
    """Whether operations are recorded for gradients here."""
    return state.grad


def is_inference_mode_enabled() -> bool:
    """Whether this is inside of `inference_mode`."""
    return state.inference


class Mode:
    """A context manager that is also a decorator, for functions and generators alike."""

    def __call__(self, f: F) -> F:
        if inspect.isclass(f):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You "
                "should only decorate functions or methods. To preserve the current behavior of "
                "class decoration, you can directly decorate the `__init__` method and nothing "
                "else.",
                FutureWarning,
                stacklevel=2,
            )
        if inspect.isgeneratorfunction(f):
            return _generator(self, f)  # type: ignore[no-any-return]

        @functools.wraps(f)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return f(*args, **kwargs)

        return run  # type: ignore[return-value]

    def clone(self) -> Self:
        return type(self)()

    def __enter__(self) -> Any:
        raise NotImplementedError

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        raise NotImplementedError


def _generator(mode: Mode, f: Any) -> Any:
    """A generator whose body runs in the mode, and whose consumer does not."""

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        inner = f(*args, **kwargs)
        step, given = inner.send, None
        while True:
            try:
                with mode.clone():
                    value = step(given)
            except StopIteration as end:
                return end.value
            try:
                step, given = inner.send, (yield value)
            except GeneratorExit:
                with mode.clone():
                    inner.close()
                raise
            except BaseException as e:
                step, given = inner.throw, e

    return run


class set_grad_enabled(Mode):  # noqa: N801
    """Record operations or not: as a function at once, as a context until its end."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.previous = state.grad
        state.grad = mode

    def __call__(self, f: F) -> F:
        state.grad = self.previous
        return super().__call__(f)

    def clone(self) -> set_grad_enabled:
        return type(self)(self.mode)

    def __repr__(self) -> str:
        return f"torch.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    def __enter__(self) -> None:
        state.grad = self.mode

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        state.grad = self.previous


class BareMode(Mode):
    """A mode without arguments, which decorates without parentheses too: `@no_grad`."""

    def __new__(cls, orig_func: Any = None) -> Any:
        mode = object.__new__(cls)
        return mode if orig_func is None else mode(orig_func)


class _Grad(BareMode):
    value: bool

    def __enter__(self) -> None:
        self.previous = state.grad
        state.grad = self.value

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        state.grad = self.previous


class no_grad(_Grad):  # noqa: N801
    """Nothing inside is recorded."""

    value = False


class enable_grad(_Grad):  # noqa: N801
    """Operations inside are recorded, inside `no_grad` too."""

    value = True


class inference_mode(Mode):  # noqa: N801
    """Nothing inside is recorded, and tensors made inside never take part in differentiation."""

    def __new__(cls, mode: Any = True) -> Any:
        self = object.__new__(cls)
        if callable(mode):
            self.__init__(True)  # type: ignore[misc]
            return self(mode)
        return self

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def clone(self) -> inference_mode:
        return type(self)(self.mode)

    def __enter__(self) -> None:
        mode = self.mode
        self.previous = state.grad, state.inference
        marks.anywhere += mode - state.inference  # one step with the lines below
        state.inference = marks.of_thread.here = mode
        state.grad = not mode

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        state.grad, inference = self.previous
        marks.anywhere += inference - state.inference
        state.inference = marks.of_thread.here = inference


class set_multithreading_enabled:  # noqa: N801  (PyTorch's name)
    """Accepted, as a function and as a context: backward runs in the thread that calls it."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        return None

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        return None
