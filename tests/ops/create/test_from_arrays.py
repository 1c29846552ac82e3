"""NumPy's arrays and numbers, of every kind and layout, given to whatever makes tensors of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import agree

NUMBERS = np.arange(24.0)
BLOCK = NUMBERS.reshape(2, 3, 4)


class Table(np.ndarray[Any, Any]):
    pass


ARRAYS: dict[str, Any] = {
    "vector": NUMBERS,
    "every other": NUMBERS[::2],
    "block": BLOCK,
    "turned": BLOCK.transpose(2, 0, 1),
    "with gaps": BLOCK[:, ::2],
    "turned, with gaps": BLOCK[:, ::2].transpose(1, 2, 0),
    "column-major": NUMBERS.astype("f4").reshape(4, 6).T,
    "halves": np.arange(6, dtype="f2").reshape(2, 3).T,
    "broadcast": np.broadcast_to(NUMBERS[:3], (2, 3)),
    "every other byte": np.arange(5, dtype="u1")[::2],
    "a byte, broadcast": np.broadcast_to(np.uint8(3), (2,)),
    "no rows": np.zeros((0, 3)),
    "no columns": np.zeros((2, 0, 3)).transpose(2, 1, 0),
    "0-d": np.array(3.0),
    "unsigned": np.arange(3, dtype="u2"),
    "bools": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "masked": np.ma.array([1, 2], mask=[False, True]),
    "subclass": BLOCK[0].view(Table).T,
    "fields in step": np.zeros(3, [("a", "f8"), ("b", "f8")])["b"],
    "list of arrays": [np.arange(3), np.arange(3)],
    "tuple, reversed": (NUMBERS[::-1],),
}
REFUSED: dict[str, tuple[type[Exception], Any]] = {
    "reversed": (ValueError, NUMBERS[::-1]),
    "reversed in the middle": (ValueError, BLOCK[:, ::-1]),
    "foreign bytes": (ValueError, NUMBERS.astype(">f8")),
    "foreign integers": (ValueError, np.arange(3, dtype=">i4")),
    "between elements": (ValueError, np.ndarray((2,), "f8", bytearray(24), strides=(12,))),
    "text": (TypeError, np.array(["a"])),
    "bytes": (TypeError, np.array([b"x"])),
    "objects": (TypeError, np.array([1, 2], object)),
    "None": (TypeError, np.array([1, None])),
    "dates": (TypeError, np.array(["2020"], "M8[Y]")),
    "long doubles": (TypeError, NUMBERS.astype("longdouble")),
    "records": (TypeError, np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")])),
}
MAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda lib, x: lib.tensor(x),
    "tensor, float16": lambda lib, x: lib.tensor(x, dtype=lib.float16),
    "tensor, int32": lambda lib, x: lib.tensor(x, dtype=lib.int32),
    "as_tensor": lambda lib, x: lib.as_tensor(x),
    "as_tensor, float64": lambda lib, x: lib.as_tensor(x, dtype=lib.float64),
    "asarray": lambda lib, x: lib.asarray(x),
    "Tensor": lambda lib, x: lib.Tensor(x),
    "LongTensor": lambda lib, x: lib.LongTensor(x),
    "new_tensor": lambda lib, x: lib.ones(1).new_tensor(x),
}

pytestmark = pytest.mark.filterwarnings("ignore")  # about read-only arrays and complex numbers


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays(kind: str, maker: str) -> None:
    agree(lambda lib: MAKERS[maker](lib, ARRAYS[kind]))


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kind", REFUSED)
def test_arrays_that_are_refused(kind: str, maker: str) -> None:
    refused, x = REFUSED[kind]
    agree(lambda lib: MAKERS[maker](lib, x), refused=refused)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kind", ["bool", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "M8[D]"])
def test_numbers(kind: str, maker: str) -> None:
    """A number stands for itself, but a whole one for a size where there are sizes."""
    one = np.ones(1, kind)[0]
    sizes = maker in ("Tensor", "LongTensor")
    wrong = kind == "M8[D]" or (sizes and one.dtype.kind not in "iu")
    cut = kind in ("i1", "u2", "i8", "f8")  # which are, or are Python's own, numbers to cut
    wrong = wrong or (maker == "tensor, int32" and not cut)
    if sizes and not wrong:
        agree(lambda lib: MAKERS[maker](lib, one).shape)
        return
    agree(lambda lib: MAKERS[maker](lib, one), refused=TypeError if wrong else None, message=20)


@pytest.mark.parametrize("dtype", [None, "bool", "int64", "float32", "float64", "float16"])
@pytest.mark.parametrize(
    "data",
    [
        [True, False], [[True], [False]], (1, 2), ((1, 2), [3, 4.5]), [1, 2.5], [2**60, 1.5],
        [True, 1], [float("nan"), 1], [[], []], (),
    ],
    ids=repr,
)  # fmt: skip
def test_lists_of_numbers_of_one_kind_and_of_two(data: Any, dtype: str | None) -> None:
    refused = "overflow|Overflow|convert"

    def make(m: Any) -> Any:
        return m.tensor(data, dtype=None if dtype is None else getattr(m, dtype))

    agree(make, refused=refused, message=8)


@pytest.mark.parametrize("kind", ["rows", "columns", "steps", "one place", "masked", "many"])
def test_writes_to_what_numpy_may_not_write(kind: str) -> None:
    """They show in the array, as PyTorch's, where NumPy has made the bytes."""

    def run(lib: Any) -> Any:
        array = {
            "rows": lambda: np.arange(6.0).reshape(2, 3),
            "columns": lambda: np.arange(6.0).reshape(2, 3).T,
            "steps": lambda: np.arange(12.0).reshape(2, 6)[:, ::2],
            "one place": lambda: np.broadcast_to(np.arange(3.0), (2, 3)),
            "masked": lambda: np.ma.array(np.arange(6.0)),
            "many": lambda: np.zeros(1 << 18),
        }[kind]()
        array.flags.writeable = False
        t = lib.from_numpy(array)
        t[0] = 7.0
        if kind != "one place":
            t.mul_(2).add_(lib.ones(()))
        return t.tolist(), array.tolist(), t.numpy().flags.writeable

    assert run(skimp) == run(torch)


@pytest.mark.parametrize("owner", [b"12345678", memoryview(bytearray(8)).toreadonly()])
def test_writes_to_bytes_that_nobody_may_write(owner: Any) -> None:
    t = skimp.from_numpy(np.frombuffer(owner, "f8"))
    for write in (t.zero_, lambda: t.add_(1), lambda: t.__setitem__(0, 1)):
        with pytest.raises(ValueError, match="read-only"):
            write()


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # said once
def test_bfloat16_that_numpy_may_not_write() -> None:
    numbers = np.arange(6.0).astype(ml_dtypes.bfloat16).reshape(2, 3)
    numbers.flags.writeable = False
    made = skimp.from_numpy(numbers[:, ::2])
    assert made.dtype == skimp.bfloat16
    assert made.tolist() == [[0, 2], [3, 5]]
    made.zero_()
    assert numbers.astype(float).tolist() == [[0, 1, 0], [0, 4, 0]]
