"""The elements that a mask holds: masked_select, masked_scatter, and a mask counted run by run."""

from __future__ import annotations

from typing import Any

import numpy as np

from skimp._engine.autograd.nodes import shape_of
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch import outs
from skimp._engine.dispatch.forms import NAMESPACES, export, general
from skimp._engine.dispatch.pointwise_forms import named
from skimp._engine.dispatch.reduction import source_of
from skimp._engine.dispatch.row import ORDINARY
from skimp._engine.dispatch.targets import blank
from skimp._engine.eval.expr import Expr
from skimp._engine.eval.positions import bits
from skimp._engine.eval.reader import Reader, prepare_runs
from skimp._engine.eval.run import threads_for
from skimp._engine.memory import layout as layouts, layout_views
from skimp._engine.memory.call_site import warn
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.promotion import scalar_type_name
from skimp._engine.tensor.tensor import Array, Tensor, fresh
from skimp._kernels import bare, shaping
from skimp._kernels.threads import share
from skimp._ops.index.masks import masked_fill
from skimp._ops.index.writers import writer

_RUN = 1 << 16  # elements of a mask that are looked at together

# -- masked_select --------------------------------------------------------------------------------


@general(out="same", copies="selected", rule=Rule("MaskedSelectBackward0",
    input=lambda g, input_shape, mask: _select_back(g, input_shape, mask)))  # fmt: skip
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask (broadcast against the input) holds, as a vector.

    Shape: tensors that broadcast; the result has one dim.
    """
    if mask._dtype is not dtypes.bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    shape = layouts.broadcast_shapes(tuple(mask.shape), tuple(input.shape))
    return selected(input.expand(shape), mask.expand(shape))


def _select_back(g: Tensor, shape: Any, mask: Tensor) -> Tensor:
    wide = layouts.broadcast_shapes(tuple(mask.shape), tuple(shape))
    return g.new_zeros(wide).masked_scatter(mask, g)


class Mask:
    """A mask's trues, counted run by run of C order; a comparison that waits is computed run by
    run, never written.
    """

    def __init__(self, mask: Tensor) -> None:
        self.shape = tuple(mask.shape)
        self.size = layouts.numel(self.shape)
        self.waits: Any = None  # the mask's expression, when it was looked at
        self.look(mask)
        starts = range(0, self.size, _RUN)
        self.counts = np.zeros(len(starts) + 1, np.int64)

        def count(reader: Reader, i: int) -> None:
            self.counts[i + 1] = bare.count_nonzero(
                reader.run(i * _RUN, min((i + 1) * _RUN, self.size))
            )

        self._each(count)
        np.cumsum(self.counts, out=self.counts)
        self.count = int(self.counts[-1])

    def look(self, mask: Tensor) -> None:
        """Where the bools are: once more after anything asked for room, for what waited may have
        been computed for it, over what it reads. What still waits reads what it read.
        """
        waits = mask._storage.deferred and mask._storage.awaited()
        if waits is None or waits is not self.waits:
            self.source = _mask_source(mask)
            self.prepared = prepare_runs(self.source)
            self.waits = waits

    def _each(self, work: Any) -> None:
        numbers = iter(range(len(self.counts) - 1))

        def run() -> None:
            reader = Reader(self.source, self.prepared, _RUN, self.source.dtype)
            try:
                for i in numbers:
                    work(reader, i)
            finally:
                reader.close()

        share(run, threads_for(self.size))

    def each(self, work: Any) -> None:
        """work(mask, start, stop, first, last) for every run that holds a true: its elements are
        start..stop of C order, its trues number first..last."""

        def one(reader: Reader, i: int) -> None:
            first, last = int(self.counts[i]), int(self.counts[i + 1])
            if first < last:
                start, stop = i * _RUN, min((i + 1) * _RUN, self.size)
                work(reader.run(start, stop).view(np.bool_), start, stop, first, last)

        self._each(one)


def _mask_source(mask: Tensor) -> Expr | Array:
    """The mask's bools in C order; a deferred one of a few steps is not kept but computed twice."""
    source: Expr | Array
    source, _ = source_of(mask, in_order=True)
    if isinstance(source, Expr) and source.size > 3:
        source = mask._skimp_array()
    return source if isinstance(source, Expr) else source.view(np.uint8)


