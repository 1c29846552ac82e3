"""Twins: the same data as a torch tensor and as a skimp tensor, and the comparison of what ops
make of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import skimp

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
REAL = DTYPES[:-2]
FLOATS = ("float32", "float64")


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0, ties: bool = True) -> torch.Tensor:
    """Random numbers of any type; with ties, small whole ones."""
    g = torch.Generator().manual_seed(seed)
    if dtype == "bool":
        return torch.randint(0, 2, shape, generator=g).bool()
    low = 0 if dtype == "uint8" else -4
    values = torch.randint(low, 5, shape, generator=g).to(getattr(torch, dtype))
    if not ties and values.is_floating_point():
        values = torch.randn(shape, generator=g, dtype=torch.float64).to(values.dtype)
    return values


def twin(x: Any) -> Any:
    """The skimp side of torch tensors, in any nesting; the same strides."""
    if isinstance(x, torch.Tensor):
        return _tensor(x)
    if isinstance(x, (tuple, list)):
        return type(x)([twin(v) for v in x])
    if isinstance(x, dict):
        return {k: twin(v) for k, v in x.items()}
    if isinstance(x, torch.dtype):
        return getattr(skimp, str(x).removeprefix("torch."))
    return x


def _tensor(x: torch.Tensor) -> Any:
    dtype = getattr(skimp, str(x.dtype).removeprefix("torch."))
    plain = x.detach()
    order = sorted(range(x.ndim), key=lambda d: (-x.stride(d), d))
    dense = plain.permute(order).contiguous()
    bits = dense.view(torch.int16).numpy() if x.dtype is torch.bfloat16 else dense.numpy()
    made: Any = skimp.tensor(bits.copy())
    if x.dtype is torch.bfloat16:
        made = made.view(dtype)
    if x.ndim > 1:
        made = made.permute([order.index(d) for d in range(x.ndim)])
    if x.requires_grad:
        made = made.detach().requires_grad_(True)
    return made


def array(t: Any) -> np.ndarray[Any, Any]:
    """The elements as a NumPy array of a type that NumPy knows."""
    t = t.detach()
    if str(t.dtype) == "torch.bfloat16":
        t = t.to(torch.float32 if isinstance(t, torch.Tensor) else skimp.float32)
    found: np.ndarray[Any, Any] = t.numpy()
    return found


def same(ours: Any, theirs: Any, tolerance: float = 0.0, strides: bool = True) -> None:
    """Assert equal structure, shapes, types, strides and values."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, skimp.Tensor)
        assert str(ours.dtype) == str(theirs.dtype)
        assert tuple(ours.shape) == tuple(theirs.shape)
        if strides and theirs.numel() > 1:
            wide = [d for d, n in enumerate(theirs.shape) if n > 1]
            assert [ours.stride(d) for d in wide] == [theirs.stride(d) for d in wide]
        np.testing.assert_allclose(array(ours), array(theirs), rtol=tolerance, atol=tolerance)
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other, tolerance, strides)
    else:
        assert ours == theirs


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    """What a call gives, or the class and the beginning of the error that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return f(*args)
        except (RuntimeError, IndexError, TypeError, ValueError) as e:
            return type(e), str(e).strip()


def agree(
    f: Callable[..., Any],
    *args: Any,
    tolerance: float = 0.0,
    strides: bool = True,
    message: int = 40,
) -> None:
    """`f(library, *args)` gives the same on both sides, or raises the same class with the same
    first characters.
    """
    theirs = outcome(f, torch, *args)
    ours = outcome(f, skimp, *twin(args))
    if isinstance(theirs, tuple) and theirs and isinstance(theirs[0], type):
        assert isinstance(ours, tuple), f"{ours} instead of {theirs}"
        assert ours[0] is theirs[0], f"{ours} instead of {theirs}"
        assert ours[1][:message] == theirs[1][:message]
        return
    same(ours, theirs, tolerance, strides)


def same_gradients(f: Callable[..., Any], *args: Any, tolerance: float = 1e-9) -> None:
    """First and second derivatives of `f(library, *args)` in the float64 arguments are torch's."""
    given = [a.clone().requires_grad_() if _differentiable(a) else a for a in args]
    ours = [twin(a) for a in given]
    found = []
    for library, values in ((torch, given), (skimp, ours)):
        leaves = [v for v in values if getattr(v, "requires_grad", False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = f(library, *values)
        result = result[0] if isinstance(result, tuple) else result
        weights = np.cos(np.arange(result.numel())).reshape(tuple(result.shape))
        loss = (result * result * library.tensor(weights)).sum()
        first = library.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        total = sum([(g * g).sum() for g in first if g is not None and g.requires_grad])
        second: Any = ()
        if hasattr(total, "requires_grad"):
            second = library.autograd.grad(total, leaves, allow_unused=True)
        found.append((first, second))
    pairs = [
        *zip(found[1][0], found[0][0], strict=True),
        *zip(found[1][1], found[0][1], strict=True),
    ]
    for one, other in pairs:
        if other is None or one is None:
            present = one if other is None else other
            assert present is None or not np.any(array(present))
        else:
            same(one, other, tolerance, strides=False)


def _differentiable(a: Any) -> bool:
    return isinstance(a, torch.Tensor) and a.dtype is torch.float64
