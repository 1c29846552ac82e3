"""torch.ops: libraries of compiled ops are refused."""

from typing import Any, NoReturn


def load_library(path: Any) -> NoReturn:
    """Refused, as PyTorch refuses a file that is no library of its ops."""
    raise OSError(
        f"torch.ops.load_library: {path} has ops for PyTorch's dispatcher, and skimp has none"
    )
