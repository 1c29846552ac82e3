"""PyTorch's first optimizers of lists of tensors: the optimizers, with `foreach=True`."""

from __future__ import annotations

from functools import partialmethod
from typing import Any

from skimp import optim

_NAMES = (
    "ASGD", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop",
    "Rprop",
)  # fmt: skip


def _of_lists(cls: type[Any]) -> type[Any]:
    members = {"__init__": partialmethod(cls.__init__, foreach=True), "__module__": __name__}
    return type(cls.__name__, (cls,), members)


globals().update({name: _of_lists(getattr(optim, name)) for name in _NAMES})
