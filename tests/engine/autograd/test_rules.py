"""A formula's parameter names decide what is kept and what it is given."""

from __future__ import annotations

from types import BuiltinFunctionType
from typing import Any

import pytest

import skimp
from skimp._engine.autograd.record import record, recording
from skimp._engine.autograd.rules import Rule


def result_of(*values: float) -> Any:
    return skimp.tensor([float(v) for v in values])


def leaf(*values: float) -> Any:
    return result_of(*values).requires_grad_()


def kept(node: Any) -> list[str]:
    return [slot.name for slot in node._skimp_plan.slots]


def test_only_what_the_wanted_formulas_read_is_kept() -> None:
    rule = Rule(
        "MulBackward0", {"input": lambda g, other: g * other, "other": lambda g, input: g * input}
    )
    for needs, names in (((True, False), ["other"]), ((False, True), ["input"])):
        a, b, out = result_of(2), result_of(3), result_of(6)
        for t, need in zip((a, b), needs, strict=True):
            t.requires_grad_(need)
        record(rule, {"input": a, "other": b}, out)
        assert kept(out.grad_fn) == names


def test_what_makes_a_result_again_is_noted_where_that_keeps_nothing() -> None:
    rule = Rule(
        "XBackward0",
        {"input": lambda g, factor: g * factor, "factor": lambda g, input: g * input},
        rematerialize=lambda input, factor, bias_noted, factor_shape, result: result,
    )
    x, factor, bias, out = leaf(1, 2), result_of(3, 4), result_of(5), result_of(8, 13)
    record(rule, {"input": x, "factor": factor, "bias": bias}, out)
    assert kept(out.grad_fn) == ["factor", "bias_noted", "factor_shape"]
    assert all([value is not bias for value in out.grad_fn._skimp_saved])
    assert {name for name in dir(out.grad_fn) if "noted" in name} == set()


def test_nothing_is_recorded_where_no_input_requires_grad() -> None:
    out = result_of(1)
    record(Rule("XBackward0", {"input": lambda g: g}), {"input": result_of(1)}, out)
    assert out.grad_fn is None
    assert not out.requires_grad


def test_values_metadata_results_and_defaults() -> None:
    seen: list[Any] = []

    def formula(g, factor, input_shape, input_dtype, result, result_shape, needs, extra=7):
        seen.extend([factor, input_shape, input_dtype, result.tolist(), result_shape, needs, extra])
        return g

    x, out = leaf(1, 2), result_of(3, 4)
    record(Rule("XBackward0", {"input": formula}), {"input": x, "factor": 5}, out)
    out.sum().backward()
    assert seen == [5, (2,), skimp.float32, [3, 4], (2,), frozenset({"input"}), 7]


def test_layout_of_an_argument_is_not_the_argument() -> None:
    x, out = leaf(1, 2, 3), result_of(1)
    record(
        Rule("XBackward0", {"input": lambda g, input_layout: g.expand(input_layout.shape)}),
        {"input": x},
        out,
    )
    assert all([not isinstance(v, skimp.Tensor) for v in out.grad_fn._skimp_saved])
    out.backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_several_outputs_get_none_where_nothing_arrived() -> None:
    seen: list[Any] = []

    def formula(g0, g1):
        seen.append((g0, g1))
        return g1

    x, a, b = leaf(1), result_of(1), result_of(2)
    record(Rule("XBackward0", {"input": formula}), {"input": x}, (a, b))
    assert (a.output_nr, b.output_nr) == (0, 1)
    b.backward()
    assert seen[0][0] is None
    assert x.grad.tolist() == [1]


def test_grads_are_zeros_where_nothing_arrived() -> None:
    x, a, b = leaf(1), result_of(1, 2), result_of(2)
    rule = Rule("XBackward0", {"input": lambda grads: grads[0].sum() + grads[1]})
    record(rule, {"input": x}, (a, b))
    b.backward()
    assert x.grad.tolist() == [1]


def test_a_formula_for_several_arguments() -> None:
    x, y, out = leaf(1), leaf(2), result_of(3)
    record(
        Rule("XBackward0", {("input", "other"): lambda g, needs: (g * 2, g * 3)}),
        {"input": x, "other": y},
        out,
    )
    out.backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([2], [3])


def test_a_list_of_tensors() -> None:
    x, y, out = leaf(1), leaf(2), result_of(3)
    rule = Rule(
        "XBackward0", {"tensors": lambda g, tensors_shape: [g * len(tensors_shape), None, g * 5]}
    )
    record(rule, {"tensors": [x, result_of(1), y]}, out)
    assert [n is None for n, _ in out.grad_fn.next_functions] == [False, True, False]
    out.backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([3], [5])


