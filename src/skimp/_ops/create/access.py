"""Reaching a tensor's elements from Python: sizes, item, tolist, numpy, printing,
truth, iteration.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, overload

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.row import ORDINARY, sampled
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.call_site import named, warn
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.spans import Exported, over
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import dtypes, formats, printing, promotion
from skimp._engine.tensor.meta import NO_ITEM
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import Array, Tensor, alias
from skimp._kernels import shaping

F = TypeVar("F", bound=Callable[..., Any])


def method(f: F) -> F:
    export(f.__name__, f, namespaces=(), quick=True)
    return f


def both(f: F) -> F:
    export(f.__name__, f)
    return f


def asked(answer: str | None = None) -> Callable[[F], F]:
    """A method that looks at a tensor and computes nothing; `answer` as `export` has it."""

    def declare(f: F) -> F:
        export(f.__name__, f, namespaces=(), looks=True, answer=answer)
        return f

    return declare


def asked_of_both(answer: str | None = None) -> Callable[[F], F]:
    """A function and method of that kind."""

    def declare(f: F) -> F:
        export(f.__name__, f, looks=True, answer=answer)
        return f

    return declare


@overload
def size(self: Tensor, dim: None = None) -> Size: ...
@overload
def size(self: Tensor, dim: int) -> int: ...
@asked("tuple.__new__(Size, a.shape)")
def size(self: Tensor, dim: int | None = None) -> Size | int:
    """The shape, or one of its sizes.

    Raises: IndexError for a dim that is not there.
    """
    a: Array | None = self._np
    if a is not None and type(dim) is int and -a.ndim <= dim < a.ndim:
        return int(a.shape[dim])
    if dim is None:
        return self.shape
    layouts.need_dims(dim, self.ndim)
    return self.shape[layouts.normalize_dim(dim, self.ndim)]


@overload
def stride(self: Tensor, dim: None = None) -> tuple[int, ...]: ...
@overload
def stride(self: Tensor, dim: int) -> int: ...
@asked("(self._skimp_layout or self._skimp_layout_of()).strides")
def stride(self: Tensor, dim: int | None = None) -> tuple[int, ...] | int:
    """Elements from one position to the next, of all dimensions or one.

    Raises: IndexError for a dim that is not there.
    """
    strides = self._skimp_layout_of().strides
    if dim is None:
        return strides
    layouts.need_dims(dim, len(strides))
    return strides[layouts.normalize_dim(dim, len(strides))]


@asked()
def storage_offset(self: Tensor) -> int:
    """Elements between the storage's beginning and this tensor's first."""
    return self._skimp_layout_of().offset


@asked("a.ndim")
def dim(self: Tensor) -> int:
    """Number of dimensions."""
    a = self._np
    return a.ndim if a is not None else len(self._skimp_layout.shape)  # type: ignore[union-attr]


@asked_of_both("a.size")
def numel(input: Tensor) -> int:
    """Number of elements."""
    a = input._np
    return a.size if a is not None else layouts.numel(input._skimp_layout.shape)  # type: ignore[union-attr]


@asked("a.itemsize")
def element_size(self: Tensor) -> int:
    """Bytes of one element."""
    return self._dtype.itemsize


@asked()
def data_ptr(self: Tensor) -> int:
    """The address of the first element; materializes. 0 for an empty tensor."""
    a = self._np
    if a is not None and a.size:
        self._storage.handed_out = True
        return shaping.address(a)
    layout = self._skimp_layout or self._skimp_layout_of()
    if 0 in layout.shape:
        return 0
    return self._storage.hand_out() + layout.offset * self._dtype.itemsize


@asked("a.flags.c_contiguous")
def is_contiguous(self: Tensor, memory_format: Any = formats.contiguous_format) -> bool:
    """Whether the elements lie in the order of the format without gaps."""
    return formats.is_format(self, memory_format)


@asked_of_both()
def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a float type."""
    return input._dtype.is_floating_point


@asked_of_both()
def is_complex(input: Tensor) -> bool:
    """Whether the dtype is a complex type."""
    return input._dtype.is_complex


@asked_of_both()
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative values."""
    return input._dtype.is_signed


@both
@sampled(lambda tensor: [(tensor([2.0]),), (tensor(0.0),)])
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero.

    Raises: RuntimeError for more than one element.
    """
    return _truth(input)


def value(self: Tensor) -> Array:
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    if self._skimp_meta is not None:
        raise RuntimeError(NO_ITEM)
    return self._skimp_array()


