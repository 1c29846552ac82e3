"""torch.backends.cusparselt: not there."""


def is_available() -> bool:
    """Whether cuSPARSELt is there."""
    return False


def version() -> int | None:
    """Its version."""
    return None
