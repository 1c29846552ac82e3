"""torch.backends.opt_einsum: not used."""

enabled = False
strategy = None


def is_available() -> bool:
    """Whether einsum's order of products is optimised by that package."""
    return False
