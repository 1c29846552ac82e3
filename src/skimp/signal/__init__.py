"""torch.signal: windows for spectra."""

from skimp.signal import windows

__all__ = ["windows"]
