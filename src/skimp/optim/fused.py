"""The step of an optimizer as one formula per element (`formulas`), run in one pass over memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, pairwise
from operator import not_
from typing import Any, Final

from skimp._engine.autograd import modes
from skimp._engine.autograd.alias import before_inplace, before_writes
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.eval import run
from skimp._engine.eval.expr import Leaf
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage, is_settled
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, writable
from skimp._kernels.shaping import addresses, is_dense
from skimp._ops.shape.complex_views import view_as_real
from skimp.config import config
from skimp.optim.formulas import Arrays, Formula, Loop, Term, changes, loop_for, on_arrays
from skimp.optim.waiting import SMALL, Waiting, here, storage_of

Columns = Sequence[list[Tensor]]
_TINY: Final = 1 << 12  # elements of a tensor up to which asking takes longer than computing,
_FEW: Final = 2  # if more tensors are written; of formulas of two, which are short,
_TINIEST: Final = 1 << 10  # up to so many
_SEVERAL: Final = 5  # tensors from which on they are sooner looked at column by column


def update(
    formula: Formula, written: Sequence[Tensor], read: Sequence[Tensor], *numbers: Any
) -> None:
    """Replace the values of `written` by the formula's. Each counts as written to once."""
    grad = modes.state.grad
    for t in written:
        if grad or t._skimp_inference or t._storage.saved:
            before_inplace(t)
    both = [*written, *read]
    many = len(written)
    waiting = here.waiting
    # what waits may read or write what this changes, or write what it reads
    if waiting is not None and waiting.runs and waiting.meets(list(map(storage_of, both)), many):
        waiting.run()
    bounded = host.bounded
    _held = _gathered(both) if bounded else ()
    first = written[0]
    dtype = first._dtype
    arrays = None if grad or dtype not in dtypes.FLOATING else _small_arrays(both)
    if arrays is not None:
        arrays[:many] = writable(written)
        size = arrays[0].size
        tiny = size <= _TINY
        if (
            waiting is not None
            and (size >= SMALL if bounded else many > _FEW or not tiny)
            and waiting.put(formula, many, both, arrays, numbers, tiny)
        ):
            return
        if size < SMALL:
            on_arrays(formula, arrays[:many], arrays[many:], numbers)
        else:
            _in_one_pass(formula, both, arrays, numbers)
        return
    if not grad and dtype in dtypes.FLOATING and all([t._dtype is dtype for t in both]):
        size = first.numel()
        small = size < min(config.small_below, SMALL)
        order = layouts.memory_order(first._skimp_layout_of())
        leaves = [t._skimp_array().transpose(order) for t in read]
        if all([_is_run(t, order) for t in written]):
            outs = [t._skimp_writable().transpose(order) for t in written]
            if small:
                on_arrays(formula, outs, leaves, numbers)
            else:
                arrays = [*outs, *leaves]
                if (
                    waiting is None
                    or not all([a.size == size and a.flags.c_contiguous for a in arrays])
                    or not waiting.put(formula, many, both, arrays, numbers, tiny=False)
                ):
                    _in_one_pass(formula, both, arrays, numbers)
            return
    _on_tensors(formula, written, read, numbers)


def update_all(formula: Formula, written: Columns, read: Columns, *numbers: Any) -> None:
    """`update` of many by the same numbers: of the n-th tensors of all columns, for each n.

    Those that lie row by row are looked at column by column, in a third of the time.
    """
    columns: Columns = [*written, *read]
    many, n = len(written), len(columns[0])
    waiting = here.waiting
    if n and waiting is not None and config.small_below and not modes.state.grad:
        loop = loop_for(formula, columns[0][0]._dtype.np, numbers)
        if n >= _SEVERAL or loop is not None:
            columns = _put_alike(waiting, loop, formula, columns, many, numbers)
    for one in zip(*columns, strict=True):
        update(formula, one[:many], one[many:], *numbers)


def _put_alike(
    waiting: Waiting,
    loop: Loop | None,
    formula: Formula,
    columns: Columns,
    many: int,
    numbers: tuple[Any, ...],
) -> Columns:
    """Let the updates of tensors wait that lie row by row, or make them by a loop; the columns of
    all others.
    """
    n = len(columns[0])
    tensors = [t for column in columns for t in column]
    storages = [t._storage for t in tensors]
    changed = set(storages[: many * n])
    if len(changed) < many * n or not changed.isdisjoint(storages[many * n :]):
        return columns  # the order of updates matters
    dtype = tensors[0]._dtype
    if dtype not in dtypes.FLOATING:
        return columns
    sizes = _sizes(tensors, dtype)
    rest: Columns = []
    if min(sizes[:n]) < 0 or sizes != sizes[:n] * len(columns):
        one_by_one = zip(*[sizes[i : i + n] for i in range(0, len(sizes), n)], strict=True)
        alike = [one[0] >= 0 and one.count(one[0]) == len(one) for one in one_by_one]
        rest = [list(compress(c, map(not_, alike))) for c in columns]
        tensors = [t for c in columns for t in compress(c, alike)]
        storages = [t._storage for t in tensors]
        n = sum(alike)
    if n:
        _put(waiting, loop, formula, (tensors, storages), (n, many), numbers)
    return rest


def _sizes(tensors: list[Tensor], dtype: dtypes.dtype) -> list[int]:
    """How many elements row-major tensors of the type have; -1 for any others."""
    return [
        (a.size if is_dense(a) and t._dtype is dtype else -1)
        if (a := t._np) is not None
        else _size(t, dtype)
        for t in tensors
    ]


