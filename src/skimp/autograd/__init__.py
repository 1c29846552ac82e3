"""Reverse-mode differentiation: PyTorch's rules, with what the graph keeps visible and priced."""

from __future__ import annotations

from skimp._tensor import Tensor
from skimp.autograd import functional, graph, methods
from skimp.autograd.anomaly import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from skimp.autograd.calls import backward, grad
from skimp.autograd.function import Function
from skimp.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from skimp.autograd.kept import saved
from skimp.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

__all__ = [
    "Function",
    "GradcheckError",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "saved",
    "set_detect_anomaly",
    "set_grad_enabled",
]

methods.attach(Tensor)
