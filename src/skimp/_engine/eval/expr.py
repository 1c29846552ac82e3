"""Pointwise work that has not run yet: a DAG of kernels over arrays.

An `Expr` is what a deferred storage holds. Building one is on the path of every op on a large
tensor, so it does nothing but count its nodes and collect its leaves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from skimp._engine.eval.convert import convert
from skimp._engine.interpreter import HELD_BY_VARIABLE
from skimp._kernels import bare, shaping
from skimp._kernels.threads import Call

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

# Ufuncs whose NumPy loops give the same bits at every positive stride, a broadcast one (0)
# included. All others differ somewhere (float16 exp: strided loops are other code; power: a
# broadcast exponent of 2 is a multiplication; negative: NumPy 2.4.6 reads a run where the step is
# the item's size in elements and the result has gaps), so what they read is made contiguous first.
# See docs/notes/eval.md.
_SAME_AT_ANY_STRIDE: Final = frozenset(
    (
        *(np.add, np.subtract, np.multiply, np.divide, np.positive, np.reciprocal),
        *(np.sqrt, np.square, np.maximum, np.minimum, np.fmax, np.fmin, np.copysign),
        *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
        *(np.logical_and, np.logical_or, np.logical_xor, np.logical_not),
        *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert),
        *(np.left_shift, np.right_shift, np.floor, np.ceil, np.trunc, np.rint),
    )
)


# Ufuncs that take no longer than reading and writing the elements does.
_BRIEF: Final = frozenset(
    (
        *(np.add, np.subtract, np.multiply, np.divide, np.negative, np.absolute, np.square),
        *(np.maximum, np.minimum, np.equal, np.not_equal, np.less, np.less_equal, np.greater),
        *(np.greater_equal, np.logical_and, np.logical_or, np.logical_not),
        *(np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert),
    )
)
# Ufuncs that are several times slower where an operand is one number.
_SLOW_WITH_NUMBERS: Final = frozenset((np.maximum, np.minimum, np.fmax, np.fmin))


class Kernel:
    """One elementwise function, `fn(*arrays, out=array)`: of NumPy's ufuncs by `bare.ufunc`.

    `aliases`: out may be the very same array as an input (True for NumPy's ufuncs).
    `strided`: the bits of the result do not depend on the strides of the inputs.
    `loose`: nor do they where out is dense, and the inputs may have shapes that are broadcast to
    its own (of functions, those marked by `kernels.pointwise.loose`).
    `dense`: numbers are better given as arrays; where it changes bits (not `strided`), always.
    `brief`: it takes no longer than memory does.
    `ufunc`: `fn` is one call of it, of the arrays, `numbers` and out; None where it is more.
    `steps`: what `fn` does as ufuncs one after the other, each (ufunc, numbers of arguments), of
    which -1 is out, that is none of the arguments; none where it is `ufunc` or more than that.
    `listed`: what `fn` does as calls of functions of C, where it can be said so (else none), also
    where out is an input.
    `beside`: of its arguments all but the first may be numbers beside rows, read where they are.
    `joined`: the kernel that does its work and then another's, of its result and so many more
    arguments, which come after its own.
    `gate`: what `fn` does to a gradient, its first argument, by its second and its `numbers`, with
    the bits of each element by itself: `gate(g, seen, *numbers, out=array)`.
    Plans are cached by the kernels' identity: make a kernel once, and pass numbers as arguments.
    """

    __slots__ = (
        "aliases", "beside", "brief", "dense", "fn", "gate", "joined", "listed", "loose", "name",
        "numbers", "steps", "strided", "ufunc",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        aliases: bool | None = None,
        strided: bool | None = None,
        dense: bool | None = None,
        brief: bool | None = None,
        ufunc: np.ufunc | None = None,
        numbers: tuple[float, ...] = (),
        listed: Callable[..., list[Call]] | None = None,
        beside: bool = False,
        joined: Callable[[Kernel, int], Kernel | None] | None = None,
        gate: Callable[..., None] | None = None,
        steps: tuple[tuple[Any, ...], ...] = (),
    ) -> None:
        self.name: Final = name
        self.fn: Final = bare.ufunc(fn) if isinstance(fn, np.ufunc) else fn
        self.aliases: Final = isinstance(fn, np.ufunc) if aliases is None else aliases
        self.strided: Final = fn in _SAME_AT_ANY_STRIDE if strided is None else strided
        self.loose: Final = fn in _SAME_AT_ANY_STRIDE or getattr(fn, "loose", False)
        self.dense: Final = fn in _SLOW_WITH_NUMBERS if dense is None else dense
        self.brief: Final = fn in _BRIEF if brief is None else brief
        self.ufunc: Final = fn if isinstance(fn, np.ufunc) else ufunc
        self.numbers: Final = numbers
        self.listed: Final = listed
        self.beside: Final = beside
        self.joined: Final = joined
        self.gate: Final = gate
        self.steps: Final = steps

    def calls(self, args: tuple[Any, ...], out: Array) -> list[Call]:
        """What `fn` does, as calls of functions of C; none where it is more."""
        if self.listed is not None:
            return self.listed(*args, out=out)
        if self.ufunc is None:
            return []
        return [(partial(self.ufunc, *args, *self.numbers, out=out),)]

    def __repr__(self) -> str:
        return self.name


COPY: Final = Kernel("copy", convert, aliases=False, strided=True, brief=True)
"""Copies its argument, converting it to the node's dtype: casts are nodes with this kernel."""


class Leaf:
    """An array that an expression reads. `storage` is kept alive; only its identity matters here.

    `array` has as many dims as the expression, each equal to the expression's or broadcast (size 1
    or stride 0). Where the storage's bytes are not there, but away within a budget or to be made
    again, `array` is not set, and comes with them (`again`). `watched` says who counts it among
    what waits.
    """

    __slots__ = ("again", "array", "storage", "watched")

    again: Callable[[Leaf], Array]

    def __init__(self, storage: object, array: Array) -> None:
        self.storage: Final = storage
        self.array = array
        self.watched: object = None

    def __getattr__(self, name: str) -> Array:
        """Asked only for what is not set."""
        if name != "array":
            raise AttributeError(name)
        return self.again(self)

    def __repr__(self) -> str:
        return f"Leaf({self.array.dtype}{list(self.array.shape)})"


def later(storage: object, array_of: Callable[[Any], Array]) -> Leaf:
    """A leaf whose array is made of the storage when somebody reads it."""
    leaf = Leaf(storage, _EMPTY)
    take_array(leaf, array_of)
    return leaf


def take_array(leaf: Leaf, array_of: Callable[[Any], Array]) -> None:
    """Have a leaf's array go, and come back by `array_of(storage)`."""

    def again(leaf: Leaf) -> Array:
        leaf.array = array_of(leaf.storage)
        return leaf.array

    leaf.again = again
    del leaf.array


def lies_over(leaf: Leaf, block: Array) -> bool:
    """Whether a leaf's array is a view of the block, not a copy of its own (a conjugate)."""
    array = leaf.array
    root = block.base if isinstance(block.base, np.ndarray) else block
    return array is root or array.base is root


def place_of(leaf: Leaf) -> Callable[[Any], Array]:
    """What makes a leaf's array from the bytes that it is of, those of a storage."""
    storage: Any = leaf.storage
    array = leaf.array
    block = storage.block
    whole = array.nbytes == block.nbytes and array.flags.c_contiguous
    start = 0 if whole else shaping.address(array) - shaping.address(block)
    shape, dtype, strides = array.shape, array.dtype, array.strides
    return lambda s: np.ndarray(shape, dtype, s.flat(), start, strides)


_EMPTY: Final = np.empty(0)
_NONE: Final[frozenset[Leaf]] = frozenset()


class Expr:
    """`kernel` over `args`: a deferred expression of a C-contiguous array of `shape` and `dtype`.

    args are Exprs of the same shape, Leaves, or NumPy scalars (0-d arrays) of the kernel's dtypes.
    A kernel of an expression whose own kernel can do its work too is joined with it.
    `size` counts the nodes (a shared node as often as it is used: an upper bound) and `leaves` are
    the distinct leaves.
    """

    __slots__ = ("args", "dtype", "kernel", "leaves", "shape", "size")

    def __init__(
        self, kernel: Kernel, args: tuple[Any, ...], shape: Shape, dtype: np.dtype[Any]
    ) -> None:
        self.kernel: Kernel = kernel
        self.args: tuple[Any, ...] = args
        self.shape = shape
        self.dtype: np.dtype[Any] = dtype
        if args and type(args[0]) is Expr and args[0].kernel.joined is not None:
            self._join(args[0], *args[1:])
            args = self.args
        size = 1
        leaves = _NONE
        for arg in args:
            kind = type(arg)
            if kind is Expr:
                size += arg.size
                more = arg.leaves
            elif kind is Leaf:
                more = frozenset((arg,))
            else:
                continue
            leaves = (leaves | more) if leaves and leaves is not more else more
        self.size = size
        self.leaves: frozenset[Leaf] = leaves

    def _join(self, inner: Expr, *more: Any) -> None:
        """Do the work of the node that is read first, too, if there is a kernel for that."""
        joined = inner.kernel.joined
        if joined is None or inner.dtype != self.dtype:
            return
        if any([type(arg) is not Expr and type(arg) is not Leaf for arg in more]):
            return
        one = joined(self.kernel, len(more))
        if one is not None:
            self.kernel, self.args = one, (*inner.args, *more)

    def __repr__(self) -> str:
        return f"Expr({self.kernel.name}, {self.dtype}{list(self.shape)}, nodes<={self.size})"


class Whole(Expr):
    """One kernel on whole arrays, of any shapes, and not block by block (a convolution): it is part
    of no other expression, and nothing is computed over what it reads.

    `keeps`: storages that it reads and nobody else might keep, which are there for it alone.
    """

    __slots__ = ("keeps",)

    def __init__(
        self,
        kernel: Kernel,
        args: tuple[Leaf, ...],
        shape: Shape,
        dtype: np.dtype[Any],
        keeps: tuple[object, ...] = (),
    ) -> None:
        super().__init__(kernel, args, shape, dtype)
        self.keeps: Final = keeps

    def compute(self, out: Array) -> None:
        self.kernel.fn(*[leaf.array for leaf in self.args], out=out)


def walk(roots: tuple[Expr, ...]) -> Iterator[Expr]:
    """Every node once, arguments before the nodes that read them, without recursion.

    Of two arguments the larger comes first, which keeps fewer intermediate results alive.
    """
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        inner = []
        for arg in node.args:
            if type(arg) is Expr and id(arg) not in seen:
                inner.append((arg, False))  # noqa: PERF401  # a comprehension is a call, for 1 or 2
        if not inner:
            yield node
            continue
        if len(inner) > 1:
            inner.sort(key=_size)
        stack.append((node, True))
        stack += inner


def is_shared(root: Expr, storage: object) -> bool:
    """Whether somebody holds a node or a leaf inside `root` by which it reads a storage, and that
    is no part of it: another expression, which may be an op's that is under way, and known to
    nobody else.
    """
    if root.size == 1:
        for leaf in root.leaves:
            held = HELD_BY_VARIABLE + 1  # by the set
            for arg in root.args:
                held += arg is leaf
            del arg
            if leaf.storage is storage and sys.getrefcount(leaf) > held:
                return True
        return False
    return _is_held(root, storage)


def _is_held(root: Expr, storage: object) -> bool:
    inner, held = _inside(root)
    reads = [leaf for leaf in root.leaves if leaf.storage is storage]
    listed = HELD_BY_VARIABLE + 1
    if any([sys.getrefcount(leaf) > listed + held[id(leaf)] for leaf in reads]):
        return True
    others = [node for node in inner if sys.getrefcount(node) > listed + held[id(node)]]
    return any([not node.leaves.isdisjoint(reads) for node in others])


def _inside(root: Expr) -> tuple[list[Expr], dict[int, int]]:
    """The nodes inside `root`, and how often it holds each of them, and each leaf, by its id."""
    nodes, held, sets = [root], dict.fromkeys(map(id, root.leaves), 0), {}
    for node in nodes:  # which grow meanwhile
        sets[id(node.leaves)] = node.leaves
        for arg in node.args:
            kind = type(arg)
            if kind is Leaf or kind is Expr:
                if kind is Expr and id(arg) not in held:
                    held[id(arg)] = 0
                    nodes.append(arg)
                held[id(arg)] += 1
    for leaves in sets.values():
        for leaf in leaves:
            held[id(leaf)] += 1
    return nodes[1:], held


def _size(item: tuple[Expr, bool]) -> int:
    return item[0].size
