"""The calls that PyTorch's own schemas describe: each public function and method, the arguments of
each of its overloads, and, by trying, values that PyTorch takes for them.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
import re
import tomllib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional

import skimp
import skimp.nn.functional
from tests.support.schema_values import BY_NAME, FLOATING, Arg, candidates, make

# where functions are found, and how PyTorch's schemas spell them
SPACES = {
    "": "", "Tensor": "", "nn.functional": "", "linalg": "linalg_", "fft": "fft_",
    "special": "special_",
}  # fmt: skip
REQUIRED = object()
# functions that set something for the process, or take functions: tested by themselves
NOT_OPS = frozenset({
    "compile", "cond", "from_file", "set_default_device", "set_default_dtype",
    "set_default_tensor_type", "set_deterministic_debug_mode", "set_float32_matmul_precision",
    "set_printoptions", "set_rng_state", "set_warn_always", "use_deterministic_algorithms", "vmap",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Form:
    """One overload of one public name."""

    space: str
    name: str
    args: tuple[Arg, ...]

    @property
    def path(self) -> str:
        return f"{self.space}.{self.name}" if self.space else self.name

    def function(self, library: Any) -> Any:
        owner = functools.reduce(getattr, self.space.split("."), library) if self.space else library
        return getattr(owner, self.name)

    @property
    def required(self) -> list[Arg]:
        return [a for a in self.args if a.default is REQUIRED]

    @property
    def optional(self) -> list[Arg]:
        return [a for a in self.args if a.default is not REQUIRED]


@dataclass(frozen=True)
class Call:
    """Values by position and by name."""

    form: Form
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    wrong: str = ""  # of a call made wrong: the type of what was replaced, by its schema

    def __repr__(self) -> str:
        words = [*[repr(a) for a in self.args], *[f"{k}={v!r}" for k, v in self.kwargs]]
        return f"{self.form.path}({', '.join(words)})"

    def on(self, library: Any) -> Any:
        library.manual_seed(0)
        f = self.form.function(library)
        args = [make(a, library) for a in self.args]
        kwargs = {k: make(v, library) for k, v in self.kwargs}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return f(*args, **kwargs)

    def outcome(self, library: Any) -> Any:
        """What the call gives, or its Refused."""
        try:
            return self.on(library)
        except Exception as e:
            return Refused(e)


class Refused:
    """An error's class, as the builtin that PyTorch and its users know it by, and its words."""

    def __init__(self, error: Exception) -> None:
        known = [c for c in type(error).__mro__ if getattr(builtins, c.__name__, None) is c]
        self.kind = known[0].__name__
        self.words = str(error)

    def __repr__(self) -> str:
        return f"{self.kind}: {' '.join(self.words.split())[:160]}"


# -- PyTorch's schemas ----------------------------------------------------------------------------

_TYPES = {
    "Tensor": "Tensor", "int": "int", "SymInt": "int", "bool": "bool", "float": "float",
    "number": "Scalar", "Scalar": "Scalar", "str": "str", "ScalarType": "dtype",
    "Layout": "layout", "Device": "device", "MemoryFormat": "memory_format",
    "Generator": "Generator", "complex": "Scalar",
}  # fmt: skip


def _type(t: Any) -> str | None:
    """A schema's type in our words: `Tensor`, `int[]`, `Tensor?[]?`; None for one that no Python
    caller gives.
    """
    text = str(t)
    if text in _TYPES:
        return _TYPES[text]
    for prefix, suffix in (("Optional[", "?"), ("List[", "[]")):
        if text.startswith(prefix):
            inner = _type(text[len(prefix) : -1])
            return None if inner is None else inner + suffix
    return None


def _of_schema(space: str, name: str, schema: Any) -> Form | None:
    if schema.name.endswith("_backward") or "Dimname" in str(schema):
        return None
    args = []
    for a in schema.arguments:
        kind = _type(a.real_type)
        if kind is None or a.is_out:
            return None
        default = a.default_value if a.has_default_value() else REQUIRED
        title = a.name
        if title == "self" and space != "Tensor" and kind == "Tensor":
            title = "input"  # a number in its place keeps the schema's name
        args.append(Arg(title, kind, default, a.kwarg_only))
    if space == "Tensor" and (not args or args[0].type != "Tensor"):
        return None
    if not any(a.type.startswith("Tensor") for a in args) and not any(
        a.name == "dtype" for a in args
    ):
        return None
    return Form(space, name, tuple(args))


