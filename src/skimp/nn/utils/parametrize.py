"""Parametrizations: a module's tensor computed, at each access, from others that are learnt."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.interrupts import region
from skimp._engine.tensor.tensor import Tensor
from skimp.nn.modules.container import ModuleDict, ModuleList
from skimp.nn.parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]  # fmt: skip

_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor] = {}


@region
def cached() -> Iterator[None]:
    """Inside, a parametrized tensor is computed once, not at each access.

    Shape: none; a context. The values are forgotten when the outermost ends.
    """
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def _register(module: Any, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _take_over(target: Tensor, source: Tensor) -> None:
    """Let `target` look at the bytes of `source`; it stays the same object, which optimizers
    know.
    """
    if source is not target:
        target.data = source.detach()


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and the original tensors that they start from.

    Shape: what the parametrizations make of the originals'.
    Dtypes: the original's; of any parametrization with `unsafe`.
    Raises: ValueError for parametrizations that change the shape or the dtype.
    Memory: the originals; the tensor is made at each look, unless `cached` keeps it.
    """

    original: Any

    def __init__(self, modules: Sequence[Any], original: Tensor, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new = self._skimp_inverse(original)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype != new.dtype:
                raise ValueError(
                    "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                    f"original.dtype: {original.dtype}\nright_inverse(original).dtype: {new.dtype}"
                )
            with no_grad():
                _take_over(original, new)
            _register(self, "original", original)
        else:
            self._skimp_register_all(original, new)
        if not unsafe:
            _check(
                self(),
                shape,
                dtype,
                "unparametrized",
                "parametrized",
                "unless `unsafe` flag is enabled.",
            )

    def _skimp_inverse(self, original: Tensor) -> Any:
        new: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    continue
                with suppress(NotImplementedError):  # it stands for the identity
                    new = module.right_inverse(new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        return new

    def _skimp_register_all(self, original: Tensor, new: Sequence[Any]) -> None:
        for i, t in enumerate(new):
            if not isinstance(t, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {i} of the sequence with type {type(t).__name__}."
                )
            if isinstance(original, Parameter):
                t = Parameter(t, original.requires_grad)
            t.requires_grad_(original.requires_grad)
            _register(self, f"original{i}", t)

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrized tensor is `value`."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            if self.is_tensor:
                self._skimp_set(
                    self.original, value, "`right_inverse` should return a tensor. Got ", "original"
                )
                return
            if not isinstance(value, Sequence):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors. Got "
                    f"{type(value).__name__}."
                )
            if len(value) != self.ntensors:
                raise ValueError(
                    f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. "
                    f"Got a sequence of length {len(value)}."
                )
            for i, t in enumerate(value):
                text = (
                    f"`right_inverse` must return a sequence of tensors. Got element {i} of type "
                )
                self._skimp_set(getattr(self, f"original{i}"), t, text, f"original{i}")

    @staticmethod
    def _skimp_set(original: Tensor, value: Any, text: str, name: str) -> None:
        if not isinstance(value, Tensor):
            raise ValueError(text + type(value).__name__)
        if value.dtype != original.dtype:
            raise ValueError(
                f"The tensor returned by `right_inverse` has dtype {value.dtype} while `{name}` "
                f"has dtype {original.dtype}"
            )
        _take_over(original, value)

    def forward(self) -> Any:
        modules = [m for name, m in self._modules.items() if name.isdigit()]
        if self.is_tensor:
            x = modules[0](self.original)
        else:
            x = modules[0](*[getattr(self, f"original{i}") for i in range(self.ntensors)])
        for module in modules[1:]:
            x = module(x)
        return x


def _check(new: Any, shape: Any, dtype: Any, before: str, after: str, unless: str) -> None:
    if not isinstance(new, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(new).__name__}.")
    for what, old, now in (("dtype", dtype, new.dtype), ("shape", shape, new.shape)):
        if now != old:
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, {unless}\n"
                f"{before} {what}: {old}\n{after} {what}: {now}"
            )


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    if id(self) not in memo:
        replica = memo[id(self)] = object.__new__(type(self))
        replica.__dict__ = copy.deepcopy(self.__dict__, memo)
    return memo[id(self)]


def _getstate(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _inject_class(module: Any) -> None:
    """A class of the module's own, for the properties to stand in."""
    cls: type[Any] = type(module)
    members: dict[str, Any] = {"__getstate__": _getstate}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Any, name: str) -> None:
    def get(self: Any) -> Any:
        parametrization = self.parametrizations[name]
        if not _cache_enabled:
            return parametrization()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = parametrization()
        return _cache[key]

    def put(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


def register_parametrization(
    module: Any, tensor_name: str, parametrization: Any, *, unsafe: bool = False
) -> Any:
    """Let `module.tensor_name` be `parametrization` of what it was; that is learnt from now on.

    The tensor's present value goes through `right_inverse`, where there is one:

    >>> class Doubled(torch.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> layer = torch.nn.Linear(1, 1, bias=False)
    >>> before = layer.weight.item()
    >>> layer = torch.nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())
    >>> layer.weight.item() == 2 * before
    True

    Shape: the parametrization keeps shape and dtype, unless `unsafe`.
    Raises: ValueError for a name that is no parameter or buffer, and for another shape or dtype.
    Memory: the module's class becomes one of its own; the tensor is computed at each access.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_another(module, tensor_name, parametrization)
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        found = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = found
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _check_another(module: Any, name: str, parametrization: Any) -> None:
    now = getattr(module, name)
    new = parametrization(now)
    unless = "unless the `unsafe` flag is enabled."
    _check(new, now.shape, now.dtype, f"module.{name}", f"parametrization(module.{name})", unless)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(new)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what in ("dtype", "shape"):
        if getattr(back, what) != getattr(now, what):
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name}, {unless}\nmodule.{name}.{what}: {getattr(now, what)}\nreturned "
                f"{what}: {getattr(back, what)}"
            )


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether the module has a parametrized tensor (of this name).

    Shape: none.
    """
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make the tensor an ordinary one again: with its present value, or with the original's.

    Shape: the tensor's.
    Raises: ValueError where there is no parametrization, or, with
    `leave_parametrized=False`, where several originals make the tensor.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    found = module.parametrizations[tensor_name]
    if found.is_tensor:
        original = found.original
        if leave_parametrized:
            with no_grad():
                _take_over(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Any) -> type:
    """The module's class without what parametrizations made of it.

    Shape: none.
    """
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Any, to_module: Any, tensor_name: str | None = None
) -> Any:
    """Give another module the parametrizations of this one, and their values.

    Shape: the tensors' of the other module.
    Memory: parametrizations are copied; values are written in place.
    """
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(
                to_module,
                name,
                Parameter(source.original if source.is_tensor else source.original0),
            )
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        if target.is_tensor:
            target.original = source.original
        else:
            for i in range(target.ntensors):
                setattr(target, f"original{i}", getattr(source, f"original{i}"))
    return to_module
