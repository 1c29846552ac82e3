"""Modules that compute their activations again in backward, under names that do not change."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from skimp.autograd.graph import save_on_cpu
from skimp.nn.modules.module import Module
from skimp.nn.parameter import Parameter
from skimp.utils.checkpoint import checkpoint

_INNER = "_checkpoint_wrapped_module"


class CheckpointImpl(enum.Enum):
    """How backward computes again."""

    REENTRANT = enum.auto()
    NO_REENTRANT = enum.auto()


class ActivationWrapper(Module, abc.ABC):
    """A module inside another whose state has the inner one's names, and its parameters below it
    have.
    """

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(_short_names)
        self.register_load_state_dict_pre_hook(_long_names)

    @abc.abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The inner module's result."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_INNER), name)

    def __getitem__(self, key: int) -> Any:
        inner: Any = self._checkpoint_wrapped_module
        return inner[key]

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters, under the inner module's names."""
        for name, parameter in super().named_parameters(prefix, recurse, remove_duplicate):
            yield name.replace(f"{_INNER}.", ""), parameter


class OffloadWrapper(ActivationWrapper):
    """What the module saves for backward is kept on the CPU."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Backward calls the module again instead of keeping what it saved."""

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Callable[..., Any] | None = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        self.checkpoint_fn = partial(
            checkpoint if checkpoint_fn is None else checkpoint_fn, **checkpoint_fn_kwargs
        )
        if checkpoint_fn is None:
            reenters = checkpoint_impl is CheckpointImpl.REENTRANT
            self.checkpoint_fn = partial(self.checkpoint_fn, use_reentrant=reenters)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        inner = self._checkpoint_wrapped_module
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:
            return self.checkpoint_fn(lambda *given: inner(*given, **kwargs), *args)
        return self.checkpoint_fn(inner, *args, **kwargs)


def _short_names(module: Module, state: dict[str, Any], prefix: str, *_: Any) -> dict[str, Any]:
    """A state_dict's names without the wrapper's."""
    _renamed(state, f"{prefix}{_INNER}.", prefix)
    return state


def _long_names(module: Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    _renamed(state, prefix, f"{prefix}{_INNER}.")


def _renamed(state: dict[str, Any], old: str, new: str) -> None:
    for name in [n for n in state if n.startswith(old)]:
        state[new + name[len(old) :]] = state.pop(name)


def offload_wrapper(module: Module) -> Module:
    """The module; what it saves for backward is kept on the CPU."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Callable[..., Any] | None = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """The module; backward calls it again, by `checkpoint_fn` or utils.checkpoint.checkpoint."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Wrap, in place, the modules below `model` for which `check_fn` (or the policy, which is also
    asked whether to look below a module) is true; inner ones first.
    """

    def asked(module: Module, recurse: bool) -> bool:
        if auto_wrap_policy is None:
            return recurse or check_fn(module)
        return auto_wrap_policy(module=module, recurse=recurse, nonwrapped_numel=0)

    def below(module: Module) -> None:
        for name, child in list(module.named_children()):
            if asked(child, True):
                below(child)
            if asked(child, False):
                setattr(module, name, checkpoint_wrapper_fn(child))

    below(model)
