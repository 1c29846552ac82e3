"""Making sparse tensors, and torch.sparse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NoReturn

import numpy as np

from skimp._compat import refusals
from skimp._engine.dispatch import pointwise
from skimp._engine.dispatch.forms import NAMESPACES, OPS, export
from skimp._engine.dispatch.row import sampled, signature
from skimp._engine.dispatch.transforms import SPARSE, TRANSFORMS, Call, tensors_in
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import devices, dtypes, formats
from skimp._engine.tensor.tensor import Tensor, fresh
from skimp._ops.create.creation import as_tensor
from skimp._ops.sparse import rules
from skimp._ops.sparse.arithmetic import add_entries, plus_dense, product, refuse, times
from skimp._ops.sparse.tensor import SparseTensor, made
from skimp._ops.sparse.turned import Turned

Ints = tuple[int, ...]

# -- dispatch -------------------------------------------------------------------------------------


class Sparse:
    """The transform of calls that sparse tensors take part in."""

    def owns(self, args: Any) -> bool:
        """Whether one of these is sparse."""
        for v in args:
            if isinstance(v, Tensor):
                if v._skimp_sparse:
                    return True
            elif not isinstance(v, (list, tuple, dict)):
                continue
            elif any([t._skimp_sparse for t in tensors_in((v,))]):
                return True
        return False

    def concerns(self, call: Call) -> bool:
        return self.owns(call.values())

    def run(self, call: Call) -> Any:
        if call.op.kind == "pointwise":
            return call.below()
        given = call.given()
        result, out = self._run(call, given), given.get("out")
        if out is None or result is out:
            return result
        return rules.put(call.form.name, result, out, tensors_in(call.args))

    def _run(self, call: Call, given: dict[str, Any]) -> Any:
        """By the op's rule for sparse tensors, by the method of its name, by its parts; or not."""
        op, name = call.op, call.form.name
        if callable(op.sparse) and not call.form.writes:
            return op.sparse(given)
        first = next(iter(given.values()))
        if isinstance(first, SparseTensor):
            kind: Any = type(first)
            method, takes, several = _method(kind, name)
            words = {k: v for k, v in list(given.items())[1:] if k != "out"}
            if method is not None and all([k in takes or _is_nothing(v) for k, v in words.items()]):
                one_by_one = [v for k in several for v in words.pop(k, ())]
                return method(first, *one_by_one, **{k: words[k] for k in words if k in takes})
        if op.composite:
            return call.below()
        raise NotImplementedError(
            f"skimp: {name} is not implemented for sparse tensors (PyTorch's 'SparseCPU' backend); "
            "use to_dense(), or indices() and values()"
        )

    def pointwise(
        self, row: Any, args: Sequence[Any], params: Sequence[Any], out: Any, inplace: bool
    ) -> Any:
        op = OPS.get(row.name)
        if op is not None and op.sparse == "values" and out is None:
            whole = args[0]._whole()
            return whole.like(pointwise.call(row, (whole._held,), tuple(params)))
        return pointwise_call(row.name, args, params, out)


@cache
def _method(cls: type, name: str) -> tuple[Any, frozenset[str], list[str]]:
    """A sparse class's own method, the names of what it takes, and of what it takes one by one."""
    method = getattr(cls, name, None) if _has(cls, name) else None
    takes = {} if method is None else signature(method).parameters
    several = [k for k, p in takes.items() if p.kind is p.VAR_POSITIONAL]
    return method, frozenset(takes), several


def _has(cls: type, name: str) -> bool:
    """Whether a sparse class has a method of its own."""
    return any([name in c.__dict__ for c in cls.__mro__ if issubclass(c, Turned)])


def _is_nothing(value: Any) -> bool:
    """Whether an argument that a method does not take says nothing."""
    return not isinstance(value, Tensor) and not value


TRANSFORMS[SPARSE] = Sparse()


