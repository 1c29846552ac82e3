"""Values for the arguments of PyTorch's schemas, made for both libraries."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Arg:
    """One argument of one overload; `type` is a schema's word for it (`Tensor?`, `int[]`)."""

    name: str
    type: str
    default: Any
    keyword_only: bool


# -- values that both libraries can be given ------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A tensor to be made on either side."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    kind: str = "between"  # "between" 0 and 1, "definite", "indices", "zeros"

    def __repr__(self) -> str:
        return f"{self.kind}:{self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Named:
    """A value that is a name of the library: a dtype, a layout, a generator."""

    name: str

    def __repr__(self) -> str:
        return self.name


@functools.cache
def _array(given: Given) -> Any:
    n = int(np.prod(given.shape))
    if given.kind == "definite":
        size = given.shape[-1]
        values = np.broadcast_to(np.eye(size) * 2 + 0.25, given.shape)
    elif given.kind == "zeros":
        values = np.zeros(given.shape)
    elif given.kind == "indices":
        values = (np.arange(n) % 2).reshape(given.shape)
    else:
        values = ((np.arange(n) * 7 % 11 + 1) / 13).reshape(given.shape)
    if given.dtype in ("bool", "int32", "int64", "uint8", "int8", "int16"):
        values = (np.arange(n) % 2).reshape(given.shape)
    return np.ascontiguousarray(
        values.astype(
            "float32" if "16" in given.dtype[-2:] and "float" in given.dtype else given.dtype
        )
    )


def make(value: Any, library: Any) -> Any:
    """This value as the library's own."""
    if isinstance(value, Given):
        made = library.from_numpy(_array(value).copy())
        return (
            made
            if value.dtype not in ("float16", "bfloat16")
            else made.to(getattr(library, value.dtype))
        )
    if isinstance(value, Named):
        found = getattr(library, value.name)
        return found().manual_seed(1) if value.name == "Generator" else found
    if isinstance(value, list):
        return [make(v, library) for v in value]
    if isinstance(value, tuple):
        return tuple([make(v, library) for v in value])
    return value


# -- values for arguments -------------------------------------------------------------------------

FLOATING = [
    Given((2, 3)), Given((3, 3), kind="definite"), Given((3,)), Given((2, 3, 3)), Given(()),
    Given((1, 2, 4, 4)), Given((2, 3), "int64"), Given((2, 3), "bool"), Given((2, 3), "complex64"),
    Given((1, 2, 4, 4, 4)), Given((3,), "int64"), Given((2, 3, 2)), Given((3, 2)), Given((2,)),
    Given((4,)), Given((1, 1, 3, 3)),
]  # fmt: skip
_INDEX = [Given((2,), "int64"), Given((2, 3), "int64"), Given((), "int64"), Given((3,), "int64")]
BY_NAME: dict[str, list[Any]] = {
    "index": _INDEX, "indices": _INDEX, "mask": [Given((2, 3), "bool"), Given((3,), "bool")],
    "dim": [0, 1, -1, [0], [0, 1]], "dim0": [0], "dim1": [1], "axis0": [0], "axis1": [1],
    "size": [[2, 3], [6], 2], "dims": [[0, 1], [1, 0], [0], 1],
    "reduce": ["sum", "prod", "amax"], "reduction": ["mean", 1], "UPLO": ["L"], "equation":
    ["ij,jk->ik", "ij->ji"], "ord": ["fro", 2], "p": [2, 1.0, 0.5], "mode": ["reduced", "constant",
    "nearest"], "indexing": ["ij"], "interpolation": ["linear"], "side": ["left"],
    "start_dim": [0], "end_dim": [1], "driver": ["gels"], "norm": ["ortho"],
    "approximate": ["tanh"], "rounding_mode": ["floor"],
    "memory_format": [Named("contiguous_format")], "condition": [Given((2, 3), "bool")],
    "pad": [[1, 1]], "dtype": [Named("float64"), Named("int64")],
    "split_size": [1, 2, [1, 1]], "split_sizes": [[1, 1], [2]], "diagonal": [0, 1], "n": [2, 3],
    "boundaries": [Given((3,))], "sorted_sequence": [Given((2, 3)), Given((3,))],
    "kernel_size": [2, [2], [2, 2], [2, 2, 2]], "padding_mode": [0], "groups": [1, 2],
    "weight": [Given((2, 3)), Given((2, 2, 2, 2)), Given((3,)), Given((2, 2, 2)), Given((2,)),
               Given((2, 2, 2, 2, 2)), Given((1, 2, 2, 2)), Given((2, 3, 3)), Given((2, 2))],
    "normalized_shape": [[3]], "output_size": [2, [2], [2, 2], [4, 4], [2, 2, 2]],
    "shape": [[2, 3], [6]], "fill_value": [1.0], "sections": [1, 2], "chunks": [2],
    "repeats": [2, [2, 1]], "num_classes": [4], "k": [1, 2], "bins": [3, [2, 2]],
    "layout": [Named("strided")], "shifts": [[1], 1], "length": [1], "start": [0], "end": [1],
    "num_embeddings": [3], "source": [Given((2, 3)), Given((2,))], "step": [1],
    "offsets": [Given((2,), "int64")],  # others may lead beyond the end, where PyTorch reads on
    "upscale_factor": [1], "downscale_factor": [2], "stride": [[3, 1], 1, [1], 2],
    "nonlinearity": ["relu"], "full_matrices": [False], "steps": [3], "src": [Given((2, 3))],
}  # fmt: skip
_BY_TYPE: dict[str, list[Any]] = {
    "Tensor": FLOATING, "int": [1, 0, 2, 3], "int[]": [[1], [2, 3], [0, 1], [2, 2], [0], [1, 1, 1]],
    "float": [0.5, 1.0], "Scalar": [1, 0.5, 2], "bool": [True, False], "str": ["sum", "mean"],
    "dtype": [Named("float64"), Named("int64")], "layout": [Named("strided")],
    "device": ["cpu"], "memory_format": [Named("contiguous_format")],
    "Generator": [Named("Generator")], "Tensor[]": [[f, f] for f in FLOATING],
    "float[]": [[1.0], [0.0, 1.0]],
    "Scalar[]": [[1.0, 2.0]], "Tensor?[]": [[g] for g in _INDEX], "bool[]": [[True, True]],
}  # fmt: skip


def candidates(arg: Arg) -> list[Any]:
    """Values that this argument may take."""
    base = arg.type.removesuffix("?")
    if base.endswith("[]") and base[:-2] in ("Tensor", "Tensor?"):
        return _BY_TYPE[base]
    known = BY_NAME.get(arg.name, [])
    if base == "Tensor":
        known = [v for v in known if isinstance(v, Given)]
    elif base == "str":
        known = [v for v in known if isinstance(v, str)]
    else:
        known = [v for v in known if not isinstance(v, Given)]
    return [*known, *[v for v in _BY_TYPE.get(base, []) if v not in known]]