def _size(t: Tensor, dtype: dtypes.dtype) -> int:
    """The same of one whose array is not at hand; -1 where that may take room, within a budget."""
    if t._hollow or t._dtype is not dtype or (host.bounded and not is_settled(t._storage)):
        return -1
    a = t._skimp_array()
    return a.size if a.flags.c_contiguous else -1


def _put(
    waiting: Waiting,
    loop: Loop | None,
    formula: Formula,
    columns: tuple[list[Tensor], list[Storage]],
    counts: tuple[int, int],
    numbers: tuple[Any, ...],
) -> None:
    """Make updates by a loop; or let them wait, but those that are sooner made by themselves.
    `columns` are one after the other, of so many tensors each, of which so many are written.
    """
    tensors, storages = columns
    n, many = counts
    targets = tensors[: many * n]
    if waiting.runs and waiting.meets(storages, len(targets)):
        waiting.run()
    before_writes(targets)
    arrays: list[Any] = writable(targets)
    arrays += [t._skimp_array() if t._np is None else t._np for t in tensors[len(targets) :]]
    flat = [a if a.ndim == 1 else a.reshape(-1) for a in arrays]
    each: list[Arrays] = list(zip(*[flat[i : i + n] for i in range(0, len(flat), n)], strict=True))
    if any([s.external for s in storages]) and _overlap(flat):
        for one in each:
            if loop is None:
                on_arrays(formula, one[:many], one[many:], numbers)
            else:
                loop([one])
        return
    if loop is not None:
        loop(each)
        return
    kinds = many, len(each[0]), each[0][0].dtype
    most = _TINY if many > _FEW else _TINIEST
    tiny = [one for one in each if one[0].size <= most]
    others = [one for one in each if one[0].size > _TINY]
    if tiny:
        waiting.take(formula, numbers, (*kinds, True), tiny)
    if others:
        waiting.take(formula, numbers, (*kinds, False), others)
    if len(tiny) + len(others) < len(each):
        for one in each:
            if most < one[0].size <= _TINY:
                on_arrays(formula, one[:many], one[many:], numbers)
    written, read = storages[: len(targets)], storages[len(targets) :]
    waiting.hold(written, read, sum([a.nbytes for a in flat]))


def _overlap(runs: list[Array]) -> bool:
    """Whether two have bytes in common, as two tensors on one array of somebody else's have."""
    spans = sorted(zip(addresses(*runs), [a.nbytes for a in runs], strict=True))
    return any([start + nbytes > after for (start, nbytes), (after, _) in pairwise(spans)])


def _small_arrays(tensors: list[Tensor]) -> list[Array] | None:
    """The row-major arrays of small tensors of one type and size; None for any others."""
    first = tensors[0]
    dtype, a = first._dtype, first._np
    size = layouts.numel(shape_of(first)) if a is None else a.size
    if size >= config.small_below:
        return None
    found = []
    for t in tensors:
        a = t._np
        if a is None:
            if layouts.numel(shape_of(t)) != size:
                return None
            a = t._skimp_array()
        if t._dtype is not dtype or a.size != size or not a.flags.c_contiguous:
            return None
        found.append(a)
    return found


def _gathered(tensors: list[Tensor]) -> list[Array]:
    """The bytes of all, one after the other; who refuses one of them tells what all need."""
    if not any([t._storage.nbytes < 0 for t in tensors]):
        return [t._skimp_array() if t._np is None else t._np for t in tensors]
    found = []
    try:
        for i, t in enumerate(tensors):
            host.coming = _lacking(tensors[i + 1 :], t)
            found.append(t._skimp_array())
    finally:
        host.coming = 0
    return found


def _lacking(tensors: list[Tensor], t: Tensor) -> int:
    """Bytes that have none of these now, but for those of `t`."""
    others = {id(other._storage): other._storage for other in tensors}
    others.pop(id(t._storage), None)
    return sum([len(s) for s in others.values() if s.nbytes < 0])


def _is_run(t: Tensor, order: tuple[int, ...]) -> bool:
    layout = t._skimp_layout_of()
    shape = tuple([layout.shape[d] for d in order])
    strides = tuple([layout.strides[d] for d in order])
    expected = layouts.contiguous_strides(shape)
    return all([n == 1 or s == e for n, s, e in zip(shape, strides, expected, strict=True)])


def _in_one_pass(
    formula: Formula, tensors: list[Tensor], arrays: list[Array], numbers: tuple[Any, ...]
) -> None:
    """The update of a large tensor: `arrays` are the elements of what is written, and then of what
    is read, in the order of memory.
    """
    shape = arrays[0].shape
    terms = [
        Term(Leaf(t._storage, a), shape, a.dtype) for t, a in zip(tensors, arrays, strict=True)
    ]
    places, nodes = changes(formula, terms, numbers)
    run.evaluate_many(nodes, tuple([arrays[place] for place in places]))


def _on_tensors(
    formula: Formula, written: Sequence[Tensor], read: Sequence[Tensor], numbers: tuple[Any, ...]
) -> None:
    """By ops; complex numbers as pairs of real ones, as PyTorch's optimizers see them."""
    if written[0]._dtype.is_complex:
        written = [view_as_real(t) for t in written]
        read = [view_as_real(t) for t in read]
    old = [t.clone() for t in written] if modes.state.grad else written
    new = formula(*old, *read, *numbers)
    # in the order of `on_arrays`
    for target, before, value in zip(*map(reversed, (written, old, new)), strict=True):
        if value is not before:
            target.copy_(value)
