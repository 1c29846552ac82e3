"""What files may ask for: nothing is run, refusals are named."""

from __future__ import annotations

import io
import os
import pickle
import struct
import subprocess
from typing import Any

import pytest
import torch

import skimp
from skimp.serialization import machine, rebuild
from tests.surface.serialization.test_saving import (
    no_globals,  # noqa: F401  (a fixture of every test)
    pickled,
    through,
    to_skimp,
)

# -- what files may ask for -----------------------------------------------------------------------


class Evil:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


class Plain:
    def __init__(self, n: int) -> None:
        self.n = n


def function() -> None: ...


@pytest.mark.parametrize("weights_only", [None, True, False])
@pytest.mark.parametrize(
    "call",
    [
        (os.system, ("exit 3",)),
        (eval, ("1/0",)),
        (subprocess.getoutput, ("true",)),
        (getattr, ("", "join")),
        (__import__, ("antigravity",)),
    ],
)
def test_nothing_is_run(call: Any, weights_only: Any) -> None:
    with pytest.raises(pickle.UnpicklingError, match=rf"{call[0].__name__}"):
        to_skimp({"x": torch.ones(1), "evil": Evil(*call)}, weights_only=weights_only)


def test_what_is_refused_is_named_with_the_way_out() -> None:
    with pytest.raises(
        pickle.UnpicklingError,
        match=r"GLOBAL .*Plain was not an allowed global .*add_safe_globals\(\[Plain\]",
    ):
        through(Plain(3), skimp.save, skimp.load)
    with skimp.serialization.safe_globals([Plain]):
        assert through(Plain(3), skimp.save, skimp.load).n == 3
    assert skimp.serialization.get_safe_globals() == []
    skimp.serialization.add_safe_globals([Plain, (function, "elsewhere.f")])
    assert through(Plain(4), torch.save, skimp.load).n == 4
    assert skimp.serialization.get_safe_globals() == [Plain, (function, "elsewhere.f")]


def test_unsafe_names_are_listed() -> None:
    buffer = io.BytesIO()
    skimp.save({"x": skimp.ones(1), "p": Plain(1), "s": {1}}, buffer)
    buffer.seek(0)
    assert skimp.serialization.get_unsafe_globals_in_checkpoint(buffer) == [
        f"{Plain.__module__}.Plain"
    ]


def tensor_of(args: bytes, n: bytes = b"K\x04") -> bytes:
    storage = (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        + n
        + b"tQ"
    )
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + args
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


HOSTILE = {
    "out of bounds": tensor_of(b"K\x00K\x05\x85K\x01\x85"),
    "offset": tensor_of(b"K\x04K\x01\x85K\x01\x85"),
    "negative stride": tensor_of(b"K\x00K\x02\x85J\xff\xff\xff\xff\x85"),
    "more bytes than the record has": tensor_of(b"K\x00K\x04\x85K\x01\x85", b"K\x63"),
    "state of a function": b"\x80\x02ctorch._utils\n"
    b"_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.",
    "state of a class": b"\x80\x02ctorch\nTensor\n}X\x01\x00\x00\x00aK\x01sb.",
    "items of a class": b"\x80\x02ctorch\nTensor\nK\x01a.",
    "instance opcode": b"\x80\x02(cposix\nsystem\no.",
    "bare tensor": b"\x80\x02ctorch\nTensor\n)\x81.",
    "call of a string": b"\x80\x02X\x01\x00\x00\x00a)R.",
    "extension": b"\x80\x02\x82\x01.",
    "codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R.",
    "nothing": b"\x80\x02.",
    "unknown opcode": b"\x80\x02\xff.",
    "half a pickle": b"\x80\x02}X\x05\x00\x00\x00ab",
    "memo": b"\x80\x02h\x07.",
    **{
        f"own attribute {name}": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n("
        b"ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n((X\x07\x00\x00\x00storage"
        b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
        b"K\x00K\x01\x85K\x01\x85\x89}t}X" + struct.pack("<I", len(name)) + name.encode() + b"NstR."
        for name in ("_skimp_layout", "_skimp_other", "_np", "_dtype", "_storage", "_hollow", "add")
    },
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_pickles(what: str) -> None:
    with pytest.raises((pickle.UnpicklingError, EOFError)):
        skimp.load(pickled(HOSTILE[what]), weights_only=False)


class Kind(skimp.Tensor):
    """A tensor that a program lets files have."""


def _kind(attribute: str) -> bytes:
    """An instance by itself, whose state is one attribute."""
    length = struct.pack("<I", len(attribute))
    return (
        f"\x80\x02c{__name__}\nKind\n)\x81}}X".encode("latin1")
        + length
        + (attribute.encode() + b"K\x01sb.")
    )


@pytest.mark.parametrize("name", ["_storage", "_np", "_skimp_layout", "data", "grad", "__class__"])
def test_an_allowed_class_of_tensors_keeps_its_own_attributes(name: str) -> None:
    skimp.serialization.add_safe_globals([Kind])
    assert skimp.load(pickled(_kind("note"))).note == 1
    with pytest.raises(pickle.UnpicklingError, match=f"the attribute '{name}' of a tensor"):
        skimp.load(pickled(_kind(name)))


def test_what_a_sparse_tensor_holds_is_no_attribute_of_a_program() -> None:
    t = torch.eye(2).to_sparse()
    t.note = 1
    assert to_skimp(t).note == 1
    t._sorted = True
    with pytest.raises(pickle.UnpicklingError, match="the attribute '_sorted' of a tensor"):
        to_skimp(t)


def test_a_tensor_without_bytes_of_its_own_is_of_no_class_that_has_some() -> None:
    parts = skimp.tensor([[0, 1]]), skimp.ones(2), (2,)
    made = rebuild.from_type(rebuild.sparse, Kind, (skimp.sparse_coo, parts), {"note": 1})
    assert (made.to_dense().tolist(), made.note) == ([1.0, 1.0], 1)  # type: ignore[attr-defined]


def test_the_good_form_of_the_hostile_tensor_loads() -> None:
    assert skimp.load(pickled(tensor_of(b"K\x00K\x04\x85K\x01\x85"))).tolist() == [0.0] * 4


def test_opcodes_that_build_anything_are_not_there() -> None:
    for op in (pickle.INST, pickle.OBJ, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.NEXT_BUFFER):
        assert op not in machine.MODERN | machine.OLD


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_types_that_do_not_exist_here_are_named() -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"torch.complex32, which skimp does not have"):
        to_skimp(torch.zeros(2, dtype=torch.complex32))
