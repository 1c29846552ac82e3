"""Reverse-mode differentiation: PyTorch's rules, with what the graph keeps visible and priced."""

from __future__ import annotations

from skimp._tensor import Tensor
from skimp.autograd import graph, methods
from skimp.autograd.anomaly import detect_anomaly, set_detect_anomaly
from skimp.autograd.calls import backward, grad
from skimp.autograd.function import Function
from skimp.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

methods.attach(Tensor)
