"""The step of an optimizer as one formula per element, run in one pass over memory.

A formula takes the tensors that it changes, then those that it only reads, then plain numbers, and
returns the new values of the former. It is written in operators and in the functions below, so the
same formula runs on

- expressions, for large float32 and float64 tensors: one program writes the parameter and its
  state, block by block, into their own memory, and nothing else is allocated;
- NumPy arrays, for small ones, a part at a time: what a formula makes on the way is short then;
- tensors, for other dtypes and layouts, and where the step itself is differentiated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np

from skimp._engine.autograd import modes
from skimp._engine.autograd.alias import before_inplace
from skimp._engine.autograd.nodes import shape_of
from skimp._engine.eval import run
from skimp._engine.eval.expr import COPY, Expr, Kernel, Leaf
from skimp._engine.memory import layout as layouts
from skimp._engine.memory.ledger import host
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Array, Tensor, writable
from skimp._kernels import bare
from skimp._kernels.scratch import give, take
from skimp._ops.index.masks import where as select
from skimp._ops.shape.complex_views import view_as_real
from skimp.config import config

Formula = Callable[..., tuple[Any, ...]]
Kinds = tuple[int, int, "np.dtype[Any]", bool]  # how many are written, of how many; whether tiny
_TINY: Final = 1 << 12  # elements of a tensor up to which asking takes longer than computing,
_FEW: Final = 2  # if more tensors are written: formulas of two are so short that waiting costs more
_TOGETHER: Final = 1 << 14  # of those that are made as one
SHARE: Final = 16  # of a budget or a limit that updates which wait may hold
_storage_of = attrgetter("_storage")
_SMALL: Final = 1 << 16  # elements, of all that wait, below which NumPy's calls are sooner done
_PART: Final = 1 << 13  # elements that they take at a time, or more:
_PARTS: Final = 4  # parts of a tensor at most


def _select(condition: Array, yes: Any, no: Any, out: Array) -> None:
    out[...] = no
    bare.copyto(out, yes, where=condition)


_UFUNCS: Final = (
    np.add, np.subtract, np.multiply, np.true_divide, np.negative, np.sqrt, np.maximum, np.minimum,
    np.absolute, np.sign, np.greater, np.less, np.equal,
)  # fmt: skip
_KERNELS: dict[Any, Kernel] = {f: Kernel(f.__name__, f) for f in _UFUNCS}
_WHERE = Kernel("where", _select, aliases=False, strided=True, dense=True)
_COMPARES = frozenset((np.greater, np.less, np.equal))


class Term:
    """A value of a formula that is being written down as an expression."""

    __slots__ = ("dtype", "node", "shape")

    def __init__(self, node: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.node = node
        self.shape = shape
        self.dtype = dtype

    def _made(
        self, kernel: Kernel, args: tuple[Any, ...], dtype: np.dtype[Any] | None = None
    ) -> Term:
        nodes = tuple([a.node if type(a) is Term else np.asarray(a, self.dtype) for a in args])
        dtype = self.dtype if dtype is None else dtype
        return Term(Expr(kernel, nodes, self.shape, dtype), self.shape, self.dtype)

    def __add__(self, other: Any) -> Term:
        return self._made(_KERNELS[np.add], (self, other))

    def __radd__(self, other: Any) -> Term:
        return self._made(_KERNELS[np.add], (other, self))

    def __sub__(self, other: Any) -> Term:
        return self._made(_KERNELS[np.subtract], (self, other))

    def __rsub__(self, other: Any) -> Term:
        return self._made(_KERNELS[np.subtract], (other, self))

    def __mul__(self, other: Any) -> Term:
        return self._made(_KERNELS[np.multiply], (self, other))

    def __rmul__(self, other: Any) -> Term:
        return self._made(_KERNELS[np.multiply], (other, self))

    def __truediv__(self, other: Any) -> Term:
        return self._made(_KERNELS[np.true_divide], (self, other))

    def __rtruediv__(self, other: Any) -> Term:
        return self._made(_KERNELS[np.true_divide], (other, self))

    def __neg__(self) -> Term:
        return self._made(_KERNELS[np.negative], (self,))


# -- what formulas call ---------------------------------------------------------------------------


def _call(ufunc: np.ufunc, method: str, *args: Any) -> Any:
    first = args[0]
    if type(first) is Term:
        dtype = np.dtype(np.bool_) if ufunc in _COMPARES else None
        return first._made(_KERNELS[ufunc], args, dtype)
    if isinstance(first, Tensor):
        return getattr(first, method)(*args[1:])
    return ufunc(*args)


def sqrt(x: Any) -> Any:
    return _call(np.sqrt, "sqrt", x)


def absolute(x: Any) -> Any:
    return _call(np.absolute, "abs", x)


def sign(x: Any) -> Any:
    return _call(np.sign, "sign", x)


def maximum(a: Any, b: Any) -> Any:
    return _call(np.maximum, "maximum", a, b)


def clamp(x: Any, low: float, high: float) -> Any:
    if isinstance(x, Tensor):
        return x.clamp(low, high)
    return _call(np.minimum, "", _call(np.maximum, "", x, low), high)


def above(a: Any, b: float) -> Any:
    return _call(np.greater, "gt", a, b)


def below(a: Any, b: float) -> Any:
    return _call(np.less, "lt", a, b)


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, else `no`; either may be a number."""
    if type(condition) is Term:
        return condition._made(_WHERE, (condition, yes, no))
    if isinstance(condition, Tensor):
        return select(condition, yes, no)
    like = yes if isinstance(yes, np.ndarray) else no
    kind = like.dtype if isinstance(like, np.ndarray) else None
    return bare.where(condition, np.asarray(yes, kind), np.asarray(no, kind))