def _run_of(source: Array, start: int, stop: int) -> Array:
    """The elements start..stop of C order: where they are, or gathered into a buffer."""
    if source.flags.c_contiguous:
        return source.reshape(-1)[start:stop]
    reader = Reader(source, prepare_runs(source), _RUN, source.dtype)
    try:
        return reader.run(start, stop).copy()
    finally:
        reader.close()


def selected(input: Tensor, mask: Tensor) -> Tensor:
    """The elements of `input` where `mask`, of the same shape, holds."""
    if layouts.numel(tuple(mask.shape)) < _RUN:
        return fresh(input._skimp_array()[mask._skimp_array().view(np.bool_)], input._dtype)
    trues = Mask(mask)
    result, target = blank((trues.count,), input._dtype)
    source, into = bits(input._skimp_array()), bits(target)

    def work(holds: Array, start: int, stop: int, first: int, last: int) -> None:
        run = _run_of(source, start, stop)
        if last - first == stop - start:
            into[first:last] = run
        else:
            np.compress(holds, run, out=into[first:last])

    trues.look(mask)
    trues.each(work)
    return result


# -- masked_scatter -------------------------------------------------------------------------------


def _small_masked_scatter(x: Array, mask: Tensor, source: Tensor) -> bool:
    if not (type(mask) in ORDINARY and type(source) in ORDINARY):
        return False
    holds, values = mask._np, source._np
    if holds is None or values is None or values.dtype != x.dtype or holds.shape != x.shape:
        return False
    if mask._dtype is not dtypes.bool or bare.may_share_memory(x, values):
        return False
    count = bare.count_nonzero(holds)
    if values.size < count:
        return False
    x[holds] = values.reshape(-1)[:count]
    return True


@writer(out=False, fast=_small_masked_scatter, rule=Rule("MaskedScatterBackward0",
    input=lambda g, mask: masked_fill(g, mask, 0),
    source=lambda g, mask, source_shape: _scatter_back(g, mask, source_shape)))  # fmt: skip
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> None:
    """The elements of `source`, in order, where the mask holds.

    Shape: mask and input broadcast; `source` has at least as many elements as the mask holds.
    """
    if input._dtype is not source._dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got"
            f"{scalar_type_name(input._dtype)} and {scalar_type_name(source._dtype)}"
        )
    if mask._dtype is dtypes.uint8:
        warn(
            "masked_scatter_ received a mask with dtype torch.uint8, this behavior is now "
            "deprecated,please use a mask with dtype torch.bool instead."
        )
    if mask._dtype is not dtypes.bool:
        raise RuntimeError(
            "masked_scatter_ only supports boolean masks, but got mask with dtype "
            f"{scalar_type_name(mask._dtype)}"
        )
    layouts.broadcast_shapes(tuple(mask.shape), tuple(input.shape))
    layout_views.expand(
        mask._skimp_layout_of(), tuple(input.shape)
    )  # raises where the mask is larger
    if input._hollow:
        return
    holds = shaping.broadcast(mask._skimp_array(), tuple(input.shape))
    count = int(bare.count_nonzero(holds))
    values = source._skimp_array()
    if values.size < count:
        raise RuntimeError("Number of elements of source < number of ones in mask")
    outs.check_overlap(input, ())
    target = input._skimp_writable()
    target[holds] = values.reshape(-1)[:count]


_scattered = NAMESPACES[""]["masked_scatter"]


def masked_scatter_broadcast(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of `source`, in order, where the mask holds; input and mask broadcast.

    Shape: mask and input broadcast; `source` has at least as many elements as the mask holds.
    """
    if isinstance(input, Tensor):  # its own refusal follows
        own, other = shape_of(input), shape_of(mask)
        if own != other and (shape := layouts.broadcast_shapes(other, own)) != own:
            input = input.expand(shape)
    return _scattered(input, mask, source)  # type: ignore[no-any-return]


export(
    "masked_scatter",
    named(masked_scatter_broadcast, "masked_scatter", masked_scatter_broadcast.__doc__ or ""),
)


def _scatter_back(g: Tensor, mask: Tensor, shape: Any) -> Tensor:
    found = g.masked_select(mask)
    n = layouts.numel(tuple(shape))
    have = found.numel()
    if have < n:
        whole = g.new_zeros((n,))
        whole[:have] = found
        found = whole
    return found.view(tuple(shape))


SAYS = """\
Raises: RuntimeError for shapes that don't broadcast and for a mask that is no bool."""
