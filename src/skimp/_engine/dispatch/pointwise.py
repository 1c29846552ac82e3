"""How a pointwise op runs: types and shapes are settled at the call, the work is done now,
deferred, or in place.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from skimp._engine.autograd import alias as history, modes
from skimp._engine.autograd.record import recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.alike import alike, bound
from skimp._engine.dispatch.expressions import expression
from skimp._engine.dispatch.fast_path import (
    Typed,
    fast_inplace_of,
    fast_into_of,
    fast_of,
    put_small,
    takes_small,
)
from skimp._engine.dispatch.operands import number_of, scalar_tensor
from skimp._engine.dispatch.result_types import Types, floating, real_valued, same
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.transforms import rows_of
from skimp._engine.dispatch.writing import assign, bindings, direct, over
from skimp._engine.eval import run
from skimp._engine.eval.expr import Kernel
from skimp._engine.memory import layout as layouts, storage as storages
from skimp._engine.memory.caching import POOLED
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.ledger import host
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor, as_it_lies, empty, wrap
from skimp.config import config

Number = (numbers.Number, np.generic)
_tuple = tuple.__new__  # of a NamedTuple, whose own way is a function of Python's


class Refused(NamedTuple):
    """Stands in a row for the kernel of a dtype that the op refuses, with PyTorch's words."""

    error: type[Exception]
    text: str


class Pointwise:
    """A row: a kernel for each category of dtype (or for one dtype), how types go through, and the
    derivative.
    """

    __slots__ = (
        "args", "bare", "check", "fast", "fast_inplace", "fast_into", "kernels", "masks", "name",
        "numbers", "opmath", "overlap", "own", "params", "plain", "recording", "row_major", "rule",
        "title", "typed", "types", "unwatched",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        kernels: Any,
        types: Types,
        rule: Rule | None = None,
        args: tuple[str, ...] = ("input",),
        params: tuple[str, ...] = (),
        opmath: bool = True,
        masks: tuple[int, ...] = (),
        title: str | None = None,
        numbers: tuple[int, ...] | None = None,
        bare: bool = False,
        unwatched: bool = False,
        check: Callable[[dtypes.dtype, tuple[Any, ...]], None] | None = None,
        also: tuple[dtypes.dtype, ...] = (),  # types of dtypes.NARROW that it computes in too
        overlap: tuple[int, ...] | None = None,
        row_major: bool = False,  # new results are, whatever the memory order of the operands
        own: bool | None = None,  # `out=` has the result's own type, as where one type goes through
    ) -> None:
        self.name = name
        self.row_major = row_major
        self.own = (types in (same, real_valued) and len(args) == 1) if own is None else own
        self.title = title or f"{name}_cpu"  # what PyTorch's "not implemented" names
        self.kernels = kernels_by_dtype(kernels, name, also)
        self.types = types
        self.rule = rule
        self.args = args
        self.params = params  # plain values that the kernel takes after its arrays
        self.recording = None if rule is None else recording(rule, (*args, *params))
        self.opmath = opmath  # False: kernels that only move or compare bits
        # the first arguments, if they come in their own type, whatever the op computes in
        self.masks = masks
        if numbers is None:
            numbers = tuple(range(len(args))) if len(args) > 1 else ()
        # of these arguments `out=` covers all or nothing; of others anything: computed beside it
        self.overlap = overlap
        self.numbers = numbers  # the arguments that may be Python numbers
        self.unwatched = unwatched  # in place, it writes to leaves that require grad as well
        self.bare = bare  # takes numbers without any tensor: torch.add(1, 2)
        # refuses values that the kernel would refuse, at the call: the kernel may run later; it
        # takes all of float32 and float64
        self.check = check
        self.plain = plain_dtypes(self)
        self.fast = self._fast  # asked first; made when it is
        self.fast_inplace = self._fast_inplace
        self.fast_into = self._fast_into
        self.typed: dict[Any, Typed | None] = {}  # what follows from types (`fast_path.py`)

    def _fast(self, *args: Any) -> Tensor | None:
        self.fast = fast_of(self)
        return self.fast(*args)

    def _fast_inplace(self, *args: Any) -> bool | None:
        self.fast_inplace = fast_inplace_of(self)
        return self.fast_inplace(*args)

    def _fast_into(self, *args: Any) -> bool | None:
        self.fast_into = fast_into_of(self)
        return self.fast_into(*args)

    def converts_nothing(self, result: dtypes.dtype, tensors: Sequence[Tensor]) -> bool:
        """Whether `out=` must have the result's own type; a complex number's size goes anywhere."""
        return self.own and (result.is_complex or not any([t._dtype.is_complex for t in tensors]))

    def aligned(self, args: tuple[Any, ...]) -> list[Tensor]:
        """The tensors of which `out=` may cover all elements or none."""
        asked = args if self.overlap is None else [args[i] for i in self.overlap]
        return [a for a in asked if isinstance(a, Tensor)]

    def kernel(self, dtype: dtypes.dtype) -> Kernel:
        found = self.kernels.get(dtype)
        if type(found) is Kernel:
            return found
        if not isinstance(found, Refused):
            raise NotImplementedError(
                f"\"{self.title}\" not implemented for '{promotion.scalar_type_name(dtype)}'"
            )
        raise found.error(found.text)


