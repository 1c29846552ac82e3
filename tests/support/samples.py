"""Twins: the same data as a torch tensor and as a skimp tensor, and the comparison of what ops
make of them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import skimp

DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
REAL = DTYPES[:-2]
FLOATS = ("float32", "float64")
# How ops refuse element types that they have no kernel or no meaning for.
OF_TYPES = (
    r"implemented for|not support|cast to the desired|d?type|bool(ean)? (tensor|input|alpha)"
    r"|on torch\.bool|complex|Long"
)
STRIDED = (torch.strided, skimp.strided)
TOLERANCE = {  # what sums of a few dozen numbers may differ by
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
    torch.complex128: 1e-9,
    torch.complex64: 2e-5,
}


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


def twin(x: Any, made: dict[int, Any] | None = None) -> Any:
    """The skimp side of torch tensors, in any nesting; the same strides, and one for one."""
    made = {} if made is None else made
    if isinstance(x, torch.Tensor):
        if id(x) not in made:
            made[id(x)] = _tensor(x)
        return made[id(x)]
    if isinstance(x, (tuple, list)):
        return type(x)([twin(v, made) for v in x])
    if isinstance(x, dict):
        return {k: twin(v, made) for k, v in x.items()}
    if isinstance(x, (torch.dtype, torch.layout)):
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
    t = t.detach().resolve_conj().resolve_neg()
    if str(t.dtype) == "torch.bfloat16":
        t = t.to(torch.float32 if isinstance(t, torch.Tensor) else skimp.float32)
    found: np.ndarray[Any, Any] = t.numpy()
    return found


def same(ours: Any, theirs: Any, tolerance: float | None = 0.0, strides: bool = True) -> None:
    """Assert equal structure, shapes, types, layouts, strides, values, and whether they require a
    gradient: NaN equals NaN, and without a tolerance (None) numbers may differ by what their type
    rounds off.
    """
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, skimp.Tensor)
        assert (str(ours.dtype), str(ours.layout)) == (str(theirs.dtype), str(theirs.layout))
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert ours.requires_grad == theirs.requires_grad
        if theirs.layout is not torch.strided:
            ours, theirs = ours.detach().to_dense(), theirs.detach().to_dense()
        elif strides and theirs.numel() > 1:
            wide = [d for d, n in enumerate(theirs.shape) if n > 1]
            assert [ours.stride(d) for d in wide] == [theirs.stride(d) for d in wide]
        far = TOLERANCE.get(theirs.dtype, 0.0) if tolerance is None else tolerance
        np.testing.assert_allclose(array(ours), array(theirs), rtol=far, atol=far)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        same(list(ours.values()), list(theirs.values()), tolerance, strides)
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other, tolerance, strides)
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def shared(results: Any, args: Any) -> list[tuple[int, int]]:
    """Which results have their bytes in common with each other or with arguments, by number."""
    found = [t for t in tensors_in((results, args)) if t.layout in STRIDED and t.numel()]
    first = len([t for t in tensors_in(results) if t.layout in STRIDED and t.numel()])
    owners = [
        t.untyped_storage().data_ptr() if isinstance(t, torch.Tensor) else id(t._storage)
        for t in found
    ]
    pairs = [(i, k) for i in range(first) for k in range(i + 1, len(found))]
    return [(i, k) for i, k in pairs if owners[i] == owners[k]]


def tensors_in(x: Any) -> Iterator[Any]:
    """The tensors of either side in tuples and lists."""
    if isinstance(x, (torch.Tensor, skimp.Tensor)):
        yield x
    elif isinstance(x, (tuple, list)):
        for v in x:
            yield from tensors_in(v)


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    """What a call gives, or the error that it raises, without the frames that keep tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return answer(f, *args)


def agree(
    f: Callable[..., Any],
    *args: Any,
    refused: type[Exception] | str | None = None,
    tolerance: float | None = 0.0,
    strides: bool = True,
    aliases: bool = True,
    message: int = 40,
) -> None:
    """`f(library, *args)` is the same on both sides: values, shapes, types, strides, aliasing.

    The case says what it is: it succeeds; or it is `refused` with this class of error, and both
    say the same first characters. A case of a grid of types or places may say what words (a
    pattern) those of the grid that are refused are refused with.
    """
    theirs, mine = outcome(f, torch, *args), twin(args)
    ours = outcome(f, skimp, *mine)
    if not isinstance(theirs, Exception):
        assert not isinstance(refused, type), f"{theirs} instead of {refused.__name__}"
        assert not isinstance(ours, Exception), f"{ours!r} instead of {theirs}"
        same(ours, theirs, tolerance, strides)
        assert not aliases or shared(ours, mine) == shared(theirs, args)
        return
    assert type(ours).__name__ == type(theirs).__name__, f"{ours!r} instead of {theirs!r}"
    assert str(ours).strip()[:message] == str(theirs).strip()[:message]
    if isinstance(refused, str):
        assert re.search(refused, str(theirs)), f"PyTorch refuses the case: {theirs!r}"
    else:
        assert type(theirs) is refused, f"PyTorch refuses the case: {theirs!r}"


def alike(
    f: Callable[[Any], Any], refused: type[Exception] | None = None, words: bool = True
) -> None:
    """`f(library)` has the same text on both sides; or it is `refused` with this class of error,
    and both say the same first sentence (`words`).
    """
    theirs, ours = answer(f, torch), answer(f, skimp)
    told(theirs, refused)
    if refused is None:
        assert repr(ours).replace("skimp", "torch") == repr(theirs)
        return
    assert type(ours) is refused, repr(ours)
    if words:
        assert str(ours).partition(".")[0] == str(theirs).partition(".")[0]


def told(theirs: Any, refused: type[Exception] | None) -> None:
    """A case says what PyTorch does with it, so that one that is mistyped does not pass because
    both sides refuse it: this class of error, or (None) no error.
    """
    found = type(theirs) if isinstance(theirs, Exception) else None
    assert found is refused, f"PyTorch gives {theirs!r}, and the case says {refused}"


def answer(f: Callable[..., Any], *args: Any) -> Any:
    """`outcome`, with its warnings."""
    try:
        return f(*args)
    except Exception as error:
        return error.with_traceback(None)


def marked(text: str) -> list[tuple[str, bool]]:
    """The cases of a text, one a line, and whether it is refused: then `! ` stands before it."""
    return [(line.removeprefix("! "), line[:2] == "! ") for line in text.strip().split("\n")]


def refused_with(f: Callable[[], Any]) -> tuple[str, str]:
    """How a call is refused: the class of the error and its first line. One that is taken fails."""
    error = answer(f)
    assert isinstance(error, Exception), f"{error!r}, and the case says that it is refused"
    return type(error).__name__, str(error).split("\n")[0].replace("skimp.", "torch.")


def both(f: Callable[[Any], Any]) -> list[Any]:
    """What f(library) gives on our side and on theirs."""
    return [f(library) for library in (skimp, torch)]


def seeded(f: Callable[[Any, Any], Any]) -> list[Any]:
    """What f(library, functional) gives on our side and on theirs, each from the same seed."""
    found = []
    for library in (skimp, torch):
        library.manual_seed(0)
        found.append(f(library, library.nn.functional))
    return found


def refusals(cases: dict[Any, Any]) -> list[Any]:
    """A test's parameters: a class of error and a case, for all that are listed by their class."""
    return [
        pytest.param(error, case, id=name if isinstance(name, str) else None)
        for error, listed in cases.items()
        for name, case in (listed.items() if isinstance(listed, dict) else enumerate(listed))
    ]


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
