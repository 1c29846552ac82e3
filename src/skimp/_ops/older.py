"""Names that PyTorch keeps beside others: older forms, and functions that call Python for each
element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from skimp._compat import refusals
from skimp._compat.notices import once
from skimp._engine.autograd import alias as history
from skimp._engine.autograd.shown import shown
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.overrides import DisableTorchFunctionSubclass
from skimp._engine.dispatch.row import sampled
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.dtypes import float32
from skimp._engine.tensor.fields import become
from skimp._engine.tensor.formats import channels_last, memory_format
from skimp._engine.tensor.promotion import get_default_dtype
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.create.creation import full
from skimp._ops.create.ranges import arange

_BEGIN = {"sum": 0.0, "mean": 0.0, "max": -float("inf"), "min": float("inf"), "prod": 1.0}
_SCATTERED = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}


@sampled(lambda tensor: [(tensor([[1.0, 2.0], [3.0, 4.0]]), 5.0)])
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Write one number over the main diagonal; `wrap` goes on below it in tall matrices.

    Shape: at least two dims, of equal length where there are more.
    Raises: RuntimeError for other shapes.
    """
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    strides, offset = self.stride(), self.storage_offset()
    n = min(self.shape)
    if self.ndim == 2 and wrap and self.shape[0] > self.shape[1] + 1 and n:
        period = self.shape[1] + 1
        for start in range(0, self.shape[0], period):
            rows = self[start : start + period - 1]
            rows.diagonal().fill_(fill_value)
        return self
    self.as_strided((n,), (sum(strides),), offset).fill_(fill_value)
    return self


@sampled(lambda tensor: [(tensor([1.0, 2.0]), lambda v: v * 2)])
def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it: slow, and not differentiable.

    Shape: any.
    Raises: RuntimeError for a tensor that requires grad, TypeError for what is no function.
    """
    return _by_element("apply_", self, (), callable)


@sampled(lambda tensor: [(tensor([1.0, 2.0]), tensor([3.0, 4.0]), lambda a, b: a + b)])
def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and its partner in `tensor`.

    Shape: any; the partner broadcasts to it.
    Raises: RuntimeError for a tensor that requires grad and for other shapes.
    """
    return _by_element("map_", self, (tensor,), callable)


def _by_element(
    name: str, target: Tensor, others: tuple[Tensor, ...], function: Callable[..., Any]
) -> Tensor:
    if any([t.requires_grad for t in (target, *others)]):
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. "
            f"Use var.detach().{name}() instead."
        )
    columns = [t.expand(target.shape).reshape(-1).tolist() for t in (target, *others)]
    values = [function(*row) for row in zip(*columns, strict=True)]
    history.before_inplace(target)
    array = target._skimp_writable()
    array[...] = np.array(values, array.dtype).reshape(array.shape)
    target._skimp_written(array)
    return target


@sampled(lambda tensor: [(1, 4), (0, 1, 0.5)])
def range_(start: Any, end: Any = None, step: Any = 1, **words: Any) -> Tensor:
    """Numbers from start to end, both included: PyTorch's first form of arange.

    Shape: (n,) with n = floor((end - start) / step) + 1.
    Raises: RuntimeError for a step of 0 and for one that leads away from `end`.
    """
    warn(
        "torch.range is deprecated and will be removed in a future release because its behavior "
        "is inconsistent with Python's range builtin. Instead, use torch.arange, which produces "
        "values in [start, end).",
        UserWarning,
    )
    start, end = (0, start) if end is None else (start, end)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    n = int((end - start) / step) + 1
    numbers = arange(n, dtype=words.pop("dtype", None) or get_default_dtype(), **words)
    result: Tensor = numbers * step + start
    return result