def pointwise_call(name: str, args: Sequence[Any], params: Sequence[Any], out: Any) -> Any:
    """A pointwise row with a sparse operand; `x.add_(sparse)` writes the entries' places alone."""
    first, *rest = (*args, *params)
    alpha: Any = rest[1] if len(rest) > 1 else 1  # of a sum
    if isinstance(first, SparseTensor):
        kind: Any = type(first)
        method, _, _ = _method(kind, name)
        if method is None or out is not None:
            refuse(name)
        if name in ("add", "sub"):
            return first.add(args[1], alpha=alpha if name == "add" else -alpha)
        return method(first, *args[1:], *params)
    if name in ("add", "sub"):
        alpha = alpha if name == "add" else -alpha
        if out is None:
            return plus_dense(first, args[1], alpha)
        if out is first:
            return add_entries(first, args[1], alpha)
    if name == "mul" and out is None:
        return times(args[1], first)
    return refuse(name)


# -- making ---------------------------------------------------------------------------------------


def _indices_of(indices: Any) -> Tensor:
    t: Tensor = as_tensor(indices)
    if t._dtype.category != dtypes.INT:
        t = t.to(dtypes.int64)
    t = t.detach() if t._dtype is dtypes.int64 else t.to(dtypes.int64)
    if t.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(t.shape)}")
    return t


def _check_inside(at: Any, shape: Ints) -> None:
    """Indices outside the shape would be read outside memory, so they are refused at once."""
    for d, (row, n) in enumerate(zip(at, shape, strict=False)):
        if not row.size:
            continue
        if row.min() < 0:
            raise RuntimeError(f"found negative index {int(row.min())} for dim {d}")
        if row.max() >= n:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {d}, size is {n} but found index "
                f"{int(row.max())}"
            )


@sampled(lambda tensor: [(tensor([[0, 1], [2, 0]]).long(), tensor([3.0, 4.0]), (2, 3))])
def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A sparse tensor of `values` at `indices` (sparse_dim, nnz), or an empty one of a size; its
    gradient goes to `values` unless it is to be a leaf (`requires_grad`).

    Shape: indices (sparse_dim, nnz), values (nnz, *dense); `size` has sparse_dim + dense sizes.
    Memory: none is made: the sparse tensor holds the indices and values given, where they are
    tensors.
    """
    devices.check(device)
    if values is None:
        return _empty(tuple(size if indices is None else indices), dtype, requires_grad)
    at = _indices_of(indices)
    held = as_tensor(values, dtype=dtype)
    held = held.view(held.shape) if held.requires_grad else held.detach()
    if held.ndim == 0 and at.shape[1] == 1:
        held = held.reshape(1)
    if held.ndim == 0 or held.shape[0] != at.shape[1]:
        have = held.shape[0] if held.ndim else 1
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {at.shape[1]}, nnz "
            f"from values: {have}"
        )
    array, k = at._skimp_array(), int(at.shape[0])
    if size is None:
        if not at.shape[1]:
            size = (*[0] * k, *held.shape[1:])
        else:
            size = (*[int(row.max()) + 1 for row in array], *held.shape[1:])
    shape = tuple([int(n) for n in size])
    if len(shape) != k + held.ndim - 1:
        raise RuntimeError(
            "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = "
            f"{len(shape)}, sparse_dim = {k}, dense_dim = {held.ndim - 1}"
        )
    if tuple(held.shape[1:]) != shape[k:]:
        raise RuntimeError(
            f"values has incorrect size, expected {[at.shape[1], *shape[k:]]}, got "
            f"{list(held.shape)}"
        )
    layouts.check_numel(shape)
    _check_inside(array, shape)
    if requires_grad:
        held = held.detach().clone().requires_grad_()
    return made(at, held, shape, bool(is_coalesced))


def _empty(shape: Ints, dtype: Any, requires_grad: bool) -> SparseTensor:
    at = fresh(np.empty((len(shape), 0), np.int64), dtypes.int64)
    held: Tensor = NAMESPACES[""]["empty"]((0,), dtype=dtype)
    new = made(at, held, shape, True)
    return new.requires_grad_() if requires_grad else new


export("sparse_coo_tensor", sparse_coo_tensor, method=False)


def _compressed(name: str) -> Callable[..., Any]:
    text = (
        f"{name}: skimp has no such layout (BSR, BSC); use "
        "sparse_coo_tensor() or to_sparse(), sparse_csr_tensor() or to_sparse_csr()"
    )
    reason = "the sparse layouts are COO, CSR and CSC"
    return refusals.refusing(name, NotImplementedError, text, reason)


for _kind in ("bsr", "bsc"):
    export(f"sparse_{_kind}_tensor", _compressed(f"sparse_{_kind}_tensor"), method=False)
    export(f"to_sparse_{_kind}", _compressed(f"to_sparse_{_kind}"), namespaces=())


# -- from dense to sparse and back ----------------------------------------------------------------


def to_sparse(
    input: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: Any = None,
    blocksize: Any = None,
    dense_dim: int | None = None,
) -> Any:
    """The elements that are not zero, and where they are; with `sparse_dim` slices of the other
    dims.

    Raises: RuntimeError for more sparse dims than the input has.
    """
    if layout is formats.strided:
        return input
    if layout is formats.sparse_csr:
        return input.to_sparse_csr()
    if layout is formats.sparse_csc:
        return input.to_sparse_csc()
    if layout is not None and layout is not formats.sparse_coo:
        return _compressed("to_sparse")()
    k = _sparse_dims(input.ndim, sparse_dim, dense_dim)
    nonzero = input.detach() != 0
    if k < input.ndim:
        nonzero = nonzero.flatten(k).any(-1)
    found = nonzero.nonzero()
    at = found.t().contiguous()
    values = input[tuple(at.unbind(0))] if k else input.expand(1)[: at.shape[1]]
    return made(at, values, tuple(input.shape), True)


def _sparse_dims(ndim: int, sparse_dim: int | None, dense_dim: int | None) -> int:
    """How many dims of a tensor that becomes sparse are sparse: all, where nothing is said."""
    named, k = ("dense", dense_dim) if sparse_dim is None else ("sparse", sparse_dim)
    if k is None:
        return ndim
    refused = f"dense_to_sparse: {named}_dim argument must be"
    if not 0 <= k <= ndim:
        raise RuntimeError(f"{refused} in [0,{ndim}] range, but {k} is given")
    sparse = k if named == "sparse" else ndim - k
    if sparse == 0 < ndim:
        end = "in >0" if named == "sparse" else "!=self.dim()"
        raise RuntimeError(f"{refused} {end} when self.dim()>0")
    return sparse


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def to_dense(input: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor itself, which is dense.

    Raises: nothing.
    Memory: the input itself, or a new tensor of `dtype`.
    """
    return input if dtype is None else input.to(dtype)


