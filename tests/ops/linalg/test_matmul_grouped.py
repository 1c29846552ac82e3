"""grouped_mm against torch: four forms, memory orders, types, gradients, refusals, bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st

import skimp
from skimp import memory
from tests.support.samples import agree, numbers, same, twin

FORMS = ("rows", "columns", "sums", "batch")


def operands(form: str, sizes: list[int], turned: int, dtype: str) -> tuple[Any, ...]:
    """Two factors and where groups of these sizes (in units of 8, so that all is aligned) end."""
    groups, total = len(sizes), 8 * sum(sizes)
    shapes = {
        "rows": ((total, 16), (groups, 16, 8)),
        "columns": ((groups, 8, 16), (16, total)),
        "sums": ((8, total), (total, 16)),
        "batch": ((groups, 8, 16), (groups, 16, 24)),
    }[form]
    factors = []
    for i, shape in enumerate(shapes):
        x = numbers(shape, dtype, seed=i)
        factors.append(x.mT.contiguous().mT if turned & 1 << i else x)
    ends = torch.tensor([8 * sum(sizes[: i + 1]) for i in range(groups)], dtype=torch.int32)
    return (*factors, None if form == "batch" else ends)


@given(
    st.sampled_from(FORMS),
    st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any),
    st.integers(0, 3),
    st.sampled_from(["float32", "bfloat16", "float16"]),
)
@settings(deadline=None)
def test_groups_are_multiplied_as_torch_does(
    form: str, sizes: list[int], turned: int, dtype: str
) -> None:
    a, b, ends = operands(form, sizes, turned, dtype)
    agree(lambda library, a, b, ends: library.nn.functional.grouped_mm(a, b, offs=ends), a, b, ends)


def gradients(library: Any, a: Any, b: Any, ends: Any, g: Any) -> list[Any]:
    """The first derivatives, and those of their squares' sum."""
    a, b, g = [t.detach().requires_grad_() for t in (a, b, g)]
    result = library.nn.functional.grouped_mm(a, b, offs=ends)
    first = library.autograd.grad(result, (a, b), g, create_graph=True)
    total = sum((t * t).sum() for t in first)
    return [*first, *library.autograd.grad(total, (a, b, g))]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("turned", range(4))
def test_gradients_are_products_of_the_same_groups(form: str, turned: int) -> None:
    a, b, ends = operands(form, [1, 2, 3], turned, "float32")
    g = numbers(tuple(torch.nn.functional.grouped_mm(a, b, offs=ends).shape), "float32", seed=2)
    theirs = gradients(torch, a, b, ends, g)
    ours = gradients(skimp, *twin((a, b, ends, g)))
    for mine, other in zip(ours, theirs, strict=True):
        same(mine, other, tolerance=1e-4)
    a.requires_grad_()
    node = skimp.nn.functional.grouped_mm(*twin((a, b)), offs=twin(ends)).grad_fn
    assert type(node).__name__ == "GroupedMmBackward0"


A, B, ENDS = numbers((8, 8), "float32"), numbers((2, 8, 4), "float32"), torch.tensor([4, 8]).int()
REFUSED: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "no offs": lambda f, a, b, ends: f(a, b),
    "offs for two batches": lambda f, a, b, ends: f(b.mT, b, offs=ends),
    "long offs": lambda f, a, b, ends: f(a, b, offs=ends.long()),
    "a table of offs": lambda f, a, b, ends: f(a, b, offs=ends[None]),
    "more groups": lambda f, a, b, ends: f(a, b, offs=ends[:1]),
    "other batches": lambda f, a, b, ends: f(b[:1].mT, b),
    "width": lambda f, a, b, ends: f(a[:, :4].contiguous(), b, offs=ends),
    "a vector": lambda f, a, b, ends: f(a[0], b, offs=ends),
    "double": lambda f, a, b, ends: f(a.double(), b, offs=ends),
    "two types": lambda f, a, b, ends: f(a, b.half(), offs=ends),
    "bias": lambda f, a, b, ends: f(a, b, offs=ends, bias=a),
    "not aligned": lambda f, a, b, ends: f(a, b[:, :, :3].contiguous(), offs=ends),
    "gaps": lambda f, a, b, ends: f(a[:, ::2], b[:, :4], offs=ends),
}


@pytest.mark.parametrize("how", list(REFUSED))
def test_what_torch_refuses_is_refused(how: str) -> None:
    agree(
        lambda library, a, b, ends: REFUSED[how](library.nn.functional.grouped_mm, a, b, ends),
        A,
        B,
        ENDS,
        refused=RuntimeError,
    )


def test_another_type_of_result_is_refused() -> None:
    agree(
        lambda library, a, b, e: library.nn.functional.grouped_mm(
            a, b, offs=e, out_dtype=library.float16
        ),
        A,
        B,
        ENDS,
        refused=RuntimeError,
    )


def test_rows_in_no_group_are_zero_and_only_the_result_is_made() -> None:
    x, experts = skimp.ones(64, 256), skimp.ones(4, 256, 512)
    ends = skimp.tensor([16, 16, 32, 48], dtype=skimp.int32)
    for t in (x, experts):
        t.data_ptr()  # their bytes are there before
    with memory.region() as region:
        result = skimp.nn.functional.grouped_mm(x, experts, offs=ends)
    assert region.extra == region.kept == result.nbytes == 64 * 512 * 4
    assert result[:48].eq(256).all()
    assert result[48:].eq(0).all()
