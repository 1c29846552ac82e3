"""Tensors by the names of their types, and the types that makers take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import skimp
from tests.support.samples import alike, both as both_of, refused_with, same, seeded as both


def test_tensor_types() -> None:
    def run(lib: Any, functional: Any) -> Any:
        seen: list[Any] = []
        for kind in (
            "Float",
            "Double",
            "Half",
            "BFloat16",
            "Long",
            "Int",
            "Short",
            "Char",
            "Byte",
            "Bool",
        ):
            made = getattr(lib, f"{kind}Tensor")
            x = made([1, 0])
            seen.append(
                (
                    x.type(),
                    x.tolist(),
                    tuple(made(2, 3).shape),
                    tuple(made().shape),
                    isinstance(x, made),
                )
            )
            seen.append(
                (isinstance(x, lib.LongTensor), str(lib.ones(2).type(made).dtype), lib.typename(x))
            )
        x = lib.ones(2)
        seen += [x.type(f"torch.{k}Tensor").type() for k in ("Float", "Long")]
        seen += [
            x.type(lib.float16).type(),
            x.type_as(lib.arange(2)).type(),
            lib.is_tensor(x),
            lib.is_tensor(1),
        ]
        seen += [
            lib.is_storage(x.untyped_storage()),
            lib.is_storage(x),
            lib.get_device(x),
            x.is_pinned(),
        ]
        seen += [tuple(lib.Tensor(2, 3).shape), lib.Tensor([1, 2]).tolist(), lib.Tensor().tolist()]
        seen += [
            tuple(lib.Tensor(lib.Size([2, 0])).shape),
            str(lib.Tensor([1]).dtype),
            x.cpu() is x,
        ]
        return seen

    ours, theirs = both(run)
    assert ours == theirs


NEW: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda lib, x: x.new(),
    "sizes": lambda lib, x: x.new(2, 3).zero_(),
    "a size": lambda lib, x: x.new(*x.size()).fill_(3),
    "Size": lambda lib, x: x.new(lib.Size([4])).zero_(),
    "Size of none": lambda lib, x: x.new(lib.Size([])).fill_(3),
    "size=": lambda lib, x: x.new(size=(2,)).zero_(),
    "data": lambda lib, x: x.new([[1, 2], [3, 4]]),
    "data=": lambda lib, x: x.new(data=[1.0]),
    "a tuple": lambda lib, x: x.new((1, 2, 3)),
    "NumPy's": lambda lib, x: x.new(np.ones(2)),
    "itself": lambda lib, x: lib.tensor(x.new(x).data_ptr() == x.data_ptr()),
}
NO_SEQUENCE: dict[str, Callable[[Any, Any], Any]] = {
    "float": lambda lib, x: x.new(2.5),
    "bool": lambda lib, x: x.new(True),
    "float of a type": lambda lib, x: lib.FloatTensor(2.5),
    "bool of a type": lambda lib, x: lib.LongTensor(True),
}


@pytest.mark.parametrize("case", NEW)
@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_new(case: str, dtype: str) -> None:
    def run(lib: Any) -> Any:
        found = NEW[case](lib, lib.ones(2, 3, dtype=getattr(lib, dtype)))
        return found.tolist(), str(found.dtype), tuple(found.shape)

    assert run(skimp) == run(torch)


@pytest.mark.parametrize("case", NO_SEQUENCE)
def test_new_refuses_a_number(case: str) -> None:
    for lib in (torch, skimp):
        with pytest.raises(TypeError, match=r"new\(\): data must be a sequence \(got "):
            NO_SEQUENCE[case](lib, lib.ones(2, 3))


OF_DATA = """
T.ones(2).new([1, 2])
T.ones(2, dtype=T.int64).new([1, 2])
T.ones(2).new(3, 4).shape
T.ones(2).new().shape
""".strip().splitlines()


@pytest.mark.parametrize("text", OF_DATA)
def test_new_of_data(text: str) -> None:
    alike(lambda lib: eval(text, {"T": lib}))


def test_new_refuses_data_of_another_type() -> None:
    for lib in (torch, skimp):
        with pytest.raises(TypeError, match=r"expected .* \(got "):
            lib.ones(2).new(lib.arange(3))


def test_the_base_class_takes_tensors_of_any_type() -> None:
    class Own(skimp.Tensor):
        pass

    for kind in (torch.Tensor, skimp.Tensor, Own):
        library = torch if kind is torch.Tensor else skimp
        data = library.tensor([1, 2])
        made = kind(data)
        assert (str(made.dtype), made.tolist(), type(made)) == ("torch.int64", [1, 2], kind)
        assert made.data_ptr() == data.data_ptr()


def test_subclasses_are_made_of_data() -> None:
    class Mine(skimp.Tensor):
        pass

    assert type(Mine([1, 2])) is Mine
    x = skimp.ones(2)
    assert type(Mine(x)) is Mine
    assert type(x) is skimp.Tensor


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_default_tensor_type() -> None:
    skimp.set_default_tensor_type(skimp.DoubleTensor)
    assert skimp.ones(1).dtype is skimp.float64
    skimp.set_default_tensor_type("torch.FloatTensor")
    assert skimp.ones(1).dtype is skimp.float32
    with pytest.raises(TypeError, match="invalid type object"):
        skimp.set_default_tensor_type("nothing")


def test_tensors_of_types_by_name() -> None:
    """`torch.Tensor` means the default dtype; names need their module."""

    def program(lib: Any) -> Any:
        class Own(lib.Tensor):  # type: ignore[name-defined,misc]
            pass

        x = lib.ones(2, dtype=lib.int16)
        kinds = (lib.Tensor, "torch.Tensor", "torch.IntTensor", lib.float16)
        taken = [x.type(kind) for kind in kinds]
        lib.set_default_dtype(lib.float64)
        try:
            taken.append(x.type(lib.Tensor))
        finally:
            lib.set_default_dtype(lib.float32)
        bad = ("Tensor", "FloatTensor", "torch.NoTensor", Own, lib.nn.Parameter, int)
        return [*taken, *[refused_with(lambda kind=kind: x.type(kind)) for kind in bad]]

    same(*both_of(program))


@pytest.mark.parametrize("kind", [bool, int, float, complex])
def test_pythons_types_are_dtypes(kind: type) -> None:
    makers: list[Callable[[Any], Any]] = [
        lambda lib: lib.zeros(2, dtype=kind),
        lambda lib: lib.tensor([1, 0], dtype=kind),
        lambda lib: lib.as_tensor([1, 0], dtype=kind),
        lambda lib: lib.ones(2).to(kind),
        lambda lib: lib.ones(2).to(dtype=kind),
        lambda lib: lib.ones_like(lib.ones(2), dtype=kind),
        lambda lib: lib.full((2,), 1, dtype=kind),
        lambda lib: lib.ones(2).sum(dtype=kind),
        lambda lib: lib.ones(2).prod(dtype=kind),
        lambda lib: lib.ones(2).new_zeros(2, dtype=kind),
        lambda lib: lib.eye(2, dtype=kind),
    ]
    for make in makers:
        wanted, given = make(torch), make(skimp)
        assert str(given.dtype) == str(wanted.dtype)
        assert given.tolist() == wanted.tolist()
    assert str(skimp.arange(3, dtype=float).dtype) == str(
        skimp.ones(3).cumsum(0, dtype=float).dtype
    )


def test_from_file(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    np.arange(6, dtype=np.float32).tofile(path)
    for lib in (skimp, torch):
        assert lib.from_file(str(path), size=4).tolist() == [0.0, 1.0, 2.0, 3.0]
        assert lib.from_file(str(path), size=2, dtype=lib.int32).dtype is lib.int32
        shared = lib.from_file(str(path), shared=True, size=6)
        shared[0] = 7
        assert np.fromfile(path, np.float32)[0] == 7
        shared[0] = 0
