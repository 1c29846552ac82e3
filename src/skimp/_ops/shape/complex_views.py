"""Complex tensors and their parts: views of the same bytes; `conj` is one too, and is resolved when
it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from skimp._engine.autograd import alias as history
from skimp._engine.autograd.record import Recording, recording
from skimp._engine.autograd.rules import Rule
from skimp._engine.dispatch.forms import copy_twin, export
from skimp._engine.dispatch.row import sampled
from skimp._engine.dispatch.view_forms import view_of_bytes
from skimp._engine.memory import layout_bits as B, layout_views as V
from skimp._engine.memory.call_site import warn_once
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.checks import no_kernel
from skimp._engine.tensor.tensor import Tensor, alias, mark
from skimp._ops import batching
from skimp._ops.shape.copies import clone

F = TypeVar("F", bound=Callable[..., Any])


def _as(
    input: Tensor, layout: Layout, dtype: dtypes.dtype, rule: Rule, given: dict[str, Any]
) -> Tensor:
    new = alias(input, layout)
    new._dtype = dtype
    if input._conj or input._skimp_neg:
        mark(new, _conj=False, _skimp_neg=False)
    history.view_of(input, new, rule, given)
    return new


def _fast(
    types: dict[dtypes.dtype, dtypes.dtype], layout_of: Callable[..., Layout], rule: Recording
) -> Callable[[Tensor], Tensor | None]:
    """Numbers and their two parts, where the tensor is small and row-major."""
    seen = lru_cache(maxsize=256)(layout_of)

    def fast(input: Tensor) -> Tensor | None:
        a, dtype = input._np, types.get(input._dtype)
        if a is None or dtype is None or not a.flags.c_contiguous:
            return None
        layout = seen(input._skimp_layout or input._skimp_layout_of(), input._dtype)
        return view_of_bytes(input, np.ndarray(layout.shape, dtype.np, a), dtype, layout, rule)

    return fast


def _both(f: F) -> F:
    cast = "float32" if f.__name__ == "view_as_complex" else None
    least = {"adjoint": 2, "view_as_complex": 1}.get(f.__name__, 0)
    rule = batching.dims.at_least(least, batching.dims.ELEMENTWISE)
    return export(  # type: ignore[return-value]
        f.__name__, f, composite=False, autocast=cast, batch=rule, fast=_FAST.get(f.__name__)
    )


def _asked(f: F) -> F:
    rule = batching.dims.ELEMENTWISE
    return export(f.__name__, f, composite=False, batch=rule, looks=True)  # type: ignore[return-value]


REAL = Rule("ViewAsRealBackward0", input=lambda g: view_as_complex(g.contiguous()))
COMPLEX = Rule("ViewAsComplexBackward0", input=lambda g: view_as_real(resolve_conj(g)))
_REAL, _COMPLEX = recording(REAL, ("input",)), recording(COMPLEX, ("input",))
CONJ = Rule("ConjBackward0", input=lambda g: g.conj())
# PyTorch selects from the view as real numbers, and names the node after that.
RE = Rule("SelectBackward0", input=lambda g: g)
IM = Rule("SelectBackward0", input=lambda g: g * 1j)


_PARTS = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}
_FAST = {
    "view_as_real": _fast(_PARTS, B.view_as_real, _REAL),
    "view_as_complex": _fast(
        {part: whole for whole, part in _PARTS.items()}, B.view_as_complex, _COMPLEX
    ),
}


@_both
def view_as_real(input: Tensor) -> Tensor:
    """The two parts of complex numbers as a new last dimension.

    Shape: the input's and 2.
    Dtypes: complex numbers.
    Memory: a view, which shares the input's bytes.
    """
    layout = B.view_as_real(input._skimp_layout_of(), input._dtype)
    if input._conj:
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate "
            "tensor so you can view it as real, use self.resolve_conj(); however, be warned that "
            "the resulting tensor will NOT alias the original."
        )
    return _as(input, layout, input._dtype.to_real(), REAL, {"input": input})


@_both
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs of numbers as complex ones.

    Shape: (..., 2); the result's lacks the 2.
    Dtypes: float32 and float64.
    Memory: a view, which shares the input's bytes.
    """
    layout = B.view_as_complex(input._skimp_layout_of(), input._dtype)
    if input._dtype is dtypes.float16:  # there is no complex32, and others read bytes beside these
        raise no_kernel("view_as_complex", input._dtype)
    return _as(input, layout, input._dtype.to_complex(), COMPLEX, {"input": input})


