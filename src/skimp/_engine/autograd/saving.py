"""The one door through which tensors are saved for backward and come out again.

In: the version is noted, `saved_tensors_hooks` pack, a region that saves nothing saves nothing.
Out: the version is checked, the hooks unpack, a saved result gets its history back. A result is
saved as an alias without history: the node would keep itself alive otherwise.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

from skimp._engine.autograd import errors, modes, rematerialize as rematerialized
from skimp._engine.autograd.nodes import AccumulateGrad, Grads, Node, shape_of
from skimp._engine.autograd.ops import ops
from skimp._engine.autograd.refresh import edge, node_of_view, strided
from skimp._engine.autograd.rules import Plan
from skimp._engine.tensor import dtypes
from skimp._engine.tensor.tensor import Tensor, ghost

GUARDED: list[
    None
    # one for each open region with hooks, or that saves nothing, in any thread: empty opens the
    # short
    # way
] = []

TWICE = (
    "Calling register_hooks on a saved tensor whose hooks have already been set. "
    "Hint: only one pair of hooks is allowed at a time."
)
FREED = (
    "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate values "
    "of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to "
    "access saved variables after calling backward."
)
PACK_WROTE = (
    "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack "
    "hook cannot be modified by in-place operations as this can lead to unexpected side-effects. "
    "Please open an issue if you need to perform in-place operations on the input to a pack hook."
)


class Packed:
    """A saved tensor in the form that a pack hook gave it, with what its history needs."""

    __slots__ = ("data", "edge", "leaf", "result", "unpack_hook")

    def __init__(
        self, t: Tensor, pack: Callable[..., Any], unpack: Callable[..., Any], result: int | None
    ) -> None:
        self.unpack_hook = unpack
        self.result = result
        self.leaf = t._rg and t._skimp_node is None
        self.edge: tuple[Node, int] | None = None
        if t._rg and result is None:
            node, index = edge(t)
            if node is not None:  # as of the values of a sparse tensor that has its own history
                self.edge = node, index
        version = t._skimp_version
        with modes.no_grad():
            self.data = pack(t)
        if t._skimp_version != version:
            raise RuntimeError(PACK_WROTE)
        if result is not None and self.data is t:
            self.data = ghost(
                t
            )  # the hook gave the tensor back: without its node, which holds this

    def unpack(self, node: Node) -> Tensor:
        with modes.no_grad():
            t = self.unpack_hook(self.data)
        if not isinstance(t, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(t).__name__}"
            )
        if not modes.state.grad and isinstance(node._skimp_plan, Plan):
            return t  # formulas don't look at its history, as a Function's backward may
        if self.result is not None:
            return revived(t, node, self.result)
        if self.edge is None:
            return t if not t._rg else ghost(t)
        if self.leaf:
            alias = ghost(t)
            alias._rg = True
            alias._skimp_accumulate = weakref.ref(self.edge[0])
            return alias
        return revived(t, self.edge[0], self.edge[1])


class Many:
    """A saved list of tensors: (value, version) of each, flat."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[Any]) -> None:
        self.pairs = pairs

    def unpack(self, node: Node) -> list[Any]:
        pairs = self.pairs
        return [one(node, pairs[i], pairs[i + 1], None) for i in range(0, len(pairs), 2)]


class Entries:
    """A saved sparse tensor: its values are what is saved and checked."""

    __slots__ = ("sparse", "value", "version")

    def __init__(self, node: Node, sparse: Any) -> None:
        self.sparse = sparse
        self.value, self.version = save(node, sparse._values())

    def unpack(self, node: Node) -> Any:
        values = one(node, self.value, self.version, None)
        return self.sparse if values is self.value else self.sparse.like(values)


class Withheld:
    """Stands for a tensor that was not saved, because of where the op ran."""

    __slots__ = ("site",)

    def __init__(self, site: Any) -> None:
        self.site = site

    def unpack(self, node: Node) -> Tensor:
        raise errors.withheld(node, self.site)


SPECIAL = frozenset({Packed, Many, Entries, Withheld})


def revived(t: Tensor, node: Node | None, index: int) -> Tensor:
    """An alias of `t` with a history, if it may have one: places and exponents have none."""
    if t._dtype.category < dtypes.FLOAT:
        return t
    new = ghost(t)
    new._rg = True
    if node is not None and node._skimp_extra is not None and node._skimp_extra.within is not None:
        node, index = seen_from(node, t), 0
    new._skimp_node = node
    new._skimp_index = index
    new._skimp_inherits = node is None
    return new


def seen_from(fn: Node, t: Tensor) -> Node | None:
    """The history of a view that `fn` wrote to, as it was after that write."""
    assert fn._skimp_extra is not None
    assert fn._skimp_extra.within is not None
    copy: Any = fn._skimp_extra.within()
    return None if copy is None else strided((copy, 0), copy.base, copy.view, t)