@shown("SegmentReduceBackward0", "data")
@sampled(
    lambda tensor: [
        (tensor([1.0, 2.0, 3.0]), "sum", {"lengths": tensor([2, 1]).long()}),
        (tensor([1.0, 2.0, 3.0]), "amax", {"offsets": tensor([0, 2, 3]).long()}),
    ]
)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    """One result for each run of rows: `lengths` says how long the runs are, or `offsets` where
    they begin and end.

    Shape: the input's, with as many slices along `axis` as there are runs.
    Dtypes: floating point.
    Raises: NotImplementedError for other dtypes, RuntimeError for another reduction, and for runs
    that don't add up to the axis.
    """
    if reduce in ("amax", "amin"):
        reduce = reduce[1:]
    if reduce not in _BEGIN:
        raise RuntimeError(f"unsupported reduction given! {reduce}")
    if indices is not None or (lengths is None) is (offsets is None):
        raise RuntimeError("segment_reduce(): give lengths or offsets; indices are not supported")
    if not data._dtype.is_floating_point:
        raise no_kernel("_segment_reduce_cpu", data._dtype)
    if axis != 0:
        raise RuntimeError(f"Currently only dim=0 supported! {axis}")
    if lengths is None:
        assert offsets is not None
        lengths = offsets[1:] - offsets[:-1]
    count = lengths.numel()
    if lengths.ndim != 1:
        raise RuntimeError("segment_reduce(): lengths must have one dimension")
    if not unsafe and (int(lengths.sum().item()) != data.shape[0] or bool((lengths < 0).any())):
        raise RuntimeError("lengths must be non-negative and sum to the size of data's dimension 0")
    shape = (count, *data.shape[1:])
    rows = arange(count).repeat_interleave(lengths)
    rows = rows.view(-1, *[1] * (data.ndim - 1)).expand(data.shape)
    begin = _BEGIN[reduce] if initial is None else initial
    found: Tensor = full(shape, begin, dtype=data.dtype).scatter_reduce(
        0, rows, data, _SCATTERED[reduce]
    )
    if reduce != "mean":
        return found
    size: Tensor = lengths.view(-1, *[1] * (data.ndim - 1)).to(data.dtype)
    mean: Tensor = found / size  # nan where there is nothing
    return mean if initial is None else found.where(size == 0, mean)


@sampled(lambda tensor: [(tensor([1.0]), tensor([2.0]), tensor([3.0]), lambda a, b, c: a + b * c)])
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace each element by what a Python function makes of it and its partners.

    Shape: any; the partners broadcast to it.
    Raises: RuntimeError for a tensor that requires grad and for other shapes.
    """
    return _by_element("map2_", self, (x, y), callable)


@sampled(lambda tensor: [(tensor([[1.0, 2.0]]),), (tensor([[1.0, 2.0], [3.0, 4.0]]).t(),)])
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the outermost to the innermost in memory.

    `ambiguity_check`: refuse a tensor of which more than one order is true; a list of memory
    formats takes one that lies as exactly one of these.

    Shape: any; as many numbers as dims.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError with `ambiguity_check` where more than one order is true, TypeError where
    it is neither a bool nor a list of formats.
    Memory: no tensor is made.
    """
    strides = self.stride()
    found = tuple(sorted(range(self.ndim), key=lambda d: -strides[d]))
    if ambiguity_check is not False:
        _check_one_order(self, found, ambiguity_check)
    return found


def _check_one_order(t: Tensor, found: tuple[int, ...], formats: Any) -> None:
    """Refuse a tensor whose strides allow more than one order of its dims."""
    if formats is True:
        formats = []
    if type(formats) is not list or not all(isinstance(f, memory_format) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    strides = t.stride()
    twins = any(a == b for a, b in itertools.pairwise(strides))
    if (twins or 1 in t.shape) and sum(t.is_contiguous(memory_format=f) for f in formats) != 1:
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given "
            "memory formats."
        )
    last = t.ndim == 4 and t.is_contiguous(memory_format=channels_last)
    plain = t.ndim < 2 or t.is_contiguous() is not last
    if not plain and any(strides[a] == strides[b] for a, b in itertools.pairwise(found)):
        raise RuntimeError("The tensor does not have unique dim order.")


@sampled(lambda tensor: [(tensor([1.0]), type(tensor([])))])
def as_subclass(self: Tensor, cls: type) -> Tensor:
    """The tensor as an instance of a subclass: the same bytes, and gradients go through.

    Shape: any; the result's is the input's.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: TypeError for a class that is no subclass of Tensor.
    Memory: a view, which shares the input's bytes.
    """
    if not (issubclass(cls, Tensor)):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not "
            "possible. Make sure your class inherits from Tensor."
        )
    _say_of(cls)
    made: Tensor = become(self.view_as(self), cls)
    return made


def _say_of(cls: type) -> None:
    """What a program would wait for in vain is said."""
    own = getattr(cls, "__torch_dispatch__", None)
    if own is not None and own.__name__ != "_disabled_torch_dispatch_impl":
        once(
            f"{cls.__name__} has a __torch_dispatch__, which nothing calls here: ops are not taken "
            "apart below autograd; use __torch_function__"
        )


