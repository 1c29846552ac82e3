"""torch.nn.utils: gradients, parametrizations, sequences, and other helpers of training."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from skimp._compat.modules import lookup as _lookup
from skimp.nn.utils import parametrizations, parametrize, rnn, stateless
from skimp.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from skimp.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from skimp.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from skimp.nn.utils.init import skip_init
from skimp.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from skimp.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from skimp.nn.utils.weight_norm import remove_weight_norm, weight_norm

if _TYPE_CHECKING:  # imported when a program names it
    from skimp.nn.utils import prune

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
    "get_total_norm", "parameters_to_vector", "parametrizations", "parametrize", "prune",
    "remove_spectral_norm", "remove_weight_norm", "rnn", "skip_init", "spectral_norm", "stateless",
    "vector_to_parameters", "weight_norm",
]  # fmt: skip
__getattr__ = _lookup(__name__)
