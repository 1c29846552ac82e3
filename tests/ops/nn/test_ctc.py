"""ctc_loss against PyTorch: values, gradients, what it keeps, what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

import skimp
from tests.support.functional import both

F, G = skimp.nn.functional, torch.nn.functional


@given(st.data())
def test_values_and_gradients(data: st.DataObject) -> None:
    steps, batch = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
    classes, longest = data.draw(st.integers(2, 5)), data.draw(st.integers(0, 4))
    blank = data.draw(st.integers(0, classes - 1))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    logits = torch.randn(steps, batch, classes, generator=generator, dtype=torch.float64)
    scores = logits.to(data.draw(st.sampled_from([torch.float32, torch.float64])))
    log_probs = scores.log_softmax(-1).requires_grad_()
    label = st.sampled_from([c for c in range(classes) if c != blank])
    rows = [[data.draw(label) for _ in range(longest)] for _ in range(batch)]
    as_given = data.draw(st.sampled_from([tuple, torch.tensor]))
    inputs = [data.draw(st.integers(0, steps)) for _ in range(batch)]
    lengths = [data.draw(st.integers(0, longest)) for _ in range(batch)]
    targets = torch.tensor(rows, dtype=torch.int64).reshape(batch, longest)
    if data.draw(st.booleans()):
        targets = torch.cat([row[:n] for row, n in zip(targets, lengths, strict=True)])
    both(
        "ctc_loss",
        log_probs,
        targets,
        as_given(inputs),
        as_given(lengths),
        blank,
        data.draw(st.sampled_from(["none", "mean", "sum"])),
        data.draw(st.booleans()),
        tolerance=1e-4 if scores.dtype == torch.float32 else 1e-9,
    )


def test_the_module_one_sample_and_the_function_of_torch() -> None:
    torch.manual_seed(0)
    scores, labels = torch.randn(7, 5), torch.tensor([1, 3, 3])
    mine, ours = skimp.from_numpy(scores.numpy()), skimp.from_numpy(labels.numpy())
    want = torch.nn.CTCLoss(reduction="none")(scores.log_softmax(-1), labels, (7,), (3,))
    got = skimp.nn.CTCLoss(reduction="none")(mine.log_softmax(-1), ours, (7,), (3,))
    assert got.shape == ()
    assert got.item() == pytest.approx(want.item(), 1e-5)
    args = (scores.unsqueeze(1).log_softmax(-1), labels[None], (7,), (3,), 0, 2)
    again = (mine.unsqueeze(1).log_softmax(-1), ours[None], (7,), (3,), 0, 2)
    assert skimp.ctc_loss(*again).item() == pytest.approx(torch.ctc_loss(*args).item(), 1e-5)


def test_a_number_that_stands_for_no_reduction_reduces_nothing() -> None:
    scores = torch.randn(7, 2, 5).log_softmax(-1)
    labels = torch.tensor([[1, 3], [2, 2]])
    for reduction in (-1, 0, 3):
        args = (7, 6), (2, 1), 0, reduction
        ours = skimp.ctc_loss(
            skimp.from_numpy(scores.numpy()), skimp.tensor([[1, 3], [2, 2]]), *args
        )
        assert ours.tolist() == pytest.approx(torch.ctc_loss(scores, labels, *args).tolist(), 1e-5)


def test_training_a_recogniser_lowers_the_loss() -> None:
    skimp.manual_seed(0)
    rnn, head = skimp.nn.LSTM(6, 16, bidirectional=True), skimp.nn.Linear(32, 5)
    loss_of = skimp.nn.CTCLoss(zero_infinity=True)
    sound, words = skimp.randn(12, 3, 6), skimp.randint(1, 5, (3, 4))
    optimizer = skimp.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        log_probs = head(rnn(sound)[0]).log_softmax(-1)
        loss = loss_of(log_probs, words, (12, 12, 11), (4, 3, 2))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3


def test_a_class_that_cannot_be_has_no_gradient() -> None:
    """PyTorch's is nan: see docs/differences.md."""
    scores = skimp.randn(6, 2, 4)
    scores[:, :, 3] = -float("inf")
    scores.requires_grad_()
    F.ctc_loss(scores.log_softmax(-1), skimp.tensor([[1, 2], [2, 1]]), (6, 6), (2, 2)).backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[:, :, 3] == 0).all()


def test_nothing_is_kept_where_no_gradient_can_be_asked_for() -> None:
    log_probs = skimp.randn(400, 8, 32).log_softmax(-1)
    targets = skimp.randint(1, 32, (8, 100))
    before = skimp.cuda.memory_allocated()
    skimp.cuda.reset_peak_memory_stats()
    F.ctc_loss(log_probs, targets, (400,) * 8, (100,) * 8).item()
    assert skimp.cuda.max_memory_allocated() - before < 400 * 8 * 201  # alpha has 4 times as many


LABELS = [[1, 2], [3, 1]]
BAD: list[tuple[Any, ...]] = [
    (LABELS, (5, 5, 5), (2, 2)),
    (LABELS, (5, 6), (2, 2)),
    (LABELS, (5, 5), (2,)),
    (LABELS, (5, 5), (2, 3)),
    (LABELS, (5, -1), (2, 2)),
    (LABELS, (5, 5), (-2, 2)),
    (LABELS, (5, 5), (2, 2), 7),
    (LABELS, (5, 5), (2, 2), 0, "total"),
    ([[LABELS]], (5, 5), (2, 2)),
    ([1, 2, 3], (5, 5), (2, 2)),
    ([[1, 2]], (5, 5), (2, 2)),
]


@pytest.mark.parametrize("args", BAD)
def test_refusals_are_those_of_torch(args: tuple[Any, ...]) -> None:
    labels, *rest = args
    with pytest.raises((RuntimeError, ValueError)) as want:
        G.ctc_loss(torch.zeros(5, 2, 4), torch.tensor(labels), *rest)
    with pytest.raises(want.type) as got:
        F.ctc_loss(skimp.zeros(5, 2, 4), skimp.tensor(labels), *rest)
    if "dimensional tensor" not in str(want.value):
        assert str(got.value) == str(want.value)


def test_more_refusals() -> None:
    labels = skimp.tensor(LABELS)
    with pytest.raises(NotImplementedError, match="not implemented for 'BFloat16'"):
        F.ctc_loss(skimp.zeros(5, 2, 4, dtype=skimp.bfloat16), labels, (5, 5), (2, 2))
    with pytest.raises(RuntimeError, match="input_lengths must be integral"):
        F.ctc_loss(skimp.zeros(5, 2, 4), labels, skimp.tensor([5.0, 5.0]), skimp.tensor([2, 2]))
    with pytest.raises(IndexError, match="target 9 is out of bounds for 4 classes"):
        F.ctc_loss(skimp.zeros(5, 2, 4), skimp.tensor([[1, 9], [3, 1]]), (5, 5), (2, 2))
    x = skimp.randn(5, 2, 4).log_softmax(-1).detach().requires_grad_()
    loss = F.ctc_loss(x, labels, (5, 5), (2, 2))
    (grad,) = skimp.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="_ctc_loss_backward is not implemented"):
        grad.sum().backward()
