"""What types the arguments of ops have in PyTorch: its parser's judgement of a call.

The bodies of ops don't ask for the types of their arguments. A call that has failed, or that comes
through a door where asking costs nothing, is judged by PyTorch's own schemas (schemas.txt, which
tools/schemas.py writes): where none of an op's overloads takes it, it is refused in the parser's
words.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from skimp._compat.homes import LAYERS
from skimp._engine.dispatch.in_python import binds
from skimp._engine.dispatch.row import Form
from skimp._engine.tensor import devices, dtypes, formats
from skimp._engine.tensor.dtypes import INT64_END
from skimp._engine.tensor.tensor import Tensor

# functions in Python that hand everything to a kernel of another name
_KERNELS: Final = {"unfold": "im2col", "fold": "col2im"}
# arguments that a function in Python takes as other things than the kernel it calls
_IN_PYTHON: Final = ("reduction", "mode", "output_size", "offsets")
FILE: Final = os.path.join(os.path.dirname(__file__), "schemas.txt")
# where PyTorch takes numbers for tensors
_NUMBERS_TOO: Final = re.compile(
    r"(add|sub(tract)?|mul(tiply)?|(true_|floor_)?div(ide)?|fmod|remainder|copy|to)_?"
)
# where its parser has no overload of its own for a number: it is a tensor's
_SCALED: Final = re.compile(r"(add|sub|mul)_?")


class Arg(NamedTuple):
    """One argument: `Tensor`, `int[2]?` and so on."""

    name: str
    type: str
    required: bool
    keyword: bool


def keys(form: Form) -> Iterator[str]:
    """The names that an op's form may have in PyTorch's schemas, the likeliest first: none for
    torch.masked's, which are functions in Python with signatures of their own.
    """
    if "masked" in form.op.namespaces:
        return
    if LAYERS in form.op.namespaces and form.name in _KERNELS:
        yield _KERNELS[form.name]
    for space in form.op.namespaces:
        if space in ("linalg", "fft", "special"):
            yield f"{space}_{form.name}"
    yield form.name


@functools.cache
def _lines() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    with open(FILE, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in lines:
        name, _, text = line.partition(": ")
        found.setdefault(name, []).append(text)
    return found


@functools.cache
def overloads(form: Form) -> tuple[tuple[Arg, ...], ...]:
    """The overloads of an op; none where PyTorch has no schema of that name, or a function in
    Python that looks at its arguments itself.
    """
    if "" in form.op.namespaces and binds("", form.name):
        return ()
    known = _lines()
    texts = next((known[key] for key in keys(form) if key in known), [])
    return tuple([tuple([_read(part) for part in text.split(", ")]) for text in texts])


def _read(part: str) -> Arg:
    name, kind = part.split(" ")
    return Arg(name.lstrip("*"), kind.rstrip("="), kind[-1] != "=", name[0] == "*")


class Taken(NamedTuple):
    """An overload and the values that it takes, under its own names."""

    args: tuple[Arg, ...]
    given: Mapping[str, Any]


def judge(form: Form, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Taken | None:
    """Raise PyTorch's TypeError where no overload takes these arguments; else what `overload_for`
    finds.
    """
    found = overload_for(form, given, defaults)
    if isinstance(found, Misfits):
        raise TypeError(_words(form.name, found.given, found.wrong))
    if found is not None:
        _unpack(form.name, found)
    return found


class Misfits(NamedTuple):
    """What no overload takes, and what is wrong with it for each."""

    given: Mapping[str, Any]
    wrong: list[str]


def overload_for(
    form: Form, given: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Taken | Misfits | None:
    """The first overload that takes these arguments: those that were given, by name, or as `#2` by
    position; starred ones as a tuple.

    `defaults` are values that the op's own signature has: where one of them is what an overload
    takes, it is not missing.
    None where nothing is known of such arguments.
    """
    every = overloads(form)
    known = {arg.name for args in every for arg in args}
    loose = any([binds(space, form.name) for space in form.op.namespaces])
    if loose:  # what a function in Python keeps for itself
        given = {n: v for n, v in given.items() if n in known}
    if not given or not every or not known.issuperset([n for n in given if n[0] != "#"]):
        return None
    calls = [_ways(args, given) for args in every]
    scaled = _SCALED.fullmatch(form.name) is not None
    how = _Rules(_NUMBERS_TOO.fullmatch(form.name) is not None, loose, defaults, scaled)
    wrong = []
    for args, ways in zip(every, calls, strict=True):
        told = [_misfit(args, way, how) for way in ways] or ["got multiple values for an argument"]
        if None in told:
            return Taken(args, ways[told.index(None)])
        if not (how.scaled and any([(a.name, a.type) == ("other", "Number") for a in args])):
            wrong.append(str(told[0]))
    return Misfits(given, wrong)


class _Rules(NamedTuple):
    """Whether numbers pass for tensors; whether it is a function in Python that is called first,
    with defaults and names of reductions of its own; what the op's own defaults are; whether the
    parser knows only the overload of two tensors.
    """

    numbers: bool
    loose: bool
    defaults: Mapping[str, Any]
    scaled: bool


def _ways(args: Sequence[Arg], given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The values as they are named, and under the overload's names; neither where it has one name
    for two of them.
    """
    return [given, placed] if len(placed := _by_position(args, given)) == len(given) else []


