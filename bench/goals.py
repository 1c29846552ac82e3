"""What each workload is called, and what is wanted of it: times and memory relative to PyTorch's.

`of_default` is skimp's time at most, as a share of PyTorch's with its defaults; `of_best` as a
share of the better of that and `THP_MEM_ALLOC_ENABLE=1`; `of_compiled` of torch.compile's.
`memory` is skimp's extra memory as a share of PyTorch's by default; 0 means none at all.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    title: str
    of_default: float
    of_best: float
    memory: float | None = None
    of_compiled: float | None = None


GOALS: dict[str, Goal] = {
    "relu": Goal("`relu(x)`", 0.25, 0.8, 1.0),
    "add": Goal("`y + x`", 0.25, 0.8, 1.0),
    "clone": Goal("`x.clone()`", 0.25, 0.8, 1.0),
    "exp": Goal("`exp(x)`", 0.25, 0.5, 1.0),
    "exp_slice": Goal("`x[:] = exp(x)`, `x.zero_()`", 0.25, 0.4, 0.05),
    "transpose_contiguous": Goal("`x.t().contiguous()`", 0.3, 0.5, 1.0),
    "mask_select": Goal("`x[mask]`", 0.5, 0.8, 1.0),
    "gelu_fwd": Goal("GELU written out", 0.12, 0.4, 0.35, 1.1),
    "gelu_train": Goal("its gradient (half the size)", 0.2, 0.6, 0.35, 1.1),
    "relu_": Goal("`relu_(x)`", 1.0, 1.0, 0.0),
    "add_": Goal("`y += x`", 1.0, 1.0, 0.0),
    "add_out": Goal("`add(x, y, out=y)`", 1.0, 1.0, 0.0),
    "total": Goal("`x.sum()`", 1.0, 1.0, 0.0),
    "softmax": Goal("softmax, 8192 x 4096", 0.6, 0.9, 1.0),
    "layer_norm": Goal("layer norm, 8192 x 4096", 0.6, 0.9, 1.0),
    "cross_entropy": Goal("cross-entropy, gradient", 0.4, 1.0, 0.7),
    "mm": Goal("3000 x 3000 `mm`", 1.0, 1.0, 1.0),
    "mm_loop": Goal("1000 times 100 x 100 `mm`", 1.0, 1.0, 1.0),
    "mlp": Goal("MLP, training step", 0.9, 0.9, 0.5),
    "gpt": Goal("GPT, training step", 0.9, 0.9, 0.5),
    "small_mlp": Goal("tiny MLP, training step", 1.0, 1.0),
    "conv": Goal("conv net, training step", 1.2, 1.2, 1.0),
    "us_add": Goal("`a + b`", 1.0, 1.0),
    "us_add_": Goal("`a.add_(0.0)`", 1.0, 1.0),
    "us_add_grad": Goal("`g + b`, with gradient", 1.0, 1.0),
    "us_slice": Goal("`x[:, 0:2, 2:4]`", 1.0, 1.0),
    "us_transpose": Goal("`x.transpose(0, 1)`", 1.0, 1.0),
    "us_reshape": Goal("`x.view(8, 5)`", 1.0, 1.0),
    "us_backward": Goal("`(g * b).sum().backward()`", 1.0, 1.0),
    "us_item": Goal("`b[3].item()`", 1.0, 1.0),
    "us_detach": Goal("`g.detach()`", 1.0, 1.0),
}

DOCUMENTS = (  # what `make bench-quick` measures, beside small ops: the work of tutorials
    "relu", "relu_", "exp", "exp_slice", "add", "add_", "add_out", "clone", "transpose_contiguous",
    "mask_select", "mm_loop",
)  # fmt: skip
README = (  # the rows of the README's table
    "relu", "exp", "exp_slice", "add_", "transpose_contiguous", "gelu_fwd", "gelu_train", "softmax",
    "mm", "mlp", "gpt", "us_add",
)  # fmt: skip
