"""torch.utils.data.distributed: each replica's share of the indices. It is arithmetic only: nothing
communicates. Without numbers given it asks the default group for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sized
from typing import Any

from skimp import distributed
from skimp._ops.random.generator import Generator
from skimp._ops.random.makers import randperm
from skimp.utils.data.sampler import Sampler

groups: Any = distributed  # whose functions come when they are asked for


def _asked(question: Callable[[], int]) -> int:
    if not distributed.is_available():
        raise RuntimeError("Requires distributed package to be available")
    return question()


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index from `rank` on, padded so that all replicas get equally
    many.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = _asked(lambda: groups.get_world_size())
        if rank is None:
            rank = _asked(lambda: groups.get_rank())
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        n = len(dataset)
        short = n - num_replicas if drop_last and n % num_replicas else n
        self.num_samples = math.ceil(short / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        order: list[Any] = list(range(n))
        if self.shuffle:
            order = randperm(n, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        if not self.drop_last and n:
            order *= math.ceil(self.total_size / n)
        return iter(order[: self.total_size][self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Shuffle in another way from now on; replicas that agree on the epoch agree on the
        order.
        """
        self.epoch = epoch
