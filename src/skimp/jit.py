"""torch.jit: scripting and tracing give the function or module itself."""

from __future__ import annotations

import builtins
import contextlib
from typing import Any, TypeVar, get_origin

from skimp._compat import notices
from skimp._compat.modules import lookup as _lookup, public as _public
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.module import Module
from skimp.utils.futures import Future

__all__ = [
    "Attribute", "Error", "Final", "Future", "ScriptFunction", "ScriptModule", "annotate",
    "enable_onednn_fusion", "export", "fork", "freeze", "ignore", "interface", "is_scripting",
    "is_tracing", "isinstance", "onednn_fusion_enabled", "optimize_for_inference",
    "script", "script_if_tracing", "script_method", "set_fusion_strategy", "strict_fusion",
    "trace", "trace_module", "unused", "wait",
]  # fmt: skip
__all__.extend(_public(__name__))
__getattr__ = _lookup(__name__)
T = TypeVar("T")
NOTICE = "torch.jit.script and torch.jit.trace return what they are given: nothing is compiled"


class ScriptModule(Module):
    """For `isinstance`: no module is one unless a program derives it.

    Shape: as that program's `forward` has it.
    """


class ScriptFunction:
    """For `isinstance`: no function is one."""


class Error(RuntimeError):
    """PyTorch's errors of scripted code; none is raised."""


class TracerWarning(Warning):
    """PyTorch's warnings while it traces, which programs silence; none is given."""


class Attribute:
    """A value with a type, for annotations in `__init__`."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


class Final:
    """For annotations: `Final[int]` means a constant."""

    def __class_getitem__(cls, kind: Any) -> Any:
        return kind


def script(obj: T, *_: Any, **__: Any) -> T:
    """The function or module itself."""
    notices.once(NOTICE)
    return obj


def trace(
    func: T,
    example_inputs: Any = None,
    *_: Any,
    strict: bool = True,
    example_kwarg_inputs: Any = None,
    **__: Any,
) -> T:
    """The function or module itself, which is run once, as tracing does: lazy modules get their
    shapes, numbers are drawn, and what can't be run is refused here.
    """
    notices.once(NOTICE)
    run: Any = func
    if example_kwarg_inputs is not None:
        _check_traced(run(**example_kwarg_inputs), strict)
    else:
        _check_traced(run(*_as_arguments(example_inputs)), strict)
    return func


def trace_module(mod: T, inputs: Any, *_: Any, strict: bool = True, **__: Any) -> T:
    """The module itself, whose methods that `inputs` names are run once, as tracing does."""
    notices.once(NOTICE)
    for name, given in inputs.items():
        method = mod if name == "forward" else getattr(mod, name)
        _check_traced(method(*_as_arguments(given)), strict)  # type: ignore[operator]
    return mod


def _as_arguments(given: Any) -> tuple[Any, ...]:
    return (given,) if builtins.isinstance(given, Tensor | dict) else tuple(given)


def _check_traced(result: Any, strict: bool) -> None:
    """Raise where PyTorch's tracer can't keep a result."""
    if result is None:
        raise RuntimeError(
            "The traced function didn't return any values! Side-effects are not captured in "
            "traces, so it would be a no-op."
        )
    if builtins.isinstance(result, dict):
        if strict:
            raise RuntimeError(
                "Encountering a dict at the output of the tracer might cause the trace to be "
                "incorrect, this is only valid if the container structure does not change based "
                "on the module's inputs. Consider using a constant container instead (e.g. for "
                "`list`, use a `tuple` instead. for `dict`, use a `NamedTuple` instead). If you "
                "absolutely need this and know the side effects, pass strict=False to trace() to "
                "allow this behavior."
            )
    elif not builtins.isinstance(result, Tensor | list | tuple):
        raise RuntimeError(
            "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from "
            "traced functions"
        )


def script_if_tracing(fn: T) -> T:
    """The function itself."""
    return fn


_script_if_tracing = _overload = _overload_method = script_if_tracing  # as libraries use them


def export(fn: T) -> T:
    """The function itself."""
    return fn


def interface(obj: T) -> T:
    """The class itself."""
    return obj


def ignore(drop: Any = False, **_: Any) -> Any:
    """The function itself; without one, a decorator."""
    return drop if callable(drop) else _same


def unused(fn: T) -> T:
    """The function itself."""
    return fn


def script_method(fn: T) -> T:
    """The method itself."""
    return fn


def _same(fn: T) -> T:
    return fn


def freeze(mod: T, *_: Any, **__: Any) -> T:
    """The module itself."""
    return mod


def optimize_for_inference(mod: T, *_: Any, **__: Any) -> T:
    """The module itself."""
    return mod


def is_scripting() -> bool:
    """Nothing is ever scripted."""
    return False


def is_tracing() -> bool:
    """Nothing is ever traced."""
    return False


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's, whose containers are not looked into."""
    kinds = target_type if builtins.isinstance(target_type, tuple) else (target_type,)
    return builtins.isinstance(obj, tuple([_bare(kind) for kind in kinds]))


def _bare(kind: Any) -> Any:
    found: Any = get_origin(kind)
    return kind if found is None else found


def annotate(the_type: Any, the_value: T) -> T:
    """The value itself."""
    return the_value


def fork(func: Any, *args: Any, **kwargs: Any) -> Future:
    """A future of the result, which is computed now."""
    made = Future()
    made.set_result(func(*args, **kwargs))
    return made


def wait(future: Future) -> Any:
    """The result of `fork`."""
    return future.wait()


def set_fusion_strategy(strategy: Any) -> None:
    """Accepted: nothing is compiled."""


def enable_onednn_fusion(enabled: bool) -> None:
    """Accepted: nothing is compiled."""


def onednn_fusion_enabled() -> bool:
    """Nothing is compiled."""
    return False


class strict_fusion(contextlib.nullcontext[None]):  # noqa: N801  (PyTorch's name)
    """A context that changes nothing."""
