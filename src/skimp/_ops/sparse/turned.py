"""Sparse tensors with their dimensions in another order: what every layout has, made of
`transpose` and `permute`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skimp._engine.memory import layout_views as views
from skimp._engine.memory.layout import Layout
from skimp._engine.tensor.tensor import Tensor


class Turned(Tensor):
    """Dimensions exchanged and moved, for `SparseTensor`, whose values `_held` are."""

    _held: Tensor
    like: Callable[[Tensor], Any]

    def _order(self, view: Callable[..., Layout], *arguments: Any) -> tuple[int, ...]:
        """Where a view of a dense tensor would take each dim from, with the errors of that view."""
        ndim = self.ndim
        return view(Layout((1,) * ndim, tuple(range(ndim)), 0), *arguments).strides

    def swapaxes(self, axis0: int, axis1: int) -> Any:
        return self.transpose(axis0, axis1)

    def movedim(self, source: Any, destination: Any) -> Any:
        return self.permute(self._order(views.movedim, _several(source), _several(destination)))

    def t(self) -> Any:
        k, dense = self.sparse_dim(), self.dense_dim()
        if k > 2 or dense:
            raise RuntimeError(
                f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {k} sparse "
                f"and {dense} dense dimensions"
            )
        return self.transpose(0, 1) if k == 2 else self

    @property
    def T(self) -> Any:
        return self.permute(tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Any:
        return self._turned("mT")

    @property
    def mH(self) -> Any:
        return self._turned("mH").conj()

    @property
    def H(self) -> Any:
        self._order(views.hermitian)
        return self._turned("H").conj()

    def adjoint(self) -> Any:
        return self._turned("adjoint()").conj()

    def _turned(self, name: str) -> Any:
        """The last two dims exchanged; `name` is what was asked for."""
        self._order(views.matrix_transpose, name)
        return self.transpose(-2, -1) if self.ndim else self

    def conj(self) -> Any:
        return self.like(self._held.conj_physical()) if self._dtype.is_complex else self

    def is_conj(self) -> bool:
        """Never: `conj` makes other values."""
        return False

    def is_neg(self) -> bool:
        return False

    def resolve_conj(self) -> Any:
        return self

    def resolve_neg(self) -> Any:
        return self


def _several(dims: Any) -> tuple[int, ...]:
    return (dims,) if isinstance(dims, int) else tuple(dims)
