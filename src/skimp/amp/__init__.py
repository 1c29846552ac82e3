"""torch.amp: mixed precision."""

from __future__ import annotations

from skimp.amp import autocast_mode, grad_scaler
from skimp.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from skimp.amp.grad_scaler import GradScaler
from skimp.amp.state import is_autocast_available

__all__ = [
    "GradScaler", "autocast", "autocast_mode", "custom_bwd", "custom_fwd", "grad_scaler",
    "is_autocast_available",
]  # fmt: skip
