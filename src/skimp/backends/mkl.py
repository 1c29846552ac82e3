"""torch.backends.mkl: not used. NumPy brings its own library of matrix products."""

from __future__ import annotations

VERBOSE_OFF, VERBOSE_ON = 0, 1


def is_available() -> bool:
    """Whether ops use MKL."""
    return False


class verbose:  # noqa: N801  (PyTorch's name)
    """Accepted: a context in which MKL would say what it does."""

    def __init__(self, enable: int) -> None:
        self.enable = enable

    def __enter__(self) -> verbose:
        return self

    def __exit__(self, *_: object) -> None:
        return None
