"""In-place operations and views: who shares history with whom, and what must be refused.

An in-place op calls `before_inplace(t)`; if it is recorded, `saved = prepare(t, rule, bindings)`;
then it writes; then `rebase(t, saved)`, or `relaid` where only the layout changed. A view op calls
`view_of` (or `views_of` for several views that share one node).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from skimp._engine.autograd import errors, modes, node_lines as lines
from skimp._engine.autograd.last_reader import is_own
from skimp._engine.autograd.leaves import count
from skimp._engine.autograd.nodes import Extra, Grads, Node, init, shape_of
from skimp._engine.autograd.op_node import OpNode
from skimp._engine.autograd.ops import ops
from skimp._engine.autograd.record import begin, finish, record, save_results
from skimp._engine.autograd.refresh import (
    ViewMeta,
    edge,
    empty_like_base,
    move_retain,
    node_of_view,
    strided,
    view_meta,
)
from skimp._engine.autograd.rules import Rule
from skimp._engine.interpreter import HELD_BY_VARIABLE
from skimp._engine.tensor.inference import marks
from skimp._engine.tensor.tensor import Tensor, ghost, mark_creation

_new = object.__new__
_state = modes.state
_ref = weakref.ref
MANY = 62  # views of one base, of which more may be gone than are left: then somebody looks

# -- views -----------------------------------------------------------------------------------------


def plain_view(base: Tensor, view: Tensor) -> None:
    """`view_of` for a tensor that is no view, requires no grad and was not made in inference mode:
    the fast path.
    """
    view._base = base
    counter = base._skimp_counter if base._skimp_marked else None
    view._skimp_stale = base._storage.version if counter is None else counter.version
    views = base._skimp_views
    if views is None:
        base._skimp_views = [_ref(view)]
    else:
        views.append(_ref(view))
        n = len(views)
        if n > MANY and not n & (n - 1):
            _forget_dead(views)
    if not _state.grad:  # `mark_creation`, written out
        view._skimp_creation = "inference" if marks.anywhere and _state.inference else "no_grad"
        view._skimp_marked = True


def view_of(
    input: Tensor,
    view: Tensor,
    rule: Rule | None = None,
    bindings: dict[str, Any] | None = None,
    multi: bool = False,
) -> None:
    """Make `view` a view of `input`, with the derivative that `rule` gives.

    `multi`: one of several views of one call, which in-place ops then refuse (PyTorch's rule).
    """
    if input._skimp_inference:
        view._skimp_inference = view._skimp_marked = True
        return
    base = input._base
    if not input._rg:
        plain_view(input if base is None else base, view)
        if multi and _state.grad:
            mark_creation(view, "multi")
        elif (
            base is not None and input._skimp_creation is not None and view._skimp_creation is None
        ):
            mark_creation(view, input._skimp_creation)
        return
    _view_of_recorded(input, view, rule, bindings, multi)


def _view_of_recorded(
    input: Tensor, view: Tensor, rule: Rule | None, bindings: dict[str, Any] | None, multi: bool
) -> None:
    base = input if input._base is None else input._base
    creation = None if base is input else input._skimp_creation
    view._base = base
    counter = view._skimp_counter  # as `_skimp_version`
    view._skimp_stale = view._storage.version if counter is None else counter.version
    differentiable = view._dtype.category > 1
    if not _state.grad:
        creation = "inference" if marks.anywhere and _state.inference else "no_grad"
        view._rg = view._skimp_inherits = base._rg and differentiable
    else:
        if multi:
            creation = "multi"
            view._skimp_output = bindings.get("output", 0) if bindings else 0
        if rule is not None and differentiable:
            record(rule, bindings or {"input": input}, view)
    if creation is not None:
        mark_creation(view, creation)
    if view._skimp_node is None:
        register(base, view)


def views_of(input: Tensor, views: Sequence[Tensor], rule: Rule, bindings: dict[str, Any]) -> None:
    """`view_of` for all the views of one call (unbind, split): one node, with an output for each.

    The rule's formula takes `grads`, the list of their gradients, zeros where none arrived.
    """
    if input._skimp_inference:
        for i, view in enumerate(views):
            view._skimp_inference = view._skimp_marked = True
            view._skimp_output = i
        return
    if not input._rg:
        _plain_views(input if input._base is None else input._base, views)
        return
    if not _state.grad:
        for i, view in enumerate(views):
            view_of(input, view, None, None, True)
            view._skimp_output = i
        return
    base = input if input._base is None else input._base
    version = input._skimp_version
    for i, view in enumerate(views):
        view._base = base
        view._skimp_stale = version
        view._skimp_output = i
        mark_creation(view, "multi")
    if views:
        record(rule, bindings, tuple(views))
    for view in views:
        if view._skimp_node is None:
            register(base, view)


def _plain_views(base: Tensor, views: Sequence[Tensor]) -> None:
    """`plain_view` for all the views of one call."""
    counter = base._skimp_counter
    version = base._storage.version if counter is None else counter.version
    creation = "multi" if _state.grad else "inference" if _state.inference else "no_grad"
    known = base._skimp_views
    if known is None:
        known = base._skimp_views = []
    before = len(known)
    for i, view in enumerate(views):
        view._base = base
        view._skimp_stale = version
        view._skimp_output = i
        view._skimp_creation = creation
        view._skimp_marked = True
        known.append(_ref(view))
    if len(known) > MANY and before.bit_length() != len(known).bit_length():
        known[:] = [r for r in known if r() is not None]


def register(base: Tensor, view: Tensor) -> None:
    """Remember a view that requires grad when its base does, and only then."""
    views = base._skimp_views
    if views is None:
        views = base._skimp_views = []
    views.append(_ref(view))
    n = len(views)
    if n > MANY and not n & (n - 1):
        _forget_dead(views)


def _forget_dead(views: list[Any]) -> None:
    """Called when their number reaches a power of two."""
    views[:] = [r for r in views if r() is not None]


def mark_views(base: Tensor) -> None:
    """`base` requires grad from now on, or no longer: so do the views of it."""
    for ref in base._skimp_views or ():
        view = ref()
        if view is not None and view._dtype.category > 1 and (not view._rg or view._skimp_inherits):
            view._rg = view._skimp_inherits = base._rg


# -- in-place --------------------------------------------------------------------------------------


def before_inplace(t: Tensor) -> None:
    """Refuse a write that can't be differentiated, or that inference mode forbids; note its line if
    it matters.
    """
    if t._skimp_inference and not _state.inference:
        raise RuntimeError(errors.INFERENCE_INPLACE)
    if t._rg and _state.grad:
        _refuse(t)
    if t._storage.saved:
        _note(t)


def before_unwatched(t: Tensor) -> None:
    """`before_inplace` of the ops that PyTorch's autograd does not look at: leaves are written."""
    if t._skimp_inference and not _state.inference:
        raise RuntimeError(errors.INFERENCE_INPLACE)
    if t._storage.saved:
        _note(t)


def before_writes(tensors: Iterable[Tensor]) -> None:
    """`before_inplace` of what one line writes to, where nothing is recorded."""
    here = None
    for t in tensors:
        if t._skimp_inference and not _state.inference:
            raise RuntimeError(errors.INFERENCE_INPLACE)
        s = t._storage
        if s.saved:
            here = here or lines.here()
            now = s.version if t._skimp_counter is None else t._skimp_counter.version
            s.written = (*here, now + 1)


def _note(t: Tensor) -> None:
    """Remember the line of a write that may spoil a saved tensor."""
    t._storage.written = (*lines.here(), t._skimp_version + 1)


def _refuse(t: Tensor) -> None:
    base = t._base
    if base is not None:
        if t._skimp_creation is not None:
            raise errors.view_refused(t._skimp_creation, t._skimp_node, t._skimp_output, False)
        if t._rg and base._skimp_node is None:
            raise RuntimeError(errors.VIEW_OF_LEAF)
    if t._rg and t._skimp_node is None and (base is None or node_of_view(t) is None):
        raise RuntimeError(errors.LEAF)


def prepare(t: Tensor, rule: Rule, bindings: dict[str, Any]) -> OpNode | None:
    """Before a recorded write to `t`, the first of `bindings`: save what the derivative needs of
    the old values.

    Where a formula reads `t` itself, it reads a clone.
    """
    if not t._rg:
        _refuse(t)
    if t._dtype.category < 2:
        return None
    node = begin(rule, bindings, t)
    if t._storage.saved:
        _note(t)
    return node


def rebase(t: Tensor, node: OpNode | None) -> None:
    """After the write: `t` is now the result of `node`; if it is a view, so is that part of its
    base.
    """
    if node is None:
        return
    base = t._base
    if base is None:
        before = t._skimp_node
        index = t._skimp_index
        fresh = not t._rg
        node._skimp_more().version = t._storage.version
        finish(node, t)
        t._skimp_inherits = False
        if t._skimp_retains and before is not None:
            move_retain(t, before, index)
        if fresh and t._skimp_views is not None:
            mark_views(t)
        return
    _rebase_view(t, base, node)


def relaid(t: Tensor, node: OpNode | None) -> None:
    """After `t` took another layout (`transpose_`).

    No element was written, so even where `t` is a view, its base's history stays as it is; and a
    gradient that `t` retains is still that of the old layout.
    """
    if node is not None:
        finish(node, t)
        t._skimp_inherits = False
        t._skimp_stale = t._skimp_version


def leave(t: Tensor) -> None:
    """`t` is about to look at other bytes (`set_`): it is no view any more, and the views of it are
    views of what it was.

    Under no_grad, views of a leaf that requires grad keep sending it theirs, as in PyTorch.
    """
    base = t._base
    if base is not None:
        base._skimp_views = [r for r in base._skimp_views or () if r() is not t]
        t._base = None
        if t._skimp_marked:
            mark_creation(t, None)
        return
    views = [v for r in t._skimp_views or () if (v := r()) is not None]
    if not views or (t._rg and t._skimp_node is None):
        return
    was = ghost(t)
    was._rg, was._skimp_node, was._skimp_index, was._skimp_inherits = (
        t._rg,
        t._skimp_node,
        t._skimp_index,
        t._skimp_inherits,
    )
    was._skimp_views, t._skimp_views = t._skimp_views, None
    for view in views:
        view._base = was


def _rebase_view(t: Tensor, base: Tensor, node: Node) -> None:
    node._skimp_shape, node._skimp_dtype = shape_of(t), t._dtype
    copy = _new(CopySlices)
    extra = node._skimp_more()
    own = extra.own
    others = node._skimp_edges[: 2 * own] + node._skimp_edges[2 * own + 2 :]
    init(copy, (*edge(base), *others), shape_of(base), base._dtype)
    copy.fn = node
    copy.own = own
    copy.base, copy.view = view_meta(base), view_meta(t)
    copy._skimp_code, copy._skimp_lasti = node._skimp_code, node._skimp_lasti
    extra.within = _ref(copy)
    fresh = not base._rg
    old, old_index = base._skimp_node, base._skimp_index
    base._skimp_node, base._skimp_index, base._rg, base._skimp_inherits = copy, 0, True, False
    if base._skimp_retains and old is not None:
        move_retain(base, old, old_index)
    if fresh:
        mark_views(base)
    before, index = t._skimp_node, t._skimp_index
    t._rg, t._skimp_inherits = True, False
    # `node_of_view`, of which all is known
    t._skimp_node = strided((copy, 0), copy.base, copy.view, t, copy)
    t._skimp_index, t._skimp_stale = 0, t._skimp_version
    if t._skimp_retains and before is not None:
        move_retain(t, before, index)
    if isinstance(node, OpNode):
        save_results(node, (t,))


class CopySlices(Node):
    """The node of a base after a write to a view of it: that part goes through the op, the rest
    past it.
    """

    __slots__ = ("base", "fn", "own", "view")
    _skimp_label = "torch::autograd::CopySlices"
    fn: Node | None
    own: int  # the place of the view's own gradient among those that `fn` returns
    base: ViewMeta
    view: ViewMeta

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Sequence[Tensor | None]:
        g: Any = grads[0]
        fn = self.fn
        if fn is None:
            raise errors.freed(self)
        if g is None:
            return (None,) * (len(self._skimp_edges) >> 1)
        if not g._hollow:  # else the engine may need them once more
            grads.clear()
        if count(g) == HELD_BY_VARIABLE and not _state.grad and self._lies_as_base(g):
            whole = g  # which nobody else will read
        else:
            whole = ops.copy_(empty_like_base(self.base, g), g)
        del g
        part = self.view.of(whole, self.base)
        arrived: Any = ops.clone(part)
        if self.view.conj:
            arrived = ops.conj(arrived)
        out = list(fn.apply([-arrived if self.view.neg else arrived], None))
        own = out.pop(self.own)
        if own is None:
            ops.zero_(part)
        else:
            if self.view.conj:
                own = ops.conj(own)
            ops.copy_(part, -own if self.view.neg else own)
        return [whole, *out]

    def _lies_as_base(self, g: Tensor) -> bool:
        """Whether a gradient is in memory of its own, as a copy for the base would be."""
        if not (is_own(g) and g._dtype is self.base.dtype and type(g) is Tensor):
            return False
        _, strides, first = g._skimp_layout_of()
        return not first and strides == self.base.layout.strides

    def _skimp_release(self) -> None:
        if self.fn is not None:
            self.fn._skimp_release()
            self.fn = None
            self._skimp_saved = None


def replace_history(t: Tensor, node: Node, index: int, own: int) -> None:
    """`t` was written to by something that is no op of the table (a Function): it is output `index`
    of `node`, and was its input number `own`.
    """
    if t._base is None:
        before, at, fresh = t._skimp_node, t._skimp_index, not t._rg
        t._rg, t._skimp_node, t._skimp_index, t._skimp_inherits = True, node, index, False
        if t._skimp_retains and before is not None:
            move_retain(t, before, at)
        if fresh:
            mark_views(t)
        return
    extra = node._skimp_extra = node._skimp_extra or Extra()
    extra.own = own
    _rebase_view(t, t._base, node)
