"""What goes wrong between processes."""

from __future__ import annotations


class DistError(RuntimeError):
    """For `except`: an error between processes."""


class DistBackendError(DistError):
    """For `except`: an error of a way to communicate."""


class DistNetworkError(DistError):
    """For `except`: an error of the network."""


class DistStoreError(DistError):
    """For `except`: an error of the processes' common store."""


class QueueEmptyError(DistStoreError):
    """For `except`: a queue in the store has nothing."""
