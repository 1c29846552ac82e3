"""The row of an op: everything that is known of it, in one place; and the table of all rows.

A row has a kind (pointwise, reduction, row-wise, view, general) and forms: the function, the
method, `name_`, operators. Every form is a public callable made by `wrappers.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.signatures import Argument, Arguments, arguments_of
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.devices import device
from skimp._engine.tensor.formats import layout, memory_format
from skimp._engine.tensor.size import Size
from skimp._engine.tensor.tensor import ORDINARY as ORDINARY, Tensor

Function = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])
# one, or the one for the arguments of a call
AnyRule: TypeAlias = Rule | Callable[[dict[str, Any]], Rule]

# Arguments of these types concern no transform; any other sends a call through `dispatch`.
KNOWN: set[type[Any]] = {
    Tensor, int, float, bool, complex, str, type(None), list, tuple, dict, range, slice,
    type(Ellipsis), type, Size, dtypes.dtype, device, layout, memory_format, np.ndarray,
    np.float32, np.float64, np.int64, np.int32, np.bool_, bytes,
}  # fmt: skip


@cache
def signature(f: Function) -> inspect.Signature:
    """Of the functions that users hold, and of bodies."""
    return inspect.signature(f).replace()


class _Required:
    def __repr__(self) -> str:
        return "..."


REQUIRED = _Required()  # the default of an argument that has none
SPREAD = ("order", "sizes")  # starred arguments: a list that methods alone take number by number


class _Asked:
    """What is found when somebody asks, in a dict of its own; nobody asks most ops."""

    __slots__ = ("__dict__",)


@dataclass(eq=False, slots=True)
class Op(_Asked):
    """One declared op. (With fields of its own: a dict of so many takes 1.5 KiB.)

    `fast` is the op on small arrays (`Tensor._np`), or None where a call is not for it; the
    wrapper asks it first, and records what it gives: by `rule`, or by `fast_rule` where the body is
    made of ops that record themselves.
    `batch` is its rule under vmap, or "parts" where those of its parts are all that it takes
    (without either, a composite op's parts are batched and any other op runs sample by sample);
    `autocast` names the class of its casts ("lower", "float32", "widest"); `meta` is the body on
    tensors without bytes, where the body itself would ask for them.
    `overlap`: what its target may share with what it reads (`outs.check_shared`).
    `apart` gives, by the number of a result, the function that makes it again of others
    (`result1`) and of arguments, by its parameters' names, where that is little of the op's work;
    one comes before those that it is read by.
    `older`: it takes calls whose numbers stand before its tensors (`older.in_order`).
    `one_by_one` names the list whose numbers the method takes one by one too (`x.squeeze(0, 1)`).
    `sparse` answers for sparse tensors, or is "values" where 0 stays 0, so that a pointwise op runs
    on the entries alone; `composite`: the body is made of ops alone. `samples` gives
    calls to try the op on: from `tensor(values)` of any library, a list of tuples of arguments, the
    last of which may be a dict of those by name.
    """

    name: str
    raw: Function
    kind: str = "general"
    rule: AnyRule | None = None
    nondiff: tuple[int, ...] = ()
    namespaces: tuple[str, ...] = ("",)
    method: bool = True
    multi: bool = False
    out: bool | str | Callable[..., Any] = False
    overlap: str | tuple[str, ...] = ""
    one_by_one: str = ""
    older: bool = False
    inplace_rule: AnyRule | None = None  # of a view op's form in place, which PyTorch numbers apart
    fast_view: str | None = None
    otherwise: Function | None = None
    composite: bool = False
    fast: Function | None = None
    fast_rule: Any = None
    batch: Function | str | None = None
    autocast: str | None = None
    sparse: Function | str | None = None
    meta: Function | None = None
    samples: Callable[[Function], list[tuple[Any, ...]]] | None = None
    copies: str = ""  # how it copies, whatever the layouts are: a word for reports of memory
    looks: bool = False  # asks a tensor something and computes nothing: profilers count no call
    unset: bool = False  # leaves elements that nobody has written: done again they would be others
    makes: bool = False  # its result, from numbers and sizes alone, without other ops
    foreach: int = 0  # its tensors may be those of so many lists: there is `_foreach_NAME`
    apart: dict[int, Function] = field(default_factory=dict)
    row: Any = None  # the table entry of a pointwise op
    forms: dict[str, Function] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.samples is None:
            self.samples = getattr(self.raw, "samples", None)

    def __repr__(self) -> str:
        return f"<op {self.name}, {self.kind}>"

    @property
    def signature(self) -> inspect.Signature:
        """The body's, with a tensor where the body of a view takes a layout."""
        own = inspect.signature(self.raw)
        parameters = list(own.parameters.values())
        if parameters[0].name == "layout":
            parameters[0] = parameters[0].replace(name="input", annotation="Tensor")
        return own.replace(parameters=parameters)

    @property
    def arguments(self) -> Arguments:
        """What it takes."""
        first, *others = arguments_of(self.raw)
        if first.name == "layout":
            first = Argument("input", first.kind, first.default)
        return [first, *others]

    @cached_property
    def parameters(self) -> list[tuple[str, Any, Any]]:
        """Name, kind and default of each of them, for those who ask at every call."""
        return [
            (p.name, p.kind, REQUIRED if p.default is p.empty else p.default)
            for p in self.arguments
        ]


def sampled(calls: Callable[[Function], list[tuple[Any, ...]]]) -> Callable[[F], F]:
    """Put sample calls on the row of a function, where it is declared without its own decorator."""

    def declare(f: F) -> F:
        f.samples = calls  # type: ignore[attr-defined]
        return f

    return declare


_NOTHING: frozenset[tuple[Any, ...]] = frozenset()


class Form:
    """One public callable of an op: `f` is what users hold, `run` the general way behind it."""

    __slots__ = ("f", "fine", "judged", "name", "op", "run", "writes")

    def __init__(self, op: Op, name: str, run: Function, writes: bool = False) -> None:
        self.op = op
        self.name = name
        self.run = run
        self.writes = writes  # to its first argument
        self.f: Function = run
        # Types of arguments that are taken, whichever: the keys (an empty dict takes 64 bytes, an
        # empty set 216, and few forms are called); and what was known of those that were taken.
        self.fine: dict[tuple[Any, ...], None] = {}
        self.judged: Set[tuple[Any, ...]] = _NOTHING

    def __repr__(self) -> str:
        return f"<{self.name} of {self.op!r}>"


OPS: dict[str, Op] = {}
# "" is the package itself; "nn.functional", "linalg", ...
NAMESPACES: dict[str, dict[str, Function]] = {"": {}, "nn.functional": {}, "linalg": {}}
METHODS: dict[str, Function] = {}
FORMS: dict[Function, Form] = {}  # of every public callable


def publish(
    op: Op, name: str, f: Function, namespaces: Sequence[str] = ("",), method: bool = True
) -> None:
    """Make `f` reachable as a function of the namespaces and as a method."""
    op.forms[name] = f
    for space in namespaces:
        NAMESPACES.setdefault(space, {})[name] = f
    if method:
        METHODS[name] = f
        setattr(Tensor, name, f)
