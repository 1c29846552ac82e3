"""What the files of pointwise rows share: short names, pieces of derivatives, unary and binary
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.pointwise import Pointwise, call
from skimp._engine.dispatch.pointwise_forms import binary, unary
from skimp._engine.dispatch.result_types import Types, floating
from skimp._engine.generated import function_of
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor

BOOL, INT, FLOAT, COMPLEX = dtypes.BOOL, dtypes.INT, dtypes.FLOAT, dtypes.COMPLEX
PAIR = ("input", "other")
NO_HALVES = {dtypes.float16: None, dtypes.bfloat16: None}


def conj(t: Any) -> Any:
    """A factor, tensor or number, as it multiplies a complex gradient; itself if it is real."""
    if isinstance(t, Tensor):
        return t.conj() if t._dtype.is_complex else t
    return t.conjugate() if isinstance(t, complex) else t


def formula_of(
    name: str, of: str, params: tuple[str, ...], row: Pointwise | None = None
) -> Callable[..., Any]:
    """The formula of a gradient that a row (if there is none yet, the caller sets its global `row`)
    computes from the one that arrives and a tensor `of`.
    """
    given = "".join([f", {p}" for p in params])
    text = [
        f"def function(g, {of}{given}):",
        f"    made = row.fast(g, {of}{given})",  # as `call` asks it first
        "    if made is not None:",
        "        return made",
        f"    return call(row, (g, {of}), ({given[2:]}{',' if params else ''}))",
    ]
    return function_of(f"{name}_formula", text, {"call": call, "row": row})


def zeros(g: Tensor) -> Tensor:
    """The gradient of a function that is flat: one zero, expanded."""
    return g.new_zeros(()).expand(g.shape)


def node_name(name: str, number: int = 0) -> str:
    """An op's node in PyTorch: `nan_to_num` has a NanToNumBackward0, `log1p` a Log1PBackward0."""
    return f"{name.title().replace('_', '')}Backward{number}"


def refused(name: str) -> Rule:
    """The rule of an op that has no derivative: backward says so."""

    def formula(g: Tensor) -> Tensor:
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    return Rule("NotImplemented", input=formula, other=formula, values=formula)


def unary_row(
    name: str,
    kernels: Any,
    formula: Callable[..., Any] | None = None,
    *,
    types: Types = floating,
    title: str | None = None,
    node: str | None = None,
    opmath: bool = True,
    also: tuple[dtypes.dtype, ...] = (),
    overlap: tuple[int, ...] | None = None,
    **forms: Any,
) -> Callable[..., Any]:
    """Declare an op with one tensor argument by its kernels and the formula of its gradient."""
    rule = Rule(node or node_name(name), input=formula) if formula is not None else None
    row = Pointwise(
        name, kernels, types, rule, title=title, opmath=opmath, also=also, overlap=overlap
    )
    return unary(row, **forms)


def binary_row(
    name: str,
    kernels: Any,
    types: Types,
    derivative: Rule | Mapping[str, Callable[..., Any]] | None,
    *,
    args: tuple[str, str] = PAIR,
    numbers: tuple[int, ...] | None = None,
    overlap: tuple[int, ...] | None = None,
    own: bool | None = None,
    **forms: Any,
) -> Callable[..., Any]:
    """Declare an op with two arguments by its kernels and the formulas of their gradients."""
    rule = derivative
    if not (rule is None or isinstance(rule, Rule)):
        rule = Rule(node_name(name), rule)
    row = Pointwise(name, kernels, types, rule, args, numbers=numbers, overlap=overlap, own=own)
    return binary(row, **forms)
