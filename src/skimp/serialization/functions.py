"""The functions that files may name with `weights_only=False`, as activations for example.

They take tensors and numbers and give tensors: no file, no command, no function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from skimp._engine.dispatch.forms import NAMESPACES
from skimp.serialization import names

FUNCTIONAL: Final = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
adaptive_max_pool3d affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear
binary_cross_entropy binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d
conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss
cosine_similarity cross_entropy ctc_loss dropout dropout1d dropout2d dropout3d elu elu_ embedding
embedding_bag feature_alpha_dropout fold gaussian_nll_loss gelu glu grid_sample group_norm
gumbel_softmax hardshrink hardsigmoid hardswish hardtanh hardtanh_ hinge_embedding_loss huber_loss
instance_norm interpolate kl_div l1_loss layer_norm leaky_relu leaky_relu_ linear
local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss
max_pool1d max_pool2d max_pool3d max_unpool1d max_unpool2d max_unpool3d mish mse_loss
multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss normalize one_hot pad
pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 relu_
rms_norm rrelu rrelu_ scaled_dot_product_attention selu selu_ sigmoid silu smooth_l1_loss
soft_margin_loss softmax softmin softplus softshrink softsign tanh tanhshrink threshold threshold_
triplet_margin_loss unfold upsample
"""
OF_TORCH: Final = """
abs acos acosh add asin asinh atan atan2 atanh bmm cat ceil celu celu_ clamp clip cos cosh cumprod
cumsum deg2rad diff div dot einsum erf erfc erfinv exp exp2 expm1 flatten floor fmod frac logit
hardshrink lerp lgamma log log10 log1p log2 logaddexp logcumsumexp logsumexp log_softmax
matmul max maximum mean min minimum mm mul neg norm pow prelu prod rad2deg reciprocal relu relu_
remainder round rrelu rsqrt selu selu_ sigmoid sigmoid_ sign sin sinc sinh softmax sqrt square
squeeze stack std sub sum tan tanh tanh_ tensordot threshold threshold_ transpose trunc unsqueeze
var where
"""


def by_name() -> dict[str, Callable[..., Any]]:
    """Each under the names that PyTorch's files have for it."""
    found = {}
    for name in FUNCTIONAL.split():
        for home in names.FUNCTIONAL:
            found[f"{home}.{name}"] = NAMESPACES["nn.functional"][name]
    for name in OF_TORCH.split():
        found[f"torch.{name}"] = NAMESPACES[""][name]
    return found
