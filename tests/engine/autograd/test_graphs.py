"""The graph as programs walk it: names of nodes, how many edges they have, and which are empty."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch as oracle

import skimp
from tests.support.op_samples import samples, tensors_of

COPY = "a view and a copy of it: two nodes"
OTHER_OPS = "made of other ops, or of other ones than in PyTorch: its last node is theirs"
ONE_NODE = "one node where PyTorch's CPU build has several"

# Ops whose nodes are others, by reason; one that is repaired leaves this list.
UNLIKE: dict[str, str] = {
    **dict.fromkeys(
        [
            "alias_copy",
            "as_strided_copy",
            "diagonal_copy",
            "expand_copy",
            "narrow_copy",
            "permute_copy",
            "split_with_sizes_copy",
            "squeeze_copy",
            "t_copy",
            "transpose_copy",
            "unbind_copy",
            "unfold_copy",
            "unsqueeze_copy",
            "view_copy",
            "nn.functional.pixel_shuffle",
            "nn.functional.pixel_unshuffle",
        ],
        COPY,
    ),
    **dict.fromkeys(
        ["nn.functional.rms_norm", "nn.functional.scaled_dot_product_attention", "special.ndtr"],
        ONE_NODE,
    ),
    **dict.fromkeys(
        [
            "aminmax",
            "cholesky",
            "cumulative_trapezoid",
            "diff",
            "dist",
            "fft.fft",
            "fft.ifft",
            "fft.ihfft",
            "fill",
            "grid_sampler_2d",
            "grid_sampler_3d",
            "kron",
            "linalg.cond",
            "linalg.householder_product",
            "linalg.lstsq",
            "linalg.lu_factor",
            "linalg.lu_factor_ex",
            "linalg.lu_solve",
            "linalg.matrix_power",
            "linalg.pinv",
            "linalg.solve",
            "linalg.solve_ex",
            "linalg.vecdot",
            "lu",
            "lu_solve",
            "lu_unpack",
            "max",
            "min",
            "nanquantile",
            "nansum",
            "native_group_norm",
            "nn.functional.adaptive_avg_pool1d",
            "nn.functional.adaptive_avg_pool2d",
            "nn.functional.adaptive_avg_pool3d",
            "nn.functional.adaptive_max_pool1d",
            "nn.functional.adaptive_max_pool2d",
            "nn.functional.adaptive_max_pool3d",
            "nn.functional.avg_pool1d",
            "nn.functional.avg_pool3d",
            "nn.functional.conv_transpose1d",
            "nn.functional.conv_transpose2d",
            "nn.functional.conv_transpose3d",
            "nn.functional.cross_entropy",
            "nn.functional.embedding_bag",
            "nn.functional.fractional_max_pool2d",
            "nn.functional.fractional_max_pool3d",
            "nn.functional.grid_sample",
            "nn.functional.interpolate",
            "nn.functional.linear_cross_entropy",
            "nn.functional.max_pool1d",
            "nn.functional.max_pool3d",
            "nn.functional.max_unpool1d",
            "nn.functional.max_unpool2d",
            "nn.functional.max_unpool3d",
            "nn.functional.multi_margin_loss",
            "nn.functional.multilabel_margin_loss",
            "nn.functional.nll_loss",
            "nn.functional.pad",
            "nn.functional.pairwise_distance",
            "nn.functional.upsample_bilinear",
            "nn.functional.upsample_nearest",
            "ormqr",
            "pinverse",
            "quantile",
            "renorm",
            "round",
            "std_mean",
            "stft",
            "sum_to_size",
            "trapezoid",
            "trapz",
            "triangular_solve",
            "var_mean",
        ],
        OTHER_OPS,
    ),
}


def shown(t: Any) -> Any:
    """A tensor's node as a program sees it."""
    node = t.grad_fn if t.requires_grad else None
    if node is None:
        return None
    return type(node).__name__, [to is not None for to, _ in node.next_functions]


def test_nodes_are_those_of_the_oracle() -> None:
    """Over the oracle's own samples of all ops."""
    seen = set()
    unlike = set()
    for sample in samples(2):
        try:
            theirs = [shown(t) for t in tensors_of(sample.call(oracle))]
            ours = [shown(t) for t in tensors_of(sample.call(skimp))]
        except Exception:
            continue  # other tests say what is refused
        seen.add(sample.op)
        if ours != theirs:
            unlike.add(sample.op)
    assert len(seen) > 440
    assert unlike == set(UNLIKE)


@pytest.mark.parametrize("word", ["add", "sub", "mul", "truediv", "pow", "mod"])
@pytest.mark.parametrize("number", [2, 2.5, True])
def test_numbers_on_either_side(word: str, number: Any) -> None:
    """With leaves and with results, on the left, on the right and in place."""
    f = getattr(operator, word)
    for made_first in (False, True):
        for way in ("left", "right", "in place"):
            found = []
            for torch in (oracle, skimp):
                x = torch.full((3,), 1.5, requires_grad=True)
                y = x.sin() if made_first else x
                try:
                    if way == "in place":
                        found.append(shown(getattr(operator, f"i{word}")(x.sin(), number)))
                    else:
                        found.append(shown(f(y, number) if way == "left" else f(number, y)))
                except RuntimeError:
                    found.append("refused")
            if word == "mod" and way == "right":
                continue  # PyTorch has no derivative of number % x; here there is one
            assert found[0] == found[1], (made_first, way)


LOSSES = (
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "kl_div", "soft_margin_loss", "poisson_nll_loss",
    "hinge_embedding_loss",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_end_in_their_own_node(name: str, reduction: str) -> None:
    for needs_target in (False, True):
        found = []
        for torch in (oracle, skimp):
            x = torch.tensor([0.25, 0.5, 0.75], requires_grad=True)
            t = torch.tensor([1.0, 1.0, 1.0], requires_grad=needs_target)
            try:
                y = getattr(torch.nn.functional, name)(x, t, reduction=reduction)
            except RuntimeError:
                break  # no gradient for the target
            node = shown(y)
            first = torch.autograd.grad(y.sum(), x, create_graph=True)[0]
            again = torch.autograd.grad((first * y.sum()).sum(), x)[0]
            found.append((node, first.tolist(), again.tolist()))
        else:
            assert found[0][0] == found[1][0]
            for ours, theirs in zip(found[1][1:], found[0][1:], strict=True):
                assert ours == pytest.approx(theirs, 1e-5, 1e-6)
