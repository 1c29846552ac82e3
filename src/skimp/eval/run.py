"""Runs expressions: whole arrays where they are small, planned blocks on threads where they are large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np

from skimp.config import config
from skimp.eval.expr import COPY, Array, Expr, Kernel, Leaf, Shape, walk
from skimp.eval.plan import Prepared, Step, prepare
from skimp.eval.threads import quietly, share

def evaluate(root: Expr, out: Array) -> None:
    """Write root's values to `out`, which is C-contiguous, of root's shape and dtype.

    `out` may be the very memory of leaves with the same layout (donation); other overlaps cost a copy.
    """
    if out.size <= config.small_below or _is_plain(root, out):
        quietly(_evaluate_whole, root, out)
    else:
        _evaluate_blocks((root,), (out,))


def evaluate_many(roots: tuple[Expr, ...], outs: tuple[Array, ...]) -> None:
    """Write several expressions at once; what those of the same shape have in common runs once."""
    by_shape: dict[Shape, list[int]] = {}
    for number, root in enumerate(roots):
        by_shape.setdefault(root.shape, []).append(number)
    leaves = {leaf for root in roots for leaf in root.leaves}
    if len(by_shape) > 1 and any(_meets(out, leaves) for out in outs):
        _evaluate_apart(roots, outs)
        return
    for numbers in by_shape.values():
        _evaluate_blocks(tuple(roots[n] for n in numbers), tuple(outs[n] for n in numbers))


def _evaluate_apart(roots: tuple[Expr, ...], outs: tuple[Array, ...]) -> None:
    """Read everything before anything is written."""
    values = [np.empty(root.shape, root.dtype) for root in roots]
    evaluate_many(roots, tuple(values))
    for out, value in zip(outs, values, strict=True):
        np.copyto(out, value)


def _meets(out: Array, leaves: Any) -> bool:
    return any(np.may_share_memory(out, leaf.array) for leaf in leaves)


def _is_plain(root: Expr, out: Array) -> bool:
    """Whether one NumPy call does as well as blocks: one kernel over dense arrays, on one thread."""
    return (
        root.size == 1
        and 0 < config.small_below
        and out.size < config.threads_from
        and all(leaf.array.flags.c_contiguous for leaf in root.leaves)
    )


# -- whole arrays ---------------------------------------------------------------------------------


def _evaluate_whole(root: Expr, out: Array) -> None:
    kernel = root.kernel
    if root.size > 1:
        _evaluate_nodes(root, out)
    elif kernel.aliases or not _meets(out, root.leaves):
        kernel.fn(*[_operand(arg, kernel, out.shape) for arg in root.args], out=out)
    else:
        value = np.empty(root.shape, root.dtype)
        kernel.fn(*[_operand(arg, kernel, out.shape) for arg in root.args], out=value)
        np.copyto(out, value)


def _evaluate_nodes(root: Expr, out: Array) -> None:
    values: dict[int, Array] = {}
    for node in walk((root,)):
        kernel = node.kernel
        args = [
            values[id(arg)] if type(arg) is Expr else _operand(arg, kernel, out.shape)
            for arg in node.args
        ]
        direct = node is root and (kernel.aliases or not _meets(out, root.leaves))
        value = values[id(node)] = out if direct else np.empty(node.shape, node.dtype)
        kernel.fn(*args, out=value)
    if value is not out:
        np.copyto(out, value)


def _operand(arg: Any, kernel: Kernel, shape: Shape) -> Any:
    """What the kernel reads, in a layout that gives the bits of contiguous arrays."""
    if type(arg) is not Leaf:
        return arg
    array = arg.array
    if kernel.strided or (array.flags.c_contiguous and array.shape == shape):
        return array
    return np.ascontiguousarray(np.broadcast_to(array, shape))


# -- blocks ---------------------------------------------------------------------------------------


def _evaluate_blocks(roots: tuple[Expr, ...], outs: tuple[Array, ...]) -> None:
    if outs[0].size == 0:
        return
    prepared = prepare(roots, outs)
    if _overlaps(prepared, outs):
        _evaluate_apart(roots, outs)
        return
    domain = prepared.plan.domain
    run_blocks(prepared, tuple(out.reshape(domain) for out in outs))


def _overlaps(prepared: Prepared, outs: tuple[Array, ...]) -> bool:
    """Whether an output shares memory with a leaf other than element for element."""
    for out in outs:
        if not out.flags.c_contiguous:
            raise ValueError(f"evaluate: out has strides {out.strides}; it must be C-contiguous")
        flat = out.reshape(prepared.plan.domain)
        for leaf in prepared.leaves:
            if np.may_share_memory(leaf, out) and not _same_elements(leaf, flat):
                return True
    return False


def _same_elements(leaf: Array, out: Array) -> bool:
    return (
        leaf.strides == out.strides
        and leaf.__array_interface__["data"][0] == out.__array_interface__["data"][0]
    )


def run_blocks(prepared: Prepared, outs: tuple[Array, ...]) -> None:
    """Run the plan on every block, writing to `outs`, which are views over the plan's domain."""
    plan = prepared.plan
    sides = [_cuts(size, part) for size, part in zip(plan.domain, plan.block, strict=True)]
    blocks = math.prod(map(len, sides))
    numbers = iter(range(blocks))  # shared by the threads: next() is atomic

    def work() -> None:
        runner = Runner(prepared)
        for number in numbers:
            window, shape = _window(number, sides)
            runner.run(window, shape, shape, [out[window] for out in outs])

    share(work, threads_for(math.prod(plan.shape)))


