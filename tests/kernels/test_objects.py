"""What is asked of arrays and of frames several times for each op: in C, and as it stands."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import skimp
from skimp._engine.autograd import node_lines
from skimp._kernels import compiled, loops, shaping

WAYS = [loops] if compiled.loops() is None else [loops, compiled.loops()]
ARRAYS = [
    np.zeros((3, 4), "f"), np.zeros((3, 4), "f").T, np.zeros((3, 4))[1:, ::2],
    np.zeros((0, 2), "f"), np.zeros((), "f"), np.zeros(4, ">f4")[2:], np.array([None, 1]),
    np.zeros(5, "f")[::-1],
]  # fmt: skip
ARRAYS[0].flags.writeable = False


@pytest.mark.parametrize("made", WAYS)
def test_arrays_are_where_and_as_numpy_says(made: Any) -> None:
    at = [a.__array_interface__["data"][0] for a in ARRAYS]
    assert [made.address(a) for a in ARRAYS] == made.addresses(*ARRAYS) == at
    assert [shaping.address(a) for a in ARRAYS] == shaping.addresses(*ARRAYS) == at
    dense = [a.flags.c_contiguous for a in ARRAYS]
    assert [made.dense(a) for a in ARRAYS] == dense
    assert [shaping.is_dense(a) for a in ARRAYS] == dense
    floats = [a.dtype.char == "f" and c for a, c in zip(ARRAYS, dense, strict=True)]
    assert [made.floats(a) for a in ARRAYS] == floats
    assert made.floats(*ARRAYS[3:5])
    assert not made.floats(*ARRAYS)


@pytest.mark.skipif(compiled.loops() is None, reason="nothing is compiled")
def test_c_refuses_what_is_no_array_and_no_frame() -> None:
    made = compiled.loops()
    frame = sys._getframe()
    for ask in (made.address, made.addresses, made.dense, made.floats):
        with pytest.raises(TypeError, match="expected an array, not list"):
            ask([1.0])
    for words in [(), (frame, set(), ()), (1, set(), set()), (frame, {}, set())]:
        with pytest.raises(TypeError, match="expected a frame and two sets"):
            made.caller(*words)


@pytest.mark.parametrize("made", WAYS)
def test_what_is_expanded_is_numpys(made: Any) -> None:
    a = np.arange(12, dtype="f").reshape(3, 1, 4)
    for sizes in ((3, 5, 4), (2, 3, 1, 4), (-1, 6, -1), ((3, 2, 4),), (7, 3, 1, -1)):
        found = made.expanded(a, sizes, 1000)
        whole = sizes[0] if type(sizes[0]) is tuple else sizes
        shape = [n if n > 0 else a.shape[i - len(whole)] for i, n in enumerate(whole)]
        expected = np.broadcast_to(a, shape)
        steps = [s for s, n in zip(found.strides, found.shape, strict=True) if n > 1]
        assert steps == [s for s, n in zip(expected.strides, shape, strict=True) if n > 1]
        assert np.shares_memory(found, a)
        np.testing.assert_array_equal(found, expected)
    for sizes in (
        (), ((),), (3, 4), (3, 1, 5), (-1, 3, 1, 4), (0, 3, 1, 4), (True, 3, 1, 4), (3, -2, 4),
        (3, 84, 4), (1 << 70, 3, 1, 4), (1 << 62, 1 << 62, 3, 1, 4), ([3, 5, 4],), (3, 5.0, 4),
    ):  # fmt: skip
        assert made.expanded(a, sizes, 1000) is None
    assert made.expanded(a.T, (4, 5, 3), 1000) is None
    assert made.expanded(np.ones(0, "f"), (3, 0), 1000) is None


def test_an_array_keeps_what_it_is_of_alive() -> None:
    t = skimp.arange(6.0).reshape(2, 3)
    a = t.numpy()
    assert a.flags.writeable
    assert not a.flags.owndata
    assert a.strides == t._skimp_array().strides
    a[1, 2] = 7
    assert t[1, 2] == 7
    del t
    assert a.tolist() == [[0, 1, 2], [3, 4, 7]]


@pytest.mark.parametrize("made", WAYS)
def test_the_caller_is_the_nearest_of_the_users(made: Any) -> None:
    def ask(inside: set[str], users: set[str]) -> Any:
        return made.caller(sys._getframe(), inside, users)

    space: dict[str, Any] = {"ask": ask}
    exec(compile("def outer(*sets):\n    return ask(*sets)", "user.py", "exec"), space)
    found = space["outer"]({__file__}, {"user.py"})
    assert found[0] is space["outer"].__code__
    assert node_lines.number(*found) == 2
    assert ask(set(), {__file__})[0] is ask.__code__
    assert ask({__file__}, set()) is None  # of no known file
    every = {info.filename for info in inspect.stack()} | {__file__}
    assert ask(every, set()) is None  # nor is there one


@pytest.mark.skipif(compiled.loops() is None, reason="nothing is compiled")
def test_asking_for_the_caller_keeps_nothing() -> None:
    made = compiled.loops()
    frame, inside, users = sys._getframe(), {"elsewhere"}, {__file__}
    counted = SimpleNamespace(of=(frame, frame.f_code, inside, users))
    before = [sys.getrefcount(one) for one in counted.of]
    for _ in range(50):
        made.caller(frame, inside, users)
        made.caller(frame, users, inside)
    assert [sys.getrefcount(one) for one in counted.of] == before


def test_a_node_tells_the_users_line_through_many_modules() -> None:
    layer = skimp.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    net = skimp.nn.Sequential(skimp.nn.Sequential(layer))
    x = skimp.ones(3, 1, 8)
    for _ in range(20):  # until what records is text
        y = net(x)
    assert y.grad_fn is not None
    assert "`y = net(x)`" in node_lines.of(y.grad_fn)


def test_a_node_has_the_user_s_line_wherever_it_stands() -> None:
    text = """
def step(x):
    return x * 2
def steps(x):
    yield x * 3
    yield x * 4
def run(x):
    both = [*steps(x)]
    return [
        step(x),
        *both,
        (lambda y:
            y * 5)(x),
        [t * 6
         for t in (x,)][0],
        *map(step, (x,)),
    ]
"""
    space: dict[str, Any] = {}
    exec(compile(text, "a program.py", "exec"), space)
    x = skimp.ones(2, requires_grad=True)
    for _ in range(20):  # by loops, and by what is written out
        nodes = [y.grad_fn for y in space["run"](x)]
        lines = [node_lines.number(n._skimp_code, n._skimp_lasti) for n in nodes]
        assert lines == [3, 5, 6, 13, 14, 3]
