"""nn.functional.pad: constants around a copy, or elements of the tensor itself chosen by index."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import export, general
from skimp._engine.dispatch.operands import check_number, constant
from skimp._engine.dispatch.targets import blank, pour
from skimp._engine.tensor import dtypes, formats, meta, promotion
from skimp._engine.tensor.tensor import fresh
from skimp._kernels import bare
from skimp._ops import batching
from skimp._ops.nn.choosing import selected
from skimp._ops.ties import tied

Ints = tuple[int, ...]


def _amounts(pad: Any, ndim: int) -> list[tuple[int, int]]:
    """(before, after) for each dim, first dim first; `pad` names the last dim first."""
    pairs = [(int(pad[2 * i]), int(pad[2 * i + 1])) for i in range(len(pad) // 2)]
    return [(0, 0)] * (ndim - len(pairs)) + pairs[::-1]


def _sizes(shape: Ints, amounts: list[tuple[int, int]]) -> Ints:
    sizes = tuple([n + a + b for n, (a, b) in zip(shape, amounts, strict=True)])
    for dim, n in enumerate(sizes):
        if n < 0:
            raise RuntimeError(
                f"The input size {shape[dim]}, plus negative padding {amounts[dim][0]} and "
                f"{amounts[dim][1]}, resulted "
                f"in a negative output size, which is invalid. Check dimension {dim} of your input."
            )
    return sizes


def _cut(g: Any, pad: Any) -> Any:
    return constant_pad(g, [-int(p) for p in pad], 0)


@general(
    "constant_pad_nd",
    method=False,
    rule=Rule("ConstantPadNdBackward0", input=lambda g, pad: _cut(g, pad)),
    batch=batching.layers.pad,
    copies="padded",
)
def constant_pad(input: Any, pad: Any, value: Any = 0) -> Any:
    """A copy with `value` around it; negative amounts cut off.

    Shape: any; `pad` has two amounts per dim, the last dim first.
    Raises: RuntimeError for an odd number of amounts, too many, or more cut off than there is.
    """
    sizes, cuts, inner, borders = _frame(shape_of(input), tuple(map(int, pad)))
    if input._hollow:
        return meta.empty(sizes, input._dtype, formats.suggested_strides(input, sizes))
    result, target = blank(sizes, input._dtype, formats.suggested_strides(input, sizes))
    check_number(value, input._dtype)
    number = constant(value, input._dtype)
    kept = input
    for cut in cuts:
        kept = kept.narrow(*cut)
    for border in borders:
        target[border] = number
    into = target[inner] if inner else target  # a number otherwise
    if into.size:
        pour(kept, into)
    return result


Slices = tuple[slice, ...]


@lru_cache(maxsize=512)
def _frame(
    shape: Ints, pad: Ints
) -> tuple[Ints, tuple[tuple[int, int, int], ...], Slices, tuple[Slices, ...]]:
    """The result's sizes; what is left of the input, by `narrow`; where that goes, and what is
    around it.
    """
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) // 2 > len(shape):
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad "
            f"length is {len(pad)} while the input has {len(shape)} dimensions."
        )
    amounts = _amounts(pad, len(shape))
    sizes = _sizes(shape, amounts)
    cuts: list[tuple[int, int, int]] = []
    inner: list[slice] = []
    for dim, ((before, after), n) in enumerate(zip(amounts, shape, strict=True)):
        start, stop = max(0, -before), n - max(0, -after)
        length = max(0, stop - start)
        if (start, stop) != (0, n):
            cuts.append((dim, start, length))
        begin = max(0, before)
        inner.append(slice(begin, begin + length))
    borders = []
    for dim, part in enumerate(inner):
        if part.start:
            borders.append((*inner[:dim], slice(0, part.start)))
        if part.stop < sizes[dim]:
            borders.append((*inner[:dim], slice(part.stop, None)))
    return sizes, tuple(cuts), tuple(inner), tuple(borders)


@lru_cache(maxsize=256)
def _check_around(mode: str, shape: tuple[int, ...], pad: tuple[int, ...]) -> None:
    nd, spatial = len(shape), len(pad) // 2
    if not (len(pad) == 2 * spatial and spatial <= 3 and nd in (spatial + 1, spatial + 2)):
        raise NotImplementedError(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now"
        )
    if 0 in shape[1:]:
        raise RuntimeError(
            f"Expected {spatial + 1}D or {spatial + 2}D (batch mode) tensor with possibly 0 batch "
            f"size and other non-zero dimensions for input, but got: {list(shape)}"
        )
    for i in range(spatial):
        n, before, after = shape[nd - 1 - i], pad[2 * i], pad[2 * i + 1]
        if mode == "reflect" and (before >= n or after >= n):
            raise RuntimeError(
                f"Argument #{4 + 2 * i}: Padding size should be less than the corresponding input "
                f"dimension, but got: padding ({before}, {after}) at dimension {nd - 1 - i} of "
                f"input {list(shape)}"
            )
        if mode == "circular" and (before > n or after > n):
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if n + before + after <= 0:
            raise RuntimeError(
                f"input (size: {n}) is too small. Calculated output size: {n + before + after}"
            )


@lru_cache(maxsize=256)
def _places(mode: str, n: int, before: int, after: int) -> Any:
    at = np.arange(-before, n + after)
    if mode == "circular":  # what negative padding cuts off is not repeated
        low, kept = max(0, -before), n - max(0, -before) - max(0, -after)
        return np.arange(-max(0, before), kept + max(0, after)) % kept + low
    if mode == "replicate":
        return np.clip(at, 0, n - 1)
    turned = np.abs(at)
    return bare.where(turned >= n, 2 * (n - 1) - turned, turned)


def _around(mode: str, input: Any, pad: Any) -> Any:
    shape, pad = tuple(input.shape), tuple([int(p) for p in pad])
    _check_around(mode, shape, pad)
    for i in range(len(pad) // 2):
        dim = len(shape) - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        if before or after:
            places = _places(mode, shape[dim], before, after)
            if mode == "circular":  # row-major, as what it copies piece by piece
                input = input.index_select(dim, fresh(places.astype(np.int64), dtypes.int64))
            else:
                input = selected(input, dim, places, back_as_input=True)
    return input


def _node(input: Any, pad: Any, mode: str, **_: Any) -> str | None:
    names = {"reflect": "Reflection", "replicate": "Replication"}
    return f"{names[mode]}Pad{len(pad) // 2}DBackward0" if mode in names else None


@shown(_node, "input")
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """`input` with `pad` (last dim first: before, after, ...) elements more on each side.

    Shape: each of the last len(pad) / 2 dims grows by its two numbers; negative ones cut.
    Dtypes: any ("reflect", "replicate": numbers).
    Raises: RuntimeError for lengths of `pad` and sizes that don't fit, NotImplementedError for dims
    that a mode doesn't take and for other modes.
    """
    if not isinstance(mode, str):
        found = type(mode).__name__
        raise TypeError(f"pad(): argument 'mode' (position 3) must be str, not {found}")
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if mode == "constant":
        return constant_pad(input, [int(p) for p in pad], 0 if value is None else float(value))
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode == "circular":
        return _around(mode, input, pad)
    kind = "reflection" if mode == "reflect" else "replication"
    promotion.refuse(f"{kind}_pad{len(pad) // 2}d", input._dtype, (dtypes.bool,))
    return _around(mode, tied(input), pad)


export(
    "pad", pad, ("nn.functional",), method=False, composite=False, copies="padded", quick=True,
    batch=batching.layers.pad,
)  # fmt: skip
