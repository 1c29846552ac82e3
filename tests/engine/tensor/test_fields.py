"""What `t.__dict__` shows: as in PyTorch, what a program has set on a tensor, and nothing else."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import pytest
import torch as oracle

import skimp


def _classes(lib: Any) -> dict[str, Any]:
    class Noted:
        """What stands before Tensor among the bases has a `__dict__` of its own."""

        def noted(self) -> dict[str, Any]:
            return self.__dict__

    class Plain(lib.Tensor):
        pass

    class Mixed(Noted, lib.Tensor):
        pass

    class Deeper(Mixed):
        pass

    for cls in (Plain, Mixed, Deeper):  # where pickle looks for them
        cls.__qualname__ = f"{cls.__name__}{lib.__name__}"
        setattr(sys.modules[__name__], cls.__qualname__, cls)
    return {"Plain": Plain, "Mixed": Mixed, "Deeper": Deeper}


CLASSES = {lib: _classes(lib) for lib in (skimp, oracle)}


def _made(lib: Any, kind: str) -> Any:
    t = lib.ones(2)
    if kind == "Tensor":
        return t
    if kind in ("Parameter", "Buffer"):
        return getattr(lib.nn, kind)(t)
    return t.as_subclass(CLASSES[lib][kind])


KINDS = ["Tensor", "Parameter", "Plain", "Mixed", "Deeper"]


def _same(run: Any, kind: str) -> Any:
    ours, theirs = run(_made(skimp, kind)), run(_made(oracle, kind))
    assert ours == theirs
    return ours


def _set(t: Any) -> Any:
    t.name_, t._private = "a", [1]
    return t


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_tensors_own_shows(kind: str) -> None:
    assert _same(lambda t: t.__dict__, kind) == {}
    assert _same(lambda t: vars(_set(t)), kind) == {"name_": "a", "_private": [1]}
    _same(lambda t: [_set(t).grad is None, t.requires_grad_().sum().backward(), vars(t)], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_changed_there_is_changed_on_the_tensor(kind: str) -> None:
    def run(t: Any) -> Any:
        fields = _set(t).__dict__
        t.later = 1
        fields["new"] = 2
        fields.update(other=3)
        fields |= {"more": 4}
        found = [t.new, t.other, t.more, t.later, fields.pop("name_"), hasattr(t, "name_")]
        del t.__dict__["new"]
        found += [fields.setdefault("default", 5), t.default, hasattr(t, "new")]
        t.__dict__.clear()
        return found, t.__dict__, t.tolist()

    _same(run, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_another_dictionary_takes_its_place(kind: str) -> None:
    def run(t: Any) -> Any:
        other = _set(t) * 2
        other.__dict__ = t.__dict__.copy()
        t.__dict__ = {"only": 1}
        found = [other._private, other.tolist(), t.only, hasattr(t, "name_"), t.__dict__]
        del other.__dict__
        with pytest.raises(TypeError, match="__dict__ must be set to a dictionary, not a 'int'"):
            t.__dict__ = 3
        return found, other.__dict__, other.tolist()

    _same(run, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "way", [copy.copy, lambda t: pickle.loads(pickle.dumps(t))], ids=["copy", "pickle"]
)
def test_private_attributes_are_copied_too(kind: str, way: Any) -> None:
    _same(lambda t: [way(_set(t)).__dict__, way(t).tolist(), type(way(t)) is type(t)], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_dictionary_that_was_asked_for_earlier_changes_what_is_there_now(kind: str) -> None:
    def run(t: Any) -> Any:
        fields = _set(t).__dict__
        t.name_, t.later = "b", 1
        fields["name_"] = "a"  # as it was
        return t.name_, fields.pop("later"), hasattr(t, "later"), fields

    _same(run, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_is_what_a_program_has_set(kind: str) -> None:
    _same(lambda t: [object.__getattribute__(t, "__getstate__")(), _set(t).__getstate__()], kind)


def test_copies_of_the_dictionary_are_plain() -> None:
    fields = _set(skimp.ones(2)).__dict__
    for other in (copy.copy(fields), copy.deepcopy(fields), dict(fields), fields | {}):
        assert type(other) is dict
        assert other == fields
    assert copy.deepcopy(fields)["_private"] is not fields["_private"]


@pytest.mark.parametrize("kind", ["Tensor", "Parameter"])
def test_deep_copies_of_tensors_take_attributes_along_and_of_parameters_do_not(kind: str) -> None:
    _same(lambda t: [copy.deepcopy(_set(t)).__dict__, t.__dict__], kind)


def test_what_skimp_keeps_of_other_layouts_does_not_show() -> None:
    assert skimp.eye(2).to_sparse().__dict__ == {}
    assert skimp.eye(2).to_sparse_csr().__dict__ == {}
    assert skimp.empty(2, device="meta").__dict__ == {}
    assert skimp.nn.parameter.UninitializedParameter().__dict__ == {}


def test_exchanged_tensors_take_their_attributes_along() -> None:
    def run(lib: Any) -> Any:
        a, b = _set(lib.ones(2)), lib.zeros(3)
        lib.utils.swap_tensors(a, b)
        return a.tolist(), a.__dict__, b.tolist(), b.__dict__

    assert run(skimp) == run(oracle)


def test_two_tensors_never_share_a_dictionary() -> None:
    for lib, shared in ((skimp, False), (oracle, True)):
        a, b = lib.ones(2), lib.ones(2)
        a.__dict__ = b.__dict__
        b.later = 1
        assert hasattr(a, "later") is shared