for _view in (view_as_real, view_as_complex):
    copy_twin(_view.__name__, _view)


@_both
def real(input: Tensor) -> Tensor:
    """The real parts, as a view; a real tensor itself.

    Shape: the input's.
    Memory: the input itself, or a view of it.
    """
    if not input._dtype.is_complex:
        return input
    return _as(
        input,
        B.real(input._skimp_layout_of(), input._dtype),
        input._dtype.to_real(),
        RE,
        {"input": input},
    )


@_both
def imag(input: Tensor) -> Tensor:
    """The imaginary parts, as a view.

    Shape: the input's.
    Dtypes: complex numbers.
    Memory: a view, which shares the input's bytes.
    """
    layout = B.imag(input._skimp_layout_of(), input._dtype)
    new = _as(input, layout, input._dtype.to_real(), IM, {"input": input})
    if input._conj:
        mark(new, _skimp_neg=True)
    return new


@_both
def conj(input: Tensor) -> Tensor:
    """The conjugate, as a view that is resolved when it is read; a real tensor itself.

    Shape: the input's.
    Memory: the input itself, or a view of it.
    """
    if not input._dtype.is_complex:
        return input
    new = alias(input, input._skimp_layout_of())
    mark(new, _conj=not input._conj)
    history.view_of(input, new, CONJ, {"input": input})
    return new


@_both
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor with its conjugation carried out.

    Shape: the input's.
    Memory: the input itself where nothing is to be done, else a new tensor.
    """
    return clone(input) if input._conj else input


@_both
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor with its negation carried out.

    Shape: the input's.
    Memory: the input itself where nothing is to be done, else a new tensor.
    """
    return clone(input) if input._skimp_neg else input


@_asked
def is_conj(input: Tensor) -> bool:
    """Whether the bytes hold the conjugate."""
    return input._conj


@_asked
def is_neg(input: Tensor) -> bool:
    """Whether the bytes hold the negative."""
    return input._skimp_neg


@_both
@sampled(lambda tensor: [(tensor([[1, 2, 3]]),)])
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions.

    Shape: (..., n, m) to (..., m, n).
    Dtypes: bool, integers, floating point and complex numbers.
    Memory: a view, which shares the input's bytes.
    """
    return _adjoint("adjoint()", input)


def _adjoint(name: str, input: Tensor, owner: str = "") -> Tensor:
    n = input.ndim
    if not n:
        warn_once(f"{owner}{name} is deprecated on 0-D tensors. Consider using x.conj().")
        return conj(input)
    if n == 1:
        V.matrix_transpose(input._skimp_layout_of(), name)  # which refuses it
    turned = input.transpose(-2, -1)
    return conj(turned) if input._dtype.is_complex else turned


def _conjugate_transpose(input: Tensor) -> Tensor:
    return _adjoint("mH", input, "Tensor.")


def _hermitian(input: Tensor) -> Tensor:
    if not input.ndim:
        warn_once("Tensor.H is deprecated on 0-D tensors. Consider using x.conj().")
    V.hermitian(input._skimp_layout_of())
    return conj(input.transpose(0, 1)) if input.ndim == 2 else conj(input)


def _set(part: Any) -> Any:
    def setter(self: Tensor, value: Any) -> None:
        part(self)[...] = value

    return setter


for _name, _get, _doc, _setter in (
    ("real", real, "The real parts, as a view.", _set(real)),
    ("imag", imag, "The imaginary parts, as a view.", _set(imag)),
    ("mH", _conjugate_transpose, "The conjugate transpose of the last two dimensions.", None),
    ("H", _hermitian, "The conjugate transpose of a matrix.", None),
):
    setattr(Tensor, _name, property(_get, _setter, doc=_doc))


SAYS = """\
Raises: RuntimeError where the result would have no such parts (`imag` of real numbers)."""


def view_dtype(input: Tensor, dtype: dtypes.dtype) -> Tensor:
    """The same bytes as elements of another type; the last dimension shrinks or grows."""
    if input._conj or input._skimp_neg:
        lazy = "conjugate view tensors" if input._conj else "tensors with negative bit set"
        raise RuntimeError(
            f"torch.Tensor.view is not supported for {lazy} when converting to a different dtype."
        )
    new = alias(input, B.view_dtype(input._skimp_layout_of(), input._dtype, dtype))
    new._dtype = dtype
    history.view_of(input, new)
    return new