# -- in --------------------------------------------------------------------------------------------


def save(node: Node, value: Any, result: int | None = None) -> tuple[Any, int | None]:
    """(what to store, version) for a value that a formula reads; `result`: which output of `node`
    it is.
    """
    if isinstance(value, Tensor):
        if GUARDED or value._skimp_inference:
            return _save_tensor(node, value, result)
        return _kept(node, value, result)
    if isinstance(value, (list, tuple)) and any([isinstance(v, Tensor) for v in value]):
        pairs: list[Any] = []
        for v in value:
            pairs += save(node, v)
        return Many(pairs), None
    return value, None


def _save_tensor(node: Node, t: Tensor, result: int | None) -> tuple[Any, int | None]:
    if t._skimp_inference:
        raise RuntimeError(errors.INFERENCE_SAVED)
    state = modes.state
    if state.save_nothing is not None:
        return Withheld(state.save_nothing), None
    if state.hooks:
        pack, unpack = state.hooks[-1]
        if unpack is None:  # it is told of what is kept
            kept = _kept(node, t, result)
            pack(kept[0])
            return kept
        return Packed(t if result is None else revived(t, node, result), pack, unpack, result), None
    return _kept(node, t, result)


def _kept(node: Node, t: Tensor, result: int | None) -> tuple[Tensor, int]:
    if result is None:
        if t._rg and (t._np is None or t._np.nbytes >= rematerialized.AGAIN_FROM):
            t = rematerialized.instead_of(t)
    elif t._np is None:
        t = rematerialized.of_result(node, t)
    s = t._storage
    s.saved = True
    counter = t._skimp_counter
    return t if result is None else ghost(t), s.version if counter is None else counter.version


def meta_of(value: Any, meta: str) -> Any:
    """The shape, strides, dtype or layout of an argument that is not saved, or a note of it; of a
    list, of each."""
    if isinstance(value, (list, tuple)):
        return [meta_of(v, meta) for v in value]
    if not isinstance(value, Tensor):
        return () if meta == "_shape" else None
    if meta == "_shape":
        return shape_of(value)
    if meta == "_strides":
        return strides_of(value)
    if meta == "_noted":
        return None if value._hollow else rematerialized.Noted(value)
    return value._dtype if meta == "_dtype" else value._skimp_layout_of()


