"""torch.cuda.random: generators of GPUs, of which there are none."""

from skimp.cuda.devices import (
    get_rng_state_all,
    refuse,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]
get_rng_state = initial_seed = refuse


def manual_seed(seed: int) -> None:
    """Nothing to seed without CUDA; the number is checked."""
    int(seed)


manual_seed_all = manual_seed
