"""The sparse tensor: indices and values of the entries that are there (docs/notes/sparse.md)."""
# The methods take less than a dense tensor's, and answer sparse tensors.
# mypy: disable-error-code="override,assignment,misc"

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from skimp._engine.dispatch.overrides import disabled
from skimp._engine.memory import layout_views as views
from skimp._engine.memory.layout import Layout, contiguous_strides, left_out, normalize_dim
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.tensor import Tensor, blank, fresh
from skimp._kernels import bare
from skimp._kernels.order import distinct, stable_order
from skimp._ops.shape.views import ints
from skimp._ops.sparse.arithmetic import (
    Ints,
    added,
    flattened,
    plus_dense,
    product,
    put,
    refuse,
    summed,
    times,
)
from skimp._ops.sparse.text import text
from skimp._ops.sparse.turned import Turned


def made(indices: Tensor, values: Tensor, shape: Ints, coalesced: bool) -> SparseTensor:
    """A sparse tensor on these very tensors; nothing is checked."""
    new: SparseTensor = blank(SparseTensor)
    new._skimp_layout = Layout(shape, contiguous_strides(shape), 0)
    new._dtype = values._dtype
    new._at = indices
    new._held = values
    new._sorted = coalesced
    return new


class SparseTensor(Turned):
    """Entries at `indices` (sparse_dim, nnz) with `values` (nnz, *dense dims), zeros elsewhere.

    Equal indices stand for the sum of their values until `coalesce()`.
    """

    _hollow = True
    _skimp_sparse = True
    __torch_function__ = classmethod(disabled)
    _at: Tensor
    _held: Tensor
    _sorted: bool

    # -- dense code stops here --------------------------------------------------------------------

    def _skimp_layout_of(self) -> NoReturn:
        refuse("this operation")

    def _skimp_array(self) -> NoReturn:
        refuse("this operation")

    def _skimp_writable(self) -> NoReturn:
        refuse("writing")

    @property
    def _storage(self) -> NoReturn:
        refuse("a storage")

    @property
    def layout(self) -> Any:
        return formats.sparse_coo

    @property
    def is_sparse(self) -> bool:
        return True

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def stride(self, dim: int | None = None) -> Any:
        return (0,) * self.ndim if dim is None else 0

    def numel(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    nelement = numel

    def __len__(self) -> int:
        return int(self.shape[0])

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.to_dense())

    def item(self) -> Any:
        return self.to_dense().item()

    def tolist(self) -> Any:
        return self.to_dense().tolist()

    def numpy(self, *, force: bool = False) -> NoReturn:
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    # -- its parts --------------------------------------------------------------------------------

    def _indices(self) -> Tensor:
        return self._at

    def _values(self) -> Tensor:
        return self._held

    def _nnz(self) -> int:
        return int(self._at.shape[1])

    def indices(self) -> Tensor:
        """Where the entries are, (sparse_dim, nnz), of a coalesced tensor."""
        self._must_be_coalesced("indices")
        return self._at

    def values(self) -> Tensor:
        """The entries, of a coalesced tensor."""
        self._must_be_coalesced("values")
        return self._held

    def _must_be_coalesced(self, what: str) -> None:
        if not self._sorted:
            raise RuntimeError(
                f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )

    def sparse_dim(self) -> int:
        return int(self._at.shape[0])

    def dense_dim(self) -> int:
        return self._held.ndim - 1

    def is_coalesced(self) -> bool:
        return self._sorted

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        self._sorted = coalesced
        return self

    def like(self, values: Tensor) -> SparseTensor:
        """Other values at the same indices."""
        return made(self._at, values, self._plain_shape(), self._sorted)

    def made_of(
        self, indices: Tensor, values: Tensor, shape: Ints, coalesced: bool
    ) -> SparseTensor:
        """Another one, on these very tensors."""
        return made(indices, values, shape, coalesced)

    def _plain_shape(self) -> Ints:
        return tuple(self.shape)

    # -- differentiation: the values' -------------------------------------------------------------

    @property
    def _rg(self) -> bool:
        return self._held._rg

    @property
    def requires_grad(self) -> bool:
        return self._held.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._held.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        self._held.requires_grad_(requires_grad)
        return self

    @property
    def grad_fn(self) -> Any:
        return self._held.grad_fn

    @property
    def is_leaf(self) -> bool:
        return self._held.is_leaf

    @property
    def grad(self) -> Any:
        """The gradient at the same indices."""
        g = self._held.grad
        return None if g is None else self.like(g)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._held.grad = None if value is None else value._held

    def retain_grad(self) -> None:
        self._held.retain_grad()

    def backward(self, *args: Any, **words: Any) -> NoReturn:
        refuse("backward")

    def detach(self) -> SparseTensor:
        return self.like(self._held.detach())

    def detach_(self) -> SparseTensor:
        self._held = self._held.detach()
        return self

    @property
    def data(self) -> Any:
        return self.detach()

    # -- conversions ------------------------------------------------------------------------------

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """All elements, zeros included."""
        values = self._held if dtype is None else self._held.to(dtype)
        zeros = values.new_zeros(self._plain_shape())
        if not self._nnz():
            return zeros + values.sum() if self._rg else zeros
        return put(zeros, self, values)

    def to_sparse(self, *_: Any, layout: Any = None, **__: Any) -> SparseTensor:
        if layout is formats.sparse_csr:
            return self.to_sparse_csr()
        return self.to_sparse_csc() if layout is formats.sparse_csc else self

    def to_sparse_coo(self, *_: Any, **__: Any) -> SparseTensor:
        return self

    def to(self, *args: Any, **words: Any) -> SparseTensor:
        words.pop("memory_format", None)
        values = self._held.to(*args, **words)
        return self if values is self._held else self.like(values)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        if dtype is None:
            dense = self._held.type()
            return dense.replace("torch.", "torch.sparse.")
        return self.like(self._held.type(dtype))

    def cpu(self, *_: Any) -> SparseTensor:
        return self

    def contiguous(self, *_: Any, **__: Any) -> SparseTensor:
        return self

    def clone(self, *, memory_format: Any = None) -> SparseTensor:
        new = self.like(self._held.clone())
        new._at = self._at.clone()
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseTensor:
        if id(self) not in memo:
            new = self.detach().clone()
            memo[id(self)] = new.requires_grad_() if self.requires_grad else new
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, proto: Any) -> NoReturn:
        refuse("pickling")

    def coalesce(self) -> SparseTensor:
        """Every index once, in row-major order, with the sum of its values."""
        if self._sorted:
            return self
        at = self._at._skimp_array()
        shape = self._plain_shape()[: self.sparse_dim()]
        flat = flattened(at, shape)
        found, back = distinct(flat, math.prod(shape))
        n = len(found)
        if len(shape) == 1 and n and found[0] >= 0 and found[-1] < shape[0]:
            where = found[None]
        else:
            where = np.stack(np.unravel_index(found, shape)) if n and shape else at[:, :n]
        indices = fresh(np.ascontiguousarray(where, np.int64), dtypes.int64)
        to = fresh(back.reshape(-1).astype(np.int64, copy=False), dtypes.int64)
        return made(indices, summed(self._held, to, n), self._plain_shape(), True)

    def _whole(self) -> SparseTensor:
        """Every entry once."""
        return self.coalesce()

    # -- entries one by one -----------------------------------------------------------------------

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        k = self.sparse_dim()
        a, b = [normalize_dim(dim, self.ndim) for dim in (dim0, dim1)]
        if a != b and max(a, b) >= k:
            raise RuntimeError(
                "sparse transpose: transposed dimensions must be sparse Got sparse_dim: "
                f"{k}, d0: {a}, d1: {b}"
            )
        return self.permute(self._order(views.transpose, a, b))

    def permute(self, *order: Any, dims: Any = None) -> SparseTensor:
        """The dimensions in another order, sparse ones among themselves and dense ones too."""
        order = self._order(views.permute, ints(order if dims is None else (dims,), "dims"))
        k, shape = self.sparse_dim(), self._plain_shape()
        if max(order[:k], default=-1) >= k:
            raise RuntimeError(
                "permute(sparse_coo): transpositions between sparse and dense dimensions are not "
                "allowed.Only transpositions within sparse and dense dimensions are supported."
            )
        at, held = self._at, self._held
        kept = order[:k] == tuple(range(k))
        if not kept:
            at = at.index_select(0, fresh(np.array(order[:k], np.int64), dtypes.int64))
        if order[k:] != tuple(range(k, self.ndim)):
            held = held.permute(0, *[d - k + 1 for d in order[k:]])
        sizes = tuple([shape[d] for d in order])
        return made(at, held, sizes, (self._sorted and kept) or self._nnz() < 2)

    def index_select(self, dim: int, index: Tensor) -> SparseTensor:
        """The slices that a vector of positions names."""
        dim %= self.ndim
        if dim >= self.sparse_dim():
            refuse("index_select along a dense dimension")
        own, wanted = self._at._skimp_array(), index._skimp_array().reshape(-1)
        order = stable_order(own[dim], self.shape[dim])
        places = own[dim][order]
        low, high = np.searchsorted(places, wanted), np.searchsorted(places, wanted, "right")
        counts = high - low
        starts = np.repeat(low - bare.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        entries = order[starts + np.arange(counts.sum())] if counts.sum() else order[:0]
        at = own[:, entries]
        at[dim] = np.repeat(np.arange(wanted.size), counts)
        chosen = fresh(entries.astype(np.int64), dtypes.int64)
        shape = list(self._plain_shape())
        shape[dim] = wanted.size
        new = fresh(np.ascontiguousarray(at, np.int64), dtypes.int64)
        return made(new, self._held.index_select(0, chosen), tuple(shape), self._nnz() < 2)

    def select(self, dim: int, index: int) -> Any:
        size = self.shape[dim]
        if not -size <= index < size:
            raise IndexError(f"select(): index {index} out of range for dimension of size {size}")
        dim %= self.ndim
        kept = self.index_select(dim, fresh(np.array([index % size], np.int64), dtypes.int64))
        rest = [d for d in range(self.sparse_dim()) if d != dim]
        shape = tuple([n for d, n in enumerate(self.shape) if d != dim])
        if not rest:
            return kept._held.sum(0)
        at = kept._at.index_select(0, fresh(np.array(rest, np.int64), dtypes.int64))
        return made(at, kept._held, shape, False)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, np.integer)):
            return self.select(0, int(index))
        return refuse("indexing by anything but a number")

    def __iter__(self) -> Any:
        return iter([self.select(0, i) for i in range(len(self))])

    def zero_(self) -> SparseTensor:
        self._at = self._at[:, :0].clone()
        self._held = self._held.detach()[:0].clone()
        self._sorted = True
        return self

    def add_(self, other: Any, *, alpha: Any = 1) -> SparseTensor:
        new = added(self, other, alpha)
        self._at, self._held, self._sorted = new._at, new._held, new._sorted
        return self

    def mul_(self, other: Any) -> SparseTensor:
        self._held = self._held * other
        return self

    div_ = None

    # -- arithmetic -------------------------------------------------------------------------------

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        return added(self, other, alpha)

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        return added(self, other, -alpha)

    def mul(self, other: Any) -> Any:
        return times(self, other)

    def div(self, other: Any, *, rounding_mode: Any = None) -> Any:
        if isinstance(other, Tensor) and other.ndim:
            raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
        whole = self._whole() if rounding_mode else self
        return whole.like(whole._held.div(other, rounding_mode=rounding_mode))

    def neg(self) -> SparseTensor:
        return self.like(-self._held)

    __neg__ = neg

    def __add__(self, other: Any) -> Any:
        return added(self, other, 1)

    def __radd__(self, other: Any) -> Any:
        return plus_dense(other, self, 1) if isinstance(other, Tensor) else added(self, other, 1)

    def __sub__(self, other: Any) -> Any:
        return added(self, other, -1)

    def __rsub__(self, other: Any) -> Any:
        if isinstance(other, Tensor):
            return plus_dense(other, self, -1)
        return refuse("a number minus a sparse tensor")

    def __mul__(self, other: Any) -> Any:
        return times(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self.div(other)

    def __rtruediv__(self, other: Any) -> NoReturn:
        refuse("division by a sparse tensor")

    def pow(self, exponent: Any) -> SparseTensor:
        whole = self._whole()
        return whole.like(whole._held**exponent)

    def __pow__(self, exponent: Any) -> SparseTensor:
        return self.pow(exponent)

    def norm(self, p: Any = 2, *_: Any, **__: Any) -> Tensor:
        return self._whole()._held.norm(2 if p == "fro" else p)

    # -- reductions -------------------------------------------------------------------------------

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """A dense number, or with `dim` a sparse tensor of sums (a dense one if nothing sparse is
        left).
        """
        if keepdim:
            refuse("sum(keepdim=True)")
        held = self._held if dtype is None else self._held.to(dtype)
        if left_out(dim):
            return held.sum()
        k = self.sparse_dim()
        gone = {normalize_dim(d, self.ndim) for d in ((dim,) if isinstance(dim, int) else dim)}
        inner = tuple([d - k + 1 for d in gone if d >= k])
        held = held.sum(inner) if inner else held
        rest = [d for d in range(k) if d not in gone]
        if not rest:
            return held.sum(0)
        shape = tuple([n for d, n in enumerate(self.shape) if d not in gone])
        at = self._at.index_select(0, fresh(np.array(rest, np.int64), dtypes.int64))
        return made(at, held, shape, self._sorted and len(rest) == k).coalesce()

    # -- products ---------------------------------------------------------------------------------

    def mm(self, mat2: Any, *, out: Any = None) -> Any:
        return product(self, mat2)

    def matmul(self, other: Any, *, out: Any = None) -> Any:
        return product(self, other)

    def mv(self, vec: Tensor, *, out: Any = None) -> Any:
        return product(self, vec)

    def __matmul__(self, other: Any) -> Any:
        return product(self, other) if isinstance(other, Tensor) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return product(other, self) if isinstance(other, Tensor) else NotImplemented

    # -- text -------------------------------------------------------------------------------------

    def __repr__(self, *, tensor_contents: Any = None) -> str:

        return text(self)

    def __format__(self, spec: str) -> str:
        return repr(self)

    __hash__ = object.__hash__


def _cast(name: str) -> Any:
    def f(self: SparseTensor, memory_format: Any = None) -> SparseTensor:
        return self.to(getattr(dtypes, name))

    return f


for _short, _long in (
    ("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"),
    ("int", "int32"), ("long", "int64"), ("bool", "bool"),
):  # fmt: skip
    setattr(SparseTensor, _short, _cast(_long))