def _by_position(args: Sequence[Arg], given: Mapping[str, Any]) -> dict[str, Any]:
    """The same values under this overload's names: an op's signature has one name for what two
    overloads take in one place. What has a name that the overload knows is that argument.
    """
    own = {arg.name for arg in args}
    found = {}
    for i, (name, value) in enumerate(given.items()):
        other = args[i] if i < len(args) and name not in own else None
        found[name if other is None or other.keyword else other.name] = value
    return found


def _misfit(args: Sequence[Arg], given: Mapping[str, Any], how: _Rules) -> str | None:
    """What an overload has against the arguments; None if nothing."""
    names = {arg.name for arg in args}
    if not names.issuperset(given):
        return ""
    for position, arg in enumerate(args):
        if arg.name not in given:
            left_out = arg.name in how.defaults and fits(arg, how.defaults[arg.name])
            if arg.required and not how.loose and not left_out:
                return f'missing 1 required positional arguments: "{arg.name}"'
            continue
        value = given[arg.name]
        if how.loose and arg.name in _IN_PYTHON:
            continue
        if not fits(arg, value, how.numbers):
            place = "" if arg.keyword else f" (position {position + 1})"
            if arg.type.startswith("Tensor[") and isinstance(value, (tuple, list)):
                at = next(i for i, v in enumerate(value) if not isinstance(v, Tensor))
                return (
                    f"expected Tensor as element {at} in argument {position}, "
                    f"but got {type(value[at]).__name__}"
                )
            return f"argument '{arg.name}'{place} must be {_shown(arg.type)}, not {_kind(value)}"
    return None


def _words(name: str, given: Mapping[str, Any], wrong: list[str]) -> str:
    """One overload says what is wrong with an argument; several, what the call was."""
    if len(wrong) == 1:
        return (
            wrong[0]
            if wrong[0].startswith("expected")
            else f"{name}() {wrong[0]}".replace("() argument", "(): argument")
        )
    told = [w for w in wrong if w.startswith("expected")]
    if told and len(told) == len([w for w in wrong if w]):
        return told[0]
    shown = ", ".join([_kind(v) if n[0] == "#" else f"{n}={_kind(v)}" for n, v in given.items()])
    return f"{name}() received an invalid combination of arguments - got ({shown})"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"torch.{name}" if isinstance(value, dtypes.dtype) else name


def _shown(kind: str) -> str:
    kind = kind.rstrip("?")
    if "[" in kind:
        inner = kind.partition("[")[0]
        return f"tuple of {inner}s"
    return f"torch.{kind}" if kind in _TORCH else kind


_TORCH = ("dtype", "layout", "device", "memory_format", "Generator")


# -- types ----------------------------------------------------------------------------------------


