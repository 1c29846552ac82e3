"""Backward: gradients flow from outputs to leaves, through the nodes in the order of their numbers,
newest first.

A node's number is higher than the numbers of all nodes that it leads to, so the newest node that
waits has received everything that it will receive: no dependencies need counting. Leaves go before
all other nodes, as soon as they have received everything (`leaves`). Formulas run unrecorded unless
`create_graph`.
"""

from __future__ import annotations

import itertools
import sys
from functools import lru_cache
from heapq import heappop, heappush, heappushpop
from typing import Any

from skimp._engine.autograd import anomaly, hooks, modes, node_lines as lines, tasks, watched
from skimp._engine.autograd.captures import Captures
from skimp._engine.autograd.last_reader import is_own
from skimp._engine.autograd.leaves import HELD_BY_ONE, count, edges_to_leaves
from skimp._engine.autograd.nodes import AccumulateGrad, Grads, Node, Runs, shape_of
from skimp._engine.autograd.ops import ops
from skimp._engine.autograd.parts import Part
from skimp._engine.autograd.refresh import node_of_view
from skimp._engine.eval.run import threads_for
from skimp._engine.interpreter import HELD_BY_ATTRIBUTE, HELD_BY_VARIABLE
from skimp._engine.memory.layout import contiguous_strides, is_non_overlapping_and_dense, numel
from skimp._engine.memory.ledger import host
from skimp._engine.tensor import meta, regions
from skimp._engine.tensor.dtypes import FLOATING
from skimp._engine.tensor.tensor import Tensor, empty, fresh, ghost
from skimp._kernels import bare, sharing
from skimp._kernels.locks import reentrant
from skimp._kernels.shaping import is_dense
from skimp._kernels.threads import quietly

_state = modes.state
_active = regions.active
_add_arrays = bare.add
_watched_by = watched.ON  # whoever is told of nodes
_frame = sys._getframe
_AND_BY_TENSOR = HELD_BY_VARIABLE + 1  # references to a storage that one tensor and a variable have
_accumulating = reentrant()  # two backwards may meet at one leaf


_numbers = itertools.count()
Root = tuple[Node, int, Tensor]


def run(
    roots: list[Root | None], keep: bool, create: bool, captures: Captures | None = None
) -> None:
    """Send the roots' gradients through the graph (the list is emptied). `keep`: nodes keep what
    they saved.

    What it changes is restored by a function of its own: CPython 3.12 to 3.14 look for signals
    where a loop jumps back, and where that ends an `if`, no `finally` of the same function runs.
    """
    if host.budget is not None:
        host.budget.between_ops()
    before, task = _state.grad, tasks.running.now
    observers = tuple(watched.OBSERVERS)
    for one in observers:
        one.backward_begins()
    try:
        _state.grad = create
        flow(roots, keep, create, captures, task)
    finally:
        _state.grad = before
        tasks.running.now = task
        for one in observers:
            one.backward_ends()


