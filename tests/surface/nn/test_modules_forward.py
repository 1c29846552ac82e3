"""What layers compute, and the gradients of their inputs and parameters, in training and
evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch as oracle

import skimp
from tests.support.nn_rows import ROWS

Inputs = Callable[[Any], tuple[Any, ...]]


def normal(*shape: int) -> Inputs:
    return lambda t: (t.randn(*shape),)


def pair(*shape: int) -> Inputs:
    return lambda t: (t.randn(*shape), t.randn(*shape))


def labels(*shape: int) -> Inputs:
    return lambda t: (t.randn(*shape), t.randint(0, shape[1], (shape[0], *shape[2:])))


def signs(n: int) -> Any:
    return lambda t: t.tensor([1.0, -1.0] * (n // 2))


def positive(*shape: int) -> Inputs:
    return lambda t: (t.rand(*shape), t.rand(*shape))


IMAGE, LINE, CUBE = normal(2, 4, 6, 5), normal(2, 4, 7), normal(1, 2, 5, 6, 5)
POINTWISE = (
    "ReLU ReLU6 Hardtanh Hardtanh_default Hardswish Hardsigmoid ELU CELU SELU SiLU Mish GELU GLU "
    "LeakyReLU Sigmoid Tanh "
    "LogSigmoid Softsign Tanhshrink Hardshrink Softshrink Softplus Softmax Softmin LogSoftmax "
    "Softmax2d RReLU Identity "
    "Dropout Dropout2d AlphaDropout FeatureAlphaDropout LocalResponseNorm AvgPool2d MaxPool2d "
    "LPPool2d AdaptiveAvgPool2d "
    "AdaptiveMaxPool2d Upsample Upsample_size UpsamplingNearest2d UpsamplingBilinear2d "
    "CircularPad2d ConstantPad2d "
    "ZeroPad2d ReflectionPad2d ReplicationPad2d PixelShuffle ChannelShuffle Flatten Unflatten "
    "Unfold Conv2d GroupNorm "
    "ConvTranspose2d"
)
INPUTS: dict[str, Inputs] = {
    **dict.fromkeys(POINTWISE.split(), IMAGE),
    "GLU": normal(2, 4, 6),
    "LPPool2d": lambda t: (t.rand(2, 4, 6, 5),),
    "PReLU": normal(2, 3, 4),
    "BatchNorm2d": normal(4, 3, 2, 2),
    "BatchNorm2d_plain": normal(4, 3, 2, 2),
    "BatchNorm1d": normal(5, 3),
    "BatchNorm3d": normal(2, 3, 2, 2, 2),
    "InstanceNorm1d": normal(2, 3, 5),
    "InstanceNorm2d": normal(2, 3, 4, 4),
    "InstanceNorm3d": normal(3, 2, 2, 2),
    "LayerNorm": normal(2, 4, 3),
    "LayerNorm_plain": normal(2, 3),
    "LayerNorm_no_bias": normal(2, 3),
    "RMSNorm": normal(2, 3),
    "Dropout1d": LINE,
    "Dropout3d": CUBE,
    "Conv1d": LINE,
    "Conv3d": CUBE,
    "ConvTranspose1d": LINE,
    "ConvTranspose3d": CUBE,
    "MaxPool1d": LINE,
    "MaxPool3d": CUBE,
    "AvgPool1d": LINE,
    "AvgPool3d": CUBE,
    "LPPool1d": LINE,
    "AdaptiveAvgPool1d": LINE,
    "AdaptiveMaxPool1d": LINE,
    "AdaptiveAvgPool3d": CUBE,
    "AdaptiveMaxPool3d": CUBE,
    "CircularPad1d": LINE,
    "CircularPad3d": CUBE,
    "ConstantPad1d": LINE,
    "ConstantPad3d": CUBE,
    "ZeroPad1d": LINE,
    "ZeroPad3d": CUBE,
    "ReflectionPad1d": LINE,
    "ReflectionPad3d": CUBE,
    "ReplicationPad1d": LINE,
    "ReplicationPad3d": CUBE,
    "PixelUnshuffle": normal(1, 2, 4, 6),
    "Fold": normal(2, 8, 9),
    "Linear": normal(2, 3, 5),
    "Linear_no_bias": normal(5),
    "Bilinear": lambda t: (t.randn(2, 3), t.randn(2, 4)),
    "Embedding": lambda t: (t.randint(0, 7, (2, 4)),),
    "Embedding_padding": lambda t: (t.randint(0, 7, (2, 4)),),
    "EmbeddingBag": lambda t: (t.randint(0, 7, (2, 4)),),
    "CosineSimilarity": pair(3, 4),
    "PairwiseDistance": pair(3, 4),
    "L1Loss": pair(3, 4),
    "MSELoss": pair(3, 4),
    "SmoothL1Loss": pair(3, 4),
    "HuberLoss": pair(3, 4),
    "PoissonNLLLoss": positive(3, 4),
    "GaussianNLLLoss": lambda t: (t.randn(3, 4), t.randn(3, 4), t.rand(3, 4)),
    "KLDivLoss": positive(3, 4),
    "BCELoss": positive(3, 4),
    "BCEWithLogitsLoss": lambda t: (t.randn(3, 4), t.rand(3, 4)),
    "NLLLoss": labels(3, 4),
    "NLLLoss2d": labels(3, 4, 2, 2),
    "CrossEntropyLoss": labels(3, 4),
    "MultiMarginLoss": labels(3, 4),
    "MultiLabelMarginLoss": lambda t: (t.randn(2, 4), t.tensor([[3, 0, -1, 1], [1, 2, -1, 0]])),
    "MultiLabelSoftMarginLoss": lambda t: (t.randn(3, 4), t.tensor([[0.0, 1, 1, 0]] * 3)),
    "HingeEmbeddingLoss": lambda t: (t.randn(4), signs(4)(t)),
    "SoftMarginLoss": lambda t: (t.randn(4), signs(4)(t)),
    "CosineEmbeddingLoss": lambda t: (t.randn(4, 3), t.randn(4, 3), signs(4)(t)),
    "MarginRankingLoss": lambda t: (t.randn(4), t.randn(4), signs(4)(t)),
    "TripletMarginLoss": lambda t: (t.randn(4, 3), t.randn(4, 3), t.randn(4, 3)),
    "TripletMarginWithDistanceLoss": lambda t: (t.randn(4, 3), t.randn(4, 3), t.randn(4, 3)),
    "LazyLinear": normal(2, 5),
    "LazyConv2d": IMAGE,
    "LazyBatchNorm1d": normal(4, 3),
    "RNN": normal(5, 2, 3),
    "LSTM": normal(2, 5, 3),
    "LSTM_proj": normal(5, 3),
    "GRU": normal(5, 2, 3),
    "RNNCell": lambda t: (t.randn(2, 3), t.randn(2, 4)),
    "LSTMCell": normal(2, 3),
    "GRUCell": normal(3),
    "MultiheadAttention": lambda t: (t.randn(5, 2, 8),) * 3,
    "MultiheadAttention_kv": lambda t: (t.randn(4, 2, 8), t.randn(5, 2, 3), t.randn(5, 2, 5)),
    "TransformerEncoderLayer": normal(2, 5, 8),
    "TransformerDecoderLayer": lambda t: (t.randn(3, 2, 8), t.randn(5, 2, 8)),
    "TransformerEncoder": normal(5, 2, 8),
    "Transformer": lambda t: (t.randn(2, 5, 8), t.randn(2, 3, 8)),
    "AdaptiveLogSoftmaxWithLoss": lambda t: (t.randn(5, 16), t.tensor([0, 5, 9, 11, 3])),
    "Sequential": normal(2, 3),
}


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in flat(v)]
    return [value]


def inplace(module: Any) -> bool:
    return getattr(module, "inplace", False)


def weights(torch: Any, result: Any) -> Any:
    """Of the loss: different for each element."""
    return (torch.arange(result.numel()) % 7 - 2.5).reshape(result.shape)


def outcome(torch: Any, name: str, training: bool) -> list[Any]:
    torch.manual_seed(5)
    module = ROWS[name](torch.nn)
    inputs = INPUTS[name](torch)
    leaves = [
        x.requires_grad_() for x in inputs if x.is_floating_point() and not name.endswith("Loss")
    ]
    if name.endswith("Loss"):
        leaves = [inputs[0].requires_grad_()]
    module.train(training)
    torch.manual_seed(6)
    results = flat(
        module(
            *[x * 1 if any(x is leaf for leaf in leaves) and inplace(module) else x for x in inputs]
        )
    )
    loss = sum((r * weights(torch, r)).sum() for r in results if r.is_floating_point())
    loss.backward()
    grads = [x.grad for x in leaves if x.grad is not None]
    named = sorted((n, p.grad) for n, p in module.named_parameters() if p.grad is not None)
    return [*results, *grads, *[g for _, g in named], *module.buffers()]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", INPUTS)
def test_forward_and_gradients(name: str, training: bool) -> None:
    ours, theirs = outcome(skimp, name, training), outcome(oracle, name, training)
    assert len(ours) == len(theirs)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert tuple(mine.shape) == tuple(wanted.shape)
        assert str(mine.dtype) == str(wanted.dtype)
        a, b = mine.detach().numpy(), wanted.detach().numpy()
        assert np.allclose(
            a, b, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(b).max(initial=0)))
        ), name


class Attributes:
    """What has the attributes of a module that PyTorch's has, and is none."""

    def __init__(self, module: Any, public: set[str]) -> None:
        self.module, self.public = module, public

    def __getattr__(self, name: str) -> Any:
        if name not in self.public:
            raise AttributeError(name)
        value = getattr(self.module, name)
        return MethodType(value.__func__, self) if isinstance(value, MethodType) else value


@pytest.mark.parametrize(
    "name",
    [
        "Linear",
        "Linear_no_bias",
        "Bilinear",
        "Embedding",
        "EmbeddingBag",
        "Tanh",
        "LeakyReLU",
        "Softmax",
        "Dropout",
        "PReLU",
        "Conv1d",
        "Conv2d",
        "Conv3d",
        "BatchNorm1d",
        "BatchNorm2d",
        "LayerNorm",
        "GroupNorm",
        "RMSNorm",
        "CrossEntropyLoss",
        "MSELoss",
        "Flatten",
        "Fold",
        "Sequential",
        "TransformerEncoderLayer",
    ],
)
def test_forward_of_what_has_the_attributes_of_a_module(name: str) -> None:
    module, twin = ROWS[name](skimp.nn).eval(), ROWS[name](oracle.nn)
    inputs = INPUTS[name](skimp)
    like = Attributes(module, set(dir(twin)))
    results = flat(type(module).forward(like, *inputs)), flat(module(*inputs))
    for mine, wanted in zip(*results, strict=True):
        assert mine.tolist() == wanted.tolist()
