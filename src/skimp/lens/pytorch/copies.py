"""What PyTorch's functions copy: told from what a call was given and what it returned."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from skimp._engine.memory.call_site import Site
from skimp.lens.collect import BY_NATURE
from skimp.lens.layouts import Source
from skimp.lens.pytorch.facts import Copied, Given, address

# functions that return what they are given, or a view of it, where they can
_FORCED: Final = frozenset(
    [
        *("clone", "contiguous", "flatten", "ravel", "reshape", "reshape_as", "to", "type"),
        *("bfloat16", "bool", "double", "float", "half", "int", "long"),
    ]
)
_WRITES: Final = ("copy_", "setitem")


class Copies:
    """Looks at calls: who laid tensors out, and which calls copied them."""

    def __init__(self) -> None:
        self._laid = WeakTensorKeyDictionary()  # the places of views that don't lie row by row

    def given(self, op: str, place: int, args: tuple[Any, ...]) -> Given | None:
        """What an op that copies by nature was given."""
        source = self._source(args) if op in BY_NATURE else None
        return None if source is None else Given(place, source)

    def returned(
        self, op: str, place: int, site: Site, args: tuple[Any, ...], result: Any
    ) -> Copied | None:
        """The copy that a call has made, if it has made one."""
        if op in _WRITES:
            written = args[-1] if op == "setitem" else args[1] if len(args) > 1 else None
            if not isinstance(written, torch.Tensor):
                return None
            nbytes = written.numel() * args[0].element_size()
            return Copied(place, op, nbytes, self._source((written,)), False)
        if not isinstance(result, torch.Tensor) or not args:
            return None
        first = args[0]
        if not isinstance(first, torch.Tensor):
            return None
        if op in _FORCED and address(first) != address(result):
            return Copied(place, op, result.nbytes, self._source(args), True)
        if result.layout is torch.strided and not result.is_contiguous():
            self._laid[result] = self._laid.get(first) or site
        return None

    def _source(self, given: Any) -> Source | None:
        while isinstance(given, (tuple, list)) and given:
            given = given[0]
        if not isinstance(given, torch.Tensor) or given.layout is not torch.strided:
            return None
        return Source(
            tuple(given.shape), tuple(given.stride()), address(given), self._laid.get(given)
        )
