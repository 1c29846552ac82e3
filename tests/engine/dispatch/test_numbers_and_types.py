"""Small operands of several types, numbers and 0-d targets: the fast path of pointwise rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.samples import alike

TYPES = ("uint8", "int32", "int64", "float16", "float32", "float64", "bool")
VALUES = (3, -2, 0, True, 2.5, -0.5)
FORMS = (
    *("a + v", "v - a", "a * v", "a % v", "a // v", "a > v", "a - T.tensor(v)"),
    "T.where(a > 1, a, v)",
)
WRITES = ("a.add_(v)", "a.mul_(v)", "a.sub_(v)", "a.copysign_(v)", "a.pow_(v)")
# how many of the calls PyTorch refuses
REFUSED = {
    "v - a": 12, "a - T.tensor(v)": 12, "a % v": 5, "a // v": 5, "a % b": 1,
    "a.add_(v)": 11, "a.mul_(v)": 11, "a.sub_(v)": 18, "a.copysign_(v)": 24, "a.pow_(v)": 14,
    "a.add_(b)": 15, "a.mul_(b)": 15, "a.pow_(b)": 16,
}  # fmt: skip


def told(text: str, lib: Any, names: dict[str, Any]) -> Any:
    """What a form says: its result and the target, or the error."""
    a = names["a"]
    try:
        made = eval(text, {"T": lib, **names})
    except Exception as error:
        return type(error).__name__, str(error)[:30], a.tolist(), a._version
    return str(made.dtype).split(".")[-1], repr(made.tolist()), repr(a.tolist()), a._version


@pytest.mark.parametrize("text", FORMS + WRITES)
@pytest.mark.parametrize("zero_d", [True, False])
def test_numbers_beside_every_type(text: str, zero_d: bool) -> None:
    def run(lib: Any) -> Any:
        found = []
        for dtype in TYPES:
            for v in VALUES:
                given = 5 if zero_d else [0, 1, 5, 7]
                names = {"a": lib.tensor(given, dtype=getattr(lib, dtype)), "v": v}
                found.append((dtype, v, told(text, lib, names)))
        assert len([end for *_, end in found if end[0].endswith("Error")]) == REFUSED.get(text, 0)
        return found

    alike(run)


@pytest.mark.parametrize("text", ["a + b", "a % b", "a < b", "a.add_(b)", "a.mul_(b)", "a.pow_(b)"])
@pytest.mark.parametrize("shapes", [((), ()), ((), (3,)), ((3,), ()), ((3,), (3,))])
def test_two_types(text: str, shapes: tuple[Any, Any]) -> None:
    def run(lib: Any) -> Any:
        found = []
        for first in TYPES:
            for second in TYPES:
                a = lib.full(shapes[0], 3).to(getattr(lib, first))
                b = lib.full(shapes[1], 2).to(getattr(lib, second))
                found.append((first, second, told(text, lib, {"a": a, "b": b})))
        refused = len(found) if "_" in text and shapes == ((), (3,)) else REFUSED.get(text, 0)
        assert len([end for *_, end in found if end[0].endswith("Error")]) == refused
        return found

    alike(run)


@pytest.mark.parametrize("text", ["a[:, 1]", "a.t()", "a[::2]", "a[1:, 1:]"])
@pytest.mark.parametrize("form", ["v.tanh_()", "v.relu_()", "v.add_(1)", "v.mul_(2)", "v + c"])
def test_targets_with_gaps(text: str, form: str) -> None:
    def run(lib: Any) -> Any:
        a = lib.arange(9).reshape(3, 3).double() - 4
        v = eval(text, {"a": a})
        made = eval(form, {"v": v, "c": lib.ones(v.shape, dtype=lib.int64)})
        return made.tolist(), a.tolist(), made.stride(), a._version

    alike(run)


def test_a_leaf_is_refused_and_under_no_grad_written() -> None:
    def run(lib: Any) -> Any:
        found = []
        for write in (lambda x: x.relu_(), lambda x: x.add_(1), lambda x: x.tanh_()):
            x = lib.tensor([-1.0, 2.0], requires_grad=True)
            try:
                write(x)
            except RuntimeError as error:
                found.append(str(error)[:40])
            with lib.no_grad():
                write(x)
            found.append((x.tolist(), x._version))
        return found

    alike(run)
