"""torch.utils.data.distributed: each replica's share of the indices. It is arithmetic only: nothing
communicates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from typing import Any

from skimp._ops.random.generator import Generator
from skimp._ops.random.makers import randperm
from skimp.utils.data.sampler import Sampler


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
        if num_replicas is None or rank is None:
            raise RuntimeError(
                "Requires distributed package to be available: give num_replicas and rank"
            )
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
