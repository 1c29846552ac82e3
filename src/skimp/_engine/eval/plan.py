"""Splits expressions into what repeats (the plan, cached) and what does not (arrays, numbers)."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any, Final, NamedTuple

import numpy as np

from skimp._engine.eval.convert import laid
from skimp._engine.eval.expr import Array, Expr, Leaf, Shape, walk
from skimp._engine.eval.make import make, run_block as run_block
from skimp._engine.eval.program import CONSTANT, LEAF, NODE, LeafLayout, Node, Plan
from skimp._kernels import shaping
from skimp.config import config

_CACHED_PLANS: Final = 512
_tuple = tuple.__new__  # of a NamedTuple, whose own way is a function of Python's


class Prepared(NamedTuple):
    """A plan and what it runs on: the leaves' arrays, viewed over the domain, and the constants.

    `donors` are, for each output, the leaves that are its memory, element for element.
    """

    plan: Plan
    leaves: tuple[Array, ...]
    constants: tuple[Array, ...]
    donors: tuple[tuple[int, ...], ...]


def plan(
    roots: tuple[Expr, ...], outs: tuple[Array, ...] = (), block: int = 0, tiles: bool = True
) -> Plan:
    """The plan of `prepare`, for readers and tests."""
    return prepare(roots, outs, block, tiles).plan


def prepare(
    roots: tuple[Expr, ...], outs: tuple[Array, ...] = (), block: int = 0, tiles: bool = True
) -> Prepared:
    """Plan roots of one shape to be written to `outs`, which may be the memory of leaves.

    `block` is the length of a block in elements of four bytes (0: config.block). Without `tiles`,
    every block is a run of C order, which is what reductions need.
    """
    graph = _read(roots)
    donors = (
        (_donors(outs[0], graph),)
        if len(outs) == 1
        else tuple([_donors(out, graph) for out in outs])
    )
    key = (
        roots[0].shape,
        block or config.block,
        tiles,
        tuple(graph.nodes),
        tuple(graph.roots),
        tuple(graph.layouts),
        tuple(graph.dtypes),
        donors,
    )
    made = _cache.get(key)
    if made is None:
        made = _remember(key, make(*key))
    arrays, domain = graph.arrays, made.domain
    for number, layout in enumerate(made.leaves):
        array = arrays[number]
        if array.shape != domain or array.strides != layout.strides:
            arrays[number] = _over(array, domain, layout.strides)
    return _tuple(Prepared, (made, tuple(arrays), tuple(graph.constants), donors))


_cache: OrderedDict[Any, Plan] = OrderedDict()


def _remember(key: Any, made: Plan) -> Plan:
    _cache[key] = made
    while len(_cache) > _CACHED_PLANS:
        _cache.popitem(last=False)
    return made


def _over(array: Array, domain: Shape, strides: tuple[int, ...]) -> Array:
    if array.flags.c_contiguous and array.size == math.prod(domain):
        return array.reshape(domain)
    return laid(array, domain, strides)


# -- reading a DAG --------------------------------------------------------------------------------


class _Graph:
    """A DAG as flat lists in which equal parts have equal numbers."""

    __slots__ = (
        "arrays", "constants", "dtypes", "layouts", "nodes", "places", "roots",
    )  # fmt: skip

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.roots: list[int] = []
        self.arrays: list[Array] = []
        self.layouts: list[LeafLayout] = []
        self.places: list[int] = []  # where the arrays begin
        self.constants: list[Array] = []
        self.dtypes: list[np.dtype[Any]] = []  # of the constants


def _read(roots: tuple[Expr, ...]) -> _Graph:
    graph = _Graph()
    numbers: dict[int, int] = {}  # id of a node or a leaf -> its number
    known: dict[Any, int] = {}  # a leaf's memory -> its number
    shape = roots[0].shape
    for node in walk(roots):
        args = []
        for arg in node.args:
            if type(arg) is Expr:
                args.append((NODE, numbers[id(arg)]))
            elif type(arg) is Leaf:
                number = numbers.get(id(arg))
                if number is None:
                    number = numbers[id(arg)] = _number_of(arg.array, shape, graph, known)
                args.append((LEAF, number))
            else:
                args.append((CONSTANT, len(graph.constants)))
                value = np.asarray(arg)
                graph.constants.append(value)
                graph.dtypes.append(value.dtype)
        numbers[id(node)] = len(graph.nodes)
        graph.nodes.append((node.kernel, tuple(args), node.dtype))
    graph.roots = [numbers[id(root)] for root in roots]
    return graph


def _number_of(array: Array, shape: Shape, graph: _Graph, known: dict[Any, int]) -> int:
    """The number of a leaf's memory, which other leaves may share."""
    strides = array.strides
    if array.shape != shape or 1 in shape:
        strides = tuple(
            [
                stride if have == want != 1 else 0
                for stride, have, want in zip(strides, array.shape, shape, strict=True)
            ]
        )
    layout = _tuple(LeafLayout, (array.dtype, strides))
    place = shaping.address(array)
    key = (place, layout)
    number = known.get(key)
    if number is None:
        number = known[key] = len(graph.arrays)
        graph.arrays.append(array)
        graph.layouts.append(layout)
        graph.places.append(place)
    return number


def _donors(out: Array, graph: _Graph) -> tuple[int, ...]:
    """The leaves whose memory `out` is, element for element."""
    place = shaping.address(out)
    if place not in graph.places:
        return ()
    strides = tuple(
        [stride if size != 1 else 0 for stride, size in zip(out.strides, out.shape, strict=True)]
    )
    return tuple(
        [
            number
            for number, layout in enumerate(graph.layouts)
            if layout.strides == strides and graph.places[number] == place
        ]
    )
