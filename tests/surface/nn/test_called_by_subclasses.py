"""Methods with an underscore, and others, that public code's subclasses call or replace."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

import skimp
from tests.support.samples import twin


@pytest.mark.parametrize("size", [None, (9, 10), (2, 5, 9, 10), (11, 10)])
def test_a_transposed_convolutions_padding(size: Any) -> None:
    """Equalized layers of GANs ask for it, to call the function with a scaled weight."""
    found = []
    for lib in (torch, skimp):
        layer = lib.nn.ConvTranspose2d(3, 5, 3, 2, dilation=1, output_padding=1)
        try:
            padding = layer._output_padding(
                lib.zeros(2, 3, 4, 4), size, [2, 2], [0, 0], [3, 3], 2, [1, 1]
            )
            found.append(list(padding))
        except ValueError as error:
            found.append([str(error)[:40]])
    assert found[0] == found[1]


def telling(base: Any, told: list[Any]) -> Any:
    """A recurrent layer that notes what its methods are asked."""

    class Layer(base):
        def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
            if batch_sizes is None:  # of packed sequences PyTorch's LSTM does not ask
                told.append((tuple(input.shape), type(hidden) is tuple))
            super().check_forward_args(input, hidden, batch_sizes)

        def permute_hidden(self, hx: Any, permutation: Any) -> Any:
            if permutation is not None:
                told.append(permutation.tolist())
            return super().permute_hidden(hx, permutation)

    return Layer(5, 6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("begun", [True, False])
def test_recurrent_layers_ask_their_own_methods(kind: str, packed: bool, begun: bool) -> None:
    x = torch.randn(4, 3, 5)
    hx = torch.randn(1, 3, 6)
    found = []
    for lib in (torch, skimp):
        lib.manual_seed(0)
        told: list[Any] = []
        layer = telling(getattr(lib.nn, kind), told)
        given, state = (x, hx) if lib is torch else (twin(x), twin(hx))
        if packed:
            pack = lib.nn.utils.rnn.pack_padded_sequence
            given = pack(given, lib.tensor([2, 4, 3]), enforce_sorted=False)
        first = (state, state) if kind == "LSTM" else state
        output, last = layer(given, first if begun else None)
        with pytest.raises(RuntimeError, match="Expected hidden"):
            layer.check_hidden_size(hx=state, expected_hidden_size=(1, 1, 1))
        moved = layer.permute_hidden(last, lib.arange(3).flip(0))
        states = (last[0], *moved) if kind == "LSTM" else (last, moved)
        results = (output.data if packed else output, *states)
        found.append((told, [t.detach().numpy() for t in results]))
    assert found[0][0] == found[1][0]
    for a, b in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b))


def test_transformers_layers_ask_their_own_blocks() -> None:
    """By place in forward; by PyTorch's names from public code."""
    x = torch.randn(2, 3, 8)
    found = []
    for lib in (torch, skimp):
        lib.manual_seed(0)
        given = x if lib is torch else twin(x)
        layer = lib.nn.TransformerDecoderLayer(8, 2, dropout=0.0, batch_first=True)
        seen = layer._sa_block(given, attn_mask=None, key_padding_mask=None)
        other = layer._mha_block(given, mem=given, attn_mask=None, key_padding_mask=None)
        encoder = lib.nn.TransformerEncoderLayer(8, 2, dropout=0.0, batch_first=True)
        third = encoder._sa_block(x=given, attn_mask=None, key_padding_mask=None, is_causal=False)
        found.append([t.detach().numpy() for t in (seen, other, third)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b))


def test_serializations_pickle() -> None:
    assert skimp.serialization.pickle is torch.serialization.pickle is pickle
