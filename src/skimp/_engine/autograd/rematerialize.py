"""What a node saves of a result where that is cheap: the recipe, not the bytes.

A GELU keeps its input, and the product after it would keep its result: the same number of bytes
again, for a hundredth of the product's work. So the product keeps an expression of the result
(`memory/rematerialize.py`), over what the GELU keeps anyway, and the bytes go with the last tensor
that the program has of them (`instead_of`).

A ReLU keeps its result. Where that is deferred when it is saved, and is made of what the node below
keeps (batch_norm its input), the ReLU keeps the same expression once more, and so does the
convolution after it (`of_result`).

Dropout keeps its mask, and nothing of its input. Where that is a result that the node below keeps
(of ReLU, of softmax), its node notes it for who makes dropout's result again (`kept_anyway`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final
from weakref import ref

from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.autograd.rules import Plan, parameters
from skimp._engine.eval.expr import Expr, Leaf, Whole, later, lies_over, place_of, walk
from skimp._engine.memory.keeping import nobody
from skimp._engine.memory.layout import Layout, numel
from skimp._engine.memory.pending import lean
from skimp._engine.memory.rematerialize import (
    Rematerialized,
    keeps_little,
    rematerialized,
    rematerialized_of,
)
from skimp._engine.memory.storage import Storage
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, wrap
from skimp.config import config

AGAIN_FROM: Final = 1 << 15  # bytes: what has fewer is kept, whatever `config` says
_BELOW = 1  # nodes that save nothing (a sum), through which is looked
_LONG = 16  # steps of an expression that has others in it which are not kept either
_SHORT = 8  # steps that may be computed by each who reads them
_FEW = 4  # other bytes that an expression reads are at most this part of the result's


def is_made_again(t: Tensor) -> bool:
    """Whether what made `t`, or made what it is a view of, has a rule by which it is made again."""
    made_by = t._skimp_node if t._base is None else t._base._skimp_node
    return made_by is not None and type(made_by)._skimp_again


def instead_of(t: Tensor) -> Tensor:
    """An alias of `t`, which requires grad, on an expression of its bytes; `t` where the bytes
    themselves are better saved."""
    base = t if t._base is None else t._base
    node: Any = base._skimp_node
    if node is None or base._skimp_index or t._conj or t._skimp_neg or t._skimp_counter is not None:
        return t
    s = base._storage
    if base._hollow or s.exported or isinstance(s, Rematerialized):
        return t
    deferred: Storage | None = rematerialized_of(s)
    if deferred is None:
        rule = getattr(type(node), "rule", None)
        if rule is None or numel(base.shape) < config.rematerialize_from:
            return t
        extra = node._skimp_extra
        if s.version != (0 if extra is None else extra.version):  # that the op has left
            return t
        if s.unseen > node._skimp_number:
            return t
        if rule.rematerialize is None:
            deferred = _of_expression(node, s, True)
        else:
            deferred = _of_rule(node, rule, base)
        if deferred is None:
            return t
    alias = _on(deferred, s, t._skimp_layout_of(), t._dtype)
    alias._rg = True
    if t._base is None:
        alias._skimp_node, alias._skimp_index = t._skimp_node, t._skimp_index
    else:
        alias._skimp_node = node_of_view(t)
        alias._skimp_index = t._skimp_index
    return alias


class Noted:
    """A tensor that a node's formulas don't read, and that the node below keeps, as long as that
    does: a write to it is no error, but nothing is made of it from then on.
    """

    __slots__ = ("_again", "_dtype", "_layout", "_made_again", "_storage", "_unseen", "version")

    def __init__(self, t: Tensor) -> None:
        s = t._storage
        self._made_again = s if isinstance(s, Rematerialized) else None  # which nobody else keeps
        as_it_lies = not (t._conj or t._skimp_neg)  # else its bytes are not its values
        self._storage: Callable[[], Any] = ref(s) if as_it_lies else nobody
        again = rematerialized_of(s) if as_it_lies else None
        self._again = None if again is None else ref(again)
        self._layout = t._skimp_layout_of()
        self._dtype = t._dtype
        self.version = t._storage.version
        self._unseen = t._storage.unseen

    def tensor(self) -> Tensor | None:
        """The tensor; None where nobody keeps it any more."""
        s = self._storage()
        return None if s is None else _on(s, s, self._layout, self._dtype)

    def kept(self) -> tuple[Tensor | None, bool]:
        """A tensor with the same values, if there is one still; and whether it costs no bytes, for
        it is to be made again for somebody else, or autograd has saved it.
        """
        s = self._storage()
        if s is not None and (s.version != self.version or s.unseen != self._unseen):
            return None, False
        again = None if self._again is None else self._again()
        if again is not None and again.version == self.version:
            return wrap(again, self._layout, self._dtype), True
        if s is None or s.exported or s.deferred is not None:
            return None, False
        return wrap(s, self._layout, self._dtype), s.saved


def kept_anyway(t: Tensor) -> Noted | None:
    """An argument for `rematerialize` of an op whose formulas don't read `t`: of `t` itself, if the
    node that made it keeps it, or of what makes it again."""
    node: Any = t._skimp_node
    if node is None or t._base is not None or t._skimp_counter is not None:
        return None
    if numel(t._skimp_layout_of().shape) < config.rematerialize_from:
        return None
    s = t._storage
    for value in (node._skimp_saved or ())[::2]:
        if isinstance(value, Tensor) and value._storage is s and not t._hollow:
            return Noted(t)
    if t._rg and type(node)._skimp_again:
        again = instead_of(t)
        return None if again is t else Noted(again)
    return None


def of_result(node: Any, t: Tensor) -> Tensor:
    """An alias of `t`, a result that `node` saves, on its expression once more; `t` where that
    would keep other bytes than the node below does."""
    s = t._storage
    if s.deferred is None or t._base is not None or t._conj or t._skimp_neg or s.exported:
        return t
    if t._skimp_counter is not None or isinstance(s, Rematerialized):
        return t
    if numel(t.shape) < config.rematerialize_from:
        return t
    deferred = _of_expression(node, s, False)
    return t if deferred is None else _on(deferred, s, t._skimp_layout_of(), t._dtype)


def _of_expression(node: Any, s: Storage, others: bool) -> Storage | None:
    """The expression that a result of `node` waits for once more, in a storage that stands for it;
    None where that would keep other bytes than the nodes below do, or, of `others`, the same."""
    expr = s.deferred and s.awaited()
    if expr is None:
        return None
    stand = _made_again(expr)
    if (others and not stand) or not _reads_saved(node, expr, len(s), stand):
        return None
    found: Storage | None = rematerialized_of(s)
    if found is not None:
        return found
    apart = _apart(expr, stand)
    if stand and apart.size > _LONG:
        return None
    read = {leaf.storage for leaf in apart.leaves}
    return rematerialized(apart, s, not keeps_little(read, len(s)))


def _made_again(expr: Expr) -> dict[int, Expr | Leaf]:
    """What stands for storages that an expression reads and that are not kept, by the leaves' ids:
    a convolution's result, to be computed then, and the expression of a shortcut."""
    found: dict[int, Expr | Leaf] = {}
    for leaf in expr.leaves:
        s: Any = leaf.storage
        other = rematerialized_of(s)
        again = None if other is None else other.deferred
        if again is None or s.block is None or not lies_over(leaf, s.block):
            continue
        array = leaf.array
        if type(again) is Whole:
            found[id(leaf)] = later(other, place_of(leaf))
        elif again.shape == array.shape and array.flags.c_contiguous and again.dtype == array.dtype:
            found[id(leaf)] = again
    return found


