"""torch.autocast: regions in which listed ops compute in another type. On the CPU that is
bfloat16.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from skimp._engine.interpreter import enters_uninterrupted
from skimp._engine.interrupts import insist
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor
from skimp.amp import casting, state as s
from skimp.amp.state import is_autocast_available, state

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


class autocast:  # noqa: N801  (PyTorch's name)
    """A context or a decorator: inside, matrix products and convolutions run in `dtype`, losses in
    float32.
    """

    def __init__(
        self,
        device_type: str,
        dtype: dtypes.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = s.check(device_type)
        self.fast_dtype = s.get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = state.cache if cache_enabled is None else cache_enabled
        self._enabled = enabled and self._skimp_supported()

    def _skimp_supported(self) -> bool:
        if self.device == "cuda":
            warnings.warn(
                "CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=3
            )
            return False
        if self.fast_dtype not in dtypes.HALVES:
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "CPU Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
                stacklevel=3,
            )
            return False
        return True

    def __enter__(self) -> autocast:
        device = self.device
        self._before = state.enabled[device], state.dtype[device], state.cache, state.nesting
        try:
            casting.set_autocast_enabled(device, self._enabled)
            state.dtype[device], state.cache = self.fast_dtype, self._cache_enabled
            state.nesting += 1
        except BaseException:
            self.__exit__()
            raise
        return self

    @enters_uninterrupted
    def __exit__(self, *_: object) -> None:
        insist(self._skimp_restore)

    def _skimp_restore(self) -> None:
        enabled, state.dtype[self.device], state.cache, state.nesting = self._before
        if state.nesting == 0:
            state.casts.clear()
        casting.set_autocast_enabled(self.device, enabled)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. "
                "Did you mean to use autocast as a context manager? For example:\n"
                "    with torch.autocast(device_type=...):\n        output = model(input)"
            )

        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            region = object.__new__(
                type(self)
            )  # one per call: a decorated function may call itself
            region.__dict__.update(self.__dict__)
            with region:
                return func(*args, **kwargs)

        return run


def custom_fwd(
    fwd: Any = None, *, device_type: str, cast_inputs: dtypes.dtype | None = None
) -> Any:
    """For `forward` of an autograd.Function: inputs cast to a type and autocast off, or autocast as
    it is.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    s.check(device_type)

    @functools.wraps(fwd)
    def run(*args: Any, **kwargs: Any) -> Any:
        on = s.is_autocast_enabled(device_type)
        if not isinstance(args[0], Tensor):  # of a plain function's, `_dtype` is the tensor's own
            args[0]._dtype = s.get_autocast_dtype(device_type)
            args[0]._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, cast_inputs), **_cast(kwargs, cast_inputs))

    return run


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """For `backward` of an autograd.Function: autocast as it was in forward."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def run(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return run


def _cast(value: Any, dtype: dtypes.dtype) -> Any:
    """Floating tensors cast, in containers too."""
    if isinstance(value, Tensor):
        fits = value.dtype.is_floating_point and value.dtype is not dtypes.float64
        return value.to(dtype) if fits else value
    if isinstance(value, (str, bytes, np.ndarray)):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, dtype): _cast(v, dtype) for k, v in value.items()}
    if isinstance(value, Iterable):
        items = [_cast(v, dtype) for v in value]
        return type(value)(items) if isinstance(value, (list, tuple)) else items
    return value
