"""torch.backends.mps: not built."""

from skimp._compat import refusals


def is_available() -> bool:
    """Whether tensors can live on Apple's GPU: never."""
    return False


def is_built() -> bool:
    """Whether there is code for Apple's GPU."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Asked by programs that choose a device: never."""
    return False


__getattr__ = refusals.names(__name__)