def _apart(expr: Expr, stand: dict[int, Expr | Leaf] | None = None) -> Expr:
    """The same expression in nodes of its own: that it is computed has nobody else's materialize,
    unless it is long. `stand`: leaves that take the place of others."""
    if type(expr) is Whole:
        return expr
    if expr.size > _SHORT and not stand:
        return Expr(expr.kernel, expr.args, expr.shape, expr.dtype)
    made: dict[int, Any] = {}
    for key, other in (stand or {}).items():
        made[key] = _apart(other) if isinstance(other, Expr) else other
    for node in walk((expr,)):
        args = tuple([made.get(id(a), a) for a in node.args])
        made[id(node)] = Expr(node.kernel, args, node.shape, node.dtype)
    one: Expr = made[id(expr)]
    return one


def _reads_saved(node: Any, expr: Expr, nbytes: int, stand: dict[int, Any]) -> bool:
    """Whether an expression of a result of `nbytes` reads what the nodes below saved or what is
    made again, and few other bytes."""
    kept = _saved_below(node, _BELOW)
    read: set[Any] = {one.storage for one in expr.leaves if id(one) not in stand}
    return sum([len(s) for s in read.difference(kept)]) * _FEW <= nbytes


def _saved_below(node: Any, depth: int) -> list[Storage]:
    """The storages with bytes that the nodes below saved; beyond those that save nothing."""
    found: list[Storage] = []
    for to in node._skimp_edges[::2]:
        saved = () if to is None else to._skimp_saved or ()
        values = [v for v in saved[::2] if isinstance(v, Tensor) and not v._hollow]
        found += [v._storage for v in values if v._storage.deferred is None]
        if to is not None and not values and depth:
            found += _saved_below(to, depth - 1)
    return found


