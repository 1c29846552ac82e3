"""Nodes: what the graph of a gradient is made of, and the edges between them.

A node is made by the op that it differentiates. `_skimp_edges` holds, flat, (node, index) of every
input: where the gradients go, None for inputs that need none. `_skimp_saved` holds, flat,
(value, version) of everything that the formulas read; None once freed.

The node of an `autograd.Function` is the `ctx` that users assign to: what is skimp's own says so,
and every other name that PyTorch's nodes don't have is theirs.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from skimp._engine.memory.storage import sequence
from skimp._engine.tensor.tensor import Tensor

if TYPE_CHECKING:
    from types import CodeType

    from skimp._engine.tensor.dtypes import dtype

Grads = list["Tensor | None"]
Hook = Callable[..., Any]

FOLDED: Final = 2  # views that one node stands for at most (folded.py)
_number = sequence.__next__
_ref = weakref.ref


class Extra:
    """What few nodes have: hooks, metadata, the trace of anomaly mode."""

    __slots__ = (
        "after", "before", "metadata", "on", "own", "retains", "shown", "trace", "version",
        "within", "zeroed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.on: dict[int, OrderedDict[int, Hook]] = {}  # tensor hooks, by output
        self.retains: dict[
            int, weakref.ref[Tensor]
        ] = {}  # tensors whose .grad is wanted, by output
        self.before: OrderedDict[int, Hook] = OrderedDict()
        self.after: OrderedDict[int, Hook] = OrderedDict()
        self.metadata: dict[Any, Any] = {}
        self.trace: str | None = None  # where the op was called, if anomaly mode recorded it
        self.shown: tuple[Any, ...] = ()  # edges that programs see (shown.py)
        self.version = 0  # in-place: of the tensor, after the write
        self.own = 0  # in-place: which edge is that of the tensor written to
        self.zeroed = (
            False  # in-place: nothing of the old values is left, so the last edge gets zeros
        )
        self.within: weakref.ref[Node] | None = (
            None  # in-place on a view: the CopySlices that runs this node
        )


class Runs:
    """What a backward calls to run a node: a plan does it for the nodes of ops."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[[Any, Grads, set[Node] | None, bool], Any]) -> None:
        self.run = run


def _run_itself(node: Node, grads: Grads, wanted: set[Node] | None, keep: bool) -> Any:
    results = node.apply(grads, wanted)
    if not keep:
        node._skimp_release()
    return results


class Node:
    """A step of backward: gradients of an op's outputs in, gradients of its inputs out."""

    __slots__ = (
        "__weakref__", "_skimp_code", "_skimp_dtype", "_skimp_edges", "_skimp_extra",
        "_skimp_first", "_skimp_lasti", "_skimp_number", "_skimp_outputs", "_skimp_saved",
        "_skimp_shape",
    )  # fmt: skip

    _skimp_label: ClassVar[str] = "Node"
    _skimp_again: ClassVar[bool] = False  # its results can be made again (rematerialize.py)
    _skimp_plan: Any = Runs(_run_itself)
    _skimp_edges: tuple[Any, ...]
    _skimp_saved: Any
    _skimp_number: int
    _skimp_outputs: tuple[tuple[Any, Any], ...] | None  # (shape, dtype) of each, if several
    _skimp_shape: tuple[int, ...]  # of output 0
    _skimp_dtype: dtype
    _skimp_code: CodeType | None  # the user's code and the place in it: a line, when somebody asks
    _skimp_lasti: int
    _skimp_extra: Extra | None
    _skimp_first: tuple[CodeType | None, int]  # where the backward that freed the node was called

    def apply(self, grads: Grads, wanted: set[Node] | None) -> Sequence[Tensor | None]:
        """Gradients for `edges`, in order, from the gradients of the outputs; `wanted`: the nodes
        that need theirs.
        """
        raise NotImplementedError

    def _skimp_release(self) -> None:
        """Forget what was saved."""

    def _skimp_unfold(self, wanted: set[Node] | None = None) -> None:
        """Become the nodes that PyTorch has, if this stands for several (folded.py)."""

    # -- what PyTorch shows of a node -------------------------------------------------------------

    def name(self) -> str:
        return type(self)._skimp_label

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        e = self._skimp_edges
        return tuple([(e[i], e[i + 1]) for i in range(0, len(e), 2)])

    @property
    def metadata(self) -> dict[Any, Any]:
        return self._skimp_more().metadata

    @property
    def requires_grad(self) -> bool:
        return True

    def _sequence_nr(self) -> int:
        return self._skimp_number

    def _set_sequence_nr(self, number: int) -> None:
        raise RuntimeError(
            "skimp: the order of backward follows from the nodes' numbers; they can't be changed"
        )

    @property
    def _input_metadata(self) -> tuple[tuple[Any, Any], ...]:
        return self._skimp_metas()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    def __call__(self, *grads: Any) -> Any:
        out = tuple(self.apply(list(grads), None))
        return out[0] if len(out) == 1 else out

    # -- outputs and hooks ------------------------------------------------------------------------

    def _skimp_more(self) -> Extra:
        if self._skimp_extra is None:
            self._skimp_extra = Extra()
        return self._skimp_extra

    def _skimp_metas(self) -> tuple[tuple[Any, Any], ...]:
        """(shape, dtype) of each output."""
        if self._skimp_outputs is not None:
            return self._skimp_outputs
        return ((self._skimp_shape, self._skimp_dtype),)

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after this node; what it returns replaces
        grad_inputs.
        """
        return RemovableHandle.put(self._skimp_more().after, hook)

    def register_prehook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(grad_outputs)` before this node; what it returns replaces them."""
        return RemovableHandle.put(self._skimp_more().before, hook)


