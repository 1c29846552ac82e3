"""Policies: which modules below a FullyShardedDataParallel are units of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from skimp._engine.interrupts import region
from skimp.nn.modules.module import Module


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    return True


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Those of which a function says so."""
    return recurse or bool(lambda_fn(module))


def transformer_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: Iterable[type[Module]],
) -> bool:
    """Those of some classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: Any = None,
    exclude_wrap_modules: Any = None,
) -> bool:
    """Those with so many parameters that are in no unit yet."""
    return nonwrapped_numel >= min_num_params


class CustomPolicy:
    """Those of which a function says so."""

    def __init__(self, lambda_fn: Callable[[Module], Any]) -> None:
        self._fn = lambda_fn

    def wants(self, module: Module, recurse: bool, nonwrapped_numel: int) -> bool:
        """The policy as a function."""
        return recurse or bool(self._fn(module))


class ModuleWrapPolicy:
    """Those of some classes."""

    def __init__(self, module_classes: Iterable[type[Module]]) -> None:
        self._classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, nonwrapped_numel: int = 0) -> bool:
        return recurse or isinstance(module, self._classes)


_wrapper: list[tuple[Any, dict[str, Any]]] = []


@region
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Inside, `wrap` wraps with this class."""
    before = len(_wrapper)
    try:
        _wrapper.append((wrapper_cls, wrapper_kwargs))
        yield
    finally:
        del _wrapper[before:]


def wrap(module: Module, **overrides: Any) -> Any:
    """The module wrapped as the innermost `enable_wrap` says; as it is outside of one."""
    if not _wrapper:
        return module
    cls, words = _wrapper[-1]
    return cls(module, **{**words, **overrides})
