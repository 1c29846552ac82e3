"""Older calls, whose numbers stand before the tensors: `addmm(beta, input, alpha, mat1, mat2)`.

PyTorch's parser still takes them, and says so once in a process, of whichever comes first.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.row import Form
from skimp._engine.dispatch.schemas import is_number
from skimp._engine.memory.call_site import warn_once
from skimp._engine.tensor.tensor import Tensor


def say(name: str, older: str, instead: str) -> None:
    """What PyTorch says of such a call, in the words for the method."""
    warn_once(
        f"This overload of {name} is deprecated:\n\t{name}({older})\n"
        f"Consider using one of the following signatures instead:\n\t{name}({instead})",
        "overloads",
    )


def in_order(form: Form, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
    """Call an op of `input`, two tensors, `beta` and `alpha` that was given its numbers by
    position: the function's beta comes first, the method's follows the tensor.

    Raises: TypeError for what no overload takes.
    """
    name = form.name
    beta, input, *rest = args if _begins(args) else (args[1], args[0], *args[2:])
    alpha = rest.pop(0) if len(rest) == 3 else 1
    numbers = is_number(beta) and is_number(alpha)
    if not numbers or len(rest) != 2 or words["beta"] != 1 or words["alpha"] != 1:
        raise TypeError(f"{name}() takes 3 positional arguments but {len(args)} were given")
    first, second = [n for n, _, _ in form.op.parameters[1:3]]
    more = "Number alpha, " if len(args) == 5 else ""
    say(
        name,
        f"Number beta, {more}Tensor {first}, Tensor {second}",
        f"Tensor {first}, Tensor {second}, *, Number beta = 1, Number alpha = 1",
    )
    return form.f(input, *rest, **{**words, "beta": beta, "alpha": alpha})


def _begins(args: tuple[Any, ...]) -> bool:
    """Whether the number comes before the tensor (which may be one of no dims itself)."""
    return is_number(args[0]) and isinstance(args[1], Tensor)
