"""The parts of a DataLoader."""

from skimp.utils.data._utils import collate, fetch, worker

__all__ = ["collate", "fetch", "worker"]