def fits(arg: Arg, value: Any, numbers: bool = False) -> bool:
    """Whether PyTorch's parser takes a value for an argument."""
    kind = arg.type
    if value is None:
        optional = kind == "dtype" and not arg.required
        return kind[-1] == "?" or optional or arg.name == "requires_grad"
    kind = kind.rstrip("?")
    if kind[-1] == "]":
        inner, _, length = kind[:-1].partition("[")
        return _fits_list(inner.rstrip("?"), length, value)
    return _FITS[kind](value) or (numbers and kind == "Tensor" and is_number(value))


def _fits_list(inner: str, length: str, value: Any) -> bool:
    if isinstance(value, Tensor) and inner != "Tensor":
        if inner == "int":  # a bool too, whatever its shape
            return length != "" and value.numel() == 1 and value._dtype.category < dtypes.FLOAT
        return value.ndim == 0 and length != "" and _FITS[inner](value)
    if not isinstance(value, (tuple, list)):
        return length != "" and inner != "Tensor" and _FITS[inner](value)
    if inner == "Tensor":
        return all([isinstance(t, Tensor) or t is None for t in value])
    return not value or _FITS[inner](value[0]) or isinstance(value[0], Tensor)


def _is_int(value: Any) -> bool:
    if isinstance(value, Tensor):
        return (
            value.ndim == 0
            and not value._rg
            and value._dtype.category < dtypes.FLOAT
            and value._dtype is not dtypes.bool
        )
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether PyTorch's parser takes a value for a number: a tensor of no dims is one."""
    if isinstance(value, Tensor):
        return value.ndim == 0 and not value.requires_grad
    return isinstance(value, (int, float, complex, np.number, np.bool_))


def _is_real(value: Any) -> bool:
    if isinstance(value, Tensor):
        return is_number(value) and value._dtype.category < dtypes.COMPLEX
    return isinstance(value, (int, float, np.floating, np.integer, np.bool_))


_FITS: Final[dict[str, Callable[[Any], bool]]] = {
    "Tensor": lambda v: isinstance(v, Tensor),
    "int": _is_int,
    "bool": lambda v: isinstance(v, bool),
    "float": _is_real,
    "Number": is_number,
    "str": lambda v: isinstance(v, (str, bytes)),
    "dtype": lambda v: isinstance(v, dtypes.dtype) or v in (bool, int, float, complex),
    "layout": lambda v: isinstance(v, formats.layout),
    "memory_format": lambda v: isinstance(v, formats.memory_format),
    "device": lambda v: isinstance(v, (str, int, devices.device)) and not isinstance(v, bool),
    "Generator": lambda v: hasattr(v, "manual_seed"),
}


def _unpack(name: str, taken: Taken) -> None:
    """Refuse what the parser took by its first element and can't unpack."""
    for arg in taken.args:
        values = taken.given.get(arg.name)
        if not arg.type.startswith("int[") or not isinstance(values, (tuple, list)):
            continue
        for i, item in enumerate(values):
            one = isinstance(item, Tensor) and item.numel() == 1
            if not (_is_int(item) or isinstance(item, bool) or one):  # the first is no bool
                kind = type(item).__name__
                _refuse_item(name, arg, i, f"type must be tuple of ints,but got {kind}")


def _refuse_item(name: str, arg: Arg, i: int, what: str) -> NoReturn:
    raise TypeError(
        f"{name}(): argument '{arg.name}' failed to unpack the object at pos {i + 1} "
        f'with error "{what}"'
    )


def refuse_wide(name: str, taken: Taken) -> None:
    """Raise PyTorch's error where an integer has more than 64 bits."""
    what = "Overflow when unpacking long long"
    for arg in taken.args:
        value = taken.given.get(arg.name)
        listed = arg.type.startswith("int[")
        if _too_wide(value) and (listed or arg.type.rstrip("?") == "int"):
            raise ValueError(what)
        if listed and isinstance(value, (tuple, list)):
            for i, item in enumerate(value):
                if _too_wide(item):
                    _refuse_item(name, arg, i, what)


def _too_wide(value: Any) -> bool:
    return isinstance(value, int) and not -INT64_END <= value < INT64_END
