"""A checkpoint's folder: a file per rank with its parts of tensors, and `.metadata`, which says
which rows of which tensor are in which file. Reading takes the rows that this rank's part needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from skimp._engine.autograd.modes import no_grad
from skimp._engine.tensor.tensor import Tensor
from skimp.distributed.groups import chosen, is_initialized
from skimp.distributed.objects import all_gather_object
from skimp.distributed.tensor.spec import spec_of
from skimp.serialization.loading import load as load_file
from skimp.serialization.saving import save as save_file

INDEX = ".metadata"
Piece = tuple[str, str, int, int]  # file, key, the first row and the last


class CheckpointException(RuntimeError):
    """A checkpoint that can't be written or read."""


class FileSystemWriter:
    """Where a checkpoint is written."""

    def __init__(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        self.path = Path(path)


class FileSystemReader(FileSystemWriter):
    """Where a checkpoint is read."""


def _folder(checkpoint_id: Any, storage: Any) -> Path:
    if storage is not None:
        return Path(storage.path)
    if checkpoint_id is None:
        raise CheckpointException("say where the checkpoint is: checkpoint_id")
    return Path(checkpoint_id)


def _flat(state: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any, Any]]:
    """The leaves of nested dicts and lists: a name, the value, and where it is."""
    items = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in items:
        name = f"{prefix}{key}"
        plain = value
        if hasattr(value, "state_dict") and not isinstance(value, Tensor):
            plain = value.state_dict()
        if isinstance(plain, (dict, list)) and plain:
            yield from _flat(plain, f"{name}.")
        else:
            yield name, plain, state, key


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> dict[str, Any]:
    """Write a state dict: parts (of fully_shard) by each rank, whole tensors and other values by
    rank 0. All ranks must call this. What it gives is the index.
    """
    folder = _folder(checkpoint_id, storage_writer)
    alone = no_dist or not is_initialized()
    rank = 0 if alone else chosen(process_group).rank()
    folder.mkdir(parents=True, exist_ok=True)
    file = f"__{rank}_0.distcp"
    mine: dict[str, Any] = {}
    index: dict[str, Any] = {}
    for name, value, _, _ in _flat(state_dict):
        spec = spec_of(value)
        shape: list[int] | None
        if spec is not None and spec.dim is not None:
            first, last = spec.rows(0 if alone else spec.rank)
            last = last if spec.first else first  # others have the same
            shape = list(spec.shape)
        elif rank:
            continue
        else:
            shape = list(value.shape) if isinstance(value, Tensor) else None
            first, last = 0, (shape[0] if shape else 1)
        if last > first:
            mine[name] = value.detach().clone() if isinstance(value, Tensor) else value
        index[name] = {"shape": shape, "pieces": [[file, first, last]] if last > first else []}
    save_file(mine, folder / file)
    every: list[Any] = [index]
    if not alone:
        every = [None] * chosen(process_group).size()
        all_gather_object(every, index, process_group)
    whole = _merged(every)
    if rank == 0:
        (folder / INDEX).write_text(json.dumps(whole))
    if not alone:
        all_gather_object(every, None, process_group)  # the index is there when anybody returns
    return whole


def _merged(every: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for index in every:
        for name, entry in index.items():
            known = whole.setdefault(name, {"shape": entry["shape"], "pieces": []})
            known["pieces"] += entry["pieces"]
    return whole


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Read into a state dict, in place: tensors get their values, other values are replaced. The
    number of ranks may be another than when it was written. CheckpointException: a name is missing,
    or has another shape.

    Raises: CheckpointException for a name that is missing or has another shape.
    """
    folder = _folder(checkpoint_id, storage_reader)
    try:
        index = json.loads((folder / INDEX).read_text())
    except OSError as error:
        raise CheckpointException(f"{folder} has no checkpoint: {error.strerror}") from error
    files: dict[str, Any] = {}
    stateful: list[tuple[Any, Any]] = []
    for key, value in state_dict.items():
        if hasattr(value, "load_state_dict") and not isinstance(value, Tensor):
            stateful.append((value, {key: value.state_dict()}))
    plain = {k: v for k, v in state_dict.items() if all(v is not s for s, _ in stateful)}
    _fill(plain, index, folder, files)
    state_dict.update({k: v for k, v in plain.items() if not isinstance(v, Tensor)})
    for target, state in stateful:
        _fill(state, index, folder, files)
        target.load_state_dict(next(iter(state.values())))


def _fill(state: dict[str, Any], index: Any, folder: Path, files: dict[str, Any]) -> None:
    for name, value, holder, key in list(_flat(state)):
        entry = index.get(name)
        if entry is None:
            raise CheckpointException(f"Missing key in checkpoint state_dict: {name}.")
        if isinstance(value, Tensor):
            _fill_tensor(name, value, entry, folder, files)
        else:
            file, *_ = entry["pieces"][0]
            holder[key] = _content(folder, file, files)[name]


def _fill_tensor(
    name: str, target: Tensor, entry: Any, folder: Path, files: dict[str, Any]
) -> None:
    spec = spec_of(target)
    shape = list(target.shape) if spec is None else list(spec.shape)
    if shape != entry["shape"]:
        raise CheckpointException(
            f"{name}: the checkpoint has the shape {entry['shape']}, and the state dict {shape}"
        )
    first, last = (0, shape[0] if shape else 1)
    if spec is not None and spec.dim is not None:
        first, last = spec.rows(spec.rank)
    with no_grad():
        rows = target.detach() if shape else target.detach().view(1)
        for file, begin, end in entry["pieces"]:
            low, high = max(first, begin), min(last, end)
            if low >= high:
                continue
            found = _content(folder, file, files)[name]
            part = found if shape else found.view(1)
            rows[low - first : high - first].copy_(part[low - begin : high - begin])


def _content(folder: Path, file: str, files: dict[str, Any]) -> Any:
    if file not in files:
        files[file] = load_file(folder / file, weights_only=False)
    return files[file]


def async_save(state_dict: dict[str, Any], **words: Any) -> Future[dict[str, Any]]:
    """`save`, done when it returns, as a future of `concurrent.futures`."""
    made: Future[dict[str, Any]] = Future()
    try:
        made.set_result(save(state_dict, **words))
    except Exception as error:
        made.set_exception(error)
    return made


def save_state_dict(state_dict: dict[str, Any], storage_writer: Any, *_: Any, **words: Any) -> Any:
    """`save` under its older name."""
    return save(state_dict, storage_writer=storage_writer)


def load_state_dict(state_dict: dict[str, Any], storage_reader: Any, *_: Any, **words: Any) -> None:
    """`load` under its older name."""
    load(state_dict, storage_reader=storage_reader)
