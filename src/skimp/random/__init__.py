"""torch.random: the default stream of random numbers."""

from skimp._ops.random.generator import (
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)


def thread_safe_generator() -> Generator | None:
    """The generator of a thread that loads data: None, for workers are processes of their own."""
    return None


__all__ = [
    "Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed",
    "seed", "set_rng_state", "thread_safe_generator",
]  # fmt: skip
