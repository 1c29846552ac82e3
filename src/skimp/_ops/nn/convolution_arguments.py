"""The arguments of convolutions: what PyTorch refuses, and the steps of a call that is right, which
are remembered."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.tensor import dtypes, promotion

Ints = tuple[int, ...]


def per_dim(value: Any, nd: int, name: str) -> Ints:
    """One integer for each spatial dim, from one for all or a list."""
    if isinstance(value, (tuple, list)):
        found = tuple([int(v) for v in value])
        if len(found) == 1:
            return found * nd
        if len(found) != nd:
            raise RuntimeError(
                f"expected {name} to be a single integer value or a list of {nd} values to match "
                f"the convolution dimensions, but got {name}={list(found)}"
            )
        return found
    return (int(value),) * nd


# types that PyTorch has no kernels for, nor asks whether all are alike: not transposed, transposed
_REFUSED = ((dtypes.bool,), (dtypes.bool, dtypes.uint8))


def check(input: Any, weight: Any, bias: Any, nd: int, groups: int, transposed: bool) -> None:
    name = f"conv_transpose{nd}d" if transposed else f"conv{nd}d"
    if input.ndim not in (nd + 1, nd + 2):
        raise RuntimeError(
            f"Expected {nd + 1}D (unbatched) or {nd + 2}D (batched) input to {name}, but got input "
            f"of size: {list(input.shape)}"
        )
    if weight.ndim != nd + 2:
        raise RuntimeError(
            f"expected weight to be at least 1 dimensional, got {nd + 2}-dimensional weight "
            "expected, but got "
            f"{weight.ndim}-dimensional weight of size {list(weight.shape)} instead"
        )
    if not transposed:
        _check_type(input, "bias", bias)
    kernel = f"slow_conv{'_transpose' if transposed else ''}{max(2, nd)}d_cpu"
    promotion.refuse(kernel, input.dtype, _REFUSED[transposed])
    _check_type(input, "weight", weight)
    _check_type(input, "bias", bias)
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    _check_channels(input, weight, bias, nd, groups, transposed)


def _check_type(input: Any, what: str, t: Any) -> None:
    if t is not None and t.dtype is not input.dtype:
        a, b = promotion.scalar_type_name(input.dtype), promotion.scalar_type_name(t.dtype)
        raise RuntimeError(f"Input type ({a}) and {what} type ({b}) should be the same")


def _check_channels(
    input: Any, weight: Any, bias: Any, nd: int, groups: int, transposed: bool
) -> None:
    channels = input.shape[-nd - 1]
    if weight.shape[0] < groups or weight.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be "
            + (
                f"at least {groups} at dimension 0, but got weight of size {list(weight.shape)}"
                if weight.shape[0] < groups
                else f"divisible by {groups} at dimension 0, but got weight of size "
                f"[{list(weight.shape)}]"
            )
            + " instead"
        )
    wanted = weight.shape[0] if transposed else weight.shape[1] * groups
    if channels != wanted:
        raise RuntimeError(
            f"Given {'transposed=1, ' if transposed else f'groups={groups}, '}weight of size "
            f"{list(weight.shape)}, expected input{list(input.shape)} to have {wanted} channels, "
            f"but got {channels} channels instead"
        )
    made = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and tuple(bias.shape) != (made,):
        raise RuntimeError(
            f"Given {'transposed=1, ' if transposed else ''}weight of size "
            f"{list(weight.shape)}, expected bias to be 1-dimensional with "
            f"{made} elements, but got bias of size {list(bias.shape)} instead"
        )


def _check_steps(stride: Ints, padding: Ints, dilation: Ints) -> None:
    if any(s <= 0 for s in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(p < 0 for p in padding):
        raise RuntimeError("negative padding is not supported")
    if any(d <= 0 for d in dilation):
        raise RuntimeError("dilation should be greater than zero")


def _check_kernel(size: Ints, kernel: Ints, padding: Ints, dilation: Ints) -> None:
    padded = [s + 2 * p for s, p in zip(size, padding, strict=True)]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    if any(k == 0 for k in kernel) or any(r > s for r, s in zip(reach, padded, strict=True)):
        a, b = " x ".join(map(str, padded)), " x ".join(map(str, reach))
        raise RuntimeError(
            f"Calculated padded input size per channel: ({a}). Kernel size: ({b}). "
            "Kernel size can't be greater than actual input size"
        )


Likeness = tuple[Ints, dtypes.dtype]


class Like(NamedTuple):
    """What a call is judged by of a tensor."""

    shape: Ints
    dtype: dtypes.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)


def judged(input: Any, weight: Any, bias: Any, *steps: Any) -> list[Any]:
    """What a call is judged and remembered by: what tensors are like, or that there is none, and
    numbers of any kind as Python's."""
    likes: list[Any] = []
    for t in (input, weight, bias):
        if t is None:
            likes.append(None)
        else:
            own = t._np
            likes.append((shape_of(t) if own is None else own.shape, t._dtype))
    for v in steps:
        likes.append(tuple(map(int, v)) if isinstance(v, (tuple, list)) else int(v))  # noqa: PERF401  # a comprehension is a call
    return likes


