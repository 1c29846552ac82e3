"""Differentiation: PyTorch's rules, with what the graph keeps visible and priced."""

from __future__ import annotations

from skimp._compat.modules import lookup as _lookup
from skimp._engine.autograd import modes as grad_mode
from skimp._engine.autograd.anomaly import (
    detect_anomaly,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    set_detect_anomaly,
)
from skimp._engine.autograd.calls import backward, grad
from skimp._engine.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from skimp._engine.autograd.saved import saved
from skimp.autograd import forward_ad, functional, graph
from skimp.autograd.function import Function
from skimp.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from skimp.autograd.variable import Variable

__all__ = [
    "Function", "GradcheckError", "Variable", "backward", "detect_anomaly", "enable_grad",
    "forward_ad", "functional", "grad", "grad_mode", "gradcheck", "gradgradcheck", "graph",
    "inference_mode", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "is_grad_enabled",
    "is_inference_mode_enabled", "no_grad", "saved", "set_detect_anomaly", "set_grad_enabled",
    "set_multithreading_enabled",
]  # fmt: skip

__getattr__ = _lookup(__name__)
