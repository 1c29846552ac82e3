"""torch.backends.openmp: not used. NumPy brings its own library of matrix products."""


def is_available() -> bool:
    """Whether ops use OpenMP."""
    return False
