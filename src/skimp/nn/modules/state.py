"""state_dict and load_state_dict: a module's tensors by their dotted names."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.autograd.nodes import RemovableHandle
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.hooks import WrappedHook
from skimp.nn.modules.tree import Tree
from skimp.nn.parameter import Parameter, is_lazy

EXTRA = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` found in only one of the two."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class State(Tree):
    """Saving and loading what a module holds."""

    _version: int = 1
    _state_dict_hooks: OrderedDict[int, Any]
    _state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_pre_hooks: OrderedDict[int, Any]
    _load_state_dict_post_hooks: OrderedDict[int, Any]

    def get_extra_state(self) -> Any:
        """What else belongs in the state_dict; a subclass that has such overrides this and
        `set_extra_state`.
        """
        raise RuntimeError(
            "Reached a code path in Module.get_extra_state() that should never be called."
        )

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave."""
        raise RuntimeError(
            "Reached a code path in Module.set_extra_state() that should never be called."
        )

    # -- saving -----------------------------------------------------------------------------------

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Parameters and persistent buffers by name, detached unless `keep_vars`; they share the
        module's memory.
        """
        if args:
            named = (destination, prefix, keep_vars)
            destination, prefix, keep_vars = (*args, *named[len(args) :])[:3]
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in self._state_dict_hooks.values():
            new = hook(self, destination, prefix, local)
            if not getattr(hook, "_from_public_api", False):
                destination = destination if new is None else new
            elif new is not None:
                raise RuntimeError("state_dict post-hook must return None")
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                destination[prefix + name] = param if keep_vars else param.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if type(self).get_extra_state is not State.get_extra_state:
            destination[prefix + EXTRA] = self.get_extra_state()

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously "
                "registered via register_state_dict_post_hook"
            )
        return RemovableHandle.put(self._state_dict_hooks, hook)

    def register_state_dict_post_hook(self, hook: Any) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` when the state_dict is made."""
        hook._from_public_api = True
        return RemovableHandle.put(self._state_dict_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the state_dict is made."""
        return RemovableHandle.put(self._state_dict_pre_hooks, hook)

    # -- loading ----------------------------------------------------------------------------------

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], with_module: bool = False
    ) -> RemovableHandle:
        called = WrappedHook(hook, self if with_module else None)
        return RemovableHandle.put(self._load_state_dict_pre_hooks, called)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, ...)` before a state_dict is loaded."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after a state_dict is loaded; it may change the
        lists.
        """
        return RemovableHandle.put(self._load_state_dict_post_hooks, hook)

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        found = (missing_keys, unexpected_keys, error_msgs)
        for hook in self._load_state_dict_pre_hooks.values():
            hook(state_dict, prefix, local_metadata, strict, *found)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = self._skimp_persistent()
        for name, tensor in own.items():
            key = prefix + name
            if key in state_dict:
                _load_one(self, name, tensor, key, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)
        extra = prefix + EXTRA
        if type(self).set_extra_state is not State.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        elif strict and extra in state_dict:
            unexpected_keys.append(extra)
        if strict:
            for key in state_dict:
                if not key.startswith(prefix) or key == extra:
                    continue
                head, *below = key[len(prefix) :].split(".", 1)
                if head not in (self._modules if below else own):
                    unexpected_keys.append(key)

    def _skimp_persistent(self) -> dict[str, Tensor]:
        found: dict[str, Any] = dict(self._parameters)
        found.update(
            (k, v) for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set
        )
        return {k: v for k, v in found.items() if v is not None}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Copy (or, with `assign`, take) the tensors of a state_dict; `strict` wants the very same
        keys.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        metadata = getattr(state_dict, "_metadata", None)
        work: Any = OrderedDict(state_dict)
        if metadata is not None:
            work._metadata = metadata
        keys = _IncompatibleKeys([], [])
        errors: list[str] = []
        _load(self, work, "", metadata, assign, keys, errors)
        if strict:
            found = {"Unexpected": keys.unexpected_keys, "Missing": keys.missing_keys}
            for kind, names in found.items():
                if names:
                    listed = ", ".join(f'"{k}"' for k in names)
                    errors.insert(0, f"{kind} key(s) in state_dict: {listed}. ")
        if errors:
            text = "\n\t".join(errors)
            raise RuntimeError(
                f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{text}"
            )
        return keys


def _load(
    module: Any,
    state_dict: Any,
    prefix: str,
    metadata: Any,
    assign: bool,
    keys: _IncompatibleKeys,
    errors: list[str],
) -> None:
    local = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local["assign_to_params_buffers"] = assign
    module._load_from_state_dict(
        state_dict, prefix, local, True, keys.missing_keys, keys.unexpected_keys, errors
    )
    for name, child in module._modules.items():
        if child is not None:
            below = f"{prefix}{name}."
            part = {k: v for k, v in state_dict.items() if k.startswith(below)}
            _load(child, part, below, metadata, assign, keys, errors)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                "return new values, if "
                "incompatible_keys need to be modified, it should be done inplace."
            )


def _load_one(
    module: Any, name: str, tensor: Tensor, key: str, source: Any, assign: bool, errors: list[str]
) -> None:
    if not isinstance(source, Tensor):
        errors.append(
            f'While copying the parameter named "{key}", expected torch.Tensor or '
            "Tensor-like object from checkpoint but "
            f"received {type(source)}"
        )
        return
    lazy = is_lazy(tensor)
    if not lazy and not tensor.shape and tuple(source.shape) == (1,):
        source = source[0]
    if not lazy and source.shape != tensor.shape:
        errors.append(
            f"size mismatch for {key}: copying a param with shape {source.shape} from checkpoint, "
            f"the shape in current model is {tensor.shape}."
        )
        return
    try:
        with no_grad():
            if not assign:
                tensor.copy_(source)
                return
            if isinstance(tensor, Parameter):
                if isinstance(source, Parameter):
                    source.requires_grad_(tensor.requires_grad)
                else:
                    source = Parameter(source, requires_grad=tensor.requires_grad)
            setattr(module, name, source)
    except Exception as e:
        errors.append(
            f'While copying the parameter named "{key}", whose dimensions in the model are '
            f"{tensor.size()} and whose "
            f"dimensions in the checkpoint are {source.size()}, an exception occurred : {e.args}."
        )