def threads_for(elements: int) -> int:
    """How many threads work on this many elements."""
    return config.threads if elements >= config.threads_from else 1


_Cut = tuple[slice, int]


def _cuts(size: int, part: int) -> list[_Cut]:
    """The pieces of one dim: slices and their lengths."""
    return [
        (slice(start, start + part), min(part, size - start)) for start in range(0, size, part)
    ]


def _window(number: int, sides: list[list[_Cut]]) -> tuple[tuple[slice, ...], Shape]:
    """Where the block with this number is, blocks counted in C order, and its shape."""
    if len(sides) == 1:
        cut, length = sides[0][number]
        return (cut,), (length,)
    cuts: list[_Cut] = []
    for side in reversed(sides):
        number, index = divmod(number, len(side))
        cuts.append(side[index])
    cuts.reverse()
    return tuple([cut for cut, _ in cuts]), tuple([length for _, length in cuts])


class Runner:
    """One thread's registers, and the loop over a plan's steps."""

    __slots__ = ("_leaves", "_once", "_operands", "_outs", "_ready", "_registers", "_scratch", "_steps")

    def __init__(self, prepared: Prepared) -> None:
        plan = prepared.plan
        length = math.prod(plan.block)
        self._leaves = prepared.leaves
        self._scratch = [np.empty(length, dtype) for dtype in plan.scratch]
        self._registers = slice(plan.first_scratch, plan.first_out)
        self._outs = slice(plan.first_out, plan.first_out + len(plan.outs))
        self._operands: list[Array] = [
            *prepared.leaves,
            *prepared.constants,
            *self._scratch,
        ]
        self._ready: Any = None
        self._once = [_bound(step) for step in plan.once]
        self._steps = [_bound(step) for step in plan.steps]

    def run(
        self, window: tuple[slice, ...], shape: Shape, place: Any, outs: list[Array]
    ) -> None:
        """Run the steps on the leaves' `window`, which has `shape`, writing to `outs` of that shape.

        Windows of equal `place` differ only in dims that the plan's blocks cut.
        """
        operands = self._operands
        leaves = self._leaves
        operands[: len(leaves)] = [leaf[window] for leaf in leaves]
        operands[self._outs] = outs
        if self._ready != place:
            self._prepare(shape)
            self._ready = place
        for fn, args, out in self._steps:
            fn(*args(operands), out=operands[out])

    def _prepare(self, shape: Shape) -> None:
        """View the registers in a block's shape, and fill those that are the same for many blocks."""
        length = math.prod(shape)
        operands = self._operands
        operands[self._registers] = [part[:length].reshape(shape) for part in self._scratch]
        for fn, args, out in self._once:
            fn(*args(operands), out=operands[out])


