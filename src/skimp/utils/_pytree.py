"""torch.utils._pytree: nested containers as a list of leaves and the structure around them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from skimp._compat.modules import lookup as _lookup

__all__ = [
    "GetAttrKey", "LeafSpec", "MappingKey", "PyTree", "SequenceKey", "TreeSpec", "key_get",
    "keystr", "register_pytree_node", "tree_all", "tree_any", "tree_flatten",
    "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path",
    "tree_map", "tree_map_", "tree_map_only", "tree_map_with_path", "tree_structure",
    "tree_unflatten",
]  # fmt: skip
__getattr__ = _lookup(__name__)

PyTree = Any
IsLeaf = Callable[[Any], bool] | None


class _Node(NamedTuple):
    """How a container is taken apart, into children and a context, and put together again.

    `flatten_with_keys_fn` gives each child as (key, child); None where nobody said how.
    """

    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None


SUPPORTED_NODES: dict[Any, _Node] = {}


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None,
    **_: Any,
) -> None:
    """Let instances of a class (not of its subclasses) be containers.

    `flatten_fn` gives (children, context), which `unflatten_fn` takes back; `flatten_with_keys_fn`
    gives (key, child) pairs for paths. ValueError for a class that is one already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = _Node(flatten_fn, unflatten_fn, flatten_with_keys_fn)


@dataclass(frozen=True)
class MappingKey:
    """One step of a path: into a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, of: Any) -> Any:
        """What is there."""
        return of[self.key]


@dataclass(frozen=True)
class SequenceKey:
    """One step of a path: into a list, a tuple or a deque."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, of: Any) -> Any:
        """What is there."""
        return of[self.idx]


