"""Full backward hooks: identity functions around a module, whose nodes see the gradients that
enter and leave it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from skimp._engine.autograd import modes
from skimp._engine.tensor.tensor import Tensor
from skimp.autograd.function import Function

_NO_INPUT = (
    "Backward hook for Modules where no input requires gradient should always return None or None "
    "for all gradients."
)

_FIRING = (
    "Full backward hook is firing when gradients are computed with respect to module outputs since "
    "no inputs require "
    "gradients. See "
    "https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html#torch.nn.Module."
    "register_full_backward_hook for more details."
)


class BackwardHookFunction(Function):
    """The identity of several tensors at once."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        ctx.mark_non_differentiable(*[a for a in args if not a.requires_grad])
        return args

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        return args


class Boundary:
    """One call of a module, between the nodes of its inputs and of its outputs."""

    def __init__(
        self, module: Any, hooks: list[Callable[..., Any]], pre_hooks: list[Callable[..., Any]]
    ) -> None:
        self._module = module
        self._hooks = hooks
        self._pre_hooks = pre_hooks
        self._arrived: Any = None  # the gradients of the outputs, while the module's backward runs
        self._inputs: list[int] | None = None  # which arguments are tensors, if one requires grad
        self._count = 0

    def enter(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, as results of a node that calls the hooks with the gradients of the
        inputs.
        """
        new, self._inputs = self._around(args, self._on_inputs)
        self._count = len(args)
        return new  # type: ignore[no-any-return]

    def leave(self, result: Any) -> Any:
        """The results, as results of a node that remembers their gradients."""
        if not isinstance(result, (Tensor, tuple)):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of "
                f"Tensors but received {type(result)}",
                stacklevel=5,
            )
            return result
        single = isinstance(result, Tensor)
        results = (result,) if single else result
        new, self._outputs = self._around(results, self._on_outputs)
        self._many = len(results)
        return new[0] if single else new

    def _around(self, values: Any, hook: Callable[..., Any]) -> tuple[Any, list[int] | None]:
        where = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
        if not (modes.state.grad and any(values[i].requires_grad for i in where)):
            return values, None
        made = BackwardHookFunction.apply(*[values[i] for i in where])
        node = next(t.grad_fn for t in made if t.grad_fn is not None)
        node.register_hook(hook)
        new = list(values)
        for i, t in zip(where, made, strict=True):
            new[i] = t
        if type(values) is tuple:
            return tuple(new), where
        return type(values)(*new), where  # a named tuple

    def _on_inputs(self, grads: Sequence[Any], _: Any) -> Any:
        if (
            self._arrived is None
        ):  # reached by a part of the graph that passed no output of the module
            return None
        assert self._inputs is not None
        current = _packed(grads, self._inputs, self._count)
        result = None
        for hook in self._hooks:
            new = hook(self._module, current, self._arrived)
            if new is not None:
                current = result = self._checked(new)
        self._arrived = None
        return None if result is None else tuple([result[i] for i in self._inputs])

    def _checked(self, new: Any) -> Any:
        new = new if isinstance(new, tuple) else (new,)
        if len(new) != self._count:
            raise RuntimeError(
                f"Backward hook returned an invalid number of grad_input, got {len(new)}, but "
                f"expected {self._count}"
            )
        return new

    def _on_outputs(self, _: Any, grads: Sequence[Any]) -> Any:
        assert self._outputs is not None
        current = _packed(grads, self._outputs, self._many)
        replaced = False
        for hook in self._pre_hooks:
            new = hook(self._module, current)
            if new is None:
                continue
            current = new if isinstance(new, tuple) else (new,)
            replaced = True
            if len(current) != self._many:
                raise RuntimeError(
                    "Backward pre hook returned an invalid number of grad_output, got "
                    f"{len(current)}, but expected {self._many}"
                )
        self._arrived = current
        if self._inputs is None:
            self._without_inputs(current)
        return tuple([current[i] for i in self._outputs]) if replaced else None

    def _without_inputs(self, current: Any) -> None:
        if self._hooks:
            warnings.warn(_FIRING, stacklevel=5)
        none = (None,) * self._count
        for hook in self._hooks:
            new = hook(self._module, none, current)
            if new is not None and not (isinstance(new, tuple) and all(e is None for e in new)):
                raise RuntimeError(_NO_INPUT)
        self._arrived = None


def _packed(values: Sequence[Any], where: list[int], count: int) -> tuple[Any, ...]:
    new: list[Any] = [None] * count
    for i, v in zip(where, values, strict=True):
        new[i] = v
    return tuple(new)
