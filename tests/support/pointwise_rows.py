"""The pointwise functions of the registry by their arguments, and numbers to try them on."""

from __future__ import annotations

import torch
from torch.testing._internal.common_methods_invocations import op_db

import skimp  # noqa: F401  (declares the rows)
from skimp._engine.dispatch.pointwise_forms import ROWS
from skimp._engine.dispatch.row import FORMS, NAMESPACES
from tests.support.samples import numbers

INF, NAN = float("inf"), float("nan")
HALVES = ("float16", "bfloat16")

# functions of one and of two tensors that are not made of a row alone
OF_ONE = ("conj_physical", "logit", "nan_to_num", "positive", "round")
OF_TWO = ("float_power", "pow")


def _of(count: int, space: str) -> dict[str, str]:
    """The functions of so many tensors in a namespace, and what the registry calls each."""
    rows = {name for name, row in ROWS.items() if len(row.args) == count}
    rows.update((OF_ONE, OF_TWO)[count - 1])
    theirs = torch.special if space else torch
    forms = {name: FORMS[f] for name, f in NAMESPACES[space].items() if f in FORMS}
    return {
        name: form.name
        for name, form in sorted(forms.items())
        if form.op.name in rows and not form.writes and hasattr(theirs, name)
    }


SPECIAL, TWO_SPECIAL = list(_of(1, "special")), list(_of(2, "special"))
UNARY, BINARY = ([n for n, title in _of(k, "").items() if n == title] for k in (1, 2))
# by PyTorch's database other names, but with fewer arguments or with names of their own
OTHER_ARGUMENTS = ("true_divide", "maximum", "minimum", "swapaxes")
# by PyTorch's database: other names of the same function
ALIASES = {
    alias.name: info.name
    for info in op_db
    for alias in info.aliases
    if "." not in alias.name + info.name and hasattr(torch, info.name)
    if alias.name not in OTHER_ARGUMENTS
}
OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("and_", "or_", "xor", "lshift", "rshift", "eq", "ne", "lt", "le", "gt", "ge"),
)


def tolerance(*dtypes: str) -> float:
    if "bfloat16" in dtypes:
        return 2e-2
    return 2e-3 if "float16" in dtypes else 3e-6


def quarters(shape: tuple[int, ...], dtype: str, seed: int = 0) -> torch.Tensor:
    """Small numbers, fractions among them where the type has any, and no zero."""
    x = numbers(shape, dtype, seed)
    if dtype == "bool":
        return x
    if x.is_floating_point() or x.is_complex():
        x = x / 4 + 0.125
    return x if x.is_floating_point() or x.is_complex() else torch.where(x == 0, 1, x).to(x.dtype)


def odd(dtype: str) -> torch.Tensor:
    """Numbers at which functions differ: zeros, infinities, NaN, poles."""
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 1e-3, 30.0, INF, -INF, NAN]
    return torch.tensor(values).to(getattr(torch, dtype))
