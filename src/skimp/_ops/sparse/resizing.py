"""Other sizes for a sparse tensor: its entries stay where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.row import sampled
from skimp._engine.tensor import dtypes, formats
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._ops.sparse.arithmetic import Ints, is_sparse, refuse
from skimp._ops.sparse.tensor import SparseTensor, made

_OPTIONS = """
You could try the following options:
1. If you need an empty sparse tensor of this size, call `x = torch.sparse_coo_tensor(size)`.
2. If you need to resize this tensor, you have the following options:
\t1. For both sparse and dense dimensions, keep the number of them constant and the size of them \
non-shrinking, and then try the same call again.
\t2. Or, create a new sparse tensor with the correct indices and values from this sparse tensor."""


def _sizes(input: Any, size: Any, sparse_dim: int, dense_dim: int) -> Ints:
    if not is_sparse(input):
        raise NotImplementedError(
            "Could not run 'aten::sparse_resize_' with arguments from the 'CPU' backend: only "
            "sparse COO tensors have it; use resize_()"
        )
    if input.layout is not formats.sparse_coo:
        refuse("another size for a CSR tensor")
    if input.requires_grad and input.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation."
        )
    shape = tuple([int(n) for n in size])
    if len(shape) != sparse_dim + dense_dim:
        raise RuntimeError(
            "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = "
            f"{len(shape)}, sparse_dim = {sparse_dim}, dense_dim = {dense_dim}"
        )
    return shape


@sampled(lambda tensor: [(tensor([[0.0, 2.0]]).to_sparse(), (2, 3), 2, 0)])
def sparse_resize_(input: Any, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Another size for a COO tensor, of as many dimensions and no smaller unless it is empty; the
    entries stay, and dense dimensions that grow are zero in what is new.

    Shape: any; the result's is the one that is asked for.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError where entries would not fit; NotImplementedError for dense tensors.
    Memory: new values where dense dimensions change.
    """
    shape = _sizes(input, size, sparse_dim, dense_dim)
    t: SparseTensor = input
    if not t._nnz():
        return sparse_resize_and_clear_(t, shape, sparse_dim, dense_dim)
    before, k = tuple(t.shape), t.sparse_dim()
    for what, old, new in (("sparse", k, sparse_dim), ("dense", t.dense_dim(), dense_dim)):
        if old != new:
            raise RuntimeError(
                f"changing the number of {what} dimensions (from {old} to {new}) on a non-empty "
                f"sparse tensor is not supported.{_OPTIONS}"
            )
    for what, part in (("sparse", slice(k)), ("dense", slice(k, None))):
        if any([b < a for a, b in zip(before[part], shape[part], strict=True)]):
            raise RuntimeError(
                f"shrinking the size of {what} dimensions (from {list(before[part])} to "
                f"{list(shape[part])}) on a non-empty sparse tensor is not supported.{_OPTIONS}"
            )
    if before[k:] != shape[k:]:
        held = t._held.new_zeros((t._nnz(), *shape[k:]))
        held[tuple([slice(n) for n in t._held.shape])] = t._held
        t._held = held
    return _sized(t, shape)


@sampled(lambda tensor: [(tensor([[0.0, 2.0]]).to_sparse(), (3,), 1, 0)])
def sparse_resize_and_clear_(
    input: Any, size: Any, sparse_dim: int, dense_dim: int
) -> SparseTensor:
    """Another size for a COO tensor, whose entries go.

    Shape: any; the result's is the one that is asked for.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: NotImplementedError for dense tensors.
    Memory: new, empty indices and values.
    """
    shape = _sizes(input, size, sparse_dim, dense_dim)
    t: SparseTensor = input
    t._at = fresh(np.empty((sparse_dim, 0), np.int64), dtypes.int64)
    t._held = t._held.detach().new_empty((0, *shape[sparse_dim:]))
    t._sorted = True
    return _sized(t, shape)


def _sized(t: SparseTensor, shape: Ints) -> SparseTensor:
    t._skimp_layout = made(t._at, t._held, shape, t._sorted)._skimp_layout
    return t


@sampled(lambda tensor: [(tensor([[0.0, 2.0]]).to_sparse(), tensor([[1.0, 2.0, 3.0]]).to_sparse())])
def resize_as_sparse_(input: Any, the_template: Tensor) -> SparseTensor:
    """`sparse_resize_` to the size of another COO tensor.

    Shape: any; the result's is the other's.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: RuntimeError where entries would not fit, or the other is dense.
    Memory: new values where dense dimensions change.
    """
    if not is_sparse(the_template):
        raise RuntimeError("resize_as_sparse_: the template is not a sparse COO tensor")
    like: Any = the_template
    return sparse_resize_(input, like.shape, like.sparse_dim(), like.dense_dim())


def resize_as_(
    self: SparseTensor, the_template: Tensor, *, memory_format: Any = None
) -> SparseTensor:
    """The same under the name that dense tensors have."""
    if memory_format not in (None, formats.preserve_format):
        name = str(memory_format).rpartition(".")[2].removesuffix("_format").capitalize()
        raise RuntimeError(f"Unsupported memory format for sparse tensor resize_as_ :{name}")
    if not is_sparse(the_template):
        raise NotImplementedError(
            "Could not run 'aten::resize_' with arguments from the 'SparseCPU' backend: a sparse "
            "tensor takes the size of sparse tensors"
        )
    return resize_as_sparse_(self, the_template)


export("resize_as_sparse_", resize_as_sparse_)
for _f in (sparse_resize_, sparse_resize_and_clear_):
    export(_f.__name__, _f, namespaces=())
_METHODS: Any = (sparse_resize_, sparse_resize_and_clear_, resize_as_sparse_, resize_as_)
for _method in _METHODS:
    setattr(SparseTensor, _method.__name__, _method)