def flow(
    roots: list[Root | None], keep: bool, create: bool, captures: Captures | None, task: Any
) -> None:
    """`run`, in one function because each part of its own would be a frame of every small step."""
    # What has received gradients, and has yet to run: leaves that are complete, in that order;
    # a node that may be the newest (in a chain it always is); all other nodes.
    ready: list[Node] = []
    newest: Node | None = None
    waiting: list[tuple[int, Node]] = []
    buffers: dict[Node, Grads] = {}
    begins: list[Any] = []
    origins: list[Node] = []
    for root in roots:
        if root is not None:
            begins.append(root)
            origins.append(root[0])
    root = None
    roots.clear()
    wanted = None
    if captures is not None:
        captures.search(origins)
        wanted = captures.wanted
    tasks.running.now = next(_numbers), origins, wanted
    # gradients that leaves have yet to receive, once something else than an edge holds one
    left: dict[Node, int] | None = None
    frame: Any = _frame(1)
    code = frame.f_code
    while code.co_filename in lines.INSIDE and (back := frame.f_back) is not None:
        frame = back
        code = frame.f_code
    caller = code, frame.f_lasti  # for who runs a freed node again
    if code.co_filename not in lines.OUTSIDE:
        caller = lines.outside(frame)
    frame = back = None
    a: Any
    while begins:
        to, index, r = begins.pop(0)
        if wanted is None or to in wanted:
            if (
                type(r) is not Tensor
                or ((a := r._np) is None and (a := r._skimp_layout) is None)
                or a.shape != to._skimp_shape
                or r._dtype is not to._skimp_dtype
            ):
                r = _validated(to, 0, r, to, index)
            if to in buffers or to._skimp_outputs is not None:
                _deliver(to, index, r, waiting, buffers, create)
            else:
                buffers[to] = [r]
                if type(to) is not AccumulateGrad:
                    heappush(waiting, (-to._skimp_number, to))
            if type(to) is AccumulateGrad:
                left = left or edges_to_leaves(origins, wanted)
                left[to] = more = left[to] - 1
                if not more:
                    ready.append(to)
    r = to = a = None  # nobody but the buffers holds a gradient: it may be taken or freed
    results: Any
    while True:
        if ready:
            node = ready.pop(0)
        elif newest is not None:
            node, newest = newest, None
            if waiting and waiting[0][0] < -node._skimp_number:
                node = heappushpop(waiting, (-node._skimp_number, node))[1]
        elif waiting:
            node = heappop(waiting)[1]
        else:
            break
        grads = buffers.pop(node)
        extra = node._skimp_extra
        if captures is not None and node in captures.at and captures.take(node, grads):
            continue
        if extra is not None:
            grads = hooks.before(node, extra, grads)
        if _watched_by or (extra is not None and extra.after):
            results = _watched(node, grads, wanted, keep, buffers)
        else:
            results = node._skimp_plan.run(node, grads, wanted, keep)
        del grads
        if not results:
            continue  # a leaf's
        if node._skimp_saved is None:
            node._skimp_first = caller
        edges = node._skimp_edges
        i = -2
        for r in results:
            i += 2
            to = edges[i]
            if to is None or (wanted is not None and to not in wanted):
                continue
            outputs = to._skimp_outputs
            if r is not None and (
                type(r) is not Tensor
                or ((a := r._np) is None and (a := r._skimp_layout) is None)
                or (
                    a.shape != to._skimp_shape or r._dtype is not to._skimp_dtype
                    if outputs is None
                    else (a.shape, r._dtype) != outputs[edges[i + 1]]
                )
            ):
                if type(r) is Part:
                    r = r.arrives(buffers, to, edges[i + 1])
                if r is not None:
                    r = _validated(node, i >> 1, r, to, edges[i + 1])
            is_leaf = type(to) is AccumulateGrad
            if to in buffers:
                _add(buffers[to], edges[i + 1], r, create)
            elif outputs is not None:
                _deliver(to, edges[i + 1], r, waiting, buffers, create)
            else:
                buffers[to] = [r]
                if not is_leaf:
                    if newest is None:
                        newest = to
                    else:
                        heappush(waiting, (-to._skimp_number, to))
            if is_leaf:
                if left is None and count(to) != HELD_BY_ONE:
                    left = edges_to_leaves(origins, wanted)
                if left is not None:
                    left[to] = more = left[to] - 1
                    if more:
                        continue
                ready.append(to)
        r = a = to = None
        del results, edges, node, extra
    if task[0] is None:
        if tasks.AFTERWARDS:
            tasks.call_afterwards()
        if host.budget is not None and not keep:
            host.budget.after_backward()


def _watched(
    node: Node, grads: Grads, wanted: set[Node] | None, keep: bool, buffers: dict[Node, Grads]
) -> Any:
    """Run a node that has hooks, under anomaly mode, or while somebody observes backward."""
    node._skimp_unfold(wanted)
    for one in watched.OBSERVERS:
        one.node_begins(node, keep)
    extra = node._skimp_extra
    if anomaly.ON or (extra is not None and extra.after):
        results = _with_hooks(node, grads, wanted, keep)
    else:
        results = node._skimp_plan.run(node, grads, wanted, keep)
        edges = node._skimp_edges
        for i, r in enumerate(results):  # what becomes a tensor does so while the node is known
            if type(r) is Part and edges[2 * i] not in buffers:
                results[i] = r.whole()
    for one in watched.OBSERVERS:
        one.node_ends(node)
    return results


def _with_hooks(node: Node, grads: Grads, wanted: set[Node] | None, keep: bool) -> Any:
    arrived = tuple(grads)
    if anomaly.ON:
        results = anomaly.apply(node, grads, wanted)
    else:
        results = node.apply(grads, wanted)
    if node._skimp_extra is not None:
        results = hooks.after(node._skimp_extra, results, arrived)
    if not keep:  # not before: hooks may look at what was saved
        node._skimp_release()
    return results


