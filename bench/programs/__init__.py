"""Twenty-four programs such as people run on a CPU, written for any module with PyTorch's API.

Each is a function of the library, called `torch` as in any script; it sets up and returns one step:
a training step, an episode, an epoch, some characters. The step returns its loss, or what it drew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.programs.agents import dqn, reinforce
from bench.programs.data import Step
from bench.programs.generative import dcgan, vae
from bench.programs.images import densenet, evaluating, mobilenet, resnet18, unet, vit
from bench.programs.language import (
    bigram,
    char_mlp,
    generating,
    gpt_names,
    gpt_small,
    transformer,
    word2vec,
)
from bench.programs.others import gcn, loading, scalars
from bench.programs.recurrent import gru, lstm, rnn_cell, sine_lbfgs

TITLES = {
    "gpt_small": "GPT, 12 x 64 x 128, 4 layers, 4 heads",
    "gpt_names": "GPT, 64 x 11 x 48, 3 layers, 3 heads",
    "generating": "generating 20 characters with a KV cache",
    "bigram": "bigram model, AdamW",
    "char_mlp": "MLP over letters, batch norm by hand",
    "scalars": "net of single numbers",
    "lstm": "LSTM language model",
    "gru": "GRU language model",
    "sine_lbfgs": "LSTM cells step by step, LBFGS",
    "rnn_cell": "RNN on one name at a time",
    "transformer": "`nn.Transformer`",
    "resnet18": "ResNet-18, 16 images",
    "densenet": "DenseNet, 16 images",
    "mobilenet": "MobileNet (depthwise), 16 images",
    "unet": "U-Net, 2 images of 64 x 64",
    "vae": "VAE",
    "dcgan": "DCGAN",
    "gcn": "GCN, sparse adjacency",
    "reinforce": "policy gradient, `Categorical`",
    "dqn": "DQN, replay buffer",
    "vit": "ViT, 16 images",
    "word2vec": "word2vec, sparse gradients",
    "loading": "`DataLoader` over a Python dataset",
    "evaluating": "evaluation, `no_grad` and `inference_mode`",
}
PROGRAMS: dict[str, Callable[[Any], Step]] = {
    f.__name__: f
    for f in (
        gpt_small, gpt_names, generating, bigram, char_mlp, scalars, lstm, gru, sine_lbfgs,
        rnn_cell, transformer, resnet18, densenet, mobilenet, unet, vae, dcgan, gcn, reinforce,
        dqn, vit, word2vec, loading, evaluating,
    )
}  # fmt: skip
