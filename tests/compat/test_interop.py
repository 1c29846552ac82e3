"""Other libraries on the same bytes: DLPack, buffers, NumPy's protocols, pandas, images; and who
keeps whom alive.
"""

from __future__ import annotations

import array
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import skimp
from skimp import memory
from tests.support.samples import agree, refusals, same
from tests.support.told import told_anew

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
          "complex64", "complex128")  # fmt: skip
LARGE = 300_000  # elements: more than enough to be deferred
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda t: t,
    "transposed": lambda t: t.t(),
    "sliced": lambda t: t[1:, ::2],
    "expanded": lambda t: t[:1].expand(3, -1),
    "scalar": lambda t: t[1, 2],
    "empty": lambda t: t[:0],
}


def matrix(lib: Any, dtype: str) -> Any:
    return lib.arange(12).reshape(3, 4).to(getattr(lib, dtype))


# -- DLPack ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", LAYOUTS)
def test_dlpack_to_torch_shares(dtype: str, view: str) -> None:
    x = LAYOUTS[view](matrix(skimp, dtype))
    t = torch.from_dlpack(x)
    same(x, t)
    assert [x.stride(d) for d in range(x.ndim) if x.shape[d] > 1 and x.numel()] == [
        t.stride(d) for d in range(t.ndim) if t.shape[d] > 1 and t.numel()
    ]
    if x.numel():
        assert t.data_ptr() == x.data_ptr()
        if view != "expanded":
            t.fill_(1)
            assert bool((x == 1).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", LAYOUTS)
def test_dlpack_from_torch_shares(dtype: str, view: str) -> None:
    t = LAYOUTS[view](matrix(torch, dtype))
    x = skimp.from_dlpack(t)
    same(x, t)
    if x.numel():
        assert t.data_ptr() == x.data_ptr()
        if view != "expanded":
            x.fill_(1)
            assert bool((t == 1).all())


def test_dlpack_with_numpy() -> None:
    a = np.arange(6.0).reshape(2, 3)
    x = skimp.from_dlpack(a)
    x[0, 1] = -1
    assert a[0, 1] == -1
    b = np.from_dlpack(x)
    b[1, 1] = -2
    assert x[1, 1].item() == -2


def test_dlpack_capsules() -> None:
    x = skimp.arange(3.0)
    t = torch.utils.dlpack.from_dlpack(skimp.utils.dlpack.to_dlpack(x))
    t[0] = 5
    again = skimp.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(t))
    assert again.tolist() == [5, 1, 2]
    again[1] = 7  # an older capsule can't say that its bytes may be written
    again.mul_(2)
    assert x.tolist() == [10, 14, 4]
    capsule = x.__dlpack__(max_version=(1, 0))
    assert '"dltensor_versioned"' in repr(capsule)
    skimp.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="consumed only once"):
        skimp.from_dlpack(capsule)


def test_dlpack_arguments() -> None:
    x = skimp.arange(3.0)
    assert x.__dlpack_device__() == (skimp.utils.dlpack.DLDeviceType.kDLCPU, 0)
    for words in ({"stream": None}, {"stream": -1}, {"dl_device": (1, 0)}, {"copy": False}):
        assert skimp.from_dlpack(x.__dlpack__(**words)).data_ptr() == x.data_ptr()
    assert skimp.from_dlpack(x.__dlpack__(copy=True)).data_ptr() != x.data_ptr()
    assert skimp.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert skimp.from_dlpack(x, copy=False, device="cpu").data_ptr() == x.data_ptr()
    assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert np.from_dlpack(x, device="cpu", copy=True).tolist() == [0, 1, 2]
    with pytest.raises(BufferError, match="device"):
        x.__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize(
    ("refused", "f"),
    refusals(
        {
            None: [lambda lib: lib.from_dlpack(np.arange(3.0))],
            AssertionError: [
                lambda lib: lib.arange(3.0).__dlpack__(stream=1),
                lambda lib: lib.from_dlpack(5, copy=True),
            ],
            BufferError: [
                lambda lib: lib.tensor([1j]).conj().__dlpack__(),
                lambda lib: lib.from_dlpack(np.zeros(2, "U1")),
            ],
            RuntimeError: [lambda lib: lib.from_dlpack(5)],
            TypeError: [lambda lib: lib.arange(3.0).__dlpack__(stream="a")],
        }
    ),
)
def test_dlpack_answers_as_torch(f: Callable[[Any], Any], refused: Any) -> None:
    agree(f, refused=refused)