def _bound(step: Step) -> tuple[Any, Any, int]:
    return step.kernel.fn, _picker(step.args), step.out


def _picker(args: tuple[int, ...]) -> Any:
    """A function from the operands to the tuple of a step's arguments."""
    if len(args) > 1:
        return itemgetter(*args)
    return itemgetter(slice(args[0], args[0] + 1)) if args else _nothing


def _nothing(operands: list[Array]) -> tuple[Array, ...]:
    return ()


# -- runs of C order ------------------------------------------------------------------------------


class Reader:
    """Delivers runs of C order of an array or an expression, one thread's; nothing else is kept.

    An array that is C-contiguous is read where it is; all else goes through a buffer that the next
    call overwrites.
    """

    def __init__(self, source: Expr | Array, prepared: Prepared | None, most: int) -> None:
        self._flat = source.reshape(-1) if prepared is None and isinstance(source, np.ndarray) else None
        self._prepared = prepared
        if prepared is not None:
            self._runner = Runner(prepared)
            self._buffer = np.empty(most, prepared.plan.outs[0])

    def run(self, start: int, stop: int) -> Array:
        """The elements start..stop of C order, as a contiguous 1-d array."""
        if self._flat is not None:
            return self._flat[start:stop]
        self.fill(start, stop, self._buffer)
        return self._buffer[: stop - start]

    def rows(self, first: int, pitch: int, start: int, stop: int, width: int) -> Array:
        """Rows start..stop of `width` elements, row i at first + i * pitch, as a 2-d array."""
        if self._flat is not None:
            return self._flat.reshape(-1, pitch)[
                first // pitch + start : first // pitch + stop, first % pitch : first % pitch + width
            ]
        block = self._buffer[: (stop - start) * width].reshape(-1, width)
        for row, line in zip(range(start, stop), block, strict=True):
            self.fill(first + row * pitch, first + row * pitch + width, line)
        return block

    def fill(self, start: int, stop: int, buffer: Array) -> None:
        """Write the elements start..stop of C order to the beginning of `buffer`."""
        assert self._prepared is not None
        plan = self._prepared.plan
        runner = self._runner
        filled = 0
        for corner, shape in boxes(plan.domain, start, stop, math.prod(plan.block)):
            length = math.prod(shape)
            window = tuple([slice(at, at + size) for at, size in zip(corner, shape, strict=True)])
            out = buffer[filled : filled + length].reshape(shape)
            runner.run(window, shape, (shape, corner[1:]) if plan.once else shape, [out])
            filled += length


def prepare_runs(source: Expr | Array) -> Prepared | None:
    """The plan by which Readers deliver `source`; None where it is read directly."""
    if isinstance(source, Expr):
        return prepare((source,), tiles=False)
    if source.flags.c_contiguous:
        return None
    return prepare((Expr(COPY, (Leaf(None, source),), source.shape, source.dtype),), tiles=False)


def boxes(domain: Shape, start: int, stop: int, most: int) -> Iterator[tuple[Shape, Shape]]:
    """Cover the elements start..stop of C order, in order, with boxes of at most `most` elements.

    Yields (corner, shape); every box is a run of C order itself.
    """
    pitches = [math.prod(domain[dim + 1 :]) for dim in range(len(domain))]
    last = len(domain) - 1
    while start < stop:
        left = min(stop - start, most)
        dim = next(
            (d for d, pitch in enumerate(pitches) if pitch <= left and start % pitch == 0), last
        )
        pitch = pitches[dim]
        corner = tuple(
            [start // step % size for step, size in zip(pitches, domain, strict=True)]
        )
        count = min(domain[dim] - corner[dim], left // pitch)
        yield corner, (1,) * dim + (count,) + domain[dim + 1 :]
        start += count * pitch
