"""safetensors: the same functions as the package's own for PyTorch, mapped on load, streamed on
save.
"""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
from safetensors import deserialize, safe_open

from skimp._engine.memory import layout as layouts, storage as storages
from skimp._engine.memory.layout import Layout, contiguous_strides, numel
from skimp._engine.tensor import devices, dtypes
from skimp._engine.tensor.tensor import Array, Tensor, wrap
from skimp.serialization import files

CODES = {
    "BOOL": dtypes.bool,
    "U8": dtypes.uint8,
    "I8": dtypes.int8,
    "I16": dtypes.int16,
    "I32": dtypes.int32,
    "I64": dtypes.int64,
    "F16": dtypes.float16,
    "BF16": dtypes.bfloat16,
    "F32": dtypes.float32,
    "F64": dtypes.float64,
    "C64": dtypes.complex64,
    "U16": dtypes.uint16,
    "U32": dtypes.uint32,
    "U64": dtypes.uint64,
    "F8_E4M3": dtypes.float8_e4m3fn,
    "F8_E4M3FNUZ": dtypes.float8_e4m3fnuz,
    "F8_E5M2": dtypes.float8_e5m2,
    "F8_E5M2FNUZ": dtypes.float8_e5m2fnuz,
    "F8_E8M0": dtypes.float8_e8m0fnu,
}
NAMES = {dtype: code for code, dtype in CODES.items()}


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Tensor]:
    """The tensors of a file, by name. Their bytes stay in the file until they are read."""
    devices.check(str(device))
    with safe_open(filename, framework="numpy") as file:  # it checks the header
        found = [(name, file.get_slice(name)) for name in file.offset_keys()]
        parts = [(name, s.get_dtype(), tuple(s.get_shape())) for name, s in found]
    return _tensors(np.memmap(filename, np.uint8, "c"), parts)


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors of a file's bytes, by name, in memory of their own."""
    found = {}
    for name, part in deserialize(data):  # type: ignore[no-untyped-call]
        dtype = _dtype(name, part["dtype"])
        array = np.frombuffer(bytearray(part["data"]), np.uint8)
        found[name] = _on(storages.restored(array), dtype, tuple(part["shape"]))
    return found


def save_file(
    tensors: Mapping[str, Tensor],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors by name; a file of that name is replaced when all is written."""
    checked(tensors)
    with files.replacing(filename) as file:
        _write(tensors, metadata, file)


def save(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file with these tensors."""
    checked(tensors)
    buffer = io.BytesIO()
    _write(tensors, metadata, buffer)
    return buffer.getvalue()


def checked(tensors: Any) -> None:
    """Raise for what the format can't hold: shared bytes, strides, other dtypes."""
    if not isinstance(tensors, Mapping):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    owners: dict[int, str] = {}
    for name, t in tensors.items():
        if not isinstance(t, Tensor):
            raise ValueError(
                f"Key `{name}` is invalid, expected torch.Tensor but received {type(t)}"
            )
        if t.dtype not in NAMES:
            raise ValueError(f"Key `{name}` has dtype {t.dtype}, which safetensors does not have")
        if not layouts.is_contiguous(t._skimp_layout_of()):
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. "
                "It either means you are trying to save tensors which are reference of each other "
                "in which case it's recommended to save only the full tensors, and reslice at load "
                "time, or simply call `.contiguous()` on your tensor to pack it before saving."
            )
        other = owners.setdefault(id(t._storage), name) if t.numel() else name
        if other != name:
            raise RuntimeError(
                "Some tensors share memory, this will lead to duplicate memory on disk "
                "and potential differences when "
                f"loading them again: `{other}` and `{name}`; save one of them, or a clone()"
            )


def _write(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None, file: IO[bytes]
) -> None:
    """The length of the header, the header, the bytes: wide elements first, so that all are
    aligned.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        t = tensors[name]
        start, end = end, end + t.numel() * t.dtype.itemsize
        header[name] = {
            "dtype": NAMES[t.dtype],
            "shape": list(t.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for name in order:
        for piece in _bytes(tensors[name].detach()):
            file.write(piece)


def _bytes(t: Tensor) -> Iterator[memoryview]:
    plain = t.resolve_conj().resolve_neg()
    if plain.numel():
        start = plain._skimp_layout_of().offset * plain.dtype.itemsize
        yield plain._storage.flat().data[start : start + plain.numel() * plain.dtype.itemsize]


def _tensors(mapped: Array, parts: list[tuple[str, str, tuple[int, ...]]]) -> dict[str, Tensor]:
    """Tensors on the mapped file, whose bytes end where the file ends and have no gaps."""
    sizes = [numel(shape) * _dtype(name, code).itemsize for name, code, shape in parts]
    flat = np.asarray(mapped)
    at = len(flat) - sum(sizes)
    found = {}
    for (name, code, shape), n in zip(parts, sizes, strict=True):
        dtype = _dtype(name, code)
        piece = flat[at : at + n]
        aligned = n > 0 and at % dtype.itemsize == 0
        found[name] = _on(
            storages.external(piece) if aligned else storages.restored(piece), dtype, shape
        )
        at += n
    return found


def _dtype(name: str, code: str) -> dtypes.dtype:
    if code not in CODES:
        raise TypeError(f"the tensor {name!r} has the dtype {code}, which skimp does not have")
    return CODES[code]


def _on(s: storages.Storage, dtype: dtypes.dtype, shape: tuple[int, ...]) -> Tensor:
    return wrap(s, Layout(shape, contiguous_strides(shape), 0), dtype)