@dataclass(frozen=True)
class GetAttrKey:
    """One step of a path: to an attribute, which the fields of a named tuple are."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, of: Any) -> Any:
        """What is there."""
        return getattr(of, self.name)


def _dict(keys: Any, values: Iterable[Any]) -> Any:
    return zip(keys, values, strict=True)


def _numbered(flatten: Any) -> Any:
    def keyed(x: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, context = flatten(x)
        return [(SequenceKey(i), child) for i, child in enumerate(children)], context

    return keyed


def _by_key(flatten: Any) -> Any:
    def keyed(x: Any) -> tuple[list[tuple[Any, Any]], Any]:
        children, context = flatten(x)
        return list(zip(map(MappingKey, x), children, strict=True)), context

    return keyed


def _register(cls: type, flatten: Any, unflatten: Any, keyed: Any) -> None:
    register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=keyed(flatten))


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d)


_dict_flatten_with_keys = _by_key(_dict_flatten)  # programs register their own dicts with these


def _dict_unflatten(values: Iterable[Any], keys: Any) -> dict[Any, Any]:
    return dict(_dict(keys, values))


_register(list, lambda x: (x, None), lambda c, _: list(c), _numbered)
_register(tuple, lambda x: (list(x), None), lambda c, _: tuple(c), _numbered)
_register(dict, _dict_flatten, _dict_unflatten, _by_key)
_register(OrderedDict, _dict_flatten, lambda c, k: OrderedDict(_dict(k, c)), _by_key)
_register(
    defaultdict,
    lambda x: (list(x.values()), [x.default_factory, list(x)]),
    lambda c, k: defaultdict(k[0], _dict(k[1], c)),
    _by_key,
)
_register(deque, lambda x: (list(x), x.maxlen), lambda c, n: deque(c, maxlen=n), _numbered)
SUPPORTED_NODES[namedtuple] = _Node(
    lambda x: (list(x), type(x)),
    lambda c, kind: kind(*c),
    lambda x: ([(GetAttrKey(name), getattr(x, name)) for name in x._fields], type(x)),
)

# programs register their own lists, tuples and dicts with these
_list_flatten, _list_unflatten, _ = SUPPORTED_NODES[list]
_tuple_flatten, _tuple_unflatten, _ = SUPPORTED_NODES[tuple]
_namedtuple_flatten, _namedtuple_unflatten, _ = SUPPORTED_NODES[namedtuple]
_ordereddict_flatten, _ordereddict_unflatten, _ = SUPPORTED_NODES[OrderedDict]
_defaultdict_flatten, _defaultdict_unflatten, _ = SUPPORTED_NODES[defaultdict]
_deque_flatten, _deque_unflatten, _ = SUPPORTED_NODES[deque]


def _get_node_type(tree: Any) -> Any:
    """The type under which a container is registered: all named tuples are of one kind."""
    found = type(tree)
    if isinstance(tree, tuple) and found is not tuple and hasattr(found, "_fields"):
        return namedtuple
    return found


def _node(kind: Any) -> _Node | None:
    return SUPPORTED_NODES.get(kind)


@dataclass(init=True, eq=True, repr=False)
class TreeSpec:
    """A structure: the container's type, its context (keys, for instance) and its children."""

    type: Any
    context: Any
    children_specs: list[TreeSpec]

    def __post_init__(self) -> None:
        within = [c.num_leaves for c in self.children_specs]
        self.num_leaves: int = 1 if self.type is None else sum(within)

    @property
    def num_children(self) -> int:
        return len(self.children_specs)

    @property
    def num_nodes(self) -> int:
        return 1 + sum(c.num_nodes for c in self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it stands for one leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The structures of what the container holds."""
        return self.children_specs.copy()

    def child(self, index: int) -> TreeSpec:
        """The structure of one thing that it holds."""
        return self.children_specs[index]

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """What stands in a tree where this structure has leaves; ValueError for another tree."""
        return prefix_leaves(tree, self)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """New containers around these leaves; ValueError for another number of them."""
        return _build(self, iter(leaves))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        prefix = f"TreeSpec({self.type.__name__}, {self.context}, ["
        indent += 2
        inner = [c.__repr__(indent) for c in self.children_specs]
        return prefix + f",\n{' ' * indent}".join(inner) + "])"


def LeafSpec() -> TreeSpec:
    """The structure of what is no container."""
    return _LEAF


_LEAF = TreeSpec(None, None, [])


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether it is no container, or `is_leaf` says that it counts as none."""
    return (is_leaf is not None and is_leaf(tree)) or _node(_get_node_type(tree)) is None


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """(its leaves from left to right, its structure).

    The leaves are the objects themselves. dicts keep the order of their keys; None is a leaf.

        >>> tree_flatten({"a": [1, None], "b": 2})[0]
        [1, None, 2]
    """
    leaves: list[Any] = []
    return leaves, _take_apart(tree, leaves, is_leaf)


def _take_apart(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    kind = _get_node_type(tree)
    node = _node(kind)
    if node is None or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return _LEAF
    children, context = node.flatten_fn(tree)
    return TreeSpec(kind, context, [_take_apart(c, leaves, is_leaf) for c in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """New containers of a structure around these leaves; ValueError for another number of them."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers "
            f"to a pytree that holds {treespec.num_leaves} items ({treespec})."
        )
    return _build(treespec, iter(leaves))


def _build(spec: TreeSpec, leaves: Iterator[Any]) -> Any:
    if spec.type is None:
        return next(leaves)
    node = _node(spec.type)
    assert node is not None
    return node.unflatten_fn([_build(c, leaves) for c in spec.children_specs], spec.context)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """Its leaves from left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """Its leaves from left to right."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    """Its structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """New containers of the same structure around `func(leaf, ...)`.

    `rests` have at least the structure of `tree`: what stands there at one of its leaves is given
    to `func` as it is. ValueError where they have not.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *[prefix_leaves(rest, spec) for rest in rests]]
    return _build(spec, iter([func(*row) for row in zip(*columns, strict=True)]))


def keystr(kp: Iterable[Any]) -> str:
    """A path as Python would write it: ['a'][0].x"""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """What a path leads to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _paths(tree: Any, path: tuple[Any, ...], is_leaf: IsLeaf) -> Iterator[tuple[Any, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    node = _node(_get_node_type(tree))
    assert node is not None
    if node.flatten_with_keys_fn is None:
        raise ValueError(
            f"Did not find a flatten_with_keys_fn for type: {type(tree)}. "
            "Please pass a flatten_with_keys_fn argument to register_pytree_node."
        )
    for key, child in node.flatten_with_keys_fn(tree)[0]:
        yield from _paths(child, (*path, key), is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[Any, Any]]:
    """(path, leaf) from left to right; ValueError for a container that was registered without
    `flatten_with_keys_fn`.
    """
    return list(_paths(tree, (), is_leaf))


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[Any, Any]], TreeSpec]:
    """((path, leaf) from left to right, its structure)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None
) -> Any:
    """`tree_map` with `func(path, leaf, ...)`."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[leaf for _, leaf in found], *[prefix_leaves(rest, spec) for rest in rests]]
    paths = [path for path, _ in found]
    return _build(spec, iter([func(*row) for row in zip(paths, *columns, strict=True)]))


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Call `func` on the leaves, for what it does to them; gives the tree itself, not a copy."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(types: Any, func: Any = None, tree: Any = None, is_leaf: IsLeaf = None) -> Any:
    """`tree_map` on leaves of some types (or for which a predicate holds), the others as they
    are.
    """
    wanted = types if callable(types) and not isinstance(types, type) else None

    def one(leaf: Any) -> Any:
        yes = wanted(leaf) if wanted is not None else isinstance(leaf, types)
        return func(leaf) if yes else leaf

    return tree_map(one, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether the predicate holds for every leaf."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether the predicate holds for a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def prefix_leaves(tree: Any, spec: TreeSpec) -> list[Any]:
    """The subtrees of `tree` at the leaves of a structure; ValueError where it is no such tree."""
    if spec.type is None:
        return [tree]
    kind = _get_node_type(tree)
    node = _node(kind)
    if node is None or kind is not spec.type:
        raise ValueError(f"Node type mismatch; expected {spec.type!r}, but got {type(tree)!r}.")
    children, context = node.flatten_fn(tree)
    if len(children) != len(spec.children_specs):
        raise ValueError(
            f"Node arity mismatch; expected {len(spec.children_specs)}, but got {len(children)}."
        )
    if isinstance(context, list) and context != spec.context:
        if set(map(repr, context)) != set(map(repr, spec.context)):
            raise ValueError(f"Node keys mismatch; expected {spec.context!r}, but got {context!r}.")
        children = [tree[key] for key in spec.context]
    return [
        leaf
        for child, inner in zip(children, spec.children_specs, strict=True)
        for leaf in prefix_leaves(child, inner)
    ]


def broadcast_to_and_flatten(tree: Any, spec: TreeSpec) -> list[Any] | None:
    """A leaf of `tree` for each leaf of the structure, where one stands for a whole container;
    None where `tree` is no prefix of it.
    """
    kind = _get_node_type(tree)
    node = _node(kind)
    if node is None:
        return [tree] * spec.num_leaves
    if spec.type is None or kind is not spec.type:
        return None
    children, context = node.flatten_fn(tree)
    if len(children) != len(spec.children_specs) or context != spec.context:
        return None
    found: list[Any] = []
    for child, inner in zip(children, spec.children_specs, strict=True):
        part = broadcast_to_and_flatten(child, inner)
        if part is None:
            return None
        found += part
    return found


_broadcast_to_and_flatten = broadcast_to_and_flatten
