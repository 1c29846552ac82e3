"""The stand-in for a backend that is not installed: one clear error."""

from __future__ import annotations

from typing import Any


def unnumbered(where: int) -> Exception:
    """What PyTorch raises for a device's number where there are no accelerators."""
    if -(1 << 63) <= where < 0:
        return RuntimeError("Device index must not be negative")
    if not -(1 << 63) <= where < 1 << 63:
        return ValueError("Overflow when unpacking long long")
    return RuntimeError("Cannot access accelerator device when none is available.")


def refused(where: Any) -> Exception:
    """What PyTorch raises in a build without the device's backend, and say what to do."""
    if where.type == "cuda":
        return AssertionError(
            "Torch not compiled with CUDA enabled: skimp has no CUDA backend in this version; "
            "use device='cpu' (torch.cuda.is_available() is False, and the cuda memory counters "
            "count the host)"
        )
    return RuntimeError(f"skimp has no backend for device '{where}'; use device='cpu'")