def _likes(*given: Likeness | None) -> list[Any]:
    return [None if each is None else Like(*each) for each in given]


@lru_cache(maxsize=1024)
def steps_of(
    nd: int,
    x: Likeness,
    w: Likeness,
    b: Likeness | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> tuple[Ints, Ints, Ints]:
    """The steps for each dim of a call that is right; refuses any other."""
    input, weight, bias = _likes(x, w, b)
    check(input, weight, bias, nd, groups, False)
    stride, dilation = per_dim(stride, nd, "stride"), per_dim(dilation, nd, "dilation")
    padding = per_dim(padding, nd, "padding")
    _check_steps(stride, padding, dilation)
    _check_kernel(input.shape[-nd:], weight.shape[2:], padding, dilation)
    shape = input.shape if input.ndim == nd + 2 else (1, *input.shape)
    if shape[0] and shape[1] and not math.prod(shape):
        raise RuntimeError(
            "Only zero batch or zero channel inputs are supported, but got input shape: "
            f"{list(shape)}"
        )
    return stride, padding, dilation


def _large_output_padding(extra: Ints, stride: Ints, dilation: Ints) -> RuntimeError:
    """PyTorch counts one dim as two."""
    names = ("depth", "height", "width")[-max(2, len(extra)) :]
    said = []
    for what, given, one in (
        ("output_padding", extra, 0),
        ("stride", stride, 1),
        ("dilation", dilation, 1),
    ):
        sizes = (one,) * (len(names) - len(given)) + given
        said += [f"{what}_{name}: {n}" for name, n in zip(names, sizes, strict=True)]
    return RuntimeError(
        "output padding must be smaller than either stride or dilation, but got " + " ".join(said)
    )


@lru_cache(maxsize=1024)
def transposed_steps(
    nd: int,
    x: Likeness,
    w: Likeness,
    b: Likeness | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: int,
) -> tuple[Ints, Ints, Ints, Ints]:
    """The result's sizes, and the steps for each dim, of a transposed call that is right; refuses
    any other."""
    input, weight, bias = _likes(x, w, b)
    check(input, weight, bias, nd, groups, True)
    stride, dilation = per_dim(stride, nd, "stride"), per_dim(dilation, nd, "dilation")
    padding, extra = per_dim(padding, nd, "padding"), per_dim(output_padding, nd, "output_padding")
    _check_steps(stride, padding, dilation)
    if any(e < 0 for e in extra):
        raise RuntimeError("negative output_padding is not supported")
    if any([e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)]):
        raise _large_output_padding(extra, stride, dilation)
    sizes = input.shape[-nd:]
    size = tuple(
        [
            (i - 1) * s - 2 * p + d * (k - 1) + e + 1
            for i, s, p, d, k, e in zip(
                sizes, stride, padding, dilation, weight.shape[2:], extra, strict=True
            )
        ]
    )
    if any(s <= 0 for s in size):
        raise RuntimeError(
            f"Given input size per channel: ({' x '.join(map(str, sizes))}). "
            "Calculated output size per "
            f"channel: ({' x '.join(map(str, size))}). Output size is too small"
        )
    return size, stride, padding, dilation