class RemovableHandle:
    """Takes a hook away again: `remove()`, or the end of a `with`."""

    next_id = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extras = (
            []
            if extra_dict is None
            else extra_dict
            if isinstance(extra_dict, list)
            else [extra_dict]
        )
        self.extra_dict_ref = tuple([weakref.ref(d) for d in extras])

    @classmethod
    def put(cls, hooks: Any, hook: Hook) -> RemovableHandle:
        """Add `hook` to `hooks`."""
        handle = cls(hooks)
        hooks[handle.id] = hook
        return handle

    def remove(self) -> None:
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            hooks = ref()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        """What it takes a hook from, by which a copy finds the copied hooks."""
        return self.hooks_dict_ref(), self.id, tuple([ref() for ref in self.extra_dict_ref])

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id, *extras = state
        none: Any = OrderedDict()  # a reference that is dead at once
        self.hooks_dict_ref = weakref.ref(none if hooks is None else hooks)
        kept = extras[0] if extras else ()
        self.extra_dict_ref = tuple([weakref.ref(none if d is None else d) for d in kept])
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class AccumulateGrad(Node):
    """The end of every path: adds what arrives to a leaf's `.grad`."""

    __slots__ = ("variable",)
    _skimp_label = "torch::autograd::AccumulateGrad"
    variable: Tensor
    # the same for all of them, so that making one is cheap
    _skimp_edges = ()
    _skimp_saved = ()
    _skimp_outputs = None
    _skimp_code = None
    _skimp_lasti = 0

    def _sequence_nr(self) -> int:
        return 2**64 - 1

    def __call__(self, *grads: Any) -> None:
        self.apply(list(grads), None)


def accumulate_of(t: Tensor) -> Node:
    """The node of a leaf: one as long as a graph holds it (the leaf itself does not)."""
    ref: Any = t._skimp_accumulate
    if ref is not None:
        node: Node | None = ref()
        if node is not None:
            return node
    made = AccumulateGrad()
    made.variable = t
    made._skimp_number = _number()
    a = t._np
    made._skimp_shape = a.shape if a is not None else t._skimp_layout.shape  # type: ignore[union-attr]
    made._skimp_dtype = t._dtype
    made._skimp_extra = None
    t._skimp_accumulate = _ref(made)
    return made


def init(node: Node, edges: tuple[Any, ...], shape: tuple[int, ...], dtype: dtype) -> None:
    """Fill in a node that is not made by the fast path of `record`."""
    node._skimp_edges = edges
    node._skimp_saved = ()
    node._skimp_outputs = None
    node._skimp_number = next(sequence)
    node._skimp_shape = shape
    node._skimp_dtype = dtype
    node._skimp_code = None
    node._skimp_lasti = 0
    node._skimp_extra = None


def shape_of(t: Tensor) -> tuple[int, ...]:
    """The shape as a plain tuple."""
    a = t._np
    return a.shape if a is not None else t._skimp_layout.shape  # type: ignore[union-attr]
