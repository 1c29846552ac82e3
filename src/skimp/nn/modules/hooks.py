"""Hooks of modules: registering them, and calling a module that has some."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from skimp._engine.autograd.nodes import RemovableHandle
from skimp.nn.modules.boundary import Boundary

Hooks = OrderedDict[int, Callable[..., Any]]

# Those that every module calls.
FORWARD_PRE: Hooks = OrderedDict()
FORWARD: Hooks = OrderedDict()
FORWARD_WITH_KWARGS: OrderedDict[int, bool] = OrderedDict()
FORWARD_ALWAYS: OrderedDict[int, bool] = OrderedDict()
BACKWARD_PRE: Hooks = OrderedDict()
BACKWARD: Hooks = OrderedDict()
SHARED = (BACKWARD_PRE, BACKWARD, FORWARD, FORWARD_PRE)
REGISTRATION: dict[str, Hooks] = {
    "buffer": OrderedDict(),
    "parameter": OrderedDict(),
    "module": OrderedDict(),
}

_MIXED = (
    "Cannot use both regular backward hooks and full backward hooks as a global Module hook. "
    "Please use only one of them."
)
_MIXED_HERE = (
    "Cannot use both regular backward hooks and full backward hooks on a single Module. "
    "Please use only one of them."
)


class WrappedHook:
    """A hook that is called with the module it belongs to, which it does not keep alive."""

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        self.hook = hook
        self.with_module = module is not None
        if module is not None:
            self.module = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state = {"hook": self.hook, "with_module": self.with_module}
        return {**state, "module": self.module()} if self.with_module else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.hook = state["hook"]
        self.with_module = bool(state["with_module"])
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


class Hooked:
    """What a module calls before and after its forward and in backward."""

    _backward_pre_hooks: Hooks
    _backward_hooks: Hooks
    _is_full_backward_hook: bool | None
    _forward_hooks: Hooks
    _forward_hooks_with_kwargs: OrderedDict[int, bool]
    _forward_hooks_always_called: OrderedDict[int, bool]
    _forward_pre_hooks: Hooks
    _forward_pre_hooks_with_kwargs: OrderedDict[int, bool]
    forward: Callable[..., Any]

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` (and kwargs) before forward; what it returns replaces the
        arguments.
        """
        handle = _put(self._forward_pre_hooks, hook, prepend, self._forward_pre_hooks_with_kwargs)
        if with_kwargs:
            self._forward_pre_hooks_with_kwargs[handle.id] = True
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward (`always_call`: after an exception
        too).
        """
        extra = [self._forward_hooks_with_kwargs, self._forward_hooks_always_called]
        handle = _put(self._forward_hooks, hook, prepend, extra)
        if with_kwargs:
            self._forward_hooks_with_kwargs[handle.id] = True
        if always_call:
            self._forward_hooks_always_called[handle.id] = True
        return handle

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_output)` before the gradients of the module's inputs are
        computed.
        """
        return _put(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the module's inputs
        are known.
        """
        if self._is_full_backward_hook is False:
            raise RuntimeError(_MIXED_HERE)
        self._is_full_backward_hook = True
        return _put(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """The older form: `hook` sees the gradients of the last operation in forward only."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(_MIXED_HERE)
        self._is_full_backward_hook = False
        return _put(self._backward_hooks, hook, False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (
            self._backward_hooks
            or self._backward_pre_hooks
            or self._forward_hooks
            or self._forward_pre_hooks
            or BACKWARD_PRE
            or BACKWARD
            or FORWARD
            or FORWARD_PRE
        ):
            return self.forward(*args, **kwargs)
        call = _Call(self, args, kwargs)
        try:
            return call.run()
        except Exception:
            call.after_error()
            raise


class _Call:
    """One call of a module with hooks."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module = module
        self.args = args
        self.kwargs = kwargs
        self.result: Any = None
        self.called: set[int] = set()

    def run(self) -> Any:
        module = self.module
        pre = [*BACKWARD_PRE.values(), *module._backward_pre_hooks.values()]
        full, plain = _backward_hooks(module)
        self._before()
        boundary = None
        if full or pre:
            boundary = Boundary(module, full, pre)
            self.args = boundary.enter(self.args)
        self.result = module.forward(*self.args, **self.kwargs)
        for key, hook in (*FORWARD.items(), *module._forward_hooks.items()):
            self.called.add(key)
            self._after(key, hook)
        if boundary is not None:
            self.result = boundary.leave(self.result)
        if plain:
            _on_last_node(module, self.result, plain)
        return self.result

    def _before(self) -> None:
        module = self.module
        for key, hook in (*FORWARD_PRE.items(), *module._forward_pre_hooks.items()):
            if key in module._forward_pre_hooks_with_kwargs:
                new = hook(module, self.args, self.kwargs)
                if new is None:
                    continue
                if not (isinstance(new, tuple) and len(new) == 2):
                    raise RuntimeError(
                        "forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                        f"but got {new}."
                    )
                self.args, self.kwargs = new
                continue
            new = hook(module, self.args)
            if new is not None:
                self.args = new if isinstance(new, tuple) else (new,)

    def _after(self, key: int, hook: Callable[..., Any]) -> None:
        if key in self.module._forward_hooks_with_kwargs or key in FORWARD_WITH_KWARGS:
            new = hook(self.module, self.args, self.kwargs, self.result)
        else:
            new = hook(self.module, self.args, self.result)
        if new is not None:
            self.result = new

    def after_error(self) -> None:
        """Call the hooks that want to be called always and were not; their own errors only warn."""
        groups = (
            ("global module", FORWARD, FORWARD_ALWAYS),
            ("module", self.module._forward_hooks, self.module._forward_hooks_always_called),
        )
        for who, hooks, always in groups:
            for key, hook in hooks.items():
                if key not in always or key in self.called:
                    continue
                try:
                    self._after(key, hook)
                except Exception as e:
                    warnings.warn(
                        f"{who} forward hook with ``always_call=True`` raised an exception that "
                        f"was silenced as another error was raised in forward: {e}",
                        stacklevel=4,
                    )


def _put(
    hooks: Hooks, hook: Callable[..., Any], prepend: bool, extra: Any = None
) -> RemovableHandle:
    handle = RemovableHandle(hooks, extra_dict=extra)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _backward_hooks(module: Any) -> tuple[list[Any], list[Any]]:
    """Full backward hooks, and those of the older form."""
    full, plain = (
        ([], list(BACKWARD.values())) if _global_form[0] is False else (list(BACKWARD.values()), [])
    )
    own = list(module._backward_hooks.values())
    if module._is_full_backward_hook is False:
        plain += own
    else:
        full += own
    return full, plain


def _on_last_node(module: Any, result: Any, hooks: list[Any]) -> None:
    while isinstance(result, (dict, tuple, list)):
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    node = result.grad_fn
    if node is None:
        return
    for hook in hooks:
        node.register_hook(lambda grads, arrived, hook=hook: hook(module, grads, arrived))


# -- hooks of all modules -------------------------------------------------------------------------

_global_form: list[bool | None] = [None]  # whether BACKWARD holds full hooks


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the forward of every module."""
    return _put(FORWARD_PRE, hook, False)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the forward of every module."""
    handle = _put(FORWARD, hook, False, [FORWARD_WITH_KWARGS, FORWARD_ALWAYS])
    if with_kwargs:
        FORWARD_WITH_KWARGS[handle.id] = True
    if always_call:
        FORWARD_ALWAYS[handle.id] = True
    return handle


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """The older form, for every module.

    Raises: RuntimeError beside hooks of the other form.
    """
    if _global_form[0] is True:
        raise RuntimeError(_MIXED)
    _global_form[0] = False
    return _put(BACKWARD, hook, False)


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` in the backward of every module."""
    return _put(BACKWARD_PRE, hook, False)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` in the backward of every module.

    Raises: RuntimeError beside hooks of the other form.
    """
    if _global_form[0] is False:
        raise RuntimeError(_MIXED)
    _global_form[0] = True
    return _put(BACKWARD, hook, False)


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` whenever a buffer is registered."""
    return _put(REGISTRATION["buffer"], hook, False)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, param)` whenever a parameter is registered."""
    return _put(REGISTRATION["parameter"], hook, False)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, submodule)` whenever a child is registered."""
    return _put(REGISTRATION["module"], hook, False)