def item(self: Tensor) -> Any:
    """The one element as a Python number.

    Raises: RuntimeError for more than one element.
    """
    a = self._np
    if a is None or a.size != 1:
        a = value(self)
    found = a.item()
    return float(found) if self._dtype in dtypes.FOREIGN else found


# NumPy's own types make Python's numbers
export(
    "item",
    item,
    namespaces=(),
    answer="a.item() if a.size == 1 and a.dtype.isbuiltin == 1 else f(self)",
)


@method
@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers.

    Raises: NotImplementedError for a tensor on "meta", which has no elements.
    """
    a = self._skimp_array()
    return (a.astype(np.float32) if self._dtype in dtypes.FOREIGN else a).tolist()


@method
@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def numpy(self: Tensor, *, force: bool = False) -> Array:
    """The elements as a NumPy array on the same bytes: writes show on both sides, and each keeps
    the block alive.

    >>> x = torch.zeros(2)
    >>> x.numpy()[0] = 1
    >>> x
    tensor([1., 0.])

    Raises: RuntimeError for a tensor that requires grad (outside `no_grad`) or is a lazy conjugate;
    TypeError for bfloat16.
    Memory: no byte moves: the array and the tensor share theirs.
    """
    if force:
        self = self.detach().resolve_conj()
    if self._rg and modes.state.grad:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if self._dtype in dtypes.FOREIGN:
        raise TypeError(f"Got unsupported ScalarType {scalar_type_name(self._dtype)}")
    if self._conj:
        raise RuntimeError(
            "Can't call numpy() on Tensor that has conjugate bit set. Use "
            "tensor.resolve_conj().numpy() instead."
        )
    if self._skimp_neg:
        raise RuntimeError(
            "Can't call numpy() on Tensor that has negative bit set. Use "
            "tensor.resolve_neg().numpy() instead."
        )
    return exported(self)


def exported(self: Tensor) -> Array:
    """An ndarray on the storage's bytes that keeps the storage alive."""
    s = self._storage
    a = self._np
    if a is not None and a.flags.c_contiguous and a.size:
        outsiders = s.exported or s.outsiders()  # first: nobody notes a recipe from here on
        if type(s) is Storage and s.readers is None:  # others want to know
            kept = Exported(s, outsiders, a)
            made: Array = shaping.kept_by(a, kept) if shaping.IN_C else np.asarray(kept)
            return made
    layout, dtype = self._skimp_layout_of(), self._dtype.np
    if 0 in layout.shape:
        return np.empty(layout.shape, dtype)
    return over(self._storage.export(), layout, dtype)


def _truth(self: Tensor) -> bool:
    a = self._np
    if a is None or a.size != 1:
        if self.numel() == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        if self.numel() > 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        a = value(self)
    return bool(a.item())


def _index(self: Tensor) -> int:
    if self._dtype.category > dtypes.INT or self.numel() != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(self._skimp_array().item())


def _len(self: Tensor) -> int:
    shape = self.shape
    if not shape:
        raise TypeError("len() of a 0-d tensor")
    return shape[0]


def _iter(self: Tensor) -> Iterator[Tensor]:
    if not self.shape:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@named("contains")
def _contains(self: Tensor, element: Any) -> bool:
    if isinstance(element, (Tensor, numbers.Number)):
        return bool((self == element).any().item())
    raise RuntimeError(
        f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}."
    )


def _reversed(self: Tensor) -> Tensor:
    """`reversed(t)`: a copy whose first dim runs backwards."""
    return self.flip(0) if self.ndim else self


def _repr(self: Tensor, *, tensor_contents: Any = None) -> str:
    text, meta = _shown(self), self._skimp_meta is not None
    if not getattr(self, "_is_param", False):
        return text
    derived = getattr(type(self), "_is_param", False)
    return printing.parameter_str(text, plain=meta or type(self) in ORDINARY, derived=derived)


def _shown(self: Tensor) -> str:
    node = self.grad_fn
    label = node._skimp_label if node is not None else None
    if self._skimp_meta is not None:
        return printing.str_without_elements(
            tuple(self.shape),
            self._dtype,
            requires_grad=self._rg,
            grad_fn=label,
            default_dtype=promotion.get_default_dtype(),
        )
    return printing.tensor_str(
        _printed(self),
        self._dtype,
        requires_grad=self._rg,
        grad_fn=label,
        default_dtype=promotion.get_default_dtype(),
        class_name="tensor" if type(self) in ORDINARY else type(self).__name__,
    )