def _deliver(
    node: Node,
    index: int,
    g: Tensor | None,
    waiting: list[tuple[int, Node]],
    buffers: dict[Node, Grads],
    create: bool,
) -> None:
    """Add a gradient to what waits at `node`."""
    buffer = buffers.get(node)
    if buffer is not None:
        _add(buffer, index, g, create)
    else:
        outputs = node._skimp_outputs
        if outputs is None:
            buffers[node] = [g]
        else:
            buffer = [None] * len(outputs)
            buffer[index] = g
            buffers[node] = buffer
        if type(node) is not AccumulateGrad:
            heappush(waiting, (-node._skimp_number, node))


def _add(buffer: Grads, index: int, g: Tensor | None, create: bool) -> None:
    """Add a gradient to another that waits for the same output: in place where nobody could see."""
    have = buffer[index]
    if have is None:
        buffer[index] = g
    elif g is not None:
        buffer[index] = None
        x, y = have._np, g._np
        if not (create or _active or x is None or y is None):  # written out for small tensors
            s = have._storage
            if (
                count(have) == HELD_BY_VARIABLE
                and count(s) == _AND_BY_TENSOR
                and x is s.block
                and x.shape == y.shape
                and have._dtype is g._dtype
                and x.dtype.char in "fdFD"
                and not (s.exported or have._rg or have._skimp_marked)
                and have._base is None
            ):
                s.version += 1
                _add_arrays(x, y, x)
                buffer[index] = have
                return
            del s
        if not create and count(have) == HELD_BY_VARIABLE and is_own(have) and _same_kind(have, g):
            if _active or not _added_in_memory(have, g):
                ops.add_(have, g)
            buffer[index] = have
        else:
            buffer[index] = (
                g + have if have._hollow else have + g
            )  # dense + sparse, not the reverse


def _added_in_memory(have: Tensor, g: Tensor) -> bool:
    """Add a large gradient to one that is nobody else's, by one call, if both are in memory and
    row-major, and one thread is enough; whether it was done. The bits are those of `add_`."""
    if type(have) is not Tensor or type(g) is not Tensor or have._skimp_marked or g._skimp_marked:
        return False
    own, other = have._skimp_layout, g._skimp_layout
    if own is None or other is None or have._dtype not in FLOATING or g._conj or g._skimp_neg:
        return False
    shape, strides, _ = own
    if strides != other.strides or strides != contiguous_strides(shape):
        return False
    s = have._storage
    if s.deferred is not None or g._storage.deferred is not None:
        return False
    if threads_for(numel(shape), 1) > 1:
        return False
    if host.budget is not None:
        s.will_write()  # what is away and made from it is made before
    x, y = have._skimp_array(), g._skimp_array()
    s.version += 1
    if not sharing.ran(_add_arrays, (x, y), x):
        quietly(_add_arrays, x, y, x)
    return True


def _same_kind(a: Tensor, b: Tensor) -> bool:
    x, y = a._np, b._np
    if x is not None and y is not None:
        return x.shape == y.shape and a._dtype is b._dtype
    return shape_of(a) == shape_of(b) and a._dtype is b._dtype and not b._hollow


def _validated(node: Node, i: int, g: Any, to: Node, index: int) -> Tensor:
    """The gradient in the shape and dtype of what it is a gradient of: sums over broadcast
    dimensions, casts.
    """
    if to._skimp_outputs is None:
        shape, dtype = to._skimp_shape, to._skimp_dtype
    else:
        shape, dtype = to._skimp_outputs[index]
    if not isinstance(g, Tensor):
        raise TypeError(
            f"function {node._skimp_label} returned a {type(g).__name__} where a gradient was "
            "expected"
        )
    a = g._np
    have = a.shape if a is not None else g._skimp_layout.shape  # type: ignore[union-attr]
    if have != shape:
        over = _summed_over(shape, have)
        if over is None:
            raise RuntimeError(
                f"Function {node._skimp_label} returned an invalid gradient at index {i} - got "
                f"{list(have)} but expected shape compatible with {list(shape)}"
            )
        g = ops.sum(g, *over)
        if over[1] and len(have) != len(shape):
            g = ops.view(g, shape)
    if g._dtype is not dtype:
        if g._dtype.is_complex and not dtype.is_complex:
            g = ops.real(g)
        if g._dtype is not dtype:
            g = ops.to(g, dtype)
    return g  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def _summed_over(
    shape: tuple[int, ...], have: tuple[int, ...]
) -> tuple[tuple[int, ...], bool] | None:
    """The dims over which a gradient is summed for a tensor of `shape` that was broadcast to
    `have`, and whether they stay; None where it can't have been.
    """
    lead = len(have) - len(shape)
    if lead < 0 or not all([n in (1, m) for n, m in zip(shape, have[lead:], strict=True)]):
        return None
    alone = tuple([lead + d for d, n in enumerate(shape) if n == 1 and have[lead + d] != 1])
    return (*range(lead), *alone), bool(alone)