def test_outputs_without_gradient() -> None:
    x, values, places = leaf(1), result_of(1), skimp.tensor([0])
    record(Rule("XBackward0", {"input": lambda g: g}), {"input": x}, (values, places))
    assert values.requires_grad
    assert not places.requires_grad
    mask = result_of(1)
    record(Rule("XBackward0", {"input": lambda g: g}), {"input": x}, (values, mask), nondiff=(1,))
    assert not mask.requires_grad


def test_broadcast_and_promotion_are_the_engines_business() -> None:
    x = skimp.ones(3, 1, dtype=skimp.float16).requires_grad_()
    out = skimp.ones(2, 3, 4)
    record(Rule("XBackward0", {"input": lambda g: g}), {"input": x}, out)
    out.sum().backward()
    assert (tuple(x.grad.shape), x.grad.dtype) == ((3, 1), skimp.float16)
    assert x.grad.tolist() == [[8], [8], [8]]


def test_a_gradient_that_fits_no_input() -> None:
    x, out = leaf(1, 2), result_of(1, 2)
    record(Rule("XBackward0", {"input": lambda g: g[:1].expand(5)}), {"input": x}, out)
    with pytest.raises(
        RuntimeError, match=r"XBackward0 returned an invalid gradient at index 0 - got \[5\]"
    ):
        out.sum().backward()


def test_unknown_parameter() -> None:
    with pytest.raises(TypeError, match="XBackward0: a formula reads 'nonsense'"):
        record(
            Rule("XBackward0", {"input": lambda g, nonsense: g}), {"input": leaf(1)}, result_of(1)
        )


def used(rule: Rule, uses: int, *names: str) -> None:
    """Let the rule be as if it had recorded so many calls."""
    recording(rule, names)._uses = uses


def is_written(rule: Rule, *names: str) -> bool:
    f = recording(rule, names).record  # text, or a function of C
    return type(f) is BuiltinFunctionType or f.__code__.co_filename.startswith("<skimp ")


@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True)])
def test_what_is_written_out_does_what_the_loops_do(needs: tuple[bool, bool]) -> None:
    rule = Rule(
        "XBackward0",
        {"input": lambda g, other: g * other, "other": lambda g, input, result: g * input * result},
    )
    found = []
    for uses in (0, 10**3):
        a, b = [skimp.tensor([v]).requires_grad_(n) for v, n in zip((2.0, 3.0), needs, strict=True)]
        for wrap in (False, True):
            x, y = (a * 1, b * 1) if wrap else (a, b)
            out = result_of(6)
            used(rule, uses, "input", "other")
            record(rule, {"input": x, "other": y}, out)
            out.backward()
        assert is_written(rule, "input", "other") == (uses > 0)
        found.append([None if t.grad is None else t.grad.tolist() for t in (a, b)])
    assert found[0] == found[1]


@pytest.mark.parametrize("uses", [0, 10**3])
def test_a_number_may_have_a_rule_of_its_own(uses: int) -> None:
    rule = Rule(
        "XBackward1",
        {"input": lambda g, other: g * other, "other": lambda g, input: g * input},
        numbers={"other": Rule("XBackward0", {"input": lambda g, other: g * other})},
    )
    for other, edges in ((leaf(3), 2), (3, 1), (2.5, 1)):
        for _ in range(2):
            x, out = leaf(2), result_of(6)
            for r in (rule, rule.numbers["other"]):
                used(r, uses, "input", "other")
            record(rule, {"input": x, "other": other}, out)
            assert out.grad_fn.name() == f"XBackward{edges - 1}"
            assert len(out.grad_fn.next_functions) == edges
            out.backward()
            assert x.grad.tolist() == [2.5 if other == 2.5 else 3]


def test_a_list_s_formula_may_leave_out_what_needs_no_gradient() -> None:
    """`edges` tells which; unlike `node`, it stands for nothing saved: the node can run again."""
    asked: list[Any] = []

    def back(g: Any, tensors_shape: Any, edges: Any) -> list[Any]:
        asked.append([to is not None for to in edges[::2]])
        return [None if to is None else g * 1 for to in edges[::2]]

    recorder = recording(Rule("ListBackward0", tensors=back), ("tensors",))
    given = [leaf(1), result_of(2), leaf(3)]
    for _ in range(20):  # by loops, then written out
        out = result_of(6)
        recorder.record(out, given)
        out.backward()
        out.backward()
    assert asked == [[True, False, True]] * 40
    assert given[0].grad.item() == given[2].grad.item() == 40
    assert given[1].grad is None
