"""Views under the names of attributes: `T`, `mT`."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import view
from skimp._engine.memory import layout_views as V
from skimp._engine.tensor.tensor import Tensor
from skimp._ops import batching


def _matrix(name: str, f: Any, fast_view: str, rule: Rule, doc: str, batch: Any) -> Any:
    f.__doc__ = doc
    declare = view(name, function=False, method=False, rule=rule, fast_view=fast_view, batch=batch)
    declared = declare(f)
    setattr(Tensor, name, property(declared, doc=doc))
    return declared


_matrix(
    "T",
    lambda layout: V.reverse_dims(layout),
    "a.T if a.ndim == 2 else None",  # of others PyTorch warns
    Rule("PermuteBackward0", input=lambda g: g.permute(tuple(range(g.ndim))[::-1])),
    "The dimensions reversed.",
    batching.dims.reversed,
)
_matrix(
    "mT",
    lambda layout: V.matrix_transpose(layout),
    "a.swapaxes(-2, -1) if a.ndim > 1 else None",
    Rule("TransposeBackward0", input=lambda g: g.transpose(-2, -1)),
    "The last two dimensions exchanged.",
    batching.dims.MATRICES,
)


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers.
Raises: RuntimeError for sizes that don't fit, IndexError for a dim that is not there.
Memory: a view, which shares the input's bytes."""