# -- leaves ----------------------------------------------------------------------------------------


def _accumulate(
    self: AccumulateGrad, grads: Grads, wanted: set[Node] | None, keep: bool = False
) -> tuple[()]:
    """Add the gradient to the leaf's `.grad`, in place where there is one."""
    t = self.variable
    if t._skimp_hooks and self._skimp_extra is None:  # else they ran before the node's own
        grads = hooks.of_leaf(self, grads)
    g = grads.pop()
    if g is None or not t._rg:
        return ()
    if t._base is not None:
        node_of_view(t)  # refuses one whose base was written to since
    if t._skimp_node is not None:
        raise RuntimeError("leaf variable has been moved into the graph interior")
    with _accumulating:
        have = t._grad
        if g._skimp_sparse or (have is not None and have._skimp_sparse):
            t._grad = g if have is None else have + g if g._skimp_sparse else g + have
        elif (
            have is None
            and not _state.grad
            and type(g) is Tensor
            and (a := g._np) is not None
            and (b := t._np) is not None
            and a is g._storage.block
            and count(g) == HELD_BY_VARIABLE
            and count(g._storage) == HELD_BY_ATTRIBUTE
            and is_dense(a)
            and is_dense(b)
            and not (g._rg or g._skimp_marked or g._storage.exported)
            and g._base is None
            and g._skimp_views is None
        ):
            t._grad = g  # a small tensor that is all of its storage, which nobody else has
        elif have is None:
            stolen = None
            if not _state.grad and count(g) == HELD_BY_VARIABLE and _obeys(g, t):
                stolen = g if _is_plain(g) else ghost(g)
                g = None  # and with it, what it was a view of
                if not is_own(stolen):
                    g, stolen = stolen, None
            t._grad = _copied(g, t) if stolen is None else stolen  # type: ignore[arg-type]
        elif _state.grad:
            t._grad = have + g
        else:
            ops.add_(have, g)
    del g
    if t._skimp_post_hooks:
        hooks.post_accumulate(t)
    return ()


AccumulateGrad.apply = _accumulate  # type: ignore[method-assign, assignment]
AccumulateGrad._skimp_plan = Runs(_accumulate)


def _strides_for(t: Tensor) -> tuple[int, ...]:
    """The strides that a leaf's gradient gets: its own where they are dense, else row-major."""
    layout = t._skimp_layout_of()
    return (
        layout.strides if is_non_overlapping_and_dense(layout) else contiguous_strides(layout.shape)
    )


def _is_plain(t: Tensor) -> bool:
    """Whether the tensor has nothing that a leaf's gradient should not have."""
    return (
        type(t) is Tensor and t._base is None and t._skimp_node is None and t._skimp_views is None
    )


def _obeys(g: Tensor, leaf: Tensor) -> bool:
    """Whether the strides are what the leaf's gradient should have (PyTorch: the gradient layout
    contract).
    """
    x, y = g._np, leaf._np
    if x is not None and y is not None and y.flags.c_contiguous and x.shape == y.shape:
        return x.flags.c_contiguous
    have, want = g._skimp_layout_of(), _strides_for(leaf)
    pairs = zip(have.strides, want, have.shape, strict=False)
    return len(have.shape) <= len(want) and all([a == b or n == 1 for a, b, n in pairs])


def _copied(g: Tensor, leaf: Tensor) -> Tensor:
    a, b = g._np, leaf._np
    if (
        type(g) is Tensor
        and a is not None
        and b is not None
        and a.shape == b.shape
        and b.flags.c_contiguous
        and (b is leaf._storage.block or 1 not in a.shape)  # whose strides may be any
        and not (_active or _state.grad or host.watched)  # who listens is told of the copy
    ):
        return fresh(a.copy(), g._dtype)
    if g._skimp_meta is not None:
        return meta.empty(shape_of(leaf), g._dtype, _strides_for(leaf))
    made = empty(shape_of(leaf), g._dtype, _strides_for(leaf))
    return ops.copy_(made, g)  # refuses where the leaf has taken another shape since