def test_dlpack_refusals() -> None:
    with pytest.raises(BufferError, match="require gradient"):
        skimp.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(BufferError, match="bfloat16"):
        torch.from_dlpack(skimp.ones(2, dtype=skimp.bfloat16))
    with pytest.raises(BufferError, match="dtype"):
        skimp.from_dlpack(torch.ones(2, dtype=torch.bfloat16))
    with pytest.raises(BufferError, match="negative bit"):
        skimp.tensor([1j]).conj().imag.__dlpack__()
    with pytest.raises(ValueError, match="negative"):
        skimp.from_dlpack(np.arange(3)[::-1])


# -- lifetime -------------------------------------------------------------------------------------


EXPORTS: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "slice": lambda x: x.numpy()[5:10],
    "memoryview": lambda x: memoryview(x.numpy()),
    "dlpack": torch.from_dlpack,
    "capsule": lambda x: x.__dlpack__(),
    "numpy dlpack": np.from_dlpack,
    "round trip": lambda x: skimp.from_numpy(x.numpy()),
    "frame": lambda x: pd.DataFrame(x.numpy().reshape(10, -1), copy=False),
}


@pytest.mark.parametrize("how", EXPORTS)
@pytest.mark.parametrize("size", [1000, LARGE])
def test_an_array_keeps_the_block(how: str, size: int) -> None:
    before = memory.memory_allocated()
    x = skimp.arange(float(size)) * 2
    held = EXPORTS[how](x)
    bytes_of_x = memory.memory_allocated() - before
    assert bytes_of_x >= size * 4
    del x
    assert memory.memory_allocated() - before == bytes_of_x
    junk = [skimp.full((size,), -1.0) for _ in range(3)]  # would take the block if it were free
    if how != "capsule":
        assert float(np.asarray(held).ravel()[1]) in (2.0, 12.0)
    del held, junk
    if how == "frame":  # pandas leaves cycles
        gc.collect()
    assert memory.memory_allocated() == before


def test_a_tensor_keeps_the_array() -> None:
    class Owner(np.ndarray[Any, Any]):
        pass

    gone: list[str] = []
    a = np.arange(4.0).view(Owner)
    weakref.finalize(a, gone.append, "a")
    x = skimp.from_numpy(a)[1:]
    del a
    gc.collect()
    assert not gone
    assert x.tolist() == [1, 2, 3]
    del x
    gc.collect()
    assert gone == ["a"]


@pytest.mark.parametrize(
    "share", [lambda x: x.numpy(), np.asarray, np.from_dlpack, torch.from_dlpack]
)
def test_large_writes_show_on_both_sides(share: Callable[[Any], Any]) -> None:
    x = skimp.zeros(LARGE) + 1  # deferred, where anything is deferred
    other = share(x)
    assert float(other[-1]) == 1
    x.mul_(3)
    assert float(other[-1]) == 3
    x[7] = 5
    assert float(other[7]) == 5
    doubled = x * 2  # must see the elements of now, not those of after the next line
    other[:] = 0
    assert doubled[0].item() == 6
    assert bool((x == 0).all())
    x += skimp.ones(LARGE)
    assert float(other[0]) == 1
    y = x.view(3, -1).t()
    y.add_(1)
    assert float(other[100]) == 2


def test_deferred_elements_materialize_before_they_are_exported() -> None:
    x = skimp.ones(LARGE)
    y = x + 1
    x.numpy()[:] = 10
    assert y[0].item() == 2


def test_large_arrays_come_in_without_a_copy() -> None:
    a = np.ones(LARGE, np.float32)
    for x in (skimp.from_numpy(a), skimp.asarray(a), skimp.as_tensor(a), skimp.from_dlpack(a)):
        y = x + 1
        a[:] = 5
        assert y[0].item() == 2
        x.fill_(1)
        assert a[-1] == 1
        assert x.data_ptr() == a.ctypes.data


