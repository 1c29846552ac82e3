"""torch.utils.data: datasets, samplers, and the loader that makes batches of them."""

from __future__ import annotations

from skimp._compat.finder import join as _join
from skimp._compat.modules import lookup as _lookup
from skimp.utils.data import dataloader, dataset, distributed, sampler
from skimp.utils.data._utils.collate import default_collate, default_convert
from skimp.utils.data._utils.worker import get_worker_info
from skimp.utils.data.dataloader import DataLoader
from skimp.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from skimp.utils.data.distributed import DistributedSampler
from skimp.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
    "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "dataloader", "dataset",
    "default_collate", "default_convert", "distributed", "get_worker_info", "random_split",
    "sampler",
]  # fmt: skip
__getattr__ = _lookup(__name__)
_join()
