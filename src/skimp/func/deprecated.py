"""`torch.func` under the names that it had as `functorch`: each says that it is deprecated."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from skimp._engine.memory.call_site import warn
from skimp.func import derivatives, vmapping
from skimp.func.modules import functional_call, stack_module_state
from skimp.nn.modules.module import Module

P = ParamSpec("P")
R = TypeVar("R")
State = tuple[Any, ...]


def _deprecated(f: Callable[P, R], instead: str) -> Callable[P, R]:
    @wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        warn(
            "We've integrated functorch into PyTorch. As the final step of the integration, "
            f"`functorch.{f.__name__}` is deprecated as of PyTorch 2.0 and will be deleted in a "
            f"future version of PyTorch >= 2.3. Please use `{instead}` instead; see the PyTorch "
            "2.0 release notes and/or the `torch.func` migration guide for more details "
            "https://pytorch.org/docs/main/func.migrating.html",
            FutureWarning,
        )
        return f(*args, **kwargs)

    call.__module__ = __name__
    return call


def _deprecated_for(instead: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    return lambda f: _deprecated(f, instead)


vmap = _deprecated(vmapping.vmap, "torch.vmap")
grad = _deprecated(derivatives.grad, "torch.func.grad")
grad_and_value = _deprecated(derivatives.grad_and_value, "torch.func.grad_and_value")
vjp = _deprecated(derivatives.vjp, "torch.func.vjp")
jvp = _deprecated(derivatives.jvp, "torch.func.jvp")
jacrev = _deprecated(derivatives.jacrev, "torch.func.jacrev")
jacfwd = _deprecated(derivatives.jacfwd, "torch.func.jacfwd")
hessian = _deprecated(derivatives.hessian, "torch.func.hessian")


class FunctionalModule(Module):
    """A module's copy as a function of its parameters and of what its forward takes."""

    def __init__(self, model: Module) -> None:
        super().__init__()
        self.stateless_model = copy.deepcopy(model)
        self.param_names = tuple(name for name, _ in model.named_parameters())
        self.buffer_names = tuple(name for name, _ in model.named_buffers())

    def forward(self, params: State, *args: Any, **kwargs: Any) -> Any:
        """The module's result with these parameters."""
        return self._skimp_call(params, (), args, kwargs)

    def _skimp_call(self, params: State, buffers: State, args: State, kwargs: Any) -> Any:
        state = dict(zip(self.param_names, params, strict=True))
        state |= dict(zip(self.buffer_names, buffers, strict=True))
        return functional_call(self.stateless_model, state, args, kwargs)

    def _skimp_state(self, untracked: bool) -> tuple[State, State]:
        params = tuple(self.stateless_model.parameters())
        for p in params if untracked else ():
            p.requires_grad_(False)
        return params, tuple(self.stateless_model.buffers())


class FunctionalModuleWithBuffers(FunctionalModule):
    """The same of its buffers too."""

    def forward(self, params: State, buffers: State, *args: Any, **kwargs: Any) -> Any:
        """The module's result with these parameters and buffers."""
        return self._skimp_call(params, buffers, args, kwargs)


@_deprecated_for("torch.func.functional_call")
def make_functional(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModule, State]:
    """(f(params, ...), the parameters of a copy) of a module without buffers."""
    if any([True for _ in model.buffers()]):
        raise RuntimeError(
            "make_functional(model): `model` has buffers. Please use "
            "make_functional_with_buffers(model) instead."
        )
    made = FunctionalModule(model)
    return made, made._skimp_state(disable_autograd_tracking)[0]


@_deprecated_for("torch.func.functional_call")
def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, State, State]:
    """(f(params, buffers, ...), the parameters and the buffers of a copy)."""
    made = FunctionalModuleWithBuffers(model)
    return made, *made._skimp_state(disable_autograd_tracking)


@_deprecated_for("torch.func.stack_module_state")
def combine_state_for_ensemble(
    models: Sequence[Module],
) -> tuple[FunctionalModuleWithBuffers, State, State]:
    """(f(params, buffers, ...), parameters and buffers of all models, stacked)."""
    params, buffers = stack_module_state(models)
    made = FunctionalModuleWithBuffers(models[0])
    return made, tuple([p.detach() for p in params.values()]), tuple(buffers.values())