@sampled(lambda tensor: [(tensor([[1, -2, 3]]), tensor([[1, -2, 3]]).to_sparse())])
def sparse_mask(input: Tensor, mask: Any) -> SparseTensor:
    """The elements where the sparse tensor `mask` has entries.

    Shape: the mask's, which is the input's.
    Raises: RuntimeError for a mask that is dense or of another shape.
    """
    if not isinstance(mask, SparseTensor):
        raise RuntimeError("sparse_mask expected a sparse mask, but got a dense one")
    if input.shape != mask.shape:
        raise RuntimeError(
            "sparse_mask(): operands have incompatible sizes; self has size "
            f"{list(input.shape)} but mask has size {list(mask.shape)}"
        )
    if isinstance(input, SparseTensor):
        input = input.to_dense()
    return mask.like(input[tuple(mask._at.unbind(0))])


def _expects(name: str) -> Callable[..., Any]:
    def f(input: Tensor) -> NoReturn:
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got Strided")

    f.__name__ = f.__qualname__ = name
    f.__doc__ = refusals.docstring("the tensor is dense")
    return f


for _f in (to_sparse, to_dense, sparse_mask):
    export(_f.__name__, _f, namespaces=())
export("to_sparse_coo", to_sparse, namespaces=())
SparseTensor.sparse_mask = sparse_mask  # type: ignore[method-assign, assignment]


def _new(self: SparseTensor, *given: Any, device: Any = None) -> SparseTensor:
    """`new(indices, values[, size])`, or an empty one of a size."""
    if len(given) > 1 and isinstance(given[0], Tensor):
        return sparse_coo_tensor(*given, device=device)
    if len(given) == 1 and isinstance(given[0], list):
        raise TypeError(
            "SparseTensor.new(sequence) only accepts sizes.  Please use torch.sparse_coo_tensor() "
            "or construct a strided tensor and convert it to sparse via to_sparse."
        )
    sizes = given[0] if len(given) == 1 and isinstance(given[0], tuple) else given or (0,)
    return sparse_coo_tensor(sizes, dtype=self.dtype, device=device)


