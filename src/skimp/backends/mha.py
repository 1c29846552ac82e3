"""torch.backends.mha: a flag that is kept and changes nothing."""


class _Flag:
    fast = True


def get_fastpath_enabled() -> bool:
    """What was asked for."""
    return _Flag.fast


def set_fastpath_enabled(value: bool) -> None:
    """Accepted."""
    _Flag.fast = value
