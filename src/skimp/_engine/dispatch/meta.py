"""Ops on tensors without bytes: what they infer, and nothing else (docs/notes/meta.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.record import record
from skimp._engine.dispatch import outs, pointwise
from skimp._engine.dispatch.overrides import disabled
from skimp._engine.dispatch.pointwise import Pointwise, as_operand
from skimp._engine.dispatch.row import Function, Op
from skimp._engine.dispatch.transforms import META, TRANSFORMS, Call, tensors_in
from skimp._engine.dispatch.writing import bindings
from skimp._engine.memory import layout as layouts
from skimp._engine.tensor import dtypes, meta
from skimp._engine.tensor.meta import MetaTensor, among
from skimp._engine.tensor.tensor import Tensor

setattr(MetaTensor, "__torch_function__", classmethod(disabled))  # noqa: B010  (as ops are attached)


def body(op: Op) -> Function:
    """What runs in place of the op's body; the body itself where that asks for no bytes before it
    hands them on.
    """
    return op.raw if op.meta is None else op.meta


def check_devices(values: Iterable[Any], least: int = dtypes.BOOL) -> None:
    """Refuse tensors with bytes, of dtypes from the category `least` on, beside tensors without; a
    number in a tensor is welcome.
    """
    kinds = [t.device.type for t in tensors_in(values) if _settles(t, least)]
    if "cpu" in kinds and "meta" in kinds:
        other = "meta" if kinds[0] == "cpu" else "cpu"
        raise RuntimeError(f"Tensor on device {other} is not on the expected device {kinds[0]}!")


def _settles(t: Tensor, least: int) -> bool:
    """Whether the tensor's device is that of the call."""
    return t._skimp_meta is not None or (t.ndim > 0 and t._dtype.category >= least)


_BETWEEN = ("copy_", "_moved")  # ops between devices


class Meta:
    """The transform of calls that tensors without bytes take part in."""

    def owns(self, args: Any) -> bool:
        """Whether one of these is without bytes."""
        return any(True for _ in among(args))

    def concerns(self, call: Call) -> bool:
        return not call.op.composite and call.op.kind != "pointwise" and self.owns(call.values())

    def run(self, call: Call) -> Any:
        """The general way, which asks `body`."""
        if call.op.name not in _BETWEEN:
            check_devices(call.values(), dtypes.FLOAT)  # indices may be anywhere, as in PyTorch
        return call.below()

    def pointwise(
        self,
        row: Pointwise,
        args: tuple[Any, ...],
        params: tuple[Any, ...],
        out: Tensor | None,
        inplace: bool,
    ) -> Tensor:
        """`pointwise.call` up to where it would compute."""
        args = tuple([as_operand(row, i, a) for i, a in enumerate(args)])
        tensors = [a for a in args if isinstance(a, Tensor)]
        check_devices(tensors)
        if inplace and out is not None:
            (history.before_unwatched if row.unwatched else history.before_inplace)(out)
            outs.check_overlap(out, tensors)
        shape = tuple(layouts.broadcast_shapes(*[t.shape for t in tensors]))
        compute, result = row.types(args)
        if inplace and out is not None:
            outs.check_inplace(row.name, out, result, shape)
        row.kernel(compute)
        if out is None:
            made: Tensor = meta.empty(
                shape, result, pointwise.result_strides(row, args, compute, shape)
            )
            if row.rule is not None and modes.state.grad and any([t._rg for t in tensors]):
                record(row.rule, bindings(row, args, params), made)
            return made
        return _written(row, args, params, result, shape, out, inplace)


def _written(
    row: Pointwise,
    args: tuple[Any, ...],
    params: tuple[Any, ...],
    result: Any,
    shape: tuple[int, ...],
    out: Tensor,
    inplace: bool,
) -> Tensor:
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not inplace:
        pointwise.check_out(row, args, result, tensors, out)
    if not out._hollow:
        raise RuntimeError("Tensor on device cpu is not on the expected device meta!")
    if not inplace:
        outs.fit_out(out, shape)
    saved = None
    if inplace and row.rule is not None and modes.state.grad and any([t._rg for t in tensors]):
        saved = history.prepare(out, row.rule, bindings(row, args, params))
    out._skimp_bump()
    if saved is not None:
        history.rebase(out, saved)
    return out


TRANSFORMS[META] = Meta()