SparseTensor.new = _new  # type: ignore[method-assign, assignment]
for _name in ("coalesce", "indices", "values", "is_coalesced"):
    export(_name, _expects(_name), namespaces=())


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def _no_sparse_dim(input: Tensor) -> int:
    """A dense tensor has none.

    Raises: nothing.
    Memory: no tensor is made.
    """
    return 0


export("sparse_dim", _no_sparse_dim, namespaces=())


@sampled(lambda tensor: [(tensor([[1, -2, 3]]),)])
def _dense_dims(input: Tensor) -> int:
    """Of a dense tensor the number of dimensions.

    Raises: nothing.
    Memory: no tensor is made.
    """
    return input.ndim


export("dense_dim", _dense_dims, namespaces=())


# -- torch.sparse ---------------------------------------------------------------------------------


def _in_sparse(name: str) -> Callable[[Any], Any]:
    def declare(f: Any) -> Any:
        export(name, f, ("sparse",), method=False)
        return f

    return declare


@_in_sparse("mm")
def mm(sparse: Tensor, dense: Tensor, reduce: str = "sum") -> Any:
    """The matrix product where one of both is sparse; of a matrix by rows also the mean ("mean"),
    the largest ("amax") or the smallest ("amin") of each row's products.

    Shape: (n, m) and (m, p); the result is (n, p).
    Dtypes: integers, floating point and complex numbers, alike.
    Raises: RuntimeError for sizes that don't fit and for two dtypes.
    """
    if reduce == "sum":
        return sparse.mm(dense)
    if not sparse.is_sparse_csr or reduce not in ("mean", "amax", "amin"):
        raise NotImplementedError(f"torch.sparse.mm(reduce={reduce!r}) needs a CSR tensor")
    rows: Any = sparse
    if reduce == "mean":
        counts = rows.crow_indices().diff().clamp(min=1)
        return sparse.mm(dense) / counts.unsqueeze(-1)
    to, of = rows._at.unbind(0)
    parts = rows._held.unsqueeze(-1) * dense.index_select(0, of)
    made_here = dense.new_zeros((int(sparse.shape[0]), int(dense.shape[1])))
    return made_here.index_reduce(0, to, parts, reduce, include_self=False)


export("spmm", mm, method=False)


@sampled(lambda tensor: [(tensor([[1, -2, 3]]).to_sparse(), tensor([[1, -2, 3]]).t())])
def smm(input: Tensor, mat: Tensor) -> Any:
    """`torch.sparse.mm`, as a sparse tensor.

    Shape: (n, m) and (m, p); the result is (n, p).
    Dtypes: integers, floating point and complex numbers.
    Raises: RuntimeError for sizes that don't fit and for two dtypes.
    """
    return product(input, mat).to_sparse()


export("smm", smm)


_in_sparse("addmm")(rules.addmm)


@_in_sparse("sum")
def sum_(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of all entries, or a sparse tensor of sums along `dim`.

    Shape: one number, or the input's less `dim`.
    Dtypes: integers, floating point and complex numbers.
    Raises: IndexError for a dim that is not there.
    """
    return input.sum(dim, dtype=dtype)


def _legacy(kind: str, dtype: dtypes.dtype) -> Callable[..., Any]:
    @sampled(lambda tensor: [(2, 3)])
    def f(*args: Any) -> SparseTensor:
        if args and isinstance(args[0], Tensor):
            return sparse_coo_tensor(*args, dtype=dtype)
        sizes = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
        return _empty(tuple([int(n) for n in sizes]), dtype, False)

    f.__name__ = f.__qualname__ = kind
    f.__doc__ = f"""`sparse_coo_tensor` of {dtype}: (indices, values, size), or a size.

    Dtypes: {dtype}, whatever the values' is.
    """
    return f


for _kind, _dtype in (
    ("FloatTensor", dtypes.float32),
    ("DoubleTensor", dtypes.float64),
    ("LongTensor", dtypes.int64),
    ("IntTensor", dtypes.int32),
    ("HalfTensor", dtypes.float16),
    ("ByteTensor", dtypes.uint8),
):
    export(_kind, _legacy(_kind, _dtype), ("sparse",), method=False)


SAYS = """\
Shape: any, as `size` or the input says.
Dtypes: bool, integers, floating point and complex numbers.
Raises: RuntimeError for indices outside of the shape and for sizes that don't fit.
Memory: a new tensor."""