_PYTHON_TYPES = {
    "Tensor": "Tensor", "int": "int", "bool": "bool", "float": "float", "str": "str",
    "number": "Scalar",
}  # fmt: skip


def _of_signature(space: str, name: str, f: Any) -> Form | None:
    """A function that PyTorch wrote in Python: its arguments' types from the annotations, or from
    the schemas' words for arguments of that name.
    """
    signature = inspect.signature(f)
    args = []
    for p in signature.parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            return None
        default = REQUIRED if p.default is p.empty else p.default
        kind = _of_annotation(p.annotation) or _guess(p.name, default)
        args.append(Arg(p.name, kind, default, p.kind is p.KEYWORD_ONLY))
    return Form(space, name, tuple(args))


def _of_annotation(annotation: Any) -> str | None:
    text = (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )
    text = str(annotation) if "Union" in text or "Optional" in text else text
    text = text.replace("torch.", "").replace("typing.", "")
    optional = "None" in text or "Optional" in text
    if "BroadcastingList" in text or "list[int]" in text or "List[int]" in text:
        return "int[]" + ("?" if optional else "")
    for word, kind in _PYTHON_TYPES.items():
        if text.replace(" | None", "").replace("Optional[", "").rstrip("]") == word:
            return kind + ("?" if optional else "")
    return "dtype?" if "dtype" in text or "DType" in text else None


def _guess(name: str, default: Any) -> str:
    if name == "norm_type":
        return "float"
    if isinstance(default, bool):
        return "bool"
    for kind in (int, float, str):
        if isinstance(default, kind):
            return kind.__name__
    if name in BY_NAME and name not in ("index", "indices", "mask", "weight", "src", "source"):
        return "any?"
    return "Tensor?" if default is None else "Tensor"


@functools.cache
def _schemas() -> dict[str, list[Any]]:
    found = defaultdict(list)
    for s in torch._C._jit_get_all_schemas():
        if s.name.startswith("aten::"):
            found[s.name.removeprefix("aten::")].append(s)
    return found


def _owner(space: str, library: Any) -> Any:
    return functools.reduce(getattr, space.split("."), library) if space else library


def names(space: str) -> list[str]:
    """The public functions that both libraries have there."""
    theirs, ours = _owner(space, torch), _owner(space, skimp)
    return [
        n
        for n in dir(theirs)
        if not n.startswith("_")
        and callable(getattr(theirs, n))
        and not isinstance(getattr(theirs, n), type)
        and hasattr(ours, n)
        and n not in NOT_OPS
    ]


@functools.cache
def forms(space: str) -> list[Form]:
    """Every overload of every function in this namespace."""
    owner = _owner(space, torch)
    every: dict[str, Form] = {}
    for name in names(space):
        f = getattr(owner, name)
        found: list[Form | None] = []
        if inspect.isfunction(f) and (space or name not in _schemas()):
            written = getattr(owner, f"_{name}", f) if space == "nn.functional" else f
            if inspect.isfunction(written):
                found = [_of_signature(space, name, written)]
        else:
            word = {"logsigmoid": "log_sigmoid"}.get(name, SPACES[space] + name)
            found = [_of_schema(space, name, s) for s in _schemas()[word]]
        every |= {repr((form.path, form.args)): form for form in found if form is not None}
    return list(every.values())


TRIES = 150


def _combinations(args: list[Arg]) -> Iterator[tuple[Any, ...]]:
    """Equal tensors first, then each with each."""
    tensors = [i for i, a in enumerate(args) if a.type == "Tensor"]
    others = [candidates(a) if a.type != "Tensor" else [None] for a in args]
    named = [candidates(args[i]) for i in tensors]
    together = [(f,) * len(tensors) for f in FLOATING] if tensors else [()]
    for others_first in (True, False):
        for chosen in together if others_first else itertools.product(*named):
            for rest in itertools.product(*others):
                values = list(rest)
                for i, t in zip(tensors, chosen, strict=True):
                    if others_first and args[i].name in BY_NAME:
                        t = named[tensors.index(i)][0]
                    values[i] = t
                yield tuple(values)


