"""torch.backends.mkl: not used. NumPy brings its own library of matrix products."""


def is_available() -> bool:
    """Whether ops use MKL."""
    return False
