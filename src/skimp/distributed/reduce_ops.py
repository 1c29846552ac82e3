"""How values of several ranks are combined."""

from __future__ import annotations

import enum
from typing import Any

from skimp._engine.memory.call_site import warn


class ReduceOp(enum.Enum):
    """How values are combined. PREMUL_SUM needs a factor: `_make_nccl_premul_sum`."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)

    def __repr__(self) -> str:
        return f"<RedOpType.{self.name}: {self.value}>"

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # the members' class in PyTorch


class PremulSum:
    """Values are multiplied by a number, or by a tensor of one element, and summed."""

    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def __repr__(self) -> str:
        return "<RedOpType.PREMUL_SUM: 8>"


def _make_nccl_premul_sum(factor: Any) -> PremulSum:  # PyTorch's name
    """The sum of each rank's values times its `factor`."""
    return PremulSum(factor)


class _Older:
    """Operations as attributes, as programs of 2017 ask for them."""

    def __getattr__(self, name: str) -> ReduceOp:
        warn(
            "`torch.distributed.reduce_op` is deprecated, please use `torch.distributed.ReduceOp` "
            "instead",
            FutureWarning,
        )
        if name not in ReduceOp.__members__:
            raise AttributeError(f"torch.distributed.reduce_op has no {name!r}")
        return ReduceOp[name]


reduce_op = _Older()
BITWISE = frozenset({ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR})
# what has no meaning for complex numbers
ORDERED = frozenset({ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, *BITWISE})