def _on(deferred: Storage, s: Storage, layout: Layout, dtype: dtypes.dtype) -> Tensor:
    """A tensor of this layout on the storage that stands for `s`."""
    s.saved = True  # the line of the next write to it matters
    return wrap(deferred, layout, dtype)


def _of_rule(node: Any, rule: Any, base: Tensor) -> Storage | None:
    """What the rule of `node` makes its result of again, in a storage that stands for that."""
    values = _values(node, rule, base)
    if values is None:
        return None
    s = base._storage
    read = {v._storage for v in values if isinstance(v, Tensor) and v is not base}
    little = keeps_little(read, len(s))
    if not little and base._np is not None:  # each block that is taken would be preceded by a look
        return None
    expr = _expression(rule, values, base)
    return None if expr is None else rematerialized(expr, s, not little)


_RESULT: Final = -1  # the place of what need not be saved


@cache
def _places(plan: Plan, again: Any) -> tuple[int, ...] | None:
    """Where among what nodes of a plan save is what `again` reads; None where it is not."""
    found = {"result": _RESULT, **{slot.name: 2 * i for i, slot in enumerate(plan.slots)}}
    names = parameters(again)
    return tuple([found[n] for n in names]) if found.keys() >= set(names) else None


def _values(node: Any, rule: Any, base: Tensor) -> list[Any] | None:
    """What `node` saved of what its result is made of, if it is still what the node read."""
    saved = node._skimp_saved
    places = _places(node._skimp_plan, rule.rematerialize) if saved else None
    if places is None:
        return None
    values = []
    for i in places:
        if i == _RESULT:
            values.append(base)  # which need not be kept
            continue
        value, version = saved[i], saved[i + 1]
        if type(value) is Noted:
            version, value = value.version, value.tensor()
            if value is None:
                return None
        if isinstance(value, Tensor):
            source = value._storage
            counter = value._skimp_counter
            if (
                version is None
                or version != (source.version if counter is None else counter.version)
                or source.exported
                or source.unseen > node._skimp_number  # its bytes are not what the node read
            ):
                return None
            if source.deferred is not None and not source.spare:
                lean(source)  # else the new expression would keep what that one keeps
            elif source.block is None and source.deferred is None and not value._hollow:
                return None  # away, within a budget: it would be brought back for this
        elif hasattr(value, "unpack"):  # whatever a hook has made of it
            return None
        values.append(value)
    return values


def _expression(rule: Any, values: list[Any], base: Tensor) -> Expr | None:
    """An expression of the values of `base`."""
    made = rule.rematerialize(*values)
    if made is None:
        return None
    if made._dtype is not base._dtype or made._skimp_layout != base._skimp_layout_of():
        return None
    expr: Expr = made._storage.deferred
    return expr if base._np is not None else _apart(expr)  # its parts may be others' that wait
