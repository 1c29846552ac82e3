"""Makes a plan from a flat DAG: dims and blocks, then a place for every node (a linear scan)."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from skimp._engine.eval.convert import collides, turn
from skimp._engine.eval.expr import COPY, Kernel, Shape
from skimp._engine.eval.program import CONSTANT, LEAF, NODE, Arg, LeafLayout, Node, Plan, Step

_SHORT_ROW: Final = 512  # below it NumPy's time per row shows: broadcast leaves are spread first
ITEM: Final = 128  # bytes of a row up to which copies of items beat a loop over each


def make(
    shape: Shape,
    limit: int,
    tiles: bool,
    nodes: tuple[Node, ...],
    roots: tuple[int, ...],
    layouts: tuple[LeafLayout, ...],
    constants: tuple[np.dtype[Any], ...],
    donors: tuple[tuple[int, ...], ...],
) -> Plan:
    domain, leaves = collapse(shape, layouts)
    across = transposed_dim(domain, leaves) if tiles else None
    widest = max((dtype.itemsize for _, _, dtype in nodes), default=4)
    limit = max(1, limit * 4 // max(widest, 4))  # blocks of equal bytes stay in the same cache
    block = run_block(domain, limit) if across is None else tile_block(domain, across, limit)
    maker = _Maker(nodes, leaves, constants, domain, block, across is not None)
    maker.emit_nodes(roots, donors or ((),) * len(roots))
    once, steps = maker.numbered(len(leaves), len(constants))
    total = sum(dtype.itemsize for _, _, dtype in nodes)
    kept = sum(nodes[root][2].itemsize for root in set(roots))
    return Plan(
        shape=shape,
        domain=domain,
        block=block,
        tiled=across is not None,
        leaves=leaves,
        constants=constants,
        scratch=tuple(maker.registers),
        outs=tuple(nodes[root][2] for root in roots),
        once=once,
        steps=steps,
        unwritten_bytes=(total - kept) * math.prod(shape),
    )


def collapse(shape: Shape, layouts: tuple[LeafLayout, ...]) -> tuple[Shape, tuple[LeafLayout, ...]]:
    """Merge neighbouring dims that every leaf (and a C-contiguous output) walks through as one."""
    dims: list[int] = []
    strides: list[list[int]] = [[] for _ in layouts]
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        here = [layout.strides[dim] for layout in layouts]
        if dims and all(
            known[-1] == stride * size for known, stride in zip(strides, here, strict=True)
        ):
            dims[-1] *= size
            for known, stride in zip(strides, here, strict=True):
                known[-1] = stride
            continue
        dims.append(size)
        for known, stride in zip(strides, here, strict=True):
            known.append(stride)
    if not dims:
        dims, strides = [1], [[0] for _ in layouts]
    merged = tuple(
        LeafLayout(layout.dtype, tuple(known))
        for layout, known in zip(layouts, strides, strict=True)
    )
    return tuple(dims), merged


def transposed_dim(domain: Shape, leaves: tuple[LeafLayout, ...]) -> int | None:
    """The dim along which some leaf is dense while it is not along the last one."""
    for leaf in leaves:
        across = min(
            (dim for dim, stride in enumerate(leaf.strides) if stride),
            key=lambda dim: leaf.strides[dim],
            default=len(domain) - 1,
        )
        if across < len(domain) - 1 and 0 < leaf.strides[across] < leaf.strides[-1]:
            return across
    return None


def run_block(domain: Shape, limit: int) -> Shape:
    """Whole trailing dims and as much of the next as `limit` elements allow: a run of C order."""
    block = [1] * len(domain)
    inner = 1
    for dim in range(len(domain) - 1, -1, -1):
        size = domain[dim]
        if inner * size > limit:
            block[dim] = _even_part(size, max(1, limit // inner))
            break
        block[dim] = size
        inner *= size
    return tuple(block)


def _even_part(size: int, most: int) -> int:
    """The length of equal parts of `size`, at most `most`, in whole cache lines where long."""
    part = -(-size // -(-size // most))
    return min(-(-part // 64) * 64, most) if part > 1024 else part


def tile_block(domain: Shape, across: int, limit: int) -> Shape:
    """A tile of about `limit` elements, as square as the dims `across` and last allow; where these
    are short, in as much of the other dims as fits.
    """
    width = min(domain[-1], max(1, math.isqrt(limit)))
    height = min(domain[across], max(1, limit // width))
    width = min(domain[-1], max(1, limit // height))
    block = [1] * len(domain)
    block[across], block[-1] = height, width
    left = limit // max(1, height * width)
    for dim in range(len(domain) - 2, -1, -1):
        if dim != across and left > 1:
            block[dim] = min(domain[dim], left)
            left //= block[dim]
    return tuple(block)


_TURN: Final = Kernel("turn", turn)

_Place = tuple[str, int]  # ("leaf" | "constant" | "scratch" | "out", number), numbered at the end


class _Maker:
    """Gives every node a place and emits steps, in the order of the nodes."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        leaves: tuple[LeafLayout, ...],
        constants: tuple[np.dtype[Any], ...],
        domain: Shape,
        block: Shape,
        tiled: bool,
    ) -> None:
        self.nodes = nodes
        self.leaves = leaves
        self.constants = constants
        self.domain = domain
        self.block = block
        self.tiled = tiled
        self.registers: list[np.dtype[Any]] = []
        self._free: list[int] = []
        self._once: list[tuple[Kernel, tuple[_Place, ...], _Place]] = []
        self._steps: list[tuple[Kernel, tuple[_Place, ...], _Place]] = []
        self._places: dict[Arg, _Place] = {}
        self._last_read: dict[Arg, int] = {}
        for number, (_, args, _) in enumerate(nodes):
            for arg in args:
                self._last_read[arg] = number
        self._gathered = {number for number in range(len(leaves)) if self._must_gather(number)}

    def _must_gather(self, number: int) -> bool:
        """Whether the leaf's blocks are made contiguous before they are read."""
        layout = self.leaves[number]
        if layout.strides[-1] == layout.dtype.itemsize:
            spread = 0 in layout.strides and self.domain[-1] < _SHORT_ROW
            return (spread and self._same_in_every_block(number)) or self._lies_apart(number)
        readers = self._readers(number)
        if self.tiled and layout.strides[-1]:
            return collides(layout.strides[-1]) or any(kernel is not COPY for kernel in readers)
        return any(not kernel.strided for kernel in readers)

    def _readers(self, number: int) -> list[Kernel]:
        arg = (LEAF, number)
        return [kernel for kernel, args, _ in self.nodes if arg in args]

    def _lies_apart(self, number: int) -> bool:
        """Whether a dense copy of the leaf's short rows takes less time than NumPy's loop has over
        them, which begins anew with each."""
        dtype, strides = self.leaves[number]
        row = self.domain[-1] * dtype.itemsize
        if row > ITEM or len(strides) < 2 or strides[-2] == row or self.block[-2] < 2:
            return False
        return all([kernel is not COPY for kernel in self._readers(number)])

    def _same_in_every_block(self, number: int) -> bool:
        strides = self.leaves[number].strides
        return all(
            stride == 0
            for stride, size, part in zip(strides, self.domain, self.block, strict=True)
            if part < size
        )

    def emit_nodes(self, roots: tuple[int, ...], donors: tuple[tuple[int, ...], ...]) -> None:
        stores = []
        kept = set(roots)  # results of roots are read again by their stores: never overwritten
        for number, (kernel, args, dtype) in enumerate(self.nodes):
            places = tuple([self._read(arg, kernel) for arg in args])
            slot = roots.index(number) if number in kept else -1
            if slot >= 0 and self._may_write_now(number, donors[slot]):
                place = ("out", slot)
                self._release(args, number, kept)
            elif kernel.aliases:
                self._release(args, number, kept)
                place = self._take(dtype)
            else:
                place = self._take(dtype)
                self._release(args, number, kept)
            self._places[NODE, number] = place
            self._steps.append((kernel, places, place))
            stores += [
                (COPY, (place,), ("out", other))
                for other, root in enumerate(roots)
                if root == number and place != ("out", other)
            ]
        self._steps += stores

    def _may_write_now(self, number: int, donors: tuple[int, ...]) -> bool:
        """Whether a root can be written where it belongs, in place of the leaves it replaces."""
        kernel, args, _ = self.nodes[number]
        if self.tiled and (not kernel.strided or (NODE, number) in self._last_read):
            return False  # rows of a tile are apart: bits of such kernels would depend on it
        for donor in donors:
            last = self._last_read[LEAF, donor]
            if last > number or ((LEAF, donor) in args and not kernel.aliases):
                return False
        return True

    def _read(self, arg: Arg, reader: Kernel) -> _Place:
        if arg in self._places:
            return self._places[arg]
        kind, number = arg
        place: _Place = ("constant" if kind == CONSTANT else "leaf", number)
        if kind == CONSTANT and reader.dense:
            source, place = place, self._add_register(self.constants[number])
            self._once.append((COPY, (source,), place))
        elif kind == LEAF and number in self._gathered:
            dtype, strides = self.leaves[number]
            source = place
            gather = _TURN if self.tiled and collides(strides[-1]) else COPY
            if self._same_in_every_block(number):
                place = self._add_register(dtype)  # a register of its own: it outlives the block
                self._once.append((COPY, (source,), place))
            else:
                place = self._take(dtype)
                self._steps.append((gather, (source,), place))
        self._places[arg] = place
        return place

    def _take(self, dtype: np.dtype[Any]) -> _Place:
        for register in reversed(self._free):
            if self.registers[register] == dtype:
                self._free.remove(register)
                return ("scratch", register)
        return self._add_register(dtype)

    def _add_register(self, dtype: np.dtype[Any]) -> _Place:
        self.registers.append(dtype)
        return ("scratch", len(self.registers) - 1)

    def _release(self, args: tuple[Arg, ...], number: int, kept: set[int]) -> None:
        for arg in dict.fromkeys(args):
            kind, place = self._places[arg]
            lasting = arg[0] == NODE and arg[1] in kept
            lasting = lasting or arg[0] == CONSTANT  # spread once, for all blocks
            lasting = lasting or (arg[0] == LEAF and self._same_in_every_block(arg[1]))
            if kind == "scratch" and not lasting and self._last_read[arg] == number:
                self._free.append(place)

    def numbered(self, leaves: int, constants: int) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        base = {"leaf": 0, "constant": leaves, "scratch": leaves + constants}
        base["out"] = base["scratch"] + len(self.registers)

        def number(place: _Place) -> int:
            return base[place[0]] + place[1]

        def steps(emitted: list[tuple[Kernel, tuple[_Place, ...], _Place]]) -> tuple[Step, ...]:
            return tuple(
                Step(kernel, tuple(map(number, args)), number(out)) for kernel, args, out in emitted
            )

        return steps(self._once), steps(self._steps)