def lerp(a: Any, b: Any, weight: float) -> Any:
    """a + weight * (b - a), from whichever end is nearer: PyTorch's formula."""
    return a + (b - a) * weight if abs(weight) < 0.5 else b - (b - a) * (1 - weight)


# -- running a formula ----------------------------------------------------------------------------


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
    waiting = _here.waiting
    # what waits may read or write what this changes, or write what it reads
    if waiting is not None and waiting.runs and waiting.meets(list(map(_storage_of, both)), many):
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
            and (size >= _SMALL if bounded else many > _FEW or not tiny)
            and waiting.put(formula, many, both, arrays, numbers, tiny)
        ):
            return
        if size < _SMALL:
            _on_arrays(formula, arrays[:many], arrays[many:], numbers)
        else:
            _in_one_pass(formula, both, arrays, numbers)
        return
    if not grad and dtype in dtypes.FLOATING and all([t._dtype is dtype for t in both]):
        size = first.numel()
        small = size < min(config.small_below, _SMALL)
        order = layouts.memory_order(first._skimp_layout_of())
        leaves = [t._skimp_array().transpose(order) for t in read]
        if all([_is_run(t, order) for t in written]):
            outs = [t._skimp_writable().transpose(order) for t in written]
            if small:
                _on_arrays(formula, outs, leaves, numbers)
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
    found = []
    try:
        for i, t in enumerate(tensors):
            later = {id(other._storage): other._storage for other in tensors[i + 1 :]}
            later.pop(id(t._storage), None)
            host.coming = sum([len(s) for s in later.values() if s.nbytes < 0])
            found.append(t._skimp_array())
    finally:
        host.coming = 0
    return found


def _is_run(t: Tensor, order: tuple[int, ...]) -> bool:
    layout = t._skimp_layout_of()
    shape = tuple([layout.shape[d] for d in order])
    strides = tuple([layout.strides[d] for d in order])
    expected = layouts.contiguous_strides(shape)
    return all([n == 1 or s == e for n, s, e in zip(shape, strides, expected, strict=True)])


