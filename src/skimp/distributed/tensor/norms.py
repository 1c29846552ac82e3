"""Norms of tensors that ranks hold together."""

from __future__ import annotations

import math
from typing import Any

from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.reduce_ops import ReduceOp
from skimp.distributed.reductions import all_reduce
from skimp.distributed.tensor.spec import spec_of


def over_ranks(norms: Tensor, tensors: list[Any], norm_type: float) -> Tensor:
    """The norms of whole tensors, from the norms of this rank's parts: all ranks must ask, with the
    same tensors.
    """
    found = norms.clone()
    for i, t in enumerate(tensors):
        spec = spec_of(t)
        if spec is None or spec.dim is None:
            continue
        one = found[i : i + 1]
        group = spec.group
        if math.isinf(norm_type):
            all_reduce(one, ReduceOp.MAX if norm_type > 0 else ReduceOp.MIN, group)
        elif norm_type == 0:
            all_reduce(one, ReduceOp.SUM, group)
        else:
            powers = one**norm_type
            all_reduce(powers, ReduceOp.SUM, group)
            one.copy_(powers ** (1.0 / norm_type))
    return found
