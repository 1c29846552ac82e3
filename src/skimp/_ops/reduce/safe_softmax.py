"""Softmax whose rows may be hidden as a whole, as attention's are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import hidden, rowwise
from skimp._engine.tensor.tensor import Array
from skimp._kernels import bare
from skimp._kernels.softmax import softmax
from skimp._ops import batching
from skimp._ops.reduce.softmax import SOFTMAX, checked_rows, typed


def _safe_block(x: Array, y: Array) -> None:
    unseen = np.equal(np.maximum.reduce(x, axis=1, keepdims=True), -math.inf)
    softmax(x, y)
    bare.copyto(y, 0, where=unseen)


@hidden(
    kind="row-wise",
    rule=Rule("SafeSoftmaxBackward0", input=SOFTMAX.formulas["input"], at_once=True),
    batch=batching.dims.by_dims("dim"),
)
def _safe_rows(input: Any, dim: int) -> Any:
    return checked_rows("softmax", input, dim, _safe_block)


@rowwise(method=False)
def _safe_softmax(input: Any, dim: int, dtype: Any = None) -> Any:
    """`softmax` with zeros where a whole row is -inf, whose gradient is 0, too."""
    return _safe_rows(typed(input, dtype), dim)


SAYS = """\
Shape: any; the result's is the input's.
Dtypes: floating point, or `dtype`, to which the input is cast first.
Raises: NotImplementedError for other dtypes, IndexError for a dim that is not there."""
