"""What an op may write to: the checks of `out=` and of in-place forms, made before anything
changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from skimp._engine.autograd import alias as history, modes
from skimp._engine.dispatch.transforms import tensors_in
from skimp._engine.memory import layout as layouts, layout_overlap as overlap
from skimp._engine.memory.call_site import warn
from skimp._engine.memory.layout import Layout, contiguous_strides, numel
from skimp._engine.memory.users import users_beside
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor


def check_inplace(name: str, target: Tensor, result: dtypes.dtype, shape: tuple[int, ...]) -> None:
    """Refuse an in-place form whose result has another shape, or a type of a higher category."""
    if tuple(target.shape) != shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape "
            f"{list(shape)}: "
            f"{name}_() writes into its first argument; use {name}() for a new tensor"
        )
    check_cast(result, target._dtype)


def check_operand_out(out: Tensor, shape: tuple[int, ...], operands: Sequence[Tensor]) -> None:
    """Refuse an `out` that is read as well, and would get another shape."""
    if tuple(out.shape) != shape and any([one is out for one in operands]):
        raise RuntimeError(
            f"output with shape {list(out.shape)} doesn't match the broadcast shape {list(shape)}: "
            "it is an operand too, which is not resized"
        )


def check_cast(result: dtypes.dtype, target: dtypes.dtype) -> None:
    if result is not target and not promotion.can_cast(result, target):
        raise RuntimeError(
            f"result type {promotion.scalar_type_name(result)} can't be cast to the desired output "
            f"type {promotion.scalar_type_name(target)}"
        )


def check_castable_out(
    name: str,
    out: Any,
    result: dtypes.dtype,
    inputs: Iterable[Tensor],
    own: bool,
    followed: bool = True,
) -> None:
    """Refuse an `out=` that is no tensor, of a type that can't hold the result (`own`: of another
    type), or, where autograd follows such results, that it would have to follow.
    """
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if followed:
        refuse_grad(name, out, inputs)
    else:
        history.before_unwatched(out)
    if own and out._dtype is not result:
        raise RuntimeError(
            f"Found dtype {promotion.scalar_type_name(out._dtype)} but expected "
            f"{promotion.scalar_type_name(result)}"
        )
    check_cast(result, out._dtype)


def check_real(name: str, out: Tensor) -> None:
    """Refuse an `out=` of a Fourier transform to real numbers that is not floating point."""
    if not out._dtype.is_floating_point:
        raise RuntimeError(
            f"{name.replace('2', 'n')} expects a floating point output tensor, but got "
            f"{promotion.scalar_type_name(out._dtype)}"
        )


def check_same(out: Tensor, result: dtypes.dtype) -> None:
    """Refuse an `out=` of another type than the result's, for ops that don't convert."""
    if out._dtype is not result:
        raise RuntimeError(
            f"Expected out tensor to have dtype {result.name}, but got {out._dtype.name} instead"
        )


def check_out_dtype(dtype: dtypes.dtype | None, out: Tensor) -> None:
    """A function that makes tensors refuses an `out=` of another dtype than the one asked for."""
    if dtype is not None and dtype is not out._dtype:
        raise RuntimeError(
            f"dtype {promotion.scalar_type_name(dtype)} does not match dtype of out parameter "
            f"({promotion.scalar_type_name(out._dtype)})"
        )


def in_its_type(given: dict[str, Any], out: Tensor) -> dict[str, Any]:
    """A call whose `out=` says in which type it is computed, as `dtype` does where there is one."""
    asked = dtypes.asked(given["dtype"])
    if asked is not None:
        check_same(out, asked)
    return {**given, "dtype": out._dtype}


def refuse_grad(name: str, out: Tensor, inputs: Iterable[Tensor]) -> None:
    """Before `out` is written to: refuse what autograd would have to follow, and tensors of
    inference mode outside it.
    """
    if modes.state.grad and (out._rg or any([t._rg for t in inputs])):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, "
            "but one of the arguments requires grad."
        )
    history.before_inplace(out)


def resize_out(name: str, out: Tensor, shape: tuple[int, ...]) -> None:
    """`fit_out`, for functions that have no other check of `out`: those without tensors to
    differentiate (`zeros`, `arange`).
    """
    if out._skimp_inference or out._rg:
        refuse_grad(f"aten::{name}", out, ())
    fit_out(out, shape)


def fit_out(out: Tensor, shape: tuple[int, ...]) -> None:
    """Give `out` the result's shape; PyTorch's warning where that changes a tensor that has
    elements.
    """
    if tuple(out.shape) == shape:
        return
    if numel(tuple(out.shape)):
        warn(
            "An output with one or more elements was resized since it had shape "
            f"{list(out.shape)}, which does not match the required output shape {list(shape)}. "
            "This behavior is deprecated, and in a future PyTorch release outputs will not be "
            "resized unless they have zero elements. You can explicitly reuse an out tensor t by "
            "resizing it, inplace, to zero elements with t.resize_(0).",
            UserWarning,
        )
    resize(out, shape)


def resize(t: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> None:
    """Make `t` row-major of this shape on its storage, which grows if it must; its bytes stay."""
    offset = t._skimp_layout_of().offset
    layout = Layout(
        tuple(shape), contiguous_strides(tuple(shape)) if strides is None else strides, offset
    )
    need = layouts.nbytes_needed(layout, t._dtype.itemsize)
    if need > len(t._storage):
        tensors = users_beside(t)
        t._storage.resize(need, tensors)
    t._np = None
    t._skimp_layout = layout


def check_overlap(out: Tensor, inputs: Iterable[Tensor]) -> None:
    """Refuse a target that maps some bytes twice, or shares some but not all of its bytes with an
    input.
    """
    layout = out._skimp_layout_of()
    if not layouts.is_contiguous(layout):
        overlap.assert_no_internal_overlap(layout)
    for t in inputs:
        if t._storage is out._storage and t is not out:
            overlap.assert_no_partial_overlap(
                layout, t._skimp_layout_of(), out._dtype.itemsize, t._dtype.itemsize
            )


def check_shared(rule: str | tuple[str, ...], out: Tensor, given: dict[str, Any]) -> None:
    """Refuse an `out=` that shares memory in a way that the op's row does not allow:

    "apart": no byte with an argument; "aligned": all elements of an argument or none; names: as
    "aligned", of these arguments, which PyTorch copies into `out` first, expanded where they are
    smaller (and then it doesn't look); "alone": anything with arguments. Each refuses elements of
    `out` that lie at one place; "free" refuses nothing.
    """
    if rule == "free":
        return
    if rule == "apart":
        check_no_overlap(out, tensors_in(given.values()))
    elif rule == "alone":
        check_overlap(out, ())
    elif rule == "aligned":
        check_overlap(out, tensors_in(given.values()))
    else:
        copied = [given[name] for name in rule]
        check_overlap(out, [t for t in copied if t.shape == out.shape])


def warn_expanded(name: str, target: Tensor, usual: str) -> None:
    """PyTorch's warning of ops that still write to expanded tensors; `usual` shows such a write."""
    if overlap.has_internal_overlap(target._skimp_layout_of()) is overlap.Overlap.YES:
        warn(
            f"Use of {name} on expanded tensors is deprecated. Please clone() the tensor before "
            f"performing this operation. This also applies to advanced indexing e.g. {usual}"
        )


def check_no_overlap(out: Tensor, inputs: Iterable[Tensor]) -> None:
    """Refuse a target that shares any byte with an input (ops that are not pointwise)."""
    layout = out._skimp_layout_of()
    if not layouts.is_contiguous(layout):
        overlap.assert_no_internal_overlap(layout)
    check_apart(out, inputs)


def check_apart(out: Tensor, inputs: Iterable[Tensor]) -> None:
    """`check_no_overlap` for ops that write to expanded tensors as well."""
    for t in inputs:
        if t._storage is out._storage:
            layout = out._skimp_layout_of()
            overlap.assert_no_overlap(
                layout, t._skimp_layout_of(), out._dtype.itemsize, t._dtype.itemsize
            )