def _on_arrays(
    formula: Formula, outs: list[Array], leaves: list[Any], numbers: tuple[Any, ...]
) -> None:
    size = outs[0].size
    if size > _PART and all([a.flags.c_contiguous and a.size == size for a in (*outs, *leaves)]):
        flat_outs = [a.reshape(-1) for a in outs]
        flat_leaves = [a.reshape(-1) for a in leaves]
        step = max(_PART, -(-size // _PARTS))
        for start in range(0, size, step):
            part = slice(start, start + step)
            _on_part(formula, [a[part] for a in flat_outs], [a[part] for a in flat_leaves], numbers)
    else:
        _on_part(formula, outs, leaves, numbers)


def _on_part(
    formula: Formula, outs: list[Array], leaves: list[Any], numbers: tuple[Any, ...]
) -> None:
    for out, new in zip(outs, formula(*outs, *leaves, *numbers), strict=True):
        if new is not out:
            out[...] = new


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
    places, nodes = _changes(formula, terms, numbers)
    run.evaluate_many(nodes, tuple([arrays[place] for place in places]))


def _changes(
    formula: Formula, terms: list[Term], numbers: tuple[Any, ...]
) -> tuple[list[int], tuple[Expr, ...]]:
    """Which of the terms a formula changes, and their new values."""
    places, nodes = [], []
    for place, (old, new) in enumerate(zip(terms, formula(*terms, *numbers), strict=False)):
        if new is not old:
            node = new.node
            places.append(place)
            nodes.append(node if type(node) is Expr else Expr(COPY, (node,), new.shape, new.dtype))
    return places, tuple(nodes)


# -- updates that wait for each other -------------------------------------------------------------


class _Run:
    """Updates by one formula with the same numbers: the arrays that each writes and reads."""

    __slots__ = ("arrays", "formula", "kinds", "numbers")

    def __init__(
        self, formula: Formula, numbers: tuple[Any, ...], kinds: Kinds, first: list[Array]
    ) -> None:
        self.formula = formula
        self.numbers = numbers
        self.kinds = kinds
        self.arrays = [first]  # never none, at whichever moment a signal comes

    def run(self) -> None:
        if not self.kinds[3]:
            self._share()
            return
        batch: list[list[Array]] = []
        elements = 0
        for arrays in self.arrays:
            if elements + arrays[0].size > _TOGETHER:
                self._make(batch, elements)
                batch, elements = [], 0
            batch.append(arrays)
            elements += arrays[0].size
        self._make(batch, elements)

    def _make(self, batch: list[list[Array]], elements: int) -> None:
        """Tiny updates as one: what each reads lies end to end in scratch memory."""
        written, many, dtype, _ = self.kinds
        if len(batch) == 1:
            _on_arrays(self.formula, batch[0][:written], batch[0][written:], self.numbers)
            return
        rooms = [take(elements, dtype) for _ in range(many)]
        for room, *parts in zip(rooms, *batch, strict=True):
            bare.concatenate(parts, out=room)
        made = self.formula(*rooms, *self.numbers)
        for room, new, *parts in zip(rooms, made, *[one[:written] for one in batch], strict=False):
            if new is not room:
                start = 0
                for part in parts:
                    part[...] = new[start : start + part.size]
                    start += part.size
        for room in rooms:
            give(room)

    def _share(self) -> None:
        """Updates that are not tiny, block by block, on the threads."""
        if sum(map(_length, self.arrays)) < min(config.small_below, _SMALL):
            many = self.kinds[0]
            for arrays in self.arrays:
                _on_arrays(self.formula, arrays[:many], arrays[many:], self.numbers)
            return
        first = max(self.arrays, key=_length)
        shape = first[0].shape
        terms = [Term(Leaf(None, a), shape, a.dtype) for a in first]
        places, nodes = _changes(self.formula, terms, self.numbers)
        numbers = {id(term.node): number for number, term in enumerate(terms)}
        read = [numbers[id(leaf)] for leaf in run.leaves_of(nodes)]
        run.evaluate_jobs(
            nodes,
            tuple([first[place] for place in places]),
            [
                (tuple([job[n] for n in places]), tuple([job[n] for n in read]))
                for job in self.arrays
            ],
        )


class _Waiting:
    """What one thread has put off."""

    __slots__ = ("held", "read", "runs", "written")

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.written: set[Storage] = set()
        self.read: set[Storage] = set()
        self.held = 0  # bytes of all of them

    def meets(self, storages: list[Storage], written: int) -> bool:
        """Whether one of these, the first of which are `written`, has to come after what waits."""
        if self.written.isdisjoint(storages):
            return not self.read.isdisjoint(storages[:written])
        return True

    def put(
        self,
        formula: Formula,
        written: int,
        tensors: list[Tensor],
        arrays: list[Array],
        numbers: tuple[Any, ...],
        tiny: bool,
    ) -> bool:
        """Let an update of row-major arrays of one size wait, if they have no memory in common."""
        first = arrays[0]
        storages = list(map(_storage_of, tensors))
        # of one element, what is broadcast and what is not look the same
        if (first.size < 2 and not tiny) or len(set(storages)) < len(storages):
            return False
        kinds = (written, len(arrays), first.dtype, tiny)
        flat = [a if a.ndim == 1 else a.reshape(-1) for a in arrays]
        for one in self.runs[-2:]:  # tiny ones and others come in turns
            if one.kinds == kinds and one.formula == formula and one.numbers == numbers:
                one.arrays.append(flat)
                break
        else:
            self.runs.append(_Run(formula, numbers, kinds, flat))
        self.held += len(arrays) * first.nbytes
        self.written.update(storages[:written])
        self.read.update(storages[written:])
        if host.bounded and self.held > (host.bound or 0) // SHARE:
            self.run()  # its bytes can't be taken away while it waits
        return True

    def run(self) -> None:
        runs, self.runs = self.runs, []
        self.written.clear()
        self.read.clear()
        self.held = 0
        for one in runs:
            one.run()


class _Here(threading.local):
    waiting: _Waiting | None = None  # None while this thread puts nothing off


_here = _Here()


def put_off() -> None:
    """From here to `run_all`, updates of tensors wait, so that the threads share them all, and tiny
    ones are made as one.

    In between nobody may look at what they write.
    """
    _here.waiting = _Waiting()


def run_all() -> None:
    """Run what waits, and let nothing wait any more."""
    waiting, _here.waiting = _here.waiting, None
    if waiting is not None:
        waiting.run()


def run_waiting() -> None:
    """Run what waits."""
    waiting = _here.waiting
    if waiting is not None:
        waiting.run()


def _length(arrays: list[Array]) -> int:
    return arrays[0].size


def _on_tensors(
    formula: Formula, written: Sequence[Tensor], read: Sequence[Tensor], numbers: tuple[Any, ...]
) -> None:
    """By ops; complex numbers as pairs of real ones, as PyTorch's optimizers see them."""
    if written[0]._dtype.is_complex:
        written = [view_as_real(t) for t in written]
        read = [view_as_real(t) for t in read]
    old = [t.clone() for t in written] if modes.state.grad else written
    new = formula(*old, *read, *numbers)
    for target, before, value in zip(written, old, new, strict=True):
        if value is not before:
            target.copy_(value)
