"""Modules whose parameters get their shapes from the first input."""

from __future__ import annotations

from typing import Any

from skimp.nn.parameter import UninitializedParameter, is_lazy


class LazyModuleMixin:
    """Beside a module class: its parameters wait for `initialize_parameters`, which the first call
    runs.

    Shape: none before the first call.
    Raises: NotImplementedError for a class without `initialize_parameters`, RuntimeError where it
    leaves one uninitialised.
    """

    cls_to_become: type[Any] | None = None
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        me: Any = self
        self._load_hook = me._register_load_state_dict_pre_hook(self._lazy_load_hook)
        hook = self._infer_parameters
        self._initialize_hook = me.register_forward_pre_hook(hook, with_kwargs=True)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                destination[prefix + name] = (
                    param if is_lazy(param) or keep_vars else param.detach()
                )
        skipped = self._non_persistent_buffers_set  # type: ignore[attr-defined]
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in skipped:
                destination[prefix + name] = (
                    buffer if is_lazy(buffer) or keep_vars else buffer.detach()
                )

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize the parameters for these arguments of forward."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer still waits."""
        return any(is_lazy(p) for p in (*self._parameters.values(), *self._buffers.values()))

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *_: Any) -> None:
        """Parameters that wait take the shapes of what is loaded."""
        for name, param in (*self._parameters.items(), *self._buffers.items()):
            given = state_dict.get(prefix + name)
            if given is not None and is_lazy(param) and not is_lazy(given):
                param.materialize(given.shape)

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        """The first call: shapes, then the module is an ordinary one."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become


__all__ = ["LazyModuleMixin", "UninitializedParameter"]