def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Tensor:
    """`data` as a leaf of a subclass: the same bytes, no history."""
    _say_of(cls)
    with DisableTorchFunctionSubclass():
        made: Tensor = become(data.detach(), cls)
    made._rg = require_grad
    return made


setattr(Tensor, "_make_subclass", staticmethod(_make_subclass))  # noqa: B010  (the stub)


@sampled(lambda tensor: [(tensor([1.0, 2.0]), tensor([3.0, 4.0]))])
def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `load_state_dict` puts in this tensor's place where swapping is asked for.

    Shape: the parameter's.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError for another shape.
    Memory: a view, which shares the input's bytes.
    """
    if assign:
        return other.detach()
    return self.copy_(other).detach()


@sampled(lambda tensor: [(tensor([1.0]),)])
def const_data_ptr(self: Tensor) -> int:
    """The address of the first element, for reading.

    Shape: any.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: nothing.
    Memory: no tensor is made.
    """
    return self.data_ptr()


@sampled(lambda tensor: [(tensor([1.0, 2.0, 3.0, 4.0]), 2, 2)])
def resize(self: Tensor, *sizes: Any) -> Tensor:
    """A view of another shape; PyTorch has deprecated the name.

    Shape: of as many elements as the input.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError for another number of elements.
    Memory: a view, which shares the input's bytes.
    """
    warn("non-inplace resize is deprecated")
    shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return self.view(shape)


@sampled(lambda tensor: [(tensor([1.0, 2.0]), tensor([[1.0], [2.0]]))])
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """A view of another tensor's shape; PyTorch has deprecated the name.

    Shape: of as many elements as the input.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError for another number of elements.
    Memory: a view, which shares the input's bytes.
    """
    warn("non-inplace resize_as is deprecated")
    return self.view(tensor.shape)


@sampled(lambda tensor: [(tensor([1.0, 2.0]),)])
def dequantize(input: Any) -> Any:
    """A tensor, or each of a list, as float32: no tensor is quantised.

    Shape: any; the result's is the input's.
    Raises: nothing.
    Memory: the input itself where it is float32, else a new tensor.
    """
    if isinstance(input, (list, tuple)):
        return [dequantize(t) for t in input]
    return input.to(float32)


@sampled(lambda tensor: [(tensor(range(6)), tensor([1, 1, 1]), 0, 0, 3, 1)])
def slice_inverse(
    input: Tensor, src: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """The tensor of which `input` is a slice, shaped and laid out as `src`.

    Shape: `src`'s.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError where the storage ends before.
    Memory: a view, which shares the input's bytes.
    """
    at = (0 if start is None else start) * src.stride(dim)
    return input.as_strided(src.shape, src.stride(), input.storage_offset() - at)


def _removed(name: str, instead: str) -> Callable[..., Any]:
    text = (
        "This function was deprecated since version 1.9 and is now removed. "
        f"`torch.{name}` is deprecated in favor of `torch.linalg.{instead}`."
    )
    reason = f"PyTorch has removed it too; use torch.linalg.{instead}"
    return refusals.refusing(name, RuntimeError, text, reason)


def reinforce(self: Tensor, reward: Any) -> NoReturn:
    """Refused: PyTorch has removed it too; use torch.distributions.

    Raises: RuntimeError, whatever it is given.
    """
    raise RuntimeError(
        "reinforce() was removed. Use torch.distributions instead: sample an action, and call "
        "backward on -log_prob(action) * reward."
    )


for _name, _instead in (
    ("eig", "eig"), ("lstsq", "lstsq"), ("solve", "solve"), ("symeig", "eigh"),
):  # fmt: skip
    export(_name, _removed(_name, _instead), namespaces=())
for _f in (
    map2_,
    dim_order,
    as_subclass,
    module_load,
    const_data_ptr,
    resize,
    resize_as,
    reinforce,
):
    export(_f.__name__, _f, namespaces=())
export("slice_inverse", slice_inverse)
export("dequantize", dequantize)
for _f in (fill_diagonal_, apply_, map_):
    export(_f.__name__, _f, namespaces=())
export("range", range_, method=False)
export("segment_reduce", segment_reduce, method=False)
export("_segment_reduce", segment_reduce, method=False)
