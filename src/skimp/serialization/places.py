"""Where loaded storages go: PyTorch's `map_location`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from skimp._engine.memory.meta import without_bytes
from skimp._engine.tensor.devices import device
from skimp._ops.create.storages import TypedStorage, UntypedStorage

Place = Callable[[UntypedStorage, str], UntypedStorage]
MAP_LOCATION = Any  # PyTorch's name for what `load` takes


def place_of(map_location: Any) -> Place:
    """A function that puts a storage, tagged with the place that it was saved from, where it
    belongs.
    """
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, Mapping):
        return lambda storage, tag: default_restore_location(
            storage, str(map_location.get(tag, tag))
        )
    if isinstance(map_location, (str, bytes, device)):
        name = map_location.decode() if isinstance(map_location, bytes) else str(map_location)
        return lambda storage, tag: default_restore_location(storage, name)
    if callable(map_location):
        return lambda storage, tag: _chosen(map_location(storage, tag), storage, tag)
    raise TypeError(
        "map_location must be a function, a device, a string or a dict, not "
        f"{type(map_location).__name__}"
    )


def _chosen(result: Any, storage: UntypedStorage, tag: str) -> UntypedStorage:
    if result is None:
        return default_restore_location(storage, tag)
    return result.untyped() if isinstance(result, TypedStorage) else result


def default_restore_location(storage: UntypedStorage, location: str) -> UntypedStorage:
    """The storage, if it belongs on the CPU; one as long without bytes, if on "meta"; else an error
    that says what to do.

    Raises: RuntimeError for a device that is not here.
    """
    kind = location.partition(":")[0]
    if kind == "cpu":
        return storage
    if kind == "meta":
        return UntypedStorage(without_bytes(len(storage)))
    if kind == "cuda":
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is "
            "False. If you are running on a CPU-only machine, please use torch.load with "
            "map_location=torch.device('cpu') to map your storages to the CPU."
        )
    raise RuntimeError(
        "don't know how to restore data location of torch.storage.UntypedStorage (tagged with "
        f"{location}); use map_location='cpu'"
    )
