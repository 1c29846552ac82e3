"""What a docstring says of shapes, dtypes, errors and memory where the op's row knows it.

A body says what the op computes; its kind, its types and its kernels say the rest, in the sections
that are written by hand elsewhere: Shape, Dtypes, Raises, Memory. What holds of all ops of a file
is its `SAYS`. Where nobody says something else, all dtypes are taken and the result is new.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from skimp._engine.dispatch import result_types
from skimp._engine.dispatch.docstrings import completed, is_said, of_file, sections
from skimp._engine.dispatch.pointwise import Pointwise
from skimp._engine.dispatch.pointwise_forms import ROWS
from skimp._engine.dispatch.row import FORMS, NAMESPACES, REQUIRED, Form
from skimp._engine.dispatch.signatures import Argument, arguments_of, arguments_of_code
from skimp._engine.memory.ledger import host
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import fresh

_SAME = re.compile(r"\(?nn\.functional\.(\w+)")  # another form of that function
_KINDS = {
    "bool": dtypes.bool,
    "integers": dtypes.int64,
    "floating point": dtypes.float32,
    "complex numbers": dtypes.complex64,
}
_of_file = cache(of_file)
_RESULTS: dict[Callable[..., Any], str] = {
    result_types.floating: "integers and bools count as the default float type",
    result_types.same: "the result has the type that they promote to",
    result_types.predicate: "the result is bool",
    result_types.real_valued: "complex numbers give real ones",
}


def describe_all() -> None:
    """Complete the docstrings of all forms; called once all rows are declared."""
    for f, form in sorted(FORMS.items(), key=lambda pair: bool(_SAME.match(pair[0].__doc__ or ""))):
        if f.__doc__ and not f.__doc__.startswith("Refused"):
            known = [*_sections(form, f), *said_of_same(f.__doc__), *_usual(form, f)]
            f.__doc__ = completed(f.__doc__, known)
    for remembered in (_of_file, _errors_of):
        remembered.cache_clear()
    host.reset_peak()  # the operands that rows were asked about are no program's


def said_of_same(text: str) -> list[str]:
    """What is said of the function of nn.functional that this is another form of."""
    found = _SAME.match(text)
    known = NAMESPACES["nn.functional"].get(found[1]) if found else None
    return sections(known.__doc__ or "") if known else []


def _sections(form: Form, f: Callable[..., Any]) -> list[str]:
    """What the row knows, then what the op's file says of all its ops."""
    op = form.op
    row = op.row or ROWS.get(op.name.removesuffix("_"))
    parameters = _names(f)
    if isinstance(row, Pointwise):
        return _of_pointwise(row, form.writes, parameters)
    known = _of_reduction(_taken(f)) if op.kind == "reduction" else []
    if form.writes:
        moved = "the tensor itself has the new shape; no byte moves."
        known.append(f"Memory: {moved if op.kind == 'view' else 'written in place.'}")
    elif op.kind == "view":
        known.append("Memory: a view, which shares the input's bytes.")
    elif op.kind == "reduction" or op.rule is not None:
        known.append("Memory: a new tensor.")
    known += [said for said in _of_file(op.raw.__module__) if not is_said(said, known)]
    if form.writes and not is_said("Raises", known):
        known.append("Raises: RuntimeError for a leaf that requires grad.")
    to_out = [s.replace("new tensor.", "new tensor, or `out`.") for s in known]
    return to_out if "out" in parameters else known


def _usual(form: Form, f: Callable[..., Any]) -> list[str]:
    """What holds where nobody says something else."""
    new = "a new tensor, or `out`." if "out" in _names(f) else "a new tensor."
    taken = "Dtypes: bool, integers, floating point and complex numbers."
    if form.op.looks:
        return ["Shape: any.", taken, "Raises: nothing.", "Memory: no tensor is made."]
    return [taken, f"Memory: {new}"]


def _of_pointwise(row: Pointwise, writes: bool, parameters: Iterable[str]) -> list[str]:
    one = len(row.args) == 1
    out = "out" in parameters
    shape = "any; the result's is the input's."
    if not one:
        shape = "tensors (and numbers) that broadcast; the result has their common shape."
    if writes:
        shape = "any." if one else "the others broadcast to the input's."
    errors_of = _errors_of(row)
    taken = [name for name, error in errors_of.items() if error is None]
    refused = {name: error for name, error in errors_of.items() if error is not None}
    result = _RESULTS.get(row.types, "")
    if one and row.types is result_types.same:
        result = "the result has the input's"
    errors = [
        f"{error} for {_listed([n for n, e in refused.items() if e == error])}"
        for error in dict.fromkeys(refused.values())
    ]
    if not one:
        errors.append("RuntimeError for shapes that don't broadcast")
    if writes:
        errors.append("RuntimeError where the result's type can't be cast to the input's")
    if not errors:
        errors.append(
            "RuntimeError for an `out` of a type that can't hold it" if out else "nothing"
        )
    new = f"a new tensor{', or `out`' if out else ''}; large ones are deferred."
    if "inplace" in parameters:
        new = f"{new[:-1]}; with `inplace` the input is written and returned."
    return [
        f"Shape: {shape}",
        f"Dtypes: {_listed(taken)}{f'; {result}' if result else ''}.",
        f"Raises: {'; '.join(errors)}.",
        f"Memory: {'written in place.' if writes else new}",
    ]


@cache
def _errors_of(row: Pointwise) -> dict[str, str | None]:
    """The classes of error with which a row refuses kinds of numbers."""
    return {name: _error(row, dtype) for name, dtype in _KINDS.items()}


def _error(row: Pointwise, dtype: dtypes.dtype) -> str | None:
    """The class of error with which a row refuses a dtype, if it does."""
    operand = fresh(np.empty(1, dtype.np), dtype)
    try:
        row.kernel(row.types((operand,) * len(row.args))[0])
    except (RuntimeError, TypeError) as refused:
        return type(refused).__name__
    return None


def _names(f: Any) -> Sequence[str]:
    """The names of what a form takes."""
    if "__wrapped__" in f.__dict__:
        return [a.name for a in arguments_of(f)]
    code = f.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names


def _taken(f: Any) -> dict[str, Any]:
    """The names of what a form takes, with their defaults."""
    found = arguments_of(f) if "__wrapped__" in f.__dict__ else arguments_of_code(f)
    return {a.name: a.default for a in found}


def _of_reduction(parameters: Mapping[str, Any]) -> list[str]:
    if not {"dim", "keepdim"} <= set(parameters):
        return []
    whole = not any([parameters["dim"] is none for none in (Argument.empty, REQUIRED)])
    return [
        f"Shape: {'one number without `dim`; ' if whole else ''}the input's less `dim`, which "
        "`keepdim` leaves with size 1.",
        "Raises: IndexError for a dim that is not there.",
    ]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