def kernels_by_dtype(
    kernels: Any, name: str, also: tuple[dtypes.dtype, ...] = ()
) -> dict[dtypes.dtype, Kernel | Refused]:
    """A row's kernels (one for all, or by category, or by dtype where one differs) for each dtype
    that has one.
    """
    if not isinstance(kernels, dict):
        kernels = dict.fromkeys(range(4), kernels)
    made = {
        id(k): k if isinstance(k, (Kernel, Refused)) else Kernel(name, k)
        for k in kernels.values()
        if k
    }
    found = {d: kernels.get(d, kernels.get(d.category)) for d in (*dtypes.ALL, *also)}
    return {d: made[id(k)] for d, k in found.items() if k is not None}


def plain_dtypes(row: Pointwise) -> frozenset[dtypes.dtype]:
    """The dtypes for which the kernel on the bare arrays is the whole op."""
    known: dict[Types, frozenset[dtypes.dtype]] = {
        same: dtypes.FLOATING_AND_COMPLEX | dtypes.INTEGRAL | {dtypes.bool},
        floating: dtypes.FLOATING_AND_COMPLEX,
        real_valued: dtypes.FLOATING | dtypes.INTEGRAL,
    }
    ok = known.get(row.types, frozenset()) if not row.masks else frozenset()
    return frozenset(d for d in ok if type(row.kernels.get(d)) is Kernel)


# -- the call -------------------------------------------------------------------------------------


def call(
    row: Pointwise,
    args: tuple[Any, ...],
    params: tuple[Any, ...] = (),
    out: Tensor | None = None,
    inplace: bool = False,
) -> Tensor:
    """Run a row on tensors and numbers: into a new tensor, into `out`, or into `args[0]`
    (`inplace`).
    """
    if out is None:
        first = args[0]
        large = (  # which is not for the fast path, whatever comes beside it
            type(first) in ORDINARY
            and first._np is None
            and (layout := first._skimp_layout) is not None
            and layouts.numel(layout.shape) >= config.small_below
        )
        if not large and (made := row.fast(*args, *params)) is not None:
            return made
        if (made := alike(row, args, params)) is not None:
            return made
        if host.budget is not None:
            lent: Tensor | None = host.budget.quick(row, args, params)
            if lent is not None:
                return lent
    elif inplace:
        if row.fast_inplace(*args, *params) or over(row, args, params):
            return out
    elif row.fast_into(out, *args, *params) or (
        takes_small(out, args) and put_small(out, row.fast(*args, *params))
    ):
        return out
    if params:  # by value, as graphs keep them too: the fast paths leave such calls to this
        params = tuple([p.item() if isinstance(p, Tensor) and not p._hollow else p for p in params])
    args = tuple([a if type(a) is Tensor else as_operand(row, i, a) for i, a in enumerate(args)])
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not tensors and row.bare:
        args = (scalar_tensor(args[0]), *args[1:])
        tensors = [args[0]]
    if not tensors:
        what = type(args[0]).__name__
        raise TypeError(
            f"{row.name}(): argument '{row.args[0]}' (position 1) must be Tensor, not {what}"
        )
    if tensors[0]._hollow or tensors[-1]._hollow or (len(tensors) > 2 and tensors[1]._hollow):
        return _without_bytes(row, args, params, out, inplace)
    if inplace and out is not None:
        (history.before_unwatched if row.unwatched else history.before_inplace)(out)
        outs.check_overlap(out, tensors)
    shape: tuple[int, ...] = tensors[0].shape
    if len(tensors) > 1:
        shape = layouts.broadcast_shapes(*[t.shape for t in tensors])
    compute, result = row.types(args)
    if inplace and out is not None:
        outs.check_inplace(row.name, out, result, tuple(shape))
    kernel = row.kernel(compute)
    if row.check is not None:
        row.check(compute, args)
    if params:  # one without bytes has no value to take, and says so
        kernel = bound(kernel, *[p.item() if isinstance(p, Tensor) else p for p in params])
    if out is None:
        made = _compute(row, kernel, args, compute, result, tuple(shape))
        if row.recording is not None and modes.state.grad and any([t._rg for t in tensors]):
            row.recording.record(made, *args, *params)
        return made
    return _write(row, kernel, args, params, compute, result, tuple(shape), out, inplace)


