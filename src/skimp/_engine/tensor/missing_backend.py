"""The stand-in for a backend that is not installed: one clear error."""

from __future__ import annotations

from typing import Any, NoReturn


def refuse(where: Any) -> NoReturn:
    """Raise what PyTorch raises in a build without the device's backend, and say what to do."""
    if where.type == "cuda":
        raise AssertionError(
            "Torch not compiled with CUDA enabled: skimp has no CUDA backend in this version; "
            "use device='cpu' (torch.cuda.is_available() is False, and the cuda memory counters "
            "count the host)"
        )
    raise RuntimeError(f"skimp has no backend for device '{where}'; use device='cpu'")
