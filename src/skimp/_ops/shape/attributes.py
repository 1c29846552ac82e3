"""Views under the names of attributes: `T`, `mT`."""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import view
from skimp._engine.memory import layout_views as V
from skimp._engine.memory.call_site import warn_once
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor.tensor import Tensor
from skimp._ops import batching


def _matrix(
    name: str, f: Any, fast_view: str, rule: Rule, doc: str, batch: Any, otherwise: Any = None
) -> Any:
    f.__doc__ = doc
    declare = view(
        name,
        function=False,
        method=False,
        rule=rule,
        fast_view=fast_view,
        batch=batch,
        otherwise=otherwise,
    )
    declared = declare(f)
    setattr(Tensor, name, property(declared, doc=doc))
    return declared


_NO_DIMS = "Tensor.{} is deprecated on 0-D tensors. This function is the identity in these cases."


def _reversed(layout: Layout) -> Layout:
    dims = len(layout.shape)
    if dims == 0:
        warn_once(_NO_DIMS.format("T"))
    elif dims != 2:
        warn_once(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
            "deprecated and it will throw an error in a future release. Consider `x.mT` to "
            "transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to "
            "reverse the dimensions of a tensor."
        )
    return V.reverse_dims(layout)


def _itself(input: Tensor) -> Tensor | None:
    """A tensor of no dims is its own transpose."""
    if input.ndim:
        return None
    warn_once(_NO_DIMS.format("mT"))
    return input


_matrix(
    "T",
    _reversed,
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
    _itself,
)


SAYS = """\
Dtypes: bool, integers, floating point and complex numbers.
Raises: RuntimeError for sizes that don't fit, IndexError for a dim that is not there.
Memory: a view, which shares the input's bytes."""
