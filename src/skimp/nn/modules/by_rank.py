"""Layers that there are for one, two and three dimensions, and what follows from the number."""

from __future__ import annotations

from typing import Any, ClassVar

from skimp._engine.tensor.options import own_init
from skimp.nn.modules.module import Module

INPUT = {
    1: "(N, C, L) or (C, L)",
    2: "(N, C, H, W) or (C, H, W)",
    3: "(N, C, D, H, W) or (C, D, H, W)",
}


class ByRank(Module):
    """A layer whose class statement says for how many dimensions it is:

        class Conv1d(_ForwardConv, dims=1): ...

    The function's name is the base's `_skimp_family` with the number, and the docstring, where a
    class writes none, its `_skimp_about`, in which `{input}` is the input's shape and `{dims}` the
    number.
    """

    _skimp_inputs: ClassVar[dict[int, str]] = INPUT
    _skimp_owns_init: ClassVar[bool] = False  # members have an `__init__` of their own in PyTorch

    _skimp_family: ClassVar[str] = ""
    _skimp_about: ClassVar[str] = ""
    _skimp_dims: ClassVar[int]
    _skimp_function: ClassVar[str]

    def __init_subclass__(cls, dims: int | None = None, **words: Any) -> None:
        super().__init_subclass__(**words)
        if dims is None:
            return
        cls._skimp_dims, cls._skimp_function = dims, f"{cls._skimp_family}{dims}d"
        if cls._skimp_owns_init:
            own_init(cls)
        if cls.__doc__ is None:  # a class of its own may say more
            cls.__doc__ = cls._skimp_about.format(input=cls._skimp_inputs[dims], dims=dims)
