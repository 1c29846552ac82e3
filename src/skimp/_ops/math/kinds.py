"""Questions about types and shapes of tensors and numbers."""

from __future__ import annotations

from typing import Any

from skimp._engine.dispatch.forms import export
from skimp._engine.dispatch.result_types import operand_kind
from skimp._engine.dispatch.row import sampled
from skimp._engine.tensor import dtypes, promotion
from skimp._engine.tensor.tensor import Tensor


@sampled(lambda tensor: [(tensor([[1, -2, 3]]), 3), (tensor([1]).int(), 2.5)])
def result_type(
    tensor1: Any = None,
    tensor2: Any = None,
    *,
    tensor: Any = None,
    other: Any = None,
    scalar: Any = None,
    scalar1: Any = None,
    scalar2: Any = None,
) -> dtypes.dtype:
    """The dtype that arithmetic on the two (tensors or numbers) gives. By name they are tensor1 and
    tensor2, tensor and other, scalar and tensor, or scalar1 and scalar2.

    Shape: any: a tensor without dims counts less than one with some.
    Dtypes: bool, integers, floating point and complex numbers.
    Raises: TypeError for what is neither tensor nor number.
    Memory: no tensor is made.
    """
    given = [
        v for v in (tensor1, scalar, scalar1, tensor, tensor2, scalar2, other) if v is not None
    ]
    if len(given) != 2:
        raise TypeError("result_type() received an invalid combination of arguments")
    tensor1, tensor2 = given
    for i, value in enumerate(given):
        if not isinstance(value, (Tensor, bool, int, float, complex)):
            raise TypeError(
                f"result_type(): argument 'tensor{i + 1}' (position {i + 1}) must be Tensor, "
                f"not {type(value).__name__}"
            )
    return promotion.result_dtype((operand_kind(tensor1), operand_kind(tensor2)))


@sampled(
    lambda tensor: [
        (tensor([[1, -2, 3]]), tensor([[1, -2, 3]])),
        (tensor([[1, -2, 3]]), tensor([[1, -2, 3]]).t()),
    ]
)
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return tuple(input.shape) == tuple(other.shape)


export("result_type", result_type, method=False)
export("is_same_size", is_same_size, looks=True)
