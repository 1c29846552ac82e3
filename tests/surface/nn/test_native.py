"""Functions of the package in the order of arguments of PyTorch's kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import skimp
from tests.support.functional import graded
from tests.support.samples import tensors_in


def agree(call: Any, *tensors: torch.Tensor, tolerance: float = 2e-6) -> None:
    """One result, and one gradient for each tensor of floats."""
    given = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    assert any(t.requires_grad for t in tensors_in(graded(call, *given, tolerance=tolerance)))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_recurrent_layers(name: str, bias: bool, both: bool, first: bool) -> None:
    kind, extra = {"lstm": (torch.nn.LSTM, {}), "gru": (torch.nn.GRU, {})}.get(
        name, (torch.nn.RNN, {"nonlinearity": name[4:]})
    )
    layer = kind(3, 4, 2, bias=bias, bidirectional=both, **extra)
    h = torch.randn(4 if both else 2, 5, 4)
    x = torch.randn(5, 6, 3) if first else torch.randn(6, 5, 3)

    def call(lib: Any, x: Any, h: Any, c: Any, *weights: Any) -> Any:
        state = (h, c) if name == "lstm" else h
        run = getattr(lib, name)
        return run(x, state, list(weights), bias, 2, 0.0, False, both, first)

    agree(call, x, h, torch.randn_like(h), *[w.detach() for w in layer._flat_weights])


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh"])
def test_recurrent_layers_over_packed_rows(name: str) -> None:
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(name, torch.nn.RNN)
    layer = kind(3, 4, 1)
    sizes = [3, 2, 2, 1]

    def call(lib: Any, x: Any, h: Any, c: Any, *weights: Any) -> Any:
        state = (h, c) if name == "lstm" else h
        return getattr(lib, name)(
            x, lib.tensor(sizes), state, list(weights), True, 1, 0.0, False, False
        )

    h = torch.randn(1, 3, 4)
    weights = [w.detach() for w in layer._flat_weights]
    agree(call, torch.randn(sum(sizes), 3), h, torch.randn_like(h), *weights)


def test_a_wrong_number_of_weights_is_an_error() -> None:
    for lib in (skimp, torch):
        with pytest.raises(RuntimeError):
            lib.gru(
                lib.ones(2, 3, 4), lib.ones(1, 3, 5), [lib.ones(15, 4)], True, 1, 0.0, False, False,
                False,
            )  # fmt: skip


@pytest.mark.parametrize("name", ["lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(name: str, bias: bool) -> None:
    gates = {"lstm_cell": 4, "gru_cell": 3}.get(name, 1)
    tensors = [torch.randn(2, 3), torch.randn(2, 4), torch.randn(2, 4), torch.randn(4 * gates, 3),
               torch.randn(4 * gates, 4)]  # fmt: skip
    if bias:
        tensors += [torch.randn(4 * gates), torch.randn(4 * gates)]

    def call(lib: Any, x: Any, h: Any, c: Any, *weights: Any) -> Any:
        return getattr(lib, name)(x, (h, c) if name == "lstm_cell" else h, *weights)

    agree(call, *tensors)


@pytest.mark.parametrize("training", [True, False])
def test_normalisation(training: bool) -> None:
    tensors = [torch.randn(2, 3, 4), torch.randn(3), torch.randn(3)]

    def batch(lib: Any, x: Any, w: Any, b: Any) -> Any:
        mean, var = lib.zeros(3), lib.ones(3)
        made = lib.batch_norm(x, w, b, mean, var, training, 0.1, 1e-5, False)
        return made, mean.clone(), var.clone()

    def instance(lib: Any, x: Any, w: Any, b: Any) -> Any:
        return lib.instance_norm(x, w, b, lib.zeros(3), lib.ones(3), training, 0.1, 1e-5, False)

    agree(batch, *[t.clone() for t in tensors])
    agree(instance, *[t.clone() for t in tensors])


def test_convolutions() -> None:
    for nd in (1, 2, 3):
        size = (4,) * nd
        x, w = torch.randn(2, 4, *size), torch.randn(6, 2, *(2,) * nd)
        two, one, none = [2] * nd, [1] * nd, [0] * nd
        plain = (two, one, one, False, none, 2)
        back = (two, one, one, True, one, 2)
        agree(lambda lib, x, w, a=plain: lib.convolution(x, w, None, *a), x, w)
        w, x = torch.randn(4, 3, *(3,) * nd), x.detach().clone()
        agree(
            lambda lib, x, w, b, a=back: lib.convolution(x, w, b, *a),
            x, w, torch.randn(6), tolerance=1e-5,
        )  # fmt: skip


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("padding", [None, 1, -1])
def test_embedding_bag(mode: int, last: bool, padding: int | None) -> None:
    w = torch.randn(5, 3)
    i, off = torch.tensor([1, 2, 4, 1, 0, 2]), torch.tensor([0, 2, 2, 6])

    def call(lib: Any, w: Any, i: Any, off: Any) -> Any:
        return lib.embedding_bag(w, i, off, False, mode, False, None, last, padding)

    agree(call, w, i, off)


def test_kl_div_norms_grids_branches() -> None:
    p, q = torch.randn(3, 4).log_softmax(1), torch.randn(3, 4).softmax(1)
    for reduction in (0, 1, 2):
        agree(lambda lib, p, q, r=reduction: lib.kl_div(p, q, r), p.clone(), q.clone())
        agree(
            lambda lib, p, q, r=reduction: lib.kl_div(p, q, r, log_target=True),
            p.clone(),
            q.clone(),
        )
    x = torch.randn(3, 4, 2)
    for dim in (-1, 0, 1, 2):
        agree(lambda lib, x, d=dim: lib.norm_except_dim(x, 2, d), x.clone())
    agree(lambda lib, t: lib.affine_grid_generator(t, [2, 1, 3, 4], False), torch.randn(2, 2, 3))
    agree(
        lambda lib, x: lib.cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,)), torch.randn(3)
    )


@pytest.mark.filterwarnings("ignore:at..:UserWarning")
def test_old_norms() -> None:
    x = torch.randn(3, 4)
    agree(lambda lib, x: lib.frobenius_norm(x, [0, 1]), x.clone())
    agree(lambda lib, x: lib.frobenius_norm(x, (1,), True), x.clone())
    agree(lambda lib, x: lib.nuclear_norm(x, True), x.clone(), tolerance=1e-5)
    agree(lambda lib, x: lib.nuclear_norm(x, [0, 1]), x.clone(), tolerance=1e-5)
