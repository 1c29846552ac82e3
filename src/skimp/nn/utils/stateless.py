"""Calling a module with other tensors in place of its parameters and buffers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skimp._engine.interrupts import insist, region
from skimp._engine.tensor.tensor import Tensor

__all__ = ["functional_call"]


def functional_call(
    module: Any,
    parameters_and_buffers: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with these tensors, by dotted name (or a tuple of such
    dictionaries).

    Shape: as the module's.
    Raises: RuntimeError with `strict` for names that are missing or unknown; ValueError for tied
    tensors that are given twice.
    Memory: the module's own tensors are put back afterwards, also after an exception.
    """
    tensors = _merged(parameters_and_buffers)
    if args is None:
        args = ()
    elif not isinstance(args, tuple):
        args = (args,)
    with _reparametrize_module(module, tensors, tie_weights, strict):
        return module(*args, **(kwargs or {}))


def _merged(given: Any) -> dict[str, Tensor]:
    if isinstance(given, dict):
        return given
    if not isinstance(given, (tuple, list)):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            + str(type(given))
        )
    found: dict[str, Tensor] = {}
    for part in given:
        for name, tensor in part.items():
            if name in found:
                raise ValueError(
                    f"{[name]} appeared in multiple dictionaries; behavior of functional call is "
                    "ambiguous"
                )
            found[name] = tensor
    return found


def _tied(module: Any, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, under the other names of the same parameters too."""
    names: dict[int, list[str]] = {}
    for walk in (module.named_parameters, module.named_buffers):
        for name, tensor in walk(remove_duplicate=False):
            names.setdefault(id(tensor), []).append(name)
    found = dict(tensors)
    for together in names.values():
        given = [name for name in together if name in tensors]
        if len({id(tensors[name]) for name in given}) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(given)}, which are tied. "
                "Consider using tie_weights=False"
            )
        for name in together if given else ():
            found[name] = tensors[given[0]]
    return found


_NOTHING = object()  # of a name that the module has not: an attribute while it is called
_Replaced = tuple[dict[str, Any], str, Any, str, Tensor]  # where, its key and value; whose, which


@region
def _reparametrize_module(
    module: Any,
    parameters_and_buffers: dict[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """Inside, `module` has these tensors, by dotted name, in place of its own (libraries take this
    name from inside).

    `stack_weights`, which asks that the last replaced is put back first, is so in any case.
    """
    given = parameters_and_buffers
    tensors = _tied(module, given) if tie_weights else given
    own = {
        n
        for walk in (module.named_parameters, module.named_buffers)
        for n, _ in walk(remove_duplicate=False)
    }
    if strict:
        _check_strict(module._get_name(), own, set(tensors))
    before: list[_Replaced] = []
    try:
        for name, tensor in tensors.items():
            path, _, last = name.rpartition(".")
            owner = module.get_submodule(path)
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{tensor} is not an instance of torch.Tensor")
            places = (owner._parameters, owner._buffers)
            place = next((p for p in places if last in p), vars(owner))
            old = place.get(last, _NOTHING)
            place[last] = tensor
            before += ((place, last, old, name, tensor),)  # one step with the line above
        yield
    finally:
        insist(_put_back, before, given)


def _put_back(before: list[_Replaced], given: dict[str, Any]) -> None:
    """Give the places what they had, the last one first. Twice is once."""
    while before:
        place, last, old, name, tensor = before[-1]
        now = place.get(last)
        if name in given and now is not tensor:
            given[name] = now  # forward assigned another tensor: the caller sees it, the module not
        if old is not _NOTHING:
            place[last] = old
        elif last in place:
            del place[last]
        del before[-1]  # one step with the lines above


def _check_strict(title: str, own: set[str], given: set[str]) -> None:
    parts = []
    for what, names in (("Unexpected", given - own), ("Missing", own - given)):
        if names:
            listed = ", ".join([repr(n) for n in sorted(names)])
            parts.append(f"{what} key(s): {listed}.")
    if parts:
        raise RuntimeError(f"Error(s) in reparametrizing for {title}:\n\t" + "\n\t".join(parts))
