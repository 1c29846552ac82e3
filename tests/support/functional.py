"""One call of nn.functional on both sides: values, types, shapes, and the gradients of every
float.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import skimp

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def ours(value: Any) -> Any:
    """The same on our side: tensors with their strides and whether they require grad."""
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        return type(value)(ours(v) for v in value)
    return (
        getattr(skimp, str(value).removeprefix("torch."))
        if isinstance(value, torch.dtype)
        else value
    )


def tensor(t: torch.Tensor) -> Any:
    name = str(t.dtype).removeprefix("torch.")
    plain = t.detach()
    if t.dtype in (torch.bfloat16, torch.float16):
        plain = plain.float()
    made = skimp.empty_strided(tuple(t.shape), t.stride(), dtype=getattr(skimp, name))
    made.copy_(skimp.from_numpy(plain.contiguous().numpy().copy()))
    return made.requires_grad_(t.requires_grad)


def array(t: Any) -> np.ndarray[Any, Any]:
    if isinstance(t, torch.Tensor):
        t = t.detach()
        return (t.float() if t.dtype in (torch.bfloat16, torch.float16) else t).numpy()
    t = t.detach()
    half = t.dtype in (skimp.bfloat16, skimp.float16)
    return (t.float() if half else t).numpy()


def close(got: Any, want: torch.Tensor, tolerance: float | None = None) -> None:
    assert str(got.dtype) == str(want.dtype)
    assert tuple(got.shape) == tuple(want.shape)
    tolerance = TOLERANCE.get(want.dtype, 0) if tolerance is None else tolerance
    np.testing.assert_allclose(array(got), array(want), rtol=tolerance, atol=tolerance)


def both(name: str, *args: Any, tolerance: float | None = None, **words: Any) -> Any:
    """nn.functional.name on both sides: equal results, and equal gradients of what requires
    grad.
    """
    f, g = getattr(torch.nn.functional, name), getattr(skimp.nn.functional, name)
    mine, my_words = [ours(a) for a in args], {k: ours(v) for k, v in words.items()}
    want, got = f(*args, **words), g(*mine, **my_words)
    wants = want if isinstance(want, tuple) else (want,)
    gots = got if isinstance(got, tuple) else (got,)
    assert len(wants) == len(gots)
    for one, other in zip(gots, wants, strict=True):
        if other is None:
            assert one is None
        else:
            close(one, other, tolerance)
    leaves = [
        t for t in (*args, *words.values()) if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    my_leaves = [
        t for t in (*mine, *my_words.values()) if isinstance(t, skimp.Tensor) and t.requires_grad
    ]
    if leaves:
        seed = torch.randn(wants[0].shape, dtype=torch.float64).to(wants[0].dtype)
        grads = torch.autograd.grad(wants[0], leaves, seed)
        mine_too = skimp.autograd.grad(gots[0], my_leaves, tensor(seed))
        for one, other in zip(mine_too, grads, strict=True):
            close(one, other, None if tolerance is None else 10 * tolerance)
    return got


def randn(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_(grad)