def expressed(row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...] = ()) -> Tensor:
    """A row on tensors and numbers of the types that it computes in as an expression alone, of any
    size, which nobody waits for or knows: how a rule says what makes a result again.
    """
    tensors = [a for a in args if isinstance(a, Tensor)]
    shape = layouts.broadcast_shapes(*[t._skimp_layout_of().shape for t in tensors])
    compute, result = row.types(args)
    kernel = row.kernel(compute)
    if params:
        kernel = bound(kernel, *params)
    layout = _tuple(Layout, (shape, result_strides(row, args, compute, shape), 0))
    root = expression(row, kernel, args, compute, result, layout)
    return wrap(storages.defer(root, waits=False), layout, result)


def _without_bytes(
    row: Pointwise,
    args: tuple[Any, ...],
    params: tuple[Any, ...],
    out: Tensor | None,
    inplace: bool,
) -> Tensor:
    made: Tensor = rows_of(args).pointwise(row, args, params, out, inplace)
    return made


def as_operand(row: Pointwise, i: int, a: Any) -> Any:
    if isinstance(a, Tensor):
        return a
    if isinstance(a, Number) and i in row.numbers:
        return number_of(a)
    what = type(a).__name__
    raise TypeError(
        f"{row.name}(): argument '{row.args[i]}' (position {i + 1}) must be Tensor, not {what}"
    )


def _compute(
    row: Pointwise,
    kernel: Kernel,
    args: tuple[Any, ...],
    compute: dtypes.dtype,
    result: dtypes.dtype,
    shape: tuple[int, ...],
) -> Tensor:
    numel = layouts.numel(shape)
    if numel < config.small_below:
        if host.budget is None or numel * result.itemsize < max(host.kept_below, POOLED):
            return as_it_lies(direct(row, kernel, args, compute, result, shape), result)
        # no ndarray is kept of it: the C library's pages would be others than the pool's
        made = empty(shape, result, result_strides(row, args, compute, shape))
        direct(row, kernel, args, compute, result, shape, made._skimp_array())
        return made
    tensors = [a for a in args if isinstance(a, Tensor)]
    strides = result_strides(row, args, compute, shape)
    layout = _tuple(Layout, (shape, strides, 0))
    if numel >= config.defer_from and not any([t._storage.exported for t in tensors]):
        root = expression(row, kernel, args, compute, result, layout)
        return wrap(storages.defer(root), layout, result)
    # Room comes first: others are computed for it, over what they alone are known to read.
    made = empty(shape, result, strides)
    root = expression(row, kernel, args, compute, result, layout)
    run.evaluate(root, np.ndarray(root.shape, root.dtype, made._storage.flat()))
    return made


def result_strides(
    row: Pointwise, args: tuple[Any, ...], compute: dtypes.dtype, shape: tuple[int, ...]
) -> tuple[int, ...]:
    """How a new result lies in memory."""
    if row.row_major:
        return layouts.contiguous_strides(shape)
    masks = len(row.masks)
    return layouts.dense_strides_like(
        [
            a._skimp_layout_of() if i < masks else _as_computed(a, compute)
            for i, a in enumerate(args)
            if isinstance(a, Tensor)
        ],
        shape,
    )


def _as_computed(t: Tensor, compute: dtypes.dtype) -> Layout:
    """An operand's layout, or that of the copy which PyTorch makes of one of another type."""
    layout = t._skimp_layout_of()
    if t._dtype is compute:
        return layout
    return Layout(layout.shape, layouts.dense_strides_like([layout], layout.shape), 0)


# -- writing --------------------------------------------------------------------------------------


def _write(
    row: Pointwise,
    kernel: Kernel,
    args: tuple[Any, ...],
    params: tuple[Any, ...],
    compute: dtypes.dtype,
    result: dtypes.dtype,
    shape: tuple[int, ...],
    out: Tensor,
    inplace: bool,
) -> Tensor:
    tensors = [a for a in args if isinstance(a, Tensor)]
    tracked = modes.state.grad and any([t._rg for t in tensors])
    if not inplace:
        check_out(row, args, result, tensors, out)
        outs.check_operand_out(out, shape, tensors)
        outs.fit_out(out, shape)
        if row.overlap is not None:
            return _write_beside(row, args, params, out)
    saved = None
    if inplace and tracked and row.rule is not None:
        saved = history.prepare(out, row.rule, bindings(row, args, params))
    assign(row, kernel, args, compute, result, out)
    if saved is not None:
        history.rebase(out, saved)
    return out


def check_out(
    row: Pointwise, args: tuple[Any, ...], result: dtypes.dtype, tensors: list[Tensor], out: Any
) -> None:
    """Refuse an `out=` that can't take a row's result, as it lies before it is resized."""
    own = row.converts_nothing(result, tensors)
    followed = row.rule is not None and result.category >= dtypes.FLOAT
    outs.check_castable_out(row.name, out, result, tensors, own, followed)
    outs.check_overlap(out, row.aligned(args))


def _write_beside(
    row: Pointwise, args: tuple[Any, ...], params: tuple[Any, ...], out: Tensor
) -> Tensor:
    with modes.no_grad():
        return out.copy_(call(row, args, params))