def call_of(form: Form, values: tuple[Any, ...]) -> Call:
    """A call with these values for the required arguments, by position where that can be."""
    by_position, by_name = [], []
    skipped = False
    given = dict(zip([a.name for a in form.required], values, strict=True))
    for a in form.args:
        if a.name not in given:
            skipped = True
        elif a.keyword_only or skipped:
            by_name.append((a.name, given[a.name]))
        else:
            by_position.append(given[a.name])
    return Call(form, tuple(by_position), tuple(by_name))


@functools.cache
def valid(form: Form) -> tuple[Any, ...] | None:
    """Values of the required arguments that PyTorch takes, by trying; None where none was found."""
    for values in itertools.islice(_combinations(form.required), TRIES):
        if not isinstance(call_of(form, values).outcome(torch), Refused):
            return values
    return None


# -- comparing ------------------------------------------------------------------------------------


def difference(call: Call) -> str | None:
    """How the two answers to a call differ in kind: taken or refused, the error's class."""
    theirs, ours = call.outcome(torch), call.outcome(skimp)
    if isinstance(theirs, Refused) and isinstance(ours, Refused):
        return None if theirs.kind == ours.kind else f"class: {ours!r} instead of {theirs!r}"
    if isinstance(theirs, Refused):
        return f"taken: PyTorch says {theirs!r}"
    if isinstance(ours, Refused):
        return f"refused: {ours!r}"
    return _unlike(ours, theirs)


def _unlike(ours: Any, theirs: Any) -> str | None:
    if isinstance(theirs, torch.Tensor):
        if not isinstance(ours, skimp.Tensor):
            return f"kind: {type(ours).__name__} instead of Tensor"
        mine, other = (str(ours.dtype), tuple(ours.shape)), (str(theirs.dtype), tuple(theirs.shape))
        return None if mine == other else f"result: {mine} instead of {other}"
    if isinstance(theirs, (tuple, list)):
        if not isinstance(ours, (tuple, list)) or len(ours) != len(theirs):
            return f"kind: {ours!r} instead of {theirs!r}"
        found = [_unlike(a, b) for a, b in zip(ours, theirs, strict=True)]
        return next((f for f in found if f), None)
    if isinstance(theirs, (bool, int, str, type(None))) and type(ours) is not type(theirs):
        return f"kind: {ours!r} instead of {theirs!r}"
    return None


class Known:
    """The differences that stay, from a list with reasons, and which of them were met.

    A row has functions' names, regular expressions for the call's text and for what was told of it,
    and the type of the argument that was replaced; what it doesn't name it doesn't ask for.
    """

    def __init__(self, path: Path, table: str) -> None:
        self.rows = tomllib.loads(path.read_text())[table]
        assert all(row["reason"] for row in self.rows)
        self.met: set[int] = set()

    def covers(self, call: Call, told: str = "") -> bool:
        found = [i for i, row in enumerate(self.rows) if _matches(row, call, told)]
        self.met.update(found)
        return bool(found)

    def stale(self) -> list[Any]:
        return [row for i, row in enumerate(self.rows) if i not in self.met]


def _matches(row: dict[str, str], call: Call, told: str) -> bool:
    wrong = call.wrong.removesuffix("?")
    return (
        call.form.path in row.get("of", call.form.path).split()
        and re.search(row.get("call", ""), repr(call)) is not None
        and re.search(row.get("told", ""), told) is not None
        and row.get("wrong", wrong) == wrong
    )


def same_as_pytorch(calls: Callable[[Form], Iterable[Call]], known: Known) -> int:
    """Ask of every form of every space that its calls do what PyTorch's do, but for what is known;
    how many calls there were.
    """
    wrong, count = [], 0
    for space in SPACES:
        for form in forms(space):
            for call in calls(form) if valid(form) is not None else ():
                count += 1
                told = difference(call)
                if told is not None and not known.covers(call, " ".join(told.split())):
                    wrong.append(f"{call}: {told}")
    assert not wrong, "\n".join([f"{len(wrong)} of {count} calls", *wrong])
    assert not known.stale()
    return count
