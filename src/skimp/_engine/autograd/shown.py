"""Ops that are made of others here and one node in PyTorch: how their last node shows itself.

    @general()
    @shown("DistBackward0", "input", "other")
    def dist(input, other, p=2): ...

A program that walks the graph sees PyTorch's name, and the edges of the op's arguments in PyTorch's
order; backward runs the nodes of the parts.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from skimp._engine.autograd import modes
from skimp._engine.autograd.nodes import Node
from skimp._engine.autograd.refresh import edge
from skimp._engine.generated import function_of
from skimp._engine.tensor.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
Name = str | Callable[..., str | None]  # or from the arguments; None: it shows itself as it is


def shown(name: Name, *inputs: str) -> Callable[[F], F]:
    """Let the last node of what the function gives show itself by this name, with the edges of
    these arguments; with none, its own.
    """

    def declare(f: F) -> F:
        def show(result: Any, given: dict[str, Any]) -> None:
            title = name if isinstance(name, str) else name(**given)
            if title is not None:
                present(result, title, [given[n] for n in inputs], list(given.values()))

        space = {"f": f, "recorded": _recorded, "show": show, "state": modes.state}
        return functools.wraps(f)(_around(f, space))  # type: ignore[return-value]

    return declare


def _around(f: Callable[..., Any], space: dict[str, Any]) -> FunctionType:
    """A function with the arguments of `f` that shows what it gives."""
    taken, passed, given = [], [], []
    starred = False
    parameters = inspect.signature(f).parameters
    for n, p in parameters.items():
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        if p.kind is p.KEYWORD_ONLY and not starred:
            taken.append("*")
        starred |= p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        taken.append(f"{stars}{n}{'' if p.default is p.empty else '=None'}")
        passed.append(f"{n}={n}" if p.kind is p.KEYWORD_ONLY else f"{stars}{n}")
        given.append(f"{n!r}: {n}")
    text = [
        f"def function({', '.join(taken)}):",
        f"    result = f({', '.join(passed)})",
        "    if state.grad and recorded(result):",
        f"        show(result, {{{', '.join(given)}}})",
        "    return result",
    ]
    made = function_of(f.__name__, text, space)
    optional = [p for p in parameters.values() if p.default is not p.empty]
    made.__defaults__ = tuple([p.default for p in optional if p.kind is not p.KEYWORD_ONLY])
    made.__kwdefaults__ = {p.name: p.default for p in optional if p.kind is p.KEYWORD_ONLY}
    return made


def _recorded(result: Any) -> bool:
    """Whether a result is one of a node."""
    if type(result) is Tensor:
        return result._rg and result._skimp_node is not None
    return any([t._rg and t._skimp_node is not None for t in _tensors(result)])


def recorded(t: Tensor) -> bool:
    """Whether a result has a node that may show itself as another: under vmap it has none."""
    return modes.state.grad and bool(_tensors(t)) and t._rg


def present(result: Any, title: str, inputs: list[Any], given: list[Any]) -> None:
    """Let the last nodes of the results show themselves so, unless they are arguments' own."""
    flat: tuple[Any, ...] = ()
    for value in inputs:
        for one in value if isinstance(value, (list, tuple)) else (value,):
            flat += edge(one) if isinstance(one, Tensor) else (None, 0)
    for t in (result,) if type(result) is Tensor else _tensors(result):
        node: Any = t._skimp_node
        if node is None:
            continue
        for one in given:
            if isinstance(one, Tensor) and one._skimp_node is node:
                break
        else:
            node._skimp_unfold()
            others = bool(inputs) and node._skimp_edges != flat
            node.__class__ = _class(type(node), title, others)
            if others:
                node._skimp_more().shown = flat


def present_gap(t: Tensor, title: str, at: int) -> None:
    """Let the last node of a result, if it is of that name, show an edge to nothing among its own,
    for an argument that was left out.
    """
    node: Any = t._skimp_node
    if node is None or node.name() != title:  # that of a view shows that it is one
        return
    node._skimp_unfold()
    flat = node._skimp_edges
    node.__class__ = _class(type(node), title, True)
    node._skimp_more().shown = (*flat[: 2 * at], None, 0, *flat[2 * at :])


def _tensors(result: Any) -> list[Tensor]:
    values = result if isinstance(result, (tuple, list)) else (result,)
    return [
        t for t in values if isinstance(t, Tensor) and (t._skimp_meta is not None or not t._hollow)
    ]


_classes: dict[Any, type[Node]] = {}


def _class(cls: type[Node], title: str, edges: bool) -> type[Node]:
    """The class of a node, under another name."""
    found = _classes.get((cls, title, edges))
    if found is None:
        found = _classes[cls, title, edges] = _made(cls, title, edges)
    return found


def _made(cls: type[Node], title: str, edges: bool) -> type[Node]:
    own = cls.__mro__[1] if "shown" in cls.__dict__ else cls
    body: dict[str, Any] = {"__slots__": (), "_skimp_label": title, "shown": True}
    if edges:
        body["next_functions"] = property(_next_functions)
    return type(title, (own,), body)


def _next_functions(node: Node) -> tuple[tuple[Node | None, int], ...]:
    e = node._skimp_more().shown
    return tuple([(e[i], e[i + 1]) for i in range(0, len(e), 2)])
