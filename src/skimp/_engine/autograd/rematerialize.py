"""What a node saves of another node's result where that is cheap: the recipe, not the bytes.

A GELU keeps its input, and the product after it would keep its result: the same number of bytes
again, for a hundredth of the product's work. So the product keeps an expression of the result
(`memory/rematerialize.py`), over what the GELU keeps anyway, and the bytes go with the last tensor
that the program has of them.
"""

from __future__ import annotations

from typing import Any

from skimp._engine.autograd import modes
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.autograd.rules import parameters
from skimp._engine.memory.layout import numel
from skimp._engine.memory.pending import lean
from skimp._engine.memory.rematerialize import Rematerialized, stand_for, standing_for
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor.tensor import Tensor
from skimp.config import config

_new = object.__new__


def instead_of(t: Tensor) -> Tensor:
    """An alias of `t`, which requires grad, on an expression of its bytes; `t` where the bytes
    themselves are better saved."""
    base = t if t._base is None else t._base
    node: Any = base._skimp_node
    if node is None or base._skimp_index or t._conj or t._skimp_neg or t._skimp_counter is not None:
        return t
    rule = getattr(type(node), "rule", None)
    if rule is None or rule.rematerialize is None:
        return t
    s = base._storage
    if s.deferred is not None or s.version or s.exported or isinstance(s, Rematerialized):
        return t
    if numel(base.shape) < config.remake_from:
        return t
    deferred: Storage | None = standing_for(s)
    if deferred is None:
        deferred = _deferred(node, rule, base)
        if deferred is None:
            return t
        stand_for(deferred, s)
        s.saved = True  # the line of the next write to it matters
    alias = _new(Tensor)
    alias._skimp_layout = t._skimp_layout_of()
    alias._storage = deferred
    alias._dtype = t._dtype
    alias._rg = True
    if t._base is None:
        alias._skimp_node, alias._skimp_index = t._skimp_node, t._skimp_index
    else:
        alias._skimp_node = node_of_view(t)
        alias._skimp_index = t._skimp_index
    return alias


def _deferred(node: Any, rule: Any, base: Tensor) -> Storage | None:
    """A deferred storage with the values of `base`, from what `node` saved."""
    saved = node._skimp_saved
    if not saved:
        return None
    found = {slot.name: i for i, slot in enumerate(node._skimp_plan.slots)}
    values = []
    for name in parameters(rule.rematerialize):
        i = found.get(name)
        if i is None:
            return None
        value, version = saved[2 * i], saved[2 * i + 1]
        if hasattr(value, "unpack"):  # whatever a hook has made of it
            return None
        if isinstance(value, Tensor) and (
            version is None
            or value._version != version
            or value._storage.exported
            or value._storage.unseen > node._skimp_number  # its bytes are not what the node read
        ):
            return None
        if isinstance(value, Tensor):
            lean(value._storage)  # else the new deferred expression would keep what that one keeps
        values.append(value)
    with modes.no_grad():
        made = rule.rematerialize(*values)
    s: Storage = made._storage
    if (
        s.deferred is None
        or made._dtype is not base._dtype
        or made._skimp_layout_of() != base._skimp_layout_of()
    ):
        return None
    return s
