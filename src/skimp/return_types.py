"""torch.return_types: the named tuples that ops with several results return."""

from skimp._ops import return_types as _declared

_types = {
    name: value
    for name, value in vars(_declared).items()
    if isinstance(value, type) and issubclass(value, tuple)
}
globals().update(_types)


def all_return_types() -> list[type]:
    """All of them."""
    return list(_types.values())
