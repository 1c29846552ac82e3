"""Tensors through copy.copy, copy.deepcopy and pickle: tensors that share a storage share it
afterwards too.
"""

from __future__ import annotations

import copy
from typing import Any

from skimp._engine.memory import storage as storages
from skimp._engine.memory.layout import Layout
from skimp._engine.memory.meta import MetaStorage
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.fields import become, own
from skimp._engine.tensor.meta import MetaTensor
from skimp._engine.tensor.tensor import Tensor, mark, wrap


def rebuild(
    cls: Any,
    s: storages.Storage,
    layout: tuple[Any, ...],
    dtype: dtypes.dtype,
    requires_grad: bool,
    state: Any,
) -> Tensor:
    """A tensor from its parts: what a pickle holds."""
    if isinstance(s, MetaStorage):
        t: Tensor = wrap(s, Layout(*layout), dtype, MetaTensor)
    else:
        t = wrap(s, Layout(*layout), dtype)
        t = become(t, cls)
    if requires_grad:
        t.requires_grad_(True)
    for name, value in (state or {}).items():
        setattr(t, name, value)
    return t


def _own_state(t: Tensor) -> dict[str, Any] | None:
    """What a program has set on the tensor: the attributes that are not ours."""
    return own(t) or None


def reduce(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    """What a pickle holds of a tensor: its storage once, its layout, and what a program has set."""
    plain = self.resolve_conj().resolve_neg() if self._conj or self._skimp_neg else self
    layout = tuple(plain._skimp_layout_of())
    cls = Tensor if self._skimp_meta is not None else type(self)
    return rebuild, (cls, plain._storage, layout, self._dtype, self._rg, _own_state(self))


def _deepcopy(self: Tensor, memo: dict[int, Any]) -> Tensor:
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
            "because of a torch.nn.utils.weight_norm usage, see "
            "https://github.com/pytorch/pytorch/pull/103001"
        )
    if id(self) in memo:
        found: Tensor = memo[id(self)]
        return found
    s = copy.deepcopy(self._storage, memo)
    new = rebuild(
        type(self),
        s,
        tuple(self._skimp_layout_of()),
        self._dtype,
        self._rg,
        copy.deepcopy(_own_state(self), memo),
    )
    if self._conj or self._skimp_neg:
        mark(new, _conj=self._conj, _skimp_neg=self._skimp_neg)
    if self._grad is not None:
        new._grad = copy.deepcopy(self._grad, memo)
    memo[id(self)] = new
    return new


Tensor.__reduce_ex__ = reduce  # type: ignore[method-assign]  # attached, as ops are
Tensor.__deepcopy__ = _deepcopy  # type: ignore[method-assign]