def strides_of(t: Tensor) -> tuple[int, ...]:
    """The strides of a tensor that is not kept; those of a leaf are found once."""
    a = t._np
    if a is None or t._skimp_layout is not None or t._skimp_node is None:
        return t._skimp_layout_of().strides
    size = a.itemsize
    if a.ndim == 2:
        down, right = a.strides
        return down // size, right // size
    return tuple([s // size for s in a.strides])


# -- out -------------------------------------------------------------------------------------------


def holds_tensor(node: Any) -> bool:
    """Whether a tensor is among what `node` saved of arguments that have no gradient."""
    saved = node._skimp_saved
    if saved is None:
        return False
    for at in node._skimp_plan.frees_if_tensor:
        if saved[at + 1] is not None or type(saved[at]) in SPECIAL:
            return True
    return False


def check(node: Any, slot: Any, value: Tensor, version: int) -> None:
    """Refuse a saved tensor that was cut off from its history, or written to, since."""
    if value._skimp_cut is not None and _was_followed(node, slot) and value._skimp_node is None:
        raise errors.detached(node, value)
    counter = value._skimp_counter
    if (value._storage.version if counter is None else counter.version) != version:
        raise _changed(node, slot, value, version)


def one(node: Any, value: Any, version: int | None, result: int | None) -> Any:
    """One saved value, checked."""
    if version is None:
        return value.unpack(node) if type(value) in SPECIAL else value
    if value._skimp_version != version:
        raise modified(node, value, version, result)
    return value if result is None else revived(value, node, result)


def _was_followed(node: Any, slot: Any) -> bool:
    """Whether the argument had a grad_fn when it was saved."""
    names = node._skimp_plan.rule.names
    if slot[0] or slot[2] not in names or node._skimp_plan.lists:
        return False
    to = node._skimp_edges[2 * names.index(slot[2])]
    return to is not None and type(to) is not AccumulateGrad


def _changed(node: Any, slot: Any, value: Tensor, version: int) -> RuntimeError:
    return modified(node, value, version, slot[2] if slot[0] == 1 else None)


def modified(node: Any, t: Tensor, version: int, result: int | None) -> RuntimeError:
    if result is not None:
        return errors.modified(node, t, version, t._skimp_version, node, result)
    made_by = t._skimp_node if t._base is None else node_of_view(t)  # which may refuse first
    return errors.modified(node, t, version, t._skimp_version, made_by, t._skimp_index)


def with_zeros(node: Node, grads: Grads) -> list[Tensor]:
    """The gradients of all outputs, with zeros (of one element's size) where nothing arrived."""
    like = None
    missing = False
    for g in grads:
        if g is None:
            missing = True
        elif like is None:
            like = g
    if not missing:
        return grads  # type: ignore[return-value]
    out: list[Any] = []
    zeros: dict[Any, Tensor] = {}  # one of each type, whatever the shapes
    for g, (shape, dtype) in zip(grads, node._skimp_metas(), strict=True):
        if g is None:
            if dtype not in zeros:
                zeros[dtype] = ops.new_zeros(like, (), dtype=dtype)
            g = ops.expand(zeros[dtype], shape)
        out.append(g)
    return out


# -- what a node shows ----------------------------------------------------------------------------


class SavedTensor:
    """`node._raw_saved_x`: a saved tensor before it is unpacked, to register hooks on."""

    __slots__ = ("at", "box", "node", "result")

    def __init__(self, node: Node, box: list[Any], at: int, result: int | None) -> None:
        self.node = node
        self.box = box
        self.at = at
        self.result = result

    @property
    def data(self) -> Any:
        value = self.box[self.at]
        return value.data if isinstance(value, Packed) else value

    @property
    def unpack_hook(self) -> Any:
        value = self.box[self.at]
        return value.unpack_hook if isinstance(value, Packed) else None

    def unpack(self) -> Any:
        """The saved tensor."""
        if self.node._skimp_saved is None:
            raise errors.freed(self.node)
        return one(self.node, self.box[self.at], self.box[self.at + 1], self.result)

    def register_hooks(self, pack_hook: Any, unpack_hook: Any) -> None:
        """Replace what is saved by `pack_hook` of it; `unpack_hook` gives it back when backward
        needs it.
        """
        if not (callable(pack_hook) and callable(unpack_hook)):
            raise TypeError(
                "register_hooks(): incompatible function arguments. The following argument types "
                "are supported:\n    (pack_hook: Callable, unpack_hook: Callable) -> "
                f"None\n\nInvoked with: {pack_hook!r}, {unpack_hook!r}"
            )
        if self.node._skimp_saved is None:
            raise RuntimeError(FREED)
        value = self.box[self.at]
        if isinstance(value, Packed):
            raise RuntimeError(TWICE)
        if value is None:
            raise RuntimeError(
                "Calling register_hooks on a saved tensor with value None is forbidden. "
                "Saved None tensors can not have hooks."
            )
        t = self.unpack()
        self.box[self.at] = Packed(t, pack_hook, unpack_hook, self.result)
        self.box[self.at + 1] = None


def attribute(node: Any, name: str) -> Any:
    """`_saved_NAME` and `_raw_saved_NAME` of a node with a rule."""
    for prefix, raw in (("_saved_", False), ("_raw_saved_", True)):
        if name.startswith(prefix):
            wanted = name[len(prefix) :]
            for i, slot in enumerate(node._skimp_plan.slots):
                if slot.name == wanted or _alias(slot.name) == wanted:
                    return _shown(node, slot, 2 * i, raw)
            if (
                wanted in node._skimp_plan.rule.names
                or _alias_back(wanted) in node._skimp_plan.rule.names
            ):
                return None  # a tensor that these gradients do not need
            if not raw and wanted in node._skimp_plan.rule.shows:
                return node._skimp_plan.rule.shows[wanted](node)
    raise AttributeError(f"'{type(node).__name__}' object has no attribute '{name}'")


def attributes(node: Any) -> list[str]:
    """The names of what a node with a rule shows."""
    plan = node._skimp_plan
    shown = [slot.name for slot in plan.slots if slot.name != "needs" and slot.meta != "_noted"]
    names = [_alias(name) for name in shown]
    return [f"_saved_{name}" for name in dict.fromkeys([*names, *plan.rule.shows])]


def _alias(name: str) -> str:
    """PyTorch's name of what a formula calls by the op's argument."""
    first, _, last = name.rpartition("_")
    if first and last in _OF_LAYOUT:
        return f"{_alias(first)}_{_OF_LAYOUT[last]}"
    return "self" if name == "input" else name


_OF_LAYOUT: Final = {"shape": "sym_sizes", "strides": "sym_strides"}


def _alias_back(name: str) -> str:
    return "input" if name == "self" else name


def _shown(node: Any, slot: Any, at: int, raw: bool) -> Any:
    result = slot.of if slot.kind == 1 else None
    if raw:
        return SavedTensor(node, node._skimp_saved or [], at, result)
    if node._skimp_saved is None:
        raise errors.freed(node)
    with modes.enable_grad():
        return one(node, node._skimp_saved[at], node._skimp_saved[at + 1], result)
