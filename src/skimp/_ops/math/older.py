"""What PyTorch says, once in a process, of older calls of arithmetic."""

from __future__ import annotations

from skimp._engine.memory.call_site import warn_once


def say_factor_first(name: str) -> None:
    """Of add(input, alpha, other), in the words for the method."""
    warn_once(
        f"This overload of {name} is deprecated:\n\t{name}(Number alpha, Tensor other)\n"
        f"Consider using one of the following signatures instead:\n\t{name}(Tensor other, *, "
        "Number alpha = 1)",
        "overloads",
    )
