"""What autograd computes with: its table, filled by the ops that this room declares."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.ops import Ops, install
from skimp._engine.tensor.tensor import Tensor
from skimp._ops.shape.strided_gradient import gather_strided_gradient


def _own(name: str) -> Any:
    """The method of that name that a tensor's class has: one of sparse tensors, or under vmap."""

    def run(t: Any, *args: Any, **words: Any) -> Any:
        return getattr(t, name)(*args, **words)

    return run


def give_ops() -> None:
    """Give autograd its ops, once all are declared."""
    methods: Any = Tensor
    install(
        Ops(
            add_=methods.add_,
            any=methods.any,
            as_strided=methods.as_strided,
            clone=_own("clone"),
            conj=_own("conj"),
            contiguous=_own("contiguous"),
            copy_=methods.copy_,
            expand=methods.expand,
            new_empty=_own("new_empty"),
            new_zeros=_own("new_zeros"),
            real=methods.real.__get__,
            strided_gradient=gather_strided_gradient,
            sum=methods.sum,
            to=_own("to"),
            view=methods.view,
            view_as_complex=methods.view_as_complex,
            view_as_real=methods.view_as_real,
            zero_=methods.zero_,
        )
    )