# -- asarray --------------------------------------------------------------------------------------


def leaf(lib: Any) -> Any:
    return lib.arange(4.0, requires_grad=True)


ASARRAY: dict[type[Exception] | None, list[Callable[[Any], Any]]] = {
    None: [
        lambda lib: lib.asarray([1, 2, 3]),
        lambda lib: lib.asarray([1.5, 2], dtype=lib.int64),
        lambda lib: lib.asarray(3),
        lambda lib: lib.asarray([1.0], requires_grad=True),
        lambda lib: lib.asarray(np.arange(3.0)),
        lambda lib: lib.asarray(np.arange(3.0), requires_grad=True),
        lambda lib: lib.asarray(np.arange(3.0), dtype=lib.float32),
        lambda lib: lib.asarray(np.float64(3)),
        lambda lib: lib.asarray(np.int16(3)),
        lambda lib: lib.asarray(np.float32(3), dtype=lib.int64),
        lambda lib: lib.asarray(bytearray(8)),
        lambda lib: lib.asarray(array.array("d", [1, 2]), dtype=lib.float64, copy=True),
        lambda lib: lib.asarray(leaf(lib)),
        lambda lib: lib.asarray(leaf(lib), requires_grad=False),
        lambda lib: lib.asarray(leaf(lib) * 2),
        lambda lib: lib.asarray(leaf(lib) * 2, requires_grad=False),
        lambda lib: lib.asarray(leaf(lib) * 2, requires_grad=False, copy=True),
        lambda lib: lib.asarray(leaf(lib) * 2, copy=True),
        lambda lib: lib.asarray(leaf(lib) * 2, dtype=lib.float64),
    ],
    RuntimeError: [
        lambda lib: lib.asarray(None),
        lambda lib: lib.asarray([1], requires_grad=True),
        lambda lib: lib.asarray(np.arange(3), requires_grad=True),
        lambda lib: lib.asarray(np.float64(3), copy=False),
        lambda lib: lib.asarray(leaf(lib), dtype=lib.int64),
        lambda lib: lib.asarray(lib.arange(3.0), dtype=lib.int64, requires_grad=True),
    ],
    TypeError: [lambda lib: lib.asarray(np.array(["a"])), lambda lib: lib.asarray("abc")],
    ValueError: [
        lambda lib: lib.asarray([1, 2, 3], copy=False),
        lambda lib: lib.asarray(3, copy=False),
        lambda lib: lib.asarray(np.arange(3.0), dtype=lib.float32, copy=False),
        lambda lib: lib.asarray(np.arange(3)[::-1]),
        lambda lib: lib.asarray(np.arange(3, dtype=">f4")),
        lambda lib: lib.asarray(bytearray(0)),
        lambda lib: lib.asarray(bytearray(7), dtype=lib.int16),
        lambda lib: lib.asarray(lib.arange(3.0), dtype=lib.int64, copy=False),
    ],
}


@pytest.mark.parametrize(("refused", "f"), refusals(ASARRAY))
def test_asarray_answers_as_torch(f: Callable[[Any], Any], refused: Any) -> None:
    agree(f, refused=refused)


def test_asarray_shares_where_torch_does() -> None:
    x, a, raw = skimp.arange(3.0), np.arange(3.0), bytearray(8)
    assert skimp.asarray(x) is x
    assert skimp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    assert skimp.asarray(a).data_ptr() == a.ctypes.data
    assert skimp.asarray(a, copy=True).data_ptr() != a.ctypes.data
    assert skimp.asarray(torch.ones(2)).tolist() == [1, 1]  # by way of DLPack
    skimp.asarray(raw)[0] = 1
    assert raw != bytearray(8)
    g = leaf(skimp)
    assert skimp.asarray(g, requires_grad=False) is g
    assert not g.requires_grad
    assert skimp.asarray(leaf(skimp) * 2, requires_grad=True).grad_fn is not None
    with pytest.warns(UserWarning, match="now defaults to obj.requires_grad"):
        skimp.asarray(leaf(skimp))


# -- NumPy's protocols ----------------------------------------------------------------------------

FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda t: np.exp(t),
    lambda t: np.add(t, 1),
    lambda t: np.add(t, np.ones(4)),
    lambda t: np.add(np.ones(4), t),
    lambda t: np.equal(t, t),
    lambda t: np.isnan(t),
    lambda t: np.float64(2) * t,
    lambda t: np.exp(t[0]),
    lambda t: np.maximum.reduce(t),
    lambda t: np.clip(t, 0, 1),
    lambda t: np.divmod(t, 2)[1],
]


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["int64", "float16", "float32", "float64"])
@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")  # torch's
def test_numpy_functions_answer_tensors(f: Callable[[Any], Any], dtype: str) -> None:
    x, t = (lib.arange(4).to(getattr(lib, dtype)) for lib in (skimp, torch))
    same(f(x), f(t))


def test_numpy_functions_without_a_tensor_answer() -> None:
    x = skimp.arange(4.0)
    assert isinstance(np.concatenate([x, x]), np.ndarray)
    assert isinstance(np.sort(x), np.ndarray)
    out = np.zeros(4, np.float32)
    assert np.add(x, x, out=out) is out
    assert out.tolist() == [0, 2, 4, 6]


def test_array_protocol() -> None:
    x = skimp.arange(4.0)
    shared = np.asarray(x)
    shared[0] = 9
    assert x[0].item() == 9
    assert np.array(x).base is None
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(x), shared)
    assert np.shares_memory(np.array(x, copy=False), shared)
    with pytest.raises(ValueError, match="avoid copy"):
        np.asarray(x, dtype=np.float64, copy=False)
    assert not hasattr(x, "__array_interface__")


@pytest.mark.parametrize(
    ("refused", "f"),
    refusals(
        {
            RuntimeError: [
                lambda lib: np.asarray(lib.ones(2, requires_grad=True)),
                lambda lib: np.asarray(lib.tensor([1j]).conj()),
                lambda lib: np.exp(lib.ones(2, requires_grad=True)),
            ],
            TypeError: [lambda lib: np.asarray(lib.ones(2, dtype=lib.bfloat16))],
        }
    ),
)
def test_array_protocol_refuses_as_torch(f: Callable[[Any], Any], refused: Any) -> None:
    agree(f, refused=refused)


# -- pandas and images ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "f"),
    refusals(
        {
            None: [
                lambda lib: lib.tensor(pd.Series([1.0, 2.0])),
                lambda lib: lib.as_tensor(pd.Series([1, 2])),
                lambda lib: lib.asarray(pd.Series([1.0, 2.0])),
                lambda lib: lib.from_numpy(pd.Series([1.0, 2.0]).to_numpy()),
                lambda lib: lib.tensor(pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0]}).values),
            ],
            TypeError: [lambda lib: lib.from_numpy(pd.Series([1.0]))],
        }
    ),
)
def test_pandas_in(f: Callable[[Any], Any], refused: Any) -> None:
    agree(f, refused=refused)


def test_pandas_columns_are_shared() -> None:
    values = np.arange(3.0)
    column = pd.Series(values, copy=False)
    with (
        told_anew(),
        pytest.warns(UserWarning, match="not writable"),
    ):  # pandas gives its columns read-only
        x = skimp.from_numpy(column.to_numpy())
    values[0] = 5
    assert x.tolist() == [5, 1, 2]


def test_pandas_out() -> None:
    x = skimp.arange(4.0).reshape(2, 2)
    assert pd.DataFrame(x).equals(pd.DataFrame(torch.arange(4.0).reshape(2, 2)))
    assert pd.DataFrame({"a": x[0]})["a"].dtype == np.float32
    assert pd.Series(x[1]).tolist() == [2, 3]
    assert pd.DataFrame(x.numpy(), columns=["a", "b"])["b"].tolist() == [1, 3]


def test_images() -> None:
    picture = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    copied = skimp.tensor(np.array(picture))
    same(copied, torch.tensor(np.array(picture)))
    with told_anew(), pytest.warns(UserWarning, match="not writable"):
        assert skimp.equal(skimp.from_numpy(np.asarray(picture)), copied)
    back = Image.fromarray((copied + 1).numpy())
    assert back.getpixel((1, 1)) == (10, 11, 12)
    assert skimp.equal(skimp.tensor(np.array(back)), copied + 1)