def contents(self: Tensor, indent: int) -> str:
    """The elements as `repr` shows them, in lines that begin `indent` columns from the left."""
    return printing.contents(_printed(self), indent)


def _printed(self: Tensor) -> Array:
    """The elements to print. NumPy has no array of more than 2^63 bytes: so many are one element
    repeated, and of those a summary's are enough.
    """
    layout = self._skimp_layout_of()
    if self.numel() * self._dtype.itemsize < 1 << 63:
        return self._skimp_array()
    most = int(min(printing.PRINT_OPTS.threshold, 1000)) + 1
    sizes = [
        n if stride else min(n, most)
        for n, stride in zip(layout.shape, layout.strides, strict=True)
    ]
    return alias(self, Layout(tuple(sizes), layout.strides, layout.offset))._skimp_array()


def _format(self: Tensor, spec: str) -> str:
    if self.ndim == 0 and type(self) is Tensor:
        return format(self.item(), spec)
    if spec:
        return object.__format__(self, spec)
    return repr(self)


_told = False


def _tell_of_gradients() -> None:
    """PyTorch's warning about numbers made of tensors that have gradients, once."""
    global _told
    if modes.state.grad:
        _told = True
        warn(
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected "
            "behavior.\nConsider using tensor.detach() first.",
            UserWarning,
        )


def _one(self: Tensor) -> Array:
    """`value`, where Python asks for a number."""
    if self.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return value(self)


def _float(self: Tensor) -> float:
    if self._rg and not _told:
        _tell_of_gradients()
    a = self._np
    return float(_real((a if a is not None and a.size == 1 else _one(self)).item()))


def _int(self: Tensor) -> int:
    if self._rg and not _told:
        _tell_of_gradients()
    return int(_real(_one(self).item()))


def _real(number: Any) -> Any:
    """A complex number as a real one, if it is one."""
    if type(number) is not complex:
        return number
    if number.imag:
        raise RuntimeError("value cannot be converted to type double without overflow")
    return number.real


def _complex(self: Tensor) -> complex:
    return complex(_one(self).item())


def _nbytes(self: Tensor) -> int:
    return self.numel() * self._dtype.itemsize


def _always(self: Tensor) -> bool:
    return True


def _never(self: Tensor) -> bool:
    return False


def _layout(self: Tensor) -> formats.layout:
    return formats.strided


for _name, _f in {
    "__bool__": _truth,
    "__index__": _index,
    "__len__": _len,
    "__iter__": _iter,
    "__contains__": _contains,
    "__reversed__": _reversed,
    "__repr__": _repr,
    "__format__": _format,
    "__float__": _float,
    "__int__": _int,
    "__complex__": _complex,
    "__hash__": object.__hash__,
}.items():
    setattr(Tensor, _name, _f)

for _name, _get, _doc in (
    ("ndim", dim, "Number of dimensions."),
    ("itemsize", element_size, "Bytes of one element."),
    ("_cdata", id, "A number that no other tensor has while this one lives."),
    ("nbytes", _nbytes, "Bytes of all elements."),
    ("is_cuda", _never, "Whether the tensor is on a CUDA device."),
    ("is_cpu", _always, "Whether the tensor is on the CPU."),
    ("is_sparse", _never, "Whether the tensor is sparse: here not."),
    ("is_sparse_csr", _never, "Whether the tensor is in the CSR layout: never."),
    ("is_quantized", _never, "Whether the tensor is quantized: never."),
    ("is_meta", _never, "Whether the tensor has no bytes: here it has."),
    ("is_mps", _never, "Whether the tensor is on an MPS device: never."),
    ("is_nested", _never, "Whether the tensor is nested: never."),
    *[
        (f"is_{device}", _never, "Whether the tensor is on such a device: never.")
        for device in ("ipu", "maia", "mkldnn", "mtia", "vulkan", "xla", "xpu")
    ],
    ("layout", _layout, "How the elements are stored."),
):
    setattr(Tensor, _name, property(_get, doc=_doc))

for _name, _counted in (("nelement", numel), ("ndimension", dim)):
    export(_name, _counted, namespaces=())


SAYS = """\
Shape: any.
Dtypes: bool, integers, floating point and complex numbers.
Raises: nothing.
Memory: no tensor is made."""
