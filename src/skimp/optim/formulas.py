"""What a step's formula is written in: operators, and the functions below.

A formula takes the tensors that it changes, then those that it only reads, then plain numbers, and
returns the new values of the former. The same formula runs on

- expressions, for large float32 and float64 tensors: one program writes the parameter and its
  state, block by block, into their own memory, and nothing else is allocated;
- NumPy arrays, for small ones, a part at a time: what a formula makes on the way is short then;
- tensors, for other dtypes and layouts, and where the step itself is differentiated.

What one of `_kernels.loops` does for float32 arrays, where it is compiled, is said by `looped`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from skimp._engine.eval.expr import COPY, Expr, Kernel
from skimp._engine.tensor.tensor import Array, Tensor
from skimp._kernels import bare, compiled, sharing
from skimp._ops.index.masks import where as select

Formula = Callable[..., tuple[Any, ...]]
Arrays = Sequence[Array]  # what one update writes, and then what it reads, each as one run
Loop = Callable[[list[Arrays]], None]
Looped = tuple[str, tuple[float, ...]]  # a loop, and the numbers that it takes
_PART: Final = 1 << 13  # elements of an array that are worked on at a time, or more:
_PARTS: Final = 4  # parts of an array at most


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


# -- running one ----------------------------------------------------------------------------------


def on_arrays(
    formula: Formula, outs: Sequence[Array], leaves: Sequence[Any], numbers: tuple[Any, ...]
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
    formula: Formula, outs: Sequence[Array], leaves: Sequence[Any], numbers: tuple[Any, ...]
) -> None:
    made = formula(*outs, *leaves, *numbers)
    # the parameter last: a gradient in its memory may be what the state becomes
    for out, new in zip(reversed(outs), reversed(made), strict=True):
        if new is not out:
            out[...] = new


def changes(
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


# -- the same by a compiled loop ------------------------------------------------------------------

_LOOPS: Final[dict[Formula, Callable[..., Looped | None]]] = {}


def looped(of: Callable[..., Looped | None]) -> Callable[[Formula], Formula]:
    """Declare a formula of which a loop has the bits: `of` makes of its numbers what that takes;
    None for numbers by which none does."""

    def declared(formula: Formula) -> Formula:
        _LOOPS[formula] = of
        return formula

    return declared


def loop_for(formula: Formula, dtype: np.dtype[Any], numbers: tuple[Any, ...]) -> Loop | None:
    """What makes updates by the formula of runs of memory that share none."""
    if (
        dtype.char != "f"
        or (found := compiled.loops()) is None
        or (of := _LOOPS.get(formula)) is None
        or (taken := of(*numbers)) is None
    ):
        return None
    return partial(_run_loop, getattr(found, taken[0]), array("f", taken[1]))


def _run_loop(loop: Any, numbers: Any, updates: list[Arrays]) -> None:
    """All in one call, which no signal handler interrupts."""
    elements = sum([arrays[0].size for arrays in updates])
    if elements < sharing.FROM:
        loop(updates, numbers, 1)
    else:
        cost = len(updates[0]) * sharing.BRIEF
        sharing.call(loop, elements, cost, updates, numbers)


def of_gradient(decay: float, maximize: bool) -> tuple[float, float, float]:
    """The numbers by which loops take a gradient."""
    return -1.0 if maximize else 1.0, decay, float(decay != 0)


def of_lerp(weight: float) -> tuple[float, float]:
    """The numbers by which they `lerp`: whether from the nearer end, and the other's weight."""
    return (1.0, weight) if abs(weight) < 0.5 else (0.0, 1 - weight)
