"""Trees of lists, tuples, dicts and registered nodes."""

from __future__ import annotations

import collections
from typing import Any

import pytest
from hypothesis import given, strategies as st
from torch.utils import _pytree as theirs

from skimp.utils import _pytree as ours

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


# -- pytrees --------------------------------------------------------------------------------------

Pair = collections.namedtuple("Pair", "x y")
LEAVES = st.integers() | st.text(max_size=2) | st.none()
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner)
    ),
    max_leaves=8,
)


@given(TREES)
def test_trees_come_apart_and_together(tree: Any) -> None:
    want, want_spec = theirs.tree_flatten(tree)
    got, spec = ours.tree_flatten(tree)
    assert got == want
    assert repr(spec) == repr(want_spec)
    assert spec.num_leaves == want_spec.num_leaves
    assert ours.tree_unflatten(got, spec) == tree
    assert ours.tree_map(repr, tree) == theirs.tree_map(repr, tree)
    assert ours.tree_map_only(int, lambda n: n + 1, tree) == theirs.tree_map_only(
        int, lambda n: n + 1, tree
    )
    assert ours.tree_map(lambda a, b: (a, b), tree, tree) == theirs.tree_map(
        lambda a, b: (a, b), tree, tree
    )
    assert ours.tree_any(lambda x: x is None, tree) == theirs.tree_any(lambda x: x is None, tree)


def facts(spec: Any, name: str) -> Any:
    """What a structure says of itself and of all below it, by one public name."""
    value = getattr(spec, name)
    if name == "child":
        value = [value(i) for i in range(spec.num_children)]
    elif callable(value) and name != "type":
        value = value()
    below = [facts(child, name) for child in spec.children()]
    return repr(value), below


@pytest.mark.filterwarnings("ignore:.*children_specs.*:FutureWarning")
@given(TREES)
def test_structures_say_what_pytorchs_do(tree: Any) -> None:
    want_spec, spec = theirs.tree_structure(tree), ours.tree_structure(tree)
    public = [n for n in dir(want_spec) if not n.startswith("_")]
    for name in sorted({*public} - {"flatten_up_to", "unflatten"}):
        assert facts(spec, name) == facts(want_spec, name), name
    rest = want_spec.unflatten(range(want_spec.num_leaves))
    deep = theirs.tree_map(lambda n: [n, (n,)], rest)
    assert spec.flatten_up_to(deep) == want_spec.flatten_up_to(deep)


@given(TREES)
def test_paths_to_leaves(tree: Any) -> None:
    tree = {"top": (tree, 1), "more": collections.deque([Pair(tree, 2)])}
    want, got = theirs.tree_flatten_with_path(tree), ours.tree_flatten_with_path(tree)
    assert repr(got) == repr(want)
    for path, leaf in got[0]:
        assert ours.key_get(tree, path) is leaf
    named = [
        t.tree_map_with_path(lambda kp, a, b, t=t: (t.keystr(kp), a, b), tree, tree)
        for t in (theirs, ours)
    ]
    assert named[0] == named[1]


def test_registered_nodes() -> None:
    for tree in ([1], (1, 2), {"a": 1}, collections.OrderedDict(a=1), Pair(1, 2)):
        found = []
        for t in (theirs, ours):
            kind = t._get_node_type(tree)
            children, context = t.SUPPORTED_NODES[kind].flatten_fn(tree)
            again = t.SUPPORTED_NODES[kind].unflatten_fn(children, context)
            found.append((kind, children, context, again))
        assert found[0] == found[1]
    assert ours._get_node_type(3) not in ours.SUPPORTED_NODES


def test_nodes_by_name() -> None:
    trees: list[Any] = [[1], (1, 2), {"a": 1}, collections.OrderedDict(a=1), Pair(1, 2)]
    for name, tree in zip(
        ("list", "tuple", "dict", "ordereddict", "namedtuple"), trees, strict=True
    ):
        found = []
        for t in (theirs, ours):
            children, context = getattr(t, f"_{name}_flatten")(tree)
            again = getattr(t, f"_{name}_unflatten")(children, context)
            found.append((children, context, again, type(again)))
        assert found[0] == found[1]


def test_paths_through_classes_of_the_program() -> None:
    class Box(dict):  # type: ignore[type-arg]
        pass

    for t in (theirs, ours):
        t.register_pytree_node(
            Box,
            lambda box: (list(box.values()), list(box)),
            lambda values, keys: Box(zip(keys, values, strict=True)),
            serialized_type_name=None,
            flatten_with_keys_fn=t._dict_flatten_with_keys,
        )
    want, got = [repr(t.tree_flatten_with_path(Box(a=[1]))) for t in (theirs, ours)]
    assert got == want

    class Closed:
        pass

    for t in (theirs, ours):
        t.register_pytree_node(Closed, lambda _: ([1], None), lambda *_: Closed())
        with pytest.raises(ValueError, match="Did not find a flatten_with_keys_fn for type"):
            t.tree_flatten_with_path(Closed())
