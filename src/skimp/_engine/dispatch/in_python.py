"""Which functions PyTorch has in Python; its parser reads the arguments of all others."""

from __future__ import annotations

from collections.abc import Set

from skimp._compat.table import MODULES, OURS

# whose functions are Python's but for those that names.txt calls builtins
_SPACES = ("masked", "nn.functional", "signal.windows")
_LOWRANK = ("pca_lowrank", "svd_lowrank")
_RANDOM = ("get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state")
_PYTHONS = {
    "": {*MODULES[f"{OURS}.functional"].rows, *_LOWRANK, *_RANDOM, "from_dlpack"},
    "sparse": {"sum"},
}


def binds(space: str, name: str) -> bool:
    """Whether PyTorch's function of that name is one in Python."""
    if space in _SPACES:
        return name not in builtins_of(space)
    return name in _PYTHONS.get(space, ())


def builtins_of(space: str) -> Set[str]:
    """The builtins of a namespace that has functions in Python too."""
    module = MODULES.get(f"{OURS}.{space}".rstrip("."))
    return frozenset() if module is None else module.builtins
